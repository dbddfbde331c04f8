"""Ec2Cloud beyond the port's suite: its requests to EC2, and the state that a new controller finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.aws.ec2_cloud import LONGEST_DRAIN_S
from mark_infra.aws.gate import scope_of
from mark_infra.aws.inventory import INTERRUPTED_KEPT_S, OLDEST_S, DescribedInstance
from mark_infra.aws.readiness import Bouncers
from mark_infra.telemetry.clock import WallClock

from mark.control.health import SILENT_S
from mark.domain.errors import CapacityError, CloudError, RefusalScope, StoreError, ThrottledError
from mark.domain.fleet import Notice, Phase
from mark.domain.offer import Market
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, offer
from tests.infra.aws.bench import OTHER_SPOT, Bench, Place, Time
from tests.infra.conftest import REGION

OD, SPOT, T2 = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name


@pytest.fixture
def bench(place: Place) -> Bench:
    place.market.left, place.market.code = {}, "InsufficientInstanceCapacity"
    place.market.codes = {}
    place.market.checks_parameters, place.market.throttles_after = False, None
    place.market.fleets.clear()
    return Bench(place)


def test_an_on_demand_launch_may_go_to_any_zone(bench: Bench) -> None:
    bench.cloud.launch(OD, 1, "7/60/1")
    (asked,) = bench.place.market.fleets
    assert asked["Type"] == "instant"
    assert asked["TargetCapacitySpecification.TotalTargetCapacity"] == "1"
    assert asked["TargetCapacitySpecification.DefaultTargetCapacityType"] == "on-demand"
    zones = [value for key, value in asked.items() if key.endswith("SubnetId")]
    assert zones == [bench.place.subnets[f"{REGION}a"], bench.place.subnets[f"{REGION}b"]]
    assert 32 <= len(asked["ClientToken"]) <= 64
    for instance in bench.place.instances(bench.site).values():
        assert instance["InstanceType"] == "c5.large"
        assert "InstanceLifecycle" not in instance
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"] if tag["Key"].startswith("mark:")}
        assert tags == {
            "mark:site": bench.site.name, "mark:service": "inception", "mark:offer": OD, "mark:launch": "7/60/1",
            "mark:standby": "false",
        }  # fmt: skip


def zones_of(bench: Bench) -> Counter[str]:
    """Count the instances of each zone."""
    there = bench.place.instances(bench.site).values()
    return Counter(one["Placement"]["AvailabilityZone"].removeprefix(REGION) for one in there)


@pytest.mark.parametrize("launches", [[8], [1] * 8, [5, 3], [3, 2, 2, 1], [2, 2, 2, 2]])
def test_a_fleet_is_spread_over_the_zones(bench: Bench, launches: list[int]) -> None:
    """EC2 always resolves equal priorities the same way, so without an order of our own a fleet would have one zone."""
    begin_in_zones(bench, "abc")
    for n, count in enumerate(launches):
        assert len(bench.cloud.launch(OD, count, f"t{n}").numbers) == count
    found = zones_of(bench)
    assert sum(found.values()) == 8
    assert max(found.values()) <= 4
    assert set(found) == set("abc")


def begin_in_zones(bench: Bench, letters: str) -> None:
    there = bench.site.service("inception")
    subnets = {letter: bench.place.subnets[f"{REGION}{letter}"] for letter in letters}
    bench.begin_again(services={"inception": replace(there, subnets=subnets)})


def test_a_launch_goes_to_the_zone_with_the_fewest_instances(bench: Bench) -> None:
    """Running instances count, for a new controller, too; draining ones do not."""
    begin_in_zones(bench, "a")
    bench.cloud.launch(OD, 3, "first")
    begin_in_zones(bench, "ab")
    bench.cloud.launch(OD, 1, "second")
    assert zones_of(bench) == {"a": 3, "b": 1}
    bench.pass_s()
    bench.boot()
    for number in (1, 2, 3):
        bench.cloud.drain(number)
    bench.cloud.launch(OD, 1, "third")
    assert zones_of(bench) == {"a": 4, "b": 1}


def test_a_repeated_launch_brings_nothing_new_in_other_zones(bench: Bench) -> None:
    """The order of zones has changed since, and EC2 refuses a known token with another order."""
    bench.place.market.checks_parameters = True
    begin_in_zones(bench, "abc")
    numbers = bench.cloud.launch(OD, 2, "t").numbers
    begin_in_zones(bench, "a")
    bench.cloud.launch(OD, 4, "other")
    bench.place.server.client("ec2").delete_tags(Resources=bench.ids()[:2], Tags=[{"Key": "mark:site"}])
    begin_in_zones(bench, "abc")  # its memory is empty, and EC2 does not show the launch yet
    assert bench.cloud.launch(OD, 2, "t").numbers == numbers
    assert len(bench.place.market.fleets) == 3


def test_a_launch_refused_in_its_later_part_keeps_the_first(bench: Bench) -> None:
    begin_in_zones(bench, "abc")
    bench.place.market.left = {("c5.large", "on-demand"): 2}
    launched = bench.cloud.launch(OD, 3, "t")
    assert len(launched.numbers) == 2
    assert isinstance(launched.refused, CapacityError)
    assert len(bench.ids()) == 2


def test_a_launch_that_broke_off_is_completed_when_repeated(bench: Bench) -> None:
    """The first part was made and the second is throttled. A repetition makes the rest, and no instance twice."""
    begin_in_zones(bench, "abc")
    bench.place.market.throttles_after = 1
    with pytest.raises(ThrottledError):
        bench.cloud.launch(OD, 3, "t")
    assert len(bench.ids()) == 1
    bench.place.market.throttles_after = None
    assert len(bench.cloud.launch(OD, 3, "t").numbers) == 3
    assert zones_of(bench) == {"a": 1, "b": 1, "c": 1}


def test_a_spot_launch_stays_in_its_zone(bench: Bench) -> None:
    bench.cloud.launch(SPOT, 1, "t")
    (asked,) = bench.place.market.fleets
    assert [value for key, value in asked.items() if key.endswith("SubnetId")] == [bench.place.subnets[f"{REGION}a"]]
    assert asked["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"
    (instance,) = bench.place.instances(bench.site).values()
    assert instance["InstanceLifecycle"] == "spot"


def test_one_call_names_all_pools_that_will_do(bench: Bench) -> None:
    """The pools have priorities. An alternative is the offer that EC2 reports, at once and for a new controller."""
    bench.place.market.left = {("c5.large", "spot"): 0}
    (number,) = bench.cloud.launch(SPOT, 1, "t", alternatives=(OTHER_SPOT.name,)).numbers
    (asked,) = bench.place.market.fleets
    pools = "LaunchTemplateConfigs.1.Overrides"
    assert [asked[f"{pools}.{n}.InstanceType"] for n in (1, 2)] == ["c5.large", "m5.large"]
    assert [float(asked[f"{pools}.{n}.Priority"]) for n in (1, 2)] == [0.0, 1.0]
    assert [i.offer for i in bench.cloud.fleet().instances] == [OTHER_SPOT.name]
    bench.begin_again()
    bench.pass_s()
    assert [(i.number, i.offer) for i in bench.cloud.fleet().instances] == [(number, OTHER_SPOT.name)]


def test_a_zone_without_a_subnet_has_no_capacity(bench: Bench) -> None:
    elsewhere = replace(SPOT_B, zone="z")
    bench.cloud.offers = {**bench.cloud.offers, elsewhere.name: elsewhere}
    with pytest.raises(CapacityError, match="no subnet in z"):
        bench.cloud.launch(elsewhere.name, 1, "t")
    assert bench.place.market.fleets == []


@pytest.mark.parametrize(
    ("code", "scope"),
    [
        ("InsufficientInstanceCapacity", RefusalScope.OFFER),
        ("InvalidFleetConfiguration", RefusalScope.OFFER),
        ("InvalidParameterCombination", RefusalScope.TYPE),
        ("VcpuLimitExceeded", RefusalScope.QUOTA),
        ("MaxSpotInstanceCountExceeded", RefusalScope.MARKET),
        ("UnauthorizedOperation", RefusalScope.MARKET),
        ("InternalError", RefusalScope.OFFER),
    ],
)
def test_a_launch_that_gives_nothing_says_why(bench: Bench, code: str, scope: RefusalScope) -> None:
    """It also says which other offers are refused with it. Another token gets instances later."""
    bench.place.market.left, bench.place.market.code = {("c5.large", "on-demand"): 0}, code
    with pytest.raises(CapacityError, match=code) as refused:
        bench.cloud.launch(OD, 1, "t")
    assert refused.value.scope is scope
    assert bench.cloud.fleet().instances == ()
    bench.place.market.left.clear()
    assert len(bench.cloud.launch(OD, 1, "u").numbers) == 1


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "EC2ThrottledException"])
def test_an_answer_that_throttles_every_pool_throttles_the_launch(bench: Bench, code: str) -> None:
    """No offer counts as refused. A repetition makes the same launch, although EC2 repeats answers under a token."""
    bench.place.market.left, bench.place.market.code = {("c5.large", "on-demand"): 0}, code
    for _ in range(2):
        with pytest.raises(ThrottledError, match=code):
            bench.cloud.launch(OD, 1, "t")
    bench.place.market.left.clear()
    bench.begin_again()  # a controller that takes over goes through the same answers, once each
    for _ in range(2):
        with pytest.raises(ThrottledError, match=code):
            bench.cloud.launch(OD, 1, "t")
    numbers = bench.cloud.launch(OD, 1, "t").numbers
    assert len(numbers) == len(bench.ids()) == 1
    bench.begin_again()
    assert bench.cloud.launch(OD, 1, "t").numbers == numbers


def test_a_launch_throttled_in_part_keeps_what_it_got(bench: Bench) -> None:
    bench.place.market.left, bench.place.market.code = {("c5.large", "spot"): 1}, "RequestLimitExceeded"
    launched = bench.cloud.launch(SPOT, 3, "t")
    assert len(launched.numbers) == len(bench.ids()) == 1
    assert isinstance(launched.refused, ThrottledError)


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded"])
def test_a_launch_that_gives_less_says_why(bench: Bench, code: str) -> None:
    """It gives the same reason as a launch without instances, and so does a repetition."""
    bench.place.market.left, bench.place.market.code = {("c5.large", "on-demand"): 1}, code
    launched = bench.cloud.launch(OD, 3, "t")
    assert len(launched.numbers) == 1
    assert launched.refused is not None
    assert code in str(launched.refused)
    assert launched.refused.scope is scope_of(code)
    bench.begin_again()
    bench.pass_s()
    again = bench.cloud.launch(OD, 3, "t")
    assert (again.numbers, str(again.refused)) == (launched.numbers, str(launched.refused))


def test_what_ec2_ends_at_launch_was_refused(bench: Bench) -> None:
    """The refusal shows its number, offer and reason, to a new controller, too."""
    first, second = bench.cloud.launch(SPOT, 2, "t").numbers
    bench.place.end_at_launch(bench.id_of(first), "Client.VolumeLimitExceeded", "Volume limit exceeded")
    bench.pass_s()
    shown = bench.cloud.fleet()
    assert [i.number for i in shown.instances] == [second]
    (refused,) = shown.refused
    assert (refused.number, refused.offer, refused.scope) == (first, SPOT, RefusalScope.MARKET)
    assert refused.reason == "Client.VolumeLimitExceeded: Volume limit exceeded"
    assert bench.cloud.fleet() is shown
    bench.cloud.forget_ghosts()
    assert bench.numbers.forgot == [set()]
    bench.begin_again()
    bench.pass_s()
    assert bench.cloud.fleet().refused == (refused,)


def test_how_much_is_refused_follows_from_its_own_error(bench: Bench) -> None:
    """A quota that has no room for an alternative says nothing about the planned type."""
    market = bench.place.market
    market.left = {("c5.large", "spot"): 0, ("m5.large", "spot"): 0}
    market.codes = {"m5.large": "MaxSpotInstanceCountExceeded"}
    with pytest.raises(CapacityError, match="InsufficientInstanceCapacity") as refused:
        bench.cloud.launch(SPOT, 1, "t", alternatives=(OTHER_SPOT.name,))
    assert refused.value.scope is RefusalScope.OFFER


def test_the_boot_that_is_expected(bench: Bench) -> None:
    """While it boots it is the offer's mean, later the real time. Times are control seconds."""
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    (pending,) = bench.cloud.fleet().instances
    assert (pending.launched_s, pending.ready_s) == (0.0, ON_DEMAND.boot.mean_s)
    bench.boot()
    (ready,) = bench.cloud.fleet().instances
    assert ready.ready_s == pytest.approx(bench.time.now_s(), abs=1e-3)
    bench.time.t_s += 30.0
    assert bench.cloud.fleet() == bench.cloud.fleet()
    assert bench.cloud.fleet().instances[0].ready_s == ready.ready_s
    assert bench.cloud.number_of(bench.id_of(number)) == number


