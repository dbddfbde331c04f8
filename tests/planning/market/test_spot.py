"""Spot: beliefs, expected prices, spreading, spares and standbys; and the planner's use of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.billing.meter import DISK_GIB, DISK_USD_PER_GIB_MONTH
from mark.domain.backoff import OFFER
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import Delay, Market, Offer
from mark.domain.plan import Plan, Target
from mark.planning.market.spot import (
    DISK_USD_PER_HOUR,
    HALF_LIFE_H,
    LEAVE_S,
    PRIOR_H,
    UNKNOWN,
    Belief,
    Pools,
    beyond_s,
    boot_usd,
    planned_standbys,
    replacing,
    within,
    without_spares,
)
from mark.planning.planner import PlanningContext
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from tests.planning.build import fleet, forecast, resolved, sold

BOOT = Delay(180.0, 300.0)
HOUR_S = 3600.0


def spot(zone: str, usd_per_hour: float = 0.06, instance: str = "small", rate: float = 1e-4) -> Offer:
    return replace(sold(instance, usd_per_hour, Market.SPOT, zone), interruptions_per_hour=rate)


ON_DEMAND = sold("small", 0.2)
A, B, C = spot("a"), spot("b"), spot("c")
FOUR = (ON_DEMAND, A, B, C)


def pools(*offers: Offer, usable_rps: float = 10.0) -> Pools:
    return Pools(offers, [usable_rps] * len(offers))


# -- beliefs -----------------------------------------------------------------------------------------------------------


def test_observations_outweigh_the_prior() -> None:
    """Gamma-Poisson: some hours at the catalogue's rate, then the losses in the hours held."""
    assert UNKNOWN.rate_per_hour(0.02) == pytest.approx(0.02)
    assert Belief(held_h=3.0, losses=2.0).rate_per_hour(0.02) == pytest.approx((PRIOR_H * 0.02 + 2.0) / (PRIOR_H + 3.0))
    assert Belief(held_h=9.0 * PRIOR_H).rate_per_hour(0.02) == pytest.approx(0.002)


def test_what_was_seen_fades_by_half() -> None:
    """After a half-life without holding anything losses and hours count half."""
    later = Belief(held_h=3.0, losses=2.0).watched(HALF_LIFE_H * HOUR_S, held=False)
    assert (later.held_h, later.losses, later.at_s) == (pytest.approx(1.5), pytest.approx(1.0), HALF_LIFE_H * HOUR_S)


def test_an_hour_held_counts_in_full_before_it_fades() -> None:
    """An hour that was just watched counts as a whole hour; fading applies to earlier ones."""
    assert Belief().watched(HOUR_S, held=True).held_h == 1.0
    twice = Belief(held_h=1.0).watched(HOUR_S, held=True)
    assert twice.held_h == pytest.approx(0.5 ** (1.0 / HALF_LIFE_H) + 1.0)


@given(st.lists(st.tuples(st.floats(0.0, 7200.0), st.booleans()), max_size=8))
def test_hours_held_are_never_more_than_have_passed(steps: list[tuple[float, bool]]) -> None:
    """This holds for any steps, as long as the clock never goes back."""
    belief, now_s = Belief(), 0.0
    for passed_s, held in steps:
        now_s += passed_s
        belief = belief.watched(now_s, held)
    assert 0.0 <= belief.held_h <= sum(s for s, held in steps if held) / HOUR_S + 1e-9
    assert belief.at_s == now_s


def test_refusals_back_off_until_a_launch_succeeds() -> None:
    """The waits are one minute, then two at most; a successful launch ends them."""
    belief, waits = Belief(), []
    for now_s in (0.0, 100.0, 300.0, 500.0):
        belief = belief.refused(now_s)
        waits.append(belief.until_s - now_s)
    assert waits == [OFFER.first_s, 2.0 * OFFER.first_s, OFFER.longest_s, OFFER.longest_s]
    assert belief.sold().until_s < 0.0
    assert belief.sold().refused(600.0).until_s == 600.0 + OFFER.first_s


def test_an_interruption_counts_by_the_share_it_took() -> None:
    """Three of four are 0.75 of a loss."""
    belief = Belief(held_h=1.0).interrupted(50.0, 0.75)
    assert (belief.losses, belief.until_s, belief.lost_s) == (0.75, 50.0 + OFFER.first_s, 50.0)
    assert Belief(until_s=1e6).interrupted(50.0, 1.0).until_s == 1e6


