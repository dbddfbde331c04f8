"""A pipeline's configuration for one load, explained: what it costs, where the time goes, and what else it could cost.

What is planned is fixed: it keeps the promise under the load of the sample, and follows no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.price_list import SloPrice
from mark.domain.slo import Slo
from mark.pipelines.bought import bought, usd_by_stage
from mark.pipelines.configure import CONFIDENCE, Configuration, configure, keeps_up, miss_limits
from mark.pipelines.estimate import (
    Choices,
    Estimate,
    Floats,
    PipelineEstimator,
    QuerySample,
    StageChoice,
    StageOption,
    usd_per_hour,
    with_more,
    with_one_less,
)
from mark.pipelines.inferline import inferline_plan
from mark.pipelines.packs import Pack

RESAMPLES = 20
# Of each of three searches: some 15 s of one core. A price of 10 ms is worth nothing where two of them were cut off.
MOST_CALLS = 200_000_000
# RT_max by so much more and less: what 10 ms are worth
SHIFT_S = 0.010
# Of the traffic: beyond it the answer would say more about the sample than about the plan.
MOST_HEADROOM = 4.0
_SLOWEST = 0.01

_Planned = TypeVar("_Planned")


@dataclass(frozen=True, slots=True)
class SingleMovesPlan:
    """InferLine's plan: on the sample alone, by single moves."""

    choices: Choices
    miss_limit: float  # what the miss share of new traffic stays below, with the plan's confidence

    @property
    def usd_per_hour(self) -> float:
        return usd_per_hour(self.choices)


@dataclass(frozen=True, eq=False, slots=True)
class PipelinePlan:
    """A configuration with what explains it; tuples and arrays are in the order of the stages."""

    pipeline: Pipeline
    slo: Slo
    sample: QuerySample
    found: Configuration
    seen: Estimate  # of the sample
    path_s: Floats  # (S,) mean of what a stage adds to a query's latency; sums to the mean latency
    slow_path_s: Floats  # (S,) the same of the slowest 1 % of the queries
    one_less: tuple[float | None, ...]  # the miss limit with one replica less; 1: it would not keep up for long
    headroom: float  # so many times this traffic keeps the promise, MOST_HEADROOM at most
    one_more: tuple[float, ...]  # the same with one replica more
    other_slos: tuple[SloPrice, ...]  # a shorter RT_max (where there is one) and a longer one
    inferline: SingleMovesPlan | None  # None: it finds none
    separate_usd_per_hour: float | None  # with an instance for one stage each; None: not possible, or not asked for
    complete: bool  # all searches, those of other promises as well, ended by themselves

    @property
    def packs(self) -> tuple[Pack, ...]:
        """What to buy."""
        return bought(self.found.choices)

    @property
    def stage_usd_per_hour(self) -> tuple[float, ...]:
        """Each stage's part of the dollars."""
        return usd_by_stage(self.found.choices)

    @property
    def bottleneck(self) -> int:
        """The stage of which one replica more makes room for most traffic; of equals the busiest, then the first."""
        return max(range(len(self.one_more)), key=lambda s: (self.one_more[s], self.seen.stages[s].utilisation, -s))


