"""A floor under faults: it stays right or vanishes, and is never a number that the load does not justify."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mark.control.controller import Controller
from mark.control.floor import STALE_S, Floor
from mark.control.ports import Store
from mark.domain.errors import CloudError
from tests.control.manager_fakes import InlinePool
from tests.infra.controller.floor_world import FloorWorld, daily_rps, one_offer

CAPACITY_RPS = 219.0  # of a replica of `one_offer`
SETTLED_S = 70.0  # the first whole minute is planned after this time


@pytest.fixture
def world(tmp_path: Path) -> FloorWorld:
    return FloorWorld(tmp_path)


def enough(world: FloorWorld, floor: Floor | None) -> bool:
    """Do these replicas carry the current load?"""
    return floor is not None and floor.replicas * CAPACITY_RPS >= daily_rps(world.prometheus_s())


def test_floor_carries_the_load_of_the_coming_minutes(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    floor = world.floor()
    assert enough(world, floor)
    assert floor.replicas == 2
    assert floor.service == "ranker"
    assert floor.usd_per_hour == pytest.approx(2 * 0.8048)
    assert "$/h" in floor.reason
    assert floor.age_s <= 60.0
    assert world.trouble() == ""


def test_floor_rises_before_the_load_does(world: FloorWorld) -> None:
    """Offices open at 8:00, as on the days before."""
    world.workload.rps = lambda at_s: 400.0 if 8.0 <= at_s % 86400.0 / 3600.0 < 20.0 else 50.0
    world.monotonic_s += 86400.0 - (world.prometheus_s() - 7.75 * 3600.0) % 86400.0
    world.run(SETTLED_S)
    assert world.floor().replicas == 1
    risen: list[float] = []

    def note() -> None:
        if (floor := world.floor()) is not None and floor.replicas >= 2:
            risen.append(world.prometheus_s() % 86400.0 / 3600.0)

    world.run(900.0, note)
    boot_s = world.resolved[0].offers[0].boot.mean_s
    assert 8.0 - 0.25 < risen[0] <= 8.0 - boot_s / 3600.0


def test_floor_vanishes_while_prometheus_is_down_for_an_hour(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    before = world.floor()
    world.workload.failing = "http://prometheus:9090 does not answer"
    seen: list[int] = []
    ages: list[float] = []

    def note() -> None:
        if (floor := world.floor()) is not None:
            seen.append(floor.replicas)
            ages.append(floor.age_s)

    world.run(3600.0, note)
    assert set(seen) == {before.replicas}  # no number was made without the load
    assert max(ages) <= STALE_S
    assert len(seen) <= STALE_S
    assert world.trouble() == "http://prometheus:9090 does not answer"
    assert world.control.manager.view("ranker").conditions == (
        "nothing is known of the load: http://prometheus:9090 does not answer",
    )
    world.workload.failing = ""
    world.run(90.0)
    assert enough(world, world.floor())
    assert world.trouble() == ""


def test_minutes_of_an_outage_are_learned_afterwards(world: FloorWorld) -> None:
    """Prometheus was out of reach and went on scraping."""
    world.run(SETTLED_S)
    world.workload.failing = "no route"
    world.run(1200.0)
    world.workload.failing = ""
    world.run(90.0)
    history = world.control.manager.view("ranker").forecast
    assert history is not None
    assert history.rps[2][0] == pytest.approx(daily_rps(world.prometheus_s()), rel=0.05)


@pytest.mark.parametrize("rps", [None, math.nan, math.inf, -5.0])
def test_floor_vanishes_with_the_metric(world: FloorWorld, rps: float | None) -> None:
    world.run(SETTLED_S)
    before = world.floor()
    world.workload.rps = lambda _: rps
    seen: set[int] = set()

    def note() -> None:
        if (floor := world.floor()) is not None:
            seen.add(floor.replicas)

    world.run(STALE_S + 60.0, note)
    assert seen == {before.replicas}
    assert world.floor() is None


def test_gaps_of_single_minutes_change_nothing(world: FloorWorld) -> None:
    """Label churn at a deploy now and then leaves a minute without a rate."""
    world.workload.rps = lambda at_s: None if at_s % 300.0 < 45.0 else daily_rps(at_s)
    world.run(SETTLED_S)
    missing = 0

    def note() -> None:
        nonlocal missing
        missing += not enough(world, world.floor())

    world.run(900.0, note)
    assert missing == 0


@pytest.mark.parametrize(("replicas", "most"), [(None, 2), (0, 3), (-1, 2), (50, 2), (10**9, 2)])
def test_floor_follows_the_load_and_not_the_replicas_there_are(
    world: FloorWorld, replicas: int | None, most: int
) -> None:
    """Neither the other autoscaler's fleet nor Prometheus' count of it matters. Without any replica one more may boot
    at first."""
    world.run(SETTLED_S)
    world.workload.replicas = replicas
    world.run(180.0)
    assert 2 <= world.floor().replicas <= most


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_clock_of_this_machine_may_be_set(world: FloorWorld, set_by_s: float) -> None:
    world.run(SETTLED_S)
    world.wall_off_s += set_by_s
    short = 0

    def note() -> None:
        nonlocal short
        short += not enough(world, world.floor())

    world.run(180.0, note)
    assert short == 0


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_clock_of_prometheus_may_be_set(world: FloorWorld, set_by_s: float) -> None:
    """The floor vanishes and comes back by the new clock; no wrong number is published before that."""
    world.monotonic_s += 7200.0
    world.run(SETTLED_S)
    world.prometheus_off_s += set_by_s
    seen: set[int] = set()

    def note() -> None:
        if (floor := world.floor()) is not None:
            seen.add(floor.replicas)

    world.run(240.0, note)
    assert seen == {2}


def test_killed_process_begins_with_what_it_knew(world: FloorWorld) -> None:
    """The next process leads once the dead process's lease has run out, with the plan from the file."""
    world.run(SETTLED_S)
    before = world.floor()
    decisions = world.control.manager.decisions("ranker", None, 500)
    world.restart(orderly=False)
    assert world.floor() is None
    world.run(25.0)
    assert world.floor().replicas == before.replicas
    assert world.control.manager.decisions("ranker", None, 500)[-len(decisions) :] == decisions
    world.run(120.0)
    assert enough(world, world.floor())


