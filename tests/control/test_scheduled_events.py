"""Instances that the cloud will stop, end or restart are replaced an hour before, and not touched earlier."""

from __future__ import annotations

import pytest

from mark.control.scheduled_events import LEAD_S, is_due, leaving_in_time
from mark.domain.fleet import Fleet, Instance, Phase, ScheduledEvent
from tests.control.control_fakes import ON_DEMAND, Bench, resolved

OD = ON_DEMAND.name
RETIRED = ScheduledEvent("instance-retirement", 1e5)
NEAR_S, LAST_S = RETIRED.at_s - LEAD_S, RETIRED.at_s - 120.0


def instance(number: int, phase: Phase = Phase.READY, event: ScheduledEvent | None = RETIRED) -> Instance:
    return Instance(number, OD, phase, 0.0, 0.0, event=event)


class Serving(Bench):
    """Two ready instances, the first of which will be retired; a launch is ready two minutes later."""

    def __init__(self, **limits: int) -> None:
        super().__init__(where=resolved(**limits))
        self.planner.wanted = {OD: 2}
        self.clock.t_s = NEAR_S - 600.0
        self.minute()
        self.cloud.boot()
        self.cloud.schedule(1, RETIRED.code, RETIRED.at_s)
        self.ready: list[int] = []

    def minute(self) -> None:
        for _ in range(12):
            self.fast()
            self.ready = [*getattr(self, "ready", []), self.cloud.fleet().ready()[OD]]
        self.controller.tick()

    def journal_of(self, number: int) -> list[str]:
        return [str(command) for _, command, _ in self.store.journal if getattr(command, "number", None) == number]


def test_nothing_is_done_until_an_event_is_near() -> None:
    seen = Fleet((instance(1), instance(2, event=None)))
    assert leaving_in_time(seen, NEAR_S) is seen
    assert not is_due(instance(1), NEAR_S)
    world = Serving()
    for _ in range(9):
        world.minute()
    assert world.clock.t_s <= NEAR_S
    assert set(world.cloud.instances) == {1, 2}
    assert world.journal_of(1) == []


def test_what_is_near_leaves_and_is_reclaimed_in_last_minutes() -> None:
    """It no longer counts. An interrupted instance keeps its own end, and a stopped one is not affected."""
    there = Fleet((instance(1), instance(2, event=None), instance(3, Phase.STOPPED)), (instance(4),))
    seen = leaving_in_time(there, NEAR_S + 1.0)
    assert [i.number for i in seen.instances] == [2, 3]
    assert [(i.number, i.interruption_at_s) for i in seen.leaving] == [(1, None), (4, None)]
    assert seen.live() == {OD: 1}
    for now_s in (LAST_S + 1.0, RETIRED.at_s + 1e4):
        assert [i.interruption_at_s for i in leaving_in_time(there, now_s).leaving] == [RETIRED.at_s] * 2


def test_it_serves_until_its_replacement_does_and_is_journaled() -> None:
    world = Serving()
    while 3 not in world.cloud.instances:
        world.minute()
    assert 0.0 <= world.clock.t_s - NEAR_S <= 60.0
    world.minute()
    assert world.cloud.instances[1].phase is Phase.READY
    world.cloud.boot()
    world.minute()
    assert set(world.cloud.instances) == {2, 3}
    assert min(world.ready[12:]) == 2
    drained, ended = world.journal_of(1)
    assert "instance-retirement is scheduled for it in 5" in drained
    assert "its queue is empty" in ended
    assert world.controller.state.beliefs == {}  # the market took nothing back, and sells as before
    for _ in range(65):  # beyond the end
        world.minute()
    assert set(world.cloud.instances) == {2, 3}


def test_without_a_replacement_it_is_drained_before_the_end() -> None:
    world = Serving()
    world.cloud.left[OD] = 0
    while world.cloud.instances[1].phase is Phase.READY:
        assert world.clock.t_s <= LAST_S + 5.0
        world.fast()
    assert world.clock.t_s > LAST_S
    world.fast()
    assert set(world.cloud.instances) == {2}


def test_at_the_limit_it_makes_room() -> None:
    world = Serving(max_instances=2)
    while 1 in world.cloud.instances:
        world.minute()
    world.minute()
    world.cloud.boot()
    assert world.clock.t_s - NEAR_S < 300.0
    assert set(world.cloud.instances) == {2, 3}


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.DRAINING])
def test_what_does_not_serve_yet_or_any_more_is_ended(phase: Phase) -> None:
    """It is not kept for the warm pool either, because it would have the same event after a start."""
    world = Serving()
    world.cloud.schedule(2, "instance-stop", world.clock.t_s + 10.0)
    world.cloud.lives[2].ready_s = None
    if phase is Phase.DRAINING:
        world.cloud.lives[2].drain()
    world.fast()
    assert set(world.cloud.instances) == {1}
    if phase is Phase.PENDING:
        assert "instance-stop is scheduled for it in 0 min" in world.journal_of(2)[0]
