from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.late_shares import LateShares
from mark.domain.load import Forecast
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import Lateness, overflow_rps
from mark.planning.planner import PlanningContext
from mark.planning.policies.burstable import Seen
from mark.planning.policies.expected_cost import ExpectedCostMemory, ExpectedCostPolicy
from mark.planning.policies.hindsight import (
    ENOUGH_S,
    HALF_LIFE_S,
    MOST_INSTANCES,
    FixedFleet,
    FixedFleets,
    PastCosts,
)
from tests.planning.build import Minutes, fleet, forecast, resolved, sold, usual

SMALL = "small/on-demand"
RPS, LAUNCH_USD, BOOT_STEPS = np.array([10.0, 25.0]), np.array([0.01, 0.03]), np.array([2, 3])
USD_PER_STEP = np.array([0.003, 0.006])
MISS_USD, PATIENCE_S = 0.001, 0.5
EVERY = np.array([True, True])


def fleets(committed: tuple[int, int] = (0, 0), most: tuple[int, int] = (4, 2)) -> FixedFleets:
    return FixedFleets(
        ("small", "large"),
        RPS,
        LAUNCH_USD,
        BOOT_STEPS,
        np.array(committed),
        np.array(most),
        late_share=0.02,
        lateness=Lateness(PATIENCE_S),
    )


def counts(small: int, large: int = 0) -> IntArray:
    return np.array([small, large])


def played(of: FixedFleets, loads_rps: list[float | None], plans: list[tuple[int, int]]) -> PastCosts:
    """Return the past after those minutes, each under its plan."""
    past = of.seen(None, 0.0, None, counts(*plans[0]), USD_PER_STEP, MISS_USD)
    for minute, load_rps in enumerate(loads_rps, start=1):
        past = of.seen(
            past, 60.0 * minute, load_rps, counts(*plans[min(minute, len(plans) - 1)]), USD_PER_STEP, MISS_USD
        )
    return past


def shed(load_rps: float, capacity_rps: float) -> float:
    """Return the requests of a minute."""
    return 60.0 * float(overflow_rps(np.array(load_rps), np.array(capacity_rps), PATIENCE_S))


def test_costs_are_the_discounted_sum_of_instances_launches_and_misses() -> None:
    """The reference is a sum by hand: two minutes at 8 and 30 requests/s.

    One instance runs, then three, two of which boot.
    """
    past = played(fleets(), [8.0, 30.0], [(1, 0), (3, 0), (3, 0)])
    discount = 0.5 ** (60.0 / HALF_LIFE_S)
    first_usd = 0.003 + MISS_USD * shed(8.0, 10.0)
    second_usd = 3 * 0.003 + 2 * 0.01 + MISS_USD * shed(30.0, 10.0)
    assert past.planned_usd == pytest.approx(discount * first_usd + second_usd)
    fixed = [(n * 0.003, n * 10.0) for n in (1, 2, 3, 4)] + [(n * 0.006, n * 25.0) for n in (1, 2)]
    wanted = [usd * (1 + discount) + MISS_USD * (discount * shed(8.0, c) + shed(30.0, c)) for usd, c in fixed]
    assert past.fixed_usd == pytest.approx(wanted)
    assert past.fixed_late == pytest.approx([discount * shed(8.0, c) + shed(30.0, c) for _, c in fixed])
    assert past.requests == pytest.approx(60.0 * (8.0 * discount + 30.0))
    assert past.seen_s == pytest.approx(60.0 * (1 + discount))


def test_what_boots_serves_once_a_whole_boots_plans_wanted_it() -> None:
    """Three instances of which two boot for two minutes: the third minute is the first that they serve."""
    past = played(fleets(), [5.0, 30.0, 30.0, 30.0], [(1, 0), (3, 0)])
    more = fleets().seen(past, 300.0, 30.0, counts(3), USD_PER_STEP, MISS_USD)
    assert more.planned_usd - 0.5 ** (60.0 / HALF_LIFE_S) * past.planned_usd == pytest.approx(
        3 * 0.003 + MISS_USD * shed(30.0, 30.0)
    )


