"""The ports of one controller process: each passes a call on to the true state, unless a fault interferes.

At any call the process may die, pause, or wait while the world continues, because the world is run from inside the
call. So everything happens in one thread, and a seed replays exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from mark.cloud.billing.moving_prices import LivePrices, Repriced
from mark.control.launcher import DECIDED
from mark.control.lease import Term
from mark.control.ports import Launched, OverflowTotals, Ran, RecentAnswers, Recorded, ReleaseCounts, Result
from mark.domain.arrays import FloatArray
from mark.domain.command import Command
from mark.domain.copying import replace
from mark.domain.errors import CapacityError, CloudError, DeniedError, LostLease, StoreError, ThrottledError
from mark.domain.fleet import Fleet, Notice
from mark.domain.load import Load
from mark.domain.time import MINUTE_S
from mark_torture.roles import TorturedProcess, TorturedService, TorturedWorld

HIDDEN_S = 25.0  # instances launched by another controller may be hidden this long
_AT_COMMAND, _AT_READ = 0.3, 0.001  # chance that a crash or pause strikes at a given call
_LONGEST_CALL_S = 40.0
_LONGEST_PAUSE_S = 3600.0
_LONGEST_RESTART_S = 1200.0
WARM_S = 300.0  # time that a function's environment stays warm
SIGNED_S = 300.0  # a signature further in the past or future is refused, as AWS does (Signature Version 4)
LEASE = "controller"
T = TypeVar("T")


class Killed(BaseException):
    """The process died: the rest of the call is not run."""


class ProcessClock:
    """The wall clock of one process: the world's time, unless a fault sets it."""

    def __init__(self, world: TorturedWorld, process: TorturedProcess) -> None:
        self._world, self._process = world, process
        self._stands: tuple[int, float] | None = None  # number of the fault, and the time at which the clock stands

    def wall_s(self) -> float:
        """Return the time that the machine shows; it may go back."""
        now_s = self._world.now_s
        if not self._world.clocks:
            return now_s
        for fault, _ in self._world.active("clock ahead", self._process.index):
            self._world.meets(fault.kind)
            return now_s + fault.share
        for fault, _ in self._world.active("clock stands", self._process.index):
            self._world.meets(fault.kind)
            if self._stands is None or self._stands[0] != fault.number:
                self._stands = fault.number, now_s
            return self._stands[1]
        return now_s


class ServiceClock:
    """The port Clock: the wall clock's time when the process began to lead, plus the time since then."""

    def __init__(self, world: TorturedWorld, ahead_s: float = 0.0) -> None:
        """Begin with the wall clock `ahead_s` of the world's time."""
        self._world, self._ahead_s = world, ahead_s

    def now_s(self) -> float:
        return self._world.now_s + self._ahead_s


class _Port:
    def __init__(self, world: TorturedWorld, process: TorturedProcess, truth: TorturedService) -> None:
        self._world, self._process, self._truth = world, process, truth

    def _happens(self, kind: str) -> bool:
        world = self._world
        if kind not in world.kinds:
            return False
        for fault, draw in world.active(kind, self._process.index):
            if float(draw.random()) < fault.share:
                world.meets(kind, self._truth)
                return True
        return False

    def _arrive(self, *, command: bool) -> None:
        """Begin a call, in which the process may die, pause or wait. Raises Killed."""
        world, process = self._world, self._process
        if world.strikes:
            chance = _AT_COMMAND if command else _AT_READ
            for fault, draw in world.active("crash", process.index):
                if fault.number not in world.spent and float(draw.random()) < chance:
                    world.spent.add(fault.number)
                    world.meets(fault.kind, self._truth)
                    process.die(1.0 + float(draw.random()) * _LONGEST_RESTART_S)
            for fault, draw in world.active("pause", process.index):
                if fault.number not in world.spent and float(draw.random()) < chance:
                    world.spent.add(fault.number)
                    world.meets(fault.kind, self._truth)
                    # Draw on a logarithmic scale from 5 s to an hour.
                    world.pause(process, 5.0 * (_LONGEST_PAUSE_S / 5.0) ** float(draw.random()))
            for fault, draw in world.active("calls slow", process.index):
                if float(draw.random()) < fault.share:
                    world.meets(fault.kind, self._truth)
                    world.wait(process, float(draw.random()) * _LONGEST_CALL_S)
        if process.dead:
            raise Killed


