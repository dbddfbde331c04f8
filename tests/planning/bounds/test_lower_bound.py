"""The clairvoyant lower bound: at most the cost of any feasible schedule, and never far below its linear program."""

from __future__ import annotations

import gzip
import itertools
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionOffer
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.bounds import dual
from mark.planning.bounds.linear_program import BoundProgram, prove, solve_lp
from mark.planning.bounds.lower_bound import BoundProblem, build_problem, fluid_bound, program_of

# How far the interior-point method may stay below the program's value, relative.
CLOSE = 1e-3
QUICK = settings(max_examples=25, derandomize=True)


# -- builders ----------------------------------------------------------------------------------------------------------


def offer(name: str = "a.large", usd_per_hour: float = 1.0, market: Market = Market.ON_DEMAND, **more: object) -> Offer:
    """Return an offer whose boots take at least 90 s, of which 70 s are billed."""
    return Offer(name, market, usd_per_hour, **{"boot": Delay(180.0, 300.0), "vcpu": 2.0, **more})  # type: ignore[arg-type]


def candidate(rps: float) -> Candidate:
    profile = Profile("m", "any", (ProfileRow(1, 1e3 / rps),))
    return Candidate(profile, BatchPolicy(1, 0.0), np.array([0.0, 1.0 / rps]), rps, rps)


def function(usd_per_request: float, warm_s: float = 0.3) -> FunctionUse:
    priced = FunctionOffer(1024, 0.0, usd_per_request * 1e6, 1.0, 1000, 1000.0, 300.0)
    return FunctionUse(priced, warm_s, 0.0, "assumed")


def resolved(
    *offers: tuple[Offer, float], usd_per_request: float | None = None, warm_s: float = 0.3, rt_max_s: float = 0.6
) -> ResolvedService:
    """Return offers with their requests/s."""
    things = tuple(o for o, _ in offers)
    service = ServiceConfig("s", "m", Slo(rt_max_s, 0.98), "c", tuple(Market), ("*",), 100, 100.0, ())
    use = None if usd_per_request is None else function(usd_per_request, warm_s)
    return ResolvedService(service, Catalog("c", things, ()), things, tuple(candidate(rps) for _, rps in offers), use)


def problem(counts: list[float] | np.ndarray, *offers: tuple[Offer, float], **more: object) -> BoundProblem:
    """Return a problem with bins of a second by default; the part ends with the last bin."""
    keys = ("warm_start", "spot", "bin_s", "spot_first_hour_free")
    told = {key: more.pop(key) for key in keys if key in more}
    end_s = len(counts) * float(told.get("bin_s", 1.0))  # type: ignore[arg-type]
    return build_problem(resolved(*offers, **more), counts, end_s=end_s, **told)  # type: ignore[arg-type]


def usd(made: BoundProblem, late: float = 0.0) -> float:
    found = fluid_bound(made, late)
    assert found.usd is not None
    return found.usd


@dataclass(frozen=True)
class Steps:
    """A spot series."""

    kind: str
    times_s: tuple[float, ...]
    shares: tuple[float, ...]
    period_s: float = 1e6
    name: str = "series"


def program(
    demand: list[float],
    price: list[float],
    start: list[float],
    function: float = math.inf,
    warm_start: bool = True,
    **more: object,
) -> BoundProgram:
    bins, types = len(demand) + 1, len(price)
    return replace(
        BoundProgram(
            usd=1.0,
            requests=1.0,
            demand=np.array(demand),
            price=np.tile(price, (bins, 1)),
            available=np.ones((bins, types), dtype=np.bool_),
            start=np.array(start),
            function=function,
            warm_start=warm_start,
            credits=np.zeros(types, dtype=np.bool_),
            earned=np.zeros(types),
            launch=np.zeros(types),
            surplus=np.full(types, np.inf),
            launches=0.0,
        ),
        **more,  # type: ignore[arg-type]
    )


