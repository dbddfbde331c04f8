"""The ways to plan a pipeline and to follow its load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import CoarseTuner
from mark.planning.graphs.estimate import QuerySample
from mark.planning.graphs.horizon_tuner import HorizonTuner
from mark.planning.graphs.pipeline_policies import (
    PIPELINE_POLICIES,
    LoadWindow,
    PipelinePlanningContext,
    PolicyPlan,
    pipeline_policy,
)
from mark.planning.graphs.tuner import InferLineTuner
from tests.kernel.reference import function
from tests.planning.graphs.planned import chain, option, traffic


def window(sample: QuerySample) -> LoadWindow:
    return LoadWindow(sample, sample, 20.0)


CALM, BUSY = (window(traffic(int(20 * rate), rate, 1.0, (1.0,), seed=1)) for rate in (20.0, 80.0))
CONTEXT = PipelinePlanningContext(
    chain("a"), Slo(0.2, 0.9), [[option("slow", 0.1, 0.0, 0.05), option("fast", 0.5, 0.0, 0.02)]], None, CALM, BUSY,
    {"slow": 40.0, "fast": 90.0},
)  # fmt: skip

USE = function(0.02, 0.0)


def planned(name: str, context: PipelinePlanningContext = CONTEXT) -> PolicyPlan:
    plan = PIPELINE_POLICIES[name].plan
    assert plan is not None
    return plan(context)


def calls_per_s(name: str, context: PipelinePlanningContext = CONTEXT) -> float:
    (choice,) = planned(name, context).choices
    return choice.calls_per_s


@pytest.mark.parametrize(
    ("name", "tuner"),
    [
        ("tuned", HorizonTuner),
        ("inferline", InferLineTuner),
        ("coarse-mean", CoarseTuner),
        ("coarse-peak", type(None)),
        ("fixed", type(None)),
    ],
)
def test_each_begins_with_enough_for_what_it_knows(name: str, tuner: type) -> None:
    """Policies that follow the load plan for the load before; fixed ones plan for the busiest minutes of the part."""
    plan = planned(name)
    choices, follows = plan.choices, plan.tuner
    assert type(follows) is tuner
    known = BUSY if PIPELINE_POLICIES[name].foresees else CALM
    assert choices[0].calls_per_s >= known.calls_per_s[0] * 0.9
    assert PIPELINE_POLICIES[name].foresees == (follows is None)
    assert calls_per_s(name, replace(CONTEXT, busiest=CALM, known=BUSY)) != calls_per_s(name)


def test_the_horizon_is_the_plans_slowest_boot() -> None:
    ours, theirs = (planned(name) for name in ("tuned", "inferline"))
    assert ours.choices[0].option.hardware == "slow"
    assert isinstance(ours.tuner, HorizonTuner)
    assert ours.tuner.activation_s == CONTEXT.activation_s(ours.choices) == 40.0
    assert isinstance(theirs.tuner, InferLineTuner)
    assert theirs.tuner.stable_s == 3.0 * CONTEXT.activation_s(theirs.choices)


def test_simultaneous_queries_are_planned_for_and_not_followed() -> None:
    once = window(QuerySample(np.zeros(3), np.ones((3, 1), dtype=np.int64)))
    plan = planned("tuned", replace(CONTEXT, known=once, functions=(USE,)))
    assert (plan.tuner, plan.functions) == (None, ())
    assert plan.choices[0].replicas >= 1


def test_only_tuned_uses_functions_and_begins_with_fewer_replicas() -> None:
    """A replica costs $10 an hour, and a million calls of the function $5."""
    dear = [[option("slow", 10.0, 0.0, 0.05), option("fast", 50.0, 0.0, 0.02)]]
    without = replace(CONTEXT, known=BUSY, options=dear)
    context = replace(without, functions=(USE,))
    for name, policy in PIPELINE_POLICIES.items():
        if policy.plan is None:
            continue
        plan, plain = policy.plan(context), policy.plan(without)
        if policy.uses_functions:
            assert plan.functions == (USE,)
            assert isinstance(plan.tuner, HorizonTuner)
            assert plan.tuner.bridged == (True,)
            assert plan.choices[0].replicas <= plain.choices[0].replicas
        else:
            assert (name, plan.functions, plan.choices) == (name, (), plain.choices)
    assert [name for name, policy in PIPELINE_POLICIES.items() if policy.uses_functions] == ["tuned"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match=r"known: mark, tuned, inferline, coarse-mean, coarse-peak, fixed\), did you mean fixed"
    ):
        pipeline_policy("fixd")
