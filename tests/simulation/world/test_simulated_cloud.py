"""The simulated cloud: boots, bills, runs out, interrupts, spends credits. The contract suite is in tests/control."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.cloud.ec2.spot_series import SpotSeries
from mark.domain.errors import BadInput, CapacityError, CloudError, LimitError
from mark.domain.fleet import TRANSITIONS, Phase
from mark.domain.offer import BurstCredits, Delay, Market, Offer
from mark.simulation.world.simulated_cloud import BillingTerms, Crashes, SimulatedCloud, SimulatedMarket

BOOT = Delay(180.0, 300.0)
OD = Offer("c5.large", Market.ON_DEMAND, 0.36, Delay(100.0, 100.0))  # 0.0001 $/s
SLOW = Offer("m5.large", Market.ON_DEMAND, 0.36, BOOT)
SPOT_A = Offer("c5.large", Market.SPOT, 0.036, Delay(100.0, 100.0), zone="a", interruptions_per_hour=0.5)
SPOT_B = Offer("c5.large", Market.SPOT, 0.036, Delay(100.0, 100.0), zone="b", interruptions_per_hour=0.5)
T2 = Offer(
    "t2.medium", Market.BURSTABLE, 0.036, Delay(100.0, 100.0), vcpu=2.0, resume=Delay(50.0, 50.0),
    credits=BurstCredits(0.2, 24.0, 576.0, 60.0),
)  # fmt: skip
T3 = Offer(
    "t3.medium", Market.BURSTABLE, 0.036, Delay(100.0, 100.0), vcpu=2.0, resume=Delay(50.0, 50.0),
    credits=BurstCredits(0.2, 24.0, 576.0, 0.0, surplus_usd_per_vcpu_hour=0.05),
)  # fmt: skip
OFFERS = (OD, SLOW, SPOT_A, SPOT_B, T2, T3)


class FakePlane:
    """Records calls. `busy` is the share of time a ready instance works; a drained one takes `queue_s` to finish."""

    def __init__(self, busy: float = 0.0, queue_s: float = 0.0) -> None:
        self._busy, self.queue_s = busy, queue_s
        self.calls: list[tuple[Any, ...]] = []
        self.clock = lambda: 0.0
        self._added: dict[int, float] = {}
        self._done: dict[int, float] = {}
        self._drained: dict[int, float] = {}

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        assert number not in self._added
        self.calls.append(("add", number, offer_index, at_s))
        self._added[number] = at_s

    def drain(self, number: int, at_s: float) -> None:
        self.calls.append(("drain", number, at_s))
        self._drained[number] = at_s

    def remove(self, number: int, at_s: float) -> None:
        self.calls.append(("remove", number, at_s))
        self._done[number] = self.busy_s(number)
        del self._added[number]

    def idle_at(self, number: int) -> float:
        return self._drained[number] + self.queue_s

    def set_speed(self, number: int, factor: float, at_s: float) -> None:
        self.calls.append(("speed", number, factor, at_s))

    def busy_s(self, number: int) -> float:
        since_s = self._added.get(number)
        return self._done.get(number, 0.0) + (0.0 if since_s is None else self._busy * (self.clock() - since_s))

    def work(self, busy: float) -> None:
        """Set how busy the instances are from now on."""
        for number in self._added:
            self._done[number] = self.busy_s(number)
            self._added[number] = self.clock()
        self._busy = busy

    def speeds(self) -> list[tuple[float, float]]:
        return [(factor, at_s) for verb, *rest in self.calls if verb == "speed" for _, factor, at_s in [rest]]


def cloud(plane: FakePlane | None = None, **more: Any) -> SimulatedCloud:
    plane = plane or FakePlane()
    for name, kind in (("market", SimulatedMarket), ("terms", BillingTerms)):
        more[name] = kind(**{one.name: more.pop(one.name) for one in fields(kind) if one.name in more})
    made = SimulatedCloud(OFFERS, plane, **{"seed": 1, "end_s": 1e6, **more})
    plane.clock = made.now_s
    return made


def shares(*steps: tuple[float, float], period_s: float = 1e5, kind: Any = "availability") -> SpotSeries:
    times, values = zip(*steps, strict=True)
    return SpotSeries("series", kind, times, values, period_s)


# -- life --------------------------------------------------------------------------------------------------------------


def test_a_launched_instance_serves_after_its_boot() -> None:
    """Added to the data plane at the exact time, with the index of its offer."""
    plane = FakePlane()
    c = cloud(plane)
    c.advance(7.0)
    c.launch(T3.name, 1, "t")
    assert c.fleet().instances[0].ready_s == 107.0  # expected
    assert c.next_event_s() == 27.0  # billing begins
    c.advance(500.0)
    assert plane.calls == [("add", 1, 5, pytest.approx(107.0))]


def test_a_boot_that_is_drawn_is_not_known_before() -> None:
    """The snapshot shows the mean; the draws differ, and each is at least half the mean."""
    c = cloud()
    c.launch(SLOW.name, 50, "t")
    assert {i.ready_s for i in c.fleet().instances} == {180.0}
    c.advance(5000.0)
    ready = sorted(i.ready_s for i in c.fleet().instances)
    assert ready[0] >= 90.0
    assert len(set(ready)) > 40


def test_one_more_launch_does_not_shift_later_draws() -> None:
    """Every draw belongs to (seed, number, purpose)."""

    def ready(resume_first: bool) -> list[float | None]:
        c = cloud()
        c.start_ready(T2.name, 1, standby=True)
        if resume_first:
            c.resume(1)
        c.launch(SLOW.name, 3, "t")
        c.advance(5000.0)
        return [i.ready_s for i in c.fleet().instances[1:]]

    assert ready(False) == ready(True)


def test_the_fleet_is_the_same_object_until_something_changes() -> None:
    """A snapshot per tick costs nothing while nothing happens."""
    c = cloud()
    c.launch(OD.name, 1, "t")
    before = c.fleet()
    c.advance(50.0)
    assert c.fleet() is before
    c.advance(101.0)
    assert c.fleet() is not before


def test_a_drained_instance_is_idle_when_its_queue_is_empty() -> None:
    """The snapshot shows it when the data plane has finished."""
    plane = FakePlane(queue_s=3.0)
    c = cloud(plane)
    c.start_ready(OD.name, 1)
    c.drain(1)
    assert (c.fleet().instances[0].idle, c.next_event_s()) == (False, 3.0)
    c.advance(3.0)
    assert c.fleet().instances[0].idle


def test_an_instance_drained_while_it_boots_never_serves() -> None:
    """It is idle immediately, and its boot event is void."""
    plane = FakePlane()
    c = cloud(plane)
    c.launch(OD.name, 1, "t")
    c.drain(1)
    assert c.fleet().instances[0].idle
    c.advance(500.0)
    c.terminate(1)
    assert plane.calls == []


def test_virtual_time_never_goes_back() -> None:
    """An impossible call is loud."""
    c = cloud()
    c.advance(5.0)
    with pytest.raises(ValueError, match="never goes back"):
        c.advance(4.0)


# -- money -------------------------------------------------------------------------------------------------------------


def test_billing_begins_twenty_seconds_into_pending() -> None:
    """Boot of 100 s, ended 300 s after launch: 280 s."""
    c = cloud()
    c.launch(OD.name, 1, "t")
    c.advance(20.0)
    assert c.spent_usd(20.0)["on_demand"] == 0.0
    c.advance(300.0)
    c.terminate(1)
    c.advance(1000.0)
    assert c.bill(1000.0).total == pytest.approx(280e-4)


def test_what_ends_before_it_ran_is_free() -> None:
    """AWS does not bill pending."""
    c = cloud()
    c.launch(OD.name, 1, "t")
    c.advance(19.0)
    c.terminate(1)
    c.advance(1000.0)
    assert c.bill(1000.0).total == 0.0
    assert c.fleet_result(1000.0).instance_hours == {}


def test_the_warm_first_fleet_is_billed_from_zero_without_launches() -> None:
    """Instances that began before the run have no minimum time; standbys are stopped and free."""
    c = cloud(end_s=100.0)
    c.start_ready(OD.name, 2)
    c.start_ready(T2.name, 3, standby=True)
    assert [i.phase for i in c.fleet().instances] == [Phase.READY] * 2 + [Phase.STOPPED] * 3
    c.advance(10.0)
    c.terminate(1)
    c.advance(100.0)
    assert c.bill(100.0).total == pytest.approx(110e-4)
    result = c.fleet_result(100.0)
    assert (result.launched, result.terminated, result.peak_instances) == (0, 1, 2)
    assert result.instance_hours == {OD.name: pytest.approx(110.0 / 3600.0)}


def test_a_standby_pays_its_boots_and_its_disk() -> None:
    """Launch 80 s of 100, resume with the 60 s minimum, stopped in between; disks where extras are billed."""
    c = cloud(bills_disks=True)
    c.launch(T2.name, 1, "t", standby=True)
    c.advance(1000.0)
    c.resume(1)
    c.advance(1055.0)  # ready after 50 s, billed from 1020
    c.drain(1)
    c.stop(1)
    c.advance(7200.0)
    bill = c.bill(7200.0)
    assert bill.burstable == pytest.approx((80.0 + 60.0) * 1e-5)
    assert bill.other == pytest.approx(0.64 * 2.0 / 730.0)


def test_a_gpu_type_pays_for_a_larger_disk() -> None:
    """A GPU's disk has 100 GiB; other types boot from another image and have 8 GiB. Both run for two hours."""
    gpu = Offer("g5.xlarge", Market.ON_DEMAND, 1.0, BOOT, gpus=1)
    for offers, gib in (((OD,), 8.0), ((gpu,), 100.0), ((OD, gpu), 108.0)):
        plane = FakePlane()
        c = SimulatedCloud((OD, gpu), plane, seed=1, end_s=1e6, terms=BillingTerms(bills_disks=True))
        plane.clock = c.now_s
        for one in offers:
            c.start_ready(one.name, 1)
        c.advance(7200.0)
        assert c.bill(7200.0).other == pytest.approx(gib * 0.08 * 2.0 / 730.0)


