"""A pipeline's configuration for one load, explained: its cost, its use of time, and the cost of other choices.

The configuration is fixed: it keeps the promise under the load of the sample, and does not follow another load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.price_list import SHIFT_S, SloPrice
from mark.domain.slo import Slo
from mark.planning.graphs.configure import Configuration, configure
from mark.planning.graphs.estimate import (
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
from mark.planning.graphs.fleet_cost import bought, usd_by_stage
from mark.planning.graphs.inferline import inferline_plan
from mark.planning.graphs.packing import Pack
from mark.planning.graphs.promise_judge import CONFIDENCE, keeps_up, miss_limits

RESAMPLES = 20
# Bound of each of three searches: some 15 s of one core. If two are cut off, the price of 10 ms between them means
# nothing.
MOST_CALLS = 200_000_000
# Limit of the headroom: beyond it the answer would say more about the sample than about the plan.
MOST_HEADROOM = 4.0
_SLOWEST = 0.01

_Planned = TypeVar("_Planned")


@dataclass(frozen=True, slots=True)
class SingleMovesPlan:
    """InferLine's plan: on the sample alone, by single moves."""

    choices: Choices
    miss_limit: float  # the miss share of new traffic stays below this with the plan's confidence

    @property
    def usd_per_hour(self) -> float:
        return usd_per_hour(self.choices)


