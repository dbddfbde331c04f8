"""The result of a pipeline's run: bill, promise and latency, in total and by stage."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.function_offer import FunctionCalls
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo
from mark.simulation.coded_flow import CodedAnswers
from mark.simulation.request import RunRequest
from mark.simulation.result import Latency
from mark.simulation.selected_calls import SelectedQueries, SelectionRun, selection_run
from mark.traffic.traces.trace import Part, Trace


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """The calls of a stage's function, and its dollars."""

    name: str  # lambda:MEMORY_MB
    called: FunctionCalls
    usd: float


@dataclass(frozen=True, slots=True)
class StageRun:
    """Cost and work of one stage. `busy` is the share of the paid time in which its workers are at work."""

    stage: str
    hardware: str
    batch: int  # the largest
    calls: int
    usd: float  # for instances and functions, and for calls that are paid by the call
    instances: float  # mean; if stages share instances, of all that it is on
    most_instances: int  # at a time
    busy: float
    wait_s: float  # mean time from ready to start, of calls that an instance answered
    function: FunctionRun | None = None  # None: no function used
    part_s: float | None = None  # its part of the pipeline's RT_max; None: no fixed part
    call_usd: float = 0.0  # for calls that are paid by the call
    paid: tuple[float, ...] = ()  # instances by the minute, if a controller bought them

    @property
    def function_usd(self) -> float:
        return 0.0 if self.function is None else self.function.usd

    @property
    def by_function(self) -> FunctionCalls:
        return FunctionCalls() if self.function is None else self.function.called

    @property
    def function_share(self) -> float | None:
        """The function's share of the stage's calls; None without calls."""
        return self.by_function.calls / self.calls if self.calls else None


@dataclass(frozen=True, slots=True)
class ParityRun:
    """The work of parity models in a run."""

    groups: int
    parity_calls: int  # of each parity model
    reconstructed: int  # queries that were answered by reconstruction
    saved: int  # reconstructed queries that were in time and whose exact answer was late
    degraded_share: float  # share of all queries that were answered by reconstruction


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """One policy on one part of a trace; the part begins `start_s` after the trace's first row."""

    service: str
    policy: str
    seed: int
    slo: Slo
    prices: str
    trace: str
    start_s: float
    duration_s: float
    queries: int
    misses: int  # queries that were not answered within RT_max
    worst_minute_attainment: float
    minutes_below_target: int
    latency_ms: Latency
    usd: float
    instances: float  # mean
    most_instances: int  # at a time
    stages: tuple[StageRun, ...]  # in the pipeline's order; their dollars sum to `usd`
    planned_on: Part
    notes: tuple[str, ...]
    bound_usd: float | None = None  # None: not requested, or no fleet answers enough queries in time
    names_functions: bool = False  # whether the file names a function for any stage
    read: str = ""  # the trace that was read, in words
    selection: SelectionRun | None = None  # if the file has a selection
    parity: ParityRun | None = None  # if the service has parity models

    @property
    def attainment(self) -> float:
        return 1.0 - self.misses / self.queries

    @property
    def kept(self) -> bool:
        """Whether the run kept the promise."""
        return self.attainment >= self.slo.attainment - 1e-12

    @property
    def usd_per_million(self) -> float:
        """Dollars per million queries."""
        return self.usd / self.queries * 1e6

    @property
    def regret(self) -> float | None:
        """The bill over the bound; None without a bound, and if the promise was missed."""
        return self.usd / self.bound_usd if self.kept and self.bound_usd else None

    @property
    def function_usd(self) -> float:
        return sum(stage.function_usd for stage in self.stages)

    @property
    def call_usd(self) -> float:
        return sum(stage.call_usd for stage in self.stages)

    @property
    def by_function(self) -> FunctionCalls:
        """The function calls of all stages together."""
        called = [stage.by_function for stage in self.stages]
        return FunctionCalls(
            calls=sum(one.calls for one in called),
            cold=sum(one.cold for one in called),
            pings=sum(one.pings for one in called),
            throttled=sum(one.throttled for one in called),
            billed_gb_s=sum(one.billed_gb_s for one in called),
        )

    @property
    def function_share(self) -> float | None:
        """The functions' share of all calls; None without calls."""
        calls = sum(stage.calls for stage in self.stages)
        return self.by_function.calls / calls if calls else None


@dataclass(frozen=True, eq=False, slots=True)
class RunOutcome:
    """The outcome of a run: the latencies of its queries, infinite if not answered, and its instances.

    A selection also has the `calls` of each query, the stages that `answered` it, and its `queries`.
    """

    latency_s: FloatArray  # (N,)
    stages: tuple[StageRun, ...]
    instances: float
    most_instances: int
    most_usd_per_hour: float
    calls: IntArray | None = None  # (N, S)
    answered: BoolArray | None = None
    queries: SelectedQueries | None = None  # if their answers are known
    coded: CodedAnswers | None = None  # of a service with parity models


