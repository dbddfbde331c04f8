"""Which stages count on their functions: those that gain by it, and no promise is broken for a saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.pipelines.bridging import WORTH, Bridging, bridging
from mark.pipelines.estimate import Choices, QuerySample, StageChoice
from mark.pipelines.horizon_tuner import HorizonTuner
from mark.pipelines.levels import load_levels
from mark.pipelines.tuned_run import TunedRun, run_tuned
from tests.kernel.reference import function
from tests.pipelines.planned import chain, option, traffic

SLO = Slo(0.5, 0.99)
RATE = 30.0
KNOWN = traffic(1800, RATE, 1.0, (1.0, 0.5), seed=1)
PIPELINE = chain("a", "b")
# Ten calls a second each, for a dollar an hour: 28 $ a million
CHOICES = (StageChoice(option("x", 1.0, 0.0, 0.1, 1), 1, 5), StageChoice(option("y", 1.0, 0.0, 0.1, 1), 1, 3))
TUNER = HorizonTuner(load_levels(PIPELINE, KNOWN, CHOICES, SLO), 90.0)
USE = function(0.1, 0.0)  # 5 $ a million


def found(functions: Sequence[FunctionUse | None], known: QuerySample = KNOWN, tuner: HorizonTuner = TUNER) -> Bridging:
    return bridging(PIPELINE, known, CHOICES, tuner, SLO, functions)


def costing(usd_per_million: float) -> FunctionUse:
    return replace(USE, offer=replace(USE.offer, usd_per_gb_second=0.0, usd_per_million_requests=usd_per_million))


def served(bridge: Bridging) -> TunedRun:
    fleet: Choices = tuple(replace(one, replicas=n) for one, n in zip(CHOICES, bridge.replicas, strict=True))
    return run_tuned(
        PIPELINE, KNOWN, fleet, None, begin_s=0.0, end_s=float(KNOWN.arrivals_s[-1]) + 1e-9, slo_s=SLO.rt_max_s,
        activation_s=0.0, functions=bridge.functions,
    )  # fmt: skip


ALONE = found((None, None))


def test_a_cheap_function_takes_the_place_of_the_margin() -> None:
    both = found((USE, USE))
    assert both.functions == (USE, USE)
    assert both.bridged == (True, True)
    assert all(lean < ample for lean, ample in zip(both.replicas, ALONE.replicas, strict=True))
    first = found((USE, None))
    assert (first.functions, first.bridged) == ((USE, None), (True, False))
    assert first.replicas == (both.replicas[0], ALONE.replicas[1])


def test_replicas_alone_are_those_that_the_tuner_follows_with() -> None:
    assert ALONE.functions == (None, None)
    assert ALONE.bridged == (False, False)
    assert ALONE.replicas[0] >= RATE * 1.5 / 10.0


def test_a_dear_function_bridges_nothing() -> None:
    """A call costs as much as half an hour of a replica."""
    assert found((costing(5e5), costing(5e5))).bridged == (False, False)


def test_a_dear_function_stands_by_where_it_costs_nothing() -> None:
    """At even traffic replicas with their margin answer everything; a call would cost as much as a replica's hour."""
    even = QuerySample(np.arange(1800) / RATE, np.ones((1800, 2), dtype=np.int64))
    tuner = HorizonTuner(load_levels(PIPELINE, even, CHOICES, SLO), 90.0)
    use = costing(1e6)
    standing = found((use, None), even, tuner)
    assert (standing.functions, standing.bridged) == ((use, None), (False, False))


def test_a_function_that_is_always_late_is_not_counted_on() -> None:
    """Its environments are gone at once, and each call has a cold start of three seconds."""
    cold = function(0.1, 3.0, keep_alive_s=0.0)
    late = found((cold, cold))
    assert late.bridged == (False, False)
    assert served(late).miss_share(SLO.rt_max_s) <= 0.01


@pytest.mark.parametrize("seed", range(8))
def test_no_bill_is_above_that_of_replicas_alone_and_no_more_are_late(seed: int) -> None:
    rng = np.random.default_rng(seed)
    uses = [
        replace(costing(float(10.0 ** rng.uniform(0.0, 4.0))), warm_s=float(rng.choice([0.05, 0.2, 0.3])), cold_s=cold_s)
        for cold_s in rng.choice([0.0, 3.0], 2)
    ]
    run, alone = served(found(uses)), served(ALONE)
    assert run.total_usd <= alone.total_usd * (1.0 + WORTH) * (1.0 + 1e-9)
    assert run.miss_share(SLO.rt_max_s) <= max(0.01, alone.miss_share(SLO.rt_max_s))
