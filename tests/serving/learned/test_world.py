"""Nothing acknowledged is lost or doubled in any world of faults, and a process is ready only when it has caught up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.serving.learned.world import Machine, World

PLACES = st.integers(0, 3)


class Worlds(RuleBasedStateMachine):
    """Two or three machines, with faults that overlap."""

    @initialize(
        machines=st.integers(1, 3),
        stores=st.booleans(),
        store_first=st.booleans(),
        fixed=st.booleans(),
        tail_bytes=st.sampled_from([0, 1000, 10**6]),
    )
    def begin(self, machines: int, stores: bool, store_first: bool, fixed: bool, tail_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("mark.serving.learned.storing._OBJECTS_A_SNAPSHOT", 4)
        self.patch.setattr("mark.serving.learned.learning._SNAPSHOT_EVERY_BYTES", 600)
        self.world = World(
            self.folder,
            machines,
            stores=stores,
            store_first=stores and store_first,
            fixed=fixed or not stores,
            tail_bytes=tail_bytes,
        )
        self.world.run(30.0)

    def _machine(self, place: int) -> Machine:
        return self.world.machines[place % len(self.world.machines)]

    @rule(place=PLACES, count=st.integers(1, 4))
    def observe(self, place: int, count: int) -> None:
        machine = self._machine(place)
        for _ in range(count if machine.process is not None else 0):
            self.world.observe(machine)

    @rule(place=PLACES, which=st.integers(0, 100))
    def delete(self, place: int, which: int) -> None:
        machine = self._machine(place)
        if machine.process is not None and self.world.acked:
            self.world.delete(machine, sorted(self.world.acked)[which % len(self.world.acked)])

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 6.0, 40.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(place=PLACES, disk=st.booleans(), again=st.booleans())
    def kill(self, place: int, disk: bool, again: bool) -> None:
        machine = self._machine(place)
        if machine.process is not None:
            self.world.kill(machine, disk)
            if again:
                self.world.boot(machine)

    @rule(place=PLACES)
    def boot(self, place: int) -> None:
        machine = self._machine(place)
        if machine.process is None:
            self.world.boot(machine)

    @rule(disk=st.booleans())
    def roll_out(self, disk: bool) -> None:
        for machine in self.world.machines:
            if machine.process is not None:
                self.world.stop(machine)
                self.world.boot(machine)
                self.world.run(40.0)

    @precondition(lambda self: len(self.world.machines) < 4 and not self.world.fixed)
    @rule()
    def scale_out(self) -> None:
        self.world.add_machine()

    @precondition(lambda self: len(self.world.machines) > 1 and not self.world.fixed)
    @rule(place=PLACES)
    def scale_in(self, place: int) -> None:
        machine = self._machine(place)
        if machine.process is not None:
            self.world.stop(machine)
        self.world.remove(machine)

    @precondition(lambda self: len(self.world.machines) < 4)
    @rule(place=PLACES)
    def successor_at_the_same_address(self, place: int) -> None:
        """A second machine answers at the address of another one."""
        self.world.add_machine(self._machine(place).address)

    @rule(one=PLACES, other=PLACES)
    def partition(self, one: int, other: int) -> None:
        pair = frozenset((self._machine(one).address, self._machine(other).address))
        if len(pair) == 2:
            self.world.cut.add(pair)
            self.world.disturb()

    @rule(one=PLACES, other=PLACES)
    def lose_answers(self, one: int, other: int) -> None:
        self.world.mute.add((self._machine(one).address, self._machine(other).address))
        self.world.disturb()

    @rule()
    def mend_network(self) -> None:
        self.world.disturb()
        self.world.cut.clear()
        self.world.mute.clear()

    @rule(gone=st.booleans(), seconds=st.sampled_from([0.0, 0.5, 3.0, 20.0]))
    def store(self, gone: bool, seconds: float) -> None:
        self.world.disturb()
        self.world.objects.gone, self.world.loop.store_s = gone, seconds

    @rule(blind=st.booleans())
    def controller(self, blind: bool) -> None:
        self.world.disturb()
        self.world.blind = blind

    @rule(place=PLACES, seconds=st.sampled_from([-86_400.0, -100.0, 0.0, 100.0, 86_400.0]))
    def step_clock(self, place: int, seconds: float) -> None:
        self.world.skew_s[self._machine(place).address] = seconds

    @rule()
    def settle(self) -> None:
        self.world.check_converges()

    @invariant()
    def nothing_counts_twice(self) -> None:
        if hasattr(self, "world"):
            self.world.check_once()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.check_converges()
            finally:
                self.world.close()
                self.patch.undo()
                shutil.rmtree(self.folder)


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

Made = Callable[..., World]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """A function that makes a world with a store, whose processes are ready."""
    with ExitStack() as stack:

        def make(machines: int = 2, *, fixed: bool = True) -> World:
            world = World(tmp_path, machines, stores=True, fixed=fixed)
            stack.callback(world.close)
            world.run(700.0)  # the doubts of the start are over
            return world

        yield make


def state(machine: Machine) -> set[int]:
    assert machine.process is not None
    return set(machine.process.learner.counts)


def cut_off(world: World) -> None:
    world.cut.add(frozenset(one.address for one in world.machines))


def acknowledged_by_the_store(world: World, machine: Machine) -> None:
    """Let the process of a machine learn one number while it is cut off."""
    cut_off(world)
    world.run(3.0)  # the other process reads the store, which has nothing yet
    told = world.observe(machine)
    world.run(3.0)
    assert told.result()


def test_failed_read_of_the_store_is_repeated(made: Made) -> None:
    world = made()
    a, b = world.machines
    acknowledged_by_the_store(world, a)
    world.objects.gone = True
    world.kill(a, disk=False)
    world.boot(a)
    world.cut.clear()
    world.run(1000.0)
    assert state(a) == state(b) == set(), "the fact is only in the store, which nobody can read"
    world.objects.gone = False
    world.run(100.0)
    assert state(a) == state(b) == {1}


def test_facts_that_a_removed_process_stores_later_are_found(made: Made) -> None:
    """The controller takes it for gone, but it only cannot be reached."""
    world = made(fixed=False)
    a, b = world.machines
    world.machines.remove(a)
    world.run(10.0)  # until the other process has been told, and has read the store
    world.machines.insert(0, a)
    world.blind = True
    acknowledged_by_the_store(world, a)
    world.kill(a, disk=False)
    world.machines.remove(a)
    world.run(300.0)
    assert state(b) == {1}


def test_unknown_process_leaves_facts_that_are_found_within_an_hour(made: Made) -> None:
    """Its address has moved to another machine, so nobody asks it or notices its end."""
    world = made(machines=1)
    (a,) = world.machines
    world.add_machine(a.address)
    world.run(700.0)
    world.observe(a)
    world.run(10.0)
    world.stop(a)
    world.remove(a)
    world.run(3600.0)
    assert state(world.machines[0]) == {1}


def test_survivor_stores_facts_that_a_lost_process_did_not(made: Made) -> None:
    """Otherwise they would be lost with the survivor, hours later."""
    world = made()
    a, b = world.machines
    world.observe(a)
    world.run(0.1)
    assert state(b) == {1}
    world.kill(a, disk=False)
    assert not world.objects.objects
    world.run(60.0)
    world.kill(b, disk=False)
    for machine in world.machines:
        world.boot(machine)
    world.run(100.0)
    assert state(a) == state(b) == {1}


def test_processes_that_start_together_are_ready_with_the_facts_of_the_store(made: Made) -> None:
    """Each is a peer that answers, and has nothing."""
    world = made()
    a, b = world.machines
    world.observe(a)
    world.run(20.0)
    world.disturbed_s = -1e9
    for machine in (a, b):
        world.kill(machine, disk=False)
    world.loop.store_s = 0.3
    for machine in (a, b):
        world.boot(machine)
    while not (a.process and b.process and a.process.ready and b.process.ready):
        world.run(0.01)
    assert state(a) == state(b) == {1}


def test_peer_that_has_not_read_its_disk_is_waited_for(made: Made) -> None:
    world = made()
    a, b = world.machines
    assert b.process is not None
    b.process.learning._has_disk = False
    world.kill(a, disk=False)
    world.boot(a)
    world.run(15.0)
    assert a.process is not None
    assert not a.process.ready
    b.process.learning._has_disk = True
    world.run(1.0)
    assert a.process.ready


def test_snapshot_in_the_store_is_read_though_a_fact_came_first(made: Made) -> None:
    """The rule of the bucket has deleted the old facts, which only the snapshot has."""
    world = made(machines=1)
    (a,) = world.machines
    assert a.process is not None
    world.observe(a)
    world.run(10.0)
    storing = a.process.learning._storing
    assert storing is not None
    storing._snapshot_s -= 86_400.0
    world.observe(a)
    world.run(10.0)
    world.kill(a, disk=False)
    for key in [key for key in world.objects.objects if "/snapshots/" not in key]:
        del world.objects.objects[key]
    world.acked.clear()
    world.boot(a)
    world.observe(a)  # the process answers before it is ready
    world.run(20.0)
    assert state(a) == {1, 2, 3}


def test_objects_are_read_at_most_every_half_minute_though_two_processes_answer_in_turns(made: Made) -> None:
    world = made()
    (a, _) = world.machines
    assert a.process is not None
    listed: list[float] = []
    keys = world.objects.keys
    world.objects.keys = lambda prefix: (listed.append(world.loop.time()), keys(prefix))[1]  # type: ignore[method-assign]
    for _ in range(90):
        a.process.learning._read_soon()
        world.run(1.0)
    assert len(listed) <= 4
