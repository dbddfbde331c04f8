"""The observed load of another autoscaler's workload, from Prometheus: the port `Telemetry` without bouncers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import Lock

import numpy as np

from mark.control.ports import WINDOW_S, Clock, OverflowTotals, RecentAnswers, ReleaseCounts, Store, Telemetry
from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.domain.time import DAY_S, STEP_S
from mark_infra.telemetry.watched_workload import WorkloadMinutes, WorkloadNow

FRESH_S = 1.5 * STEP_S  # an older answer does not describe the present
MOST_MINUTES = round(2 * DAY_S / STEP_S)  # minutes to query at a time after a gap
_WINDOWS = round(STEP_S / WINDOW_S)
_KEY = "watched"
_NOTHING = WorkloadNow(0.0, None, None)


class WatchedLoad:
    """The port `Telemetry`. One thread adds Prometheus' answers, another one reads.

    The first `given` minutes of the clock are known, because the predictor's history ends there. A minute is returned
    only after Prometheus has answered for it, so that the minutes of an outage are learned later. Totals are in the
    store. All times are by the service's clock.
    """

    def __init__(self, store: Store, clock: Clock, *, given: int) -> None:
        self._store, self._clock, self._lock = store, clock, Lock()
        self._given = given
        self._minutes: list[tuple[float, float]] = []  # minutes since `_given`: requests/s, share in time
        self._now, self._now_s = _NOTHING, -math.inf
        kept = store.get(_KEY) or (0.0, 0.0)
        self._answered, self._in_time = float(kept[0]), float(kept[1])
        self.seen_s = -math.inf  # when Prometheus last had a rate

    # -- Prometheus' answers -------------------------------------------------------------------------------------------

    def missing(self, now_s: float) -> range:
        """Return the past minutes that are not known yet, in order, at most MOST_MINUTES.

        The oldest minutes of a longer gap are left out.
        """
        end = math.floor(now_s / STEP_S)
        with self._lock:
            first = self._given + len(self._minutes)
        return range(max(first, end - MOST_MINUTES), max(first, end))

    def add(self, minutes: range, found: WorkloadMinutes) -> None:
        """Add Prometheus' answer for `minutes`, the `missing` ones."""
        with self._lock:
            skipped = minutes.start - self._given - len(self._minutes)
            self._minutes += [(math.nan, math.nan)] * skipped
            self._minutes += [
                (rate if _is_rate(rate) else math.nan, share if 0.0 <= share <= 1.0 else math.nan)
                for rate, share in zip(found.rps.tolist(), found.in_time_share.tolist(), strict=True)
            ]

    def see(self, now: WorkloadNow) -> None:
        """Note Prometheus' newest answer."""
        with self._lock:
            self._now, self._now_s = now, self._clock.now_s()
            if _is_rate(now.rps):
                self.seen_s = self._now_s

    # -- the port ------------------------------------------------------------------------------------------------------

    def load(self) -> Load:
        with self._lock:
            first, minutes = self._given, list(self._minutes)
        rps = np.array([rate for rate, _ in minutes], dtype=np.float64)
        answered, in_time = self._answered, self._in_time
        for rate, share in minutes:
            if math.isfinite(rate) and math.isfinite(share):
                answered += rate * STEP_S
                in_time += rate * STEP_S * share
        if minutes:
            self._store.put(_KEY, (answered, in_time))
            with self._lock:
                self._answered, self._in_time = answered, in_time
                self._given, self._minutes = first + len(minutes), self._minutes[len(minutes) :]
        # Prometheus has no rates of 5 s, so a minute's peak is its mean, and the load is not fine.
        return Load(first * STEP_S, STEP_S, rps, rps, fine=False)

    def last_minute_rps(self) -> float | None:
        windows = self.windows_rps()
        return float(windows[-1]) if len(windows) else None

    def windows_rps(self) -> FloatArray:
        """Return the mean of the last minute for each of its windows, because Prometheus counts no shorter ones."""
        rps = self._fresh().rps
        return np.full(_WINDOWS, rps) if rps is not None and _is_rate(rps) else np.empty(0)

    def recent(self) -> RecentAnswers:
        now = self._fresh()
        answered, in_time = now.answered, now.in_time
        if answered is None or in_time is None or not 0.0 <= in_time <= answered < math.inf:
            return RecentAnswers(0, 0)
        return RecentAnswers(round(answered), round(in_time))

    def answers(self) -> RecentAnswers:
        """Return the answers whose latency Prometheus has."""
        return RecentAnswers(round(self._answered), round(self._in_time))

    def utilization(self) -> Mapping[str, float]:
        return {}

    def overflow(self) -> OverflowTotals:
        return OverflowTotals(0, 0.0)

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        return {}

    def _fresh(self) -> WorkloadNow:
        with self._lock:
            now, at_s = self._now, self._now_s
        return now if self._clock.now_s() - at_s <= FRESH_S else _NOTHING


def _is_rate(rps: float | None) -> bool:
    return rps is not None and math.isfinite(rps) and rps >= 0.0


_: type[Telemetry] = WatchedLoad
