"""A whole controller while a share of all calls to AWS fails: no leak, no double launch, and no slow look.

Calls are throttled, refused, answered with nonsense or not at all, or done with a lost answer, and the controller dies
in the middle of a launch. Everything is real but the machines behind the instances; waiting is compressed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.infra.aws.faulty_world import OD, SPOT_A, SPOT_B, TICK_S, Running, Wanted, World, world
from tests.infra.fault_proxy import Fault

# The most ticks and rounds of the keeper for which a drained instance may be paid while calls fail. Five minutes if it
# cannot be asked whether it has finished, and longer for each refused end. The unit is not seconds, because the time of
# a round depends on the computer. After the faults the test asserts that each drained instance has ended.
LEAK_TICKS, LEAK_ROUNDS = 16, 120
PATIENCE_S = 180.0


class Watch:
    """A thread that compares the cloud's own state with the plan all the time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given_up: dict[str, tuple[int, int]] = {}  # by instance id: tick and round of the decision

    def until(self, done: Callable[[], bool]) -> None:
        world, until_s = self._world, time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until_s, f"{world.counts()}, and {world.script.wanted} are wanted"
            world.check()
            for id, _, _, given_up in world.lives():
                if given_up:
                    now = world.script.ticks, world.rounds()
                    tick, round = self._given_up.setdefault(id, now)
                    assert now[0] - tick < LEAK_TICKS or now[1] - round < LEAK_ROUNDS, f"{id} is paid on"
            time.sleep(0.05)

    def reached(self, wanted: Wanted) -> None:
        """Wait until exactly these instances carry the load."""
        self._world.script.want(wanted)
        self.until(lambda: self._world.counts() == wanted)


def settled(world: World) -> bool:
    """Wait until exactly the wanted instances run, the store knows them, and no other instance costs money."""
    lives = world.lives()
    return (
        world.counts() == world.script.wanted
        and not any(given_up for *_, given_up in lives)
        and {id for id, *_ in lives} <= world.numbered()
    )


def live_through(world: World, seed: int, share: float, ups_and_downs: int) -> Counter[Fault | None]:
    """Scale up, down and up again, by controllers the first of which dies in a launch; return the injected faults."""
    watch = Watch(world)
    world.script.want({OD.name: 1})
    with world.controller(seed, share) as first:
        watch.reached({OD.name: 1})
        first.proxy.cut_after("CreateFleet")
        world.script.want({OD.name: 2, SPOT_A.name: 3})
        watch.until(lambda: first.proxy.is_cut)
        first.kill()
    with world.controller(seed + 1000, share) as second:
        watch.until(lambda: world.counts() == world.script.wanted)
        for n in range(ups_and_downs):
            watch.reached({OD.name: 1})
            watch.reached({OD.name: 1, SPOT_A.name: 2, SPOT_B.name: n + 1})
            world.aws.cloud.interrupt(0.5, seed)
        second.proxy.share = 0.0
        watch.until(lambda: settled(world))
        check(world, second)
        return first.proxy.counts() + second.proxy.counts()


def check(world: World, controller: Running) -> None:
    """Check that each intended launch happened once, and no other."""
    launched = world.launched()
    assert launched.keys() <= world.intents.keys()
    for token, ids in launched.items():
        assert len(ids) == world.intents[token].count, token
        assert {life[1] for life in world.lives() if life[0] in ids} <= {world.intents[token].offer}
    assert world.aws.cloud.problems() == []
    assert controller.view().mode == "acting"


@pytest.mark.slow
def test_faults_leave_no_leak_and_no_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of faults occur, and none delays a look by a whole tick.

    A tenth of all calls fails. With three tenths the budget of retries leaves AWS alone for minutes at a time
    (gate.py): no launch happens twice then either, but surplus instances are paid for as long.
    """
    with world(30.0, monkeypatch) as made:
        injected = live_through(made, 4, 0.1, 3)
        assert set(Fault) < set(injected)
        assert max(made.looks_s) < TICK_S
        print(f"{made.script.ticks} ticks, {injected.total()} calls, {injected}, held up {max(made.looks_s):.0f} s")