def test_an_instance_boots_until_its_bouncer_is_ready(bench: Bench) -> None:
    first, second = bench.cloud.launch(OD, 2, "t").numbers
    bench.pass_s()
    bench.cloud.upkeep()
    assert bench.phases() == {first: Phase.PENDING, second: Phase.PENDING}
    bench.bouncers.serving.add(bench.id_of(second))
    bench.cloud.upkeep()
    assert bench.phases() == {first: Phase.PENDING, second: Phase.READY}


def test_a_ready_instance_stays_ready_for_a_restarted_controller(bench: Bench) -> None:
    """A new controller does not take a serving instance for a booting one, although no bouncer answers."""
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.boot()
    before = bench.cloud.fleet()
    bench.bouncers.serving.clear()
    bench.begin_again()
    assert bench.cloud.fleet() == before
    assert bench.phases() == {number: Phase.READY}


def test_a_controller_that_begins_anew_knows_everything(bench: Bench) -> None:
    """Phases, standbys and numbers: no state is only in a controller's memory."""
    bench.cloud.launch(OD, 2, "a")
    bench.cloud.launch(T2, 2, "b", standby=True)
    bench.boot()
    bench.boot()
    bench.bouncers.busy = set(bench.ids())
    bench.cloud.drain(1)
    bench.cloud.resume(3)
    bench.boot()
    before = bench.cloud.fleet()
    assert bench.phases() == {1: Phase.DRAINING, 2: Phase.READY, 3: Phase.READY, 4: Phase.STOPPED}
    bench.begin_again()
    assert bench.cloud.fleet() == before
    bench.cloud.upkeep()
    assert bench.cloud.fleet() == before


