"""A controller process: the real manager, runtimes, controllers and lease over ports that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from mark.control.controller import Controller
from mark.control.lease import FencedLease
from mark.control.manager import ControllerManager
from mark.control.ports import Cloud, Lease, Store
from mark.control.service_runtime import RuntimePorts, ServiceRuntime
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.price_list import PriceList
from mark.domain.time import MINUTE_S
from mark.forecasting.fallback import LastValue
from mark.forecasting.supervised import Supervised
from mark.planning.port import Planner, Policy
from mark.torture.ports import (
    LEASE,
    Killed,
    ProcessClock,
    ProcessCloud,
    ProcessFunctions,
    ProcessStore,
    ProcessTelemetry,
    ProcessTerms,
)
from mark.torture.roles import TorturedService, TorturedWorld
from mark.torture.site import LIMITS, SteadyPlanner

ORIGIN_UNIX_S = 1_700_000_000.0  # of second 0


class SeldomPricing(Controller):
    """Prices one more request once a minute, not in every round: that is shown, and decides nothing."""

    _priced: tuple[float, PriceList] | None = None

    def price_list(self, ready: Mapping[str, int]) -> PriceList:
        now_s = self._clock.now_s()
        if self._priced is None or now_s - self._priced[0] >= MINUTE_S:
            self._priced = now_s, super().price_list(ready)
        return self._priced[1]


class ProcessParts:
    """What a process is built of besides mark.control. Tests plant bugs here, by overriding."""

    def cloud(self, cloud: ProcessCloud) -> Cloud:
        return cloud

    def store(self, store: ProcessStore) -> Store:
        return store

    def lease(self, lease: FencedLease) -> Lease:
        return lease

    def telemetry(self, telemetry: ProcessTelemetry) -> ProcessTelemetry:
        return telemetry

    def planner(self) -> Planner:
        return SteadyPlanner()

    def limits(self, limits: Limits) -> Limits:
        """Within which policies are made."""
        return limits

    def leads(self, lease: Lease) -> Callable[[], bool]:
        return lease.lasts

    def controller(self) -> type[Controller]:
        return SeldomPricing


class WaitingPool(Executor):
    """Keeps what is submitted until `run`: a round that waits inside a call does not hold up the manager."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._waiting.append(run)
        return future

    def run(self) -> None:
        while self._waiting:
            self._waiting.pop(0)()


class ControllerProcess:
    """One controller, number `index`. Dead ones are replaced by the world, under the same number."""

    def __init__(self, world: TorturedWorld, index: int, parts: ProcessParts) -> None:
        self.index, self._world, self._parts = index, world, parts
        self.dead = False
        self.paused = 0  # calls within which it stands still
        self.restart_s = 0.0
        self.clock = ProcessClock(world, self)
        self._own_lease = FencedLease(ProcessTerms(world, self), LEASE, monotonic_s=lambda: world.now_s)
        self.lease = parts.lease(self._own_lease)
        self._pool = WaitingPool()
        self.controllers: dict[str, Controller] = {}  # of the last start
        self.runtimes = {
            name: ServiceRuntime(name, truth.resolved, self._starter(truth)) for name, truth in world.services.items()
        }
        self.manager = ControllerManager(list(self.runtimes.values()), self.lease, self._pool)

    @property
    def holder(self) -> str:
        return self._own_lease.holder

    def step(self) -> None:
        self.manager.step(ORIGIN_UNIX_S + self.clock.wall_s())
        self._pool.run()

    def die(self, for_s: float) -> None:
        """Raises Killed."""
        self.dead, self.restart_s = True, self._world.now_s + for_s
        self._world.tell(f"controller {self.index} dies, for {for_s:.0f} s")
        raise Killed

    def _starter(self, truth: TorturedService) -> Callable[[Callable[[Store], Store]], RuntimePorts]:
        def start(wrapped: Callable[[Store], Store]) -> RuntimePorts:
            world, parts, fence = self._world, self._parts, self._own_lease.fence or 0
            bare = ProcessCloud(world, self, truth, fence)
            cloud, store = parts.cloud(bare), wrapped(parts.store(ProcessStore(world, self, truth, fence)))
            telemetry = parts.telemetry(ProcessTelemetry(world, self, truth))
            planner = parts.planner()

            def policy(limits: Limits) -> Policy:
                return Policy(planner, limited(truth.resolved, parts.limits(limits)), bouncers=True)

            controller = parts.controller()(
                policy(LIMITS), Supervised(LastValue()), cloud, ProcessFunctions(world, self, truth), self.clock,
                store, telemetry, leads=parts.leads(self.lease),
            )  # fmt: skip
            self.controllers[truth.name] = controller
            return RuntimePorts(
                controller, cloud, telemetry, bare, store, self.clock,
                lambda at_s: ORIGIN_UNIX_S + at_s, policy, lambda: None,
            )  # fmt: skip

        return start
