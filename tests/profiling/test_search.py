"""Which types are rented to find the cheapest one, and the statements about the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.offer import Delay, Market, Offer
from mark.domain.profile import Profile, ProfileRow
from mark.domain.slo import Slo
from mark.profiling.measure import SIZES, WARM_UPS
from mark.profiling.search import (
    RUNGS,
    End,
    ProfileSearch,
    Rent,
    RoundsInTime,
    SearchDone,
    SearchGoal,
    at_best,
    longest_s,
    usd_per_million,
)

WANTED = SearchGoal(Slo(0.3, 0.98), batches=(1, 4), seconds=10.0)
Step = Rent | End | SearchDone


def offer(name: str, vcpu: float, usd_per_hour: float, gpus: int = 0) -> Offer:
    return Offer(name, Market.ON_DEMAND, usd_per_hour, Delay(60.0, 120.0), vcpu=vcpu, gpus=gpus)


C_LARGE, C_XLARGE, C_4XLARGE = offer("c.large", 2, 0.1), offer("c.xlarge", 4, 0.2), offer("c.4xlarge", 16, 0.8)
D_LARGE = offer("d.large", 2, 0.11)


def measured(of: Offer, one_ms: float, four_ms: float | None = None) -> Profile:
    return Profile("m", of.instance, (ProfileRow(1, one_ms), ProfileRow(4, four_ms or 4.0 * one_ms)))


def search(*offers: Offer, budget_usd: float = 10.0) -> ProfileSearch:
    return ProfileSearch(offers, WANTED, budget_usd)


def drive(found: ProfileSearch, times: Mapping[str, Profile | None], usd: Callable[[Rent], float]) -> list[Step]:
    """Return all decisions for types with these times (None: it cannot be measured) and rentals of this price."""
    steps: list[Step] = []
    begun: Rent | None = None
    while not steps or not isinstance(steps[-1], SearchDone):
        steps.append(step := found.next())
        assert len(steps) < 1000
        if isinstance(step, End):
            assert begun is not None
            found.paid(step.instance, usd(begun))
            begun = None
        elif isinstance(step, Rent):
            begun = begun or step
            assert begun.instance == step.instance, "rented while another one was in hand"
            profile = times[step.instance]
            if profile is None:
                found.fail(step.instance, "no memory")
                found.paid(step.instance, usd(step))
                begun = None
            else:
                found.record(step.instance, profile)
    return steps


def cheap(rent: Rent) -> float:
    return 0.01


def rented(steps: list[Step]) -> list[str]:
    return [step.instance for step in steps if isinstance(step, Rent)]


def last(steps: list[Step]) -> SearchDone:
    assert isinstance(steps[-1], SearchDone)
    return steps[-1]


def test_a_price_per_million_is_price_over_capacity() -> None:
    """0.1 $/h and 20 requests/s: 72,000 an hour."""
    assert usd_per_million(C_LARGE, measured(C_LARGE, 50.0), WANTED) == pytest.approx(0.1 / 72_000 * 1e6)


def test_a_type_too_slow_for_the_slo_has_a_reason() -> None:
    assert usd_per_million(C_LARGE, measured(C_LARGE, 400.0), WANTED) == "one request takes 400.0 ms, RT_max is 300 ms"


@pytest.mark.parametrize(
    ("of", "on", "ms"),
    [
        (C_4XLARGE, C_LARGE, 10.0),
        (C_LARGE, C_4XLARGE, 80.0),
        (offer("g.2xlarge", 8, 1.2, gpus=1), offer("g.xlarge", 4, 1.0, gpus=1), 80.0),
        (offer("g.12xlarge", 48, 5.0, gpus=4), offer("g.xlarge", 4, 1.0, gpus=1), 20.0),
    ],
)
def test_times_shrink_at_best_with_vcpus_or_gpus(of: Offer, on: Offer, ms: float) -> None:
    assert at_best(of, measured(on, 80.0), on).rows[0].latency_ms == pytest.approx(ms)


def test_the_shortest_time_is_one_that_a_profile_holds() -> None:
    fast = Profile("m", "c.large", (ProfileRow(1, 0.002, p99_ms=0.003),))
    assert at_best(C_4XLARGE, fast, C_LARGE).rows[0].latency_ms == 0.001


def test_a_rental_has_room_for_boot_and_both_lengths() -> None:
    """1.5 x 120 s to boot, and 2 x 10 s for each of two batches."""
    assert longest_s(C_LARGE, WANTED) == 180 + 40
    quick = Offer("q.large", Market.ON_DEMAND, 0.1, Delay(1.0, 1.0), vcpu=2)
    assert longest_s(quick, SearchGoal(WANTED.slo, batches=(1,), seconds=1.0)) == 60.0, "EC2 bills a minute at least"


def test_larger_types_that_cannot_win_are_never_rented() -> None:
    """Linear scaling leaves the price of a request the same."""
    times = {"c.large": measured(C_LARGE, 20.0), "d.large": measured(D_LARGE, 25.0)}
    steps = drive(search(C_LARGE, C_XLARGE, C_4XLARGE, D_LARGE), times, cheap)
    assert rented(steps) == ["c.large", "c.large", "d.large"]
    assert last(steps) == SearchDone(
        "c.large",
        {
            "c.large": "$0.556 per million",
            "c.xlarge": "never rented: even at linear scaling $0.556 per million, c.large costs $0.556",
            "c.4xlarge": "never rented: even at linear scaling $0.556 per million, c.large costs $0.556",
            "d.large": "$0.764 per million",
        },
    )


def test_types_too_small_for_the_slo_are_passed_over() -> None:
    """700 ms on two vCPUs are 350 on four at best, and RT_max is 300."""
    times = {"c.large": measured(C_LARGE, 700.0), "c.4xlarge": measured(C_4XLARGE, 100.0)}
    steps = drive(search(C_4XLARGE, C_XLARGE, C_LARGE), times, cheap)
    assert rented(steps) == ["c.large", "c.4xlarge", "c.4xlarge"]
    assert last(steps).best == "c.4xlarge"
    assert last(steps).why["c.large"] == "cannot keep the SLO: one request takes 700.0 ms, RT_max is 300 ms"
    assert last(steps).why["c.xlarge"] == (
        "never rented: even at linear scaling one request takes 350.0 ms, RT_max is 300 ms"
    )


def test_an_unmeasurable_type_makes_room_for_the_next_size() -> None:
    times = {"c.large": None, "c.xlarge": measured(C_XLARGE, 20.0)}
    steps = drive(search(C_LARGE, C_XLARGE), times, cheap)
    assert rented(steps) == ["c.large", "c.xlarge", "c.xlarge"]
    assert last(steps).why["c.large"] == "not measured: no memory"


def test_the_dearer_half_is_measured_no_longer() -> None:
    """Its types are worse, even if within the noise of a short measurement."""
    times = {"c.large": measured(C_LARGE, 20.0), "d.large": measured(D_LARGE, 19.0)}
    found = search(C_LARGE, D_LARGE)
    lengths = [(step.instance, step.seconds) for step in drive(found, times, cheap) if isinstance(step, Rent)]
    assert lengths == [("c.large", 2.5), ("c.large", 10.0), ("d.large", 2.5)]


def test_what_a_rental_keeps_is_measured_longer_at_once() -> None:
    """The second type is better, and its machine is not ended between its lengths."""
    times = {"c.large": measured(C_LARGE, 20.0), "d.large": measured(D_LARGE, 10.0)}
    steps = drive(search(C_LARGE, D_LARGE), times, cheap)
    assert [type(step) for step in steps] == [Rent, Rent, End, Rent, Rent, End, SearchDone]
    assert last(steps).best == "d.large"


def test_a_machine_lost_between_two_lengths_is_rented_again() -> None:
    found = search(C_LARGE)
    found.record("c.large", measured(C_LARGE, 20.0))
    found.paid("c.large", 0.01)
    assert found.next() == Rent("c.large", (1, 4), 10.0, 220.0)


def test_what_fails_at_its_second_length_keeps_its_first() -> None:
    found = search(C_LARGE)
    found.record("c.large", measured(C_LARGE, 20.0))
    found.fail("c.large", "it was interrupted twice")
    found.paid("c.large", 0.01)
    assert found.next() == SearchDone(
        "c.large", {"c.large": "$0.556 per million; measured no further: it was interrupted twice"}
    )


def test_a_rental_that_may_exceed_the_budget_is_not_begun() -> None:
    """220 s of c.large are $0.0061 at most, of d.large $0.0067; both are considered, and only one fits."""
    times = {"c.large": measured(C_LARGE, 20.0), "d.large": measured(D_LARGE, 1.0)}
    steps = drive(search(C_LARGE, D_LARGE, budget_usd=0.0066), times, lambda rent: 0.004)
    assert rented(steps) == ["c.large", "c.large"]
    assert last(steps).why["d.large"] == "never rented: it may cost $0.00672, and $0.0026 of the budget is left"


def test_nothing_is_best_where_nothing_fits() -> None:
    assert search(C_LARGE, budget_usd=0.001).next() == SearchDone(
        None, {"c.large": "never rented: it may cost $0.00611, and $0.001 of the budget is left"}
    )


def test_a_batch_that_failed_bounds_no_larger_type() -> None:
    """The larger type may run the batch, and so be cheaper than the other batches scaled linearly."""
    one, four = ProfileRow(1, 20.0), ProfileRow(4, 30.0)
    larger = offer("c.xlarge", 4, 0.2)
    for rows, rented in (((one, four), False), ((one,), True)):
        of = search(C_LARGE, larger)
        assert isinstance(of.next(), Rent)
        of.record("c.large", Profile("m", "c.large", rows))
        of.fail("c.large", "measured enough")
        step = of.next()
        assert (isinstance(step, Rent) and step.instance == "c.xlarge") == rented


@pytest.mark.parametrize("budget_usd", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_is_a_number_above_zero(budget_usd: float) -> None:
    with pytest.raises(BadInput, match="budget_usd: must be above zero"):
        search(C_LARGE, budget_usd=budget_usd)


def test_types_are_given_each_once() -> None:
    for offers in ([], [C_LARGE, C_LARGE]):
        with pytest.raises(BadInput, match="types: must be instance types, each once"):
            search(*offers)


def test_seconds_and_batches_are_checked() -> None:
    with pytest.raises(BadInput, match="seconds"):
        SearchGoal(WANTED.slo, seconds=0.0)
    with pytest.raises(BadInput, match="batches"):
        SearchGoal(WANTED.slo, batches=(1, 1))


def sample(sampling: RoundsInTime, item_s: Callable[[int], float], left_s: float) -> tuple[list[int], float]:
    """Return the sizes in the order of their measurements, and the sizes that are left out."""
    sampling.meet(item_s(0))
    left_s -= item_s(0)
    order: list[int] = []
    while (size := sampling.next_in(left_s)) is not None:
        order.append(size)
        took_s = size * item_s(len(order))
        left_s -= took_s
        sampling.record(size, [took_s])
    sampling.settle()
    return order, left_s


def test_a_quick_type_is_sampled_as_anywhere() -> None:
    sampling = RoundsInTime((4, 1), precision=0.02, seconds=1e9)
    order, _ = sample(sampling, lambda at: 1e-3, 1e9)
    assert order[:2] == [1, 4], "the first round goes up the sizes"
    assert len(order) == 2 * (WARM_UPS + 300)
    assert [len(times) for times in sampling.times_s.values()] == [300, 300]
    assert sampling.notes() == ()


def test_a_slow_type_counts_two_of_three_rounds() -> None:
    """0.8 s an item: a round of all sizes takes 50 s, and six do not fit into 160."""
    sampling = RoundsInTime(SIZES, precision=0.02, seconds=2.5)
    _, left_s = sample(sampling, lambda at: 0.8, 160.0)
    assert left_s >= 0.0
    assert all(len(times) >= 2 for times in sampling.times_s.values())
    assert sampling.notes()[-1] == "a batch of 32 counts 2 of its rounds only: the type is slow"


def test_sizes_without_time_for_two_rounds_are_left_out() -> None:
    sampling = RoundsInTime(SIZES, precision=0.02, seconds=2.5)
    _, left_s = sample(sampling, lambda at: 5.0, 160.0)
    assert left_s >= 0.0
    assert [size for size, times in sampling.times_s.items() if times] == [1, 2, 4, 8]
    assert sampling.notes()[-2:] == (
        "no batch of 16: the rental had no time for it",
        "no batch of 32: the rental had no time for it",
    )


def test_a_slow_first_item_leaves_out_no_size() -> None:
    """The first item includes loading, which the others do not need."""
    sampling = RoundsInTime(SIZES, precision=0.02, seconds=1.0)
    sample(sampling, lambda at: 10.0 if at == 0 else 0.02, 160.0)
    assert all(len(times) >= 3 for times in sampling.times_s.values())
    assert max(sampling.times_s[1]) == 0.02


def test_what_failed_is_not_brought_back() -> None:
    sampling = RoundsInTime((1, 4), precision=0.02, seconds=1.0)
    sampling.meet(1.0)
    assert sampling.next_in(100.0) == 1
    sampling.record(1, [1.0])
    assert sampling.next_in(100.0) == 4
    sampling.fail(4, "no memory")
    sampling.settle()
    assert sampling.times_s == {1: [1.0, 1.0], 4: []}
    assert not sampling.has(4)


@given(st.floats(1e-3, 400.0), st.floats(1.0, 300.0), st.lists(st.sampled_from(SIZES), min_size=1, unique=True))
def test_rounds_end_in_time_with_two_of_a_size(item_s: float, left_s: float, sizes: list[int]) -> None:
    """Each size after the first has no time or at least two, if an item always takes as long. The first request is made
    in any case."""
    sampling = RoundsInTime(sizes, precision=1e-9, seconds=1.0)
    order, rest_s = sample(sampling, lambda at: item_s, left_s)
    assert rest_s >= -1e-6 or len(order) <= 1
    counts = [len(times) for _, times in sorted(sampling.times_s.items())]
    assert counts[0] >= 1
    assert all(count == 0 or count >= 2 for count in counts[1:])


@st.composite
def worlds(draw: st.DrawFn, *, lawful: bool) -> tuple[list[Offer], dict[str, Profile | None]]:
    """Draw types and their times. Lawful ones obey the assumption of a family's bound, and can all be measured."""
    offers, times = [], {}
    for family in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)):
        vcpus = sorted(draw(st.lists(st.sampled_from([2, 4, 8, 16, 32]), min_size=1, max_size=4, unique=True)))
        usd_per_hour = draw(st.floats(0.01, 0.5))
        one_ms, more_ms = draw(st.floats(1.0, 500.0)), draw(st.floats(0.0, 200.0))
        for vcpu, before in zip(vcpus, [vcpus[0], *vcpus], strict=False):
            of = offer(f"{family}.{vcpu}", vcpu, usd_per_hour * vcpu * draw(st.floats(0.8, 1.2)))
            least, most = (before / vcpu, 1.0) if lawful else (0.05, 3.0)
            factor = draw(st.floats(least, most))
            one_ms, more_ms = max(0.001, one_ms * factor), more_ms * factor
            can = lawful or draw(st.integers(0, 9)) > 0
            offers.append(of)
            times[of.instance] = measured(of, one_ms, one_ms + 3.0 * more_ms) if can else None
    return offers, times


