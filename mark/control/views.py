"""What the control room shows of a service: snapshots for the control API, the live page and the testbed's status.

Times are Unix seconds (`_unix_s`), so that a reader needs no origin; rates requests/s, money dollars.
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
    """What a service may have at most; may be changed while it runs."""

    max_instances: int
    max_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class SloView:
    """How the promise was kept since the controller first saw the service; None while nothing was answered."""

    rt_max_ms: float
    target: float
    attainment: float | None  # over all requests
    recent: float | None  # over the last 1,000 or so
    error_budget_left: float | None  # 1: no miss in the SLO's window; 0: all it allows; below: broken
    recent_ms: float | None = None  # mean latency of the last 1,000 or so that were answered, from arrival there
    recent_p50_ms: float | None = None  # of the same
    recent_p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutView:
    """Which release serves, and how far a new one is."""

    wanted: str  # what was deployed last
    release: str  # what is launched
    stage: str  # "done", "canary", "rolling", or "stopped": the wanted one was taken back
    before: str  # what a roll-back returns to; "" where nothing is known of that
    reason: str  # why one was taken back
    instances: dict[str, int]  # that boot, serve or finish, by release


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
    at_s: float  # the same moment by the service's clock, which the times in `instances` and `plan` are of
    rps: float | None
    capacity_rps: float  # of what is ready
    usd_per_hour: float  # of what runs
    instances: tuple[Instance, ...]
    prices: dict[str, float]  # $/h of one instance now, by offer: of every offer in `instances` and in `plan`
    plan: Plan | None
    forecast: ForecastView | None
    slo: SloView
    bill: Bill  # since the controller first saw the service
    requests: int
    limits: Limits
    conditions: tuple[str, ...]  # what does not work right now, in plain sentences; empty when all is well
    rollout: RolloutView | None = None  # None: releases have no names
    price_list: PriceList = _UNKNOWN  # what one more request and one more miss cost
    promise: PromiseEstimate | None = None  # what RT_max and others cost at the load of now; None: no load is known
    next_day: NextDay | None = None  # by the last 24 hours; None until there are as many
    time_scale: float = 1.0  # seconds of the service's clock in one on the wall; others than 1 on a testbed only


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
    """The past in equal steps, oldest first; None where nothing was seen. All tuples are equally long."""

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
    """Whole queries of a pipeline, as its conductors count them; None where nothing was counted."""

    per_s: float | None  # queries/s of the last minute, answered or refused
    recent: float | None  # share in time of the last 1,000 or so
    recent_ms: float | None  # mean latency of those of them that were answered, from arrival at a conductor
    recent_p50_ms: float | None  # of the same
    recent_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class QueriesHistory:
    """The same in equal steps, oldest first; None where no conductor was heard. All tuples are equally long."""

    start_unix_s: float
    step_s: float
    per_s: tuple[float | None, ...]
    attainment: tuple[float | None, ...]
    p50_ms: tuple[float | None, ...]
    p99_ms: tuple[float | None, ...]
