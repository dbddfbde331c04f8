"""A workload as its Prometheus knows it now and minute by minute: the port `WatchedWorkload` over queries."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mark.control.ports import RECENT_S
from mark.domain.arrays import FloatArray
from mark.domain.time import DAY_S, STEP_S
from mark.traffic.prometheus.answers import PromAnswer, summed
from mark.traffic.prometheus.history import latency_buckets, rates_of
from mark.traffic.prometheus.workload import STEPS_S, TimedReader, Workload, rate_step
from mark_infra.telemetry.watched_workload import WatchedWorkload, WorkloadMinutes, WorkloadNow


class PrometheusWorkload:
    """Asks `reader` for the workload that `find` finds. Both are asked again until Prometheus has answered once.

    Rates are means over the shortest window that has at least two scrapes in it. Raises what the reader raises.
    """

    def __init__(self, reader: TimedReader, find: Callable[[float], Workload], rt_max_s: float) -> None:
        self._reader, self._find, self._rt_max_s = reader, find, rt_max_s
        self._found: tuple[Workload, float] | None = None

    def found(self) -> tuple[Workload, float]:
        """The workload, and the window of its rates."""
        if self._found is None:
            now_s = self._reader.now_s()
            workload = self._find(now_s)
            window_s = rate_step(self._reader, workload, now_s) or STEPS_S[-1]
            day = self._reader.query_range(workload.rate_query(window_s), now_s - DAY_S, now_s, window_s)
            if day.series:
                rates_of(day, workload)  # a query of the user's own may be no rate
            self._found = workload, window_s
        return self._found

    def now(self) -> WorkloadNow:
        workload, window_s = self.found()
        at_s = self._reader.now_s()
        rps = _last(self._reader.query(workload.rate_query(window_s), at_s))
        ready = _last(self._reader.query(workload.replicas, at_s))
        replicas = None if ready is None else round(ready)
        if rps is None and replicas == 0:
            rps = 0.0  # pods that do not exist export no counter
        query = workload.buckets_query(max(RECENT_S, window_s))
        if rps is None or query is None:
            return WorkloadNow(at_s, rps, replicas)
        share = self._in_time(self._reader.query(query, at_s), query, np.array([at_s]))[0]
        if not math.isfinite(share):
            return WorkloadNow(at_s, rps, replicas)
        answered = RECENT_S * rps
        return WorkloadNow(at_s, rps, replicas, answered, answered * float(share))

    def minutes(self, begin_unix_s: float, count: int) -> WorkloadMinutes:
        workload, window_s = self.found()
        ends_s = _ends(begin_unix_s, count)
        asked = float(ends_s[0]), float(ends_s[-1]), STEP_S
        rps = _at(ends_s, self._reader.query_range(workload.rate_query(window_s), *asked))
        if np.isnan(rps).any():
            ready = _at(ends_s, self._reader.query_range(workload.replicas, *asked))
            rps[np.isnan(rps) & (ready == 0.0)] = 0.0
        query = workload.buckets_query(window_s)
        if query is None:
            return WorkloadMinutes(rps, np.full(count, math.nan))
        return WorkloadMinutes(rps, self._in_time(self._reader.query_range(query, *asked), query, ends_s))

    def _in_time(self, answer: PromAnswer, query: str, times_s: FloatArray) -> FloatArray:
        """The share of answers within RT_max at these times; NaN where there was none, or where no bucket tells."""
        workload, _ = self.found()
        found = np.full(len(times_s), math.nan)
        buckets = latency_buckets(answer, workload, query, STEP_S)
        if buckets is not None and buckets.reaches(self._rt_max_s):
            total, (late, _, _) = buckets.within[:, -1], buckets.late(self._rt_max_s)
            some = total > 0.0
            _put(found, times_s, buckets.ends_s[some], 1.0 - late[some] / total[some])
        return found


def _ends(begin_s: float, count: int) -> FloatArray:
    """When the minutes from `begin_s` on end."""
    return np.asarray(begin_s + STEP_S * np.arange(1, count + 1), dtype=np.float64)


def _last(answer: PromAnswer) -> float | None:
    return float(summed(answer, "")[1][-1]) if answer.series else None


def _at(times_s: FloatArray, answer: PromAnswer) -> FloatArray:
    """The sum of all series at these times; NaN where there is none."""
    found = np.full(len(times_s), math.nan)
    if answer.series:
        _put(found, times_s, *summed(answer, ""))
    return found


def _put(found: FloatArray, times_s: FloatArray, at_s: FloatArray, values: FloatArray) -> None:
    """Write values into the places of their times, of which one follows the other by STEP_S."""
    place = np.rint((at_s - times_s[0]) / STEP_S).astype(int)
    inside = (place >= 0) & (place < len(times_s))
    found[place[inside]] = values[inside]


_: type[WatchedWorkload] = PrometheusWorkload
