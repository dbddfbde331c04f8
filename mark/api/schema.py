"""The answers and bodies of the control API: the contract with the page and with other people's programs.

Times are Unix seconds (`_unix_s`) or ages (`_s`), rates are requests/s, money is dollars, shares are 0 to 1. Unknown
values are null.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from mark.control import views
from mark.control.pipeline_view import PipelineView, StageView
from mark.control.ports import Result
from mark.domain.fleet import Instance, Phase
from mark.domain.pipeline import Join
from mark.domain.plan import Target
from mark.domain.price_list import PromiseEstimate, usd_per_hour_per_ms
from mark.planning.graphs.graph_layout import END_HEIGHT, END_WIDTH, GraphLayout
from mark.planning.next_day import NextDay

RUNNING = (Phase.PENDING, Phase.READY, Phase.DRAINING)  # phases that are paid by the second


def _short(value: float | None) -> float | None:
    """Return the value with six significant digits; None for infinity and NaN, which JSON cannot express."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _second(value: float) -> float:
    return round(value, 3)


Number = Annotated[float, PlainSerializer(_short)]
Maybe = Annotated[float | None, PlainSerializer(_short)]
Moment = Annotated[float, PlainSerializer(_second)]
Mode = Literal["acting", "dry-run", "paused", "standing by"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True, json_schema_serialization_defaults_required=True)


class Error(_Model):
    error: str = Field(description="The error, in one line.")


class LimitsSchema(_Model):
    """The limits of a service; planner and launches obey them from the next step on."""

    model_config = ConfigDict(extra="forbid", strict=True)
    max_instances: int = Field(ge=1, le=100_000, description="Instances that run at once.", examples=[20])
    max_usd_per_hour: float = Field(
        gt=0, le=1e6, allow_inf_nan=False, description="Dollars per hour of all that runs.", examples=[5.0]
    )


class SloSchema(_Model):
    """At least `target` of the requests answered within `rt_max_ms`."""

    rt_max_ms: Number
    target: Number = Field(description="The share that is promised (SL_min).")
    attainment: Maybe = Field(description="Share answered in time since the controller first saw the service.")
    recent: Maybe = Field(description="Share answered in time of the last 1,000 requests or so.")
    error_budget_left: Maybe = Field(description="1: no miss so far; 0: all that the SLO allows; below: broken.")
    recent_ms: Maybe = Field(
        description="Mean latency of the last 1,000 answered requests or so, from arrival at the instance or function."
    )
    recent_p50_ms: Maybe = Field(
        description="Their median. This and the next are read from buckets whose bounds are a factor of 1.6 apart."
    )
    recent_p99_ms: Maybe = Field(description="Their 99th percentile.")


class BillSchema(_Model):
    """Dollars since the controller first saw the service, by market."""

    on_demand: Number
    spot: Number
    burstable: Number
    functions: Number
    sagemaker: Number
    other: Number = Field(description="Load balancer, disks, addresses, data moved.")
    total: Number
    requests: int = Field(description="Answered in the same time.")
    usd_per_million_requests: Maybe = Field(description="total / requests x 1e6.")
    usd_per_hour: Number = Field(description="Dollars an hour of running instances.")
    usd_per_million_requests_now: Maybe = Field(description="Dollars an hour of running instances / the present rate.")


class ForecastSchema(_Model):
    """A fan: quantiles of the mean arrival rate, by step from `origin_unix_s`."""

    origin_unix_s: Moment
    step_s: Number
    predictor: str
    levels: list[Number] = Field(description="The quantiles, ascending.")
    rps: list[list[Number]] = Field(description="[level][step]")


class Wanted(_Model):
    """How many of an offer are wanted, and why."""

    offer: str
    count: int
    spare: int = Field(description="How many of `count` only until the rest is ready.")
    reason: str = Field(description="A clause in money and load.")
    usd_per_hour: Maybe = Field(description="Of all of them.")
    have: int = Field(description="Ready or booting, and not about to be taken away.")


class PlanSchema(_Model):
    """The planned numbers of instances; an offer that is not named is planned zero times."""

    age_s: Number
    targets: list[Wanted]
    standbys: list[Wanted] = Field(description="Stopped burstables to keep.")
    warm: int = Field(description="Function environments to hold warm.")
    capacity_rps: Number = Field(description="Its capacity once everything is ready.")
    predictor: str = Field(description='The predictor of the forecast it rests on; "" where it needs none.')
    solver: str
    notes: list[str]


