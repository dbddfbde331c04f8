"""The controller's metrics of its services, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from mark.api.manager_port import Manager
from mark.api.pipeline_view import PipelineSchema
from mark.api.sited_pipeline import SitedPipeline
from mark.api.wanted import Floors, floor_metrics, reasons
from mark.control.views import ServiceView
from mark.domain.fleet import Phase

CONTENT_TYPE = CONTENT_TYPE_LATEST
_NONE: Mapping[str, SitedPipeline] = MappingProxyType({})
V = TypeVar("V")
Gauges = tuple[tuple[str, str, Callable[[V], float | None]], ...]  # name, help, and value of a view
_PHASES = tuple(phase for phase in Phase if phase is not Phase.GONE)


class ControllerMetrics(Collector):
    """The metrics page of a controller, made on request from the views of its manager, `pipelines` and `floors`."""

    def __init__(
        self, manager: Manager, pipelines: Mapping[str, SitedPipeline] = _NONE, floors: Floors | None = None
    ) -> None:
        self._room, self._pipelines, self._floors = manager, pipelines, floors
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return the page in Prometheus' text format."""
        page = generate_latest(self._registry)
        return page if self._floors is None else page + reasons(self._floors()).encode()

    def collect(self) -> Iterator[Metric]:
        leads = self._room.leads()
        yield GaugeMetricFamily("mark_controller_leads", "1: this controller acts; 0: it stands by.", float(leads))
        found = [self._room.view(service) for service in self._room.services()]
        yield from _gauges("", "service", _PLAIN, {view.service: view for view in found})
        yield from _by_label(found)
        if self._floors is not None:
            yield from floor_metrics(self._floors())
        if self._pipelines:
            yield from _of_pipelines({name: one.view(self._room) for name, one in self._pipelines.items()})


def _gauges(prefix: str, label: str, gauges: Gauges[V], views: Mapping[str, V]) -> Iterator[Metric]:
    for name, what, read in gauges:
        gauge = GaugeMetricFamily(f"mark_controller_{prefix}{name}", what, labels=(label,))
        for of, view in views.items():
            if (value := read(view)) is not None:
                gauge.add_metric((of,), value)
        yield gauge


def _plan_rps(view: ServiceView) -> float | None:
    return None if view.plan is None else view.plan.capacity_rps


def _is_known(view: ServiceView) -> bool:
    """Return whether a round has ended since this process leads; before that the view's sums are zero."""
    return view.at_s > 0.0


_PLAIN: Gauges[ServiceView] = (
    ("load_rps", "Requests/s that arrive.", lambda v: v.rps),
    (
        "capacity_rps",
        "Requests/s that ready instances sustain within the SLO.",
        lambda v: v.capacity_rps if _is_known(v) else None,
    ),
    ("planned_capacity_rps", "The same of the plan, once everything is ready.", _plan_rps),
    (
        "usd_per_hour",
        "Dollars an hour of running instances.",
        lambda v: v.usd_per_hour if _is_known(v) else None,
    ),
    ("usd_per_request", "Price of one more request now.", lambda v: v.price_list.usd_per_request),
    ("usd_per_miss", "Value of not missing one more request.", lambda v: v.price_list.usd_per_miss),
    ("slo_target", "The share of requests to be answered within RT_max.", lambda v: v.slo.target),
    ("slo_rt_max_seconds", "RT_max.", lambda v: v.slo.rt_max_ms / 1e3),
    ("slo_attainment", "Share answered in time since the service was first seen.", lambda v: v.slo.attainment),
    ("slo_recent", "Share answered in time of the last 1,000 or so.", lambda v: v.slo.recent),
    ("error_budget_left", "1: no miss; 0: all that the SLO allows.", lambda v: v.slo.error_budget_left),
    ("limit_instances", "Instances that may run at once.", lambda v: v.limits.max_instances),
    ("limit_usd_per_hour", "The budget per hour.", lambda v: v.limits.max_usd_per_hour),
    ("troubles", "The present conditions that need attention.", lambda v: len(v.conditions)),
    ("seen_timestamp_seconds", "Unix time at which all this was so.", lambda v: v.at_unix_s),
)


