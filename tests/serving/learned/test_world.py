"""Nothing acknowledged is lost or doubled in any world of faults, and a process is ready only when it has caught up."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.serving.learned.world import Machine, World


def observe(world: World, draw: random.Random) -> None:
    machine = draw.choice(world.machines)
    for _ in range(draw.randint(1, 3) if machine.process is not None else 0):
        world.observe(machine)


def delete(world: World, draw: random.Random) -> None:
    machine = draw.choice(world.machines)
    if machine.process is not None and world.acked:
        world.delete(machine, draw.choice(sorted(world.acked)))


def wait(world: World, draw: random.Random) -> None:
    world.run(draw.choice([0.01, 0.1, 1.0, 6.0, 40.0, 100.0]))


def kill(world: World, draw: random.Random) -> None:
    machine = draw.choice(world.machines)
    if machine.process is None:
        world.boot(machine)
        return
    world.kill(machine, disk=draw.random() < 0.5)
    if draw.random() < 0.6:
        world.boot(machine)


def roll_out(world: World, draw: random.Random) -> None:
    for machine in world.machines:
        if machine.process is not None:
            world.stop(machine)
            world.boot(machine)
            world.run(40.0)


def scale_out(world: World, draw: random.Random) -> None:
    if not world.fixed and len(world.machines) < 4:
        world.add_machine()


def scale_in(world: World, draw: random.Random) -> None:
    machine = draw.choice(world.machines)
    if not world.fixed and len(world.machines) > 1:
        if machine.process is not None:
            world.stop(machine)
        world.remove(machine)


def move_address(world: World, draw: random.Random) -> None:
    """Another machine takes the address of one that still runs."""
    if len(world.machines) < 4:
        world.add_machine(draw.choice(world.machines).address)


def cut(world: World, draw: random.Random) -> None:
    pair = frozenset(draw.choice(world.machines).address for _ in range(2))
    if len(pair) == 2:
        world.cut.add(pair)
    world.disturb()


def lose_answers(world: World, draw: random.Random) -> None:
    world.mute.add((draw.choice(world.machines).address, draw.choice(world.machines).address))
    world.disturb()


def mend_network(world: World, draw: random.Random) -> None:
    world.disturb()
    world.cut.clear()
    world.mute.clear()


def change_store(world: World, draw: random.Random) -> None:
    world.disturb()
    world.objects.gone, world.loop.store_s = draw.random() < 0.5, draw.choice([0.0, 0.5, 3.0, 20.0])


def change_controller(world: World, draw: random.Random) -> None:
    world.disturb()
    world.blind = draw.random() < 0.5


def step_clock(world: World, draw: random.Random) -> None:
    world.skew_s[draw.choice(world.machines).address] = draw.choice([-86_400.0, -100.0, 0.0, 100.0, 86_400.0])


EVENTS: dict[Callable[[World, random.Random], None], float] = {
    observe: 30, wait: 25, kill: 13, cut: 6, mend_network: 4, change_store: 4, delete: 3, roll_out: 3, scale_out: 3,
    scale_in: 3, lose_answers: 2, change_controller: 2, move_address: 1, step_clock: 1,
}  # fmt: skip


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 1 << 32))
def test_faults_that_overlap_lose_and_double_nothing(seed: int) -> None:
    """One to four machines, with or without a store and a controller; each seed is another course of events."""
    draw = random.Random(seed)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("mark.serving.learned.storing._OBJECTS_A_SNAPSHOT", 4)
        patch.setattr("mark.serving.learned.learning._SNAPSHOT_EVERY_BYTES", 600)
        stores = draw.random() < 0.75
        world = World(
            Path(stack.enter_context(tempfile.TemporaryDirectory())),
            draw.randint(1, 3),
            stores=stores,
            store_first=stores and draw.random() < 0.2,
            fixed=not stores or draw.random() < 0.5,
            tail_bytes=draw.choice([0, 1000, 10**6]),
        )
        stack.callback(world.close)
        world.run(30.0)
        for event in draw.choices(list(EVENTS), list(EVENTS.values()), k=30):
            event(world, draw)
            world.check_once()
        world.check_converges()


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


@pytest.mark.parametrize("silent", [0, 1])
def test_survivor_stores_facts_that_a_lost_process_did_not(made: Made, silent: int) -> None:
    """Otherwise they would be lost with the survivor, hours later. A peer that is long silent delays it by nothing."""
    world = made(2 + silent)
    a, b = world.machines[:2]
    for machine in world.machines[2:]:
        world.kill(machine, disk=True)
        world.run(2500.0)
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
    assert all(state(machine) == {1} for machine in world.machines)


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


@pytest.mark.parametrize("machines", [1, 2])
def test_snapshot_in_the_store_is_read_though_a_fact_came_first(made: Made, machines: int) -> None:
    """The rule of the bucket has deleted the old facts, which only the snapshot has. A peer that starts has none."""
    world = made(machines)
    a = world.machines[0]
    assert a.process is not None
    world.observe(a)
    world.run(10.0)
    storing = a.process.learning._storing
    assert storing is not None
    storing._snapshot_s -= 86_400.0
    world.observe(a)
    world.run(10.0)
    for machine in world.machines:
        world.kill(machine, disk=False)
    for key in [key for key in world.objects.objects if "/snapshots/" not in key]:
        del world.objects.objects[key]
    world.acked.clear()
    for machine in world.machines:
        world.boot(machine)
    world.observe(a)  # the process answers before it is ready
    world.run(20.0)
    assert all(state(machine) == {1, 2, 3} for machine in world.machines)


def test_damaged_object_in_the_store_hides_no_other(made: Made) -> None:
    world = made()
    a, b = world.machines
    world.objects.create("learned/m/0/000000000001-000000000002", b"damaged")
    acknowledged_by_the_store(world, a)
    world.kill(a, disk=False)
    world.boot(a)
    world.cut.clear()
    world.run(100.0)
    assert state(a) == state(b) == {1}


def test_objects_are_read_at_most_every_half_minute_though_two_processes_answer_in_turns(made: Made) -> None:
    world = made()
    (a, _) = world.machines
    assert a.process is not None
    listed: list[float] = []
    keys = world.objects.keys
    world.objects.keys = lambda prefix: (listed.append(world.loop.time()), keys(prefix))[1]  # type: ignore[method-assign]
    for _ in range(90):
        a.process.learning._reads.peer_gone(world.loop.time())
        world.run(1.0)
    assert len(listed) <= 4