def test_a_price_series_scales_the_on_demand_price() -> None:
    """0.36 $/h on demand, half of it for 100 s, then all of it."""
    series = shares((0.0, 0.5), (100.0, 1.0), kind="price")
    c = cloud(spot=[series])
    c.start_ready(SPOT_A.name, 1)
    c.advance(150.0)
    assert c.spent_usd(150.0)["spot"] == pytest.approx(100e-4 * 0.5 + 50e-4)


def test_a_price_series_without_on_demand_price_is_bad_input() -> None:
    """There is nothing to scale."""
    market = SimulatedMarket([shares((0.0, 0.5), kind="price")])
    with pytest.raises(BadInput, match="on-demand price"):
        SimulatedCloud([SPOT_A], FakePlane(), seed=1, end_s=1.0, market=market)


# -- limits and markets ------------------------------------------------------------------------------------------------


def test_the_account_limit_counts_what_is_not_stopped() -> None:
    """A launch gets the remaining number, then LimitError; a stopped standby frees its place."""
    c = cloud(max_instances=3)
    c.start_ready(T2.name, 5, standby=True)
    assert len(c.launch(OD.name, 5, "t").numbers) == 3
    with pytest.raises(LimitError):
        c.launch(OD.name, 1, "u")
    with pytest.raises(LimitError):
        c.resume(1)
    assert c.fleet().instances[0].phase is Phase.STOPPED