class OtherSloSchema(_Model):
    """The cost of another RT_max; null if no fleet keeps it."""

    rt_max_ms: Number
    usd_per_hour: Maybe
    difference_usd_per_hour: Maybe = Field(description="Difference from the cost at the promised RT_max.")


class PromiseSchema(_Model):
    """The cost of the promise at the present load, and of a shorter and a longer RT_max.

    An estimate from profiles and prices, not a plan: whole instances of one type, or functions alone, without reserves
    and without booting or draining instances. For a pipeline, each stage by itself with the cheapest split of RT_max.
    """

    rps: Maybe = Field(description="Requests/s (of a pipeline queries/s) that it is made for.")
    usd_per_hour: Maybe = Field(description="Of the RT_max that is promised; null where nothing keeps it.")
    other_slos: list[OtherSloSchema] = Field(
        description="RT_max 5 % shorter and longer, of a pipeline 10 ms; the shorter one only where that is above zero."
    )
    usd_per_hour_per_ms: Maybe = Field(description="For each millisecond less, between the two.")


class NextDaySchema(_Model):
    """The day after the last full hour, by the last 24 hours: instances and functions, without balancer and disks."""

    interval_90: list[Number] = Field(description="Dollars: in nine of ten days the bill lies between these two.")
    expected_usd: Number
    calibrated: bool = Field(description="By past days of this service; else by those of other traffic.")
    promise_kept: Maybe = Field(description="Probability; null where nothing was answered.")


class PricesSchema(_Model):
    """The planner's present prices, in dollars, of one more request and one more miss."""

    usd_per_request: Maybe = Field(
        description="One more request: 0 while ready capacity has room; null while no plan states the load it believes."
    )
    usd_per_miss: Maybe = Field(
        description="Value of not missing one more request: a function call's price where functions are in time, "
        "else the price that the SLO's budget of misses puts on a miss."
    )
    promise: PromiseSchema | None = Field(description="Price of a millisecond of RT_max; null while no load is known.")


class RolloutSchema(_Model):
    """Which release serves, and how far a new one is."""

    wanted: str = Field(description="The release deployed last.")
    release: str = Field(description="The release that launches get.")
    stage: Literal["done", "canary", "rolling", "stopped"] = Field(
        description="stopped: the wanted release did worse, or was taken back; `release` serves."
    )
    before: str = Field(description='The release that a roll-back returns to; "" if unknown.')
    reason: str = Field(description="Why a release was taken back.")
    instances: dict[str, int] = Field(description="That boot, serve or finish, by release.")


class OfferCount(_Model):
    """Instances of one offer by phase."""

    offer: str
    pending: int
    ready: int
    draining: int
    stopped: int
    usd_per_hour: Maybe = Field(description="Of those that run.")


class InstanceNow(_Model):
    number: int = Field(description="In the order of launches.")
    offer: str
    phase: Literal["pending", "ready", "draining", "stopped", "gone"]
    age_s: Number = Field(description="Since its launch.")
    ready_in_s: Maybe = Field(description="Until it is expected to be ready; null where it is, or that is not known.")
    gone_in_s: Maybe = Field(description="Until an interruption takes it; null where none was announced.")
    standby: bool
    credits: Maybe = Field(description="CPU credits left, of burstables.")
    usd_per_hour: Maybe


class FleetSchema(_Model):
    """Counts by offer, and a page of the instances, ascending by number."""

    offers: list[OfferCount]
    instances: list[InstanceNow]
    total: int = Field(description="Instances in all, stopped ones too.")


class Summary(_Model):
    """A service in one line."""

    service: str
    mode: Mode
    rps: Maybe
    capacity_rps: Number
    usd_per_hour: Number
    instances: int = Field(description="That run.")
    slo: SloSchema
    troubles: list[str]


class Services(_Model):
    services: list[Summary]
    leads: bool = Field(description="Whether this controller acts; else it stands by while another one does.")
    pipelines: list[str] = Field(description="Names of those whose stages are among the services.")


