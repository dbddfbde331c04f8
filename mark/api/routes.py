"""The routes of the control API, under /api/v1. The guard checks the key or token of each request."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from pydantic import TypeAdapter

from mark.api import schema
from mark.api.manager_port import Manager
from mark.api.pipeline_view import Pipelines, PipelineSchema
from mark.api.sited_pipeline import SitedPipeline
from mark.control import views
from mark.domain.version import VERSION
from mark.serving.frontend.auth import Grant

_LOG = logging.getLogger("mark.api")


def _room(request: Request) -> Manager:
    manager: Manager = request.app.state.manager
    return manager


TheRoom = Annotated[Manager, Depends(_room)]


def _all_pipelines(request: Request) -> Mapping[str, SitedPipeline]:
    found: Mapping[str, SitedPipeline] = request.app.state.pipelines
    return found


ThePipelines = Annotated[Mapping[str, SitedPipeline], Depends(_all_pipelines)]


def _known(manager: TheRoom, service: Annotated[str, Path(description="The name of a service.")]) -> str:
    if service not in manager.services():
        raise HTTPException(404, "no such service")
    return service


def _leading(manager: TheRoom) -> None:
    if not manager.leads():
        raise HTTPException(409, "this controller stands by: ask the one that leads")


Known = Annotated[str, Depends(_known)]


def _known_pipeline(
    pipelines: ThePipelines, pipeline: Annotated[str, Path(description="The name of a pipeline.")]
) -> SitedPipeline:
    if pipeline not in pipelines:
        raise HTTPException(404, "no such pipeline")
    return pipelines[pipeline]


KnownPipeline = Annotated[SitedPipeline, Depends(_known_pipeline)]

Hours = Annotated[float, Query(gt=0, le=24, allow_inf_nan=False, description="How far back.")]
Points = Annotated[int, Query(ge=2, le=1440, description="The most steps.")]

_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schema.Error, "description": "no such service"}}
_STANDS_BY: dict[int | str, dict[str, Any]] = {409: {"model": schema.Error, "description": "another controller leads"}}
_CHANGE: dict[str, Any] = {"dependencies": [Depends(_leading)], "responses": _STANDS_BY, "tags": ["change"]}

routes = APIRouter()
one = APIRouter(prefix="/services/{service}", responses=_UNKNOWN)


@routes.get("/me", response_model=schema.GrantSchema, tags=["read"])
def me(request: Request) -> Response:
    """The name and the scopes of the key or token that was sent."""
    grant = _grant(request)
    return _answer(request, schema.GrantSchema(name=grant.name, scopes=sorted(grant.scopes), version=VERSION))


@routes.get("/services", response_model=schema.Services, tags=["read"])
def services(request: Request, manager: TheRoom, pipelines: ThePipelines) -> Response:
    """All services, each in a line; the stages of pipelines are services, too."""
    found = [schema.summary(manager.view(name)) for name in manager.services()]
    return _answer(request, schema.Services(services=found, leads=manager.leads(), pipelines=list(pipelines)))


@routes.get("/pipelines", response_model=Pipelines, tags=["read"])
def pipelines(request: Request, manager: TheRoom, pipelines: ThePipelines) -> Response:
    """All pipelines, each in a line."""
    return _answer(request, Pipelines(pipelines=[one.view(manager) for one in pipelines.values()]))


@routes.get(
    "/pipelines/{pipeline}",
    response_model=PipelineSchema,
    tags=["read"],
    responses={404: {"model": schema.Error, "description": "no such pipeline"}},
)
def pipeline(request: Request, manager: TheRoom, pipeline: KnownPipeline) -> Response:
    """The present state of a pipeline: whole queries, graph, bottleneck, costs of other promises, and each stage."""
    return _answer(request, pipeline.view(manager))


@routes.get(
    "/pipelines/{pipeline}/history",
    response_model=views.QueriesHistorySchema | None,
    tags=["read"],
    responses={404: {"model": schema.Error, "description": "no such pipeline"}},
)
def pipeline_history(request: Request, pipeline: KnownPipeline, hours: Hours = 6.0, points: Points = 480) -> Response:
    """Whole queries of the past; null if the controller knows no conductors of the pipeline."""
    if pipeline.conducted is None:
        return _answer(request, None)
    return _answer(request, pipeline.conducted.history(hours, points))


@one.get("", response_model=schema.ServiceSchema, tags=["read"])
def service(request: Request, manager: TheRoom, service: Known) -> Response:
    """The present state of a service: load, capacity, fleet, plan, forecast, prices, SLO, bill, limits, troubles."""
    return _answer(request, schema.service(manager.view(service)))


@one.get("/fleet", response_model=schema.FleetSchema, tags=["read"])
def fleet(
    request: Request,
    manager: TheRoom,
    service: Known,
    after: Annotated[int, Query(ge=-1, le=2**53, description="Only instances with a higher number.")] = -1,
    count: Annotated[int, Query(ge=1, le=1000, description="The most instances.")] = 200,
) -> Response:
    """A page of the instances, and the counts of all by offer and phase."""
    return _answer(request, schema.fleet(manager.view(service), after, count))


@one.get("/plan", response_model=schema.PlanSchema | None, tags=["read"])
def plan(request: Request, manager: TheRoom, service: Known) -> Response:
    """The planned numbers of instances and their reasons; null before the first plan."""
    return _answer(request, schema.plan(manager.view(service)))


@one.get("/bill", response_model=schema.BillSchema, tags=["read"])
def bill(request: Request, manager: TheRoom, service: Known) -> Response:
    """Dollars so far, by market, and the present fleet's dollars per hour and per million requests."""
    return _answer(request, schema.bill(manager.view(service)))