# -- expected prices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("free_s", [0.0, 60.0, 115.0, 400.0])
def test_the_expected_excess_of_a_delay_is_its_mean_excess(free_s: float) -> None:
    """The reference takes quantiles of the lognormal one by one."""
    sigma = BOOT.sigma
    normal = np.random.default_rng(0).standard_normal(400_000)
    drawn_s = np.exp(np.log(BOOT.mean_s) - sigma * sigma / 2.0 + sigma * normal)
    assert beyond_s(BOOT, free_s) == pytest.approx(float(np.maximum(0.0, drawn_s - free_s).mean()), rel=0.01)
    assert beyond_s(Delay(60.0, 60.0), free_s) == pytest.approx(max(0.0, 60.0 - free_s))


def brute_force(need: int, spares: int, usd_per_s: float, missing_usd_per_s: float) -> float:
    """Return the mean dollars of many draws: pay all until the last needed one is ready, miss until each of them is."""
    normal = np.random.default_rng(1).standard_normal((4000, need + spares))
    sigma = BOOT.sigma
    drawn_s = np.exp(np.log(BOOT.mean_s) - sigma * sigma / 2.0 + sigma * normal)
    ready_s = np.sort(np.maximum(BOOT.shortest_s, drawn_s), axis=1)[:, :need]
    paid_s = ready_s.sum(axis=1) + spares * ready_s[:, -1] - 20.0 * (need + spares)
    missing_s = np.maximum(0.0, ready_s - (INTERRUPTION_NOTICE_S - LEAVE_S)).sum(axis=1)
    return float((usd_per_s * paid_s + missing_usd_per_s * missing_s).mean())


@pytest.mark.parametrize("missing_usd_per_s", [1e-5, 1e-4, 4e-4])
@pytest.mark.parametrize("need", [1, 4])
def test_spares_cost_next_to_the_least_of_any_number(need: int, missing_usd_per_s: float) -> None:
    """Every number of spares tried by simulation: the choice is within 2 % of the best, and so is its price."""
    costs = [brute_force(need, spares, 1e-4, missing_usd_per_s) for spares in range(2 * need + 1)]
    spares, usd = replacing(need, BOOT, 1e-4, missing_usd_per_s)
    assert costs[spares] <= 1.02 * min(costs)
    assert usd == pytest.approx(costs[spares], rel=0.02)


def test_spares_are_for_chance_and_for_what_misses_cost() -> None:
    """Spares cover random boot times and the price of misses: no spares without either, more if misses are dear."""
    assert replacing(4, Delay(180.0, 180.0), 1e-4, 1.0)[0] == 0
    assert replacing(4, BOOT, 1e-4, 0.0)[0] == 0
    numbers = [replacing(4, BOOT, 1e-4, usd)[0] for usd in (1e-5, 1e-4, 4e-4, 1.0)]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 8


def test_spot_costs_its_price_and_its_interruptions() -> None:
    """0.06 $/h and 0.5 interruptions an hour, each a quarter of replacing four, and the boot on return."""
    of = pools(ON_DEMAND, replace(A, interruptions_per_hour=0.5))
    terms = of.terms({}, 0.0, 2e-5)
    _, usd = replacing(4, BOOT, 0.2 / 3600.0, 10.0 * 2e-5)
    assert list(terms.interruptions_per_hour) == [0.0, 0.5]
    assert list(terms.usd_per_hour) == pytest.approx([0.2, 0.06 + 0.5 * (usd / 4.0 + boot_usd(A))])
    assert terms.buyable.all()


def test_spot_dearer_than_on_demand_is_not_bought() -> None:
    """This market interrupts every few minutes, but must be bought if on-demand is not offered."""
    wild = replace(A, interruptions_per_hour=20.0)
    assert list(pools(ON_DEMAND, wild).terms({}, 0.0, 2e-5).buyable) == [True, False]
    assert list(pools(wild).terms({}, 0.0, 2e-5).buyable) == [True]