class InstancesByMarket(_Model):
    """Instances of one type in one market, in all zones, that run."""

    instance: str
    market: str
    count: int = Field(description="Booting and draining ones, too.")


class JoinSchema(_Model):
    """When a query goes on: `deadline_ms` after `least` of the stages before have answered, or once all have."""

    least: int = Field(description="Answers.")
    deadline_ms: Maybe = Field(description="null: it waits for all.")


class StageSchema(_Model):
    """A stage of a pipeline now: a service, whose requests are the calls of queries."""

    stage: str
    service: str = Field(description="Its name under /api/v1/services.")
    model: str
    after: list[str] | None = Field(description="The stages that it waits for; null where a driver decides.")
    join: JoinSchema | None = Field(description="null where it waits for less than two, or a driver decides.")
    calls_per_query: Maybe = Field(description="In the mean; null where a driver decides, and no lineage is named.")
    mode: Mode
    rps: Maybe = Field(description="Calls/s that arrive.")
    capacity_rps: Number = Field(description="Calls/s that ready instances sustain within the stage's part of RT_max.")
    used: Maybe = Field(description="rps / capacity_rps.")
    slo: SloSchema = Field(description="Of its calls: `rt_max_ms` is its part of the pipeline's.")
    usd_per_hour: Number
    dollar_share: Maybe = Field(description="Of the pipeline's usd_per_hour, 0 to 1.")
    usd_per_request: Maybe = Field(description="Price of one more call: 0 while ready capacity has room.")
    overflow_share: Maybe = Field(description="Of the calls of the last 5 minutes: answered by functions.")
    running: list[InstancesByMarket]
    troubles: list[str]


class BottleneckSchema(_Model):
    """The stage that limits the pipeline.

    "misses": it answers too few calls in time, and of the stages that do so it misses the most calls a second. "load":
    no stage does, and its load takes the largest share of its ready capacity.
    """

    stage: str
    why: Literal["misses", "load"]
    headroom: Maybe = Field(description="How many times the load of now its ready instances can do.")


class QueriesSchema(_Model):
    """Whole queries of a pipeline, as its conductors count them; latencies are of those that were answered."""

    per_s: Maybe = Field(description="Queries/s of the last minute, answered or refused.")
    recent: Maybe = Field(description="Share answered in time of the last 1,000 or so.")
    recent_ms: Maybe = Field(description="Their mean latency, from arrival at a conductor.")
    recent_p50_ms: Maybe = Field(
        description="Their median. This and the next are read from buckets whose bounds are a factor of 1.6 apart, and "
        "are above rt_max_ms where more than the rest of the answers were late."
    )
    recent_p99_ms: Maybe = Field(description="Their 99th percentile.")


class QueriesHistorySchema(_Model):
    """Whole queries in equal steps, oldest first; null where no conductor was heard. All lists are equally long.

    As far back as this controller runs, 24 hours at most.
    """

    start_unix_s: Moment
    step_s: Number
    per_s: list[Maybe] = Field(description="Queries/s.")
    attainment: list[Maybe] = Field(description="Share answered in time.")
    p50_ms: list[Maybe] = Field(description="Of those that were answered.")
    p99_ms: list[Maybe]


class PipelineSummary(_Model):
    """A pipeline in one line."""

    pipeline: str
    services: list[str] = Field(description="Of its stages, under /api/v1/services.")
    queries_per_s: Maybe = Field(
        description="As conductors count them, else the highest of rps / calls_per_query; null while neither is known."
    )
    instances: int = Field(description="That run, of all stages.")
    usd_per_hour: Number
    bottleneck: BottleneckSchema | None


class Pipelines(_Model):
    pipelines: list[PipelineSummary]


class LayoutSchema(_Model):
    """Where a drawing of the graph has its parts, in pixels from the left upper corner, y down.

    Corners are [x, y], the left upper ones of boxes that are `box_width` x `box_height`, and of ends that are
    `end_width` x `end_height`.
    """

    width: Number = Field(description="Of the whole, in pixels.")
    height: Number = Field(description="Of the whole, in pixels.")
    box_width: Number = Field(description="Pixels.")
    box_height: Number = Field(description="Pixels.")
    end_width: Number = Field(description="Pixels.")
    end_height: Number = Field(description="Pixels.")
    query: list[Number] = Field(description="The corner of the end at which queries come.")
    answer: list[Number] = Field(description="The corner of the end at which they are answered.")
    boxes: list[list[Number]] = Field(description="The corners of the stages' boxes, in their order.")
    lines: list[str] = Field(description="On which answers go on: each the `d` of an SVG path.")


