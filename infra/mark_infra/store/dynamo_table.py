"""Where the state of all services of a site is kept: what SQLite and DynamoDB each implement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mark.control.lease import LeaseStore
from mark.control.ports import Recorded, Result

JOURNAL_LINES = 100_000  # of a service; DynamoDB keeps lines by age instead
JOURNAL_DAYS = 90
LOAD_DAYS = 35  # what a predictor can use: five weeks
LOAD_MINUTES = LOAD_DAYS * 24 * 60


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of the journal that has no number yet (see `Recorded`)."""

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
    """A line as it was stored; those of the first version had no result."""
    kept = None if result is None else Result(result)
    return Recorded(id, at_s, verb, text, outcome, usd_per_hour, kept, started)


@dataclass(frozen=True, slots=True)
class Fence:
    """Writing is allowed while no term of `lease` after `number` has begun."""

    lease: str
    number: int


class Table(LeaseStore, Protocol):
    """State by service. Used by several threads and processes at once.

    Every method raises CloudError, and what takes a fence LostLease.
    """

    def get(self, service: str, key: str) -> str | None: ...

    def put(self, service: str, key: str, value: str, fence: Fence | None) -> None: ...

    def record(self, service: str, line: JournalLine, fence: Fence | None, now_unix_s: float) -> None: ...

    def recorded(self, service: str, before_id: int | None, count: int) -> list[Recorded]:
        """The newest lines of the journal, newest first."""

    def append_load(
        self, service: str, load: Mapping[int, tuple[float, float]], fence: Fence | None, now_unix_s: float
    ) -> None:
        """By minute: mean and highest rate, in requests/s. What was there for a minute is replaced."""

    def load(self, service: str, since_minute: int) -> list[tuple[int, float, float]]:
        """(minute, mean, highest rate) as far as they are kept, in order."""

    def numbers(self, service: str, ids: Sequence[str], now_unix_s: float) -> dict[str, int]:
        """The number of each id; those not seen before get the next ones, in the order given."""

    def forget_numbers(self, service: str, there: Collection[str], before_unix_s: float) -> None:
        """Forget ids that are not there and got their number before that time. No number is given twice."""

    def origin_unix_s(self, service: str, now_unix_s: float) -> float:
        """What the first call gave as now."""

    def close(self) -> None: ...
