"""Requests from the listeners to backends and back: Open Inference Protocol v2, SageMaker's contract, health, metrics.

Bodies are passed on undecoded. An `Exchange` is a request of the HTTP listener, which is answered once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import orjson

from mark.insurance.insurance_settings import ACCEPTS
from mark.models.answer import CACHE, DEFAULT, FUNCTION, INSTANCE, NOBODY, RECONSTRUCTION, Answer
from mark.models.call import Call
from mark.models.compression import Refused
from mark.models.items import items_in
from mark.models.metadata import server_metadata
from mark.serving.backend import metrics as numbers
from mark.serving.backend.port import Backend
from mark.serving.backend.price_header import ToldPrices
from mark.serving.backend.refusals import RETRIED, error_reply, retry_after
from mark.serving.backend.request import Request
from mark.serving.frontend import pages
from mark.serving.frontend.calls import deadline_in, oip_call, only_ready, sagemaker_call, stage_call
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import HTML, JSON, HttpLimits
from mark.serving.frontend.openapi import openapi
from mark.serving.frontend.routes import Handler, ModelRoute, Routes

if TYPE_CHECKING:
    from mark.serving.observe.tracing import Tracer

_BY = {
    made_by: b"mark-answered-by: %b\r\n" % made_by.encode()
    for made_by in (INSTANCE, FUNCTION, CACHE, RECONSTRUCTION, DEFAULT)
}
_BY[NOBODY] = b""
_LONGEST_ID = _LONGEST_KEY = 128
_ACCEPTS = {one.encode(): one for one in ACCEPTS}


@dataclass(slots=True)
class ServedVersion:
    """A version of the model, and its own backend. `metadata` is the model's, from its workers, in JSON."""

    version: str
    backend: Backend
    metadata: bytes = b"{}"


Answered = Callable[[Request, Answer], None]


@dataclass(frozen=True, slots=True)
class RequestObserver:
    """Follows requests: `answered` is called with every answer (logs, traces), and `tracer` begins traces.

    New request ids begin with `id_prefix`, or a random prefix if it is "".
    """

    answered: Answered | None = None
    tracer: Tracer | None = None
    id_prefix: str = ""


def _nothing_more(headers: Mapping[bytes, bytes]) -> None:
    """Ignore headers other than prices."""


