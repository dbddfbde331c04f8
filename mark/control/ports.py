"""The seven ports of the controller: Clock, Cloud, Changes, Functions, Telemetry, Store and Lease.

The simulator implements all but two: its bill needs no `Changes`, and its one controller no `Lease`. Testbed and AWS
implement all seven, with the same adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from mark.domain.arrays import FloatArray
from mark.domain.command import Command
from mark.domain.errors import CapacityError, ThrottledError
from mark.domain.fleet import Fleet, Notice
from mark.domain.load import Load

WINDOW_S = 5.0  # P_s of the paper: arrivals are counted over windows of this length
RECENT_S = 120.0  # and how far: a start with nothing ready is no news for ever to a service with a request a second


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the trace's (or the service's) beginning. It never goes back while its process leads."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The instances with these numbers were started; `refused` says why no more, where there are fewer than asked.

    A ThrottledError says nothing of the offer: the rest may be asked for again.
    """

    numbers: tuple[int, ...]
    refused: CapacityError | ThrottledError | None = None


class Cloud(Protocol):
    """Instances. Every error is a CloudError (see mark.domain.errors)."""

    def fleet(self) -> Fleet:
        """All instances that are not gone, with what is scheduled for them. Repeatable."""

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
        """Start up to `count` instances, fewer when the market runs short: then with why.

        A standby boots and then goes to stopped. They boot from `release`, "" being the newest. Where the market is
        short of `offer`, or has more of another one, some may be of `alternatives`, which the fleet shows. Raises
        CapacityError when none of all these could be had, LimitError at an account limit, NotFoundError for an unknown
        release. Safe to repeat with the same `token`: the same instances are returned and nothing more is launched.
        """

    def drain(self, number: int) -> None:
        """Take no new request. Repeatable. Raises NotFoundError."""

    def terminate(self, number: int) -> None:
        """End it now. Repeatable: ending what is gone is no error."""

    def stop(self, number: int) -> None:
        """Stop a draining (or booted standby) instance; only its disk is paid on. Raises NotFoundError."""

    def resume(self, number: int) -> None:
        """Boot a stopped instance again. Raises NotFoundError, CapacityError."""

    def notices(self) -> tuple[Notice, ...]:
        """Interruptions announced since the last call; each is returned once."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An instance began to run, or (not `runs`) to stop, at `at_s`: from and to these times it is billed."""

    number: int
    offer: str
    runs: bool
    at_s: float


class Changes(Protocol):
    """What the cloud tells of its instances by itself, for the bill."""

    def ran(self) -> tuple[Ran, ...]:
        """Since the last call, in any order; each is returned once. May be late or miss some."""


class Functions(Protocol):
    """Functions. Every error is a CloudError."""

    def warm(self, environments: int) -> int:
        """Have that many environments warm; returns how many had to be started. Repeatable."""

    def switch(self, release: str) -> bool:
        """Have what answers while no instance is ready answer with that release, and warm its environments.

        Repeatable. False where that release has no function: then nothing changes.
        """


@dataclass(frozen=True, slots=True)
class RecentAnswers:
    """The last requests that were answered or refused."""

    count: int
    in_time: int
    latency_s: float | None = None  # in the mean, of those that were answered; None: not known
    p50_s: float | None = None  # of the same, the median and what 99 % of them had at most
    p99_s: float | None = None
    in_flight: int | None = None  # requests that wait or are served; None: not known


@dataclass(frozen=True, slots=True)
class ReleaseCounts:
    """What instances of one release and offer did so far."""

    requests: int = 0  # answered or refused
    misses: int = 0  # of them late or refused
    errors: int = 0  # of them answered by the model with an error
    busy_s: float = 0.0  # of workers
    by_functions: int = 0  # of the requests: answered by functions, and by no worker

    def __add__(self, other: ReleaseCounts) -> ReleaseCounts:
        return ReleaseCounts(
            self.requests + other.requests,
            self.misses + other.misses,
            self.errors + other.errors,
            self.busy_s + other.busy_s,
            self.by_functions + other.by_functions,
        )

    def __sub__(self, other: ReleaseCounts) -> ReleaseCounts:
        return ReleaseCounts(
            self.requests - other.requests,
            self.misses - other.misses,
            self.errors - other.errors,
            self.busy_s - other.busy_s,
            self.by_functions - other.by_functions,
        )


@dataclass(frozen=True, slots=True)
class OverflowTotals:
    """What functions did so far: requests that they answered, and dollars that they cost."""

    requests: int
    usd: float


class Telemetry(Protocol):
    """What was observed. All repeatable within one tick."""

    def load(self) -> Load:
        """Complete forecast steps since the last call of `load` (maybe none)."""

    def last_minute_rps(self) -> float | None:
        """Mean arrival rate over the last 60 s; None when nothing was observed."""

    def windows_rps(self) -> FloatArray:
        """Arrival rates of the last 5 s windows, at most 12, the newest last; NaN where nothing was observed."""

    def recent(self) -> RecentAnswers:
        """As many of the last requests as the SLO monitor looks back at; none left more than `RECENT_S` ago."""

    def answers(self) -> RecentAnswers:
        """All requests so far. Counts that fall have begun anew."""

    def utilization(self) -> Mapping[str, float]:
        """Busy share over the last minute, by offer."""

    def overflow(self) -> OverflowTotals:
        """All so far, as `answers`."""

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        """All so far, by release and offer, as `answers`; empty where instances have no release."""


class Result(StrEnum):
    """How far a command was carried out."""

    DONE = "done"
    PART = "part"  # fewer instances were started than it asked for
    FAILED = "failed"  # nothing of it: the cloud refused, or its answer was lost
    LIMIT = "limit"  # nothing of it: a limit of the service is reached, and the cloud was not asked
    DROPPED = "dropped"  # it did not fit the fleet any more, and the cloud was not asked
    DRY_RUN = "dry_run"  # a dry run carries nothing out


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of the journal. `id` ascends within a service; `text` is the command with its reason.

    `result` is None in lines that were written before results were kept.
    """

    id: int
    at_s: float
    verb: str
    text: str
    outcome: str  # for people: "done", perhaps with the instances that were started instead, or why not
    usd_per_hour: float
    result: Result | None = None
    started: int = 0  # instances that a launch started


class Store(Protocol):
    """State that survives the controller, and its journal of decisions.

    All raise StoreError when the state cannot be reached, and writing raises LostLease when another controller leads.
    """

    def get(self, key: str) -> Any | None:
        """What was put last; None when nothing was, or what another version put cannot be read."""

    def put(self, key: str, value: Any) -> None: ...

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        """Append to the journal: `outcome` for people, `result` and the number of `started` instances for programs."""

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        """The newest lines of the journal, newest first; those before `before_id` where it is given."""


class Lease(Protocol):
    """The right to act: one controller holds it at a time."""

    def hold(self, now_s: float) -> int | None:
        """The fencing number while this holder leads, else None. Takes the lease when it is free, and renews it.

        To be called about every second, and before acting; asks the store only now and then. `now_s` is Unix time,
        never compressed; clocks of those that contend need not agree. The number rises whenever the holder changes, or
        its clock was set. A store that does not answer is no error: this holder leads on until others may take over.
        """

    def lasts(self) -> bool:
        """Does the term last that `hold` last knew of, by a clock that cannot be set?

        From any thread: to be asked right before acting, for `hold` itself may be waiting for a store.
        """

    def release(self) -> None:
        """Let another one lead at once. Repeatable."""
