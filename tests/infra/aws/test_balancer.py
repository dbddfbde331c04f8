"""Target groups: which instances are registered, in which group, with which weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.balancer import Balancer, believed_silent, steps
from mark_infra.aws.ec2_cloud import STAND_BY_S
from mark_infra.aws.inventory import DescribedInstance
from mark_infra.aws.look_pace import PER_S, LookPace
from mark_infra.aws.site import SiteService

from mark.domain.errors import CloudError
from mark.domain.fleet import Phase
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import CAPACITY_RPS, Bench, Place, Time
from tests.infra.aws.fake_elb import FakeElb

OD, SPOT, T2 = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name
SMALL, MIDDLE, LARGE = "c5.large/on-demand", "c5.2xlarge/on-demand", "p2.xlarge/spot/a"
OF_THREE = {SMALL: 5.0, MIDDLE: 20.0, LARGE: 60.0}
GROUPS = ["small", "middle", "large"]


@pytest.fixture
def rules(place: Place) -> Iterator[list[str]]:
    """Return two rules of a listener that forward to the first group, as Terraform makes them."""
    elb = place.server.client("elbv2")
    action = {"Type": "forward", "TargetGroupArn": place.groups[0]}
    made = elb.create_listener(LoadBalancerArn=place.balancer, Protocol="HTTP", Port=80, DefaultActions=[action])
    arn = made["Listeners"][0]["ListenerArn"]
    yield [
        elb.create_rule(
            ListenerArn=arn, Priority=priority, Actions=[action],
            Conditions=[{"Field": "path-pattern", "PathPatternConfig": {"Values": [path]}}],
        )["Rules"][0]["RuleArn"]
        for priority, path in ((1, "/v2/*"), (2, "/invocations"))
    ]  # fmt: skip
    elb.delete_listener(ListenerArn=arn)


def registered(place: Place) -> list[set[str]]:
    elb = place.server.client("elbv2")
    answers = [elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"] for arn in place.groups]
    return [{health["Target"]["Id"] for health in answer} for answer in answers]


def weights_of(place: Place, rules: list[str]) -> list[list[int]]:
    found = place.server.client("elbv2").describe_rules(RuleArns=rules)["Rules"]
    by_group = [
        {g["TargetGroupArn"]: g["Weight"] for g in r["Actions"][0]["ForwardConfig"]["TargetGroups"]} for r in found
    ]
    return [[weights[arn] for arn in place.groups] for weights in by_group]


@dataclass
class Bay:
    """A balancer over a fake ELB, with a clock."""

    elb: FakeElb
    there: SiteService
    balancer: Balancer
    t_s: float = 0.0

    def sync(
        self, after_s: float = 1.0, *, leaving: Mapping[str, str] | None = None, silent: str = "", **offers: str
    ) -> None:
        """Sync: these instances of these offers should serve, `leaving` drain. `silent` ids are single letters."""
        self.t_s += after_s
        self.elb.ends = not offers
        wanted = [DescribedInstance(id, "s", offer, "t", "running", 0.0) for id, offer in offers.items()]
        drained = [
            DescribedInstance(id, "s", offer, "t", "running", 0.0, draining_unix_s=1.0)
            for id, offer in (leaving or {}).items()
        ]
        self.balancer.sync(lambda: [*wanted, *drained], set(silent))

    def begin(self, **offers: str) -> None:
        """Start with these instances, healthy for a while."""
        for _ in range(3):
            self.sync(10.0, leaving=None, silent="", **offers)
            self.elb.pass_checks()
        self.elb.said.clear()


def bay(
    groups: list[str] = GROUPS,
    function: str | None = None,
    *,
    names: str = "",
    pace: LookPace | None = None,
    **more: Any,
) -> Bay:
    """Return a bay; `names` come before those of the groups."""
    groups = [names + group for group in groups]
    elb = FakeElb(groups, ["path", "header"])
    elb.functions = {function} if function else set()
    there = SiteService("lt-1", {}, tuple(groups), listener_rules=("path", "header"), function_group=function, **more)
    made = Bay(elb, there, Balancer(elb.gate(), there, OF_THREE, pace=pace, monotonic=lambda: made.t_s))
    return made


def test_an_instance_moves_when_its_new_group_has_it_healthy() -> None:
    """Until then it stays and counts in its old group; an instance in no group counts nowhere."""
    wanted = {"i-1": (1, 10.0), "i-2": (0, 5.0)}
    first = steps(wanted, [{"i-1": True, "i-3": True}, {}])
    assert first.new == (frozenset({"i-2"}), frozenset({"i-1"}))
    assert first.old == (frozenset({"i-3"}), frozenset())
    assert first.capacities_rps == (10.0, 0.0)
    then = steps(wanted, [{"i-1": True, "i-2": False}, {"i-1": False}])
    assert (then.old, then.capacities_rps) == ((frozenset(), frozenset()), (10.0, 0.0))
    last = steps(wanted, [{"i-1": True, "i-2": True}, {"i-1": True}])
    assert (last.old, last.capacities_rps) == ((frozenset({"i-1"}), frozenset()), (5.0, 10.0))


def test_a_group_has_no_weight_before_a_target_is_healthy() -> None:
    made = bay()
    made.sync(a=SMALL)
    made.elb.pass_checks()
    made.sync(a=SMALL)
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}
    made.sync(a=SMALL, b=LARGE)
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}
    made.elb.pass_checks()
    made.sync(a=SMALL, b=LARGE)
    assert made.elb.shares("path") == made.elb.shares("header") == {"small": 83, "middle": 0, "large": 999}
    assert made.elb.lost == []


def test_weights_go_before_the_last_target_does() -> None:
    made = bay()
    made.sync(a=SMALL, b=LARGE)
    made.elb.pass_checks()
    made.sync(a=SMALL, b=LARGE)
    made.sync(a=SMALL)
    assert made.elb.shares("path")["large"] == 0
    assert made.elb.targets["large"], "not every node of the balancer may know the new weight yet"
    made.sync(5.0, a=SMALL)
    assert not made.elb.targets["large"]
    assert made.elb.lost == []


def test_a_function_answers_while_no_instance_is_healthy() -> None:
    made = bay(function="function")
    made.sync()
    assert made.elb.shares("path") == {"small": 0, "middle": 0, "large": 0, "function": 1}
    made.sync(a=MIDDLE)
    assert made.elb.shares("header")["function"] == 1, "it is registered, and not healthy yet"
    made.elb.pass_checks()
    made.sync(a=MIDDLE)
    assert made.elb.shares("header") == {"small": 0, "middle": 999, "large": 0, "function": 0}
    made.sync()
    assert made.elb.shares("header") == {"small": 0, "middle": 0, "large": 0, "function": 1}
    assert made.elb.lost == []


@pytest.mark.parametrize("function", [None, "function"])
def test_what_is_drained_serves_until_others_are_healthy(function: str | None) -> None:
    """This holds if its class is another one, too. No function stands in for the drained instances until then."""
    made = bay(function=function)
    made.begin(a=SMALL, b=SMALL)
    for _ in range(3):
        made.sync(leaving={"a": SMALL, "b": SMALL}, c=SMALL, d=LARGE)
        assert made.elb.routed("path") == {"a", "b"}
    made.elb.pass_checks(["d"])
    made.sync(leaving={"a": SMALL, "b": SMALL}, c=SMALL, d=LARGE)
    made.sync(5.0, leaving={"a": SMALL, "b": SMALL}, c=SMALL, d=LARGE)
    assert made.elb.routed("path") == {"d"}
    assert not made.balancer.has("a")
    assert made.elb.lost == []


def test_what_is_ended_is_held_by_nothing() -> None:
    """It is not drained any more but gone, so its requests would be lost."""
    made = bay()
    made.begin(a=SMALL)
    made.sync(leaving={"a": SMALL}, b=LARGE)
    assert made.balancer.has("a")
    made.sync(b=LARGE)
    made.sync(5.0, b=LARGE)
    assert not made.balancer.has("a")


def test_what_stays_is_looked_at_before_another_leaves() -> None:
    """The staying instance has become unhealthy since the last look."""
    made = bay(["small"])
    made.begin(a=SMALL, b=SMALL)
    made.sync(100.0, a=SMALL, b=SMALL)
    made.elb.targets["small"]["b"] = "unhealthy"
    made.sync(leaving={"a": SMALL}, b=SMALL)
    assert made.elb.routed("path") == {"a"}
    made.elb.pass_checks()
    made.sync(5.0, leaving={"a": SMALL}, b=SMALL)
    assert made.elb.routed("path") == {"b"}
    assert made.elb.lost == []


def test_an_unreported_instance_is_waited_for_a_minute() -> None:
    """Its health checks are over after that time, with any result; then the weights follow."""
    made = bay()
    made.begin(a=SMALL)
    made.sync(a=SMALL, b=LARGE)
    made.sync(a=SMALL, b=LARGE)
    made.elb.mute = True
    for _ in range(58):
        with suppress(CloudError):
            made.sync(a=SMALL, b=LARGE)
        assert not made.balancer.serves("b")
    for _ in range(10):
        with suppress(CloudError):
            made.sync(a=SMALL, b=LARGE)
    assert made.balancer.serves("b")
    assert made.elb.shares("path")["large"] == 999
    made.elb.mute = False
    made.sync(5.0, a=SMALL, b=LARGE)
    assert not made.balancer.serves("b"), "it says now that it is not"


def test_without_any_answer_instances_are_registered_and_shares_left() -> None:
    """Otherwise a new controller would give to a function the requests that instances can answer."""
    made = bay(function="function")
    made.begin(a=SMALL)
    before = made.elb.shares("path")
    again = Balancer(made.elb.gate(), made.there, OF_THREE, monotonic=lambda: made.t_s)
    made.elb.mute, made.balancer = True, again
    with pytest.raises(CloudError):
        made.sync(b=SMALL)
    assert made.elb.shares("path") == before
    assert made.elb.targets["small"].keys() == {"a", "b"}
    assert made.elb.said.count("describe_target_health") == len(GROUPS)


def test_a_share_goes_soon_when_its_target_is_unhealthy() -> None:
    """It comes back soon after the target is healthy."""
    made = bay()
    made.begin(a=SMALL, b=LARGE)
    made.elb.targets["large"]["b"] = "unhealthy"
    for _ in range(13):
        made.sync(a=SMALL, b=LARGE)
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}
    made.elb.pass_checks()
    for _ in range(3):
        made.sync(a=SMALL, b=LARGE)
    assert made.elb.shares("path") == {"small": 83, "middle": 0, "large": 999}


def test_what_is_silent_has_no_capacity_meanwhile() -> None:
    made = bay()
    made.begin(a=SMALL, b=LARGE)
    made.sync(a=SMALL, b=LARGE, silent="b")
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}
    assert made.balancer.has("b"), "it may answer again"
    made.sync(a=SMALL, b=LARGE)
    assert made.elb.shares("path")["large"] == 999


def test_where_many_are_silent_our_network_is() -> None:
    assert believed_silent({"a"}, {"a"}) == set()
    assert believed_silent({"a", "x"}, {"a", "b"}) == {"a"}
    assert believed_silent({"a", "b"}, set("abcdefgh")) == set()
    assert believed_silent({"a", "b"}, set("abcdefghijklmnopqrst")) == {"a", "b"}


@pytest.mark.parametrize("healthy", [False, True])
def test_many_services_look_a_few_times_a_second(healthy: bool) -> None:
    """An account has ten such calls a second, whether all services wait for a target or watch their only one."""
    pace, said = LookPace(), Counter[int]()
    bays = [bay(["small", "middle"], names=f"{n}", pace=pace) for n in range(200)]
    for round in range(60):
        for made in bays:
            made.sync(5.0, a=SMALL)
            if healthy:
                made.elb.pass_checks()
            said[round] += made.elb.said.count("describe_target_health")
            made.elb.said.clear()
    assert said[0] == 400, "each once, at first"
    assert 0 < sum(said[round] for round in range(1, 60)) <= 59 * 5.0 * sum(PER_S.values())


def test_a_function_that_goes_leaves_the_rules() -> None:
    """The next controller does not know the function."""
    made = bay(function="function")
    made.sync()
    there = SiteService("lt-1", {}, tuple(GROUPS), listener_rules=("path", "header"))
    Balancer(made.elb.gate(), there, OF_THREE).sync(list)
    assert made.elb.shares("path").keys() == set(GROUPS)


def test_weights_that_others_change_are_put_right() -> None:
    made = bay()
    made.sync(a=SMALL)
    made.elb.pass_checks()
    made.sync(a=SMALL)
    made.elb.rules["path"] = [{"Type": "forward", "TargetGroupArn": "large"}]
    made.sync(a=SMALL)
    assert made.elb.shares("path") == {"large": 1}
    made.sync(300.0, a=SMALL)
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}


def test_weights_and_targets_of_another_leader_are_put_right_at_the_take_over() -> None:
    """It led in between, and this process set the same weights a moment ago."""
    made = bay()
    made.begin(a=SMALL)
    made.elb.rules["path"] = [{"Type": "forward", "TargetGroupArn": "large"}]
    made.elb.targets["small"].clear()
    made.balancer = Balancer(made.elb.gate(), made.there, OF_THREE, monotonic=lambda: made.t_s)
    made.sync(a=SMALL)
    assert made.elb.targets["small"] == {"a": "initial"}
    assert made.elb.shares("path") == {"small": 999, "middle": 0, "large": 0}


def test_a_missing_rule_keeps_no_other_from_its_weights() -> None:
    made = bay()
    del made.elb.rules["path"]
    made.sync(a=SMALL)
    made.elb.pass_checks()
    made.sync(a=SMALL)
    assert made.elb.shares("header")["small"] == 999


def test_what_waits_long_is_looked_at_less_often() -> None:
    """A target that never becomes healthy costs a call now and then; a healthy one is seen within a second."""
    made = bay(["small"])
    for _ in range(600):
        made.sync(a=SMALL)
    looks = made.elb.said.count("describe_target_health")
    assert 30 < looks < 60
    made.elb.pass_checks()
    made.sync(60.0, a=SMALL)
    made.sync(a=SMALL)
    assert made.elb.said.count("describe_target_health") == looks + 1


def test_grpc_has_groups_of_its_own() -> None:
    made = bay(["small", "large"], grpc_groups=("gs", "gl"), grpc_rules=("grpc",))
    made.elb.targets |= {"gs": {}, "gl": {}}
    made.elb.rules["grpc"] = [{"Type": "forward", "TargetGroupArn": "gs"}]
    made.sync(a=SMALL, b=LARGE)
    made.elb.targets["small"]["a"] = made.elb.targets["large"]["b"] = "healthy"
    made.sync(2.0, a=SMALL, b=LARGE)
    assert not made.balancer.serves("a"), "not by gRPC yet"
    made.elb.pass_checks()
    made.sync(2.0, a=SMALL, b=LARGE)
    assert made.balancer.serves("a")
    assert made.elb.targets["gs"].keys() == {"a"}
    assert made.elb.targets["gl"].keys() == {"b"}
    assert made.elb.shares("grpc") == {"gs": 83, "gl": 999}
    del made.elb.targets["large"]["b"]
    assert made.balancer.has("b")


@given(st.data())
def test_no_change_sends_requests_where_none_answer(data: st.DataObject) -> None:
    """Instances come, go and move between classes, checks take their time, controllers take over."""
    there, leaving = dict[str, str](), dict[str, str]()
    made = bay(function=data.draw(st.sampled_from([None, "function"])))
    capacity_rps = dict(OF_THREE)
    for _ in range(data.draw(st.integers(1, 25))):
        serves = made.elb.healthy()
        match data.draw(st.sampled_from(["launch", "drain", "check", "class", "controller"])):
            case "launch":
                there[f"i-{len(there)}-{made.t_s}"] = data.draw(st.sampled_from([SMALL, MIDDLE, LARGE]))
            case "drain" if there:
                id = data.draw(st.sampled_from(sorted(there)))
                leaving[id] = there.pop(id)
            case "check":
                made.elb.pass_checks()
            case "class":
                capacity_rps = dict(zip(OF_THREE, data.draw(st.permutations(list(OF_THREE.values()))), strict=True))
            case _:
                function = next(iter(made.elb.functions), None)
                site = SiteService(
                    "lt-1", {}, tuple(GROUPS), listener_rules=("path", "header"), function_group=function
                )
                made.balancer = Balancer(made.elb.gate(), site, capacity_rps, monotonic=lambda: made.t_s)
        made.sync(data.draw(st.sampled_from([1.0, 6.0])), leaving=leaving, **there)
        leaving = {id: offer for id, offer in leaving.items() if made.balancer.has(id)}  # otherwise it ends
        if not serves:  # the first healthy target is not known before a look
            made.elb.lost.clear()
        assert made.elb.lost == []


def test_an_instance_is_ready_when_the_balancer_finds_it_healthy(place: Place) -> None:
    """It is registered before that. One late answer of a bouncer changes nothing."""
    bench = Bench(place, groups=place.groups[:1])
    (number,) = bench.cloud.launch(OD, 1, "t").numbers
    bench.pass_s()
    bench.bouncers.serving.update(bench.ids())
    bench.cloud.upkeep()
    assert bench.phases() == {number: Phase.PENDING}
    bench.bouncers.serving.clear()
    bench.pass_s(1.0)
    bench.cloud.upkeep()
    assert registered(place)[0] == set(bench.ids())
    assert bench.phases() == {number: Phase.PENDING}
    bench.bouncers.serving.update(bench.ids())
    bench.cloud.upkeep()
    assert bench.phases() == {number: Phase.READY}
    bench.cloud.terminate(number)
    bench.cloud.upkeep()


def test_the_balancer_turns_to_what_was_drained_of_late(place: Place) -> None:
    """It does not turn to taken-back instances, nor for long."""
    bench = Bench(place, groups=place.groups[:1])
    drained, interrupted, late, other = bench.cloud.launch(OD, 4, "t").numbers
    bench.boot()
    bench.cloud.drain(late)
    bench.pass_s(STAND_BY_S)
    bench.notices.told = [(bench.id_of(interrupted), Time.ORIGIN_S, Time.ORIGIN_S + 500.0)]
    bench.cloud.notices()
    bench.cloud.drain(interrupted)
    bench.cloud.drain(drained)
    given = {machine.id for machine in bench.cloud._for_balancer()}
    assert given == {bench.id_of(drained), bench.id_of(other)}
    for number in (drained, interrupted, late, other):
        bench.cloud.terminate(number)
    bench.cloud.upkeep()


def test_running_instances_are_registered_and_drained_ones_are_not(place: Place) -> None:
    bench = Bench(place, groups=place.groups[:1])
    first, second = bench.cloud.launch(OD, 2, "t").numbers
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.boot()
    assert registered(place)[0] == {bench.id_of(first), bench.id_of(second)}
    bench.cloud.drain(first)
    assert not bench.cloud.fleet().instances[0].idle, "the balancer may still send something"
    bench.cloud.upkeep()
    assert registered(place)[0] == {bench.id_of(second)}
    assert bench.cloud.fleet().instances[0].idle
    bench.cloud.terminate(second)
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.cloud.upkeep()


def test_a_standby_is_registered_when_it_is_resumed(place: Place) -> None:
    bench = Bench(place, groups=place.groups[:1])
    (number,) = bench.cloud.launch(T2, 1, "t", standby=True).numbers
    bench.boot()
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.cloud.resume(number)
    bench.boot()
    assert registered(place)[0] == {bench.id_of(number)}


def test_a_restarted_controller_finds_the_registered_instances(place: Place) -> None:
    """It deregisters an instance that was drained before, which is not idle until then."""
    bench = Bench(place, groups=place.groups[:1])
    first, second = bench.cloud.launch(OD, 2, "t").numbers
    bench.boot()
    bench.cloud.drain(first)
    bench.begin_again()
    assert not bench.cloud.fleet().instances[0].idle
    bench.cloud.upkeep()
    assert registered(place)[0] == {bench.id_of(second)}
    assert bench.cloud.fleet().instances[0].idle
    bench.cloud.terminate(second)
    bench.cloud.upkeep()


def test_what_others_change_is_put_right(place: Place) -> None:
    """Changes by other programs are corrected within minutes, because targets are not read every second."""
    bench = Bench(place, groups=place.groups[:1])
    bench.cloud.launch(OD, 1, "t")
    bench.boot()
    bench.pass_s(1.0)
    bench.cloud.upkeep()
    (id,) = bench.ids()
    place.server.client("elbv2").deregister_targets(TargetGroupArn=place.groups[0], Targets=[{"Id": id}])
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.pass_s(300.0)
    bench.cloud.upkeep()
    assert registered(place)[0] == {id}
    bench.cloud.terminate(1)
    bench.cloud.upkeep()


def test_several_groups_are_weighed_by_what_is_ready(place: Place, rules: list[str]) -> None:
    """Every rule has the same weights; small types are in one group, large ones in the other."""
    bench = Bench(place, groups=place.groups, rules=rules)
    bench.cloud.launch(OD, 3, "t")
    bench.cloud.launch(T2, 1, "u")
    bench.boot()
    bench.pass_s(1.0)
    bench.cloud.upkeep()
    small, large = registered(place)
    assert (len(small), len(large)) == (1, 3)
    assert weights_of(place, rules) == [[round(999 / 8), 999]] * 2
    for number in (1, 2, 3):
        bench.cloud.terminate(number)
    bench.cloud.upkeep()
    assert weights_of(place, rules) == [[999, 0]] * 2
    bench.pass_s()
    bench.cloud.upkeep()
    assert registered(place)[1] == set()
    bench.cloud.terminate(4)
    bench.cloud.upkeep()
    assert registered(place)[0] == set()


def test_a_booting_instance_is_not_registered(place: Place) -> None:
    """A balancer whose targets are all unhealthy would send it requests."""
    bench = Bench(place, groups=place.groups[:1])
    bench.cloud.launch(OD, 1, "t")
    bench.pass_s()
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.boot()
    assert len(registered(place)[0]) == 1
    bench.cloud.terminate(1)
    bench.cloud.upkeep()


def test_without_groups_there_is_nothing_to_do(place: Place) -> None:
    balancer = Balancer(place.gate, SiteService("lt-1", {}), CAPACITY_RPS)
    balancer.sync(list)
    assert not balancer.has("i-1")
