"""Views of a service for the control room: snapshots for the control API, the live page and the testbed's status.

Times are Unix seconds (`_unix_s`), so that a reader needs no origin; rates are requests/s, money is dollars.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.control.ports import Result
from mark.domain.bill import Bill
from mark.domain.fleet import Instance
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList, PromiseEstimate
from mark.planning.next_day import NextDay

_UNKNOWN = PriceList()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a service, which may be changed while it runs."""

    max_instances: int
    max_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class SloView:
    """How the SLO was kept since the controller first saw the service; values are None before the first answer."""

    rt_max_ms: float
    target: float
    attainment: float | None  # over all requests
    recent: float | None  # over about the last 1,000 requests
    error_budget_left: float | None  # 1: no miss in the SLO's window; 0: all allowed misses used; below: broken
    recent_ms: float | None = None  # mean latency of about the last 1,000 answered requests, from their arrival
    recent_p50_ms: float | None = None  # over the same requests
    recent_p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutView:
    """The release that serves, and the progress of a new one."""

    wanted: str  # the release deployed last
    release: str  # the release of planned launches
    stage: str  # "done", "canary", "rolling", or "stopped": the wanted one was taken back
    before: str  # the release of a roll-back; "" if unknown
    reason: str  # why a release was taken back
    instances: dict[str, int]  # booting, serving and draining ones, by release


@dataclass(frozen=True, slots=True)
class ForecastView:
    """A fan: quantiles of the mean arrival rate by minute from `origin_unix_s`."""

    origin_unix_s: float
    step_s: float
    predictor: str
    levels: tuple[float, ...]
    rps: tuple[tuple[float, ...], ...]  # [level][step]


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service now."""

    service: str
    mode: str  # "acting", "dry-run", "paused" or "standing by" (another controller leads)
    at_unix_s: float
    at_s: float  # the same moment by the service's clock, which `instances` and `plan` use
    rps: float | None
    capacity_rps: float  # of ready instances
    usd_per_hour: float  # of running instances
    instances: tuple[Instance, ...]
    prices: dict[str, float]  # $/h of one instance now, for every offer in `instances` and in `plan`
    plan: Plan | None
    forecast: ForecastView | None
    slo: SloView
    bill: Bill  # since the controller first saw the service
    requests: int
    limits: Limits
    conditions: tuple[str, ...]  # the present troubles, in plain sentences; empty when all is well
    rollout: RolloutView | None = None  # None for releases without names
    price_list: PriceList = _UNKNOWN  # the cost of one more request and of one more miss
    promise: PromiseEstimate | None = None  # the cost of RT_max and others at the present load; None if it is unknown
    next_day: NextDay | None = None  # from the last 24 hours; None before 24 hours have passed
    time_scale: float = 1.0  # seconds of the service's clock per second of wall time; differs from 1 on a testbed only


@dataclass(frozen=True, slots=True)
class DecisionView:
    """One line of the decision log."""

    id: int  # ascending within a service
    at_unix_s: float
    verb: str
    text: str  # a sentence with its reason in money
    outcome: str  # for people: "done", or why not
    usd_per_hour: float
    result: Result | None = None  # None in lines that were written before results were kept
    started: int = 0  # instances that a launch started


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The past in equal steps, oldest first; None without observations. All tuples are equally long."""

    start_unix_s: float
    step_s: float
    rps: tuple[float | None, ...]
    capacity_rps: tuple[float | None, ...]
    usd_per_hour: tuple[float | None, ...]
    attainment: tuple[float | None, ...]
    overflow_share: tuple[float | None, ...]
    instances: dict[str, tuple[int | None, ...]]  # running, by offer


@dataclass(frozen=True, slots=True)
class QueriesView:
    """Whole queries of a pipeline, as its conductors count them; values are None without counts."""

    per_s: float | None  # queries/s of the last minute, answered or refused
    recent: float | None  # share in time of about the last 1,000
    recent_ms: float | None  # mean latency of the answered ones among these, from arrival at a conductor
    recent_p50_ms: float | None  # over the same queries
    recent_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class QueriesHistory:
    """Whole queries in equal steps, oldest first; None without a conductor. All tuples are equally long."""

    start_unix_s: float
    step_s: float
    per_s: tuple[float | None, ...]
    attainment: tuple[float | None, ...]
    p50_ms: tuple[float | None, ...]
    p99_ms: tuple[float | None, ...]