def plan_pipeline(
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[StageOption]],
    slo: Slo,
    *,
    duration_s: float,
    seed: int = 0,
    most_calls: int = MOST_CALLS,
    progress: Callable[[float], None] | None = None,
    shared: Sequence[Sequence[StageOption]] | None = None,
) -> PipelinePlan:
    """The cheapest configuration found, and what explains it; `options[s]` are the hardware that stage s may run on.

    `shared` are the same options by the worker, where stages may share instances; then InferLine's plan and the one
    with separate instances stand beside what is found. The sample is `duration_s` of a load that lasts, so each stage
    can do the mean of its calls for ever. `most_calls` bounds each of the searches. Raises Infeasible where no
    configuration was found that keeps the promise, and BadInput as `configure` does.
    """

    lasting = (sample.calls.sum(axis=0) / duration_s).tolist()

    def tell(share: float) -> None:
        if progress is not None:
            progress(share)

    def configured(
        rt_max_s: float, on: Sequence[Sequence[StageOption]] = shared or options, start: Choices | None = None
    ) -> Configuration:
        return configure(
            pipeline, sample, on, Slo(rt_max_s, slo.attainment), resamples=RESAMPLES, confidence=CONFIDENCE,
            seed=seed, most_calls=most_calls, lasting_calls_per_s=lasting, start=start,
        )  # fmt: skip

    separate = start = None
    if shared is not None and (separate := _if_any(lambda: configured(slo.rt_max_s, options))) is not None:
        start = _by_the_worker(separate.choices, shared)
    found = configured(slo.rt_max_s, start=start)
    tell(0.3)
    # Where instances are shared a search sees less of what there is: it begins with what is known.
    begin = None if shared is None else found.choices
    shorter = None
    if slo.rt_max_s > SHIFT_S:
        shorter = _if_any(lambda: configured(slo.rt_max_s - SHIFT_S, start=begin))
    tell(0.5)
    if shorter is not None and shorter.usd_per_hour < found.usd_per_hour:
        # What keeps the shorter promise keeps this one: the search is no proof, and found less here.
        limit = miss_limits(
            pipeline, sample, [shorter.choices], slo, resamples=RESAMPLES, confidence=CONFIDENCE, seed=seed
        )
        found = replace(shorter, miss_limit=limit[0])
    longer = _if_any(lambda: configured(slo.rt_max_s + SHIFT_S, start=begin))
    tell(0.7)
    longer_usd = min(found.usd_per_hour, math.inf if longer is None else longer.usd_per_hour)
    estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
    seen, path_s = estimator.estimate(found.choices), estimator.path_s(found.choices)
    slow = seen.latency_s >= seen.quantile_s(1.0 - _SLOWEST)
    single = _if_any(lambda: inferline_plan(pipeline, sample, options, slo)[0])
    tell(0.8)
    stages = range(len(found.choices))
    less = [with_one_less(found.choices, stage) for stage in stages]
    asked = [choices for choices in (*less, single) if choices is not None]
    limits = iter(miss_limits(pipeline, sample, asked, slo, resamples=RESAMPLES, confidence=CONFIDENCE, seed=seed))
    one_less = tuple(None if one is None else _lasting_limit(one, next(limits), lasting) for one in less)
    inferline = None if single is None else SingleMovesPlan(single, next(limits))
    tell(0.95)
    other_slos = [SloPrice(slo.rt_max_s + SHIFT_S, longer_usd)]
    if slo.rt_max_s > SHIFT_S:
        other_slos.insert(0, SloPrice(slo.rt_max_s - SHIFT_S, None if shorter is None else shorter.usd_per_hour))
    return PipelinePlan(
        pipeline,
        slo,
        sample,
        replace(found, miss_share=seen.miss_share(slo.rt_max_s)),
        seen,
        path_s.mean(axis=0),
        path_s[slow].mean(axis=0),
        one_less,
        _headroom(pipeline, sample, found.choices, slo, lasting),
        tuple(_headroom(pipeline, sample, with_more(found.choices, stage, 1), slo, lasting) for stage in stages),
        tuple(other_slos),
        inferline,
        None if separate is None else separate.usd_per_hour,
        all(one is None or one.complete for one in (found, shorter, longer)),
    )


def _if_any(planned: Callable[[], _Planned]) -> _Planned | None:
    try:
        return planned()
    except Infeasible:
        return None


def _by_the_worker(choices: Choices, shared: Sequence[Sequence[StageOption]]) -> Choices:
    """The same workers on the same types."""
    return tuple(
        StageChoice(option, choice.batch, choice.replicas * choice.option.workers // option.workers)
        for choice, options in zip(choices, shared, strict=True)
        for option in options
        if option.hardware == choice.option.hardware
    )


def _lasting_limit(choices: Choices, limit: float, calls_per_s: Sequence[float]) -> float:
    return limit if keeps_up(choices, calls_per_s) else 1.0


def _headroom(
    pipeline: Pipeline, sample: QuerySample, choices: Choices, slo: Slo, calls_per_s: Sequence[float]
) -> float:
    """How many times as fast the sample may come, to one percent, so that it keeps the promise itself."""

    def kept(times: float) -> bool:
        if not keeps_up(choices, [times * calls for calls in calls_per_s]):
            return False
        faster = QuerySample(sample.arrivals_s / times, sample.calls)
        estimator = PipelineEstimator(pipeline, faster, slo_s=slo.rt_max_s, memory_bytes=0)
        return estimator.feasible(choices, slo.attainment)

    low, high = 100, round(100 * MOST_HEADROOM) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle / 100.0) else (low, middle)
    return low / 100.0