@st.composite
def programs(draw: st.DrawFn, credits: bool = False) -> BoundProgram:
    types = draw(st.integers(1, 3))
    demand = draw(st.lists(st.integers(0, 12).map(float), min_size=1, max_size=40).filter(any))
    some = st.floats(0.5, 3.0)
    made = program(
        demand,
        draw(st.lists(some, min_size=types, max_size=types)),
        draw(st.lists(st.floats(0.0, 20.0), min_size=types, max_size=types)),
        draw(st.sampled_from([2.0, 5.0, 20.0, math.inf])),
        draw(st.booleans()),
    )
    bins = made.bins
    if draw(st.booleans()):
        price = made.price * np.array(draw(st.lists(some, min_size=bins, max_size=bins)))[:, None]
        made = replace(made, price=price)
    if types > 1 and draw(st.booleans()):
        available = made.available.copy()
        available[:, 1] = draw(st.lists(st.booleans(), min_size=bins, max_size=bins))
        made = replace(made, available=available)
    if credits:
        price = made.price.copy()
        price[:, 0] = 0.3
        made = replace(
            made,
            price=price,
            credits=np.arange(types) == 0,
            earned=np.full(types, draw(st.floats(0.0, 0.5))),
            launch=np.full(types, draw(st.floats(0.0, 10.0))),
            surplus=np.full(types, draw(st.sampled_from([0.7, 2.0, math.inf]))),
            launches=2.0,
        )
    return made


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_constant_demand_costs_exactly_the_instances_that_serve_it() -> None:
    # 20 requests/s for an hour on instances of 10 requests/s at 1 $/h: two instances, two dollars, less one bin's work.
    found = fluid_bound(problem([20.0] * 3600, (offer(), 10.0), usd_per_request=1e-3))
    assert found.usd == pytest.approx(2.0 * 3599 / 3600, rel=CLOSE)
    assert found.function_share == pytest.approx(0.0, abs=1e-3)
    assert found.status == "proven"


@pytest.mark.parametrize("price", [0.5, 0.9, 1.1, 2.0, None])
def test_a_burst_is_served_by_the_cheaper_way(price: float | None) -> None:
    # 60 bins of 10 requests may be served in 61 bins, by 600/61 requests/s, started once: 70 s of boot are billed.
    counts = np.zeros(400)
    counts[200:260] = 10.0
    per_request = 1.0 / 3600.0 / 10.0
    instances = per_request * (600.0 + 70.0 * 600.0 / 61.0)
    made = problem(counts, (offer(), 10.0), usd_per_request=None if price is None else price * instances / 600.0)
    assert usd(made) == pytest.approx(instances * min(1.0, price or 1.0), rel=CLOSE)


def test_launching_is_free_on_a_warm_start_only() -> None:
    warm, cold = (problem([10.0] * 300, (offer(), 10.0), warm_start=start) for start in (True, False))
    assert usd(cold) - usd(warm) == pytest.approx(70.0 / 3600.0, rel=0.02)


def test_no_demand_costs_nothing() -> None:
    for counts in ([], [0.0], [0.0] * 50):
        assert usd(problem(counts, (offer(), 10.0))) == 0.0


def test_a_run_late_in_nearly_all_bins_has_bound_zero() -> None:
    """An overloaded fleet answers nearly all requests too late, so its bound is 0."""
    made = problem([3.0, 5.0, 4.0, 2.0], (offer(), 10.0), usd_per_request=1e-4)
    for late in (12.0, 13.0):
        found = fluid_bound(made, late)
        assert (found.usd, found.status) == (0.0, "proven")
    assert usd(made, 11.0) > 0.0


def test_the_last_bin_may_be_served_after_the_end() -> None:
    assert usd(problem([0.0] * 50 + [100.0], (offer(), 10.0), usd_per_request=1.0)) == 0.0


def test_with_functions_alone_every_request_costs_its_price() -> None:
    found = fluid_bound(problem([3.0, 4.0, 5.0], usd_per_request=0.01), 2.0)
    assert found.usd == pytest.approx(0.1, rel=1e-6)
    assert found.function_usd == found.usd
    assert found.instance_usd == 0.0


@pytest.mark.parametrize("use", [{}, {"usd_per_request": 0.01, "warm_s": 0.7}])
def test_nothing_that_serves_in_time_is_infeasible_with_the_reason(use: dict[str, float]) -> None:
    found = fluid_bound(problem([3.0, 4.0], **use), 6.0)
    assert found.usd is None
    assert found.status == "infeasible"
    assert found.note == "neither instances nor a function in time: 7 requests, 6 may be late"
    assert usd(problem([3.0, 4.0], **use), 7.0) == 0.0


def test_a_function_slower_than_the_promise_does_not_count() -> None:
    counts = [5.0] * 200
    slow = problem(counts, (offer(), 10.0), usd_per_request=1e-9, warm_s=0.7)
    assert usd(slow) == usd(problem(counts, (offer(), 10.0)))


