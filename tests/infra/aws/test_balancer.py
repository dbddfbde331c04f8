"""Target groups: which instances are registered, in which group, with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.balancer import Balancer, spread, weights
from mark_infra.aws.inventory import DescribedInstance

from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import CAPACITY_RPS, Bench, Place

OD, SPOT, T2 = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name


@pytest.fixture
def listener(place: Place) -> Iterator[dict[str, Any]]:
    """Forwards to both groups by default and, under /v2, by a rule."""
    elb = place.server.client("elbv2")
    both = {"TargetGroups": [{"TargetGroupArn": arn, "Weight": 1} for arn in place.groups]}
    action = {"Type": "forward", "ForwardConfig": both}
    made = elb.create_listener(LoadBalancerArn=place.balancer, Protocol="HTTP", Port=80, DefaultActions=[action])
    found = made["Listeners"][0]
    elb.create_rule(
        ListenerArn=found["ListenerArn"], Priority=1, Actions=[action],
        Conditions=[{"Field": "path-pattern", "PathPatternConfig": {"Values": ["/v2/*"]}}],
    )  # fmt: skip
    yield found
    elb.delete_listener(ListenerArn=found["ListenerArn"])


def registered(place: Place) -> list[set[str]]:
    elb = place.server.client("elbv2")
    answers = [elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"] for arn in place.groups]
    return [{health["Target"]["Id"] for health in answer} for answer in answers]


def weights_of(place: Place, listener: dict[str, Any]) -> list[list[int]]:
    rules = place.server.client("elbv2").describe_rules(ListenerArn=listener["ListenerArn"])["Rules"]
    found = [
        {g["TargetGroupArn"]: g["Weight"] for g in r["Actions"][0]["ForwardConfig"]["TargetGroups"]} for r in rules
    ]
    return [[by_group[arn] for arn in place.groups] for by_group in found]


def test_types_of_similar_capacity_share_a_group() -> None:
    """In order of capacity; one type is in one group, whatever its market."""
    capacity = {"a/on-demand": 10.0, "b/on-demand": 20.0, "b/spot/z": 20.0, "c/on-demand": 80.0, "d/spot/z": 90.0}
    assert spread(capacity, 1) == dict.fromkeys(capacity, 0)
    assert spread(capacity, 2) == {"a/on-demand": 0, "b/on-demand": 0, "b/spot/z": 0, "c/on-demand": 1, "d/spot/z": 1}
    assert set(spread(capacity, 9).values()) <= set(range(9))


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5))
def test_weights_are_what_elb_takes(capacities_rps: list[float]) -> None:
    """Whole, 0 to 999, in order; no instance that serves gets 0."""
    found = weights(capacities_rps)
    assert all(0 <= weight <= 999 for weight in found)
    assert max(found) > 0
    if max(capacities_rps) > 0.0:
        assert [weight > 0 for weight in found] == [rps > 0.0 for rps in capacities_rps]
        order = sorted(range(len(found)), key=capacities_rps.__getitem__)
        assert [found[i] for i in order] == sorted(found)


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
    (id,) = bench.ids()
    place.server.client("elbv2").deregister_targets(TargetGroupArn=place.groups[0], Targets=[{"Id": id}])
    bench.cloud.upkeep()
    assert registered(place)[0] == set()
    bench.pass_s(300.0)
    bench.cloud.upkeep()
    assert registered(place)[0] == {id}
    bench.cloud.terminate(1)
    bench.cloud.upkeep()


def test_several_groups_are_weighed_by_what_is_ready(place: Place, listener: dict[str, Any]) -> None:
    """The default action and the rule alike; small types in one group, large ones in the other."""
    bench = Bench(place, groups=place.groups)
    bench.cloud.launch(OD, 3, "t")
    bench.cloud.launch(T2, 1, "u")
    bench.boot()
    small, large = registered(place)
    assert (len(small), len(large)) == (1, 3)
    assert weights_of(place, listener) == [[round(999 / 6), 999]] * 2
    for number in (1, 2, 3):
        bench.cloud.terminate(number)
    bench.cloud.upkeep()
    assert weights_of(place, listener) == [[999, 0]] * 2
    bench.cloud.terminate(4)
    bench.cloud.upkeep()
    assert weights_of(place, listener) == [[1, 1]] * 2


def test_other_listeners_are_left_alone(place: Place, listener: dict[str, Any]) -> None:
    """One of our groups, among others or alone, has no weight of ours."""
    elb = place.server.client("elbv2")
    action = {"Type": "forward", "TargetGroupArn": place.groups[0]}
    alone = elb.create_listener(LoadBalancerArn=place.balancer, Protocol="HTTP", Port=81, DefaultActions=[action])
    arn = alone["Listeners"][0]["ListenerArn"]
    before = elb.describe_listeners(ListenerArns=[arn])["Listeners"][0]["DefaultActions"]
    balancer = Balancer(place.gate, place.groups, CAPACITY_RPS)
    ready = DescribedInstance("i-1", "inception", OD, "t", "running", 0.0, ready_unix_s=1.0)
    balancer.sync(list)
    assert weights_of(place, listener) == [[1, 1]] * 2
    balancer._registered = {place.groups[0]: set(), place.groups[1]: {"i-1", "i-2"}}
    balancer.sync(lambda: [ready, replace(ready, id="i-2")])
    assert weights_of(place, listener) == [[0, 999]] * 2
    assert elb.describe_listeners(ListenerArns=[arn])["Listeners"][0]["DefaultActions"] == before
    elb.delete_listener(ListenerArn=arn)


def test_without_groups_there_is_nothing_to_do(place: Place) -> None:
    balancer = Balancer(place.gate, (), CAPACITY_RPS)
    balancer.sync(list)
    assert not balancer.has("i-1")