def test_what_is_paid_for_anyway_costs_nothing() -> None:
    past = played(fleets(committed=(2, 0)), [0.0], [(3, 0)])
    assert past.fixed_usd[:4] == pytest.approx([0.0, 0.0, 0.003, 0.006])
    assert past.planned_usd == pytest.approx(0.003)


def test_a_plan_made_again_within_a_minute_is_replaced() -> None:
    of = fleets()
    past = played(of, [8.0], [(1, 0)])
    again = of.seen(past, 70.0, 8.0, counts(4), USD_PER_STEP, MISS_USD)
    assert again.plans == (*past.plans[:-1], (4, 0))
    assert (again.at_s, again.planned_usd, again.fixed_usd) == (past.at_s, past.planned_usd, past.fixed_usd)


def test_a_minute_without_an_observation_is_left_out() -> None:
    past = played(fleets(), [8.0, None], [(1, 0)])
    assert past.seen_s == 60.0
    assert past.at_s == 120.0


def test_a_past_of_other_offers_is_none() -> None:
    past = played(fleets(most=(4, 2)), [8.0] * 50, [(1, 0)])
    assert fleets(most=(2, 2)).best(bursts(fleets(), 60)) is None
    assert fleets().best(replace(bursts(fleets(), 60), offers=("small", "huge"))) is None
    assert fleets(most=(2, 2)).seen(past, 3060.0, 8.0, counts(1), USD_PER_STEP, MISS_USD).seen_s == 0.0


def test_an_absence_counts_as_two_minutes_at_most() -> None:
    """For the discount of the past it counts as the day that it was."""
    of = fleets()
    past = of.seen(played(of, [8.0] * 60, [(1, 0)]), 60.0 * 61 + 86_400.0, 8.0, counts(1), USD_PER_STEP, MISS_USD)
    assert past.seen_s == pytest.approx(120.0 + 3600.0 * 0.5**8, rel=0.1)


def test_a_clock_that_was_set_back_begins_anew() -> None:
    of = fleets()
    assert of.seen(played(of, [8.0] * 60, [(1, 0)]), 1800.0, 8.0, counts(1), USD_PER_STEP, MISS_USD).seen_s == 0.0


@pytest.mark.parametrize("load_rps", [math.nan, math.inf])
def test_a_load_that_is_no_number_is_left_out(load_rps: float) -> None:
    assert played(fleets(), [8.0, load_rps], [(1, 0)]).seen_s == 60.0


SECONDS = np.array([100.0] * 4 + [2.0] * 8)  # of a minute whose mean is below 35


def test_fleet_is_judged_by_windows_within_the_minute() -> None:
    """Three have room for 30 requests/s in the mean of 34.7, and turn away most requests during 20 s at 100."""
    of = fleets()
    past = played(of, [2.0], [(1, 0)])
    seen = of.seen(past, 120.0, float(SECONDS.mean()), counts(1), USD_PER_STEP, MISS_USD, SECONDS)
    late = np.array(seen.fixed_late) - 0.5 ** (60.0 / HALF_LIFE_S) * np.array(past.fixed_late)
    assert late[3] == pytest.approx((shed(100.0, 40.0) * 4 + shed(2.0, 40.0) * 8) / 12.0, rel=0.02)
    assert late[3] > 20.0 * shed(float(SECONDS.mean()), 40.0)
    without = of.seen(past, 120.0, float(SECONDS.mean()), counts(1), USD_PER_STEP, MISS_USD)
    assert (seen.planned_usd, seen.fixed_usd, seen.requests) == (
        without.planned_usd,
        without.fixed_usd,
        without.requests,
    ), "what windows show costs plans and fleets nothing: no fleet is held for it"


def bursts(of: FixedFleets, minutes: int) -> PastCosts:
    """Return the past of 5 and 24 requests/s by turns of five minutes, with one and three instances."""
    loads, plans = [], []
    for minute in range(minutes):
        high = minute // 5 % 2 == 1
        loads.append(24.0 if high else 5.0)
        plans.append((3, 0) if high else (1, 0))
    return played(of, list(loads), plans)