# -- against plain enumeration -----------------------------------------------------------------------------------------


def cheapest_schedule(arrivals_s: list[float], bins: int, warm: bool, kinds: list[tuple[float, float, float]],
                      usd_per_request: float, late: int) -> float:  # fmt: skip
    """Return the least bill over all fleets of at most one instance of each kind, switched at whole seconds.

    A kind is ($ per second, $ per start, seconds per request). Requests go in order to the instance that finishes first
    and in time, else to a function (or are late). Work begun in the last second is finished unbilled.
    """
    least = math.inf
    for fleet in itertools.product(itertools.product((0, 1), repeat=bins), repeat=len(kinds)):
        spent, free_s = 0.0, [0.0] * len(kinds)
        for (running, start, _), on in zip(kinds, fleet, strict=True):
            before = (on[0] if warm else 0, *on)
            spent += running * sum(on) + start * sum(b > a for a, b in itertools.pairwise(before))
        left = 0
        for t in arrivals_s:
            best, server = math.inf, -1
            for i, ((_, _, service_s), on) in enumerate(zip(kinds, fleet, strict=True)):
                begin = max(t, free_s[i])
                while begin < bins and not on[int(begin)]:
                    begin = math.floor(begin) + 1.0
                end = begin + service_s
                there = begin < bins and all(on[int(s)] for s in (begin, min(end, bins) - 1e-9))
                if there and end <= t + 1.0 and end < best:
                    best, server = end, i
            if server < 0:
                left += 1
            else:
                free_s[server] = best
        least = min(least, spent + usd_per_request * max(0, left - late))
    return least


@QUICK
@given(
    arrivals_ms=st.lists(st.integers(0, 4999), min_size=1, max_size=14).map(sorted),
    rates=st.lists(st.tuples(st.floats(1.0, 5.0), st.sampled_from([2.0, 4.0])), min_size=1, max_size=2),
    usd_per_request=st.floats(0.2, 3.0),
    boot_s=st.sampled_from([20.0, 20.5, 22.0]),
    warm=st.booleans(),
    late=st.sampled_from([0, 0, 2]),
    committed=st.booleans(),
)
def test_no_schedule_of_whole_instances_is_cheaper_than_the_bound(
    arrivals_ms: list[int],
    rates: list[tuple[float, float]],
    usd_per_request: float,
    boot_s: float,
    warm: bool,
    late: int,
    committed: bool,
) -> None:
    bins = 5
    arrivals_s = [ms / 1e3 for ms in arrivals_ms]
    boot = Delay(boot_s, boot_s)
    offers = [(offer(f"t{i}", usd * 3600.0, boot=boot), rps) for i, (usd, rps) in enumerate(rates)]
    counts = np.bincount(np.array(arrivals_s, dtype=np.int64), minlength=bins)
    made = problem(counts, *offers, usd_per_request=usd_per_request, warm_start=warm, rt_max_s=1.0)
    kinds = [(usd, usd * (boot_s - 20.0), 1.0 / rps) for usd, rps in rates]
    if committed:  # one of the first kind runs and boots for nothing
        made = replace(made, resolved=replace(made.resolved, committed={offers[0][0].name: 1}))
        kinds[0] = (0.0, 0.0, kinds[0][2])
    least = cheapest_schedule(arrivals_s, bins, warm, kinds, usd_per_request, late)
    assert usd(made, late) <= least + 1e-9


# -- against the linear program ----------------------------------------------------------------------------------------


def test_what_is_free_serves_on_wider_bins_as_much() -> None:
    """30 a bin, of which 10 are free, are 90 in three, of which 30 are; requests of the last bin are not counted."""
    made = program([30.0] * 11, [1.0], [0.0], free=10.0)
    values = [solution.value for factor in (1, 3) if (solution := solve_lp(made.coarse(factor)))]
    assert values == pytest.approx([11 * 30.0 - 12 * 10.0, 3 * 90.0 - 4 * 30.0])


def test_a_request_is_served_in_its_bin_or_the_next() -> None:
    """With 30 in every other bin, 20 free a bin leave no request unserved; 12 leave 6 of each 30."""
    made = program([30.0, 0.0, 30.0, 0.0], [1.0], [0.0], available=np.zeros((5, 1), dtype=np.bool_))
    assert [replace(made, free=free).stranded for free in (20.0, 12.0, 0.0)] == [0.0, 12.0, 60.0]


