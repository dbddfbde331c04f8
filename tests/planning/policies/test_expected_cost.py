from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.load import Forecast
from mark.domain.offer import Delay, Market
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.planning.market.own_boots import OwnBoots
from mark.planning.planner import PlanningContext
from mark.planning.policies.alternatives import weigh
from mark.planning.policies.expected_cost import ExpectedCostMemory, ExpectedCostPolicy
from tests.planning.build import Minutes, fleet, forecast, resolved, sold, usual

SMALL, LARGE = "small/on-demand", "large/on-demand"


def decided(of: ResolvedService, running: Fleet, believed: Forecast, *, first: bool = False) -> Plan:
    return ExpectedCostPolicy("mark", of).plan(PlanningContext(0.0, of, running, believed, first=first), None)[0]


def small(**changes: object) -> ResolvedService:
    """Return a service of 10 requests/s at 0.2 $/h.

    A request costs 5.6e-6 $ on a full instance and 20e-6 $ as a function.
    """
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, **changes)  # type: ignore[arg-type]


def test_certain_load_is_covered_and_no_more() -> None:
    """Steady 90 requests/s need nine or ten instances of ten; the eleventh would serve almost nothing."""
    count = decided(small(), Fleet(()), forecast(90.0), first=True).counts[SMALL]
    assert 9 <= count <= 11


def test_cover_is_a_newsvendors_quantile() -> None:
    """An instance pays from 28 % use on: of a load spread evenly over 0..200, about the lower 72 % are covered."""
    plan = decided(small(rt_max_s=60.0), Fleet(()), forecast(100.0, 1.0), first=True)
    share = 0.2 / 3600.0 / 10.0 / small().function.usd_per_request
    assert plan.counts[SMALL] * 10.0 == pytest.approx(200.0 * (1.0 - share), abs=12.0)


def test_dearer_functions_buy_more_instances() -> None:
    """The dearer an overflowed request, the higher the quantile that is covered."""
    believed = forecast(100.0, 0.8)
    cheap = decided(small(function_ms=200.0), Fleet(()), believed, first=True).counts[SMALL]
    dear = decided(small(function_ms=500.0), Fleet(()), believed, first=True).counts[SMALL]
    assert dear > cheap


def test_no_more_is_planned_on_functions_than_they_may_cost() -> None:
    """For a load spread over 0..200, calls for 0.44 $/h are left over; a call beyond the limit is refused, a miss."""
    believed, capacity, overflow_usd = forecast(100.0, 1.0), [], []
    for most_usd_per_hour in (math.inf, 1.0, 0.3, 0.1):
        of = small(max_function_usd_per_hour=most_usd_per_hour)
        plan = decided(of, Fleet(()), believed, first=True)
        told = weigh(plan, PlanningContext(0.0, of, Fleet(()), believed, first=True))
        assert told is not None
        assert told.saved_usd_per_hour > 0.0
        capacity.append(plan.counts[SMALL])
        overflow_usd.append(told.chosen.overflow_usd_per_hour)
    assert capacity[0] == capacity[1] < capacity[2] < capacity[3]
    assert overflow_usd[0] == overflow_usd[1] > 0.3 > overflow_usd[2] > 0.1 > overflow_usd[3]


@pytest.mark.parametrize("function_ms", [None, 900.0])
def test_nearly_all_is_covered_where_functions_cannot_keep_the_promise(function_ms: float | None) -> None:
    """Overflow is then a miss, at first 12.5 times as dear as a request: an instance pays from 8 % use on."""
    plan = decided(small(function_ms=function_ms), Fleet(()), forecast(100.0, 0.5), first=True)
    assert plan.capacity_rps == pytest.approx(50.0 + 100.0 * 0.92, abs=8.0)
    assert "misses of the SLO" in plan.targets[0].reason


def step(before: float, after: float, at: int) -> FloatArray:
    return np.where(np.arange(60) < at, before, after)