@dataclass(frozen=True, eq=False, slots=True)
class PipelinePlan:
    """A configuration with its explanation; tuples and arrays are in the order of the stages."""

    pipeline: Pipeline
    slo: Slo
    sample: QuerySample
    found: Configuration
    seen: Estimate  # of the sample
    path_s: Floats  # (S,) mean time that a stage adds to a query's latency; sums to the mean latency
    slow_path_s: Floats  # (S,) the same of the slowest 1 % of the queries
    one_less: tuple[float | None, ...]  # miss limit with one replica less; 1: it would not keep up for long
    headroom: float  # the largest multiple of this traffic that keeps the promise, MOST_HEADROOM at most
    one_more: tuple[float, ...]  # the same with one replica more
    other_slos: tuple[SloPrice, ...]  # a shorter RT_max (where there is one) and a longer one
    inferline: SingleMovesPlan | None  # None: it finds no plan
    separate_usd_per_hour: float | None  # with an instance for each stage alone; None: not possible, or not requested
    complete: bool  # all searches ended by themselves, also for other promises and for separate instances

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The instances to buy."""
        return bought(self.found.choices)

    @property
    def stage_usd_per_hour(self) -> tuple[float, ...]:
        """Each stage's part of the dollars."""
        return usd_by_stage(self.found.choices)

    @property
    def bottleneck(self) -> int:
        """The stage where one replica more makes room for most traffic; among equals the busiest, then the first."""
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
    """Return the cheapest configuration found with its explanation; `options[s]` are the hardware that stage s may run
    on.

    `shared` are the same options by the worker, where stages may share instances; then InferLine's plan and the plan
    with separate instances stand beside the result. The sample is `duration_s` of a load that lasts, so each stage can
    serve its mean rate of calls forever. `most_calls` bounds each of the searches. Raises Infeasible if no
    configuration was found that keeps the promise, and BadInput as `configure` does.
    """
    planner = _Planner(pipeline, sample, slo, (sample.calls.sum(axis=0) / duration_s).tolist(), seed, most_calls)
    tell = progress or (lambda share: None)
    offered = shared or options
    separate = None if shared is None else _if_any(lambda: planner.configured(options))
    start = None if shared is None or separate is None else _by_the_worker(separate.choices, shared)
    found = planner.configured(offered, start=start)
    tell(0.3)
    # A search over shared instances covers less of its space, so the next ones begin with the configuration just found.
    begin = None if shared is None else found.choices
    shorter = None
    if slo.rt_max_s > SHIFT_S:
        shorter = _if_any(lambda: planner.configured(offered, -SHIFT_S, begin))
    tell(0.5)
    longer = _if_any(lambda: planner.configured(offered, SHIFT_S, begin))
    searches = [one for one in (separate, found, shorter, longer) if one is not None]
    found = planner.cheaper(found, shorter)
    tell(0.7)
    single = _if_any(lambda: inferline_plan(pipeline, sample, options, slo)[0])
    tell(0.8)
    one_less = planner.one_less(found.choices)
    inferline = None if single is None else SingleMovesPlan(single, planner.limits([single])[0])
    tell(0.95)
    estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
    seen, path_s = estimator.estimate(found.choices), estimator.path_s(found.choices)
    slow = seen.latency_s >= seen.quantile_s(1.0 - _SLOWEST)
    return PipelinePlan(
        pipeline=pipeline,
        slo=slo,
        sample=sample,
        found=replace(found, miss_share=seen.miss_share(slo.rt_max_s)),
        seen=seen,
        path_s=path_s.mean(axis=0),
        slow_path_s=path_s[slow].mean(axis=0),
        one_less=one_less,
        headroom=planner.headroom(found.choices),
        one_more=tuple(planner.headroom(with_more(found.choices, s, 1)) for s in range(len(found.choices))),
        other_slos=_other_slos(slo, found, shorter, longer),
        inferline=inferline,
        separate_usd_per_hour=None if separate is None else separate.usd_per_hour,
        complete=all(search.complete for search in searches),
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    """The common settings of one plan's searches, and questions about their results."""

    pipeline: Pipeline
    sample: QuerySample
    slo: Slo
    lasting_calls_per_s: list[float]
    seed: int
    most_calls: int

    def configured(
        self, options: Sequence[Sequence[StageOption]], shift_s: float = 0.0, start: Choices | None = None
    ) -> Configuration:
        """Configure for an RT_max that is longer by `shift_s`."""
        return configure(
            self.pipeline,
            self.sample,
            options,
            Slo(self.slo.rt_max_s + shift_s, self.slo.attainment),
            resamples=RESAMPLES,
            confidence=CONFIDENCE,
            seed=self.seed,
            most_calls=self.most_calls,
            lasting_calls_per_s=self.lasting_calls_per_s,
            start=start,
        )

    def cheaper(self, found: Configuration, shorter: Configuration | None) -> Configuration:
        """Return the plan of the shorter promise if it is cheaper, because it keeps this promise too.

        The search is heuristic, and may have found a dearer plan for the longer promise.
        """
        if shorter is None or shorter.usd_per_hour >= found.usd_per_hour:
            return found
        return replace(shorter, miss_limit=self.limits([shorter.choices])[0])

    def limits(self, configurations: Sequence[Choices]) -> list[float]:
        """Return for each configuration the limit that the miss share of new traffic stays below."""
        return miss_limits(
            self.pipeline,
            self.sample,
            configurations,
            self.slo,
            resamples=RESAMPLES,
            confidence=CONFIDENCE,
            seed=self.seed,
        )

    def one_less(self, choices: Choices) -> tuple[float | None, ...]:
        """Return by stage the limit with one replica less; None: it has only one, 1: it would not keep up for long."""
        less = [with_one_less(choices, stage) for stage in range(len(choices))]
        lasting = [one for one in less if one is not None and keeps_up(one, self.lasting_calls_per_s)]
        limits = dict(zip(lasting, self.limits(lasting), strict=True))
        return tuple(None if one is None else limits.get(one, 1.0) for one in less)

    def headroom(self, choices: Choices) -> float:
        """Return how many times as fast the sample may come, to one percent, and still keep the promise itself."""

        def kept(times: float) -> bool:
            if not keeps_up(choices, [times * calls for calls in self.lasting_calls_per_s]):
                return False
            faster = QuerySample(self.sample.arrivals_s / times, self.sample.calls)
            estimator = PipelineEstimator(self.pipeline, faster, slo_s=self.slo.rt_max_s, memory_bytes=0)
            return estimator.feasible(choices, self.slo.attainment)

        low, high = 100, round(100 * MOST_HEADROOM) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if kept(middle / 100.0) else (low, middle)
        return low / 100.0


def _other_slos(
    slo: Slo, found: Configuration, shorter: Configuration | None, longer: Configuration | None
) -> tuple[SloPrice, ...]:
    """Return the prices of a longer promise, and of a shorter one if RT_max is above `SHIFT_S`.

    A longer promise costs at most as much as this one, whose plan keeps it too.
    """
    longer_usd = min(found.usd_per_hour, math.inf if longer is None else longer.usd_per_hour)
    prices = [SloPrice(slo.rt_max_s + SHIFT_S, longer_usd)]
    if slo.rt_max_s > SHIFT_S:
        prices.insert(0, SloPrice(slo.rt_max_s - SHIFT_S, None if shorter is None else shorter.usd_per_hour))
    return tuple(prices)


def _if_any(planned: Callable[[], _Planned]) -> _Planned | None:
    try:
        return planned()
    except Infeasible:
        return None


def _by_the_worker(choices: Choices, shared: Sequence[Sequence[StageOption]]) -> Choices:
    """Return the same workers on the same types, as options by the worker."""
    return tuple(
        StageChoice(option, choice.batch, choice.replicas * choice.option.workers // option.workers)
        for choice, options in zip(choices, shared, strict=True)
        for option in options
        if option.hardware == choice.option.hardware
    )