def enough_late(made: BoundProgram, late: float) -> float:
    return max(late, made.stranded if made.function == math.inf else 0.0)


@QUICK
@given(programs(), st.sampled_from([0.0, 0.0, 3.0, 25.0]))
def test_the_proof_attains_the_linear_program_and_never_exceeds_it(made: BoundProgram, late: float) -> None:
    late = enough_late(made, late)
    exact = solve_lp(made, late)
    assert exact is not None
    worth = made.highest if late == 0.0 else min(exact.late_price, made.function)
    found = prove(made, worth, np.zeros(made.types), tolerance=1e-5).value - late * worth
    assert found <= exact.value * (1.0 + 1e-6) + 1e-6
    assert found >= exact.value * (1.0 - CLOSE) - 1e-3


@QUICK
@given(programs(), st.sampled_from([0.5, 2.0, 6.0, 20.0]), st.sampled_from([0.0, 3.0]))
def test_beside_free_capacity_the_proof_never_exceeds_the_program(made: BoundProgram, free: float, late: float) -> None:
    made = replace(made, free=free)
    late = enough_late(made, late)
    exact = solve_lp(made, late)
    assume(exact is not None)
    assert exact is not None
    worth = made.highest if late == 0.0 else min(exact.late_price, made.function)
    found = prove(made, worth, np.zeros(made.types), tolerance=1e-5).value - late * worth
    assert found <= exact.value * (1.0 + 1e-6) + 1e-6
    without = prove(replace(made, free=0.0), worth, np.zeros(made.types), tolerance=1e-5).value - late * worth
    assert found <= without * (1.0 + CLOSE) + 1e-3


@QUICK
@given(programs(credits=True), st.floats(0.0, 3.0))
def test_any_price_of_credits_proves_a_bound(made: BoundProgram, credit_price: float) -> None:
    late = enough_late(made, 0.0)
    exact = solve_lp(made, late)
    # Without credits and without a function nothing can answer, so there is nothing to compare with.
    assume(exact is not None)
    assert exact is not None
    worth = made.highest + credit_price
    found = prove(made, worth, np.full(made.types, credit_price)).value - late * worth
    assert found <= exact.value * (1.0 + 1e-6) + 1e-6


@QUICK
@given(programs(), st.randoms(use_true_random=False))
def test_whatever_the_search_proposes_the_certificate_stays_below_the_program(
    made: BoundProgram, random: object
) -> None:
    late = enough_late(made, 0.0)
    exact = solve_lp(made, late)
    assert exact is not None
    draw = random.uniform  # type: ignore[attr-defined]
    wild = [[draw(-30.0, 30.0) if draw(0.0, 1.0) < 0.9 else math.nan for _ in made.start] for _ in range(made.bins)]
    r0 = made.start.copy() if made.warm_start else np.zeros(made.types)
    value = dual.certify(
        made.demand, made.price, made.available, made.start, r0, np.zeros(made.types), made.highest, np.array(wild)
    )
    assert value - late * made.highest <= exact.value * (1.0 + 1e-6) + 1e-6


@pytest.mark.parametrize(("work", "window", "factor"), [(10**9, 300, 1), (1500, 16_384, 4)])
def test_proposals_on_larger_bins_are_proven_on_the_original(work: int, window: int, factor: int) -> None:
    mean = 20.0 + 15.0 * np.sin(np.arange(1499) / 90.0)
    demand = np.random.default_rng(1).poisson(mean).astype(float)
    made = program(list(demand), [1.0, 1.2], [70.0, 40.0], 4.0)
    exact = solve_lp(made)
    assert exact is not None
    found = prove(made, made.highest, np.zeros(2), work=work, window=window)
    assert 0.95 * exact.value <= found.value <= exact.value * (1.0 + 1e-9)
    assert found.factor == factor


# -- laws --------------------------------------------------------------------------------------------------------------


