"""The last weeks of a workload in Prometheus: requests, ready replicas and latencies."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.percent import percent
from mark.domain.time import DAY_S
from mark.traffic.prometheus.answers import PromAnswer, summed
from mark.traffic.prometheus.workload import SCRAPED, STEPS_S, MetricsReader, Workload, rate_step
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.trace import Trace

LATENCY_STEP_S = 300.0
_LEAST_POINTS = 10
_RISING = 0.95  # share of steps that do not fall, from which it is a counter (with restarts) and no rate
_WHOLE = 0.5  # share of steps with a whole number of replicas, below which the query counts something else
_APART = 2.0  # factor between the answers in the histogram and the requests, from which they differ in kind
_RATE = re.compile(r"\b(?:i?rate|i?delta|deriv)\s*\(")  # its answer is no counter, although it may rise for hours
_MEAN = "avg_over_time("  # of a number of replicas it has fractions
_PERIODS_S, _SAME = (60.0, 300.0, 3600.0), 0.03  # of counts that may stand in place of a rate
_LEAST_HISTORY_S = 1800.0
_EXPORTING = 0.9  # of the ready pods; with fewer the sum of their rates is too low
_MOST_UNSCRAPED = 0.5  # of the time; with more the history is refused


@dataclass(frozen=True, slots=True, eq=False)
class LatencyBuckets:
    """Answers by latency: row i of `within` counts the answers of step i that took at most each of `bounds_s`.

    The last bound is infinite. `ends_s` are the Unix times at which the steps end. A step has no count of a bound that
    a deployment added later or removed before: `known` is False there, and `within` is interpolated.
    """

    bounds_s: FloatArray
    ends_s: FloatArray
    within: FloatArray
    known: BoolArray | None = None  # None: everywhere

    def reaches(self, rt_max_s: float) -> bool:
        """Whether the finite bounds tell which answers were late.

        Nobody knows above the last one. Far below the first one all answers lie in one bucket, as with `le` in
        milliseconds.
        """
        first_s, last_s = float(self.bounds_s[0]), float(self.bounds_s[-2])
        return 0.5 * first_s <= rt_max_s * (1.0 + 1e-6) and rt_max_s <= last_s * (1.0 + 1e-6)

    def late(self, rt_max_s: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return answers later than `rt_max_s` by step: interpolated, at least and at most.

        Within a bucket latencies are taken as spread evenly. The histogram must reach `rt_max_s` (see `reaches`).
        A step without a finite bound at or above it counts its last bucket as late.
        """
        columns, rows = np.arange(len(self.bounds_s)), np.arange(len(self.within))
        known = np.isfinite(self.within) if self.known is None else self.known
        below = np.where(known & (self.bounds_s <= rt_max_s * (1.0 + 1e-6)), columns, -1).max(axis=1)
        above = np.where(known & (self.bounds_s >= rt_max_s * (1.0 - 1e-6)), columns, columns[-1]).min(axis=1)
        total, sooner = self.within[:, -1], np.where(below >= 0, self.within[rows, below], 0.0)
        lower_s = np.where(below >= 0, self.bounds_s[below], 0.0)
        inside, width_s = self.within[rows, above] - sooner, self.bounds_s[above] - lower_s
        share = np.divide(rt_max_s - lower_s, width_s, out=np.zeros(len(rows)), where=below < above)
        return total - sooner - share * inside, total - self.within[rows, above], total - sooner


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
    ends_s, rps = rates_of(read, workload)
    if not rps.any():
        raise BadInput("there are no requests in this time", workload.counted_by)
    began_s = float(ends_s[0]) - step_s
    if end_s - began_s < _LEAST_HISTORY_S:
        what = (
            f"has requests of {(end_s - began_s) / 60.0:.0f} minutes only; half an hour is needed: wait, or ask later"
        )
        raise BadInput(what, workload.counted_by)
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
    parts = replicas[np.abs(replicas - np.rint(replicas)) > 1e-6]
    if len(parts) > (1.0 - _WHOLE) * len(replicas) and _MEAN not in workload.replicas:
        what = "is seldom a whole number, so that it does not count ready replicas"
        raise BadInput(what, workload.ready_by, f"{parts[-1]:.6g}")
    notes += _notes("the replicas", read)
    grid_s = began_s + step_s * np.arange(1, round((end_s - began_s) / step_s) + 1)
    if workload.pods_are_replicas:
        # Without pods there is no metric at all, which is no gap if Prometheus scraped others meanwhile.
        scraped = reader.query_range(SCRAPED, began_s + step_s, end_s, step_s)
        alive_s = summed(scraped, SCRAPED)[0] if scraped.series else np.zeros(0)
        away_s = _absent(_absent(alive_s, replicas_s), ends_s)
        replicas_s, replicas = _with_zeros(replicas_s, replicas, away_s)
    known = _scraped(reader, workload, ends_s, replicas_s, replicas, notes)
    ends_s, rps = ends_s[known], rps[known]
    asleep_s = _absent(replicas_s[replicas == 0.0], ends_s)
    if len(asleep_s):
        share = len(asleep_s) / len(grid_s)
        notes.append(
            f"no replica was ready and no request was counted for {percent(share, 0)} of the time: scaled to zero"
        )
    ends_s, rps = _with_zeros(ends_s, rps, asleep_s)
    trace = trace_of_bins(workload.name, ends_s - step_s, rps * step_s, step_s)
    missing = 1.0 - len(replicas) / len(grid_s)
    if missing > 0.01:
        notes.append(
            f"the number of replicas is not known for {percent(missing, 0)} of the time, "
            "which costs the mean of the rest"
        )
    requests = np.append(0.0, np.cumsum(rps)) * step_s / workload.unit.size
    latency, more = _latency(reader, workload, ends_s, requests, began_s, end_s)
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