def test_restart_while_prometheus_is_down_publishes_nothing(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    world.workload.failing = "no route"
    world.restart()
    world.run(120.0)
    assert world.floor() is None
    world.workload.failing = ""
    world.run(SETTLED_S)
    assert enough(world, world.floor())


def test_second_process_over_one_file_publishes_nothing(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    first, second = world.control, world._begun()
    for _ in range(60):
        world.run(1.0)
        second.step(world.wall_s())
    assert first.floors()
    assert second.floors() == ()
    second.close()


def test_late_answers_raise_the_floor(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    before = world.floor()
    world.workload.in_time_share = 0.5
    world.run(60.0)
    assert world.floor().replicas > before.replicas
    assert "late" in world.floor().reason


def test_floor_stays_within_the_limits_of_the_service(tmp_path: Path) -> None:
    world = FloorWorld(tmp_path, one_offer(max_instances=2))
    world.workload.in_time_share = 0.5
    world.workload.rps = lambda _: 2000.0
    world.run(180.0)
    assert world.floor().replicas == 2


def test_services_are_independent(tmp_path: Path) -> None:
    world = FloorWorld(tmp_path, one_offer("a"), one_offer("b"))
    world.run(SETTLED_S)
    world.workloads["a"].failing = "no route"
    world.run(STALE_S + 60.0)
    assert [floor.service for floor in world.control.floors()] == ["b"]


def test_looks_are_four_a_minute(world: FloorWorld) -> None:
    world.run(SETTLED_S)
    asked = world.workload.asked
    world.run(600.0)
    # in each of ten minutes: four looks, and one for the minute that is over
    assert world.workload.asked - asked == 4 * 10 + 10


def test_replicas_may_share_an_instance(tmp_path: Path) -> None:
    world = FloorWorld(tmp_path, per_instance=4)
    world.workload.replicas = 9
    world.run(SETTLED_S)
    assert world.floor().replicas == 8
    assert world.floor().usd_per_hour == pytest.approx(2 * 0.8048)


class FakeMinimum:
    """A record of the minima to keep; `failing` is the reason why it cannot keep them."""

    def __init__(self) -> None:
        self.kept: list[int | None] = []
        self.failing = ""

    def keep(self, replicas: int | None, store: Store) -> None:
        if self.failing:
            raise CloudError(self.failing)
        self.kept.append(replicas)


def test_minimum_follows_the_floor_and_is_let_go_of(tmp_path: Path) -> None:
    """It is set once a minute and at each change. The owner's minimum comes back while the floor is stale, and at the
    end."""
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    assert set(minimum.kept) == {2}
    world.run(600.0)
    assert len(minimum.kept) <= 12
    world.workload.failing = "no route"
    world.run(STALE_S + 60.0)
    assert minimum.kept[-1] is None
    world.workload.failing = ""
    world.run(SETTLED_S)
    assert minimum.kept[-1] == 2
    world.control.close()
    assert minimum.kept[-1] is None


def test_minimum_is_let_go_of_although_prometheus_hangs_at_the_end(tmp_path: Path) -> None:
    """The process waits for the last answer of Prometheus for longer than its lease lasts."""
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    assert minimum.kept[-1] == 2

    def hang(wait: bool = True) -> None:
        world.monotonic_s += 60.0

    world.control._looks.shutdown = hang  # type: ignore[method-assign,assignment]
    world.control.close()
    assert minimum.kept[-1] is None


def test_last_look_does_not_raise_the_minimum_that_was_let_go_of(tmp_path: Path) -> None:
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    looks = world.control._looks
    assert isinstance(looks, InlinePool)
    looks.held = True
    world.run(20.0)
    looks.shutdown = lambda wait=True: looks.release()  # type: ignore[method-assign,assignment]
    world.control.close()
    assert minimum.kept[-1] is None


def test_minimum_of_a_killed_process_is_let_go_of_without_prometheus(tmp_path: Path) -> None:
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    world.workload.failing = "no route"
    world.restart(orderly=False)
    world.run(60.0)
    assert minimum.kept[-1] == 2
    world.control.close()
    assert minimum.kept[-1] is None


def test_minimum_is_set_again_after_another_process_has_led(tmp_path: Path) -> None:
    """The other process let go of it when it ended."""
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    first, world.control = world.control, world._begun()
    world.run(20.0)
    world.control.close()
    assert minimum.kept[-1] is None
    world.control = first
    world.run(20.0)
    assert minimum.kept[-1] == 2


def test_look_of_an_earlier_term_sets_no_minimum(tmp_path: Path) -> None:
    """It may have waited for Prometheus while another process let go of the minimum."""
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    service = world.control._services["ranker"]
    earlier = service._led
    assert earlier is not None
    world.control.manager._runtimes["ranker"].reconcile(None, world.wall_s())
    world.run(2.0)
    assert world.control.manager.leads()
    assert service._led is not earlier
    minimum.kept.clear()
    earlier.kept = None
    service._keep(earlier)
    assert minimum.kept == []


def test_minimum_stays_until_a_restarted_process_has_planned(tmp_path: Path) -> None:
    """The plan in the store is too old after an outage, and the first round may take long."""
    minimum = FakeMinimum()
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    assert minimum.kept[-1] == 2
    world.restart(orderly=False)
    world.monotonic_s += STALE_S + 60.0
    tick = Controller.tick
    looked: list[int | None] = []

    def slow(self: Controller) -> None:
        looked.append(minimum.kept[-1])
        service = world.control._services["ranker"]
        assert service._led is not None
        service._led.looked = -1
        service.begin_look(InlinePool())  # as the manager's thread does during the round
        looked.append(minimum.kept[-1])
        tick(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "tick", slow)
        world.run(30.0)
    assert looked[:2] == [2, 2]
    world.run(SETTLED_S)
    assert minimum.kept[-1] == 2
    assert None not in minimum.kept


def test_minimum_that_cannot_be_set_is_told_and_tried_again(tmp_path: Path) -> None:
    minimum = FakeMinimum()
    minimum.failing = "AccessDenied"
    world = FloorWorld(tmp_path, minimum=minimum)
    world.run(SETTLED_S)
    assert world.trouble() == "AccessDenied"
    assert world.floor().replicas == 2
    minimum.failing = ""
    world.run(30.0)
    assert minimum.kept == [2]
    assert world.trouble() == ""
