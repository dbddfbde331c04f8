"""Bouncers that do not answer: replaced first, given up few at a time, and never because of our own network."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mark.control.health import (
    BOOT_S,
    BOOTS,
    PAUSE_S,
    SILENT_S,
    mark_unhealthy,
    none_answers,
    overdue,
    to_give_up,
    unhealthy,
)
from mark.domain.fleet import Fleet, Instance, Phase
from tests.control.control_fakes import ON_DEMAND, Bench, resolved

OD = ON_DEMAND.name
ALWAYS = -math.inf


def fleet(*silent_s: float | None) -> Fleet:
    """Return ready instances 1, 2, ..."""
    return Fleet(tuple(Instance(n, OD, Phase.READY, 0.0, silent_s=s) for n, s in enumerate(silent_s, 1)))


def numbers(instances: tuple[Instance, ...]) -> list[int]:
    return [i.number for i in instances]


def test_a_long_silent_instance_is_unhealthy_and_no_longer_counts() -> None:
    seen = fleet(None, 10.0, None)
    assert mark_unhealthy(seen, 10.0 + SILENT_S - 1.0) is seen
    now_s = 10.0 + SILENT_S
    assert numbers(unhealthy(seen, now_s)) == [2]
    assert mark_unhealthy(seen, now_s).live() == {OD: 2}
    assert mark_unhealthy(seen, now_s).instances[1].interruption_at_s == math.inf


def test_at_most_a_tenth_are_unhealthy_longest_silent_first() -> None:
    many = fleet(*[30.0, 20.0, 10.0], *[None] * 17)
    assert numbers(unhealthy(many, 100.0)) == [3, 2]
    assert numbers(unhealthy(fleet(30.0, 20.0, None), 100.0)) == [2]


@pytest.mark.parametrize(("ready", "most"), [(1, 1), (9, 1), (10, 1), (11, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_a_tenth_is_rounded_down(ready: int, most: int) -> None:
    """The share holds at one moment and within a pause, and is at least one instance."""
    seen = fleet(*[10.0] * (ready - 1), 10.0)
    assert len(unhealthy(seen, 100.0)) == most
    assert len(to_give_up(seen, 100.0, (), ALWAYS)) == most
    assert len(to_give_up(seen, 100.0, (50.0,), ALWAYS)) == most - 1


def test_if_all_are_silent_one_is_replaced_and_none_leaves() -> None:
    """The fault is most likely in our network. If a replacement answers, it was in the instances."""
    seen = fleet(10.0, 10.0)
    assert len(mark_unhealthy(seen, 100.0).live()) == 1
    assert mark_unhealthy(seen, 100.0).live()[OD] == 1
    assert none_answers(seen)
    assert to_give_up(seen, 100.0, (), math.inf) == ()
    seen = fleet(10.0, 10.0, None)
    assert not none_answers(seen)
    assert not none_answers(Fleet(()))
    assert to_give_up(seen, 100.0 + SILENT_S - 1.0, (), 100.0) == ()
    assert numbers(to_give_up(seen, 100.0 + SILENT_S, (), 100.0)) == [1]


def test_a_booting_or_leaving_instance_is_not_unhealthy() -> None:
    seen = fleet(10.0, None)
    others = tuple(replace(seen.instances[0], number=9, phase=phase) for phase in (Phase.PENDING, Phase.DRAINING))
    assert unhealthy(Fleet(others), 100.0) == ()
    doomed = Fleet((replace(seen.instances[0], interruption_at_s=150.0), seen.instances[1]))
    assert mark_unhealthy(doomed, 100.0) is doomed


def test_an_instance_that_boots_far_too_long_is_overdue() -> None:
    """The limit is ten minutes or four times the usual boot.

    Ready, stopped and unmeasured instances are never overdue.
    """
    boots = Instance(1, OD, Phase.PENDING, 100.0, ready_s=200.0)
    slow = Instance(2, OD, Phase.PENDING, 100.0, ready_s=500.0)
    others = [replace(boots, number=3, phase=phase) for phase in (Phase.READY, Phase.DRAINING, Phase.STOPPED)]
    seen = Fleet((boots, slow, *others, replace(boots, number=9, ready_s=None)))
    assert overdue(seen, 100.0 + BOOT_S - 1.0) == ()
    assert numbers(overdue(seen, 100.0 + BOOT_S)) == [1]
    assert numbers(overdue(seen, 100.0 + BOOTS * 400.0)) == [1, 2]
    assert mark_unhealthy(seen, 100.0 + BOOT_S).instances[0].interruption_at_s == math.inf


@pytest.mark.parametrize("limit", [2, 5])
def test_an_instance_that_never_gets_ready_is_replaced_and_ended(limit: int) -> None:
    """This holds at the limit as well; while nothing boots, instances are replaced one after the other."""
    bench = Bench(where=resolved(max_instances=limit))
    bench.tick({OD: 2})
    bench.cloud.serve(1)

    def expected() -> None:
        for number, i in bench.cloud.instances.items():
            bench.cloud.lives[number].expected_s = i.launched_s + 100.0

    for minute in range(round(2 * BOOT_S / 60.0) + 4):
        expected()
        for _ in range(12):
            bench.fast()
        bench.controller.tick()  # each round does both, in this order
        assert len(bench.cloud.instances) <= 2, minute
    assert bench.phases() == {1: f"{OD} ready", 4: f"{OD} pending"}
    ended = [command for _, command, _ in bench.store.journal if command.verb == "terminate"]
    assert len(ended) == 2
    assert "not ready" in str(ended[0])


def test_few_are_given_up_in_five_minutes() -> None:
    seen = fleet(10.0, 10.0, None, None)
    assert numbers(to_give_up(seen, 100.0, (), ALWAYS)) == [1]
    assert to_give_up(seen, 100.0 + PAUSE_S - 1.0, (100.0,), ALWAYS) == ()
    assert numbers(to_give_up(seen, 100.0 + PAUSE_S, (100.0,), ALWAYS)) == [1]


def test_a_dead_bouncer_is_replaced_drained_and_ended() -> None:
    """The journal says why, and the other instance is not touched."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.cloud.boot()
    bench.cloud.lives[1].silent_s = bench.clock.t_s
    for _ in range(round(SILENT_S / 5.0)):
        bench.fast()
    assert bench.phases() == {1: f"{OD} draining", 2: f"{OD} ready", 3: f"{OD} pending"}
    assert [command.verb for _, command, _ in bench.store.journal] == ["launch", "launch", "drain"], "first replaced"
    line = str(bench.store.journal[-1][1])
    assert "its bouncer has not answered for 30 s, though the cloud says that it runs" in line
    bench.tick()
    bench.fast()
    assert bench.phases() == {2: f"{OD} ready", 3: f"{OD} pending"}