def _absent(times_s: FloatArray, known_s: FloatArray) -> FloatArray:
    """Return those of `times_s` that are not among `known_s`, both on one grid of steps."""
    return times_s[~np.isin(np.rint(times_s), np.rint(known_s))]


def _with_zeros(times_s: FloatArray, values: FloatArray, zero_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the series with a zero at each of `zero_s`."""
    order = np.argsort(whole_s := np.concatenate([times_s, zero_s]), kind="stable")
    return whole_s[order], np.concatenate([values, np.zeros(len(zero_s))])[order]


def _scraped(
    reader: MetricsReader,
    workload: Workload,
    ends_s: FloatArray,
    replicas_s: FloatArray,
    replicas: FloatArray,
    notes: list[str],
) -> BoolArray:
    """Return in which steps enough of the ready pods were scraped; the others get a note and become gaps.

    A pod that became ready in the last minutes may not be scraped yet, so the fewest ready pods of five minutes count.
    Raises BadInput if that is most of the time.
    """
    known = np.ones(len(ends_s), bool)
    first_s, last_s = float(replicas_s[0]), float(replicas_s[-1])
    if workload.targets:
        read = reader.query_range(workload.targets, first_s, last_s, LATENCY_STEP_S)
        down = summed(read, workload.targets)[1] < _EXPORTING if read.series else np.zeros(1, bool)
        if down.any():
            notes.append(
                f"for {percent(down.mean(), 0)} of the time targets of the metric did not answer Prometheus "
                f"({workload.targets} below {_EXPORTING:g}): rates and replicas may be too low"
            )
    if not workload.exporting:
        return known
    read = reader.query_range(workload.exporting, first_s, last_s, LATENCY_STEP_S)
    if not read.series:
        return known
    at_s, exporting = summed(read, workload.counted_by)
    begins, ends = (np.searchsorted(replicas_s, edge_s, "right") for edge_s in (at_s - LATENCY_STEP_S, at_s))
    ready = np.array([replicas[i:j].min(initial=np.inf) for i, j in zip(begins.tolist(), ends.tolist(), strict=True)])
    short = np.isfinite(ready) & (exporting < _EXPORTING * ready)
    if not short.any():
        return known
    share = float(short.mean())
    seen = f"{np.median(exporting[short]):g} of {np.median(ready[short]):g} ready pods"
    if share > _MOST_UNSCRAPED:
        what = f"only {seen} export it, so the sum of their rates is too low: scrape them all, or say --query-rate"
        raise BadInput(what, workload.counted_by)
    notes.append(f"only {seen} exported requests for {percent(share, 0)} of the time, which is a gap")
    place = np.searchsorted(at_s, ends_s - 1.0)  # a step belongs to the five minutes that end after it
    known[place < len(at_s)] = ~short[place[place < len(at_s)]]
    return known


def rates_of(read: PromAnswer, workload: Workload) -> tuple[FloatArray, FloatArray]:
    """Return the end of each step and its requests/s. Raises BadInput for an answer that is no rate of requests."""
    ends_s, rps = summed(read, workload.counted_by)
    bounds = [one.labels["le"] for one in read.series if one.labels.get("le", "+Inf") != "+Inf"]
    if bounds:
        what = "counts the requests of one bucket only: write sum(rate(..._count[1m]))"
        raise BadInput(what, workload.counted_by, f"le {bounds[0]}")
    if rps.min() < 0.0:
        raise BadInput("a rate is negative", workload.counted_by, float(rps.min()))
    steps, may_count = np.diff(rps), len(rps) >= _LEAST_POINTS and _RATE.search(workload.rate) is None
    if may_count and np.mean(steps >= 0.0) >= _RISING and np.mean(steps > 0.0) > 0.5:
        raise BadInput("only rises, as a counter does: write sum(rate(...[1m]))", workload.counted_by)
    return ends_s, rps


def _latency(
    reader: MetricsReader, workload: Workload, ends_s: FloatArray, requests: FloatArray, began_s: float, end_s: float
) -> tuple[LatencyBuckets | None, tuple[str, ...]]:
    """Return the latencies and notes; `requests` came before the first step's begin and until each step's end."""
    query = workload.buckets_query(LATENCY_STEP_S)
    if query is None:
        return None, ()
    read = reader.query_range(query, began_s + LATENCY_STEP_S, end_s, LATENCY_STEP_S)
    found = latency_buckets(read, workload, query, LATENCY_STEP_S)
    if not read.series:
        return None, ("the latency histogram has no points: lateness is not known",)
    if found is None:
        return None, ("the latency histogram has no buckets with an infinite last one: lateness is not known",)
    # Only times with points of both are compared: a service that is scaled to zero has no histogram.
    first, last = (np.searchsorted(ends_s, at_s + 1.0) for at_s in (found.ends_s - LATENCY_STEP_S, found.ends_s))
    counted = float((requests[last] - requests[first]).sum())
    share = float(found.within[last > first, -1].sum()) / counted if counted > 0.0 else 1.0
    if share > _APART and query == workload.buckets:
        what = "counts more answers than there were requests: write sum by (le) (rate(..._bucket[5m]))"
        raise BadInput(what, query, f"{share:.3g} answers a request")
    period_s = next((one for one in _PERIODS_S if abs(share * one - 1.0) < _SAME), None)
    if period_s is not None and not workload.scrapes:
        what = f"is {period_s:g} times the answers in the histogram: write rate(...), which is per second"
        raise BadInput(what, workload.counted_by)
    notes = _notes("the latencies", read)
    if not 1.0 / _APART <= share <= _APART:
        notes += (f"the latency histogram has {share:.2g} answers a request; they stand for all",)
    return found, notes


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
        # Of one bound, `le` may be written in two ways.
        part = replace(one, labels={name: value for name, value in one.labels.items() if name != "le"})
        by_bound[bound_s] = PromAnswer((*by_bound.get(bound_s, PromAnswer()).series, part))
    if len(by_bound) < 2 or not math.isinf(max(by_bound)):
        return None
    bounds_s = sorted(by_bound)
    ends_s, total = summed(by_bound[bounds_s[-1]], query)
    within = np.full((len(ends_s), len(bounds_s)), np.nan)
    for column, bound_s in enumerate(bounds_s):
        times, values = summed(by_bound[bound_s], query)
        there = np.isin(times, ends_s)
        within[np.searchsorted(ends_s, times[there]), column] = values[there]
    known, finite_s = np.isfinite(within), np.array(bounds_s[:-1])
    for row in np.flatnonzero(~known.all(axis=1)):
        has = known[row, :-1]
        at_s, counts = np.append(0.0, finite_s[has]), np.append(0.0, within[row, :-1][has])
        within[row, :-1] = np.interp(finite_s, at_s, counts)
    # Buckets of one histogram are scraped together, but their rates are extrapolated separately.
    within = np.minimum(np.maximum.accumulate(within, axis=1), total[:, None]) * step_s
    return LatencyBuckets(np.array(bounds_s), ends_s, within, known)


def _notes(what: str, read: PromAnswer) -> tuple[str, ...]:
    undefined = (f"{read.undefined:,} points of {what} have no finite value and are gaps",) if read.undefined else ()
    return (*undefined, *(f"Prometheus warns about {what}: {text}" for text in read.warnings))
