"""The API's view of a pipeline whose stages a controller runs, made from the views of its manager."""

from __future__ import annotations

from dataclasses import fields, replace
from threading import Lock
from typing import Literal

import numpy as np

from mark.api import schema
from mark.api.manager_port import Conducted, Manager
from mark.api.pipeline_view import Drawing, PipelineSchema, layout, pipeline_view
from mark.config.pipeline_config import PipelineConfig
from mark.control.views import ServiceView
from mark.domain.bill import Bill
from mark.domain.catalog.tables import load_catalog
from mark.domain.fleet import Phase
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.price_list import PromiseEstimate
from mark.domain.service import ServiceConfig
from mark.planning.graphs.graph_layout import graph_layout
from mark.planning.graphs.lineage_file import calls_per_query, load_lineage
from mark.planning.graphs.promise_split import split_estimate
from mark.planning.graphs.sited_group import GroupCalls, sited_group
from mark.planning.promise_cost import PromiseCost

# In pixels. A box has five lines below its name. In a downward drawing two boxes fit side by side on a phone, each with
# room for a mark above its name.
_BOXES: dict[Literal["across", "down"], tuple[float, float]] = {"across": (196.0, 124.0), "down": (136.0, 132.0)}
_OVERFLOW_H = 5.0 / 60.0
# An estimate of the promise's cost is kept for HELD_S, unless a load moved by the share MOVED since.
HELD_S, MOVED = 60.0, 0.1


class SitedPipeline:
    """A pipeline with its drawing, which is made once because a graph does not change while a controller runs.

    Methods may be called from any thread. `conducted` are its whole queries; None without known conductors. Raises
    BadInput for a lineage that cannot be used.
    """

    def __init__(self, config: PipelineConfig, conducted: Conducted | None = None) -> None:
        self._config, self.conducted = config, conducted
        self._calls_per_query = calls_per_query(config)
        services = config.bought_services()
        self._services = [service.name for service in services]
        self._groups = [_SitedGroup(config, service) for service in services if service.together]
        self._promise = None if self._groups else _Promise(config)
        self._drawing: Drawing | None = None
        if (graph := config.pipeline) is not None:
            self._drawing = {
                way: layout(graph_layout(graph, *size, down=way == "down"), *size) for way, size in _BOXES.items()
            }

    def view(self, manager: Manager) -> PipelineSchema:
        """Return the view of the pipeline now."""
        views = {service: manager.view(service) for service in self._services}
        overflow = {service: _overflow(manager, service) for service in views}
        for group in self._groups:
            views |= group.by_stage(views[group.service])
        queries = None if self.conducted is None else self.conducted.view()
        view = pipeline_view(self._config, views, overflow, self._calls_per_query, queries, self._drawing)
        if self._promise is None:
            return view
        found = self._promise.now(view, [manager.promise_cost(name) for name in self._services])
        return view.model_copy(update={"promise": schema.promise(found)})


class _Promise:
    """The promise's cost at the present load: computed on request, and never by the control loop."""

    def __init__(self, config: PipelineConfig) -> None:
        self._rt_max_s = config.slo.rt_max_s
        # With a driver, assume that the stages follow each other, as servers do when they divide RT_max.
        self._graph = config.pipeline or Pipeline(
            tuple(
                PipelineStage(stage.name, stage.model, config.names[n - 1 : n] if n else ())
                for n, stage in enumerate(config.stages)
            )
        )
        self._patterns = (
            np.ones((1, len(config.stages)), dtype=np.int64)
            if config.lineage_file is None
            else load_lineage(config.lineage_file, config.names).calls
        )
        self._lock = Lock()
        self._made: tuple[float, list[float], PromiseEstimate] | None = None  # the time, stage loads and estimate

    def now(self, view: PipelineSchema, costs: list[PromiseCost]) -> PromiseEstimate | None:
        """Return the estimate for the present load; None while the load of a stage is unknown."""
        loads_rps = []
        for stage in view.stages:
            rps = stage.rps  # may lack calls of queries that an earlier stage refused
            if view.queries_per_s is not None and stage.calls_per_query is not None:
                rps = view.queries_per_s * stage.calls_per_query
            if rps is None:
                return None
            loads_rps.append(rps)
        with self._lock:
            if self._made is None or self._is_old(view.at_unix_s, loads_rps):
                steps = [cost.steps(rps) for cost, rps in zip(costs, loads_rps, strict=True)]
                found = split_estimate(self._graph, self._patterns, steps, self._rt_max_s, view.queries_per_s)
                self._made = view.at_unix_s, loads_rps, found
            return self._made[2]

    def _is_old(self, at_unix_s: float, loads_rps: list[float]) -> bool:
        assert self._made is not None
        made_unix_s, before_rps, _ = self._made
        moved = any(abs(now - was) > MOVED * was for now, was in zip(loads_rps, before_rps, strict=True))
        return moved or not 0.0 <= at_unix_s - made_unix_s < HELD_S


class _SitedGroup:
    """Stages that one service buys together. Its view is divided into one view per stage."""

    def __init__(self, config: PipelineConfig, service: ServiceConfig) -> None:
        found = sited_group(config, service, load_catalog(service.catalog))
        shares = zip(found.resolved.offers, found.dollar_shares, strict=True)
        self.service, self._shares = service.name, {offer.name: of_stages for offer, of_stages in shares}
        per_lead = GroupCalls.of(config, service).per_lead
        alone = {one.stage: one for one in config.stage_services()}
        self._stages = [
            (alone[name].name, 1e3 * alone[name].slo.rt_max_s, calls)
            for name, calls in zip(service.together, per_lead, strict=True)
        ]

    def by_stage(self, view: ServiceView) -> dict[str, ServiceView]:
        """Return a view per stage, by service name, with the stage's part of RT_max, calls and workers' dollars.

        All other values are those of the common view.
        """
        alike = (1.0 / len(self._stages),) * len(self._stages)
        taken = [
            (view.prices.get(one.offer, 0.0), self._shares.get(one.offer, alike))
            for one in view.instances
            if one.phase is not Phase.STOPPED
        ]
        usd = sum(price for price, _ in taken)
        found = {}
        for at, (name, part_ms, calls) in enumerate(self._stages):
            part = sum(price * shares[at] for price, shares in taken) / usd if usd > 0.0 else alike[at]
            price = view.price_list.usd_per_request
            found[name] = replace(
                view,
                rps=None if view.rps is None else calls * view.rps,
                capacity_rps=calls * view.capacity_rps,
                slo=replace(view.slo, rt_max_ms=part_ms),
                usd_per_hour=part * view.usd_per_hour,
                bill=Bill(**{market.name: part * getattr(view.bill, market.name) for market in fields(Bill)}),
                price_list=replace(
                    view.price_list, usd_per_request=None if price is None or calls <= 0.0 else price * part / calls
                ),
            )
        return found


def _overflow(manager: Manager, service: str) -> float | None:
    shares = manager.history(service, _OVERFLOW_H, 1).overflow_share
    return shares[-1] if shares else None
