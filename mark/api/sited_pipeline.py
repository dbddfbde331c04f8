"""A pipeline whose stages a controller runs: what the API shows of it, made of the views of its manager."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Literal

from mark.api import schema
from mark.api.manager_port import Manager
from mark.catalog.tables import load_catalog
from mark.config.pipeline_file import PipelineConfig
from mark.control.pipeline_view import PipelineView, pipeline_view
from mark.control.views import ServiceView
from mark.domain.bill import Bill
from mark.domain.fleet import Phase
from mark.domain.service import ServiceConfig
from mark.pipelines.graph_layout import graph_layout
from mark.pipelines.lineage_file import calls_per_query
from mark.pipelines.sited_group import GroupCalls, sited_group

# Pixels: five lines below a name; downwards two boxes fit beside each other on a telephone, each with room for a mark
# above its name.
_BOXES: dict[Literal["across", "down"], tuple[float, float]] = {"across": (196.0, 124.0), "down": (136.0, 132.0)}
_OVERFLOW_H = 5.0 / 60.0


class SitedPipeline:
    """Its drawing is made once: a graph does not change while a controller runs.

    Raises BadInput for a lineage that cannot be used.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._calls_per_query = calls_per_query(config)
        self._services = [service.name for service in config.bought_services()]
        self._groups = [_SitedGroup(config, service) for service in config.bought_services() if service.together]
        self.drawing: dict[Literal["across", "down"], schema.LayoutSchema] | None = None
        if (graph := config.pipeline) is not None:
            self.drawing = {
                way: schema.layout(graph_layout(graph, *size, down=way == "down"), *size)
                for way, size in _BOXES.items()
            }

    def view(self, manager: Manager) -> PipelineView:
        """It now."""
        views = {service: manager.view(service) for service in self._services}
        overflow = {service: _overflow(manager, service) for service in views}
        for group in self._groups:
            views |= group.by_stage(views[group.service])
        return pipeline_view(self._config, views, overflow, self._calls_per_query)


class _SitedGroup:
    """Stages that are bought together: to each its part of what is seen of all of them."""

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
        """By its name as a service of its own: its part of RT_max, its calls, and what its workers take of the dollars.

        Of the rest each has what is seen of all.
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
