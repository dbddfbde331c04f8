"""A pipeline in the control API: the services of its stages together, and the stage that limits it.

Conductors count the whole queries; all other values come from the stages' views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Literal

from pydantic import Field

from mark.api.schema import ApiAnswer, PromiseSchema
from mark.config.pipeline_config import PipelineConfig
from mark.control.views import Maybe, Mode, Moment, Number, QueriesSchema, ServiceView, SloSchema
from mark.domain.fleet import Phase
from mark.domain.pipeline import needed_s
from mark.planning.graphs.graph_layout import END_HEIGHT, END_WIDTH, GraphLayout


class InstancesByMarket(ApiAnswer):
    """The running instances of one type and market, in all zones."""

    instance: str
    market: str
    count: int = Field(description="Running instances, including booting and draining ones.")


class JoinSchema(ApiAnswer):
    """A query goes on `deadline_ms` after `least` of the stages before have answered, or once all have."""

    least: int = Field(description="Number of answers for which the join waits at least.")
    deadline_ms: Maybe = Field(description="Time after which fewer answers suffice; null if the join waits for all.")


class StageSchema(ApiAnswer):
    """A stage of a pipeline now: a service, whose requests are the calls of queries."""

    stage: str
    service: str = Field(description="The stage's name under /api/v1/services.")
    model: str
    after: list[str] | None = Field(description="The stages that it waits for; null where a driver decides.")
    join: JoinSchema | None = Field(description="null where it waits for less than two, or a driver decides.")
    calls_per_query: Maybe = Field(
        description="Mean calls of a query; null if a driver decides and no lineage is named."
    )
    mode: Mode
    rps: Maybe = Field(description="Calls/s that arrive.")
    capacity_rps: Number = Field(description="Calls/s that ready instances sustain within the stage's part of RT_max.")
    used: Maybe = Field(description="rps / capacity_rps.")
    slo: SloSchema = Field(description="The promise for calls of the stage: `rt_max_ms` is its part of the pipeline's.")
    usd_per_hour: Number
    dollar_share: Maybe = Field(description="Of the pipeline's usd_per_hour, 0 to 1.")
    usd_per_request: Maybe = Field(description="Price of one more call: 0 while ready capacity has room.")
    overflow_share: Maybe = Field(description="Of the calls of the last 5 minutes: answered by functions.")
    running: list[InstancesByMarket]
    troubles: list[str]


class BottleneckSchema(ApiAnswer):
    """The stage that limits the pipeline.

    "misses": of the stages that answer too few calls in time, it misses the most calls a second. "load": all stages
    answer enough calls in time, and its load takes the largest share of its ready capacity.
    """

    stage: str
    why: Literal["misses", "load"]
    headroom: Maybe = Field(description="Capacity of its ready instances divided by the present load.")


class PipelineSummary(ApiAnswer):
    """A pipeline in one line."""

    pipeline: str
    services: list[str] = Field(description="Names of its stages under /api/v1/services.")
    queries_per_s: Maybe = Field(
        description="As conductors count them, else the highest of rps / calls_per_query; null while neither is known."
    )
    instances: int = Field(description="Running instances of all stages.")
    usd_per_hour: Number
    bottleneck: BottleneckSchema | None


class Pipelines(ApiAnswer):
    pipelines: list[PipelineSummary]


class LayoutSchema(ApiAnswer):
    """The positions of the parts of the graph's drawing, in pixels from the upper left corner, y down.

    A corner is the [x, y] of the upper left corner of a box, `box_width` x `box_height`, or an end, `end_width` x
    `end_height`.
    """

    width: Number = Field(description="Size of the whole drawing in pixels.")
    height: Number = Field(description="Size of the whole drawing in pixels.")
    box_width: Number = Field(description="Width of a stage's box in pixels.")
    box_height: Number = Field(description="Height of a stage's box in pixels.")
    end_width: Number = Field(description="Width of the first and last box in pixels.")
    end_height: Number = Field(description="Height of the first and last box in pixels.")
    query: list[Number] = Field(description="The corner of the end at which queries come.")
    answer: list[Number] = Field(description="The corner of the end at which they are answered.")
    boxes: list[list[Number]] = Field(description="The corners of the stages' boxes, in their order.")
    lines: list[str] = Field(description="Lines between the stages, each the `d` of an SVG path.")


Drawing = dict[Literal["across", "down"], LayoutSchema]


class PipelineSchema(PipelineSummary):
    """A pipeline now, as a whole and by stage."""

    at_unix_s: Moment = Field(description="Time of the newest view of a stage, which `at_s` and `time_scale` are from.")
    at_s: Moment = Field(description="The same moment by the stages' clock.")
    time_scale: Number = Field(
        description="Seconds of the stages' clock in a real second; only a testbed has more than 1."
    )
    driver: str | None = Field(description="module:function; null if the file describes the graph.")
    rt_max_ms: Number = Field(description="Limit of the time from a query to its answer.")
    target: Number = Field(description="The share of queries that is promised to be answered within it (SL_min).")
    longest_path_ms: Maybe = Field(
        description="The largest sum of the stages' parts of rt_max_ms along a path; null where a driver decides."
    )
    usd_so_far: Number = Field(description="Dollars since the controller first saw the stages.")
    usd_per_million_queries_now: Maybe = Field(description="Dollars an hour of running instances / the present rate.")
    queries: QueriesSchema | None = Field(description="null where the controller knows no conductors.")
    promise: PromiseSchema | None = Field(description="null while the load of a stage is not known.")
    usd_per_query: Maybe = Field(description="Price of one more query: usd_per_request of each stage x its calls.")
    stages: list[StageSchema] = Field(description="In topological order; with a driver, in the file's order.")
    drawing: Drawing | None = Field(
        description="The graph from left to right, and from top to bottom; null where a driver decides."
    )


def pipeline_view(
    config: PipelineConfig,
    views: Mapping[str, ServiceView],
    overflow_share: Mapping[str, float | None],
    calls_per_query: Sequence[float] | None,
    queries: QueriesSchema | None = None,
    drawing: Drawing | None = None,
) -> PipelineSchema:
    """Return the view of a pipeline from its stages' views and the share of calls that functions answered, by service.

    `calls_per_query` has a value per stage; None if unknown. The SLO of each view has its stage's part of RT_max, as in
    `PipelineConfig.stage_services`. `queries` are the counts of the conductors. The caller adds the promise.
    """
    of_stages = [views[service.name] for service in config.stage_services()]
    usd_per_hour = sum(view.usd_per_hour for view in of_stages)
    stages = [
        _stage(config, place, view, usd_per_hour, overflow_share, calls_per_query)
        for place, view in enumerate(of_stages)
    ]
    last = max(of_stages, key=lambda view: view.at_unix_s)
    services = {stage.service: stage for stage in stages}  # stages that share instances count once
    qps = queries_per_s(stages) if queries is None or queries.per_s is None else queries.per_s
    return PipelineSchema(
        pipeline=config.name,
        services=list(services),
        queries_per_s=qps,
        instances=sum(kind.count for stage in services.values() for kind in stage.running),
        usd_per_hour=usd_per_hour,
        bottleneck=bottleneck(stages),
        at_unix_s=last.at_unix_s,
        at_s=last.at_s,
        time_scale=last.time_scale,
        driver=config.driver,
        rt_max_ms=config.slo.rt_max_s * 1e3,
        target=config.slo.attainment,
        longest_path_ms=_longest_path_ms(config, of_stages),
        usd_so_far=sum(view.bill.total for view in of_stages),
        usd_per_million_queries_now=usd_per_hour / (qps * 3600.0) * 1e6 if qps else None,
        queries=queries,
        promise=None,
        usd_per_query=usd_per_query(stages),
        stages=stages,
        drawing=drawing,
    )


def _stage(
    config: PipelineConfig,
    place: int,
    view: ServiceView,
    usd_per_hour: float,
    overflow_share: Mapping[str, float | None],
    calls_per_query: Sequence[float] | None,
) -> StageSchema:
    stage, graph = config.stages[place], config.pipeline
    node = None if graph is None else graph.stages[place]
    return StageSchema(
        stage=stage.name,
        service=view.service,
        model=stage.model,
        after=None if node is None else list(node.after),
        join=None
        if node is None or len(node.after) < 2
        else JoinSchema(least=node.join.least, deadline_ms=node.join.deadline_s * 1e3),
        calls_per_query=None if calls_per_query is None else calls_per_query[place],
        mode=view.mode,
        rps=view.rps,
        capacity_rps=view.capacity_rps,
        used=view.rps / view.capacity_rps if view.rps is not None and view.capacity_rps > 0.0 else None,
        slo=view.slo,
        usd_per_hour=view.usd_per_hour,
        dollar_share=view.usd_per_hour / usd_per_hour if usd_per_hour > 0.0 else None,
        usd_per_request=view.price_list.usd_per_request,
        overflow_share=overflow_share.get(view.service),
        running=_running(view),
        troubles=list(view.conditions),
    )


def _longest_path_ms(config: PipelineConfig, of_stages: Sequence[ServiceView]) -> float | None:
    graph = config.pipeline
    if graph is None:
        return None
    parts_s = [view.slo.rt_max_ms / 1e3 for view in of_stages]
    return max(needed_s(parts_s, graph.successors, graph.awaits_all)) * 1e3


def bottleneck(stages: Sequence[StageSchema]) -> BottleneckSchema | None:
    """Return the stage that makes queries late, or would be the first to do so if the load of all stages grew alike.

    Of the stages that answer too few of their last calls in time, it is the one with the most misses per second. If
    there are none, it is the stage whose load uses the largest share of its ready capacity, the rate sustained within
    its part of RT_max. The first of equals wins.
    """
    missing = {}
    for stage in stages:
        slo = stage.slo
        if slo.recent is not None and slo.recent < slo.target:
            missing[stage.stage] = ((stage.rps or 0.0) * (1.0 - slo.recent), 1.0 - slo.recent)
    used = {stage.stage: stage.used for stage in stages if stage.used is not None}
    if missing:
        worst = max(missing, key=missing.__getitem__)
        return BottleneckSchema(stage=worst, why="misses", headroom=_headroom(used.get(worst)))
    if used:
        worst = max(used, key=used.__getitem__)
        return BottleneckSchema(stage=worst, why="load", headroom=_headroom(used[worst]))
    return None


def queries_per_s(stages: Sequence[StageSchema]) -> float | None:
    """Return the highest rate of queries that a stage's calls imply; other stages may lack queries refused earlier."""
    said = [s.rps / s.calls_per_query for s in stages if s.rps is not None and s.calls_per_query]
    return max(said, default=None)


def usd_per_query(stages: Sequence[StageSchema]) -> float | None:
    """Return the mean cost of one more query now; None while the price or the number of a stage's calls is unknown."""
    total = 0.0
    for stage in stages:
        price = stage.usd_per_request
        if price is None or stage.calls_per_query is None:
            return None
        total += stage.calls_per_query * price
    return total


def _headroom(used: float | None) -> float | None:
    return 1.0 / used if used else None


def _running(view: ServiceView) -> list[InstancesByMarket]:
    kinds: Counter[tuple[str, str]] = Counter()
    for one in view.instances:
        if one.phase is not Phase.STOPPED:
            instance, market, *_ = *one.offer.split("/"), ""  # INSTANCE/MARKET/ZONE
            kinds[instance, market] += 1
    return [
        InstancesByMarket(instance=instance, market=market, count=n) for (instance, market), n in sorted(kinds.items())
    ]


def layout(found: GraphLayout, box_width: float, box_height: float) -> LayoutSchema:
    return LayoutSchema(
        box_width=box_width, box_height=box_height, end_width=END_WIDTH, end_height=END_HEIGHT, **asdict(found)
    )