def test_without_spot_capacity_no_launch_succeeds() -> None:
    """Share 0 in zone a; zone b has its own series."""
    c = cloud(spot=[shares((0.0, 1.0), (60.0, 0.0)), shares((0.0, 1.0))])
    c.advance(60.0)
    with pytest.raises(CapacityError):
        c.launch(SPOT_A.name, 1, "t")
    assert c.launch(SPOT_B.name, 1, "u").numbers == (1,)


def test_a_falling_share_interrupts_that_fraction_longest_running_first() -> None:
    """When the share falls from 1 to 0.5, half of the zone's spot instances get a notice and end 120 s later."""
    plane = FakePlane()
    c = cloud(plane, spot=[shares((0.0, 1.0), (600.0, 0.5)), shares((0.0, 1.0))])
    c.start_ready(SPOT_A.name, 2)
    c.start_ready(SPOT_B.name, 2)
    c.start_ready(OD.name, 1)
    c.advance(300.0)
    c.launch(SPOT_A.name, 2, "t")
    c.advance(600.0)
    assert c.has_notices()
    assert [(n.number, n.at_s, n.gone_s) for n in c.notices()] == [(1, 600.0, 720.0), (2, 600.0, 720.0)]
    assert c.notices() == ()
    assert [i.interruption_at_s for i in c.fleet().instances[:2]] == [720.0, 720.0]
    c.advance(720.0)
    assert [i.number for i in c.fleet().instances] == [3, 4, 5, 6, 7]
    assert ("remove", 1, 720.0) in plane.calls
    assert c.fleet_result(720.0).interrupted == 2