def test_the_only_one_serves_on_until_its_replacement_answers() -> None:
    bench = Bench()
    bench.tick({OD: 1})
    bench.cloud.boot()
    bench.cloud.lives[1].silent_s = bench.clock.t_s
    bench.tick()
    bench.fast()
    assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} pending"}
    bench.tick()
    assert len(bench.cloud.instances) == 2, "it is replaced once"
    bench.cloud.boot()
    bench.fast()
    assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} ready"}, "perhaps others are about to be heard again"
    for _ in range(round(SILENT_S / 5.0)):
        bench.fast()
    assert bench.phases() == {1: f"{OD} draining", 2: f"{OD} ready"}


def test_the_first_answer_after_an_outage_ends_no_instance() -> None:
    """Their silence is as old as the outage, and they have not been asked again yet."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.cloud.boot()
    for number in (1, 2):
        bench.cloud.lives[number].silent_s = bench.clock.t_s
    for _ in range(40):
        bench.fast()
    bench.cloud.lives[1].silent_s = None
    bench.fast()
    assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} ready"}
    bench.cloud.lives[2].silent_s = None
    for _ in range(40):
        bench.fast()
    assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} ready"}


@pytest.mark.parametrize("limit", [1, 3])
def test_an_instance_that_dies_at_the_limit_is_replaced(limit: int) -> None:
    """Until the old instance is gone, the fleet has one more than the limit, never two."""
    bench = Bench(where=resolved(max_instances=limit))
    bench.tick({OD: limit})
    bench.cloud.boot()
    for number in range(1, limit + 1):
        bench.cloud.lives[number].silent_s = bench.clock.t_s
    for _ in range(8 * limit):
        for _ in range(11):
            bench.fast()
            assert len(bench.cloud.instances) <= limit + 1
        bench.tick()
        bench.cloud.boot()
    assert bench.phases() == dict.fromkeys(range(limit + 1, 2 * limit + 1), f"{OD} ready")


def test_an_instance_that_answers_again_is_kept_its_replacement_ended() -> None:
    bench = Bench()
    bench.tick({OD: 1})
    bench.cloud.boot()
    bench.cloud.lives[1].silent_s = bench.clock.t_s
    bench.tick()
    bench.cloud.lives[1].silent_s = None
    bench.tick()
    assert bench.phases() == {1: f"{OD} ready"}