def test_what_was_refused_is_not_to_be_had_until_then() -> None:
    """A pool can be bought while one of its zones has capacity."""
    of = pools(*FOUR)
    beliefs = {A.name: Belief(until_s=100.0), B.name: Belief(until_s=200.0), C.name: Belief(until_s=50.0)}
    assert [bool(of.terms(beliefs, now_s, 2e-5).buyable[1]) for now_s in (49.0, 50.0, 200.0)] == [False, True, True]
    assert not of.terms({ON_DEMAND.name: Belief(until_s=9.0)}, 0.0, 2e-5).buyable[0]


def test_spot_is_bought_up_to_its_on_demand_price() -> None:
    """The price includes the expected interruptions."""
    one_usd = pools(*FOUR).terms({A.name: Belief(held_h=1e6, losses=1e6)}, 0.0, 2e-5).offer_usd_per_hour[1] - 0.06
    even = (0.2 - 0.06) / one_usd  # interruptions per hour
    for rate, there in ((0.99 * even, True), (1.01 * even, False)):
        terms = pools(*FOUR).terms({A.name: Belief(held_h=1e6, losses=rate * 1e6)}, 0.0, 2e-5)
        assert terms.offer_usd_per_hour[1] == pytest.approx(0.06 + rate * one_usd, rel=1e-4)
        assert terms.can_be_had[1] == there


@pytest.mark.parametrize("zone", ["", "a"])
def test_refused_spot_says_nothing_of_on_demand(zone: str) -> None:
    """This holds even if on-demand offers name the zone, or spot offers name none."""
    same, other = replace(ON_DEMAND, zone=zone), replace(sold("other", 0.2), zone=zone)
    of = pools(same, other, spot(zone), spot(zone, instance="other"))
    beliefs = {o.name: Belief(until_s=60.0) for o in of.offers if o.market is Market.SPOT}
    assert of.terms(beliefs, 0.0, 2e-5).can_be_had.tolist() == [True, True, False, False]
    beliefs = {same.name: Belief(until_s=60.0)}
    assert of.terms(beliefs, 0.0, 2e-5).can_be_had.tolist() == [False, True, True, True]


def test_a_zone_with_two_refused_types_is_avoided() -> None:
    """The zone itself lacks capacity. After one refused type, or in another zone, other types are still tried."""
    offers = [ON_DEMAND, *(spot(zone, instance=kind) for zone in "ab" for kind in ("small", "other", "third"))]
    of = Pools(offers, [10.0] * len(offers))

    def to_be_had(*put_off: str) -> set[str]:
        terms = of.terms({name: Belief(until_s=60.0) for name in put_off}, 0.0, 2e-5)
        return {
            o.name for o, there in zip(of.offers, terms.can_be_had, strict=True) if there and o.market is Market.SPOT
        }

    every = {o.name for o in offers[1:]}
    assert to_be_had("small/spot/a") == every - {"small/spot/a"}
    assert to_be_had("small/spot/a", "other/spot/a") == {name for name in every if name.endswith("/b")}
    assert to_be_had("small/spot/a", "small/spot/b") == every - {"small/spot/a", "small/spot/b"}


def test_what_one_zone_went_through_is_feared_in_the_others() -> None:
    """Waves pass over zones and types, so the mean of the held markets is the prior of every market."""
    beliefs = {A.name: Belief(held_h=3.0, losses=3.0), B.name: Belief(held_h=1.0)}
    _, a, b, c = pools(*FOUR).terms(beliefs, 0.0, 2e-5).interruptions_per_hour
    assert c == pytest.approx((PRIOR_H * 1e-4 + 1.5) / (PRIOR_H + 2.0))
    assert a == pytest.approx((PRIOR_H * c + 3.0) / (PRIOR_H + 3.0))
    assert b == pytest.approx((PRIOR_H * c) / (PRIOR_H + 1.0))


# -- pools and spreading -----------------------------------------------------------------------------------------------


def test_pools_hold_equally_good_zones_and_types() -> None:
    """Their prices and capacities differ by at most 5 %, and they are spot only."""
    offers = [
        ON_DEMAND, sold("other", 0.2), A, B, spot("a", 0.062, "other"), spot("a", 0.07, "dear"),
        spot("a", instance="slow"),
    ]  # fmt: skip
    of = Pools(offers, [10.0, 10.0, 10.0, 10.0, 10.4, 10.0, 8.0])
    named = {tuple(of.offers[i].name for i in members) for members in of.members}
    assert named == {
        ("small/on-demand",), ("other/on-demand",), ("small/spot/a", "small/spot/b", "other/spot/a"), ("dear/spot/a",),
        ("slow/spot/a",),
    }  # fmt: skip
    counts = of.count({"small/spot/b": 2, "other/spot/a": 1, "small/on-demand": 4})
    first = [of.offers[i].name for i in of.first]
    assert dict(zip(first, counts, strict=True)) == {
        "dear/spot/a": 0, "other/on-demand": 0, "slow/spot/a": 0, "small/on-demand": 4, "small/spot/a": 3,
    }  # fmt: skip


