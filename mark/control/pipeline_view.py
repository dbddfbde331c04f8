"""A pipeline as its controller sees it: the services of its stages put together, and the stage that limits it.

All of it is of the stages' views, but for whole queries: what conductors count of these is handed in.
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
    """Instances of one type in one market, in all zones, that run: booting and draining ones, too."""

    instance: str
    market: str
    count: int


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage now; rates are of its calls. `after` and `join` are None where a driver decides."""

    stage: str
    model: str
    after: tuple[str, ...] | None
    join: Join | None
    calls_per_query: float | None  # in the mean; None where neither file nor lineage says it
    view: ServiceView  # of it as a service; its `slo.rt_max_ms` is its part of RT_max
    used: float | None  # rate / capacity of what is ready; None while one of them is not known or zero
    dollar_share: float | None  # of the pipeline's $/h; None while that is zero
    overflow_share: float | None  # of its last calls: answered by functions
    running: tuple[InstanceCount, ...]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that limits its pipeline, and by what.

    `headroom` is how many times the present load its ready instances can do; None where that is not known.
    """

    stage: str
    why: Literal["misses", "load"]
    headroom: float | None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline now. What a driver decides and no file says is None."""

    config: PipelineConfig
    stages: tuple[StageView, ...]  # in topological order, with a driver in the file's
    longest_path_ms: float | None  # the largest sum of parts of RT_max along a path that is waited for
    queries_per_s: float | None
    usd_per_hour: float
    usd_so_far: float
    usd_per_query: float | None  # what one more query costs: the price of a call at each stage by its calls
    bottleneck: Bottleneck | None  # None while neither rates nor answers are known
    queries: QueriesView | None = None  # None: no conductors are known to ask
    promise: PromiseEstimate | None = None  # with RT_max split anew, for the load of now; None: that is not known


def pipeline_view(
    config: PipelineConfig,
    views: Mapping[str, ServiceView],
    overflow_share: Mapping[str, float | None],
    calls_per_query: Sequence[float] | None,
    queries: QueriesView | None = None,
) -> PipelineView:
    """Of the views of its stages' services, and the share of calls that functions answered, both by service.

    `calls_per_query` is of each stage, None where it is not known. Every stage says its part of RT_max, as
    `PipelineConfig.stage_services` has it. `queries` are what conductors count.
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
    """The stage that queries are late by, or would be first if the load of all stages grew alike.

    While stages answer fewer of their last calls in time than they have to, it is the one of them that misses the most
    calls a second. Else it is the one whose load takes most of the capacity that is ready: what is sustained within its
    part of RT_max. Of equals the first.
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
    """The highest rate that a stage says by its own; the others may lack what was refused before them."""
    said = [s.view.rps / s.calls_per_query for s in stages if s.view.rps is not None and s.calls_per_query]
    return max(said, default=None)


def usd_per_query(stages: Sequence[StageView]) -> float | None:
    """What one more query costs now, in the mean; None while the price or the number of a stage's calls is unknown."""
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