@QUICK
@given(
    counts=st.lists(st.integers(0, 30).map(float), min_size=4, max_size=60).filter(any),
    extra=st.integers(0, 59),
    late=st.floats(0.0, 20.0),
)
def test_the_bound_is_monotone_in_demand_price_and_lateness(counts: list[float], extra: int, late: float) -> None:
    cheap, dear = (offer(), 10.0), (offer(usd_per_hour=1.3), 10.0)
    base = usd(problem(counts, cheap, usd_per_request=1e-4))
    room = CLOSE * base + 1e-9
    more = [n + 5.0 * (j == extra) for j, n in enumerate(counts)]
    assert usd(problem(more, cheap, usd_per_request=1e-4)) >= base - room
    assert usd(problem(counts, dear, usd_per_request=1e-4)) >= base - room
    assert usd(problem(counts, cheap, usd_per_request=2e-4)) >= base - room
    assert usd(problem(counts, cheap, usd_per_request=1e-4), late) <= base + room
    even = counts[: len(counts) // 2 * 2]
    halved = [a + b for a, b in zip(even[::2], even[1::2], strict=True)]
    wide = usd(problem(halved, cheap, usd_per_request=1e-4, bin_s=2.0))
    assert wide <= usd(problem(even, cheap, usd_per_request=1e-4)) + room


def test_the_most_expensive_requests_are_late() -> None:
    rng = np.random.default_rng(3)
    counts = rng.poisson(np.where(np.arange(900) % 300 < 40, 60.0, 20.0)).astype(float)
    made = problem(counts, (offer(), 10.0), usd_per_request=6e-5)
    linear = program_of(made)
    assert linear is not None
    for share in (0.001, 0.02, 0.3):
        late = share * counts.sum()
        exact = solve_lp(linear, late / linear.requests)
        assert exact is not None
        found = usd(made, late)
        assert exact.value * linear.usd * 0.99 <= found <= exact.value * linear.usd * (1.0 + 1e-9)


def test_an_offer_that_another_can_stand_in_for_changes_nothing() -> None:
    counts = [5.0, 40.0, 5.0] * 100
    good = (offer("good", 1.0), 10.0)
    alone = program_of(problem(counts, good))
    both = program_of(problem(counts, good, (offer("worse", 1.2), 11.0), (offer("same", 1.0), 10.0)))
    assert alone is not None
    assert both is not None
    assert both.types == 1
    # A shorter boot keeps the dearer one in the program.
    quick = (offer("quick", 1.2, boot=Delay(30.0, 30.0)), 10.0)
    with_quick = program_of(problem(counts, good, quick))
    assert with_quick is not None
    assert with_quick.types == 2
    assert usd(problem(counts, good, quick)) <= usd(problem(counts, good)) * (1.0 + CLOSE)


def test_the_same_problem_has_the_same_bound() -> None:
    made = problem([5.0, 40.0, 5.0] * 100, (offer(), 10.0), usd_per_request=1e-4)
    assert fluid_bound(made, 3.0) == fluid_bound(made, 3.0)


# -- spot --------------------------------------------------------------------------------------------------------------


def spot(usd_per_hour: float = 0.3, zone: str = "z") -> tuple[Offer, float]:
    return offer("a.large", usd_per_hour, Market.SPOT, zone=zone), 10.0


def test_interrupted_spot_serves_until_its_notice_ends() -> None:
    counts = np.full(1000, 10.0)
    gone = Steps("availability", (0.0, 300.0, 600.0), (1.0, 0.0, 0.5))
    made = problem(counts, spot(), usd_per_request=0.01, spot=(gone,))
    # Away from 300 + 120 s to 600 s; carried work touches one bin at either side.
    assert fluid_bound(made).function_share == pytest.approx(0.18, abs=0.005)
    without = fluid_bound(problem(counts, spot(), spot=(gone,)))
    assert without.usd is None
    assert "no spot capacity" in without.note
    # Another zone with capacity carries on.
    assert usd(problem(counts, spot(), spot(zone="y"), spot=(gone, Steps("availability", (0.0,), (1.0,))))) < 0.1


def test_spot_costs_what_its_series_says() -> None:
    counts = [10.0] * 1000
    on_demand = (offer(usd_per_hour=1.0), 10.0)
    cheap_then_dear = Steps("price", (0.0, 500.0), (0.2, 0.6))
    mixed = problem(counts, on_demand, spot(0.9), spot=(cheap_then_dear,))
    assert usd(mixed) == pytest.approx((0.2 + 0.6) / 2 * 1000 / 3600, rel=5e-3)
    with pytest.raises(BadInput, match="needs the on-demand price"):
        problem(counts, spot(0.9), spot=(cheap_then_dear,))


def test_a_free_first_hour_makes_spot_free_and_says_so() -> None:
    found = fluid_bound(problem([10.0] * 100, spot(), spot_first_hour_free=True))
    assert found.usd == 0.0
    assert "spot counted as free" in found.note


# -- burstables --------------------------------------------------------------------------------------------------------


def burstable(launch_credits: float = 60.0, surplus: float | None = None) -> tuple[Offer, float]:
    credits = BurstCredits(0.2, 24.0, 576.0, launch_credits, surplus)
    return offer("t.medium", 0.1, Market.BURSTABLE, credits=credits), 10.0


def test_burstables_without_credits_serve_at_their_baseline() -> None:
    counts = [10.0] * 3600
    alone, fleet = burstable(launch_credits=0.0), (offer(), 10.0)
    # Five of them at a baseline of 0.2 stand in for one at full speed: 0.5 $/h against 1 $/h.
    assert usd(problem(counts, alone, fleet)) == pytest.approx(0.5, rel=0.01)
    # With credits for the whole load one is enough; with fewer the cost is in between.
    assert usd(problem(counts, burstable(launch_credits=60.0), fleet)) == pytest.approx(0.1, rel=0.01)
    some = usd(problem(counts, burstable(launch_credits=0.5), fleet))
    assert 0.1 < some < 0.5


def test_surplus_credits_are_paid() -> None:
    # Full speed of 2 vCPUs spends 2 credits a minute and earns 0.4: 1.6 vCPU-hours of surplus in an hour.
    counts = [10.0] * 3600
    assert usd(problem(counts, burstable(0.0, 0.05), (offer(), 10.0))) == pytest.approx(0.1 + 1.6 * 0.05, rel=0.01)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_impossible_numbers_are_refused_with_one_line() -> None:
    fleet = (offer(), 10.0)
    for counts in ([1.0, -1.0], [1.0, math.nan], [[1.0]]):
        with pytest.raises(BadInput, match="counts must be"):
            problem(counts, fleet)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="RT_max"):
        problem([1.0], fleet, bin_s=0.5)
    for late in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="late"):
            fluid_bound(problem([1.0], fleet), late)