@pytest.mark.parametrize("function_ms", [None, 2000.0])
def test_a_small_load_has_one_instance_if_functions_are_slow(
    function_ms: float | None,
) -> None:
    """By prices of misses alone a twentieth of an instance is not worth it, but without it all requests are late or
    refused.
    """
    of = small(function_ms=function_ms, min_instances=0)
    assert decided(of, Fleet(()), forecast(0.5)).counts == {SMALL: 1}
    assert decided(of, fleet({SMALL: 1}), forecast(0.5)).counts == {SMALL: 1}
    assert decided(of, Fleet(()), forecast(1e-4)).counts == {}
    assert decided(small(min_instances=0), Fleet(()), forecast(0.5)).counts == {}
    assert decided(small(function_ms=function_ms, max_usd_per_hour=0.1), Fleet(()), forecast(0.5)).counts == {}


def test_what_takes_a_boot_is_launched_a_boot_ahead() -> None:
    """A certain rise is launched for exactly a boot of three minutes ahead, not earlier."""
    of = resolved(replace(sold("small", 0.2), boot=Delay(180.0, 180.0)), latencies_ms={"small": 100.0})
    running = fleet({SMALL: 3})
    late = decided(of, running, forecast(step(28.0, 90.0, 4))).counts[SMALL]
    due = decided(of, running, forecast(step(28.0, 90.0, 3))).counts[SMALL]
    assert (late, due >= 9) == (3, True)


def test_a_spike_that_ends_before_the_boot_launches_nothing() -> None:
    """Functions take a spike of three minutes."""
    assert decided(small(), fleet({SMALL: 3}), forecast(step(90.0, 28.0, 3))).counts == {SMALL: 3}


def test_a_short_surge_is_not_worth_its_launch() -> None:
    """A launch pays only if the served requests are worth more than the boot."""
    surge = np.where((np.arange(60) >= 3) & (np.arange(60) < 4), 90.0, 28.0)
    assert decided(small(), fleet({SMALL: 3}), forecast(surge)).counts == {SMALL: 3}


def test_a_short_dip_stops_nothing_and_a_long_one_does() -> None:
    """Idling for two minutes is cheaper than launching again, idling for half an hour is not."""
    running = fleet({SMALL: 10})
    dip = np.where(np.arange(60) < 2, 30.0, 95.0)
    assert decided(small(), running, forecast(dip)).counts == {SMALL: 10}
    assert decided(small(), running, forecast(30.0)).counts[SMALL] <= 4


