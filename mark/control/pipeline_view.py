"""A pipeline as its controller sees it: the services of its stages together, and the stage that limits it.

It is made from the stages' views, except for whole queries, whose counts come from the conductors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mark.config.pipeline_file import PipelineConfig
from mark.control.views import QueriesView, ServiceView
from mark.domain.fleet import Phase
from mark.domain.pipeline import Join, needed_s
from mark.domain.price_list import PromiseEstimate


@dataclass(frozen=True, slots=True)
class InstanceCount:
    """The number of running instances of one type in one market, in all zones, including booting and draining ones."""

    instance: str
    market: str
    count: int


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage now; rates count its calls. `after` and `join` are None if a driver decides."""

    stage: str
    model: str
    after: tuple[str, ...] | None
    join: Join | None
    calls_per_query: float | None  # mean; None if neither file nor lineage gives it
    view: ServiceView  # the stage as a service; its `slo.rt_max_ms` is the stage's part of RT_max
    used: float | None  # rate / ready capacity; None while one of them is unknown or the capacity is zero
    dollar_share: float | None  # share of the pipeline's $/h; None while that is zero
    overflow_share: float | None  # share of the last calls that functions answered
    running: tuple[InstanceCount, ...]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that limits its pipeline, and the reason.

    `headroom` is the load that its ready instances sustain as a multiple of the present one; None if unknown.
    """

    stage: str
    why: Literal["misses", "load"]
    headroom: float | None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline now. Values that only a driver decides are None."""

    config: PipelineConfig
    stages: tuple[StageView, ...]  # in topological order; with a driver in the order of the file
    longest_path_ms: float | None  # the largest sum of parts of RT_max along a path that a query waits for
    queries_per_s: float | None
    usd_per_hour: float
    usd_so_far: float
    usd_per_query: float | None  # the cost of one more query: each stage's price per call times its calls
    bottleneck: Bottleneck | None  # None while neither rates nor answers are known
    queries: QueriesView | None = None  # None without known conductors
    promise: PromiseEstimate | None = None  # with RT_max split again for the present load; None if that is unknown


def pipeline_view(
    config: PipelineConfig,
    views: Mapping[str, ServiceView],
    overflow_share: Mapping[str, float | None],
    calls_per_query: Sequence[float] | None,
    queries: QueriesView | None = None,
) -> PipelineView:
    """Return the view of a pipeline from its stages' views and the share of calls that functions answered, by service.

    `calls_per_query` has a value per stage; None if unknown. Each view has its stage's part of RT_max, as in
    `PipelineConfig.stage_services`. `queries` are the counts of the conductors.
    """
    of_stages = [views[service.name] for service in config.stage_services()]
    usd_per_hour = sum(view.usd_per_hour for view in of_stages)
    graph = config.pipeline
    stages = []
    for place, (stage, view) in enumerate(zip(config.stages, of_stages, strict=True)):
        node = None if graph is None else graph.stages[place]
        stages.append(
            StageView(
                stage=stage.name,
                model=stage.model,
                after=None if node is None else node.after,
                join=None if node is None else node.join,
                calls_per_query=None if calls_per_query is None else calls_per_query[place],
                view=view,
                used=view.rps / view.capacity_rps if view.rps is not None and view.capacity_rps > 0.0 else None,
                dollar_share=view.usd_per_hour / usd_per_hour if usd_per_hour > 0.0 else None,
                overflow_share=overflow_share.get(view.service),
                running=_running(view),
            )
        )
    longest_s = None
    if graph is not None:
        parts_s = [view.slo.rt_max_ms / 1e3 for view in of_stages]
        longest_s = max(needed_s(parts_s, graph.successors, graph.awaits_all))
    return PipelineView(
        config=config,
        stages=tuple(stages),
        longest_path_ms=None if longest_s is None else longest_s * 1e3,
        queries_per_s=queries_per_s(stages) if queries is None or queries.per_s is None else queries.per_s,
        usd_per_hour=usd_per_hour,
        usd_so_far=sum(view.bill.total for view in of_stages),
        usd_per_query=usd_per_query(stages),
        bottleneck=bottleneck(stages),
        queries=queries,
    )


def bottleneck(stages: Sequence[StageView]) -> Bottleneck | None:
    """Return the stage that makes queries late, or would be the first to do so if the load of all stages grew alike.

    If stages answer fewer of their last calls in time than they must, it is the one of them with the most misses per
    second. Otherwise it is the one whose load uses the largest share of its ready capacity, the rate sustained within
    its part of RT_max. The first of equals wins.
    """
    missing = {}
    for stage in stages:
        slo = stage.view.slo
        if slo.recent is not None and slo.recent < slo.target:
            missing[stage.stage] = ((stage.view.rps or 0.0) * (1.0 - slo.recent), 1.0 - slo.recent)
    used = {stage.stage: stage.used for stage in stages if stage.used is not None}
    if missing:
        worst = max(missing, key=missing.__getitem__)
        return Bottleneck(worst, "misses", _headroom(used.get(worst)))
    if used:
        worst = max(used, key=used.__getitem__)
        return Bottleneck(worst, "load", _headroom(used[worst]))
    return None


def queries_per_s(stages: Sequence[StageView]) -> float | None:
    """Return the highest rate of queries that a stage's calls imply; other stages may lack queries refused earlier."""
    said = [s.view.rps / s.calls_per_query for s in stages if s.view.rps is not None and s.calls_per_query]
    return max(said, default=None)


def usd_per_query(stages: Sequence[StageView]) -> float | None:
    """Return the mean cost of one more query now; None while the price or the number of a stage's calls is unknown."""
    total = 0.0
    for stage in stages:
        price = stage.view.price_list.usd_per_request
        if price is None or stage.calls_per_query is None:
            return None
        total += stage.calls_per_query * price
    return total


def _headroom(used: float | None) -> float | None:
    return 1.0 / used if used else None


def _running(view: ServiceView) -> tuple[InstanceCount, ...]:
    kinds: Counter[tuple[str, str]] = Counter()
    for one in view.instances:
        if one.phase is not Phase.STOPPED:
            instance, market, *_ = *one.offer.split("/"), ""  # INSTANCE/MARKET/ZONE
            kinds[instance, market] += 1
    return tuple(InstanceCount(instance, market, n) for (instance, market), n in sorted(kinds.items()))