class PipelineSchema(PipelineSummary):
    """A pipeline now, as a whole and by stage."""

    at_unix_s: Moment = Field(description="Of the stage that was looked at last, as the two that follow.")
    at_s: Moment = Field(description="The same moment by the stages' clock.")
    time_scale: Number = Field(description="Seconds of that clock in one on the wall: 1 but on a testbed in a hurry.")
    driver: str | None = Field(description="module:function; null where the file says the graph.")
    rt_max_ms: Number = Field(description="Of the whole, from a query to its answer.")
    target: Number = Field(description="The share of queries that is promised to be answered within it (SL_min).")
    longest_path_ms: Maybe = Field(
        description="The largest sum of the stages' parts of rt_max_ms along a path; null where a driver decides."
    )
    usd_so_far: Number = Field(description="Dollars since the controller first saw the stages.")
    usd_per_million_queries_now: Maybe = Field(description="Dollars an hour of running instances / the present rate.")
    queries: QueriesSchema | None = Field(description="null where the controller knows no conductors.")
    promise: PromiseSchema | None = Field(description="null while the load of a stage is not known.")
    usd_per_query: Maybe = Field(description="Price of one more query: usd_per_request of each stage x its calls.")
    stages: list[StageSchema] = Field(description="In topological order; with a driver in the file's.")
    drawing: dict[Literal["across", "down"], LayoutSchema] | None = Field(
        description="The graph from left to right, and from top to bottom; null where a driver decides."
    )


class ServiceSchema(Summary):
    """A service now. All parts but the history, the decisions and single instances."""

    at_unix_s: Moment
    at_s: Moment = Field(description="The same moment by the service's clock, which ages, plans and prices are of.")
    time_scale: Number = Field(description="Seconds of that clock in one on the wall: 1 but on a testbed in a hurry.")
    offers: list[OfferCount]
    plan: PlanSchema | None
    forecast: ForecastSchema | None
    prices: PricesSchema
    bill: BillSchema
    next_day: NextDaySchema | None = Field(description="null until 24 hours are known.")
    limits: LimitsSchema
    rollout: RolloutSchema | None = Field(description="null where releases have no names, as on a testbed.")


class DecisionSchema(_Model):
    """A line of the decision log."""

    id: int = Field(description="Ascending within a service.")
    at_unix_s: Moment
    verb: str
    text: str = Field(description="A sentence with its reason in money.")
    outcome: str = Field(description='For people: "done", perhaps with the instances started instead, or why not.')
    usd_per_hour: Number = Field(description="How many instances it adds or removes.")
    result: Result | None = Field(description="null in lines that were written before results were kept.")
    started: int = Field(description="Instances that a launch started.")


class Decisions(_Model):
    """A page of the decision log, newest first."""

    decisions: list[DecisionSchema]
    next_before: int | None = Field(description="`before` of the next page; null at the end.")


class HistorySchema(_Model):
    """The past in equal steps, oldest first; null where nothing was seen. All lists are equally long."""

    start_unix_s: Moment
    step_s: Number
    rps: list[Maybe]
    capacity_rps: list[Maybe]
    usd_per_hour: list[Maybe]
    attainment: list[Maybe] = Field(description="Share answered in time.")
    overflow_share: list[Maybe] = Field(description="Of the requests: answered by functions.")
    instances: dict[str, list[int | None]] = Field(description="That ran, by offer.")


class GrantSchema(_Model):
    """The owner of the key or token, and its scopes."""

    name: str
    scopes: list[str]
    version: str = Field(description="Of mark.")


def summary(view: views.ServiceView) -> Summary:
    return Summary(
        service=view.service,
        mode=cast(Mode, view.mode),
        rps=view.rps,
        capacity_rps=view.capacity_rps,
        usd_per_hour=view.usd_per_hour,
        instances=sum(i.phase in RUNNING for i in view.instances),
        slo=SloSchema.model_validate(view.slo),
        troubles=list(view.conditions),
    )