def pipeline_run(
    request: RunRequest,
    config: PipelineConfig,
    policy: str,
    prices: str,
    trace: Trace,
    part: Part,
    arrivals_s: FloatArray,
    outcome: RunOutcome,
    planned_on: Part,
    notes: tuple[str, ...],
) -> PipelineRun:
    """Return the figures of an outcome; notes on limits and on unanswered queries stand before `notes`."""
    worst, below = _by_minute(arrivals_s, outcome.latency_s, config.slo, part.duration_s)
    stages = tuple(
        replace(stage, usd=stage.usd + one.usd_per_call * stage.calls, call_usd=one.usd_per_call * stage.calls)
        if one.usd_per_call
        else stage
        for stage, one in zip(outcome.stages, config.stages, strict=True)
    )
    return PipelineRun(
        config.name,
        policy,
        request.seed,
        config.slo,
        prices,
        trace.name,
        part.start_s,
        part.duration_s,
        len(arrivals_s),
        int(np.count_nonzero(outcome.latency_s > config.slo.rt_max_s + TOLERANCE_S)),
        worst,
        below,
        _latency(outcome.latency_s),
        sum(stage.usd for stage in stages),
        outcome.instances,
        outcome.most_instances,
        stages,
        planned_on,
        notes=(*_limits(config, outcome), *_unanswered(outcome.latency_s), *notes),
        names_functions=any(stage.functions for stage in config.stages),
        read=trace.read,
        selection=_selection(config, outcome),
        parity=None if outcome.coded is None else _parity(outcome.coded),
    )


def _parity(found: CodedAnswers) -> ParityRun:
    share = found.reconstructed / len(found.degraded)
    return ParityRun(found.groups, found.parity_calls, found.reconstructed, found.saved, share)


def _selection(config: PipelineConfig, outcome: RunOutcome) -> SelectionRun | None:
    if outcome.calls is None or outcome.answered is None:
        return None
    made = [stage.calls for stage in outcome.stages]
    paid = [stage.usd_per_call for stage in config.stages]
    return selection_run(config.names, outcome.calls, paid, made, outcome.queries, outcome.answered)


def busy_share(busy_s: float, paid_s: float) -> float:
    """Return the busy share of the paid time, at most 1: the queues left at the end are worked off unpaid."""
    return min(1.0, busy_s / paid_s) if paid_s else 0.0


def _by_minute(arrivals_s: FloatArray, latency_s: FloatArray, slo: Slo, duration_s: float) -> tuple[float, int]:
    """Return the least share in time of the queries of a minute, and the number of minutes with too small a share."""
    minutes = max(1, math.ceil(duration_s / 60.0 - 1e-9))
    at = np.minimum((arrivals_s / 60.0).astype(np.int64), minutes - 1)
    came = np.bincount(at, minlength=minutes)
    in_time = np.bincount(at, weights=latency_s <= slo.rt_max_s + TOLERANCE_S, minlength=minutes)
    shares = in_time[came > 0] / came[came > 0]
    return float(shares.min()), int(np.count_nonzero(shares < slo.attainment - 1e-12))


def _latency(latency_s: FloatArray) -> Latency:
    """Return the latencies of the answered queries; NaN if all were unanswered."""
    answered_s = latency_s[np.isfinite(latency_s)]
    ascending_ms = np.sort(answered_s if len(answered_s) else np.array([math.nan])) * 1e3

    def quantile(share: float) -> float:
        return float(ascending_ms[max(1, math.ceil(share * len(ascending_ms) - 1e-9)) - 1])

    return Latency(
        mean=float(ascending_ms.mean()),
        p50=quantile(0.5),
        p95=quantile(0.95),
        p98=quantile(0.98),
        p99=quantile(0.99),
        p999=quantile(0.999),
        max=float(ascending_ms[-1]),
    )


def _limits(config: PipelineConfig, outcome: RunOutcome) -> list[str]:
    fleet, usd, count = config.fleet, outcome.most_usd_per_hour, outcome.most_instances
    notes = []
    if usd > fleet.max_usd_per_hour:
        notes.append(f"up to ${usd:.2f}/h: dearer than [fleet] max_usd_per_hour = {fleet.max_usd_per_hour:g} allows")
    if count > fleet.max_instances:
        notes.append(f"up to {count} instances: more than [fleet] max_instances = {fleet.max_instances} allows")
    return notes


def _unanswered(latency_s: FloatArray) -> list[str]:
    never = int(np.count_nonzero(np.isinf(latency_s)))
    what = "queries have no answer: a call could not be in time, or its function had no environment"
    return [f"{never:,} {what}"] if never else []