@settings(max_examples=150)
@given(rate=st.floats(0.0, 400.0), spread=st.floats(0.0, 1.0), running=st.integers(0, 40))
def test_a_steady_forecast_does_not_flap(rate: float, spread: float, running: int) -> None:
    """On constant beliefs the plans settle within a few minutes, whatever ran before."""
    of = usual()
    plans = [{SMALL: running, LARGE: running // 10}]
    for _ in range(5):
        plans.append(decided(of, fleet(plans[-1]), forecast(rate, spread)).counts)
    assert plans[-1] == plans[-2]


def test_cheap_requests_at_the_bottom_and_small_steps_on_top() -> None:
    """Steady 230: two large ones are full, the rest is not worth a third but a few small ones."""
    plan = decided(usual(), Fleet(()), forecast(218.0), first=True)
    assert plan.counts[LARGE] == 2
    assert 2 <= plan.counts[SMALL] <= 5


def test_running_instances_are_not_swapped_for_slightly_cheaper_ones() -> None:
    """Ten small ones that run serve 95 requests/s; a large one saves less in 40 minutes than its boot costs."""
    of = resolved(sold("large", 1.95), sold("small", 0.2), latencies_ms={"large": 10.0, "small": 100.0})
    assert decided(of, fleet({SMALL: 10}), forecast(95.0)).counts == {SMALL: 10}


def test_a_replaced_instance_ends_when_its_replacement_serves() -> None:
    """A large one for 1.5 $/h instead of ten small ones for 2 $/h pays for its boot within ten minutes."""
    of = usual()
    assert decided(of, fleet({SMALL: 10}), forecast(95.0)).counts == {SMALL: 10, LARGE: 1}
    booting = Instance(11, LARGE, Phase.PENDING, launched_s=-60.0, ready_s=120.0)
    both = Fleet((*fleet({SMALL: 10}).instances, booting))
    assert decided(of, both, forecast(95.0)).counts == {SMALL: 10, LARGE: 1}
    overdue = Fleet((*both.instances[:-1], replace(booting, ready_s=-30.0)))
    assert decided(of, overdue, forecast(95.0)).counts == {SMALL: 10, LARGE: 1}
    serves = Fleet((*both.instances[:-1], replace(booting, phase=Phase.READY, ready_s=-1.0)))
    assert decided(of, serves, forecast(95.0)).counts == {LARGE: 1}


def test_greedy_and_ilp_find_what_mark_finds() -> None:
    """The same program, solved in other ways; the solver is named."""
    of = usual()
    context = PlanningContext(0.0, of, fleet({SMALL: 3}), forecast(250.0, 0.2))
    plans = {how: ExpectedCostPolicy(how, of, how).plan(context, None)[0] for how in ("auto", "fast", "ilp")}
    assert plans["fast"].counts == plans["auto"].counts == plans["ilp"].counts
    assert all(plan.solver.split(", ")[1] == "proven" for plan in plans.values())


def test_committed_instances_come_first_and_cost_nothing_more() -> None:
    """All of them run, even for a load that functions would serve for less if the instances had to be paid."""
    of = replace(usual(), committed={SMALL: 2})
    assert decided(of, Fleet(()), forecast(0.5)).counts == {SMALL: 2}
    one = replace(of.service, max_instances=1)
    assert decided(replace(of, service=one), Fleet(()), forecast(0.5)).counts == {SMALL: 1}
    assert decided(of, fleet({SMALL: 2}), forecast(100.0)).counts.get(SMALL, 0) >= 2


@settings(max_examples=30)
@given(rate=st.floats(0.0, 5000.0), most=st.integers(1, 60), usd=st.floats(0.1, 50.0), running=st.integers(0, 60))
def test_limits_of_the_service_are_kept(rate: float, most: int, usd: float, running: int) -> None:
    """No plan exceeds max_instances or max_usd_per_hour."""
    of = usual(max_instances=most, max_usd_per_hour=usd)
    plan = decided(of, fleet({SMALL: running}), forecast(rate, 0.5))
    assert sum(plan.counts.values()) <= most
    assert sum(n * {SMALL: 0.2, LARGE: 1.5}[o] for o, n in plan.counts.items()) <= usd + 1e-6


def test_no_load_needs_no_fleet() -> None:
    """Functions answer rare requests."""
    alone = usual(min_instances=0)
    assert decided(alone, fleet({SMALL: 2}), forecast(0.0)).counts == {}
    assert decided(alone, Fleet(()), forecast(0.01), first=True).counts == {}


@pytest.mark.parametrize("rps", [0.0, 0.01])
@pytest.mark.parametrize("least", [1, 2])
def test_least_number_of_instances_is_of_the_cheapest_type(least: int, rps: float) -> None:
    """A running one stays, because a launch costs more than the difference of prices saves in 40 minutes."""
    of = usual(min_instances=least)
    plan = decided(of, Fleet(()), forecast(rps), first=True)
    assert plan.counts == {SMALL: least}
    assert "an instance must be there when a request comes" in plan.targets[0].reason
    assert decided(of, fleet({SMALL: 3}), forecast(rps)).counts == {SMALL: least}


def test_least_number_of_instances_is_of_the_type_that_costs_least_with_its_calls() -> None:
    """Calls for 9 requests/s cost 0.65 $/h, less than an instance. The large one saves more of them than it costs."""
    types = {"small": 250.0, "large": 100.0}
    for least, counts in ((0, {}), (1, {LARGE: 1})):
        of = resolved(sold("small", 0.7), sold("large", 0.72), latencies_ms=types, min_instances=least)
        assert decided(of, Fleet(()), forecast(9.0), first=True).counts == counts


@pytest.mark.parametrize("function_ms", [None, 380.0])
@pytest.mark.parametrize("least", [1, 2])
def test_least_number_of_instances_serves_while_cheaper_ones_boot(least: int, function_ms: float | None) -> None:
    """Three requests a minute do not pay for an instance on demand, but it stays until spot instances serve."""
    on_demand, spot = sold("small", 0.1), sold("small", 0.03, Market.SPOT)
    of = resolved(on_demand, spot, latencies_ms={"small": 100.0}, function_ms=function_ms, min_instances=least)
    playing = Minutes(ExpectedCostPolicy("mark", of), of)
    playing.ready = {SMALL: least}
    for _ in range(playing.boot):
        counts = playing.minute(0.05, forecast=forecast(0.05))
        assert counts == {SMALL: least, "small/spot": least}
    assert playing.minute(0.05, forecast=forecast(0.05)) == {"small/spot": least}


def test_functions_alone_and_no_forecast_are_said() -> None:
    """A resolved service without offers plans nothing; without a forecast the fleet stays."""
    alone = replace(usual(), offers=(), candidates=())
    assert decided(alone, Fleet(()), forecast(10.0)).notes == ("functions alone serve",)
    plan, _ = ExpectedCostPolicy("mark", usual()).plan(PlanningContext(0.0, usual(), fleet({SMALL: 3})), None)
    assert plan.counts == {SMALL: 3}


def test_reasons_speak_of_load_and_money() -> None:
    """A reason states the forecast and its time, the future capacity, and the effect of one instance less."""
    plan = decided(small(), fleet({SMALL: 3}), forecast(90.0, 0.2))
    reason = plan.targets[0].reason
    assert "forecast p50 90, p90 104 requests/s at +180 s, capacity 30 there or coming (instances: 3)" in reason
    count = plan.counts[SMALL]
    assert f"{10 * count} planned ({count}); one instance less would save 0.200 $/h and add" in reason


@settings(max_examples=100)
@given(
    first=st.floats(0.0, 200.0),
    last=st.floats(0.0, 200.0),
    spread=st.floats(0.0, 1.0),
    small=st.integers(0, 12),
    large=st.integers(0, 3),
)
def test_no_reason_contradicts_its_decision(first: float, last: float, spread: float, small: int, large: int) -> None:
    running = fleet({name: n for name, n in ((SMALL, small), (LARGE, large)) if n})
    for target in decided(usual(), running, forecast(np.linspace(first, last, 60), spread)).targets:
        found = re.search(r"would save ([0-9.]+) \$/h and add ([0-9.]+) \$/h", target.reason)
        if found is None:
            why = (
                "the plan costs least over 40 min, launches included",
                "an instance must be there when a request comes",
            )
            assert any(reason in target.reason for reason in why)
        else:
            assert float(found[2]) >= float(found[1]) - 0.005


def test_replaced_fleet_is_no_reason_to_keep_its_last_instance() -> None:
    """Three small instances take the place of the large one, which stays until they serve."""
    plan = decided(usual(), fleet({LARGE: 1}), forecast(28.0))
    assert plan.counts == {LARGE: 1, SMALL: 3}
    assert all("130 planned (4); the plan costs least over 40 min" in target.reason for target in plan.targets)


def lost_usd(of: ResolvedService, running: Fleet, rps: float) -> float:
    (target,) = decided(of, running, forecast(rps)).targets
    found = re.search(r"add ([0-9.]+) \$/h of (function calls|misses of the SLO) of this traffic", target.reason)
    assert found is not None, target.reason
    return float(found[1])


def test_reason_counts_the_dollars_of_this_traffic() -> None:
    """The only instance of a load far below its capacity serves that load, whatever else it could hold."""
    low, high = (lost_usd(small(function_ms=500.0), fleet({SMALL: 1}), rps) for rps in (4.0, 8.0))
    assert high == pytest.approx(2.0 * low, rel=0.1)


@pytest.mark.parametrize("function_ms", [None, 500.0])
@pytest.mark.parametrize("rps", [15.0, 90.0])
def test_reason_weighs_more_misses_than_dollars_for_what_is_planned(function_ms: float | None, rps: float) -> None:
    """The last instance of a steady load is worth its price, otherwise it would not be planned."""
    assert lost_usd(small(function_ms=function_ms), Fleet(()), rps) >= 0.2


def test_environments_are_warm_for_what_is_planned_to_overflow() -> None:
    """There are a few if almost nothing overflows, more if functions carry the load, and none if they are too slow."""
    covered = decided(small(), Fleet(()), forecast(70.0), first=True)
    assert 2 <= covered.warm <= 5
    tiny = decided(small(min_instances=0), Fleet(()), forecast(0.5), first=True)  # 0.19 busy on average
    assert (tiny.counts, tiny.warm) == ({}, 3)
    none = small(min_instances=0, max_instances=0)
    alone = decided(none, Fleet(()), forecast(100.0), first=True)  # 38 busy on average
    assert (alone.counts, alone.warm) == ({}, 1 + math.ceil(38.0 + 3.0 * math.sqrt(38.0)))
    late = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=900.0)
    assert decided(late, Fleet(()), forecast(70.0), first=True).warm == 0


def uncertain(p95_s: float, **changes: object) -> ResolvedService:
    """Return a service of 10 requests/s an instance, which boots in a minute on average."""
    offer = replace(sold("small", 0.2), boot=Delay(60.0, p95_s))
    return resolved(offer, latencies_ms={"small": 100.0}, **changes)  # type: ignore[arg-type]


def test_uncertain_boots_are_launched_earlier_where_misses_are_dear() -> None:
    """A burst of one minute in two minutes. Certain boots are launched a minute ahead, functions make misses cheap."""
    clocked = forecast(np.where(np.arange(60) == 2, 90.0, 3.0))
    running = fleet({SMALL: 1})
    assert decided(uncertain(120.0, function_ms=None), running, clocked).counts[SMALL] > 5
    assert decided(uncertain(60.0, function_ms=None), running, clocked).counts[SMALL] == 1
    assert decided(uncertain(120.0, function_ms=200.0), running, clocked).counts.get(SMALL, 0) <= 1


def test_instances_that_may_boot_for_long_are_counted_in_part() -> None:
    """Ten are needed in a minute and nine boot: more are launched than for boots that are certain to be over."""
    soon = forecast(np.where(np.arange(60) < 1, 8.0, 95.0))
    booting = [Instance(n, SMALL, Phase.PENDING, 0.0, 60.0) for n in range(2, 11)]
    running = Fleet((*fleet({SMALL: 1}).instances, *booting))
    certain, may_last = (decided(uncertain(p95_s, function_ms=None), running, soon) for p95_s in (60.0, 180.0))
    assert may_last.counts[SMALL] > certain.counts[SMALL] >= 10


def test_launches_follow_how_long_own_boots_took() -> None:
    """Boots that take twice as long as the catalogue says are launched earlier for the same burst."""
    of = uncertain(120.0, function_ms=None)
    planner = ExpectedCostPolicy("mark", of)

    def lead(memory: ExpectedCostMemory) -> int:
        """Return how many minutes ahead of a burst the planner launches."""
        found = 0
        for ahead in range(1, 12):
            clocked = forecast(np.where(np.arange(60) == ahead, 90.0, 3.0))
            context = PlanningContext(0.0, of, fleet({SMALL: 1}), clocked)
            found = ahead if planner.plan(context, memory)[0].counts[SMALL] > 5 else found
        return found

    assert lead(ExpectedCostMemory(boots=OwnBoots(0.0, 100.0, 200.0))) > lead(ExpectedCostMemory()) > 1


def test_own_boots_are_remembered() -> None:
    of = uncertain(120.0)
    took = Fleet((Instance(1, SMALL, Phase.READY, -100.0, -10.0),))
    _, memory = ExpectedCostPolicy("mark", of).plan(PlanningContext(0.0, of, took, forecast(8.0)), None)
    assert memory.boots == OwnBoots(-10.0, 1.0, 1.5)
