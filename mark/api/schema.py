"""The answers and bodies of the control API: the contract with the page and with other people's programs.

Times are Unix seconds (`_unix_s`) or ages (`_s`), rates are requests/s, money is dollars, shares are 0 to 1. Unknown
values are null.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mark.control import views
from mark.control.views import DecisionSchema, ForecastSchema, Maybe, Mode, Moment, Number, RolloutSchema, SloSchema
from mark.domain.fleet import Instance, Phase
from mark.domain.plan import Target
from mark.domain.price_list import PromiseEstimate, usd_per_hour_per_ms
from mark.planning.next_day import NextDay

RUNNING = (Phase.PENDING, Phase.READY, Phase.DRAINING)  # phases that are paid by the second


class ApiAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Error(ApiAnswer):
    error: str = Field(description="The error, in one line.")


class LimitsSchema(ApiAnswer):
    """The limits of a service; planner and launches obey them from the next step on."""

    # The bounds hold for a change only: an older version may have stored `views.Limits` beyond them.
    model_config = ConfigDict(extra="forbid", strict=True)
    max_instances: int = Field(ge=1, le=100_000, description="Instances that run at once.", examples=[20])
    max_usd_per_hour: float = Field(
        gt=0, le=1e6, allow_inf_nan=False, description="Dollars per hour of all that runs.", examples=[5.0]
    )


class BillSchema(ApiAnswer):
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


class Wanted(ApiAnswer):
    """The planned number of instances of an offer, and the reason."""

    offer: str
    count: int
    spare: int = Field(description="Instances of `count` that are wanted only until the others are ready.")
    reason: str = Field(description="Why it is wanted, in dollars and load.")
    usd_per_hour: Maybe = Field(description="Dollars per hour of all `count` instances.")
    have: int = Field(description="Ready or booting, and not about to be taken away.")


class PlanSchema(ApiAnswer):
    """The planned numbers of instances; zero of an offer that is not named."""

    age_s: Number
    targets: list[Wanted]
    standbys: list[Wanted] = Field(description="Stopped burstables to keep.")
    warm: int = Field(description="Function environments to hold warm.")
    capacity_rps: Number = Field(description="Capacity of the plan once all its instances are ready.")
    predictor: str = Field(description='The predictor of the forecast it rests on; "" where it needs none.')
    solver: str
    notes: list[str]


class OtherSloSchema(ApiAnswer):
    """The cost of another RT_max; null if no fleet keeps it."""

    rt_max_ms: Number
    usd_per_hour: Maybe
    difference_usd_per_hour: Maybe = Field(description="Difference from the cost at the promised RT_max.")


class PromiseSchema(ApiAnswer):
    """The cost of the promise at the present load, and of a shorter and a longer RT_max.

    This is an estimate from profiles and prices, not a plan. It assumes whole instances of one type, or functions
    alone, without reserves and without booting or draining instances; in a pipeline, each stage by itself with the
    cheapest split of RT_max.
    """

    rps: Maybe = Field(description="Requests/s (of a pipeline queries/s) that it is made for.")
    usd_per_hour: Maybe = Field(description="Dollars per hour at the promised RT_max; null if no fleet keeps it.")
    other_slos: list[OtherSloSchema] = Field(
        description="RT_max 5 % shorter and longer, of a pipeline 10 ms; the shorter one only where that is above zero."
    )
    usd_per_hour_per_ms: Maybe = Field(
        description="Dollars per hour for each millisecond less of RT_max, between the two."
    )


class NextDaySchema(ApiAnswer):
    """The next day's bill, estimated once an hour from up to 45 past days, without balancer and disks."""

    interval_90: list[Number] = Field(description="Dollars: in nine of ten days the bill lies between these two.")
    expected_usd: Number
    calibrated: bool = Field(
        description="Whether the range comes from past days of this service; otherwise from other traffic."
    )
    promise_kept: Maybe = Field(description="Probability; null where nothing was answered.")