def test_a_further_fall_takes_its_fraction_of_what_is_left() -> None:
    """1 to 0.5 to 0.25: four of eight, then two of the four that are left."""
    c = cloud(spot=[shares((0.0, 1.0), (60.0, 0.5), (300.0, 0.25)), shares((0.0, 1.0))])
    c.start_ready(SPOT_A.name, 8)
    c.advance(290.0)
    assert len(c.fleet().instances) == 4
    c.advance(500.0)
    assert len(c.fleet().instances) == 2


def test_a_fall_to_nothing_interrupts_everything_also_what_boots() -> None:
    """No instance is interrupted twice."""
    c = cloud(spot=[shares((0.0, 1.0), (60.0, 0.5), (90.0, 0.0))])
    c.launch(SPOT_A.name, 3, "t")
    c.advance(1000.0)
    assert c.fleet().instances == ()
    assert c.fleet_result(1000.0).interrupted == 3


def test_the_share_bounds_held_and_requested_instances_together() -> None:
    """At a share of 0.5 four of eight are taken.

    None is sold until more than eight are wanted; then half of those are.
    """
    c = cloud(spot=[shares((0.0, 1.0), (60.0, 0.5), (1200.0, 1.0)), shares((0.0, 1.0))])
    c.start_ready(SPOT_A.name, 8)
    c.advance(300.0)
    with pytest.raises(CapacityError):
        c.launch(SPOT_A.name, 4, "as many as were lost")
    assert len(c.launch(SPOT_A.name, 8, "four more than were held").numbers) == 2
    with pytest.raises(CapacityError):
        c.launch(SPOT_A.name, 6, "the rest")
    assert len(c.launch(SPOT_B.name, 6, "elsewhere").numbers) == 6
    c.advance(1200.0)
    assert len(c.launch(SPOT_A.name, 20, "whole again").numbers) == 20


@pytest.mark.parametrize(("share", "sold"), [(0.0, 0), (0.4, 0), (0.5, 0), (0.6, 1), (1.0, 1)])
def test_half_an_instance_is_not_sold(share: float, sold: int) -> None:
    """The share is rounded as in a fall."""
    c = cloud(spot=[shares((0.0, 1.0), (60.0, share))] if share < 1.0 else [shares((0.0, 1.0))])
    c.advance(100.0)
    try:
        numbers = c.launch(SPOT_A.name, 1, "t").numbers
    except CapacityError:
        numbers = ()
    assert len(numbers) == sold


def test_without_a_series_lives_are_exponential_with_the_hazard_rate() -> None:
    """0.5 per hour: a mean life of two hours, within 5 % over 4,000 instances."""
    c = cloud(seed=3, end_s=1e9)
    c.start_ready(SPOT_A.name, 4000)
    c.advance(1e9)
    notices = c.notices()
    assert notices == ()  # all ended long ago
    result = c.fleet_result(1e9)
    assert result.interrupted == 4000
    hours = result.instance_hours[SPOT_A.name] / 4000
    assert hours == pytest.approx(2.0 + 120.0 / 3600.0, rel=0.05)


def test_a_series_replaces_the_hazard_rate() -> None:
    """A constant series: no instance is ever interrupted."""
    c = cloud(spot=[shares((0.0, 1.0))])
    c.start_ready(SPOT_A.name, 100)
    c.advance(1e6)
    assert len(c.fleet().instances) == 100


def test_a_series_keeps_its_zone_when_fewer_offers_are_bought() -> None:
    """The second file is of the second zone, even for a fleet that knows no other zone (and so in the bound)."""
    series = [shares((0.0, 1.0)), shares((0.0, 1.0), (500.0, 0.5))]
    market = SimulatedMarket(series, zones=("a", "b"))
    c = SimulatedCloud([SPOT_B], FakePlane(), seed=0, end_s=1e6, market=market)
    c.start_ready(SPOT_B.name, 2)
    c.advance(500.0)
    assert len(c.notices()) == 1


def test_a_series_without_any_spot_offer_is_named() -> None:
    """Spot files have no effect if no spot is bought, and a note says so."""
    market = SimulatedMarket([shares((0.0, 1.0))], zones=("a", "b"))
    c = SimulatedCloud([OD], FakePlane(), seed=0, end_s=1e6, market=market)
    assert c.notes == ("0 spot zones: availability series not used: series",)