def service(view: views.ServiceView) -> ServiceSchema:
    return ServiceSchema(
        **dict(summary(view)),
        at_unix_s=view.at_unix_s,
        at_s=view.at_s,
        time_scale=view.time_scale,
        offers=offers(view),
        plan=plan(view),
        forecast=forecast(view),
        prices=prices(view),
        bill=bill(view),
        next_day=next_day(view.next_day),
        limits=limits(view.limits),
        rollout=None if view.rollout is None else RolloutSchema.model_validate(view.rollout),
    )


def pipeline_summary(view: PipelineView) -> PipelineSummary:
    services = {stage.view.service: stage for stage in view.stages}  # stages that share instances count once
    return PipelineSummary(
        pipeline=view.config.name,
        services=list(services),
        queries_per_s=view.queries_per_s,
        instances=sum(kind.count for stage in services.values() for kind in stage.running),
        usd_per_hour=view.usd_per_hour,
        bottleneck=None if view.bottleneck is None else BottleneckSchema.model_validate(view.bottleneck),
    )


def pipeline(view: PipelineView, drawing: dict[Literal["across", "down"], LayoutSchema] | None) -> PipelineSchema:
    config, queries_per_h = view.config, (view.queries_per_s or 0.0) * 3600.0
    last = max((stage.view for stage in view.stages), key=lambda one: one.at_unix_s)
    return PipelineSchema(
        **dict(pipeline_summary(view)),
        at_unix_s=last.at_unix_s,
        at_s=last.at_s,
        time_scale=last.time_scale,
        driver=config.driver,
        rt_max_ms=config.slo.rt_max_s * 1e3,
        target=config.slo.attainment,
        longest_path_ms=view.longest_path_ms,
        usd_so_far=view.usd_so_far,
        usd_per_million_queries_now=view.usd_per_hour / queries_per_h * 1e6 if queries_per_h else None,
        queries=None if view.queries is None else QueriesSchema.model_validate(view.queries),
        promise=promise(view.promise),
        usd_per_query=view.usd_per_query,
        stages=[_stage(stage) for stage in view.stages],
        drawing=drawing,
    )


def _stage(stage: StageView) -> StageSchema:
    view = stage.view
    return StageSchema(
        stage=stage.stage,
        service=view.service,
        model=stage.model,
        after=None if stage.after is None else list(stage.after),
        join=_join(stage.join) if len(stage.after or ()) > 1 else None,
        calls_per_query=stage.calls_per_query,
        mode=cast(Mode, view.mode),
        rps=view.rps,
        capacity_rps=view.capacity_rps,
        used=stage.used,
        slo=SloSchema.model_validate(view.slo),
        usd_per_hour=view.usd_per_hour,
        dollar_share=stage.dollar_share,
        usd_per_request=view.price_list.usd_per_request,
        overflow_share=stage.overflow_share,
        running=[InstancesByMarket.model_validate(kind) for kind in stage.running],
        troubles=list(view.conditions),
    )


def _join(join: Join | None) -> JoinSchema | None:
    return None if join is None else JoinSchema(least=join.least, deadline_ms=join.deadline_s * 1e3)


def layout(found: GraphLayout, box_width: float, box_height: float) -> LayoutSchema:
    return LayoutSchema(
        width=found.width,
        height=found.height,
        box_width=box_width,
        box_height=box_height,
        end_width=END_WIDTH,
        end_height=END_HEIGHT,
        query=list(found.query),
        answer=list(found.answer),
        boxes=[list(corner) for corner in found.boxes],
        lines=list(found.lines),
    )


def limits(own: views.Limits) -> LimitsSchema:
    # Skip validation, because limits that a service file or an older version allowed must still be shown.
    return LimitsSchema.model_construct(max_instances=own.max_instances, max_usd_per_hour=own.max_usd_per_hour)


def bill(view: views.ServiceView) -> BillSchema:
    total = view.bill.total
    return BillSchema(
        **view.bill.as_json(),
        requests=view.requests,
        usd_per_million_requests=total / view.requests * 1e6 if view.requests else None,
        usd_per_hour=view.usd_per_hour,
        usd_per_million_requests_now=view.usd_per_hour / (view.rps * 3600.0) * 1e6 if view.rps else None,
    )