COUNTS = st.integers(0, 12)


@given(st.tuples(COUNTS, COUNTS, COUNTS), COUNTS, st.sets(st.sampled_from("abc")))
def test_spreading_keeps_the_number_and_what_runs(live: tuple[int, int, int], wanted: int, out: set[str]) -> None:
    """Running instances stay if more are wanted; new ones go to available markets, the emptiest first."""
    of = pools(A, B, C)
    names = [A.name, B.name, C.name]
    before = dict(zip(names, live, strict=True))
    beliefs = {f"small/spot/{zone}": Belief(until_s=1.0) for zone in out}
    after = of.spread(np.array([wanted]), fleet(before), of.terms(beliefs, 0.0, 2e-5))
    assert sum(after.values()) == wanted
    assert after == of.spread(np.array([wanted]), fleet(before), of.terms(beliefs, 0.0, 2e-5))
    change = {name: after.get(name, 0) - before[name] for name in names}
    assert all(n >= 0 for n in change.values()) or all(n <= 0 for n in change.values())
    grown = [name for name in names if change[name] > 0]
    if len(out) < 3:
        assert not {f"small/spot/{zone}" for zone in out} & set(grown)
    for name in grown:
        others = [n for n in names if beliefs.get(n, UNKNOWN).until_s <= 0.0 or len(out) == 3]
        assert all(after[name] <= after.get(other, 0) + 1 for other in others)


def test_no_wave_of_one_zone_takes_more_than_its_part() -> None:
    """Ten instances over four equal zones: at most three in each, and equal zones in order of name."""
    of = pools(spot("d"), A, B, C)
    after = of.spread(np.array([10]), Fleet(()), of.terms({}, 0.0, 2e-5))
    assert after == {"small/spot/a": 3, "small/spot/b": 3, "small/spot/c": 2, "small/spot/d": 2}


@pytest.mark.parametrize(("serves", "boots"), [(A, B), (B, A)])
def test_surplus_instance_of_a_zone_that_boots_ends_first(serves: Offer, boots: Offer) -> None:
    of = pools(A, B, C)
    there = fleet({serves.name: 2}, pending={boots.name: 2})
    assert of.spread(np.array([3]), there, of.terms({}, 0.0, 2e-5)) == {serves.name: 2, boots.name: 1}
    one = fleet({serves.name: 1}, pending={boots.name: 1})
    assert of.spread(np.array([1]), one, of.terms({}, 0.0, 2e-5)) == {serves.name: 1}


def test_a_zone_that_is_taken_more_often_is_left_out() -> None:
    """Its expected price exceeds the others' by more than the tolerance."""
    of = pools(A, B, C)
    beliefs = {B.name: Belief(held_h=1.0, losses=2.0), A.name: Belief(held_h=50.0), C.name: Belief(held_h=50.0)}
    assert set(of.spread(np.array([6]), Fleet(()), of.terms(beliefs, 0.0, 2e-4))) == {A.name, C.name}


def test_launches_stay_within_the_room_there_is() -> None:
    """Pools are served in their order, by number and by price; surplus instances do not count as room."""
    usd = np.array([0.2, 0.06])
    wanted, live = np.array([5, 9]), np.array([3, 4])
    assert list(within(wanted, live, usd, 100, 100.0)) == [5, 9]
    assert list(within(wanted, live, usd, 4, 100.0)) == [5, 6]
    assert list(within(wanted, live, usd, 100, 0.4 + 0.18)) == [5, 7]
    assert list(within(np.array([1, 9]), live, usd, 0, 100.0)) == [1, 4]
    assert list(within(wanted, live, usd, -2, -1.0)) == [3, 4]


# -- spares in a plan --------------------------------------------------------------------------------------------------

CAPACITY = {"x": 10.0, "y": 20.0}


