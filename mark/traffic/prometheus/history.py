"""The last weeks of a workload in Prometheus: requests, ready replicas and latencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.time import DAY_S
from mark.traffic.prometheus.answers import PromAnswer, summed
from mark.traffic.prometheus.workload import STEPS_S, MetricsReader, Workload, rate_step
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.trace import Trace

LATENCY_STEP_S = 300.0
_LEAST_POINTS = 10
_RISING = 0.999  # share of steps that do not fall, from which it is a counter and no rate


@dataclass(frozen=True, slots=True, eq=False)
class LatencyBuckets:
    """Answers by latency: row i of `within` counts the answers of step i that took at most each of `bounds_s`.

    The last bound is infinite. `ends_s` are the Unix times at which the steps end.
    """

    bounds_s: FloatArray
    ends_s: FloatArray
    within: FloatArray

    def reaches(self, rt_max_s: float) -> bool:
        """Whether a finite bound is at `rt_max_s` or above; otherwise nobody knows which answers were late."""
        return rt_max_s <= float(self.bounds_s[-2]) * (1.0 + 1e-6)

    def late(self, rt_max_s: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return answers later than `rt_max_s` by step: interpolated, at least and at most.

        Within a bucket latencies are taken as spread evenly. The histogram must reach `rt_max_s` (see `reaches`).
        """
        total = self.within[:, -1]
        exact = np.flatnonzero(np.isclose(self.bounds_s, rt_max_s, rtol=1e-6))
        if len(exact):
            beyond = total - self.within[:, int(exact[0])]
            return beyond, beyond, beyond
        place = int(np.searchsorted(self.bounds_s, rt_max_s))
        below = self.within[:, place - 1] if place else np.zeros(len(total))
        upper_s, lower_s = float(self.bounds_s[place]), float(self.bounds_s[place - 1]) if place else 0.0
        inside = self.within[:, place] - below
        share = (rt_max_s - lower_s) / (upper_s - lower_s)
        return total - below - share * inside, total - self.within[:, place], total - below


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadHistory:
    """The data read. `trace` counts requests by step; `replicas` are the ready ones at Unix times `replicas_s`.

    `latency` is None without a histogram.
    """

    workload: Workload
    trace: Trace
    began_s: float
    replicas_s: FloatArray
    replicas: FloatArray
    latency: LatencyBuckets | None
    notes: tuple[str, ...] = ()

    @property
    def ended_s(self) -> float:
        return self.began_s + self.trace.duration_s

    def replicas_between(self, start_s: float, end_s: float) -> FloatArray:
        """Return the ready replicas at the steps of a span of Unix time."""
        return self.replicas[(self.replicas_s > start_s) & (self.replicas_s <= end_s)]


def read_history(
    reader: MetricsReader,
    workload: Workload,
    days: float,
    end_s: float,
    progress: Callable[[float], None] = lambda _: None,
) -> WorkloadHistory:
    """Read the `days` before `end_s`. Raises BadInput for unusable data, and the errors of the reader."""
    step_s = rate_step(reader, workload, end_s)
    if step_s is None:
        longest_s = STEPS_S[-1]
        what = f"has no rate over {longest_s:.0f} s: is it scraped at least every {longest_s / 2:.0f} s?"
        raise BadInput(what, workload.counted_by)
    end_s = math.floor(end_s / LATENCY_STEP_S) * LATENCY_STEP_S
    start_s = end_s - math.floor(days * DAY_S / LATENCY_STEP_S) * LATENCY_STEP_S
    read = reader.query_range(workload.rate_query(step_s), start_s + step_s, end_s, step_s)
    progress(0.4)
    ends_s, rps = _rates(read, workload)
    trace = trace_of_bins(workload.name, ends_s - step_s, rps * step_s, step_s)
    began_s = float(ends_s[0]) - step_s
    notes = [*workload.notes, *_notes("the rate", read)]
    if began_s - start_s >= DAY_S:
        notes.append(f"Prometheus has no requests before {(end_s - began_s) / DAY_S:.3g} days ago; {days:g} were asked")
    read = reader.query_range(workload.replicas, began_s + step_s, end_s, step_s)
    progress(0.6)
    replicas_s, replicas = summed(read, f"ready replicas ({workload.ready_by})")
    if replicas.min() < 0.0:
        raise BadInput("a number of replicas is negative", workload.ready_by, float(replicas.min()))
    if not replicas.any():
        raise BadInput("no replica was ever ready", workload.ready_by)
    notes += _notes("the replicas", read)
    missing = 1.0 - len(replicas) / max(1, round((end_s - began_s) / step_s))
    if missing > 0.01:
        notes.append(
            f"the number of replicas is not known for {missing:.0%} of the time, which costs the mean of the rest"
        )
    latency, more = _latency(reader, workload, began_s, end_s)
    progress(1.0)
    return WorkloadHistory(
        workload=workload,
        trace=replace(
            trace,
            read_as=f"{workload.counted_by} of Prometheus",
            began_s=began_s,
            unit=LoadUnit(workload.unit.name),  # its counts are still of this unit
        ),
        began_s=began_s,
        replicas_s=replicas_s,
        replicas=replicas,
        latency=latency,
        notes=(*notes, *more),
    )