def test_the_cheapest_fleet_that_kept_the_promise_is_best() -> None:
    """One large instance has room for 25 requests/s at the price of two small ones: 24 of them are too many for it."""
    best = fleets().best(bursts(fleets(), 60))
    assert best is not None
    assert (best.offer, best.count) == (0, 3)
    assert best.fixed_usd < 0.98 * best.planned_usd


def test_less_than_half_an_hour_says_nothing() -> None:
    short = math.floor(ENOUGH_S / 60.0) - 1
    assert fleets().best(bursts(fleets(), short)) is None
    assert fleets().best(bursts(fleets(), short + 5)) is not None


def test_plans_that_are_as_cheap_are_followed() -> None:
    assert fleets().best(played(fleets(), [8.0] * 60, [(2, 0)])) is None


def test_no_fleet_is_best_that_broke_the_promise() -> None:
    """Every fleet of up to two small instances sheds more than 2 %; otherwise the cheapest of them would be held."""
    assert fleets(most=(2, 0)).best(bursts(fleets(most=(2, 0)), 60)) is None


def test_nothing_that_lasts_leaves_the_plans_alone() -> None:
    of = fleets(most=(0, 0))
    assert of.best(played(of, [8.0] * 60, [(1, 0)])) is None


def test_fleets_have_no_more_instances_than_are_compared() -> None:
    assert len(played(fleets(most=(100, 0)), [8.0], [(1, 0)]).fixed_usd) == MOST_INSTANCES


def counted(late: float) -> LateShares:
    """Return a table by which a fleet of any size leaves a share of every load late."""
    shape = (2, 3)
    return LateShares(
        np.array([1, 2]),
        np.array([1.0, 10.0, 100.0]),
        np.full(shape, late),
        np.zeros(shape),
        np.ones(shape),
        0.5,
        1_000,
    )


def test_a_fleet_is_late_by_the_table_of_its_own_type() -> None:
    """As 0.4 of a large instance, a small one would leave 60 % late."""
    large, small = Lateness(PATIENCE_S, counted(0.001), 25.0), Lateness(PATIENCE_S, counted(0.004), 10.0)
    assert float(large.late_rps(8.0, 10.0)) > 4.0
    of = FixedFleets(
        ("small", "large"),
        RPS,
        LAUNCH_USD,
        BOOT_STEPS,
        np.array((0, 0)),
        np.array((2, 2)),
        late_share=0.02,
        lateness=large,
        alone=(small, large),
    )
    past = played(of, [8.0] * 40, [(2, 0)])
    assert past.fixed_late == pytest.approx(np.array([0.004, 0.004, 0.001, 0.001]) * past.requests)
    best = of.best(past)
    assert best is not None
    assert (best.offer, best.count) == (0, 1)


THREE = FixedFleet(0, 3, 1.0, 2.0)


def test_instances_that_have_the_fleets_capacity_at_this_load_are_enough() -> None:
    one_large, two_small = FixedFleet(1, 1, 1.0, 2.0), counts(2)
    believed = tailed(22.0, 24.0)
    assert held(two_small, two_small, believed, fleet=one_large) == [2, 1]
    assert held(two_small, two_small, believed, fleet=one_large, usable_rps=np.array([13.0, 25.0])) == [2, 0]


def held(
    planned: IntArray,
    running: IntArray,
    believed: Forecast,
    buyable: BoolArray = EVERY,
    *,
    ready: IntArray | None = None,
    fleet: FixedFleet = THREE,
    usable_rps: FloatArray = RPS,
) -> list[int]:
    ready = running if ready is None else ready
    return fleets().hold(fleet, planned, running, ready, buyable, believed, USD_PER_STEP, usable_rps).tolist()


