"""Controllers in dry run over workloads that other autoscalers scale; their plans are published as floors.

Manager, lease, store and controllers are the same as a site's. Only the ports differ: load and replicas come from a
Prometheus, and no instance is launched or terminated.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol

import numpy as np

from mark.control.controller import Controller, Leadership
from mark.control.dry_run import DryRunCloud
from mark.control.floor import STALE_S, Floor, floors
from mark.control.lease import FencedLease
from mark.control.manager import ControllerManager
from mark.control.ports import Ran, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import RuntimePorts
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.copying import replace
from mark.domain.errors import CloudError, MarkError
from mark.domain.load import Load
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.planner import Policy
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.supervised import Supervised
from mark.traffic.forecast.turns import taking_turns
from mark_infra.controller.door import has_descriptors
from mark_infra.store.dynamo_table import Fence, Table
from mark_infra.store.store import ServiceStore
from mark_infra.telemetry.clock import WallClock
from mark_infra.telemetry.ready_replicas import ReadyReplicas
from mark_infra.telemetry.watched_load import WatchedLoad
from mark_infra.telemetry.watched_workload import WatchedWorkload, WorkloadNow

LOOK_S = 15.0  # between two reads of a workload: four a minute, as often as most Prometheus servers scrape
_APART_S = 60.0  # an answer further from the expected time means that Prometheus' clock was set
_LEASE = "advise/controller"
_log = logging.getLogger("mark.control")


class Minimum(Protocol):
    """The minimum capacity of another autoscaler, if the floor is written there and not only published."""

    def keep(self, replicas: int | None, store: Store) -> None:
        """Set the minimum to `replicas`, or restore the owner's if None. Repeatable. Raises CloudError."""


@dataclass(frozen=True, slots=True)
class FloorSpec:
    """One service whose floor is published. `policy` plans for a resolved service, `predictor` makes a fresh one.

    The predictor learns the last `history_minutes` of the `workload` in Prometheus. A service with a `minimum` has one
    offer.
    """

    resolved: ResolvedService
    policy: Callable[[ResolvedService], Policy]
    predictor: Callable[[], Predictor]
    workload: WatchedWorkload
    history_minutes: int
    minimum: Minimum | None = None
    per_instance: int = 1  # replicas on one instance of the service's offer