def test_more_series_than_zones_are_named() -> None:
    """No series is ignored in silence."""
    c = cloud(spot=[shares((0.0, 1.0))] * 3)
    assert c.notes == ("2 spot zones: availability series not used: series",)


def test_spot_interrupted_in_its_first_hour_can_be_free() -> None:
    """--spot-first-hour-free."""
    for free in (False, True):
        c = cloud(spot=[shares((0.0, 1.0), (600.0, 0.0))], spot_first_hour_free=free)
        c.start_ready(SPOT_A.name, 1)
        c.advance(1000.0)
        assert (c.bill(1000.0).spot == 0.0) is free


def test_a_doomed_instance_ended_early_counts_as_interrupted() -> None:
    """Terminated = we wanted to; interrupted = we had to."""
    c = cloud(spot=[shares((0.0, 1.0), (600.0, 0.0))])
    c.start_ready(SPOT_A.name, 1)
    c.advance(600.0)
    c.terminate(1)
    assert c.notices() == ()
    assert (c.fleet_result(600.0).terminated, c.fleet_result(600.0).interrupted) == (0, 1)


# -- CPU credits -------------------------------------------------------------------------------------------------------


def test_a_busy_t2_falls_to_its_baseline_without_credits() -> None:
    """t2.medium: 60 credits, 2 vCPU, 24 credits/h: 37.5 minutes at full speed (EC2 user guide)."""
    plane = FakePlane(busy=1.0)
    c = cloud(plane)
    c.start_ready(T2.name, 1)
    c.advance(4 * 3600.0)
    ((factor, at_s),) = plane.speeds()
    assert factor == 0.2
    assert at_s == pytest.approx(37.5 * 60.0, abs=10.0)
    # At the baseline, spending equals earning.
    assert c.fleet().instances[0].credits == pytest.approx(1.0 / 6.0, abs=0.15)


def test_an_idle_t2_earns_its_full_speed_back() -> None:
    """More than one 5 s step's worth, 1/6 credit, is needed: 25 s of earning from zero."""
    plane = FakePlane(busy=1.0)
    c = cloud(plane)
    c.start_ready(T2.name, 1)
    c.advance(7200.0)
    plane.work(0.0)
    c.advance(7300.0)
    assert [factor for factor, _ in plane.speeds()] == [0.2, 1.0]


def test_a_lightly_used_t2_keeps_its_speed_and_capped_credits() -> None:
    """10 % of two vCPU is below the baseline; 576 credits is the cap."""
    plane = FakePlane(busy=0.1)
    c = cloud(plane, end_s=1e8)
    c.start_ready(T2.name, 1)
    c.advance(10 * 86400.0)
    assert plane.speeds() == []
    assert c.fleet().instances[0].credits == pytest.approx(576.0, abs=0.1)


def test_a_stop_costs_a_t2_its_credits_not_a_t3() -> None:
    """Standard against unlimited mode; a start brings launch credits again."""
    c = cloud()
    c.start_ready(T2.name, 1)
    c.start_ready(T3.name, 1)
    c.advance(3600.0)
    for number in (1, 2):
        c.drain(number)
        c.stop(number)
    assert [i.credits for i in c.fleet().instances] == [0.0, pytest.approx(24.0)]
    c.advance(3660.0)
    c.resume(1)
    assert c.fleet().instances[0].credits == 60.0


def test_only_a_hundred_starts_a_day_bring_launch_credits() -> None:
    """AWS's limit: the rest begins at the baseline; a day later there are credits again."""
    plane = FakePlane()
    c = cloud(plane)
    c.launch(T3.name, 50, "types without launch credits use none of them up")
    for number in range(1, 51):
        c.terminate(number)
    c.launch(T2.name, 103, "t")
    c.advance(101.0)
    assert [i.credits for i in c.fleet().instances].count(60.0) == 100
    assert plane.speeds() == [(0.2, pytest.approx(100.0))] * 3
    c.advance(86400.0)
    c.launch(T2.name, 1, "u")
    assert c.fleet().instances[-1].credits == 60.0


