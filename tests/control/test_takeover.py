"""Two controller processes over one simulated cloud in virtual time: one dies, the other takes over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mark.control.controller import Controller, Leadership
from mark.control.lease import TTL_S, FencedLease, MemoryTerms
from mark.control.manager import ControllerManager
from mark.control.memory_store import MemoryStore
from mark.control.ports import Launched, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import RuntimePorts
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.backoff import START
from mark.domain.command import Launch
from mark.domain.fleet import Fleet, Notice, Phase
from mark.planning.planner import Policy
from mark.simulation.world.simulated_cloud import SimulatedCloud, SimulatedMarket
from tests.control.control_fakes import (
    ON_DEMAND,
    SPOT_A,
    SPOT_B,
    FakeFunctions,
    FakeTelemetry,
    ScriptedPlanner,
    resolved,
)
from tests.control.manager_fakes import ORIGIN, FakeChanges, InlinePool
from tests.control.test_cloud_contract import IdlePlane

OD, A = ON_DEMAND.name, SPOT_A.name
SERVICE = "inception"
OFFERS = (ON_DEMAND, SPOT_A, SPOT_B)
LIMITS = Limits(8, 0.5)


class Killed(BaseException):
    """The process has ended: no line after this one runs."""


class Notebook(MemoryStore):
    """Remembers the tokens of all intended launches."""

    def __init__(self) -> None:
        super().__init__()
        self.intended: set[str] = set()

    def put(self, key: str, value: Any) -> None:
        if key == "intents":
            self.intended |= {intent.token for intent in value}
        super().put(key, value)


class OneProcessCloud:
    """The shared cloud as one process calls it, which dies `before` or after its n-th command."""

    def __init__(self, world: World, name: str, dies_at: int, *, before: bool) -> None:
        self._world, self._name, self._dies_at, self._before = world, name, dies_at, before
        self._commands = 0

    def fleet(self) -> Fleet:
        return self._world.cloud.fleet()

    def notices(self) -> tuple[Notice, ...]:
        return self._world.cloud.notices()

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        def call() -> Launched:
            launched = self._world.cloud.launch(
                offer, count, token, standby=standby, release=release, alternatives=alternatives
            )
            self._world.launched.setdefault(token, launched.numbers)
            return launched

        return self._command(call)

    def drain(self, number: int) -> None:
        self._command(lambda: self._world.cloud.drain(number))

    def terminate(self, number: int) -> None:
        self._command(lambda: self._world.cloud.terminate(number))

    def stop(self, number: int) -> None:
        self._command(lambda: self._world.cloud.stop(number))

    def resume(self, number: int) -> None:
        self._command(lambda: self._world.cloud.resume(number))

    def _command(self, call: Callable[[], Any]) -> Any:
        self._commands += 1
        dies = self._commands == self._dies_at
        if dies and self._before:
            self._world.dead.add(self._name)
            raise Killed
        self._world.acted.append((self._world.cloud.now_s(), self._name))
        done = call()
        if dies:
            self._world.dead.add(self._name)
            raise Killed
        return done


class World:
    """The cloud, the store and the lease's terms outlive the processes `a` and `b`."""

    def __init__(self, dies_at: int, *, before: bool) -> None:
        where = resolved(
            *OFFERS, max_instances=LIMITS.max_instances, max_usd_per_hour=LIMITS.max_usd_per_hour, min_instances=1
        )
        self.resolved = where
        self.cloud = SimulatedCloud(OFFERS, IdlePlane(), seed=3, end_s=1e6, market=SimulatedMarket(capacity={A: 2}))
        self.store, self.terms, self.telemetry = Notebook(), MemoryTerms(), FakeTelemetry()
        self.planner = ScriptedPlanner()
        self.acted: list[tuple[float, str]] = []
        self.launched: dict[str, tuple[int, ...]] = {}
        self.dead: set[str] = set()
        self.runtimes: dict[str, ServiceRuntime] = {}
        self.managers = {
            "a": self._manager("a", OneProcessCloud(self, "a", dies_at, before=before)),
            "b": self._manager("b", OneProcessCloud(self, "b", 0, before=False)),
        }

    def _manager(self, name: str, cloud: OneProcessCloud) -> ControllerManager:
        lease = FencedLease(self.terms, "controller", monotonic_s=self.cloud.now_s)

        def policy(limits: Limits) -> Policy:
            return Policy(self.planner, limited(self.resolved, limits), bouncers=True)

        def start(fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
            store = wrapped(self.store)
            controller = Controller(
                policy(LIMITS), None, cloud, FakeFunctions(), self.cloud, store, self.telemetry,
                leadership=Leadership(lasts=lease.lasts),
            )  # fmt: skip
            return RuntimePorts(
                controller, cloud, self.telemetry, FakeChanges(), store, self.cloud,
                lambda at_s: ORIGIN + at_s, policy, lambda: None,
            )  # fmt: skip

        runtime = self.runtimes[name] = ServiceRuntime(SERVICE, self.resolved, start)
        return ControllerManager([runtime], lease, InlinePool())

    def run(self, until_s: float) -> None:
        """Run a second at a time, and check every invariant after each."""
        while self.cloud.now_s() < until_s:
            self.cloud.advance(self.cloud.now_s() + 1.0)
            for name, manager in self.managers.items():
                if name not in self.dead:
                    manager.step(ORIGIN + self.cloud.now_s())
            self.check()

    def check(self) -> None:
        price = {offer.name: offer.usd_per_hour for offer in OFFERS}
        running = [i.offer for i in self.cloud.fleet().instances if i.phase is not Phase.STOPPED]
        assert len(running) <= LIMITS.max_instances
        assert sum(price[offer] for offer in running) <= LIMITS.max_usd_per_hour + 1e-9
        assert self.launched.keys() <= self.store.intended, "nothing is launched that was not written down"
        acting = [name for name, manager in self.managers.items() if name not in self.dead and manager.leads()]
        assert len(acting) <= 1

    def live(self) -> Counter[str]:
        return self.cloud.fleet().live()

    def journaled(self) -> int:
        """Return the number of launched instances, by the journal."""
        found = 0
        for _, command, outcome in self.store.journal:
            if isinstance(command, Launch):
                part = re.match(r"(?:the market had )?(\d+) of \d+", outcome)
                found += command.count if outcome == "done" else int(part[1]) if part else 0
        return found


@pytest.mark.untraced
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4, 5])
def test_the_standby_takes_over_wherever_the_leader_dies(dies_at: int, before: bool) -> None:
    """Limits hold every second, one process acts at a time, and every launch is in the journal exactly once."""
    world = World(dies_at, before=before)
    world.planner.wanted = {OD: 2, A: 2}
    world.run(400.0)
    for wanted in ({OD: 4}, {OD: 1, A: 2}, {OD: 20}, {A: 1}):
        world.planner.wanted = wanted
        world.run(world.cloud.now_s() + 700.0)
    assert world.dead == {"a"}
    assert world.live() == {A: 1}
    assert world.managers["b"].view(SERVICE).mode == "acting"
    died_s = max(at_s for at_s, name in world.acted if name == "a") if not before or dies_at > 1 else 0.0
    first_s = min(at_s for at_s, name in world.acted if name == "b")
    assert first_s > died_s
    assert world.journaled() == sum(len(numbers) for numbers in world.launched.values())


def test_a_takeover_is_over_within_a_term_and_a_window() -> None:
    world = World(1, before=False)
    world.planner.wanted = {OD: 2}
    world.run(120.0)
    assert world.dead == {"a"}
    died_s = next(at_s for at_s, name in world.acted if name == "a")
    first_s = next(at_s for at_s, name in world.acted if name == "b")
    assert died_s < first_s <= died_s + TTL_S + START.first_s
    assert world.live() == {OD: 2}, "the launch whose answer was lost is not made twice"


def test_the_bill_goes_on_across_a_takeover() -> None:
    """The second process's ledger has the cost of the first one's instances."""
    world = World(3, before=False)
    world.planner.wanted = {OD: 2}
    world.run(900.0)
    world.planner.wanted = {OD: 1}  # the leader drains one, ends it, and dies
    world.run(2000.0)
    assert world.dead == {"a"}
    bill, paid = world.managers["b"].view(SERVICE).bill, world.cloud.bill(world.cloud.now_s())
    # The cloud reports nothing here, so the observed fleet is billed, from the launch instead of from ready on.
    assert paid.on_demand <= bill.on_demand <= paid.on_demand + 2 * 300.0 * ON_DEMAND.usd_per_s