class Server:
    """Routes of one service: its model under `name`, in one or several versions.

    `backend` takes all requests of all versions. `routes` are more routes of the model, as for feedback. The model of a
    `stage` also takes calls of a conductor. Other models may be `beside` it, each with its own server. The attribute
    `may_tell_prices` decides from the headers of a reader of metrics whether its prices are used, and `hear` then gets
    these headers.
    """

    def __init__(
        self,
        name: str,
        served: Sequence[ServedVersion],
        backend: Backend,
        rt_max_s: float,
        metrics: numbers.Metrics,
        *,
        observer: RequestObserver | None = None,
        limits: HttpLimits | None = None,
        routes: Sequence[ModelRoute] = (),
        stage: bool = False,
        beside: Sequence[Server] = (),
    ) -> None:
        self.name, self.metrics, self.draining = name, metrics, False
        self.rt_max_s = rt_max_s
        observer = observer or RequestObserver()
        self.backend, self._tracer, self._more = backend, observer.tracer, routes
        self._most_bytes = (limits or HttpLimits()).body_bytes
        self._read: Callable[[Exchange, int], Call] = stage_call if stage else oip_call
        self.beside = beside
        self.served, self.answered = served, observer.answered
        self.told_prices = ToldPrices()
        self.may_tell_prices: Callable[[Mapping[bytes, bytes]], bool] = lambda headers: True
        self._by_version = {one.version: one for one in served}
        self._only = served[0].version if len(served) == 1 else ""
        # The pages, and the metadata they were made from; a worker may give more metadata later.
        self._described: tuple[bytes, dict[str, bytes]] = b"", {}
        self.hear: Callable[[Mapping[bytes, bytes]], None] = _nothing_more
        self._id_prefix, self._ids = observer.id_prefix or os.urandom(6).hex(), 0
        self.routes = Routes()
        self._add_routes()

    def handle(self, exchange: Exchange) -> None:
        """Answer the exchange, now or later."""
        path = exchange.path
        handlers = self.routes.exact.get(path)
        if handlers is None:
            # An encoded slash is part of a name, as for proxies with rules by path.
            if path != b"/" and b"%2f" not in path.lower():
                path = unquote_to_bytes(path).rstrip(b"/")
            handlers = self.routes.find(path)
            if handlers is None:
                self._not_found(exchange)
                return
        handler = handlers.get(exchange.method)
        if handler is None:
            self._not_allowed(exchange, handlers)
            return
        handler(exchange)

    @property
    def ready(self) -> bool:
        """Return whether a request would be served, by every model."""
        return self.model_ready(None) and all(other.model_ready(None) for other in self.beside)

    @property
    def versions(self) -> Sequence[str]:
        """Return the versions that a request may name."""
        return list(self._by_version)

    def model_ready(self, version: str | None) -> bool:
        """Return whether a request for this version of the model would be served; None: for any version."""
        backend = self.backend if version is None else self._by_version[version].backend
        return not self.draining and backend.ready

    def repository_index(self, only_ready: bool) -> list[dict[str, str]]:
        """Return each version with its state, as in the protocol's model repository extension."""
        found = []
        for version in self.versions:
            ready = self.model_ready(version)
            if ready or not only_ready:
                state, reason = "READY", ""
                if not ready:
                    state, reason = "UNAVAILABLE", "draining" if self.draining else "no worker is ready"
                found.append({"name": self.name, "version": version, "state": state, "reason": reason})
        for other in self.beside:
            found += other.repository_index(only_ready)
        return found

    def model_metadata(self, version: str | None) -> dict[str, Any]:
        """Return the protocol's metadata of a version; None: of the first."""
        one = self.served[0] if version is None else self._by_version[version]
        known: dict[str, Any] = orjson.loads(one.metadata)
        return known | {"name": self.name, "versions": self.versions}

    def infer(
        self,
        call: Call,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        version: str | None,
        answer: Answered,
        gone: Callable[[], bool] | None = None,
    ) -> None:
        """Offer a call of any listener. Its answer names its maker; a bad header is refused immediately.

        `gone` returns whether the client has left; None: unknown.
        """
        identity = self.identity(headers)
        request = Request(call, items_in(call), arrived_s, arrived_s + self.rt_max_s, answer, identity)
        request.gone = gone
        request.version = self._only if version is None else version
        if self._tracer is not None:
            request.trace = self._tracer.begin(headers)
        try:
            request.deadline_s = deadline_in(headers, arrived_s, self.rt_max_s)
        except Refused as error:
            answer(request, Answer(error_reply(error.status, str(error)), NOBODY, request.version))
            return
        key = headers.get(b"mark-key")
        if key is not None:
            if len(key) > _LONGEST_KEY:
                refused = error_reply(400, f"mark-key must have {_LONGEST_KEY} bytes at most")
                answer(request, Answer(refused, NOBODY, request.version))
                return
            request.key = key.decode("latin-1")
        accepts = headers.get(b"mark-accept")
        if accepts is not None:
            if accepts not in _ACCEPTS:
                refused = error_reply(400, f"mark-accept must be {' or '.join(ACCEPTS)}")
                answer(request, Answer(refused, NOBODY, request.version))
                return
            request.accepts = _ACCEPTS[accepts]
        self.backend.offer(request)

    def identity(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request: its client's, or a new one."""
        request_id = headers.get(b"x-request-id")
        if not request_id or len(request_id) > _LONGEST_ID:
            self._ids += 1
            return f"{self._id_prefix}-{self._ids:x}"
        return request_id.decode("latin-1")

    # Routes

    def _add_routes(self) -> None:
        add, model = self.routes.add, f"/v2/models/{self.name}"
        add(b"GET", b"/v2", self._server_metadata)
        add(b"GET", b"/v2/health/live", self._live)
        add(b"GET", b"/v2/health/ready", self._is_ready)
        add(b"GET", b"/ping", self._ping)
        add(b"GET", b"/metrics", self._metrics_page)
        add(b"POST", b"/v2/repository/index", self._repository_index)
        if not self.beside:  # these routes name no model, so there must be only one
            add(b"GET", b"/", self._index)
            add(b"GET", b"/docs", self._docs)
            add(b"GET", b"/openapi.json", self._openapi)
            add(b"POST", b"/invocations", partial(self._called, sagemaker_call, None))
        own = [
            ModelRoute(b"GET", b"", self._model_metadata, by_version=True),
            ModelRoute(b"GET", b"/ready", self._model_ready, by_version=True),
            ModelRoute(b"POST", b"/infer", partial(self._called, self._read), by_version=True),
        ]
        for route in (*own, *self._more):
            add(route.method, model.encode() + route.path, partial(route.answer, None))
            for version in self._by_version if route.by_version else ():
                path = f"{model}/versions/{version}".encode() + route.path
                add(route.method, path, partial(route.answer, version))
        for other in self.beside:
            self.routes.take(other.routes, b"/v2/models/")

    def _called(self, read: Callable[[Exchange, int], Call], version: str | None, exchange: Exchange) -> None:
        try:
            call = read(exchange, self._most_bytes)
        except Refused as error:
            self._refuse(exchange, error.status, str(error), error.headers)
        else:
            answer = partial(self._answer, exchange)
            self.infer(call, exchange.headers, exchange.arrived_s, version, answer, exchange.has_gone)

    def _answer(self, exchange: Exchange, request: Request, answer: Answer) -> None:
        reply, made_by = answer.reply, answer.made_by
        headers = b"%bx-request-id: %b\r\n" % (_BY[made_by], request.id.encode("latin-1"))
        if reply.json_bytes is not None:
            headers += b"inference-header-content-length: %d\r\n" % reply.json_bytes
        elif made_by == NOBODY and reply.status in RETRIED:
            headers += retry_after(self.retry_after_s())
        if answer.stages or answer.provenance is not None:
            for name, value in answer.said():
                headers += b"%b: %b\r\n" % (name.encode(), value.encode())
        exchange.answer(reply.status, reply.body, reply.content_type.encode(), headers)
        if self.answered is not None:
            self.answered(request, answer)

    def retry_after_s(self) -> float:
        """Return the seconds after which a refused request should be sent again."""
        return self.backend.retry_after_s()

    def _server_metadata(self, exchange: Exchange) -> None:
        exchange.answer(200, orjson.dumps(server_metadata()), JSON)

    def _live(self, exchange: Exchange) -> None:
        exchange.answer(200, b'{"live": true}', JSON)

    def _is_ready(self, exchange: Exchange) -> None:
        ready = self.ready
        exchange.answer(200 if ready else 503, b'{"ready": true}' if ready else b'{"ready": false}', JSON)

    def _ping(self, exchange: Exchange) -> None:
        exchange.answer(200 if self.ready else 503, b"", JSON)

    def _model_ready(self, version: str | None, exchange: Exchange) -> None:
        ready = self.model_ready(version)
        body = {"name": self.name, "ready": ready}
        exchange.answer(200 if ready else 503, orjson.dumps(body), JSON)

    def _model_metadata(self, version: str | None, exchange: Exchange) -> None:
        exchange.answer(200, orjson.dumps(self.model_metadata(version)), JSON)

    def _index(self, exchange: Exchange) -> None:
        if b"text/html" in exchange.headers.get(b"accept", b""):
            exchange.answer(200, self._pages()["index_page"], HTML, pages.VARY + pages.HEADERS)
        else:
            exchange.answer(200, self._pages()["index"], JSON, pages.VARY)

    def _docs(self, exchange: Exchange) -> None:
        exchange.answer(200, self._pages()["docs"], HTML, pages.HEADERS)

    def _openapi(self, exchange: Exchange) -> None:
        exchange.answer(200, self._pages()["openapi"], JSON)

    def _pages(self) -> dict[str, bytes]:
        metadata, found = self._described
        if metadata != self.served[0].metadata or not found:
            inputs = self.model_metadata(None).get("inputs", ())
            said = openapi(self.name, self.versions, inputs, self._more)
            found = {
                "openapi": orjson.dumps(said),
                "docs": pages.docs_page(said).encode(),
                "index": orjson.dumps(pages.index(said)),
                "index_page": pages.index_page(said).encode(),
            }
            self._described = self.served[0].metadata, found
        return found

    def _repository_index(self, exchange: Exchange) -> None:
        try:
            ready = only_ready(exchange, self._most_bytes)
        except Refused as error:
            self._refuse(exchange, error.status, str(error), error.headers)
        else:
            exchange.answer(200, orjson.dumps(self.repository_index(ready)), JSON)

    def _metrics_page(self, exchange: Exchange) -> None:
        if self.may_tell_prices(exchange.headers):
            self.told_prices.hear(exchange.headers, exchange.arrived_s)
            self.hear(exchange.headers)
        self.metrics.prices = self.told_prices.at(exchange.arrived_s)
        exchange.answer(200, self.metrics.page(), numbers.CONTENT_TYPE.encode())

    def _not_found(self, exchange: Exchange) -> None:
        path, names = exchange.path[:200].decode("latin-1"), [self.name, *(other.name for other in self.beside)]
        here = f"the model here is {self.name}" if len(names) == 1 else "the models here are " + ", ".join(names)
        self._refuse(exchange, 404, f"nothing at {path}; {here}")

    def _not_allowed(self, exchange: Exchange, handlers: Mapping[bytes, Handler]) -> None:
        methods = ", ".join(method.decode() for method in handlers if method != b"HEAD")
        self._refuse(exchange, 405, f"only {methods} here", f"allow: {methods}\r\n".encode())

    def _refuse(self, exchange: Exchange, status: int, what: str, headers: bytes = b"") -> None:
        reply = error_reply(status, what)
        exchange.answer(reply.status, reply.body, JSON, headers)
