"""The past of a service: a row per minute for 24 hours, and a row per half hour for 45 days."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.control.ports import Store
from mark.control.views import HistorySchema
from mark.domain.arrays import FloatArray
from mark.planning.next_day import DAY, MOST_DAYS, NextDay, SeenHalfHours, next_day

MINUTES = 24 * 60
_HOUR = 60
_HALF_HOUR = 30  # minutes
_CHUNKS = MINUTES // _HOUR + 1  # in the store, one per hour; the newest overwrites the oldest
_DAY_CHUNKS = MOST_DAYS + 1  # one per day


@dataclass(frozen=True, slots=True)
class Minute:
    """The observations of one minute. Rates in requests/s; counts of requests that were answered or refused in it."""

    rps: float | None
    capacity_rps: float
    usd_per_hour: float
    requests: int
    in_time: int
    by_functions: int
    instances: Mapping[str, int] = field(default_factory=dict)  # ready, by offer


@dataclass(frozen=True, slots=True)
class HalfHour:
    """The observed `minutes` of a half hour: mean rate, total counts, and dollars for instances."""

    minutes: int
    rps: float | None
    usd: float
    requests: int
    in_time: int
    by_functions: int


class MinuteHistory:
    """The last minutes and half hours; the store has a chunk of minutes per hour and a chunk of half hours per day.

    Minutes and half hours are numbered from the service's beginning. A half hour with less than 15 observed
    minutes is left out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        kept: dict[int, Minute] = {}
        for chunk in range(_CHUNKS):
            kept.update(store.get(f"history/{chunk}") or {})
        self._rows = dict(sorted(kept.items()))  # ascending, so that old rows come first
        halves: dict[int, HalfHour] = {}
        for chunk in range(_DAY_CHUNKS):
            halves.update(store.get(f"half-hours/{chunk}") or {})
        self._halves = dict(sorted(halves.items()))
        self._forget()

    def add(self, number: int, row: Minute) -> None:
        """Add the row of minute `number`, which is over. Later rows are dropped: a leader's clock was ahead."""
        if number < next(reversed(self._rows), number):
            self._rows = {n: kept for n, kept in self._rows.items() if n < number}
            self._halves = {n: kept for n, kept in self._halves.items() if n < number // _HALF_HOUR}
        self._rows[number] = row
        self._forget()
        hour = number // _HOUR
        of_hour = {n: self._rows[n] for n in range(hour * _HOUR, number + 1) if n in self._rows}
        self._store.put(f"history/{hour % _CHUNKS}", of_hour)
        self._sum_up((number + 1) // _HALF_HOUR)

    def half_hours(self) -> dict[int, HalfHour]:
        """Return a copy of the half hours by number."""
        return dict(self._halves)

    def rows(self) -> dict[int, Minute]:
        """Return a copy of the rows by minute."""
        return dict(self._rows)

    def _sum_up(self, until: int) -> None:
        """Add the missing half hours before number `until` whose minutes are still kept."""
        first = max(next(reversed(self._halves), -1) + 1, next(iter(self._rows)) // _HALF_HOUR)
        days = set()
        for half in range(first, until):
            minutes = range(half * _HALF_HOUR, (half + 1) * _HALF_HOUR)
            rows = [self._rows[n] for n in minutes if n in self._rows]
            if 2 * len(rows) >= _HALF_HOUR:
                self._halves[half] = _half_hour(rows)
                days.add(half // DAY)
        self._forget()
        for day in days:
            of_day = {n: self._halves[n] for n in range(day * DAY, (day + 1) * DAY) if n in self._halves}
            self._store.put(f"half-hours/{day % _DAY_CHUNKS}", of_day)

    def _forget(self) -> None:
        for rows, kept in ((self._rows, MINUTES), (self._halves, MOST_DAYS * DAY)):
            last = next(reversed(rows), 0)
            while rows and (first := next(iter(rows))) <= last - kept:
                del rows[first]


def _half_hour(rows: Sequence[Minute]) -> HalfHour:
    return HalfHour(
        len(rows),
        _mean([row.rps for row in rows if row.rps is not None]),
        sum(row.usd_per_hour for row in rows) / _HOUR,
        sum(row.requests for row in rows),
        sum(row.in_time for row in rows),
        sum(row.by_functions for row in rows),
    )


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


def next_day_of(halves: Mapping[int, HalfHour], allowed: float, call_usd: float) -> NextDay | None:
    """Estimate the next day's bill and the probability of keeping the promise, from up to 45 days of half hours.

    Return None with less than 24 hours. `allowed` is the share of requests that may be late, `call_usd` the price of a
    function call. Assume that a plan costs in proportion to the load. Takes some milliseconds.
    """
    last = max(halves, default=-1)
    first = min(halves, default=0)
    if last + 1 - first < DAY:
        return None
    seen = [halves.get(n) for n in range(first, last + 1)]
    rates = [None if half is None else half.rps for half in seen]
    usd = [
        None if half is None else (half.usd + call_usd * half.by_functions) * _HALF_HOUR / half.minutes for half in seen
    ]
    in_time = [None if half is None else _share([(half.in_time, half.requests)]) for half in seen]
    return next_day(
        SeenHalfHours(_known(rates), _known(usd), 1.0 - _known(in_time)), allowed, lambda rates_rps: rates_rps
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
