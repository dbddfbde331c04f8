"""The stages that rely on their functions: only those that gain by it, and no promise is broken for a saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.planning.graphs.bridging import WORTH, Bridging, FunctionRole, bridging
from mark.planning.graphs.estimate import QuerySample, StageChoice
from mark.planning.graphs.horizon_tuner import HorizonTuner
from mark.planning.graphs.load_levels import load_levels
from mark.planning.graphs.tuned_run import FIXED, TunedRun, run_tuned
from tests.kernel.reference import function
from tests.planning.graphs.planned import chain, option, traffic

NONE, STANDBY, BRIDGE, ALONE = FunctionRole
SLO = Slo(0.5, 0.99)
RATE = 30.0
KNOWN = traffic(1800, RATE, 1.0, (1.0, 0.5), seed=1)
PIPELINE = chain("a", "b")
# Ten calls a second each, for a dollar an hour: 28 $ a million
CHOICES = (StageChoice(option("x", 1.0, 0.0, 0.1, 1), 1, 5), StageChoice(option("y", 1.0, 0.0, 0.1, 1), 1, 3))
TUNER = HorizonTuner(load_levels(PIPELINE, KNOWN, CHOICES, SLO), 90.0)
USE = function(0.1, 0.0)  # 5 $ a million


def found(
    functions: Sequence[FunctionUse | None],
    known: QuerySample = KNOWN,
    tuner: HorizonTuner = TUNER,
    *,
    may_be_alone: bool = False,
) -> Bridging:
    return bridging(PIPELINE, known, CHOICES, tuner, SLO, functions, may_be_alone=may_be_alone)


def costing(usd_per_million: float) -> FunctionUse:
    return replace(USE, offer=replace(USE.offer, usd_per_gb_second=0.0, usd_per_million_requests=usd_per_million))


def replicas(of: Bridging) -> list[int]:
    return [choice.replicas for choice in of.choices]


def served(of: Bridging) -> TunedRun:
    return run_tuned(
        PIPELINE, KNOWN, of.choices, FIXED, begin_s=0.0, end_s=float(KNOWN.arrivals_s[-1]) + 1e-9,
        slo_s=SLO.rt_max_s, functions=of.functions, alone=of.alone,
    )  # fmt: skip


PLAIN = found((None, None))


def test_a_cheap_function_takes_the_place_of_the_margin() -> None:
    both = found((USE, USE))
    assert both.roles == (BRIDGE, BRIDGE)
    assert both.functions == (USE, USE)
    assert both.tuner.bridged == (True, True)
    assert all(lean < ample for lean, ample in zip(replicas(both), replicas(PLAIN), strict=True))
    last = found((None, USE))
    assert (last.roles, last.functions, last.tuner.bridged) == ((NONE, BRIDGE), (None, USE), (False, True))
    assert replicas(last) == [replicas(PLAIN)[0], replicas(both)[1]]


def test_a_stage_bridges_only_where_last_moments_leave_enough_time() -> None:
    """Its function leaves b the time of a single call, without a queue, so a keeps its margin."""
    first = found((USE, None))
    assert (first.roles, first.functions) == ((STANDBY, NONE), (USE, None))
    assert replicas(first) == replicas(PLAIN)


def test_replicas_alone_are_those_that_the_tuner_follows_with() -> None:
    assert PLAIN.roles == (NONE, NONE)
    assert PLAIN.functions == (None, None)
    assert PLAIN.tuner.bridged == (False, False)
    assert replicas(PLAIN)[0] >= RATE * 1.5 / 10.0


def test_a_dear_function_bridges_nothing() -> None:
    """At the known load hardly a call is needed, but each call costs half an hour of a replica once the load grows."""
    assert max(found((costing(5e5), costing(5e5))).roles) <= STANDBY


def test_a_dear_function_stands_by_where_it_costs_nothing() -> None:
    """On even traffic replicas with their margin answer every call, and a function call costs a replica's hour."""
    even = QuerySample(np.arange(1800) / RATE, np.ones((1800, 2), dtype=np.int64))
    tuner = HorizonTuner(load_levels(PIPELINE, even, CHOICES, SLO), 90.0)
    use = costing(1e6)
    standing = found((use, None), even, tuner)
    assert (standing.roles, standing.functions) == ((STANDBY, NONE), (use, None))
    assert replicas(standing) == replicas(found((None, None), even, tuner))


def test_a_function_that_is_always_late_is_not_counted_on() -> None:
    """Its environments end immediately, so each call has a cold start of three seconds."""
    cold = function(0.1, 3.0, keep_alive_s=0.0)
    late = found((cold, cold))
    assert max(late.roles) <= STANDBY
    assert served(late).miss_share(SLO.rt_max_s) <= 0.01


def test_a_function_is_alone_only_if_allowed_and_cheaper() -> None:
    """A replica costs $1 an hour.

    Half of 30 queries/s call b: at $5 a million b's calls cost $0.27 an hour, a's $0.54.
    """
    cheap = costing(5.0)
    alone = found((cheap, cheap), may_be_alone=True)
    assert (alone.roles, alone.alone) == ((ALONE, ALONE), (True, True))
    calls_per_query = KNOWN.calls.mean(axis=0)
    assert alone.tuner.alone_below == pytest.approx(tuple(1.0 / 3600.0 / 5e-6 / calls_per_query))
    run = served(alone)
    assert (run.usd, run.miss_share(SLO.rt_max_s)) == (0.0, 0.0)
    assert [called.calls for called in run.by_function] == KNOWN.calls.sum(axis=0).tolist()
    assert ALONE not in found((cheap, cheap)).roles
    dearer = found((costing(15.0), None), may_be_alone=True)  # $1.62 an hour
    assert dearer.roles[0] < ALONE


@pytest.mark.parametrize("seed", range(8))
def test_no_bill_and_no_lateness_exceeds_that_of_replicas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    uses = [
        replace(costing(float(10.0**exponent)), warm_s=float(warm_s), cold_s=float(cold_s))
        for exponent, warm_s, cold_s in zip(
            rng.uniform(0.0, 4.0, 2), rng.choice([0.05, 0.2, 0.3], 2), rng.choice([0.0, 3.0], 2), strict=True
        )
    ]
    run, plain = served(found(uses, may_be_alone=seed % 2 == 0)), served(PLAIN)
    assert run.total_usd <= plain.total_usd * (1.0 + WORTH) * (1.0 + 1e-9)
    assert run.miss_share(SLO.rt_max_s) <= max(0.01, plain.miss_share(SLO.rt_max_s))
