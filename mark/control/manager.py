"""The manager: all services of a site under one lease, each reconciled in its turn.

A round may take long (the cloud is slow, a plan is hard) and must not delay other services, so a pool runs the rounds,
one at a time for each service. The manager itself never waits. Forecasters take long to learn as well, so services
learn in turns: one service per window.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait

from mark.control.lease import TTL_S
from mark.control.ports import WINDOW_S, Lease
from mark.control.service_runtime import ServiceRuntime
from mark.control.shared_limits import fits, next_limits
from mark.control.views import DecisionSchema, HistorySchema, Limits, ServiceView
from mark.domain.errors import BadInput
from mark.planning.promise_cost import PromiseCost

RENEWED_S = 1.0  # between two renewals of the lease while the manager ends
_log = logging.getLogger(__name__)


class ControllerManager:
    """`step` is called about once a second by one thread; everything else may be called from any.

    `together` are groups of services that share limits, each with the limits of the group. `able` returns whether this
    process can run a round, for which it needs free file descriptors above all. A process that cannot for a whole term
    leaves the lease to others; otherwise it would renew the lease although all its rounds fail.
    """

    def __init__(
        self,
        runtimes: Sequence[ServiceRuntime],
        lease: Lease,
        pool: Executor,
        together: Sequence[tuple[Limits, Sequence[str]]] = (),
        *,
        able: Callable[[], bool] = lambda: True,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtimes = {runtime.service: runtime for runtime in runtimes}
        self._together = [(whole, [self._runtimes[name] for name in names]) for whole, names in together]
        for _, members in self._together:
            for member in members:
                member.shares = True
        self._lease, self._pool = lease, pool
        self._able, self._monotonic_s = able, monotonic_s
        self._unable_s: float | None = None  # since when this process cannot run a round
        self._aside = False  # whether the lease was given back because of that
        self._fence: int | None = None
        self._window: int | None = None
        self._rounds: dict[str, tuple[float, Future[None]]] = {}  # rounds under way, each with its start

    def step(self, now_unix_s: float) -> None:
        """Hold the lease, and begin the rounds that are due. `now_unix_s` is wall time."""
        fence = None if self._stands_aside() else self._lease.hold(now_unix_s)
        if fence != self._fence:
            for runtime in self._runtimes.values():
                runtime.drop_requests()
            self._fence = fence
        self._give_turn(math.floor(now_unix_s / WINDOW_S))
        if self._fence is not None:
            for whole, members in self._together:
                _divide(whole, members)
        self._begin_rounds(now_unix_s)

    def _stands_aside(self) -> bool:
        """Return whether this process leaves the lease to others, because it could not run a round for a whole term."""
        if self._able():
            self._unable_s, self._aside = None, False
            return False
        now_s = self._monotonic_s()
        self._unable_s = now_s if self._unable_s is None else self._unable_s
        if not self._aside and now_s - self._unable_s >= TTL_S:
            _log.error("no descriptor was to be had for %.0f s: the lease is left to others", now_s - self._unable_s)
            self._aside = True
            self._lease.release()
        return self._aside

    def _begin_rounds(self, now_unix_s: float) -> None:
        for service, runtime in self._runtimes.items():
            under_way = self._rounds.get(service)
            if under_way is not None:
                if not under_way[1].done():
                    if runtime.due(self._fence, now_unix_s):
                        runtime.late = (
                            f"skipped: its last round began {now_unix_s - under_way[0]:.0f} s ago and is not over"
                        )
                    continue
                del self._rounds[service]
            runtime.late = ""
            if runtime.due(self._fence, now_unix_s):
                self._rounds[service] = now_unix_s, self._pool.submit(runtime.reconcile, self._fence, now_unix_s)

    def _give_turn(self, window: int) -> None:
        """Let one service per window train its predictor."""
        if window != self._window and self._runtimes:
            self._window = window
            term = list(self._runtimes.values())[window % len(self._runtimes)].term
            if term is not None:
                term.turn = True

    def end(self, unix_s: Callable[[], float]) -> None:
        """Hold the lease until all rounds are done, and begin no more. Call this before `close`, which releases it."""
        while wait([one for _, one in self._rounds.values()], timeout=RENEWED_S).not_done:
            self._fence = self._lease.hold(unix_s())

    def wait(self) -> None:
        """Wait until all rounds are done."""
        for _, one in self._rounds.values():
            one.exception()  # a round raises nothing; this waits for it

    def close(self) -> None:
        """Wait for the rounds under way, stop all services, and release the lease for another controller."""
        self.wait()
        for runtime in self._runtimes.values():
            runtime.stop()
        self._fence = None
        self._lease.release()

    # -- mark.api's Manager --------------------------------------------------------------------------------------------

    def services(self) -> list[str]:
        return list(self._runtimes)

    def view(self, service: str) -> ServiceView:
        return self._runtimes[service].view(self._fence)

    def decisions(self, service: str, before_id: int | None, count: int) -> list[DecisionSchema]:
        return self._runtimes[service].decisions(before_id, count)

    def history(self, service: str, hours: float, points: int) -> HistorySchema:
        return self._runtimes[service].history(hours, points)

    def promise_cost(self, service: str) -> PromiseCost:
        return self._runtimes[service].promise_cost()

    def pause(self, service: str, paused: bool) -> None:
        self._leading(service).pause(paused)

    def set_limits(self, service: str, limits: Limits) -> None:
        if any(self._runtimes[service] in members for _, members in self._together):
            what = "shares the limits of its pipeline's file, [fleet], with the other stages"
            raise BadInput(what, "service", service)
        self._leading(service).set_limits(limits)

    def roll_back(self, service: str) -> None:
        self._leading(service).roll_back()

    def roll_out_again(self, service: str) -> None:
        self._leading(service).roll_out_again()

    def leads(self) -> bool:
        return self.fence() is not None

    def fence(self) -> int | None:
        """Return the number of the present term; None while another process leads."""
        return self._fence if self._lease.lasts() else None

    def _leading(self, service: str) -> ServiceRuntime:
        runtime = self._runtimes[service]
        if not self.leads():
            raise BadInput("this controller stands by: ask the one that leads", "service", service)
        return runtime


def _divide(whole: Limits, members: Sequence[ServiceRuntime]) -> None:
    """Divide the group's limits again, unless limits divided before are not in force yet."""
    led = [term for member in members if (term := member.term) is not None]
    known = [holding for term in led if (holding := term.shared()) is not None]
    if len(known) == len(members):
        keeps = fits(whole, known)
        for term, holding, limits in zip(led, known, next_limits(whole, known), strict=True):
            if limits != holding.limits:
                term.share_limits(limits, keeps=keeps)