class ProcessCloud(_Port):
    """The ports Cloud and Changes.

    Like the adapter to AWS, it remembers the answers to launches and shows those instances.
    """

    def __init__(self, world: TorturedWorld, process: TorturedProcess, truth: TorturedService, fence: int) -> None:
        super().__init__(world, process, truth)
        self._fence = fence
        self._answered: dict[str, Launched] = {}  # launches that were answered, by token

    def fleet(self) -> Fleet:
        self._send(command=False)
        fleet = self._truth.cloud.fleet()
        if "fleet stale" not in self._world.kinds:
            return fleet
        now_s, machines, index = self._world.now_s, self._truth.cloud.machines, self._process.index
        shown = {number for launched in self._answered.values() for number in launched.numbers}
        hidden = {
            i.number
            for i in fleet.instances
            if now_s - i.launched_s < HIDDEN_S
            and not i.resumed
            and machines[i.number].of != index
            and i.number not in shown
        }
        if not hidden:
            return fleet
        self._world.meets("fleet stale", self._truth)
        return replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in hidden))

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
        if token in self._answered:
            return self._answered[token]
        cloud, index, watch = self._truth.cloud, self._process.index, self._world.watch
        offers = (offer, *alternatives)

        def launch() -> Launched:
            if offer in dict(cloud.conditions.refused):
                self._world.market_met(self._truth)
            return cloud.launch(index, offer, count, token, release, alternatives, standby=standby)

        watch.asks(self._truth, self._fence, offers, token)
        try:
            self._answered[token] = launched = self._command("launch", token, launch)
        except CapacityError:
            watch.refused(self._truth, self._fence, offers, token)
            raise
        except CloudError as error:
            if not isinstance(error, (*DECIDED, ThrottledError)):
                watch.unanswered(self._truth, token)
            raise
        return launched

    def drain(self, number: int) -> None:
        self._command("drain", number, lambda: self._truth.cloud.drain(number))

    def terminate(self, number: int) -> None:
        self._command("terminate", number, lambda: self._truth.cloud.terminate(number))

    def stop(self, number: int) -> None:
        self._command("stop", number, lambda: self._truth.cloud.stop(number))

    def resume(self, number: int) -> None:
        self._command("resume", number, lambda: self._truth.cloud.resume(number))

    def notices(self) -> tuple[Notice, ...]:
        self._arrive(command=False)
        if not self._truth.cloud.notices:
            return ()
        found, self._truth.cloud.notices = self._truth.cloud.notices, []
        return tuple(notice for _, notice in found if notice.number in self._truth.cloud.machines)

    def ran(self) -> tuple[Ran, ...]:
        if not self._truth.cloud.told:
            return ()
        found, self._truth.cloud.told = self._truth.cloud.told, []
        return tuple(one for one in found if not self._happens("news lost"))

    def _send(self, *, command: bool) -> None:
        """Make a call that is signed by the wall clock. Raises CloudError if it is refused."""
        signed_s = self._process.wall_s()
        self._arrive(command=command)
        if abs(self._world.now_s - signed_s) > SIGNED_S:
            raise DeniedError(f"RequestExpired: it was signed {self._world.now_s - signed_s:.0f} s ago")
        if self._world.hindered:
            if self._happens("calls throttled"):
                raise ThrottledError("too many requests")
            if self._happens("calls fail"):
                raise CloudError("the cloud does not answer")

    def _command(self, verb: str, what: Any, call: Callable[[], T]) -> T:
        # Report it before it is sent, because a paused controller cannot take it back.
        self._world.watch.asked(self._truth, self._process, self._fence, verb, what)
        self._send(command=True)
        before = set(self._truth.cloud.machines)
        self._world.watch.carried_out(self._truth, verb, what)
        done = call()
        if self._happens("commands twice"):
            done = call()
        started = self._truth.cloud.machines.keys() - before
        self._world.watch.done(self._truth, self._process, self._fence, verb, what, started)
        if self._happens("answers lost"):
            raise CloudError("the answer was lost")
        self._arrive(command=True)
        return done


