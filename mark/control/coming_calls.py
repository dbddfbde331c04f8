"""The calls that a stage of a pipeline will get once the stages before it let them through.

In a surge a stage refuses calls until more instances serve. The stage behind it sees the surge only then, so its boots
begin only after the stage before has booted. The arrivals at the pipeline show the surge to all stages immediately, so
every stage is sized by them, as in InferLine (Crankshaw et al., SoCC 2020, section 5).

Queries are counted at a stage that every query calls equally often. Its arrivals, before admission, are the pipeline's
load, less the queries that the stages before it refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.control.monitor import broken
from mark.control.ports import WINDOW_S, Telemetry
from mark.control.traffic_envelope import surprise_rps
from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S

_A_STEP = round(STEP_S / WINDOW_S)  # in windows


@dataclass(frozen=True, slots=True)
class StageNow:
    """The present state of one stage.

    `windows_rps` are its calls/s, as in `Telemetry.windows_rps`. `misses`: its last calls broke its SLO. `capacity_rps`
    is the capacity of its plan; 0 without one.
    """

    windows_rps: FloatArray
    misses: bool
    capacity_rps: float


def stage_now(telemetry: Telemetry, plan: Plan | None, resolved: ResolvedService) -> StageNow:
    """Return the state of a stage, from the `resolved` service that buys its instances and that service's last plan."""
    misses = broken(telemetry.recent(), resolved.slo, resolved.service.slo_monitor)
    return StageNow(telemetry.windows_rps(), misses, 0.0 if plan is None else plan.capacity_rps)


@dataclass(frozen=True, slots=True)
class ComingCalls:
    """Queries/s that the stages before will let through, and the mean number of calls of a query to this stage.

    The rates are of 5 s windows, newest last; NaN if unknown.
    """

    queries_rps: FloatArray
    per_query: float

    def last_minute_rps(self) -> float | None:
        """Return the mean calls/s of the known windows; None if all are unknown."""
        known = self.queries_rps[np.isfinite(self.queries_rps)]
        return self.per_query * float(known.mean()) if len(known) else None

    def surprise_rps(self, windows: int, expected_rps: float) -> float | None:
        """Return the calls/s if the last `windows` have more queries, beyond chance, than `expected_rps` explains.

        The test counts queries, because at a stage that few of them visit, its calls show a surge much later.
        """
        newest = self.queries_rps[max(0, len(self.queries_rps) - windows) :]
        seen_rps = surprise_rps(newest, expected_rps / self.per_query)
        return None if seen_rps is None else self.per_query * seen_rps


class PipelineCalls:
    """The calls that each stage of a pipeline will get. Stages are numbered in topological order.

    `per_query` are the mean calls of a query by stage; `by_all` tells which stages every query calls equally often.
    """

    def __init__(self, per_query: Sequence[float], by_all: Sequence[bool]) -> None:
        self._per_query, self._by_all = tuple(per_query), tuple(by_all)

    def coming(self, stage: int, seen: Sequence[StageNow | None], together: Collection[int] = ()) -> ComingCalls | None:
        """Return the calls that the stage will get, from the state `seen` of each stage (None: unknown).

        The result is None while no stage before it misses calls, because then the arrivals show the load. Otherwise it
        is the pipeline's load, but at most the planned capacity of the stages before: if one of them is at a limit, the
        surge never arrives, and capacity for it would be wasted. Stages that are bought `together` with this one do not
        bound it, because they grow with it.
        """
        before = [(at, seen[at], self._per_query[at]) for at in range(stage)]
        known = [(at, one, per_query) for at, one, per_query in before if one is not None and per_query > 0.0]
        if self._per_query[stage] <= 0.0 or not any(one.misses for _, one, _ in known):
            return None
        queries_rps = next((one.windows_rps / per_query for at, one, per_query in known if self._by_all[at]), None)
        if queries_rps is None:
            return None
        limits = [one.capacity_rps / n for at, one, n in known if at not in together and one.capacity_rps > 0.0]
        most_rps = min(limits, default=np.inf)
        return ComingCalls(np.minimum(queries_rps, most_rps), self._per_query[stage])


def higher_rps(rps: float | None, coming: ComingCalls | None) -> float | None:
    """Return the rate of the last minute or of the coming calls, whichever is higher; None if both are unknown."""
    if coming is None:
        return rps
    return max((one for one in (rps, coming.last_minute_rps()) if one is not None), default=None)


def higher_windows_rps(windows_rps: FloatArray, coming: ComingCalls | None) -> FloatArray:
    """Return the 5 s windows whose mean is `higher_rps`."""
    if coming is None:
        return windows_rps
    known = windows_rps[np.isfinite(windows_rps)]
    rps = coming.last_minute_rps()
    if rps is None or (len(known) and known.mean() >= rps):
        return windows_rps
    return coming.per_query * coming.queries_rps


def with_coming(load: Load, coming: ComingCalls | None) -> Load:
    """Raise the last minute of a load by the minute to the coming calls; return any other load unchanged."""
    if coming is None or not len(load) or load.step_s != STEP_S or len(coming.queries_rps) < _A_STEP:
        return load
    rps = coming.last_minute_rps()
    if rps is None:
        return load
    peak_rps = coming.per_query * float(np.nanmax(coming.queries_rps)) if load.fine else rps
    mean, peak = load.mean_rps.copy(), load.peak_rps.copy()
    mean[-1], peak[-1] = np.fmax(mean[-1], rps), np.fmax(peak[-1], peak_rps)
    return replace(load, mean_rps=mean, peak_rps=np.fmax(peak, mean))