def test_unlimited_mode_keeps_its_speed_and_pays_for_surplus_credits() -> None:
    """t3.medium at full use for 10 h: 2 x 60 - 24 credits an hour of surplus at 0.05 $/vCPU-hour."""
    plane = FakePlane(busy=1.0)
    c = cloud(plane)
    c.start_ready(T3.name, 1)
    c.advance(36000.0)
    surplus = (120.0 - 24.0) * 10.0 / 60.0 * 0.05
    assert plane.speeds() == []
    assert c.bill(36000.0).burstable == pytest.approx(0.36 + surplus, rel=1e-3)


def test_surplus_credits_are_paid_down_by_earning() -> None:
    """Ten busy minutes, then idle: no debt is left in the end."""
    plane = FakePlane(busy=1.0)
    c = cloud(plane)
    c.start_ready(T3.name, 1)
    c.advance(600.0)
    assert c.bill(600.0).burstable == pytest.approx(0.036 / 6.0 + 16.0 / 60.0 * 0.05)
    plane.work(0.0)
    c.advance(7200.0)
    assert c.bill(7200.0).burstable == pytest.approx(0.072)


def test_two_workers_share_the_vcpus() -> None:
    """Busy worker-seconds of a type with two workers count half."""
    spent = []
    for workers in (1, 2):
        plane = FakePlane(busy=1.0)
        c = cloud(plane, workers=[workers] * len(OFFERS))
        c.start_ready(T2.name, 1)
        c.advance(600.0)
        spent.append(60.0 + 4.0 - c.fleet().instances[0].credits)
    assert spent == [pytest.approx(20.0), pytest.approx(10.0)]


# -- laws --------------------------------------------------------------------------------------------------------------

STEP = st.tuples(
    st.sampled_from(["launch", "standby", "drain", "terminate", "stop", "resume"]),
    st.integers(0, len(OFFERS) - 1),
    st.integers(1, 6),  # count or number
    st.floats(0.0, 400.0),
)


@settings(max_examples=80)
@given(st.lists(STEP, max_size=25), st.booleans(), st.integers(0, 3))
def test_whatever_is_asked_of_it_the_laws_hold(script: list[Any], series: bool, seed: int) -> None:
    """Legal transitions, limits kept, no negative bill, no bill after the end, every instance accounted for."""
    falls = [shares((0.0, 1.0), (500.0, 0.5), (900.0, 0.0), (1500.0, 1.0), period_s=2000.0)] if series else []
    plane = FakePlane(busy=0.7, queue_s=2.0)
    c = cloud(plane, seed=seed, max_instances=8, spot=falls, end_s=6000.0, bills_disks=True)
    c.start_ready(SPOT_A.name, 2)
    before: dict[int, Phase] = {i.number: i.phase for i in c.fleet().instances}
    spent = 0.0
    for k, (verb, offer, number, wait_s) in enumerate(script):
        try:
            if verb in ("launch", "standby"):
                c.launch(OFFERS[offer].name, number, f"{k}", standby=verb == "standby")
            else:
                getattr(c, verb)(number)
        except CloudError:
            pass
        seen = {i.number: i.phase for i in c.fleet().instances}
        for n, phase in seen.items():
            assert n not in before or phase is before[n] or phase in TRANSITIONS[before[n]]
        target = min(6000.0, c.now_s() + wait_s)
        while c.now_s() < target:
            before = {i.number: i.phase for i in c.fleet().instances}
            c.advance(min(target, c.next_event_s()))
        seen = {i.number: i.phase for i in c.fleet().instances}
        assert sum(p is not Phase.STOPPED for p in seen.values()) <= 8
        before = seen
        now_usd = sum(c.spent_usd(c.now_s()).values())
        # Surplus credits that are earned back may lower the debt.
        assert now_usd >= spent - 0.05
        spent = now_usd
        assert min(c.spent_usd(c.now_s()).values()) >= 0.0
    there = len(c.fleet().instances)
    result = c.fleet_result(6000.0)
    assert 2 + result.launched == result.terminated + result.interrupted + there
    for instance in c.fleet().instances:
        c.terminate(instance.number)
    c.advance(6000.0)
    final = c.bill(6000.0)
    assert c.bill(6000.0).total == pytest.approx(c.bill(5999.999).total, abs=1e-12)
    assert final.total == pytest.approx(sum(c.spent_usd(6000.0).values()))
    assert math.isfinite(final.total)
    hours = c.fleet_result(6000.0).instance_hours
    on_demand = sum(0.36 * h for name, h in hours.items() if "on-demand" in name)
    assert final.on_demand == pytest.approx(on_demand)