@one.get("/slo", response_model=views.SloSchema, tags=["read"])
def slo(request: Request, manager: TheRoom, service: Known) -> Response:
    """How the promise was kept."""
    return _answer(request, manager.view(service).slo)


@one.get("/prices", response_model=schema.PricesSchema, tags=["read"])
def prices(request: Request, manager: TheRoom, service: Known) -> Response:
    """The present cost of one more request and of one more miss."""
    return _answer(request, schema.prices(manager.view(service)))


@one.get("/forecast", response_model=views.ForecastSchema | None, tags=["read"])
def forecast(request: Request, manager: TheRoom, service: Known) -> Response:
    """The forecast load; null before the first forecast, and for policies without forecasts."""
    return _answer(request, manager.view(service).forecast)


@one.get("/history", response_model=views.HistorySchema, tags=["read"])
def history(request: Request, manager: TheRoom, service: Known, hours: Hours = 6.0, points: Points = 480) -> Response:
    """Load, capacity and lateness of the past."""
    return _answer(request, manager.history(service, hours, points))


@one.get("/decisions", response_model=schema.Decisions, tags=["read"])
def decisions(
    request: Request,
    manager: TheRoom,
    service: Known,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="Only those with a lower id.")] = None,
    count: Annotated[int, Query(ge=1, le=500, description="The most decisions.")] = 50,
) -> Response:
    """The decisions with reasons and results, newest first."""
    return _answer(request, schema.decisions(manager.decisions(service, before, count), count))


@one.get("/limits", response_model=schema.LimitsSchema, tags=["read"])
def limits(request: Request, manager: TheRoom, service: Known) -> Response:
    """The service's limits."""
    return _answer(request, schema.limits(manager.view(service).limits))


@one.put("/limits", response_model=schema.LimitsSchema, **_CHANGE)
def set_limits(request: Request, manager: TheRoom, service: Known, limits: schema.LimitsSchema) -> schema.LimitsSchema:
    """Change the service's limits. Repeatable."""
    manager.set_limits(service, views.Limits(limits.max_instances, limits.max_usd_per_hour))
    _note(request, service, "limits set", **limits.model_dump())
    return limits


@one.post("/pause", status_code=204, **_CHANGE)
def pause(request: Request, manager: TheRoom, service: Known) -> None:
    """Launch and terminate nothing until resumed; running instances serve on. Repeatable."""
    manager.pause(service, True)
    _note(request, service, "paused")


@one.post("/resume", status_code=204, **_CHANGE)
def resume(request: Request, manager: TheRoom, service: Known) -> None:
    """Launch and terminate instances again. Repeatable."""
    manager.pause(service, False)
    _note(request, service, "resumed")


@one.post("/rollback", status_code=204, **_CHANGE)
def rollback(request: Request, manager: TheRoom, service: Known) -> None:
    """Return to the previous release until another one is deployed."""
    manager.roll_back(service)
    _note(request, service, "rolled back")


@one.post("/rollout", status_code=204, **_CHANGE)
def rollout(request: Request, manager: TheRoom, service: Known) -> None:
    """Roll out the last deployed release again, after it was stopped or taken back. Repeatable."""
    manager.roll_out_again(service)
    _note(request, service, "rolled out again")


routes.include_router(one)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _answer(request: Request, answer: Any) -> Response:
    body = _adapter(answer.__class__).dump_json(answer)
    # The etag is weak because it is the same for compressed and plain answers.
    etag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    held = request.headers.get("if-none-match", "")
    if etag in (one.strip() for one in held.split(",")):
        return Response(status_code=304, headers={"etag": etag})
    return Response(body, media_type="application/json", headers={"etag": etag})


def _grant(request: Request) -> Grant:
    grant: Grant = request.state.grant
    return grant


def _note(request: Request, service: str, what: str, **more: object) -> None:
    """Log a change with the name of its token."""
    _LOG.info(what, extra={"service": service, "by": _grant(request).name, **more})