def next_day(own: NextDay | None) -> NextDaySchema | None:
    if own is None:
        return None
    usd, promise = own.usd, own.promise
    return NextDaySchema(
        interval_90=[usd.low, usd.high],
        expected_usd=usd.expected,
        calibrated=usd.calibrated,
        promise_kept=None if promise is None else promise.probability,
    )


def prices(view: views.ServiceView) -> PricesSchema:
    return PricesSchema(
        usd_per_request=view.price_list.usd_per_request,
        usd_per_miss=view.price_list.usd_per_miss,
        promise=promise(view.promise),
    )


def promise(own: PromiseEstimate | None) -> PromiseSchema | None:
    if own is None:
        return None
    usd = math.nan if own.usd_per_hour is None else own.usd_per_hour
    return PromiseSchema(
        rps=own.rps,
        usd_per_hour=own.usd_per_hour,
        other_slos=[OtherSloSchema.model_validate(one.as_json(usd)) for one in own.other_slos],
        usd_per_hour_per_ms=usd_per_hour_per_ms(own.other_slos),
    )


def forecast(view: views.ServiceView) -> ForecastSchema | None:
    return None if view.forecast is None else ForecastSchema.model_validate(view.forecast)


def plan(view: views.ServiceView) -> PlanSchema | None:
    own = view.plan
    if own is None:
        return None
    live: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    for i in view.instances:
        if i.phase is Phase.STOPPED:
            stopped[i.offer] += 1
        elif i.phase is not Phase.DRAINING and i.interruption_at_s is None:
            live[i.offer] += 1

    def wanted(targets: Iterable[Target], have: Counter[str], prices: dict[str, float]) -> list[Wanted]:
        return [
            Wanted(
                offer=t.offer,
                count=t.count,
                spare=t.spare,
                reason=t.reason,
                usd_per_hour=prices[t.offer] * t.count if t.offer in prices else None,
                have=have[t.offer],
            )
            for t in targets
        ]

    return PlanSchema(
        age_s=max(0.0, view.at_s - own.at_s),
        targets=wanted(own.targets, live, view.prices),
        standbys=wanted(own.standbys, stopped, {}),
        warm=own.warm,
        capacity_rps=own.capacity_rps,
        predictor=own.predictor,
        solver=own.solver,
        notes=list(own.notes),
    )


def offers(view: views.ServiceView) -> list[OfferCount]:
    """Return one entry for each offer, by name; their number does not grow with the instances."""
    counts: dict[str, Counter[Phase]] = {}
    for i in view.instances:
        counts.setdefault(i.offer, Counter())[i.phase] += 1
    return [
        OfferCount(
            offer=offer,
            pending=by_phase[Phase.PENDING],
            ready=by_phase[Phase.READY],
            draining=by_phase[Phase.DRAINING],
            stopped=by_phase[Phase.STOPPED],
            usd_per_hour=view.prices[offer] * sum(by_phase[p] for p in RUNNING) if offer in view.prices else None,
        )
        for offer, by_phase in sorted(counts.items())
    ]


def fleet(view: views.ServiceView, after: int, count: int) -> FleetSchema:
    page = [i for i in view.instances if i.number > after][:count]
    return FleetSchema(offers=offers(view), instances=[_instance(i, view) for i in page], total=len(view.instances))


def _instance(one: Instance, view: views.ServiceView) -> InstanceNow:
    booting = one.phase is Phase.PENDING and one.ready_s is not None
    return InstanceNow(
        number=one.number,
        offer=one.offer,
        phase=one.phase.value,
        age_s=max(0.0, view.at_s - one.launched_s),
        ready_in_s=max(0.0, one.ready_s - view.at_s) if booting and one.ready_s is not None else None,
        gone_in_s=None if one.interruption_at_s is None else max(0.0, one.interruption_at_s - view.at_s),
        standby=one.standby,
        credits=one.credits,
        usd_per_hour=view.prices.get(one.offer) if one.phase in RUNNING else None,
    )


def decisions(own: Sequence[views.DecisionView], count: int) -> Decisions:
    found = [DecisionSchema.model_validate(decision) for decision in own]
    return Decisions(decisions=found, next_before=own[-1].id if len(own) == count else None)