def tailed(rate_rps: float, p90_rps: float) -> Forecast:
    """Return a forecast of one rate, with a tail from the p90 on."""
    flat = forecast(rate_rps)
    mean_rps, peak_rps = flat.mean_rps.copy(), flat.peak_rps.copy()
    mean_rps[flat.levels >= 0.9] = peak_rps[flat.levels >= 0.9] = p90_rps
    return Forecast(flat.origin_s, flat.step_s, flat.levels, mean_rps, peak_rps, flat.predictor)


def test_its_capacity_is_the_least_that_is_held() -> None:
    assert held(counts(1), counts(1), forecast(24.0)) == [3, 0]


def test_what_runs_comes_before_a_launch() -> None:
    """A large instance that runs but is no longer planned, with one small instance, has the capacity of three."""
    assert held(counts(1), counts(1, 1), forecast(24.0)) == [1, 1]


def test_the_most_is_held_with_which_the_load_fits() -> None:
    """The dearer by request goes first: small ones cost more of it than a large one."""
    assert held(counts(6), counts(6), forecast(24.0)) == [3, 0]
    assert held(counts(2, 1), counts(2, 1), forecast(24.0)) == [1, 1]


def test_more_is_held_where_more_is_likely_soon() -> None:
    """The fleet has room for 30; a forecast's tail up to 37.5 fits, beyond that it is believed."""
    assert held(counts(6), counts(6), tailed(24.0, 37.0)) == [3, 0]
    assert held(counts(6), counts(6), tailed(24.0, 38.0)) == [6, 0]
    assert held(counts(6), counts(6), forecast(31.0)) == [6, 0], "expected is more than its room, though not far more"
    assert held(counts(6), counts(6), forecast(np.append(np.full(5, 10.0), np.full(55, 100.0)))) == [3, 0]


def test_what_is_swapped_serves_until_its_replacement_does() -> None:
    """Three small ones serve, two large ones boot that are cheaper: only when they serve do the small ones go."""
    assert held(counts(3, 2), counts(3, 2), forecast(24.0), ready=counts(3)) == [3, 2]
    assert held(counts(3, 2), counts(3, 2), forecast(24.0)) == [0, 2]
    assert held(counts(4, 1), counts(1, 1), forecast(24.0)) == [1, 1], "launches that are too many"


def test_nothing_is_held_where_nothing_near_it_is_likely() -> None:
    """The spike is over, and the forecast expects it in no minute."""
    assert held(counts(1), counts(3), forecast(17.0)) == [1, 0]
    assert held(counts(1), counts(1), forecast(np.append(np.full(59, 5.0), 19.0))) == [3, 0]


def test_what_the_market_refuses_is_not_asked_for() -> None:
    refused = np.array([False, True])
    assert held(counts(1), counts(1), forecast(24.0), refused) == [1, 0]
    assert held(counts(1), counts(2), forecast(24.0), refused) == [2, 0]


few = st.integers(0, 8)


@given(st.tuples(few, few), st.tuples(few, few), st.floats(1.0, 60.0))
def test_the_capacity_that_is_held_is_never_less(
    planned: tuple[int, int], running: tuple[int, int], load_rps: float
) -> None:
    """It is at least the smaller of the plan's and the fleet's, and no instance is launched without effect."""
    found = np.array(held(counts(*planned), counts(*running), forecast(load_rps)))
    assert found.min() >= 0
    assert found @ RPS >= min(counts(*planned) @ RPS, 30.0) - 1e-6
    if load_rps >= 18.0:
        assert found @ RPS >= 30.0 - 1e-6
    more = found > np.maximum(planned, running)
    assert all(found @ RPS - RPS[i] < 30.0 for i in np.flatnonzero(more))


def bursty(**changes: object) -> ResolvedService:
    """Return a service of 10 requests/s an instance at 0.2 $/h, without a function."""
    given_: dict[str, object] = {"function_ms": None, **changes}
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, **given_)  # type: ignore[arg-type]