class PrometheusTime:
    """Prometheus' clock at its newest answer, continued by this machine's monotonic clock.

    Samples carry Prometheus' times, so this machine's wall clock may be wrong or be set at any time. It is used only
    until the first answer.
    """

    def __init__(self, unix_s: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._heard = unix_s(), monotonic()

    def hear(self, unix_s: float) -> None:
        self._heard = unix_s, self._monotonic()

    def unix_s(self) -> float:
        heard, at = self._heard
        return heard + self._monotonic() - at


class FloorControl:
    """The control of all workloads, in one process. `step` is called about once a second.

    `rounds` runs the controllers' rounds, and `looks` the queries to Prometheus, which may wait long. `close` also
    closes the `table` and both executors. Of several processes on one table, only the leader publishes floors.
    """

    def __init__(
        self,
        specs: Sequence[FloorSpec],
        table: Table,
        rounds: Executor,
        looks: Executor,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._table, self._rounds, self._looks = table, rounds, looks
        self.monotonic, self.time = monotonic, PrometheusTime(unix_s, monotonic)
        self.lease = FencedLease(table, _LEASE, monotonic_s=monotonic)
        self._services = {spec.resolved.service.name: _Service(spec, self, len(specs)) for spec in specs}
        runtimes = [ServiceRuntime(name, one.resolved, one.start, dry_run=True) for name, one in self._services.items()]
        self.manager = ControllerManager(runtimes, self.lease, rounds, able=has_descriptors, monotonic_s=monotonic)

    def step(self, now_unix_s: float) -> None:
        """Start the due looks and rounds. The wall clock's time is not used: see PrometheusTime."""
        for service in self._services.values():
            service.begin_look(self._looks)
        self.manager.step(self.time.unix_s())

    def floors(self) -> tuple[Floor, ...]:
        """Return the fresh floors of all services, or () while another process leads. Thread-safe."""
        if not self.manager.leads():
            return ()
        return tuple(floor for service in self._services.values() for floor in service.floors())

    def store(self, service: str, fence: int) -> ServiceStore:
        """Return the service's store in the term with this number."""
        return ServiceStore(self._table, service, Fence(self.lease.name, fence), unix_s=self.time.unix_s)

    def origin_unix_s(self, service: str, now_unix_s: float) -> float:
        """Return when the service's clock began, from the table. Raises CloudError if that time is still to come."""
        origin = self._table.origin_unix_s(service, now_unix_s)
        if now_unix_s < origin - STEP_S:
            ahead_s = origin - now_unix_s
            raise CloudError(f"Prometheus' clock was set back: what is stored of {service} begins in {ahead_s:.0f} s")
        return origin

    def close(self) -> None:
        """Stop everything in order; the owners' minimums are restored."""
        for service in self._services.values():
            service.let_go()  # first, because a look may wait for Prometheus until the lease has ended
        self._looks.shutdown()
        self.manager.end(self.time.unix_s)
        self.manager.close()
        self._rounds.shutdown()
        self._table.close()


@dataclass(slots=True)
class _Led:
    """The service in one term of this process."""

    clock: WallClock
    store: Store
    load: WatchedLoad
    replicas: ReadyReplicas
    controller: Controller
    began_s: float
    looked: int = -1  # number of the last look
    trouble: str = ""  # why the last look failed
    unseen: str = ""  # why it saw no load
    kept: tuple[int | None, float] | None = None  # the minimum, and when it was last compared


class _Service:
    """One workload: its looks, and its controller while this process leads."""

    def __init__(self, spec: FloorSpec, control: FloorControl, services: int) -> None:
        self._spec, self._control, self._of = spec, control, services
        self.resolved, self.name = spec.resolved, spec.resolved.service.name
        self._led: _Led | None = None
        self._look: Future[None] | None = None
        self._keeping, self._let_go = Lock(), False  # a look that still runs must not raise the minimum again

    def floors(self) -> tuple[Floor, ...]:
        led = self._led
        if led is None:
            return ()
        return floors(
            self.name,
            self.resolved.offers,
            led.controller.state,
            now_s=led.clock.now_s(),
            seen_s=led.load.seen_s,
            max_instances=self.resolved.service.max_instances,
            per_instance=self._spec.per_instance,
        )

    # -- looks ---------------------------------------------------------------------------------------------------------

    def begin_look(self, looks: Executor) -> None:
        """Start a look at the workload, if one is due and the last one has ended.

        Looks come just before a minute's round.
        """
        led = self._led
        if led is None or (self._look is not None and not self._look.done()):
            return
        due = math.floor(led.clock.now_s() / LOOK_S)
        if due != led.looked:
            led.looked = due
            self._look = looks.submit(self._look_at, led)

    def _look_at(self, led: _Led) -> None:
        seen, kept = self._tried(lambda: self._see(led)), self._tried(lambda: self._keep(led))
        led.unseen = seen
        trouble = "; ".join(filter(None, (seen, kept)))
        if trouble and trouble != led.trouble:
            _log.warning("trouble", extra={"service": self.name, "trouble": trouble})
        elif led.trouble and not trouble:
            _log.info("Prometheus answers again", extra={"service": self.name})
        led.trouble = trouble

    def _tried(self, action: Callable[[], None]) -> str:
        """Run the action and return why it failed, or ""."""
        try:
            action()
        except (MarkError, OSError) as error:
            return " ".join(str(error).split())
        except Exception as error:
            _log.exception("a look failed", extra={"service": self.name})
            return f"a fault of ours: {type(error).__name__}"
        return ""

    def _keep(self, led: _Led) -> None:
        """Set the minimum to the floor: immediately after the floor changed, otherwise once a minute."""
        minimum, now_s = self._spec.minimum, led.clock.now_s()
        with self._keeping:
            if minimum is None or self._let_go or led is not self._led or not self._control.manager.leads():
                return  # a look may outlast its term
            found = self.floors()
            if not found and now_s - led.began_s < STALE_S:
                return  # the first round may still run, and the stored plan be too old
            replicas = found[0].replicas if found else None
            if led.kept is not None and led.kept[0] == replicas and now_s - led.kept[1] < STEP_S:
                return
            minimum.keep(replicas, led.store)
            led.kept = replicas, now_s

    def let_go(self) -> None:
        """Restore the owner's minimum before the process ends, even if an earlier process raised it."""
        minimum = self._spec.minimum
        with self._keeping:
            self._let_go, fence = True, self._control.manager.fence()
            if minimum is not None and fence is not None:
                trouble = self._tried(lambda: minimum.keep(None, self._control.store(self.name, fence)))
                if trouble:
                    _log.warning("the minimum stays", extra={"service": self.name, "trouble": trouble})

    def _see(self, led: _Led) -> None:
        now = self._spec.workload.now()
        self._control.time.hear(now.at_unix_s)
        apart_s = led.clock.at_s(now.at_unix_s) - led.clock.now_s()
        if abs(apart_s) > _APART_S:  # the lease notices it too, and the service starts again
            raise CloudError(f"Prometheus' clock is {apart_s:.0f} s off the time that was expected")
        led.load.see(now)
        led.replicas.see(self._instances(now))
        minutes = led.load.missing(led.clock.now_s())
        if minutes:
            begin = led.clock.unix_s(minutes.start * STEP_S)
            led.load.add(minutes, self._spec.workload.minutes(begin, len(minutes)))

    # -- the controller ------------------------------------------------------------------------------------------------

    def start(self, fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
        """Build the service's parts. Raises CloudError."""
        control, spec, resolved = self._control, self._spec, self.resolved
        now = spec.workload.now()
        control.time.hear(now.at_unix_s)
        origin = control.origin_unix_s(self.name, STEP_S * math.floor(now.at_unix_s / STEP_S))
        clock = WallClock(origin, unix_s=control.time.unix_s, monotonic=control.monotonic)
        given = math.floor(clock.now_s() / STEP_S)
        history = self._history(clock, given)
        store = wrapped(control.store(self.name, fence))
        load, replicas = WatchedLoad(store, clock, given=given), ReadyReplicas(resolved.offers[0].name, clock)
        load.see(now)
        replicas.see(self._instances(now))
        predictor = Supervised(taking_turns(spec.predictor(), self._of), clock=control.monotonic)
        predictor.fit(history)
        cloud = DryRunCloud(replicas, resolved.offers, clock)
        leadership = Leadership(int(origin), partial(control.lease.lasts_as, fence))
        controller = Controller(
            spec.policy(resolved), predictor, cloud, None, clock, store, load, leadership=leadership
        )
        # The last process's imagined instances are gone with it, so their missing boots must not count as failures.
        controller.state = replace(controller.state, boots={}, beliefs={}, stands_for={})
        self._led = led = _Led(clock, store, load, replicas, controller, clock.now_s())

        def close() -> None:
            self._led = None

        def policy(limits: Limits) -> Policy:
            return spec.policy(limited(resolved, limits))

        return RuntimePorts(
            controller,
            cloud,
            load,
            _NoChanges(),
            store,
            clock,
            clock.unix_s,
            policy,
            close,
            load_trouble=lambda: led.unseen,
        )

    def _instances(self, now: WorkloadNow) -> int | None:
        """Return how many instances the ready replicas fill."""
        return None if now.replicas is None else -(-now.replicas // self._spec.per_instance)

    def _history(self, clock: WallClock, given: int) -> Load:
        """Return Prometheus' data of the minutes before number `given`, from the first one with a rate."""
        minutes = self._spec.history_minutes
        rps = self._spec.workload.minutes(clock.unix_s((given - minutes) * STEP_S), minutes).rps
        rps = np.where(np.isfinite(rps) & (rps >= 0.0), rps, np.nan)
        known = np.flatnonzero(np.isfinite(rps))
        first = int(known[0]) if len(known) else minutes
        return Load((given - minutes + first) * STEP_S, STEP_S, rps[first:], rps[first:], fine=False)


class _NoChanges:
    """Prometheus reports no starts and ends."""

    def ran(self) -> tuple[Ran, ...]:
        return ()
