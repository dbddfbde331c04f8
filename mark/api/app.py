"""The controller's HTTP server: the control API under /api/v1, the live page, health and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.gzip import GZipMiddleware

from mark.api import schema
from mark.api.controller_metrics import CONTENT_TYPE, ControllerMetrics
from mark.api.guard import MOST_BODY_BYTES, Guard
from mark.api.manager_port import Conducted, Manager
from mark.api.routes import routes
from mark.api.sited_pipeline import SitedPipeline
from mark.api.wanted import Floors, add_wanted
from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.version import VERSION
from mark.serving.frontend.auth import Auth

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEALTH = ("/healthz", "/readyz")
_NONE: Mapping[str, Conducted] = MappingProxyType({})

_DESCRIPTION = """
The state, beliefs and decisions of a mark controller, and a few requests to it.

Show an API key or a signed token as `authorization: Bearer KEY` or `x-api-key: KEY`. Reading needs the scope `read`,
changing `admin`, `/metrics` the scope `metrics`.

Every answer to a read has an `etag`; sent back as `if-none-match` it is answered 304 while nothing has changed, so that
one may ask every second. Errors are `{"error": "one line"}`.
"""
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Error, "description": what}
    for status, what in {
        400: "malformed, or out of range",
        401: "no key or token",
        403: "a key or token for something else",
        413: f"a body above {MOST_BODY_BYTES} bytes",
    }.items()
}


def app(
    manager: Manager,
    auth: Auth | None,
    alive: Callable[[], bool] = lambda: True,
    pipelines: Sequence[PipelineConfig] = (),
    conducted: Mapping[str, Conducted] = _NONE,
    floors: Floors | None = None,
) -> FastAPI:
    """Return the HTTP API over a manager.

    Without `auth` every request may do everything, so the caller must have checked that only this machine can reach it
    (`mark.serving.frontend.auth.check_exposure`). `alive` returns whether the manager's loop still runs. The manager
    has the services of the stages of `pipelines`; `conducted` has the whole queries of pipelines with known conductors,
    by name. `floors` are shown to other autoscalers.
    """
    api = FastAPI(
        title="mark: control API",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,  # because these pages load scripts from other sites
        redoc_url=None,
        responses=_ERRORS,
    )
    api.state.manager = manager
    api.state.pipelines = {config.name: SitedPipeline(config, conducted.get(config.name)) for config in pipelines}
    api.include_router(routes, prefix="/api/v1")
    files = _add_page(api)
    _add_health(api, manager, alive, floors)
    if floors is not None:
        add_wanted(api, manager, floors)
    _add_errors(api)
    described = api.openapi
    api.openapi = lambda: _described(described())  # type: ignore[method-assign]
    api.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    api.add_middleware(Guard, auth=auth, open_paths=(*files, *_HEALTH))
    return api


def _add_page(api: FastAPI) -> list[str]:
    """Serve the files of the page and return their paths. They hold no data, so they do not need a token."""
    paths = []
    for file in sorted(_PAGE.iterdir()):
        path = "/" if file.name == "index.html" else f"/{file.name}"
        api.add_api_route(path, _file(file.read_bytes(), _TYPES[file.suffix]), include_in_schema=False)
        paths.append(path)
    return paths


def _file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def get() -> Response:
        return Response(content, media_type=kind)

    return get


def _add_health(api: FastAPI, manager: Manager, alive: Callable[[], bool], floors: Floors | None) -> None:
    metrics = ControllerMetrics(manager, api.state.pipelines, floors)

    @api.get("/healthz", tags=["health"], responses={503: {"description": "the control loop has ended or hangs"}})
    async def live(response: Response) -> dict[str, bool]:
        """Does the control loop run? Needs no token."""
        found = alive()
        response.status_code = 200 if found else 503
        return {"live": found}

    @api.get("/readyz", tags=["health"])
    async def ready() -> dict[str, str]:
        """Does this controller lead, or stand by? Ready in both cases. Needs no token."""
        return {"ready": "leads" if manager.leads() else "stands by"}

    @api.get("/metrics", tags=["health"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def page() -> Response:
        """Prometheus' text format."""
        return Response(metrics.page(), headers={"content-type": CONTENT_TYPE})


def _add_errors(api: FastAPI) -> None:
    def error(status: int, what: str, headers: Any = None) -> Response:
        return JSONResponse({"error": what}, status, headers)

    @api.exception_handler(AnyHTTPException)
    async def on_http(request: Request, raised: AnyHTTPException) -> Response:
        return error(raised.status_code, raised.detail.lower(), raised.headers)

    @api.exception_handler(RequestValidationError)
    async def on_malformed(request: Request, raised: RequestValidationError) -> Response:
        first = raised.errors()[0]
        where = ".".join(str(step) for step in first["loc"] if step not in ("body", "query", "path"))
        return error(400, f"{where or 'body'}: {first['msg'].lower()}")

    @api.exception_handler(BadInput)
    async def on_bad_input(request: Request, raised: BadInput) -> Response:
        return error(400, str(raised))


def _described(found: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's description with the guard's security, and without 422, because malformed requests get 400."""
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    found["components"]["securitySchemes"] = schemes
    found["security"] = [{name: []} for name in schemes]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            if path in _HEALTH:
                operation["security"] = []
            elif method == "get" and path.startswith("/api/"):
                operation["responses"]["304"] = {"description": "nothing has changed since that etag"}
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(name, None)
    return found
