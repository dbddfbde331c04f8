"""A controller process: the real manager, runtimes, controllers and lease, over ports that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from mark.control.controller import Controller, Leadership
from mark.control.lease import FencedLease
from mark.control.manager import ControllerManager
from mark.control.ports import Cloud, Lease, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import Guard, RequestedChanges, RuntimePorts, ServiceTerm, Start
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.fleet import Fleet
from mark.domain.load import Load
from mark.domain.price_list import PriceList
from mark.domain.service import ResolvedService
from mark.domain.time import MINUTE_S
from mark.planning.planner import Planner, Policy
from mark.planning.policies.policy_registry import make_policy
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.supervised import Supervised
from mark_torture.drawn_faults import STAND_IN
from mark_torture.ports import (
    LEASE,
    Killed,
    ProcessClock,
    ProcessCloud,
    ProcessFunctions,
    ProcessPrices,
    ProcessStore,
    ProcessTelemetry,
    ProcessTerms,
    ServiceClock,
)
from mark_torture.roles import TorturedService, TorturedWorld
from mark_torture.site import LIMITS, LastRate, SteadyPlanner

ORIGIN_UNIX_S = 1_700_000_000.0  # Unix time of second 0
PRICED_S = 60 * MINUTE_S  # period of pricing one more request


class SeldomPricing(Controller):
    """A controller that prices one more request only every `PRICED_S`: the price is displayed but decides nothing."""

    _priced: tuple[float, PriceList] | None = None

    def price_list(self, ready: Mapping[str, int]) -> PriceList:
        now_s = self._clock.now_s()
        if self._priced is None or now_s - self._priced[0] >= PRICED_S:
            self._priced = now_s, super().price_list(ready)
        return self._priced[1]


class ProcessParts:
    """The parts of a process that are not in mark.control. Tests override its methods to plant bugs."""

    def cloud(self, cloud: ProcessCloud) -> Cloud:
        return cloud

    def store(self, store: ProcessStore) -> Store:
        return store

    def lease(self, lease: FencedLease) -> Lease:
        return lease

    def telemetry(self, telemetry: ProcessTelemetry) -> ProcessTelemetry:
        return telemetry

    def planner(self, policy: str, resolved: ResolvedService) -> Planner:
        """Return a planner. `policy` is `STAND_IN` or the name of one of mark's policies."""
        if policy == STAND_IN:
            return SteadyPlanner()
        return make_policy(policy, resolved, Load(0.0, MINUTE_S, np.empty(0), np.empty(0))).planner

    def predictor(self, policy: str) -> Supervised:
        return LastRate() if policy == STAND_IN else Supervised(LastValue())

    def limits(self, limits: Limits) -> Limits:
        """Return the limits with which policies are made."""
        return limits

    def leads(self, lease: Lease, own: FencedLease, fence: int) -> Callable[[], bool]:
        """Return a function that tells whether the term `fence` lasts; `own` is the lease behind `lease`."""
        return lambda: own.fence == fence and lease.lasts()

    def controller(self) -> type[Controller]:
        return SeldomPricing


class _Over(Future[Any]):
    """A future without locks, because all runs in one thread, which polls and never waits."""

    def __init__(self) -> None:
        self.over = False

    def done(self) -> bool:
        return self.over