class ProcessStore(_Port):
    """The port Store in one leader's term. If `fenced`, writes from an older term raise LostLease."""

    def __init__(self, world: TorturedWorld, process: TorturedProcess, truth: TorturedService, fence: int) -> None:
        super().__init__(world, process, truth)
        self._fence, self.fenced = fence, True

    def get(self, key: str) -> Any | None:
        self._arrive(command=False)
        self._answer()
        return self._truth.store.get(key)

    def put(self, key: str, value: Any) -> None:
        self._write(lambda: self._truth.store.put(key, value))

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        self._write(lambda: self._truth.store.record(at_s, command, outcome, result, started))

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        self._answer()
        return self._truth.store.recorded(before_id, count)

    def _write(self, write: Callable[[], None]) -> None:
        self._arrive(command=True)
        self._answer()
        if self._happens("store read-only"):
            raise StoreError("the store is read-only")
        term = self._world.terms.term(LEASE)
        if term is None or term.fence != self._fence:
            if self.fenced:
                raise LostLease("another controller holds the lease")
            self._world.watch.wrote_late(self._truth, self._process, self._fence)
        write()
        if self._happens("store torn"):
            raise StoreError("the store's answer was lost")

    def _answer(self) -> None:
        if self._happens("store down"):
            raise StoreError("the store does not answer")


class ProcessTerms:
    """The lease's store, seen by one process."""

    def __init__(self, world: TorturedWorld, process: TorturedProcess) -> None:
        self._world, self._process = world, process

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        self._answer()
        before = self._world.terms.term(name)
        term = self._world.terms.claim(name, holder, until_s, over)
        if before is None or before.fence != term.fence:
            self._world.tell(f"controller {self._process.index} leads, with the number {term.fence}")
        return term

    def resign(self, name: str, holder: str) -> None:
        self._answer()
        self._world.terms.resign(name, holder)

    def _answer(self) -> None:
        if "lease down" not in self._world.kinds:
            return
        for fault, draw in self._world.active("lease down", self._process.index):
            if float(draw.random()) < fault.share:
                self._world.meets(fault.kind)
                raise StoreError("the lease's store does not answer")


class ProcessFunctions(_Port):
    """The port Functions: environments stay warm for `WARM_S`."""

    _warm_s = -math.inf
    _environments = 0

    def warm(self, environments: int) -> int:
        self._answer()
        now_s = self._world.now_s
        warm = self._environments if now_s - self._warm_s < WARM_S else 0
        if environments <= warm:
            return 0
        self._warm_s, self._environments = now_s, environments
        return environments - warm

    def switch(self, release: str) -> bool:
        self._answer()
        return True

    def _answer(self) -> None:
        self._arrive(command=True)
        if self._happens("functions fail"):
            raise CloudError("functions do not answer")


class ProcessPrices:
    """The port LivePrices: the newest known prices of one service's offers."""

    def __init__(self, truth: TorturedService) -> None:
        self._truth = truth

    def repriced(self) -> Repriced | None:
        return self._truth.repriced

    def trouble(self) -> str:
        return ""


class ProcessTelemetry(_Port):
    """The port Telemetry: the service's load, possibly changed by a fault."""

    def __init__(self, world: TorturedWorld, process: TorturedProcess, truth: TorturedService) -> None:
        super().__init__(world, process, truth)
        self._from = math.floor(world.now_s / MINUTE_S)

    def load(self) -> Load:
        self._answer()
        now_s = self._process.clocks[self._truth.name].now_s()
        first, self._from = self._from, max(self._from, math.floor(now_s / MINUTE_S))
        rates = np.array([self._seen(self._truth.rps_in(minute)) for minute in range(first, self._from)])
        return Load(first * MINUTE_S, MINUTE_S, rates, rates)

    def last_minute_rps(self) -> float | None:
        self._answer()
        seen = self._seen(self._truth.rps())
        return None if self._happens("telemetry gap") else seen

    def windows_rps(self) -> FloatArray:
        self._answer()
        rps = self._truth.rps()
        return np.array([self._seen(rps) for _ in range(4)]) if self._world.hindered else np.full(4, rps)

    def recent(self) -> RecentAnswers:
        self._answer()
        return self._truth.recent()

    def answers(self) -> RecentAnswers:
        return self._truth.answers()

    def utilization(self) -> Mapping[str, float]:
        self._answer()
        return {}

    def overflow(self) -> OverflowTotals:
        return _NO_OVERFLOW

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        return self._truth.release_counts()

    def _seen(self, rps: float) -> float:
        if not self._world.hindered:
            return rps
        if self._happens("telemetry gap") or self._happens("telemetry NaN"):
            return math.nan
        if self._happens("telemetry zeros"):
            return 0.0
        return 1000.0 * rps if self._happens("telemetry spikes") else rps

    def _answer(self) -> None:
        self._arrive(command=False)
        if self._world.hindered and self._happens("telemetry fails"):
            raise CloudError("no metrics")


_NO_OVERFLOW = OverflowTotals(0, 0.0)
_prices: type[LivePrices] = ProcessPrices
