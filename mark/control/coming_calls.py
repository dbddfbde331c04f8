"""What a stage of a pipeline will get, though the stages before it do not let it through yet.

In a surge a stage refuses what it cannot do until more instances serve, so the one behind it sees the surge only then,
and its own boots begin when those before it are over. All of them can know it at once, from what comes to the pipeline:
InferLine (Crankshaw et al., SoCC 2020, section 5) sizes every stage by the pipeline's arrivals for that reason.

Queries are counted at a stage that each of them calls alike: what arrives there, before admission, is the pipeline's
load as far as no stage before it refuses any.
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

_A_STEP = round(STEP_S / WINDOW_S)  # windows


@dataclass(frozen=True, slots=True)
class StageNow:
    """What is known of one stage: calls/s of its last windows as `Telemetry.windows_rps` has them.

    `misses`: it misses more of its last calls than it may. `capacity_rps` is what its plan holds and has launched; 0
    where no plan says it.
    """

    windows_rps: FloatArray
    misses: bool
    capacity_rps: float


def stage_now(telemetry: Telemetry, plan: Plan | None, resolved: ResolvedService) -> StageNow:
    """Of a stage that is bought as the service `resolved`, with its last plan."""
    misses = broken(telemetry.recent(), resolved.slo, resolved.service.slo_monitor)
    return StageNow(telemetry.windows_rps(), misses, 0.0 if plan is None else plan.capacity_rps)


@dataclass(frozen=True, slots=True)
class ComingCalls:
    """Queries/s that stages before this one will let through, by 5 s windows (newest last, NaN: not known), and how
    often each calls it, in the mean."""

    queries_rps: FloatArray
    per_query: float

    def last_minute_rps(self) -> float | None:
        """Calls/s, in the mean of the windows that are known."""
        known = self.queries_rps[np.isfinite(self.queries_rps)]
        return self.per_query * float(known.mean()) if len(known) else None

    def surprise_rps(self, windows: int, expected_rps: float) -> float | None:
        """Calls/s where the last `windows` hold more queries than `expected_rps` calls/s are of, beyond chance.

        It is queries that come by chance: the calls of a stage that few of them visit show a surge much later.
        """
        newest = self.queries_rps[max(0, len(self.queries_rps) - windows) :]
        seen_rps = surprise_rps(newest, expected_rps / self.per_query)
        return None if seen_rps is None else self.per_query * seen_rps


class PipelineCalls:
    """What each stage of a pipeline will get. Stages are in topological order, each by its place.

    `per_query` are the mean calls of a query by stage; `by_all` says which stages every query calls alike.
    """

    def __init__(self, per_query: Sequence[float], by_all: Sequence[bool]) -> None:
        self._per_query, self._by_all = tuple(per_query), tuple(by_all)

    def coming(self, stage: int, seen: Sequence[StageNow | None], together: Collection[int] = ()) -> ComingCalls | None:
        """What the stage will get by what is `seen` of all stages (None: nothing); None where that is what arrives.

        That is so while no stage before it misses calls. Else it gets what comes to the pipeline, but no more than the
        stages before it are to do once all that their plans hold serves: where one of them is at a limit, the surge
        never comes, and capacity for it would be paid for nothing. Stages that are bought `together` with this one are
        no such limit: they grow with it.
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
    """The rate of the last minute: what arrived, or what will come where that is more. None: neither is known."""
    known = [one for one in (rps, None if coming is None else coming.last_minute_rps()) if one is not None]
    return max(known, default=None)


def higher_windows_rps(windows_rps: FloatArray, coming: ComingCalls | None) -> FloatArray:
    """Return the 5 s windows of which `higher_rps` is the mean."""
    if coming is None:
        return windows_rps
    known = windows_rps[np.isfinite(windows_rps)]
    rps = coming.last_minute_rps()
    if rps is None or (len(known) and known.mean() >= rps):
        return windows_rps
    return coming.per_query * coming.queries_rps


def with_coming(load: Load, coming: ComingCalls | None) -> Load:
    """`load`, by the minute, whose last step has at least what will come; it ends with the newest window."""
    if coming is None or not len(load) or load.step_s != STEP_S or len(coming.queries_rps) < _A_STEP:
        return load
    rps = coming.last_minute_rps()
    if rps is None:
        return load
    peak_rps = coming.per_query * float(np.nanmax(coming.queries_rps)) if load.fine else rps
    mean, peak = load.mean_rps.copy(), load.peak_rps.copy()
    mean[-1], peak[-1] = np.fmax(mean[-1], rps), np.fmax(peak[-1], peak_rps)
    return replace(load, mean_rps=mean, peak_rps=np.fmax(peak, mean))