def hour_of_bursts(of: ResolvedService) -> tuple[Minutes, list[int]]:
    """Play 5 and 24 requests/s by turns, forecast with a tail up to 24.

    Returns the game and the counts held in its last half.
    """
    played = Minutes(ExpectedCostPolicy("mark", of), of, boot=4)
    played.first(PlanningContext(0.0, of, fleet({}), forecast(5.0), first=True))
    wanted = []
    for minute in range(80):
        rate_rps = 24.0 if minute // 5 % 2 else 5.0
        tail = forecast(rate_rps)
        believed = Forecast(0.0, 60.0, tail.levels, tail.mean_rps.copy(), tail.peak_rps.copy(), "test")
        believed.mean_rps[-1] = believed.peak_rps[-1] = 24.0
        wanted.append(sum(played.minute(rate_rps, forecast=believed).values()))
    return played, wanted[40:]


def test_a_small_service_holds_through_bursts_it_could_not_foresee() -> None:
    of = bursty()
    played, wanted = hour_of_bursts(of)
    assert min(wanted) >= 3
    assert isinstance(played.memory, ExpectedCostMemory)


def test_note_names_no_fleet_that_missed_bursts() -> None:
    """Each of the same bursts lies within 20 s of its minute: three instances have room for the mean only."""
    of = bursty()
    notes = []
    for spread in (1.0, 3.0):
        policy = ExpectedCostPolicy("mark", of)
        memory = policy.begin()
        for minute in range(80):
            rate_rps = 24.0 if minute // 5 % 2 else 5.0
            windows = rate_rps * np.array([spread] * 4 + [(12.0 - 4.0 * spread) / 8.0] * 8)
            context = PlanningContext(
                60.0 * minute, of, fleet({SMALL: 1}), forecast(rate_rps), rate_rps, windows_rps=windows
            )
            plan, memory = policy.plan(context, memory)
        notes.append([note for note in plan.notes if "throughout" in note])
    assert [note[:2] for note in notes[0]] == ["3 "]
    assert not any(note.startswith("3 ") for note in notes[1])


def test_where_functions_answer_in_time_nothing_is_compared() -> None:
    played, wanted = hour_of_bursts(bursty(function_ms=200.0))
    assert played.memory.past is None
    assert min(wanted) < 3


@pytest.mark.parametrize("limit", [{"max_instances": 2}, {"max_usd_per_hour": 0.45}])
def test_a_fleet_beyond_the_limits_is_not_held(limit: dict[str, object]) -> None:
    _, wanted = hour_of_bursts(bursty(**limit))
    assert max(wanted) <= 2


@pytest.mark.parametrize("memory", [None, (), (Seen(1, 0.0, 10.0, 0.0),), "another policy's"])
def test_what_is_no_memory_of_this_policy_begins_anew(memory: object) -> None:
    context = PlanningContext(0.0, usual(), fleet({SMALL: 3}), forecast(20.0), 20.0)
    _, begun = ExpectedCostPolicy("mark", usual()).plan(context, memory)
    assert begun == ExpectedCostPolicy("mark", usual()).plan(context, ExpectedCostMemory())[1]


@pytest.mark.parametrize("changes", [{"max_instances": 2}, {"max_usd_per_hour": 0.45}])
def test_limits_that_change_while_it_is_held_begin_anew(changes: dict[str, object]) -> None:
    """New offers do the same, because the memory is about other fleets."""
    played, _ = hour_of_bursts(bursty())
    of = bursty(**changes)
    context = PlanningContext(60.0 * 81, of, fleet({SMALL: 3}), forecast(24.0), 24.0)
    plan, memory = ExpectedCostPolicy("mark", of).plan(context, played.memory)
    assert plan.counts.get(SMALL, 0) <= 2
    assert memory.past is not None
    assert memory.past.seen_s == 0.0
    two = resolved(
        sold("small", 0.2), sold("large", 0.4), latencies_ms={"small": 100.0, "large": 40.0}, function_ms=None
    )
    _, memory = ExpectedCostPolicy("mark", two).plan(replace(context, resolved=two), played.memory)
    assert memory.past is not None
    assert len(memory.past.plans[-1]) == 2