def test_same_seed_same_life_and_another_seed_another() -> None:
    """A run is a function of its arguments."""

    def lives(seed: int) -> list[tuple[int, float]]:
        c = cloud(seed=seed)
        c.start_ready(SPOT_A.name, 5)
        seen: list[tuple[int, float]] = []
        while c.next_event_s() < math.inf:
            c.advance(c.next_event_s())
            seen += [(n.number, n.at_s) for n in c.notices()]
        return seen

    assert lives(1) == lives(1) != lives(2)
    assert len(lives(1)) == 5


def test_nothing_due_is_nothing_done() -> None:
    """A week of 5 s steps over 500 instances fires no event."""
    plane = FakePlane()
    c = cloud(plane, end_s=7 * 86400.0)
    c.start_ready(OD.name, 500)
    calls = len(plane.calls)
    fleet = c.fleet()
    for k in range(1, 7 * 17280 + 1):
        c.advance(5.0 * k)
    assert c.fleet() is fleet
    assert len(plane.calls) == calls


# -- crashes -----------------------------------------------------------------------------------------------------------


class CrashingPlane(FakePlane):
    def doom(self, number: int, crash_s: float) -> None:
        self.calls.append(("doom", number, crash_s))

    def crash(self, number: int, at_s: float) -> None:
        self.calls.append(("crash", number, at_s))
        self._drained[number] = at_s - self.queue_s  # it has nothing any more

    def of(self, verb: str) -> list[tuple[int, float]]:
        return [(number, at_s) for what, number, at_s in (c[:3] for c in self.calls) if what == verb]


def crashing(per_hour: float = 1.0, **more: Any) -> tuple[SimulatedCloud, CrashingPlane]:
    plane = CrashingPlane()
    return cloud(plane, crashes=Crashes(per_hour, plane), **more), plane


def test_what_crashes_is_silent_and_paid_until_it_is_ended() -> None:
    """The cloud still shows it as ready."""
    c, plane = crashing()
    (number,) = c.start_ready(OD.name, 1)
    ((_, crash_s),) = plane.of("doom")
    c.advance(crash_s + 10.0)
    assert plane.of("crash") == [(number, crash_s)]
    (seen,) = c.fleet().instances
    assert (seen.phase, seen.silent_s, c.crashes) == (Phase.READY, crash_s, 1)
    c.drain(number)
    assert c.fleet().instances[0].idle
    c.terminate(number)
    assert c.bill(1e6).total == pytest.approx(math.ceil(crash_s + 10.0) * 0.0001)
    assert c.fleet_result(1e6).terminated == 1


def test_a_crash_while_it_drains_leaves_nothing_to_wait_for() -> None:
    c, plane = crashing()
    plane.queue_s = 1e9
    (number,) = c.start_ready(OD.name, 1)
    ((_, crash_s),) = plane.of("doom")
    c.advance(crash_s - 1.0)
    c.drain(number)
    assert not c.fleet().instances[0].idle
    c.advance(crash_s)
    assert c.fleet().instances[0].idle
    assert c.fleet().instances[0].silent_s is None  # its bouncer need not answer any more


def test_a_start_draws_its_own_crash() -> None:
    """A stopped instance does not crash; after a resume it may, and is not silent before. Rates scale the draws."""
    c, plane = crashing()
    (number,) = c.start_ready(T3.name, 1)
    ((_, crash_s),) = plane.of("doom")
    c.advance(crash_s / 2.0)
    c.drain(number)
    c.advance(crash_s / 2.0)
    c.stop(number)
    c.advance(crash_s + 100.0)
    assert not plane.of("crash")
    c.resume(number)
    c.advance(crash_s + 200.0)
    (_, (_, again_s)) = plane.of("doom")
    assert again_s - (crash_s + 150.0) not in (0.0, crash_s)
    assert c.fleet().instances[0].silent_s is None
    twice, other = crashing(2.0)
    twice.start_ready(T3.name, 1)
    assert other.of("doom")[0][1] == pytest.approx(crash_s / 2.0)


def test_no_crash_after_the_part_is_known() -> None:
    """An instance that would crash later answers its accepted requests."""
    c, plane = crashing(end_s=1.0)
    c.start_ready(OD.name, 50)
    assert len(plane.of("doom")) < 5
    assert all(at_s <= 1.0 for _, at_s in plane.of("doom"))
