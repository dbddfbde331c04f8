"""The port Cloud: one suite over the fake and the simulated cloud, so that neither drifts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mark.control.ports import Cloud
from mark.domain.errors import CapacityError, CloudError, NotFoundError
from mark.domain.fleet import Phase
from mark.simulation.world.cloud import SimulatedCloud
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, FakeCloud, ManualClock

OD, T2 = ON_DEMAND.name, BURSTABLE.name


class IdlePlane:
    """Instances without any work."""

    def add(self, number: int, offer_index: int, at_s: float) -> None: ...
    def drain(self, number: int, at_s: float) -> None: ...
    def remove(self, number: int, at_s: float) -> None: ...
    def set_speed(self, number: int, factor: float, at_s: float) -> None: ...

    def idle_at(self, number: int) -> float:
        return 0.0

    def busy_s(self, number: int) -> float:
        return 0.0


@dataclass
class World:
    cloud: Cloud
    boot: Callable[[], None]

    def phase(self, number: int) -> Phase | None:
        return next((i.phase for i in self.cloud.fleet().instances if i.number == number), None)


def fake() -> World:
    cloud = FakeCloud(ManualClock())
    cloud.left = {SPOT_A.name: 2}
    return World(cloud, cloud.boot)


def simulated() -> World:
    cloud = SimulatedCloud([ON_DEMAND, SPOT_A, BURSTABLE], IdlePlane(), seed=1, end_s=1e6, capacity={SPOT_A.name: 2})
    return World(cloud, lambda: cloud.advance(cloud.now_s() + 5000.0))


@pytest.fixture(params=[fake, simulated], ids=["fake", "simulated"])
def world(request: pytest.FixtureRequest) -> World:
    return request.param()


def test_a_launch_shows_in_the_fleet_in_order(world: World) -> None:
    """Numbers ascend and the snapshot is repeatable."""
    first, second = world.cloud.launch(OD, 2, "t")
    assert first < second
    assert [i.number for i in world.cloud.fleet().instances] == [first, second]
    assert world.cloud.fleet() == world.cloud.fleet()
    assert world.phase(first) is Phase.PENDING


def test_a_launch_is_safe_to_repeat(world: World) -> None:
    """One token, one launch."""
    assert world.cloud.launch(OD, 2, "t") == world.cloud.launch(OD, 2, "t")
    assert len(world.cloud.fleet().instances) == 2
    assert world.cloud.launch(OD, 2, "u") != world.cloud.launch(OD, 2, "t")


def test_a_short_market_gives_what_it_has_and_then_refuses(world: World) -> None:
    """Fewer than asked, then CapacityError; a refusal starts nothing."""
    assert len(world.cloud.launch(SPOT_A.name, 3, "t")) == 2
    with pytest.raises(CapacityError):
        world.cloud.launch(SPOT_A.name, 1, "u")
    assert len(world.cloud.fleet().instances) == 2


def test_an_instance_boots_drains_and_ends(world: World) -> None:
    """The life of an instance; draining and terminating may be repeated."""
    (number,) = world.cloud.launch(OD, 1, "t")
    world.boot()
    assert world.phase(number) is Phase.READY
    world.cloud.drain(number)
    world.cloud.drain(number)
    assert world.phase(number) is Phase.DRAINING
    assert world.cloud.fleet().instances[0].idle
    world.cloud.terminate(number)
    world.cloud.terminate(number)
    assert world.phase(number) is None


def test_a_standby_boots_stops_resumes_and_stops_again(world: World) -> None:
    """The life of a standby."""
    (number,) = world.cloud.launch(T2, 1, "t", standby=True)
    world.boot()
    assert world.phase(number) is Phase.STOPPED
    assert [i.number for i in world.cloud.fleet().standbys()] == [number]
    world.cloud.resume(number)
    assert world.phase(number) is Phase.PENDING
    world.boot()
    assert world.phase(number) is Phase.READY
    world.cloud.drain(number)
    world.cloud.stop(number)
    world.cloud.stop(number)
    assert world.phase(number) is Phase.STOPPED
    assert not world.cloud.fleet().instances[0].idle


@pytest.mark.parametrize("verb", ["drain", "stop", "resume", "terminate"])
def test_an_unknown_number_is_not_found(world: World, verb: str) -> None:
    """Never launched: NotFoundError, whatever is asked."""
    with pytest.raises(NotFoundError):
        getattr(world.cloud, verb)(99)


@pytest.mark.parametrize("verb", ["drain", "stop", "resume"])
def test_what_is_gone_is_not_found(world: World, verb: str) -> None:
    """Only ending it again is no error."""
    (number,) = world.cloud.launch(OD, 1, "t")
    world.cloud.terminate(number)
    with pytest.raises(NotFoundError):
        getattr(world.cloud, verb)(number)


@pytest.mark.parametrize("verb", ["stop", "resume"])
def test_an_illegal_transition_raises_and_changes_nothing(world: World, verb: str) -> None:
    """A ready instance can be neither stopped nor resumed."""
    (number,) = world.cloud.launch(OD, 1, "t")
    world.boot()
    before = world.cloud.fleet()
    with pytest.raises(CloudError, match="cannot go from ready"):
        getattr(world.cloud, verb)(number)
    assert world.cloud.fleet() == before


def test_without_interruptions_there_are_no_notices(world: World) -> None:
    """An empty answer, repeatable."""
    world.cloud.launch(OD, 1, "t")
    assert world.cloud.notices() == world.cloud.notices() == ()
