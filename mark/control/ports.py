"""The seven ports of the controller: Clock, Cloud, Changes, Functions, Telemetry, Store and Lease.

The testbed and AWS implement all seven, with the same adapters. The simulator has no
`Changes`, because its bill does not need them, and no `Lease`, because it has one controller.
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
RECENT_S = 120.0  # ignore older answers: at a low load, late ones of a cold start would count for long


class Clock(Protocol):
    def now_s(self) -> float:
        """Return the seconds since the trace's (or service's) beginning; they never fall while the process leads."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The numbers of the started instances; `refused` is the reason if there are fewer than requested.

    After a ThrottledError the missing instances may be requested again: throttling says nothing about the offer.
    """

    numbers: tuple[int, ...]
    refused: CapacityError | ThrottledError | None = None


class Cloud(Protocol):
    """Instances. Every error is a CloudError (see mark.domain.errors)."""

    def fleet(self) -> Fleet:
        """Return all instances that are not gone, with the events scheduled for them. Repeatable."""

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
        """Start up to `count` instances; if the market has fewer, say why in the result.

        The instances boot from `release`, "" meaning the newest. A standby boots and is then stopped. If the market has
        little of `offer` or more of another one, some instances may be of `alternatives`; the fleet shows which.
        Raises CapacityError if no instance could be started, LimitError at an account limit, NotFoundError for an
        unknown release. A call with the same `token` returns the same instances and starts no more.
        """

    def drain(self, number: int) -> None:
        """Send the instance no new requests. Repeatable. Raises NotFoundError."""

    def terminate(self, number: int) -> None:
        """End the instance now. Repeatable; an instance that is gone raises no error."""

    def stop(self, number: int) -> None:
        """Stop a draining (or booted standby) instance; only its disk keeps costing. Raises NotFoundError."""

    def resume(self, number: int) -> None:
        """Boot a stopped instance again. Raises NotFoundError, CapacityError."""

    def notices(self) -> tuple[Notice, ...]:
        """Return the interruptions announced since the last call; each is returned once."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The start (`runs`) or end of an instance's billed time, at `at_s`."""

    number: int
    offer: str
    runs: bool
    at_s: float


class Changes(Protocol):
    """The cloud's reports about its instances, for the bill."""

    def ran(self) -> tuple[Ran, ...]:
        """Return the reports since the last call, in any order, each once. Some may be late or missing."""


class Functions(Protocol):
    """Functions. Every error is a CloudError."""

    def warm(self, environments: int) -> int:
        """Keep this number of environments warm; return how many had to be started. Repeatable."""

    def switch(self, release: str) -> bool:
        """Switch the function, which answers while no instance is ready, to this release, and warm its environments.

        Repeatable. Return False, without any change, if the release lacks a function.
        """


@dataclass(frozen=True, slots=True)
class RecentAnswers:
    """The last requests that were answered or refused."""

    count: int
    in_time: int
    latency_s: float | None = None  # mean over answered requests; None: not known
    p50_s: float | None = None  # median and 99th percentile over the same requests
    p99_s: float | None = None
    in_flight: int | None = None  # requests that wait or are served; None: not known


@dataclass(frozen=True, slots=True)
class ReleaseCounts:
    """Totals of the instances of one release and offer."""

    requests: int = 0  # answered or refused
    misses: int = 0  # requests that were late or refused
    errors: int = 0  # requests that the model answered with an error
    busy_s: float = 0.0  # of workers
    by_functions: int = 0  # requests that functions answered instead of workers

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
    """Totals of the functions: the requests that they answered, and their cost in dollars."""

    requests: int
    usd: float


class Telemetry(Protocol):
    """Observations. All methods are repeatable within one tick."""

    def load(self) -> Load:
        """Return the complete forecast steps since the last call of `load` (maybe zero steps)."""

    def last_minute_rps(self) -> float | None:
        """Return the mean arrival rate over the last 60 s; None without observations."""

    def windows_rps(self) -> FloatArray:
        """Return the arrival rates of the last 5 s windows, at most 12, newest last; NaN without observations."""

    def recent(self) -> RecentAnswers:
        """Return the last requests that the SLO monitor looks back at; all left at most `RECENT_S` ago."""

    def answers(self) -> RecentAnswers:
        """Return the totals of all requests so far. A total that fell was reset to zero."""

    def utilization(self) -> Mapping[str, float]:
        """Return the busy share over the last minute, by offer."""

    def overflow(self) -> OverflowTotals:
        """Return the functions' totals so far, which may be reset like those of `answers`."""

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        """Return the totals by release and offer, which may be reset like those of `answers`.

        Empty for instances without a release.
        """


class Result(StrEnum):
    """How far a command was carried out."""

    DONE = "done"
    PART = "part"  # fewer instances were started than requested
    FAILED = "failed"  # not at all: the cloud refused, or its answer was lost
    LIMIT = "limit"  # not sent: a limit of the service is reached
    DROPPED = "dropped"  # not sent: the command did not fit the fleet any more
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
    outcome: str  # for people: "done", perhaps with the alternatives that were started, or the reason of the failure
    usd_per_hour: float
    result: Result | None = None
    started: int = 0  # instances that a launch started


class Store(Protocol):
    """State that survives the controller, and its journal of decisions.

    Every method raises StoreError if the store cannot be reached; writes raise LostLease if another controller leads.
    """

    def get(self, key: str) -> Any | None:
        """Return the value put last; None if there is none, or if another version wrote it in an unreadable form."""

    def put(self, key: str, value: Any) -> None: ...

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        """Append to the journal: `outcome` for people, `result` and the number of `started` instances for programs."""

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        """Return the newest lines of the journal, newest first; with `before_id` only lines before it."""


class Lease(Protocol):
    """The right to act, which one controller holds at a time."""

    def hold(self, now_s: float) -> int | None:
        """Take the lease if it is free, or renew it, and return the fencing number; None while another holder leads.

        Call this about every second, and before acting; most calls do not ask the store. `now_s` is Unix time, never
        compressed; the clocks of contending holders need not agree. The number rises whenever the holder changes or its
        clock was set. A store that does not answer raises no error: this holder leads until others may take over.
        """

    def lasts(self) -> bool:
        """Return whether the term that `hold` saw last is still running, by the monotonic clock.

        Call this right before acting, from any thread, because `hold` itself may be waiting for the store.
        """

    def release(self) -> None:
        """End the term now, so that another controller can lead. Repeatable."""
