"""The table that keeps the state of all services of a site; SQLite and DynamoDB implement it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mark.control.lease import LeaseStore
from mark.control.ports import Recorded, Result

JOURNAL_LINES = 100_000  # per service; DynamoDB keeps lines by age instead
JOURNAL_DAYS = 90
LOAD_DAYS = 35  # five weeks, the most that a predictor can use
LOAD_MINUTES = LOAD_DAYS * 24 * 60


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of the journal before it gets its number (see `Recorded`)."""

    at_s: float
    verb: str
    text: str
    outcome: str
    usd_per_hour: float
    result: Result
    started: int


def recorded(
    id: int,
    at_s: float,
    verb: str,
    text: str,
    outcome: str,
    usd_per_hour: float,
    result: str | None = None,
    started: int = 0,
) -> Recorded:
    """Return a stored line as `Recorded`. Lines of the first version lack a result."""
    kept = None if result is None else Result(result)
    return Recorded(id, at_s, verb, text, outcome, usd_per_hour, kept, started)


@dataclass(frozen=True, slots=True)
class Fence:
    """Writing is allowed until a term of `lease` later than `number` begins."""

    lease: str
    number: int


class Table(LeaseStore, Protocol):
    """State by service. Used by several threads and processes at the same time.

    Every method raises CloudError. Methods with a fence also raise LostLease.
    """

    def get(self, service: str, key: str) -> str | None: ...

    def put(self, service: str, key: str, value: str, fence: Fence | None) -> None: ...

    def record(self, service: str, line: JournalLine, fence: Fence | None, now_unix_s: float) -> None: ...

    def recorded(self, service: str, before_id: int | None, count: int) -> list[Recorded]:
        """Return the newest lines of the journal before `before_id`, newest first."""

    def append_load(
        self, service: str, load: Mapping[int, tuple[float, float]], fence: Fence | None, now_unix_s: float
    ) -> None:
        """Store the mean and highest rate of each minute, in requests/s. Existing minutes are replaced."""

    def load(self, service: str, since_minute: int) -> list[tuple[int, float, float]]:
        """Return (minute, mean, highest rate) of the stored minutes, in order."""

    def numbers(self, service: str, ids: Sequence[str], now_unix_s: float) -> dict[str, int]:
        """Return the number of each id. New ids get the next numbers, in the given order."""

    def forget_numbers(self, service: str, there: Collection[str], before_unix_s: float) -> None:
        """Forget absent ids that got their number before that time. Numbers are never reused."""

    def origin_unix_s(self, service: str, now_unix_s: float) -> float:
        """Return the `now_unix_s` of the service's first call."""

    def close(self) -> None: ...
