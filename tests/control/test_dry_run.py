"""A dry run decides as if it acted, and touches nothing."""

from __future__ import annotations

import pytest

from mark.control.dry_run import DryRunCloud, DryRunFunctions
from mark.domain.errors import CapacityError, NotFoundError
from mark.domain.fleet import Phase
from mark.testing.fakes import FakeCloud, ManualClock
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, Bench

OD, T2 = ON_DEMAND.name, BURSTABLE.name


class World:
    def __init__(self, running: int = 0) -> None:
        self.clock = ManualClock()
        self.real = FakeCloud(self.clock)
        if running:
            self.real.launch(OD, running, "before")
            self.real.boot()
        self.calls = list(self.real.calls)
        self.dry = DryRunCloud(self.real, (ON_DEMAND, BURSTABLE), self.clock)

    def phases(self) -> list[Phase]:
        return [i.phase for i in self.dry.fleet().instances]


def test_what_is_launched_boots_in_its_mean_time() -> None:
    """Its numbers belong to no real instance; the same token gives the same launch."""
    world = World(running=1)
    numbers = world.dry.launch(OD, 2, "t").numbers
    assert world.dry.launch(OD, 2, "t").numbers == numbers
    assert min(numbers) >= 1_000_000_000
    assert world.phases() == [Phase.READY, Phase.PENDING, Phase.PENDING]
    world.clock.t_s += ON_DEMAND.boot.mean_s
    assert world.phases() == [Phase.READY] * 3
    assert world.real.calls == world.calls


def test_what_the_cloud_ended_at_launch_is_shown() -> None:
    """It was launched before the dry run began."""
    world = World(running=2)
    world.real.end_at_launch(1, CapacityError("none left"))
    assert world.dry.fleet().refused == world.real.fleet().refused
    assert len(world.dry.fleet().refused) == 1


def test_what_is_ended_is_not_shown_any_more() -> None:
    """The real ones run on."""
    world = World(running=2)
    world.dry.drain(1)
    assert world.phases() == [Phase.DRAINING, Phase.READY]
    assert world.dry.fleet().instances[0].idle
    world.dry.terminate(1)
    world.dry.terminate(1)
    (number,) = world.dry.launch(OD, 1, "t").numbers
    world.dry.terminate(number)
    assert world.phases() == [Phase.READY]
    assert world.real.calls == world.calls
    assert len(world.real.instances) == 2


def test_standbys_stop_resume_and_stop_again() -> None:
    """Real standbys do the same."""
    world = World()
    (number,) = world.dry.launch(T2, 1, "t", standby=True).numbers
    world.clock.t_s += BURSTABLE.boot.mean_s
    assert world.phases() == [Phase.STOPPED]
    world.dry.resume(number)
    assert world.phases() == [Phase.PENDING]
    world.clock.t_s += 90.0
    assert world.phases() == [Phase.READY]
    world.dry.drain(number)
    world.dry.stop(number)
    assert world.phases() == [Phase.STOPPED]


@pytest.mark.parametrize("verb", ["drain", "stop", "resume"])
def test_what_is_not_there_is_not_found(verb: str) -> None:
    """The port raises the same error."""
    with pytest.raises(NotFoundError):
        getattr(World().dry, verb)(7)


def test_what_the_real_fleet_loses_is_lost_here_too() -> None:
    """Interruptions are announced, and played copies of lost instances are dropped."""
    world = World(running=2)
    world.dry.drain(1)
    world.real.interrupt(2)
    assert [n.number for n in world.dry.notices()] == [2]
    world.real.lives.clear()
    assert world.phases() == []


def test_a_controller_plans_on_what_it_would_have_bought() -> None:
    """Otherwise it would want the same again every minute."""
    bench = Bench()
    dry = DryRunCloud(bench.cloud, bench.resolved.offers, bench.clock)
    real: FakeCloud = bench.cloud
    bench.cloud = dry
    bench.controller = bench.controller_again()
    bench.tick({OD: 3})
    bench.tick({OD: 3})
    bench.tick({OD: 1})
    assert bench.journal() == [
        (f"launch 3 {OD}", "done"),
        *((f"terminate #{1_000_000_000 + n} {OD}", "done") for n in (2, 1)),
    ]
    assert real.calls == []


def test_functions_would_be_warmed_once() -> None:
    """Functions that are already warm are not reported."""
    functions = DryRunFunctions()
    assert [functions.warm(n) for n in (3, 3, 5, 1)] == [3, 0, 2, 0]
