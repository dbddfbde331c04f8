"""Target groups: which instances are registered, in which group, with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.balancer import Balancer, steps
from mark_infra.aws.inventory import DescribedInstance
from mark_infra.aws.site import SiteService

from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import CAPACITY_RPS, Bench, Place
from tests.infra.aws.fake_elb import FakeElb

OD, SPOT, T2 = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name
SMALL, MIDDLE, LARGE = "c5.large/on-demand", "c5.2xlarge/on-demand", "p2.xlarge/spot/a"
OF_THREE = {SMALL: 5.0, MIDDLE: 20.0, LARGE: 60.0}
GROUPS = ["small", "middle", "large"]


@pytest.fixture
def rules(place: Place) -> Iterator[list[str]]:
    """Two rules of a listener, which forward to the first group as Terraform makes them."""
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
    balancer: Balancer
    t_s: float = 0.0

    def sync(self, after_s: float = 1.0, **offers: str) -> None:
        """These instances, of these offers, are ready."""
        self.t_s += after_s
        self.balancer.sync(
            lambda: [DescribedInstance(id, "s", offer, "t", "running", 0.0) for id, offer in offers.items()]
        )


def bay(groups: list[str] = GROUPS, function: str | None = None, **more: Any) -> Bay:
    elb = FakeElb(groups, ["path", "header"])
    elb.functions = {function} if function else set()
    there = SiteService("lt-1", {}, tuple(groups), listener_rules=("path", "header"), function_group=function, **more)
    made = Bay(elb, Balancer(elb.gate(), there, OF_THREE, monotonic=lambda: made.t_s))
    return made


def test_an_instance_moves_when_its_new_group_has_it_healthy() -> None:
    """Until then it counts, and stays, where it is; what is in no group yet counts nowhere."""
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


def test_a_function_answers_while_nobody_is_healthy() -> None:
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


def test_a_function_that_goes_leaves_the_rules() -> None:
    """The next controller knows of none."""
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


def test_a_rule_that_is_gone_keeps_no_other_from_its_weights() -> None:
    made = bay()
    del made.elb.rules["path"]
    made.sync(a=SMALL)
    made.elb.pass_checks()
    made.sync(a=SMALL)
    assert made.elb.shares("header")["small"] == 999


def test_what_waits_long_is_looked_at_less_often() -> None:
    """A target that never becomes healthy costs a call now and then, one that does is seen within a second."""
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
    made.elb.pass_checks()
    made.sync(a=SMALL, b=LARGE)
    assert made.elb.targets["gs"].keys() == {"a"}
    assert made.elb.targets["gl"].keys() == {"b"}
    assert made.elb.shares("grpc") == {"gs": 83, "gl": 999}
    del made.elb.targets["large"]["b"]
    assert made.balancer.has("b")


@given(st.data())
def test_no_change_sends_requests_where_nobody_answers(data: st.DataObject) -> None:
    """Instances that come, go and move between classes, checks that take their time, controllers that take over."""
    there, made = dict[str, str](), bay(function=data.draw(st.sampled_from([None, "function"])))
    capacity_rps = dict(OF_THREE)
    for _ in range(data.draw(st.integers(1, 25))):
        serves = made.elb.healthy()
        match data.draw(st.sampled_from(["launch", "drain", "check", "class", "controller"])):
            case "launch":
                there[f"i-{len(there)}-{made.t_s}"] = data.draw(st.sampled_from([SMALL, MIDDLE, LARGE]))
            case "drain" if there:
                del there[data.draw(st.sampled_from(sorted(there)))]
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
        made.sync(data.draw(st.sampled_from([1.0, 6.0])), **there)
        if not serves:  # the first one that is healthy is not known as such before it is looked at
            made.elb.lost.clear()
        assert made.elb.lost == []


def test_running_instances_are_registered_and_drained_ones_are_not(place: Place) -> None:
    bench = Bench(place, groups=place.groups[:1])
    first, second = bench.cloud.launch(OD, 2, "t")
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
    (number,) = bench.cloud.launch(T2, 1, "t", standby=True)
    bench.boot()
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.cloud.resume(number)
    bench.boot()
    assert registered(place)[0] == {bench.id_of(number)}


def test_a_restarted_controller_finds_the_registered_instances(place: Place) -> None:
    """And deregisters one drained before; until then it is not idle."""
    bench = Bench(place, groups=place.groups[:1])
    first, second = bench.cloud.launch(OD, 2, "t")
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
    """Within minutes: it is not looked up every second."""
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
    """Every rule alike; small types in one group, large ones in the other."""
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
    """A balancer all of whose targets are unhealthy would ask it."""
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
