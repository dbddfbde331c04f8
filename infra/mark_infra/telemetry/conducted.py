"""Queries of a pipeline, counted by its conductors: the share that was in time, and their latencies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from mark.control.history import MINUTES, equal_steps
from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers
from mark.control.views import QueriesHistorySchema, QueriesSchema
from mark.domain.arrays import FloatArray
from mark.domain.time import MINUTE_S
from mark.serving.backend.metrics import SECONDS
from mark_infra.telemetry.counters import BouncerCounters
from mark_infra.telemetry.latency_quantile import latency_quantile_s

_PER_MINUTE = round(MINUTE_S / WINDOW_S)
_NO_SIZES = np.zeros(len(SECONDS) + 1)


@dataclass(frozen=True, eq=False, slots=True)
class _Counts:
    """The conductors' counts in some windows. `heard`: a conductor that had been read before has answered."""

    windows: int = 0
    heard: bool = False
    queries: float = 0.0  # answered or refused
    missed: float = 0.0  # late or refused
    answered: float = 0.0  # not refused
    latency_s: float = 0.0  # of the answered queries
    within: FloatArray = field(default_factory=lambda: _NO_SIZES)  # of the same, by size as in `BouncerCounters`
    wanted: Mapping[str, float] = field(default_factory=dict)  # calls by stage, as in `BouncerCounters`

    def __add__(self, other: _Counts) -> _Counts:
        return _Counts(
            self.windows + other.windows,
            self.heard or other.heard,
            self.queries + other.queries,
            self.missed + other.missed,
            self.answered + other.answered,
            self.latency_s + other.latency_s,
            self.within + other.within,
            {
                stage: self.wanted.get(stage, 0.0) + other.wanted.get(stage, 0.0)
                for stage in {**self.wanted, **other.wanted}
            },
        )

    def quantile_s(self, quantile: float, rt_max_s: float) -> float | None:
        """Return the latency quantile of the answered queries. The share within RT_max is known exactly."""
        return latency_quantile_s(self.within.tolist(), quantile, (rt_max_s, self.queries - self.missed))

    @property
    def attainment(self) -> float | None:
        return (self.queries - self.missed) / self.queries if self.queries else None


class ConductedQueries:
    """A pipeline's queries of the last day. Thread-safe.

    `unix_s` converts a time of the windows' clock to Unix time. `look_back` is the approximate number of queries in
    `recent`, which takes whole windows of at most `RECENT_S` in all. Counts from before a conductor's first read, and
    from a time in which it was not read, may be old and are left out. Nothing outlives the process.
    """

    def __init__(self, rt_max_s: float, unix_s: Callable[[float], float] = float, look_back: int = 1000) -> None:
        self._rt_max_s, self._unix_s, self._look_back = rt_max_s, unix_s, look_back
        self._windows: deque[_Counts] = deque(maxlen=round(RECENT_S / WINDOW_S))
        self._minutes: dict[int, _Counts] = {}  # by minute, ascending
        self._window: int | None = None  # number of the last window
        self._last: dict[str, BouncerCounters] = {}  # by conductor
        self._lock = Lock()

    def close_window(self, window: int, asked: Collection[str], answered: Mapping[str, BouncerCounters]) -> None:
        """Add the counts of window number `window`, from the conductors that were `asked` and `answered`.

        The counters start with their conductor, so a conductor's first answer only sets the start of its counts.
        """
        passed = 1 if self._window is None else max(1, window - self._window)
        counts = _Counts(windows=passed)
        for name, now in answered.items():
            if (before := self._last.get(name)) is not None:
                grown = now.since(before)
                within = np.array(grown.within) if len(grown.within) == len(_NO_SIZES) else _NO_SIZES
                missed = min(grown.misses, grown.requests)
                wanted = dict(grown.wanted)
                counts += _Counts(0, True, grown.requests, missed, grown.answered, grown.latency_s, within, wanted)
        known = {**self._last, **answered}
        self._last = {name: known[name] for name in asked if name in known}
        minute = window // _PER_MINUTE
        with self._lock:
            self._window = window
            self._windows.append(counts)
            self._minutes[minute] = self._minutes.get(minute, _Counts()) + counts
            while next(iter(self._minutes)) <= minute - MINUTES:
                del self._minutes[next(iter(self._minutes))]

    def recent(self) -> RecentAnswers:
        """Return the last answered or refused queries; latencies are of the answered ones."""
        found = _Counts()
        with self._lock:
            for window in reversed(self._windows):
                found += window
                if found.queries >= self._look_back:
                    break
        return RecentAnswers(
            round(found.queries),
            round(found.queries - found.missed),
            found.latency_s / found.answered if found.answered else None,
            found.quantile_s(0.5, self._rt_max_s),
            found.quantile_s(0.99, self._rt_max_s),
        )

    def wanted_rps(self, stage: str) -> FloatArray | None:
        """Return the calls/s of the stage that selections want at planned prices, by window of the last minute.

        The newest window is last; NaN: no conductor answered. None if no conductor counts them.
        """
        with self._lock:
            newest = list(self._windows)[-_PER_MINUTE:]
        if not any(stage in one.wanted for one in newest):
            return None
        return np.array(
            [one.wanted.get(stage, 0.0) / (one.windows * WINDOW_S) if one.heard else np.nan for one in newest]
        )

    def view(self) -> QueriesSchema:
        """Return the present figures of whole queries."""
        recent, minute = self.recent(), _Counts()
        with self._lock:
            for window in reversed(self._windows):
                if minute.windows >= _PER_MINUTE:
                    break
                minute += window
        return QueriesSchema(
            per_s=self._per_s(minute),
            recent=recent.in_time / recent.count if recent.count else None,
            recent_ms=_ms(recent.latency_s),
            recent_p50_ms=_ms(recent.p50_s),
            recent_p99_ms=_ms(recent.p99_s),
        )

    def history(self, hours: float, points: int) -> QueriesHistorySchema:
        """Return the last `hours` (at most 24) in at most `points` equal steps of whole minutes.

        The last step may be incomplete.
        """
        with self._lock:
            minutes = dict(self._minutes)
        steps = equal_steps(max(minutes, default=-1), hours, points)
        found = [sum((minutes[n] for n in step if n in minutes), _Counts()) for step in steps]
        start_unix_s = self._unix_s(steps[0].start * MINUTE_S)
        return QueriesHistorySchema(
            start_unix_s=start_unix_s,
            step_s=self._unix_s(steps[0].stop * MINUTE_S) - start_unix_s,
            per_s=tuple(self._per_s(step) for step in found),
            attainment=tuple(step.attainment for step in found),
            p50_ms=tuple(_ms(step.quantile_s(0.5, self._rt_max_s)) for step in found),
            p99_ms=tuple(_ms(step.quantile_s(0.99, self._rt_max_s)) for step in found),
        )

    def _per_s(self, counts: _Counts) -> float | None:
        """Return the queries per second of wall time."""
        window_s = self._unix_s(WINDOW_S) - self._unix_s(0.0)
        return counts.queries / (counts.windows * window_s) if counts.heard else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