@pytest.mark.parametrize(
    ("ready", "left"),
    [
        ({}, {"x": 5}),  # any of the five may be the first
        ({"x": 2}, {"x": 5}),
        ({"x": 3}, {"x": 3}),
    ],
)
def test_spares_stay_until_what_is_wanted_is_ready(ready: dict[str, int], left: dict[str, int]) -> None:
    """Three wanted, two more launched."""
    plan = Plan(0.0, (Target("x", 5, "", spare=2),))
    assert without_spares(plan, ready, CAPACITY).counts == left


@pytest.mark.parametrize(("ready_y", "left_x"), [(0, 4), (1, 4), (2, 2), (3, 0)])
def test_instances_stay_until_their_replacement_is_there(ready_y: int, left_x: int) -> None:
    """Four x (40 requests/s) until three y serve: 20 requests/s that come let two x go."""
    plan = Plan(0.0, (Target("x", 4, "", spare=4), Target("y", 3, "")))
    assert without_spares(plan, {"x": 4, "y": ready_y}, CAPACITY).counts.get("x", 0) == left_x


def test_spares_of_two_offers_cover_a_gap_once() -> None:
    """20 requests/s are missing: two x cover them, so that no y is needed."""
    plan = Plan(0.0, (Target("x", 2, "", spare=2), Target("y", 1, "", spare=1), Target("z", 1, "")))
    capacity_rps = {**CAPACITY, "z": 20.0}
    assert without_spares(plan, {"x": 2, "y": 1}, capacity_rps).counts == {"x": 2, "z": 1}


# -- standbys ----------------------------------------------------------------------------------------------------------

T2 = replace(sold("t2", 0.04, Market.BURSTABLE), resume=Delay(90.0, 120.0))
TINY = replace(sold("tiny", 0.01, Market.BURSTABLE), resume=Delay(90.0, 120.0))


def standbys(rate: float, rps: float = 50.0, **changes: object) -> int:
    options = {"disk_usd_per_hour": 0.0, "there": {}, "first": False, **changes}
    targets = planned_standbys([(T2, 10.0), (TINY, 4.0)], BOOT, [(rps, rate)], 2e-5, **options)  # type: ignore[arg-type]
    assert all(target.offer == T2.name for target in targets)  # one start of it saves most
    return sum(target.count for target in targets)


def test_standbys_are_kept_where_spot_is_taken_often_enough() -> None:
    """They pay when rate x saving per wave exceeds a day's share of a boot: at 0.0054 interruptions an hour here."""
    saved_usd = 10.0 * beyond_s(BOOT, INTERRUPTION_NOTICE_S - LEAVE_S) * 2e-5 - boot_usd(T2)
    least = boot_usd(T2) / 24.0 / saved_usd
    assert (standbys(0.99 * least), standbys(1.01 * least)) == (0, 5)
    assert standbys(3.5e-5) == 0
    assert standbys(1.0, rps=0.0) == 0


def test_standbys_of_the_first_fleet_cost_only_disks() -> None:
    """Set up like everything at the start; where disks are billed they must still pay."""
    assert standbys(3.5e-5, first=True) == 5
    assert standbys(3.5e-5, first=True, disk_usd_per_hour=1e-3) == 0


def test_standbys_stay_while_their_disks_are_cheap() -> None:
    """No spot runs at the moment; it may come back."""
    assert standbys(3.5e-5, rps=0.0, there={T2.name: 7}) == 7
    for share, there in ((0.9, 7), (1.1, 0)):  # of the cost of another set-up
        assert standbys(3.5e-5, rps=0.0, there={T2.name: 7}, disk_usd_per_hour=share * boot_usd(T2)) == there


def test_standbys_are_limited_by_daily_launch_credits() -> None:
    """At one wave an hour each takes 25 of a day's 100 starts."""
    assert standbys(1.0, rps=200.0) == 4
    assert standbys(1.0, rps=200.0, there={T2.name: 15}) == 15


def test_without_burstables_there_are_no_standbys() -> None:
    assert planned_standbys([], BOOT, [(50.0, 1.0)], 2e-5, 0.0, {}, first=False) == ()


def test_the_disk_is_the_one_that_is_billed() -> None:
    """The planner and the meter use one price."""
    assert pytest.approx(DISK_GIB * DISK_USD_PER_GIB_MONTH / 730.0) == DISK_USD_PER_HOUR