class PricesSchema(ApiAnswer):
    """The planner's present prices, in dollars, of one more request and one more miss."""

    usd_per_request: Maybe = Field(
        description="One more request: 0 while ready capacity has room; null while no plan states the load it believes."
    )
    usd_per_miss: Maybe = Field(
        description="Value of not missing one more request: a function call's price where functions are in time, "
        "else the price that the SLO's budget of misses puts on a miss."
    )
    promise: PromiseSchema | None = Field(description="Price of a millisecond of RT_max; null while no load is known.")


class OfferCount(ApiAnswer):
    """Instances of one offer by phase."""

    offer: str
    pending: int
    ready: int
    draining: int
    stopped: int
    usd_per_hour: Maybe = Field(description="Dollars per hour of the running instances.")


class InstanceNow(ApiAnswer):
    number: int = Field(description="In the order of launches.")
    offer: str
    phase: Literal["pending", "ready", "draining", "stopped", "gone"]
    age_s: Number = Field(description="Since its launch.")
    ready_in_s: Maybe = Field(
        description="Seconds until it is expected to be ready; null if it is ready or this is unknown."
    )
    gone_in_s: Maybe = Field(description="Seconds until an interruption takes it; null if none was announced.")
    standby: bool
    credits: Maybe = Field(description="CPU credits left, of burstables.")
    usd_per_hour: Maybe


class FleetSchema(ApiAnswer):
    """Counts by offer, and a page of the instances, ascending by number."""

    offers: list[OfferCount]
    instances: list[InstanceNow]
    total: int = Field(description="All instances, including stopped ones.")


class Summary(ApiAnswer):
    """A service in one line."""

    service: str
    mode: Mode
    rps: Maybe
    capacity_rps: Number
    usd_per_hour: Number
    instances: int = Field(description="Running instances.")
    slo: SloSchema
    troubles: list[str]


class Services(ApiAnswer):
    services: list[Summary]
    leads: bool = Field(description="Whether this controller acts; else it stands by while another one does.")
    pipelines: list[str] = Field(description="Names of the pipelines whose stages are among the services.")


class ServiceSchema(Summary):
    """A service now, without its history, its decisions and single instances."""

    at_unix_s: Moment
    at_s: Moment = Field(
        description="The same moment by the service's clock, by which ages, plans and prices are given."
    )
    time_scale: Number = Field(
        description="Seconds of the service's clock in a real second; only a testbed has more than 1."
    )
    offers: list[OfferCount]
    plan: PlanSchema | None
    forecast: ForecastSchema | None
    prices: PricesSchema
    bill: BillSchema
    next_day: NextDaySchema | None = Field(description="null until 24 hours are known.")
    limits: LimitsSchema
    rollout: RolloutSchema | None = Field(description="null where releases have no names, as on a testbed.")


class Decisions(ApiAnswer):
    """A page of the decision log, newest first."""

    decisions: list[DecisionSchema]
    next_before: int | None = Field(description="`before` of the next page; null at the end.")


class GrantSchema(ApiAnswer):
    """The owner of the key or token, and its scopes."""

    name: str
    scopes: list[str]
    version: str = Field(description="Version of mark.")


def summary(view: views.ServiceView) -> Summary:
    return Summary(
        service=view.service,
        mode=view.mode,
        rps=view.rps,
        capacity_rps=view.capacity_rps,
        usd_per_hour=view.usd_per_hour,
        instances=sum(i.phase in RUNNING for i in view.instances),
        slo=view.slo,
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
        forecast=view.forecast,
        prices=prices(view),
        bill=bill(view),
        next_day=next_day(view.next_day),
        limits=limits(view.limits),
        rollout=view.rollout,
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


def decisions(found: Sequence[DecisionSchema], count: int) -> Decisions:
    return Decisions(decisions=list(found), next_before=found[-1].id if len(found) == count else None)