def _rates(read: PromAnswer, workload: Workload) -> tuple[FloatArray, FloatArray]:
    """Return the end of each step and its requests/s."""
    ends_s, rps = summed(read, workload.counted_by)
    if rps.min() < 0.0:
        raise BadInput("a rate is negative", workload.counted_by, float(rps.min()))
    if not rps.any():
        raise BadInput("there are no requests in this time", workload.counted_by)
    steps = np.diff(rps)
    if len(rps) >= _LEAST_POINTS and np.mean(steps >= 0.0) >= _RISING and np.mean(steps > 0.0) > 0.5:
        raise BadInput("only rises, as a counter does: write sum(rate(...[1m]))", workload.counted_by)
    return ends_s, rps


def _latency(
    reader: MetricsReader, workload: Workload, began_s: float, end_s: float
) -> tuple[LatencyBuckets | None, tuple[str, ...]]:
    query = workload.buckets_query(LATENCY_STEP_S)
    if query is None:
        return None, ()
    read = reader.query_range(query, began_s + LATENCY_STEP_S, end_s, LATENCY_STEP_S)
    found = latency_buckets(read, workload, query, LATENCY_STEP_S)
    if found is None:
        return None, ("the latency histogram has no buckets with an infinite last one: lateness is not known",)
    return found, _notes("the latencies", read)


def latency_buckets(read: PromAnswer, workload: Workload, query: str, step_s: float) -> LatencyBuckets | None:
    """Return the answer to `query`, answers a second by `le`, as counts of steps; None without an infinite bound."""
    by_bound: dict[float, PromAnswer] = {}
    for one in read.series:
        try:
            bound_s = float(one.labels["le"]) * workload.bound_s
        except (KeyError, ValueError):
            raise BadInput(
                "is no histogram: write sum by (le) (rate(..._bucket[5m]))", "--query-latency", query
            ) from None
        by_bound[bound_s] = PromAnswer((*by_bound.get(bound_s, PromAnswer()).series, one))
    if len(by_bound) < 2 or not math.isinf(max(by_bound)):
        return None
    bounds_s = sorted(by_bound)
    ends_s, total = summed(by_bound[bounds_s[-1]], query)
    within = np.zeros((len(ends_s), len(bounds_s)))
    for column, bound_s in enumerate(bounds_s):
        times, values = summed(by_bound[bound_s], query)
        known = np.isin(times, ends_s)
        within[np.searchsorted(ends_s, times[known]), column] = values[known]
    # Buckets of one histogram are scraped together, but their rates are extrapolated separately.
    within = np.minimum(np.maximum.accumulate(within, axis=1), total[:, None]) * step_s
    return LatencyBuckets(np.array(bounds_s), ends_s, within)


def _notes(what: str, read: PromAnswer) -> tuple[str, ...]:
    undefined = (f"{read.undefined:,} points of {what} have no finite value and are gaps",) if read.undefined else ()
    return (*undefined, *(f"Prometheus warns about {what}: {text}" for text in read.warnings))
