"""The store of one service, in a table that all services of a site share."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.control.ports import Recorded, Result, Store
from mark.domain.command import Command
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.time import DAY_S, MINUTE_S
from mark_infra.store.codec import Unreadable, decode, encode
from mark_infra.store.dynamo_table import JOURNAL_LINES, Fence, JournalLine, Table
from mark_infra.store.sqlite import SqliteTable

if TYPE_CHECKING:
    from mark_infra.aws.gate import Gate

FORGET_S = DAY_S  # the cloud itself shows an instance for an hour after its end
_log = logging.getLogger(__name__)


class ServiceStore:
    """The stored state of a service. Used by any thread; every method raises CloudError if the table is unreachable.

    A store made with a `fence` belongs to that term. It writes state, journal and load until another term begins, even
    one of the same holder; then writing raises LostLease. Reading and numbering need no fence.
    """

    def __init__(
        self, table: Table, service: str, fence: Fence | None = None, *, unix_s: Callable[[], float] = time.time
    ) -> None:
        self.service = service
        self._table, self._fence, self._unix_s = table, fence, unix_s
        self._numbers: dict[str, int] = {}  # cached, because numbers never change and are needed every second

    def get(self, key: str) -> Any | None:
        text = self._table.get(self.service, key)
        if text is None:
            return None
        try:
            return decode(text)
        except Unreadable as error:
            _log.warning("%s: %s is not read, it begins anew: %s", self.service, key, error)
            return None

    def put(self, key: str, value: Any) -> None:
        """Store a value. Raises TypeError for a type that the codec does not know."""
        self._table.put(self.service, key, encode(value), self._fence)

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        line = JournalLine(at_s, command.verb, str(command), outcome, command.usd_per_hour, result, started)
        self._table.record(self.service, line, self._fence, self._unix_s())

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        if count < 1:
            return []
        # Clients may send any number, but the table's integers are bounded.
        before_id = None if before_id is None else min(max(0, before_id), 2**40)
        return self._table.recorded(self.service, before_id, min(count, JOURNAL_LINES))

    def append_load(self, load: Load) -> None:
        """Store the load, by whole minutes from the origin. Repeating is safe. Minutes without data are skipped."""
        if load.step_s != MINUTE_S:
            raise ValueError(f"load is kept by the minute, not by {load.step_s:g} s")
        first = round(load.start_s / MINUTE_S)
        if first < 0:
            raise ValueError(f"load of {load.start_s:g} s lies before the origin")
        rates = zip(load.mean_rps.tolist(), load.peak_rps.tolist(), strict=True)
        minutes = {first + n: rate for n, rate in enumerate(rates) if math.isfinite(rate[0]) and math.isfinite(rate[1])}
        if minutes:
            self._table.append_load(self.service, minutes, self._fence, self._unix_s())

    def load_since(self, since_s: float, until_s: float = math.inf) -> Load:
        """Return the load from `since_s`, starting at the first stored minute; NaN for minutes without data.

        Minutes that end after `until_s` are left out, because a leader whose clock was ahead has stored them.
        """
        rows = self._table.load(self.service, math.ceil(since_s / MINUTE_S))
        rows = [row for row in rows if (row[0] + 1) * MINUTE_S <= until_s]
        first = rows[0][0] if rows else math.ceil(since_s / MINUTE_S)
        mean_rps, peak_rps = (np.full(rows[-1][0] - first + 1 if rows else 0, np.nan) for _ in range(2))
        for minute, mean, peak in rows:
            mean_rps[minute - first], peak_rps[minute - first] = mean, peak
        return Load(first * MINUTE_S, MINUTE_S, mean_rps, peak_rps)

    def numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the number of each instance id. New ids get the next numbers, in the given order, permanently."""
        known = self._numbers
        if any(id not in known for id in ids):
            known = self._table.numbers(self.service, ids, self._unix_s())
            self._numbers = {**self._numbers, **known}
        return {id: known[id] for id in ids}

    def forget_numbers(self, there: Collection[str]) -> None:
        """Forget ids that the cloud no longer shows (not in `there`) and that got their number more than a day ago."""
        there = frozenset(there)
        self._table.forget_numbers(self.service, there, self._unix_s() - FORGET_S)
        self._numbers = {id: number for id, number in self._numbers.items() if id in there}

    def origin_unix_s(self) -> float:
        """Return when the service was first seen, the zero of its control seconds."""
        return self._table.origin_unix_s(self.service, self._unix_s())

    def close(self) -> None:
        """Close the table for all services that share it."""
        self._table.close()


def open_table(spec: str, gate: Gate | None = None) -> Table:
    """Open a site's table: `sqlite:PATH`, or `dynamodb:NAME` with a gate. Raises BadInput, CloudError."""
    kind, _, place = spec.partition(":")
    if kind == "sqlite" and place:
        return SqliteTable(Path(place))
    if kind == "dynamodb" and place and gate is not None:
        from mark_infra.store.dynamodb import DynamoTable

        return DynamoTable(gate, place)
    raise BadInput("must be sqlite:PATH or dynamodb:TABLE", "store", spec)


def open_store(spec: str, service: str, gate: Gate | None = None) -> ServiceStore:
    """Open the store of the only service of a table, without a lease."""
    return ServiceStore(open_table(spec, gate), service)


_: type[Store] = ServiceStore