def test_a_launch_whose_controller_died_is_found_by_its_tags(bench: Bench) -> None:
    """It counts at once, and a repetition launches nothing."""
    numbers = bench.cloud.launch(OD, 2, "t").numbers
    bench.begin_again()
    assert [i.number for i in bench.cloud.fleet().instances] == list(numbers)
    bench.begin_again()
    assert bench.cloud.launch(OD, 2, "t").numbers == numbers
    assert len(bench.place.market.fleets) == 2, "one for each zone"


def test_a_launch_that_cannot_be_numbered_is_not_lost(bench: Bench) -> None:
    bench.numbers.error = StoreError("full")
    with pytest.raises(StoreError):
        bench.cloud.launch(OD, 2, "t")
    bench.numbers.error = None
    assert bench.cloud.launch(OD, 2, "t").numbers == (1, 2)
    assert len(bench.ids()) == 2


def test_two_sites_do_not_see_each_other(bench: Bench) -> None:
    """Equal tokens make no difference."""
    other = Bench(bench.place)
    assert len(bench.cloud.launch(OD, 1, "t").numbers) == len(other.cloud.launch(OD, 2, "t").numbers) - 1
    bench.pass_s()
    other.pass_s()
    assert len(bench.cloud.fleet().instances) == 1
    assert len(other.cloud.fleet().instances) == 2


