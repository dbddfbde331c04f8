"""The floors for other autoscalers: metrics for Prometheus, and JSON for KEDA's scaler `metrics-api`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Query
from prometheus_client.core import GaugeMetricFamily, Metric

from mark.api.manager_port import Manager
from mark.control.floor import STALE_S, Floor
from mark.control.views import ServiceView

Floors = Callable[[], Sequence[Floor]]  # returns the fresh floors
OfferName = Annotated[str | None, Query(description="The name of an offer, if the service has several.")]
_LABELS = ("service", "offer")


def floor_metrics(found: Sequence[Floor]) -> Iterator[Metric]:
    """Return the metrics of fresh floors. Stale ones are left out, because a zero would ask for zero replicas."""
    replicas = GaugeMetricFamily("mark_wanted_replicas", "Replicas that must run at least.", labels=_LABELS)
    usd_per_hour = GaugeMetricFamily("mark_wanted_usd_per_hour", "Dollars an hour of these replicas.", labels=_LABELS)
    age_s = GaugeMetricFamily("mark_wanted_age_seconds", "Age of the plan and of the load it saw.", labels=_LABELS)
    for floor in found:
        for family, value in ((replicas, floor.replicas), (usd_per_hour, floor.usd_per_hour), (age_s, floor.age_s)):
            family.add_metric((floor.service, floor.offer), value)
    yield from (replicas, usd_per_hour, age_s)


def reasons(found: Sequence[Floor]) -> str:
    """Return each floor's reason as a comment, because as a label it would make a new series every minute."""
    return "".join(f"# {floor.service} {floor.offer}: {' '.join(floor.reason.split())}\n" for floor in found)


def _why_stale(views: Sequence[ServiceView]) -> str:
    """Return why none of the services has a fresh floor."""
    if all(view.mode == "standing by" for view in views):
        return "this process does not lead: it has just started, or another one leads"
    if troubles := dict.fromkeys(condition for view in views for condition in view.conditions):
        return "; ".join(troubles)
    if all(view.plan is None for view in views):
        return "there is no plan yet: the first one comes about a minute after the start"
    return f"the load was not seen for {STALE_S / 60.0:.0f} minutes"


def add_wanted(api: FastAPI, manager: Manager, floors: Floors) -> None:
    """Add GET /wanted and GET /wanted/{service}."""
    router = APIRouter(tags=["floor"])
    refusals: dict[int | str, dict[str, Any]] = {
        400: {"description": "several floors, and no offer was named"},
        404: {"description": "no such service or offer"},
        503: {"description": "the floor is stale, or not known yet"},
    }

    def answer(service: str | None, offer: str | None) -> dict[str, Any]:
        if service is not None and service not in manager.services():
            raise HTTPException(404, "no such service")
        fresh = [one for one in floors() if service in (None, one.service)]
        if not fresh:
            names = manager.services() if service is None else [service]
            raise HTTPException(503, f"no fresh floor: {_why_stale([manager.view(name) for name in names])}")
        found = [one for one in fresh if offer in (None, one.offer)]
        if not found:
            raise HTTPException(404, f"no such offer: there is {', '.join(sorted({one.offer for one in fresh}))}")
        if len(found) > 1:
            raise HTTPException(400, "several floors: ask for one by /wanted/service?offer=name")
        (floor,) = found
        return {
            "value": floor.replicas,
            "service": floor.service,
            "offer": floor.offer,
            "reason": floor.reason,
            "usd_per_hour": floor.usd_per_hour,
            "age_s": floor.age_s,
        }

    @router.get("/wanted", responses=refusals)
    def of_the_only_one(offer: OfferName = None) -> dict[str, Any]:
        """The floor of the only service, as `value`, with its reason, dollars and age."""
        return answer(None, offer)

    @router.get("/wanted/{service}", responses=refusals)
    def of_service(service: str, offer: OfferName = None) -> dict[str, Any]:
        """The floor of a service, as `value`, with its reason, dollars and age."""
        return answer(service, offer)

    api.include_router(router)
