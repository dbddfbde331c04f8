"""Views of a service for the control room: snapshots for the control API, the live page and the testbed's status.

The API serves the classes that end in `Schema` as they are, and `/openapi.json` has their names. Times are Unix
seconds (`_unix_s`), so that a reader needs no origin; rates are requests/s, money is dollars.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mark.control.ports import Result
from mark.domain.bill import Bill
from mark.domain.fleet import Instance
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList, PromiseEstimate
from mark.planning.next_day import NextDay


class _Rounded:
    """Tells pydantic, which calls the method below, how to round a number for the API.

    Only that method imports pydantic, because a light install has these views but not the API.
    """

    def __init__(self, rounded: Callable[[Any], float | None]) -> None:
        self._rounded = rounded

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import PlainSerializer

        return PlainSerializer(self._rounded).__get_pydantic_core_schema__(source, handler)


def _short(value: float | None) -> float | None:
    """Return the value with six significant digits; None for infinity and NaN, which JSON cannot express."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _millisecond(value: float) -> float:
    return round(value, 3)


Number = Annotated[float, _Rounded(_short)]
Maybe = Annotated[float | None, _Rounded(_short)]
Moment = Annotated[float, _Rounded(_millisecond)]
Mode = Literal["acting", "dry-run", "paused", "standing by"]  # standing by: another controller leads

_UNKNOWN = PriceList()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a service, which may be changed while it runs."""

    max_instances: int
    max_usd_per_hour: float


class _Served:
    """A view that the control API serves as it is: the docstrings of the fields are their descriptions."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}


@dataclass(frozen=True, slots=True)
class SloSchema(_Served):
    """The promise, at least `target` of the requests answered within `rt_max_ms`, and how it was kept."""

    rt_max_ms: Number
    target: Number
    """The share that is promised (SL_min)."""
    attainment: Maybe
    """Share answered in time since the controller first saw the service."""
    recent: Maybe
    """Share answered in time of the last 1,000 requests or so."""
    error_budget_left: Maybe
    """1: no miss so far; 0: as many as the SLO allows; below 0: more."""
    recent_ms: Maybe
    """Mean latency of the last 1,000 answered requests or so, from arrival at the instance or function."""
    recent_p50_ms: Maybe
    """Their median. It and the 99th percentile are read from buckets whose bounds are a factor of 1.6 apart."""
    recent_p99_ms: Maybe
    """Their 99th percentile."""


@dataclass(frozen=True, slots=True)
class RolloutSchema(_Served):
    """Which release serves, and how far a new one is."""

    wanted: str
    """The release deployed last."""
    release: str
    """The release that launches get."""
    stage: Literal["done", "canary", "rolling", "stopped"]
    """stopped: the wanted release did worse, or was taken back; `release` serves."""
    before: str
    """The release that a roll-back returns to; "" if unknown."""
    reason: str
    """Why a release was taken back."""
    instances: dict[str, int]
    """Instances that boot, serve or finish their requests, by release."""


@dataclass(frozen=True, slots=True)
class ForecastSchema(_Served):
    """A fan: quantiles of the mean arrival rate, by step from `origin_unix_s`."""

    origin_unix_s: Moment
    step_s: Number
    predictor: str
    levels: tuple[Number, ...]
    """The quantiles, ascending."""
    rps: tuple[tuple[Number, ...], ...]
    """[level][step]"""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service now."""

    service: str
    mode: Mode
    at_unix_s: float
    at_s: float  # the same moment by the service's clock, which `instances` and `plan` use
    rps: float | None
    capacity_rps: float  # of ready instances
    usd_per_hour: float  # of running instances
    instances: tuple[Instance, ...]
    prices: dict[str, float]  # $/h of one instance now, for every offer in `instances` and in `plan`
    plan: Plan | None
    forecast: ForecastSchema | None
    slo: SloSchema
    bill: Bill  # since the controller first saw the service
    requests: int
    limits: Limits
    conditions: tuple[str, ...]  # the present troubles, in plain sentences; empty when all is well
    rollout: RolloutSchema | None = None  # None for releases without names
    price_list: PriceList = _UNKNOWN  # the cost of one more request and of one more miss
    promise: PromiseEstimate | None = None  # the cost of this RT_max and of others now; None if the load is unknown
    next_day: NextDay | None = None  # from up to 45 past days; None before 24 hours have passed
    time_scale: float = 1.0  # seconds of the service's clock per second of wall time; differs from 1 on a testbed only


@dataclass(frozen=True, slots=True)
class DecisionSchema(_Served):
    """A line of the decision log."""

    id: int
    """Ascending within a service."""
    at_unix_s: Moment
    verb: str
    text: str
    """The command with its $/h and its reason."""
    outcome: str
    """For people: "done", perhaps with the instances started instead, or why not."""
    usd_per_hour: Number
    """Dollars per hour that the command adds; negative if it saves some."""
    result: Result | None
    """null in lines that were written before results were kept."""
    started: int
    """Instances that a launch started."""


@dataclass(frozen=True, slots=True)
class HistorySchema(_Served):
    """The past in equal steps, oldest first; null where nothing was seen. All lists are equally long."""

    start_unix_s: Moment
    step_s: Number
    rps: tuple[Maybe, ...]
    capacity_rps: tuple[Maybe, ...]
    usd_per_hour: tuple[Maybe, ...]
    attainment: tuple[Maybe, ...]
    """Share answered in time."""
    overflow_share: tuple[Maybe, ...]
    """Share of the requests that functions answered."""
    instances: dict[str, tuple[int | None, ...]]
    """Mean number of ready instances, by offer."""


@dataclass(frozen=True, slots=True)
class QueriesSchema(_Served):
    """Whole queries of a pipeline, as its conductors count them; latencies are of those that were answered."""

    per_s: Maybe
    """Queries/s of the last minute, answered or refused."""
    recent: Maybe
    """Share answered in time of the last 1,000 or so."""
    recent_ms: Maybe
    """Their mean latency, from arrival at a conductor."""
    recent_p50_ms: Maybe = field(
        metadata={
            "description": "Their median. This and the next are read from buckets whose bounds are a factor of 1.6 "
            "apart, and are above rt_max_ms where more than the rest of the answers were late."
        }
    )
    recent_p99_ms: Maybe
    """Their 99th percentile."""


@dataclass(frozen=True, slots=True)
class QueriesHistorySchema(_Served):
    """Whole queries in equal steps, oldest first; null where no conductor was heard. All lists are equally long.

    They begin with this controller's process, at most 24 hours ago.
    """

    start_unix_s: Moment
    step_s: Number
    per_s: tuple[Maybe, ...]
    """Queries/s."""
    attainment: tuple[Maybe, ...]
    """Share answered in time."""
    p50_ms: tuple[Maybe, ...]
    """Median latency of the answered queries."""
    p99_ms: tuple[Maybe, ...]
    """The 99th percentile of their latency."""