def _by_label(found: list[ServiceView]) -> Iterator[Metric]:
    instances = GaugeMetricFamily(
        "mark_controller_instances", "Instances by phase.", labels=("service", "offer", "phase")
    )
    wanted = GaugeMetricFamily(
        "mark_controller_instances_wanted", "Instances that the plan wants.", labels=("service", "offer")
    )
    forecast = GaugeMetricFamily(
        "mark_controller_forecast_rps", "Believed of the coming minute.", labels=("service", "quantile")
    )
    mode = GaugeMetricFamily("mark_controller_mode", "1: the mode it is in.", labels=("service", "mode"))
    bill = CounterMetricFamily(
        "mark_controller_bill_usd", "Dollars since the service was first seen.", labels=("service", "market")
    )
    requests = CounterMetricFamily("mark_controller_requests", "Requests in the same time.", labels=("service",))
    for view in found:
        counts = Counter((i.offer, i.phase) for i in view.instances)
        for offer in sorted({offer for offer, _ in counts}):
            for phase in _PHASES:
                instances.add_metric((view.service, offer, phase.value), counts[offer, phase])
        for offer, count in sorted(view.plan.counts.items() if view.plan is not None else ()):
            wanted.add_metric((view.service, offer), count)
        if view.forecast is not None:
            for level, rps in zip(view.forecast.levels, view.forecast.rps, strict=True):
                forecast.add_metric((view.service, str(level)), rps[0])
        mode.add_metric((view.service, view.mode), 1)
        if not _is_known(view):
            continue
        for market, usd in view.bill.as_json().items():
            if market != "total":
                bill.add_metric((view.service, market), usd)
        requests.add_metric((view.service,), view.requests)
    yield from (instances, wanted, forecast, mode, bill, requests)


def _pipeline_usd_per_hour(view: PipelineSchema) -> float | None:
    """Return the sum of all stages, or None while the controller of one does not run."""
    return None if any(stage.mode == "standing by" for stage in view.stages) else view.usd_per_hour


_PIPELINE: Gauges[PipelineSchema] = (
    ("load_qps", "Queries/s.", lambda v: v.queries_per_s),
    ("usd_per_hour", "Dollars an hour of running instances, of all stages.", _pipeline_usd_per_hour),
    ("slo_target", "The share of queries to be answered within RT_max.", lambda v: v.target),
    ("slo_rt_max_seconds", "RT_max.", lambda v: v.rt_max_ms / 1e3),
    (
        "slo_recent",
        "Share of whole queries in time, of the last 1,000 or so.",
        lambda v: None if v.queries is None else v.queries.recent,
    ),
)


def _of_pipelines(found: Mapping[str, PipelineSchema]) -> Iterator[Metric]:
    yield from _gauges("pipeline_", "pipeline", _PIPELINE, found)
    latency = GaugeMetricFamily(
        "mark_controller_pipeline_latency_seconds",
        "Of whole queries, of those of the last 1,000 or so that were answered.",
        labels=("pipeline", "quantile"),
    )
    promise = GaugeMetricFamily(
        "mark_controller_pipeline_promise_usd_per_hour",
        "Estimated for the present load, by RT_max: the promised one, and 10 ms less and more.",
        labels=("pipeline", "rt_max_ms"),
    )
    for pipeline, view in found.items():
        queries = view.queries
        if queries is not None:
            for quantile, ms in (("0.5", queries.recent_p50_ms), ("0.99", queries.recent_p99_ms)):
                if ms is not None:
                    latency.add_metric((pipeline, quantile), ms / 1e3)
        if view.promise is not None:
            prices = {view.rt_max_ms: view.promise.usd_per_hour}
            prices |= {other.rt_max_ms: other.usd_per_hour for other in view.promise.other_slos}
            for rt_max_ms, usd_per_hour in prices.items():
                if usd_per_hour is not None:
                    promise.add_metric((pipeline, f"{rt_max_ms:g}"), usd_per_hour)
    yield from (latency, promise)
