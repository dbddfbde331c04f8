"""The last 24 hours of a service, one row per minute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.control.ports import Store
from mark.control.views import HistorySchema
from mark.domain.arrays import FloatArray
from mark.planning.next_day import DAY, NextDay, SeenHalfHours, next_day

MINUTES = 24 * 60
_HOUR = 60
_CHUNKS = MINUTES // _HOUR + 1  # in the store, one per hour; the newest overwrites the oldest


@dataclass(frozen=True, slots=True)
class Minute:
    """The observations of one minute. Rates in requests/s; counts of requests that were answered or refused in it."""

    rps: float | None
    capacity_rps: float
    usd_per_hour: float
    requests: int
    in_time: int
    by_functions: int
    instances: Mapping[str, int] = field(default_factory=dict)  # running, by offer


class MinuteHistory:
    """A ring of minutes, kept in the store by the hour. Minutes are counted from the service's beginning."""

    def __init__(self, store: Store) -> None:
        self._store = store
        kept: dict[int, Minute] = {}
        for chunk in range(_CHUNKS):
            kept.update(store.get(f"history/{chunk}") or {})
        self._rows = dict(sorted(kept.items()))  # ascending, so that old rows come first
        self._forget()

    def add(self, number: int, row: Minute) -> None:
        """Add the row of minute `number`, which is over."""
        self._rows[number] = row
        self._forget()
        hour = number // _HOUR
        of_hour = {n: self._rows[n] for n in range(hour * _HOUR, number + 1) if n in self._rows}
        self._store.put(f"history/{hour % _CHUNKS}", of_hour)

    def rows(self) -> dict[int, Minute]:
        """Return a copy of the rows by minute."""
        return dict(self._rows)

    def _forget(self) -> None:
        last = next(reversed(self._rows), 0)
        while self._rows and (first := next(iter(self._rows))) <= last - MINUTES:
            del self._rows[first]


def history_view(
    rows: Mapping[int, Minute], hours: float, points: int, *, start_unix_s: float, minute_s: float
) -> HistorySchema:
    """Return the last `hours` (at most 24) in at most `points` equal steps of whole minutes.

    `start_unix_s` is the beginning of minute 0, `minute_s` the length of a minute in wall time.
    """
    ranges = equal_steps(max(rows, default=-1), hours, points)
    steps = [[rows[n] for n in step if n in rows] for step in ranges]
    offers = sorted({offer for row in rows.values() for offer in row.instances})
    return HistorySchema(
        start_unix_s=start_unix_s + ranges[0].start * minute_s,
        step_s=len(ranges[0]) * minute_s,
        rps=tuple(_mean([row.rps for row in step if row.rps is not None]) for step in steps),
        capacity_rps=tuple(_mean([row.capacity_rps for row in step]) for step in steps),
        usd_per_hour=tuple(_mean([row.usd_per_hour for row in step]) for step in steps),
        attainment=tuple(_share([(row.in_time, row.requests) for row in step]) for step in steps),
        overflow_share=tuple(_share([(row.by_functions, row.requests) for row in step]) for step in steps),
        instances={
            offer: tuple(_rounded(_mean([row.instances.get(offer, 0) for row in step])) for step in steps)
            for offer in offers
        },
    )


def next_day_of(rows: Mapping[int, Minute], allowed: float, call_usd: float) -> NextDay | None:
    """Estimate the next day's bill and the probability of keeping the promise, from the last 24 hours.

    Return None without 24 hours. `allowed` is the share of requests that may be late, `call_usd` the price of a
    function call. Takes 1 ms.
    """
    last = max(rows, default=-1)
    if last + 1 < MINUTES or min(rows) > last + 1 - MINUTES + _HOUR // 2:
        return None
    width = MINUTES // DAY
    steps = [range(first, first + width) for first in range(last + 1 - MINUTES, last + 1, width)]
    seen = [[rows[n] for n in step if n in rows] for step in steps]
    rates = [_mean([row.rps for row in step if row.rps is not None]) for step in seen]
    usd = [_mean([row.usd_per_hour / _HOUR + call_usd * row.by_functions for row in step]) for step in seen]
    in_time = [_share([(row.in_time, row.requests) for row in step]) for step in seen]
    return next_day(
        SeenHalfHours(_known(rates), width * _known(usd), 1.0 - _known(in_time)), allowed, lambda rates_rps: rates_rps
    )


def equal_steps(last: int, hours: float, points: int) -> list[range]:
    """Return the minutes up to number `last`, back to `hours` ago (24 at most), in at most `points` equal steps."""
    minutes = min(MINUTES, max(1, math.ceil(min(hours, 24.0) * _HOUR)))
    width = math.ceil(minutes / min(max(1, points), minutes))
    first = last + 1 - math.ceil(minutes / width) * width
    return [range(n, n + width) for n in range(first, last + 1, width)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(counts: Sequence[tuple[int, int]]) -> float | None:
    of = sum(whole for _, whole in counts)
    return sum(part for part, _ in counts) / of if of else None


def _known(values: Sequence[float | None]) -> FloatArray:
    return np.array([math.nan if value is None else value for value in values])


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