class WaitingPool(Executor):
    """An executor that keeps tasks until `run`, so that a round waiting inside a call does not block the manager."""

    def __init__(self) -> None:
        self._waiting: list[tuple[_Over, Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = _Over()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        return future

    def run(self) -> None:
        while self._waiting:
            future, call = self._waiting.pop(0)
            with suppress(Killed):
                call()
            future.over = True


class RestingManager(ControllerManager):
    """A manager that stops looking for rounds after one look while another process leads."""

    _looks = True

    def _begin_rounds(self, now_unix_s: float) -> None:
        if self._looks or self._fence is not None:
            super()._begin_rounds(now_unix_s)
            self._looks = self._fence is not None or bool(self._rounds)


class RestingRuntime(ServiceRuntime):
    """A runtime that skips rounds between full minutes which would repeat the last one and do nothing.

    A round is skipped if nothing has changed since the last one (`World.rests`), and that one went well. With `rests`
    off every round is run; the events in the world are the same.
    """

    def __init__(self, truth: TorturedService, world: TorturedWorld, index: int, start: Start, *, rests: bool) -> None:
        super().__init__(truth.name, truth.resolved, start)
        self.truth, self._world, self._index, self._may_rest = truth, world, index, rests
        self._stirred = True  # whether a call went wrong in the last round
        self._went_well = False  # whether the round before the current one went well
        self.paid_usd = 0.0

    def due(self, fence: int | None, now_unix_s: float) -> bool:
        if not super().due(fence, now_unix_s):
            return False
        term = self.term
        if term is None or fence != term.fence or self._stirred or not self._may_rest or self._requested.limits:
            return True
        assert isinstance(term, RestingTerm)
        return term.has_news() or not self._world.rests(self.truth, term.parts.controller, self._index)

    def reconcile(self, fence: int | None, now_unix_s: float) -> None:
        self._went_well, self._stirred = not self._stirred, False
        super().reconcile(fence, now_unix_s)

    def rests_at_minute(self, controller: Controller) -> bool:
        """Return whether a full round's extra work would repeat the last one."""
        rests = self._may_rest and self._went_well and not self._stirred
        return rests and self._world.rests(self.truth, controller, self._index, minute=True)

    def _new_term(self, fence: int) -> ServiceTerm:
        return RestingTerm(self, self._start, self._requested, fence, self._guard)

    def _unforeseen(self, error: Exception) -> str:
        self._world.watch.unforeseen(self.service, error)
        return super()._unforeseen(error)

    def _guard(self, conditions: list[str], action: Callable[[], None]) -> bool:
        well = super()._guard(conditions, action)
        self._stirred = self._stirred or not well
        return well


class RestingTerm(ServiceTerm):
    """A term of a `RestingRuntime`."""

    def __init__(
        self, runtime: RestingRuntime, start: Start, requested: RequestedChanges, fence: int, guard: Guard
    ) -> None:
        self._runtime, self._truth = runtime, runtime.truth
        self._viewed: Fleet | None = None
        resolved = self._truth.resolved
        super().__init__(
            runtime.service, resolved, start, requested, fence=fence, dry_run=False, shares=False, guard=guard
        )

    def has_news(self) -> bool:
        """Return whether a minute has passed, prices have changed, or the bill waits no longer for a report."""
        return (
            self._minute_now > self._minute
            or self._repriced is not self._truth.repriced
            or self.parts.clock.now_s() >= self._ledger.waits_until_s
        )

    def _between(self) -> None:
        """Do a full round's extra work, unless it too would repeat the last one."""
        if not self._runtime.rests_at_minute(self.parts.controller):
            super()._between()

    def _observe(self, minute: int, conditions: list[str]) -> None:
        """Make a view every five minutes, and at a full minute if the fleet or the journal has changed."""
        fleet = self._truth.cloud.fleet()
        if minute > self._minute and (minute % 5 == 0 or fleet is not self._viewed or self._noted):
            super()._observe(minute, conditions)
            self._viewed, self._runtime.paid_usd = fleet, self._truth.cloud.usd()
        else:
            parts = self.parts
            self._ledger.observe(parts.clock.now_s(), parts.cloud.fleet(), parts.changes.ran())


class ControllerProcess:
    """The controller process number `index`. The world replaces a dead one under the same number."""

    def __init__(self, world: TorturedWorld, index: int, parts: ProcessParts, *, rests: bool = True) -> None:
        self.index, self._world, self._parts = index, world, parts
        self.dead = False
        self.paused = 0  # calls inside which the process is paused
        self.restart_s = 0.0
        self.clock = ProcessClock(world, self)
        self.clocks = {name: ServiceClock(world) for name in world.services}  # of the newest start
        self._own_lease = FencedLease(ProcessTerms(world, self), LEASE, monotonic_s=lambda: world.now_s)
        self.lease = parts.lease(self._own_lease)
        self._pool = WaitingPool()
        self.controllers: dict[str, Controller] = {}  # of the newest start
        self.runtimes = {
            name: RestingRuntime(truth, world, index, self._starter(truth, truth.release), rests=rests)
            for name, truth in world.services.items()
        }
        manager = RestingManager if rests else ControllerManager
        self.manager = manager(list(self.runtimes.values()), self.lease, self._pool)

    @property
    def holder(self) -> str:
        return self._own_lease.holder

    def wall_s(self) -> float:
        return self.clock.wall_s()

    def in_term(self) -> bool:
        return self._own_lease.lasts()

    def step(self) -> None:
        self.manager.step(ORIGIN_UNIX_S + self.wall_s())
        self._pool.run()

    def die(self, for_s: float) -> None:
        """End the process for `for_s` seconds. Raises Killed."""
        self.dies(for_s)
        raise Killed

    def dies(self, for_s: float) -> None:
        """End the process for `for_s` seconds. A call in which it waits then ends with Killed."""
        self.dead, self.restart_s = True, self._world.now_s + for_s
        self._world.tell(f"controller {self.index} dies, for {for_s:.0f} s")

    def _starter(self, truth: TorturedService, release: str) -> Start:
        """Return the function that starts a service's ports. The process was deployed with `release`."""

        def start(fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
            world, parts = self._world, self._parts
            clock = self.clocks[truth.name] = ServiceClock(world, self.clock.wall_s() - world.now_s)
            world.watch.begins(truth)
            bare = ProcessCloud(world, self, truth, fence)
            cloud, store = parts.cloud(bare), wrapped(parts.store(ProcessStore(world, self, truth, fence)))
            telemetry = parts.telemetry(ProcessTelemetry(world, self, truth))

            def policy(limits: Limits) -> Policy:
                resolved = limited(truth.resolved, parts.limits(limits))
                return Policy(parts.planner(world.schedule.policy, resolved), resolved, bouncers=True)

            controller = parts.controller()(
                policy(LIMITS),
                parts.predictor(world.schedule.policy),
                cloud,
                ProcessFunctions(world, self, truth),
                clock,
                store,
                telemetry,
                leadership=Leadership(lasts=parts.leads(self.lease, self._own_lease, fence)),
                release=release,
            )
            self.controllers[truth.name] = controller
            return RuntimePorts(
                controller, cloud, telemetry, bare, store, clock,
                lambda at_s: ORIGIN_UNIX_S + at_s, policy, lambda: None, ProcessPrices(truth),
            )  # fmt: skip

        return start
