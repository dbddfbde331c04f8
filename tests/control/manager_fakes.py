"""A manager among fakes. Its work runs immediately, or when the test releases it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from mark.cloud.billing.moving_prices import Repriced
from mark.control.controller import Controller
from mark.control.lease import FencedLease, MemoryTerms
from mark.control.manager import ControllerManager
from mark.control.memory_store import MemoryStore
from mark.control.ports import Ran, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import RuntimePorts
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.errors import CloudError
from mark.planning.planner import Policy
from mark.testing.fakes import FakeCloud, FakeFunctions, FakeTelemetry, ManualClock, ScriptedPlanner
from tests.control.control_fakes import resolved

ORIGIN = 1_700_000_000.0  # Unix time of second 0


class InlinePool(Executor):
    """Runs each task when it is submitted or, while `held`, when `release` is called."""

    def __init__(self) -> None:
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        if self.held:
            self._waiting.append(run)
        else:
            run()
        return future

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            run()


class FakeChanges:
    def __init__(self) -> None:
        self.told: list[Ran] = []

    def ran(self) -> tuple[Ran, ...]:
        found, self.told = tuple(self.told), []
        return found


class FakePrices:
    def __init__(self) -> None:
        self.new: Repriced | None = None
        self.old = ""

    def repriced(self) -> Repriced | None:
        return self.new

    def trouble(self) -> str:
        return self.old


class World:
    """The state that outlives a process: the cloud, the store, the lease's terms. Its clock counts from ORIGIN."""

    def __init__(self, service: str = "inception", terms: MemoryTerms | None = None) -> None:
        self.service = service
        self.clock = ManualClock()
        self.cloud, self.store = FakeCloud(self.clock), MemoryStore()
        self.terms = terms or MemoryTerms()
        self.resolved = resolved(min_instances=1)
        self.planner = ScriptedPlanner()
        self.telemetry, self.changes = FakeTelemetry(), FakeChanges()
        self.fail_start: CloudError | None = None
        self.started = self.closed = 0
        self.controller: Controller | None = None  # of the last start
        self.prices: FakePrices | None = None
        self.release = ""

    def start(self, fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
        if self.fail_start is not None:
            raise self.fail_start
        self.started += 1
        store = wrapped(self.store)

        def policy(limits: Limits) -> Policy:
            new = None if self.prices is None else self.prices.new
            now = self.resolved if new is None else new.resolved
            return Policy(self.planner, limited(now, limits), bouncers=True)

        own = self.resolved.service
        controller = self.controller = Controller(
            policy(Limits(own.max_instances, own.max_usd_per_hour)),
            None, self.cloud, FakeFunctions(), self.clock, store, self.telemetry, release=self.release,
        )  # fmt: skip
        return RuntimePorts(
            controller, self.cloud, self.telemetry, self.changes, store, self.clock,
            lambda at_s: ORIGIN + at_s, policy, self.close, self.prices,
        )  # fmt: skip

    def close(self) -> None:
        self.closed += 1

    def member(self, **more: Any) -> ServiceRuntime:
        return ServiceRuntime(self.service, self.resolved, self.start, **more)


class Process:
    """One controller process over one or more worlds."""

    def __init__(self, *worlds: World, together: Limits | None = None, **more: Any) -> None:
        """Begin a process; `together` are limits that all worlds share."""
        self.worlds, self.pool = worlds, InlinePool()
        self.lease = FencedLease(worlds[0].terms, "controller", monotonic_s=lambda: worlds[0].clock.t_s)
        shared = [] if together is None else [(together, [world.service for world in worlds])]
        self.able = True  # to do a round
        self.manager = ControllerManager(
            [world.member(**more) for world in worlds], self.lease, self.pool, shared,
            able=lambda: self.able, monotonic_s=lambda: worlds[0].clock.t_s,
        )  # fmt: skip

    def run(self, seconds: float) -> None:
        """Let time pass, a second at a time."""
        for _ in range(round(seconds)):
            for world in self.worlds:
                world.clock.t_s += 1.0
            self.step()

    def step(self) -> None:
        self.manager.step(ORIGIN + self.worlds[0].clock.t_s)