# -- real traffic ------------------------------------------------------------------------------------------------------


def test_on_real_traffic_the_bound_is_within_one_percent() -> None:
    data = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3].parent / "shared" / "data"))
    trace = data / "traces" / "twitter_stream_2021_d00_14_1s.csv.gz"
    if not trace.is_file():
        pytest.skip("no twitter_stream trace: set MARK_DATA")
    with gzip.open(trace, "rt") as lines:
        rows = np.loadtxt(itertools.islice(lines, 7201, 9001), delimiter=",")
    counts = np.random.default_rng(0).poisson(2.5 * rows[:, 1])
    made = problem(counts, (offer("p2.xlarge", 0.9), 55.3333), usd_per_request=19e-6)
    linear = program_of(made)
    assert linear is not None
    exact = solve_lp(linear)
    assert exact is not None
    assert 0.99 * exact.value * linear.usd <= usd(made) <= exact.value * linear.usd


def committed(made: BoundProblem, count: int, usd_per_hour: float) -> BoundProblem:
    name = made.resolved.offers[0].name
    where = replace(made.resolved, committed={name: count}, committed_usd_per_hour=usd_per_hour)
    return replace(made, resolved=where)


def test_the_bound_pays_committed_instances_once() -> None:
    """30 requests/s for an hour: three instances; two of them committed leave one to be bought."""
    plain = problem([30.0] * 3600, (offer(), 10.0), usd_per_request=1e-3)
    assert usd(committed(plain, 2, 0.0)) == pytest.approx(usd(plain) / 3.0, rel=CLOSE)
    assert usd(committed(plain, 2, 1.3)) == pytest.approx(usd(plain) / 3.0 + 1.3, rel=CLOSE)
    found = fluid_bound(committed(plain, 4, 2.6))
    assert found.usd == pytest.approx(2.6)
    assert "$2.60 of it for committed instances" in found.note


def test_a_surge_costs_only_above_the_commitment() -> None:
    """The reference is the linear program, on a load that swings around the commitment."""
    counts = np.random.default_rng(3).poisson(30.0 + 15.0 * np.sin(np.arange(3000) / 200.0))
    made = committed(problem(counts, (offer(), 10.0), usd_per_request=1e-3), 3, 0.0)
    program = program_of(made)
    assert program is not None
    exact = solve_lp(program)
    assert exact is not None
    assert 0.97 * exact.value * program.usd <= usd(made) <= exact.value * program.usd * (1.0 + 1e-6)