def test_a_busy_instance_is_not_idle(bench: Bench) -> None:
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.boot()
    bench.bouncers.busy.add(bench.id_of(number))
    bench.cloud.drain(number)
    assert not bench.cloud.fleet().instances[0].idle
    bench.bouncers.busy.clear()
    assert bench.cloud.fleet().instances[0].idle


def test_an_instance_that_never_finishes_draining_is_given_up(bench: Bench) -> None:
    """Otherwise it would be paid without end."""
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.boot()
    bench.bouncers.busy.add(bench.id_of(number))
    bench.cloud.drain(number)
    bench.pass_s(LONGEST_DRAIN_S)
    assert not bench.cloud.fleet().instances[0].idle
    bench.pass_s(2.0)
    assert bench.cloud.fleet().instances[0].idle


def test_standby_that_cannot_be_stopped_keeps_no_other_instance_from_serving(bench: Bench) -> None:
    (standby,) = bench.cloud.launch(T2, 1, "s", standby=True).numbers
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.pass_s()
    bench.bouncers.serving.update(bench.ids())

    def refuse(**_: object) -> None:
        raise CloudError("it cannot be stopped")

    events = bench.gate.client("ec2").meta.events
    events.register("before-call.ec2.StopInstances", refuse)
    try:
        with pytest.raises(CloudError, match="cannot be stopped"):
            bench.cloud.upkeep()
    finally:
        events.unregister("before-call.ec2.StopInstances", refuse)
    assert bench.phases() == {standby: Phase.PENDING, number: Phase.READY}


