"""The next day of a run and of a plan: their bills, their late requests, and the plan's dollars by brute force."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.service import ResolvedService
from mark.planning.next_day import BILL_OF_PLAN, NextDay
from mark.simulation.inputs import Inputs, open_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import open_named, run_one
from mark.studies.decision import plan_service_once
from mark.studies.next_day import next_day_of_plan, next_day_of_run, next_days, plan_usd

DAY_S = 86400.0
RUN = RunRequest(
    trace="synthetic:diurnal?rate=0.2",
    service="inception-v3",
    policy="fixed:c5.large=2",
    start_s=1.5 * DAY_S,
    duration_s=DAY_S,
    with_bound=False,
)


@pytest.fixture(scope="module")
def run() -> tuple[Inputs, SimulationResult]:
    return open_named(RUN), run_one(RUN)


@pytest.fixture(scope="module")
def resolved() -> ResolvedService:
    return open_service(RunRequest("", "inception-v3"))


def found(run: tuple[Inputs, SimulationResult]) -> NextDay:
    coming = next_day_of_run(*run)
    assert coming is not None
    return coming


def test_run_of_a_fixed_fleet_costs_the_same_tomorrow(run: tuple[Inputs, SimulationResult]) -> None:
    usd = found(run).usd
    assert usd.expected == pytest.approx(run[1].bill.total, rel=0.02)
    assert usd.low <= usd.expected <= usd.high < 1.1 * usd.low
    assert (usd.calibrated, usd.past_windows) == (False, 2)


def test_promise_is_judged_by_the_late_requests_of_the_run(run: tuple[Inputs, SimulationResult]) -> None:
    """The same run with each minute's requests late instead of in time."""
    inputs, result = run
    line = replace(result.timeline, attainment=1.0 - result.timeline.attainment)
    promise, worse = found(run).promise, found((inputs, replace(result, timeline=line))).promise
    assert promise is not None
    assert worse is not None
    assert promise.probability > 0.9 > 0.1 > worse.probability


def test_each_policy_has_its_own_next_day(run: tuple[Inputs, SimulationResult]) -> None:
    twice = replace(run[1], bill=replace(run[1].bill, on_demand=2.0 * run[1].bill.total, other=0.0))
    both = next_days(RUN, {"fixed:c5.large=2": run[1], "fixed:c5.large=4": twice})
    one, other = both.values()
    assert one is not None
    assert other is not None
    assert other.usd.expected == pytest.approx(2.0 * one.usd.expected, rel=1e-6)


@pytest.mark.parametrize("start_s", [0.0, 2.5 * DAY_S], ids=["traffic of an hour", "bills of an hour"])
def test_less_than_a_day_foretells_nothing(start_s: float) -> None:
    request = replace(RUN, start_s=start_s, duration_s=3600.0)
    assert next_day_of_run(open_named(request), run_one(request)) is None


def test_plan_foretells_the_day_that_begins_with_it() -> None:
    request = replace(
        RUN, trace="synthetic:poisson?rate=0.2", policy="mark", predictor="seasonal-naive", duration_s=None
    )
    planned = plan_service_once(request, 2.0 * DAY_S)
    coming = next_day_of_plan(planned)
    assert coming is not None
    rates = np.full(48, 0.2)
    plan = float(plan_usd(planned.inputs.resolved, rates)(rates).sum())
    assert coming.usd.expected == pytest.approx(BILL_OF_PLAN * plan, rel=0.2)
    assert not coming.usd.calibrated
    assert coming.promise is not None
    assert (coming.promise.probability, coming.promise.calibrated) == (planned.plan.confidence, False)


@pytest.mark.parametrize("functions", [True, False])
def test_plan_costs_the_cheapest_whole_instances_with_a_fifth_in_hand(
    resolved: ResolvedService, functions: bool
) -> None:
    """Brute force over up to four of each type; with functions, one mix fewer and calls may cost less."""
    sold = [(o.usd_per_s * 1800.0, c.capacity_rps) for o, c in zip(resolved.offers, resolved.candidates, strict=True)]
    kinds = sorted({kind for kind in sold if kind[1] < 60.0})[:4]
    few = [place for place, kind in enumerate(sold) if kind in kinds]
    service = replace(
        resolved,
        offers=tuple(resolved.offers[i] for i in few),
        candidates=tuple(resolved.candidates[i] for i in few),
        function=resolved.function if functions else None,
    )
    rates = np.linspace(0.5, min(rps for _, rps in kinds) * 2.5, 9)
    mixes = [tuple(np.array(counts) @ np.array(kinds)) for counts in itertools.product(range(5), repeat=len(kinds))]
    for rate, usd in zip(rates, plan_usd(service, rates)(rates), strict=True):
        whole = min(usd for usd, rps in mixes if rps >= 1.2 * rate)
        if not functions:
            assert usd == pytest.approx(whole)
        else:
            call_usd = 1800.0 * service.in_time_usd
            called = min(usd + call_usd * max(0.0, rate - rps / 1.2) for usd, rps in mixes)
            assert min(called, whole) * (1.0 - 1e-9) <= usd <= whole * (1.0 + 1e-9)


def test_functions_alone_cost_in_proportion_to_requests(resolved: ResolvedService) -> None:
    alone = replace(resolved, offers=(), candidates=())
    assert math.isfinite(alone.in_time_usd)
    assert plan_usd(alone, np.ones(3))(np.array([2.0])) == pytest.approx(2.0 * 1800.0 * alone.in_time_usd)


def test_load_beyond_what_was_known_costs_in_proportion(resolved: ResolvedService) -> None:
    plan = plan_usd(replace(resolved, function=None), np.array([10.0]))
    assert plan(np.array([4000.0])) == pytest.approx(2.0 * plan(np.array([2000.0])), rel=1e-6)