@given(worlds(lawful=False), st.floats(0.01, 2.0), st.floats(0.0, 1.0))
def test_the_winner_is_the_cheapest_measured_within_the_budget(
    world: tuple[list[Offer], dict[str, Profile | None]], budget_usd: float, share: float
) -> None:
    """This holds for any times; and the same answers give the same decisions."""
    offers, times = world
    of = {one.instance: one for one in offers}

    def usd(rent: Rent) -> float:
        return share * of[rent.instance].usd_per_s * rent.longest_s

    found = ProfileSearch(offers, WANTED, budget_usd)
    steps = drive(found, times, usd)
    assert found.spent_usd <= budget_usd
    costs = {name: usd_per_million(of[name], profile, WANTED) for name, profile in found.profiles.items()}
    able = [cost for cost in costs.values() if not isinstance(cost, str)]
    best = last(steps).best
    assert (costs[best] == min(able)) if best is not None else not able
    assert last(steps).why.keys() == of.keys()
    assert all(rented(steps).count(name) <= len(RUNGS) for name in of)
    assert drive(ProfileSearch(offers, WANTED, budget_usd), times, usd) == steps


@given(worlds(lawful=True))
def test_no_bound_hides_the_best_type(world: tuple[list[Offer], dict[str, Profile | None]]) -> None:
    """If times shrink at best in proportion to vCPUs and never grow, the search finds the best of all types."""
    offers, times = world
    steps = drive(ProfileSearch(offers, WANTED, 1e6), times, cheap)
    costs = {}
    for one in offers:
        profile = times[one.instance]
        assert profile is not None
        if not isinstance(cost := usd_per_million(one, profile, WANTED), str):
            costs[one.instance] = cost
    best = last(steps).best
    if best is None:
        assert not costs
    else:
        assert costs[best] == pytest.approx(min(costs.values()), rel=1e-8)