@pytest.mark.parametrize("call", ["StopInstances", "CreateTags"])
def test_instance_that_ec2_refuses_keeps_no_other_from_its_turn(bench: Bench, call: str) -> None:
    """EC2 refuses the whole call because of one of its instances. Those that rest are stopped, others are tagged."""
    standby = call == "StopInstances"
    first, second = bench.cloud.launch(T2 if standby else OD, 2, "s", standby=standby).numbers
    bench.pass_s()
    bench.bouncers.serving.update(bench.ids())
    bad = bench.id_of(first)

    def refuse(params: dict[str, Any], **_: object) -> None:
        if bad in params["body"].values():
            said = {"Error": {"Code": "IncorrectInstanceState"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(said, call)  # type: ignore[arg-type]

    events = bench.gate.client("ec2").meta.events
    events.register(f"before-call.ec2.{call}", refuse)
    try:
        with pytest.raises(CloudError, match="IncorrectInstanceState"):
            bench.cloud.upkeep()
    finally:
        events.unregister(f"before-call.ec2.{call}", refuse)
    assert bench.phases() == {first: Phase.PENDING, second: Phase.STOPPED if standby else Phase.READY}


def test_upkeep_does_not_undo_a_drain(bench: Bench) -> None:
    """The bouncer became ready just as the controller decided to drain it."""
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.pass_s()
    bench.bouncers.serving.update(bench.ids())

    class Meanwhile(Bouncers):
        def ready(self, machine: DescribedInstance) -> bool:
            bench.cloud.drain(number)
            return True

        def idle(self, machine: DescribedInstance) -> bool:
            return False

    bench.cloud._bouncers = Meanwhile()  # type: ignore[abstract]
    bench.cloud.upkeep()
    assert bench.phases() == {number: Phase.DRAINING}
    bench.pass_s()
    assert bench.phases() == {number: Phase.DRAINING}


def test_notices_are_told_once_and_doom(bench: Bench) -> None:
    """Notices for other services' instances are ignored."""
    first, second = bench.cloud.launch(SPOT, 2, "t").numbers
    at_s, gone_s = Time.ORIGIN_S + 10.0, Time.ORIGIN_S + 130.0
    bench.notices.told = [("i-other", at_s, gone_s), (bench.id_of(second), at_s, gone_s)]
    assert bench.cloud.notices() == (Notice(second, SPOT, 10.0, 130.0),)
    assert bench.cloud.notices() == ()
    assert {i.number: i.interruption_at_s for i in bench.cloud.fleet().instances} == {first: None, second: 130.0}
    assert bench.cloud.fleet().live() == {SPOT: 1}
    bench.notices.told.append((bench.id_of(first), at_s, gone_s))
    assert [n.number for n in bench.cloud.notices()] == [first]
    bench.cloud.terminate(first)
    bench.cloud.terminate(second)
    assert bench.cloud.notices() == ()


def test_what_is_taken_back_is_known_to_the_next_controller(bench: Bench) -> None:
    """A tag keeps the notice, because the queue gives it only once."""
    first, second = bench.cloud.launch(SPOT, 2, "t").numbers
    bench.notices.told = [(bench.id_of(second), Time.ORIGIN_S + 10.0, Time.ORIGIN_S + 130.0)]
    bench.cloud.notices()
    bench.pass_s()
    bench.notices.told = []
    bench.begin_again()
    assert {i.number: i.interruption_at_s for i in bench.cloud.fleet().instances} == {first: None, second: 130.0}
    assert bench.cloud.notices() == ()
    bench.pass_s(130.0 + INTERRUPTED_KEPT_S)  # EC2 did not interrupt it after all
    assert {i.interruption_at_s for i in bench.cloud.fleet().instances} == {None}


def test_notice_that_could_not_be_tagged_is_tagged_later(bench: Bench) -> None:
    """Otherwise the next controller would not know of it."""
    (number,) = bench.cloud.launch(SPOT, 1, "t").numbers
    bench.notices.told = [(bench.id_of(number), Time.ORIGIN_S + 10.0, Time.ORIGIN_S + 130.0)]

    def refuse(**_: object) -> None:
        raise CloudError("slow down")

    events = bench.gate.client("ec2").meta.events
    events.register("before-call.ec2.CreateTags", refuse)
    try:
        assert len(bench.cloud.notices()) == 1
    finally:
        events.unregister("before-call.ec2.CreateTags", refuse)
    assert bench.cloud.notices() == ()
    bench.notices.told = []
    bench.pass_s()
    bench.begin_again()
    assert [i.interruption_at_s for i in bench.cloud.fleet().instances] == [130.0]


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_silence_is_shown_at_any_time_scale(bench: Bench, scale: float) -> None:
    bench.begin_again(time_scale=scale)
    (number,) = bench.cloud.launch(OD, 1, f"silent/{scale}").numbers
    since_s = bench.time.monotonic() + 5.0
    bench.bouncers.silent = {bench.id_of(number): since_s}
    assert bench.cloud.fleet().instances[0].silent_s is None, "it boots"
    bench.boot()
    (instance,) = bench.cloud.fleet().instances
    assert instance.silent_s == bench.time.at_monotonic_s(since_s) + (scale - 1.0) * SILENT_S
    assert bench.cloud.fleet() is bench.cloud.fleet()


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_wall_clock_step_does_not_lengthen_a_silence(bench: Bench, step_s: float) -> None:
    """The step falls between the start of the process and a first look that failed."""
    wall, ticks = Time.ORIGIN_S + 100.0, 50.0
    bench.cloud._clock = clock = WallClock(Time.ORIGIN_S, unix_s=lambda: wall, monotonic=lambda: ticks)
    (number,) = bench.cloud.launch(OD, 1, f"stepped/{step_s}").numbers
    bench.boot()
    wall, ticks = wall + step_s, ticks + 1.0
    bench.bouncers.silent = {bench.id_of(number): ticks}
    ticks += 1.0
    (instance,) = bench.cloud.fleet().instances
    assert instance.silent_s == clock.now_s() - 1.0


def test_what_aws_ended_is_gone(bench: Bench) -> None:
    (number,) = bench.cloud.launch(SPOT, 1, "t").numbers
    bench.boot()
    bench.place.server.client("ec2").terminate_instances(InstanceIds=bench.ids())
    bench.pass_s()
    assert bench.cloud.fleet().instances == ()
    bench.cloud.terminate(number)


def test_an_instance_of_a_withdrawn_offer_is_not_shown(bench: Bench) -> None:
    bench.cloud.launch(OD, 1, "t")
    bench.begin_again()
    bench.cloud.offers = {T2: BURSTABLE}
    assert bench.cloud.fleet().instances == ()


def test_no_answer_for_a_minute_is_an_error(bench: Bench) -> None:
    bench.cloud.launch(OD, 1, "t")
    bench.time.t_s += OLDEST_S
    assert len(bench.cloud.fleet().instances) == 1
    bench.time.t_s += 1.0
    with pytest.raises(CloudError, match="EC2 has not listed the instances"):
        bench.cloud.fleet()


def test_ghosts_are_forgotten_by_the_store(bench: Bench) -> None:
    first, _ = bench.cloud.launch(OD, 2, "t").numbers
    ghost = bench.id_of(first)
    bench.cloud.terminate(first)
    bench.cloud.forget_ghosts()
    assert bench.numbers.forgot == [{ghost}]
    assert bench.cloud.number_of(ghost) is None
    bench.cloud.terminate(first)


def test_a_fleet_is_a_view_of_control_time(bench: Bench) -> None:
    """Offers differ in their resume times."""
    slow = offer("t2.medium", Market.BURSTABLE, 0.0464)
    assert slow.resume is not None
    (number,) = bench.cloud.launch(T2, 1, "t", standby=True).numbers
    bench.boot()
    bench.pass_s(1000.0)
    bench.cloud.resume(number)
    (instance,) = bench.cloud.fleet().instances
    assert instance.ready_s == instance.launched_s + slow.resume.mean_s
    assert instance.launched_s == bench.time.now_s()