# -- the planner -------------------------------------------------------------------------------------------------------


def planned(there: Fleet, rate_rps: float = 90.0, *offers: Offer, now_s: float = 0.0, **beliefs: Belief) -> Plan:
    """Return the plan of `mark` with on-demand and three zones of spot; beliefs are by zone."""
    of = resolved(*(offers or FOUR), latencies_ms={"small": 100.0, "t2": 100.0})
    named = {f"small/spot/{zone}": belief for zone, belief in beliefs.items()}
    context = PlanningContext(now_s, of, there, forecast(rate_rps), beliefs=named, first=not there.instances)
    plan, _ = ExpectedCostPolicy("mark", of).plan(context, None)
    return plan


OUT = Belief(until_s=60.0)


def test_spot_is_spread_over_all_available_zones() -> None:
    """No on-demand is planned while spot is cheaper, and the spread is even."""
    counts = planned(Fleet(())).counts
    assert set(counts) == {A.name, B.name, C.name}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert set(planned(Fleet(()), a=OUT).counts) == {B.name, C.name}
    assert set(planned(Fleet(()), a=OUT, b=OUT, c=OUT).counts) == {ON_DEMAND.name}


def test_on_demand_stays_until_returning_spot_serves() -> None:
    """Make before break: spot is launched beside running on-demand, which is dropped when all spot is ready."""
    stand_ins = {ON_DEMAND.name: 9}
    assert planned(fleet(stand_ins), a=OUT, b=OUT, c=OUT).counts == stand_ins
    swapping = planned(fleet(stand_ins)).counts
    assert swapping[ON_DEMAND.name] == 9
    spots = {name: n for name, n in swapping.items() if name != ON_DEMAND.name}
    assert sum(spots.values()) >= 9
    assert planned(fleet(stand_ins, pending=spots)).counts[ON_DEMAND.name] == 9
    assert ON_DEMAND.name not in planned(fleet({**stand_ins, **spots})).counts


def test_a_market_with_many_interruptions_is_avoided() -> None:
    """Ten interruptions an hour cost more than spot saves."""
    wild = Belief(held_h=0.5, losses=15.0)
    assert planned(fleet({ON_DEMAND.name: 9}), a=wild, b=wild, c=wild).counts == {ON_DEMAND.name: 9}


def test_interrupted_instances_are_replaced_with_spares() -> None:
    """On-demand has random boots: a few more are launched, marked as spare, and soon afterwards not kept."""
    lost = replace(OUT, lost_s=0.0)
    beliefs: dict[str, Any] = {"a": lost, "b": lost, "c": lost}
    doomed = Fleet(tuple(Instance(n, A.name, Phase.READY, -600.0, -400.0, interruption_at_s=120.0) for n in range(9)))
    (target,) = planned(doomed, **beliefs).targets
    assert target.offer == ON_DEMAND.name
    assert target.spare >= 2
    assert target.count - target.spare >= 9
    later: dict[str, Any] = {zone: replace(belief, until_s=1e9) for zone, belief in beliefs.items()}
    assert all(t.spare == 0 for t in planned(doomed, now_s=400.0, **later).targets)


def test_bridged_capacity_needs_no_spares() -> None:
    """Standbys that make up for all that is lost serve sooner than any boot."""
    lost = replace(OUT, lost_s=0.0)
    doomed = [Instance(n, A.name, Phase.READY, -600.0, -400.0, interruption_at_s=120.0) for n in range(9)]
    bridging = [Instance(n, T2.name, Phase.PENDING, 0.0, standby=True) for n in range(20, 30)]
    plan = planned(Fleet((*doomed, *bridging)), 90.0, *FOUR, T2, a=lost, b=lost, c=lost)
    assert plan.counts
    assert all(target.spare == 0 for target in plan.targets)


def test_the_planner_keeps_standbys_for_its_spot() -> None:
    """At the start they can bridge all of it; without available spot there are no standbys."""
    (target,) = planned(Fleet(()), 90.0, *FOUR, T2).standbys
    assert target.offer == T2.name
    assert 9 <= target.count <= 12
    assert planned(Fleet(()), 90.0, *FOUR, T2, a=OUT, b=OUT, c=OUT).standbys == ()
