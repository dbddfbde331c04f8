"""The listeners' requests to backends and back: Open Inference Protocol v2, SageMaker's contract, health, metrics.

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

from mark.models.call import Call, Reply
from mark.models.compression import Refused
from mark.models.items import items_in
from mark.models.metadata import server_metadata
from mark.models.versions import Versions
from mark.serving.backend import metrics as numbers
from mark.serving.backend.port import Backend
from mark.serving.backend.price_header import ToldPrices
from mark.serving.backend.refusals import RETRIED, error_reply, retry_after
from mark.serving.backend.request import CACHE, DEFAULT, FUNCTION, INSTANCE, NOBODY, RECONSTRUCTION, Request
from mark.serving.frontend import pages
from mark.serving.frontend.calls import oip_call, only_ready, sagemaker_call, stage_call
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.feedback_door import FeedbackDoor
from mark.serving.frontend.limits import HttpLimits
from mark.serving.frontend.openapi import openapi

if TYPE_CHECKING:
    from mark.serving.observe.tracing import Tracer

JSON, HTML = b"application/json", b"text/html; charset=utf-8"
_BY = {
    made_by: b"mark-answered-by: %b\r\n" % made_by.encode()
    for made_by in (INSTANCE, FUNCTION, CACHE, RECONSTRUCTION, DEFAULT)
}
_BY[NOBODY] = b""
_LONGEST_ID = _LONGEST_KEY = 128
_LONGEST_DEADLINE_S = 3600.0


@dataclass(slots=True)
class ServedVersion:
    """A version of the model, and what serves it. `metadata` is what its workers say of the model, in JSON."""

    version: str
    backend: Backend
    metadata: bytes = b"{}"


Answered = Callable[[Request, Reply, str], None]


class Server:
    """Routes of one service: its model under `name`, in one or several versions.

    `ready` is a condition beside the workers' (false while draining). `answered` is called with every answer (logs,
    traces), `tracer` begins what traces say. `feedback` is where clients say how good answers were, None: nowhere. The
    model of a `stage` takes calls of a conductor, too. Other models may be `beside` it, each with a server of its own.
    `may_tell_prices` says by a request's headers whether its reader of metrics is believed what it says of prices.
    """

    def __init__(
        self,
        name: str,
        served: Sequence[ServedVersion],
        versions: Versions,
        rt_max_s: float,
        metrics: numbers.Metrics,
        answered: Answered | None = None,
        *,
        tracer: Tracer | None = None,
        limits: HttpLimits | None = None,
        feedback: FeedbackDoor | None = None,
        stage: bool = False,
        beside: Sequence[Server] = (),
        may_tell_prices: Callable[[Mapping[bytes, bytes]], bool] = lambda headers: True,
    ) -> None:
        self.name, self.metrics, self.draining = name, metrics, False
        self.rt_max_s = rt_max_s
        self._versions, self._tracer, self._feedback = versions, tracer, feedback
        self._most_bytes = (limits or HttpLimits()).body_bytes
        self._read: Callable[[Exchange, int], Call] = stage_call if stage else oip_call
        self.beside = beside
        self.served, self.answered = served, answered
        self.told_prices = ToldPrices()
        self.may_tell_prices: Callable[[Mapping[bytes, bytes]], bool] = may_tell_prices
        self._by_version = {one.version: one for one in served}
        self._only = served[0] if len(served) == 1 else None
        # The metadata that the pages were made of, and the pages; a worker may say more of its model later.
        self._described: tuple[bytes, dict[str, bytes]] = b"", {}
        self._id_prefix, self._ids = os.urandom(6).hex(), 0
        self.routes: dict[bytes, Callable[[Exchange], None]] = {}
        self._add_routes()

    def handle(self, exchange: Exchange) -> None:
        """Answer the exchange, now or later."""
        route = self.routes.get(exchange.path)
        if route is None:
            path = exchange.path
            # An encoded slash is part of a name, as proxies with rules by path see it.
            if path != b"/" and b"%2f" not in path.lower():
                path = unquote_to_bytes(path).rstrip(b"/")
            route = self.routes.get(path)
            if route is None:
                self._not_found(exchange)
                return
        route(exchange)

    @property
    def ready(self) -> bool:
        """Would a request be served, for whichever model?"""
        return self.model_ready(None) and all(other.model_ready(None) for other in self.beside)

    @property
    def versions(self) -> Sequence[str]:
        """What a request may ask for."""
        return list(self._by_version)

    def model_ready(self, version: str | None) -> bool:
        """Would a request for this version of the model be served? None: for any of them."""
        those = self._by_version.values() if version is None else (self._by_version[version],)
        return not self.draining and all(one.backend.ready for one in those)

    def repository_index(self, only_ready: bool) -> list[dict[str, str]]:
        """Each version with its state, as the protocol's model repository extension says it."""
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
        """What the protocol says of a version, None: of the first."""
        one = self.served[0] if version is None else self._by_version[version]
        known: dict[str, Any] = orjson.loads(one.metadata)
        return known | {"name": self.name, "versions": self.versions}

    def infer(
        self,
        call: Call,
        headers: Mapping[bytes, bytes],
        arrived_s: float,
        version: str | None,
        answer: Callable[[Request, Reply, str], None],
        gone: Callable[[], bool] | None = None,
    ) -> None:
        """Offer a call of any listener. Its answer says what made it; a bad deadline or key is refused at once.

        `gone` says whether the client has left by then; None: it is not known.
        """
        request_id = headers.get(b"x-request-id")
        if not request_id or len(request_id) > _LONGEST_ID:
            self._ids += 1
            identity = f"{self._id_prefix}-{self._ids:x}"
        else:
            identity = request_id.decode("latin-1")
        deadline_s = arrived_s + self.rt_max_s
        left_ms = headers.get(b"mark-deadline-ms")
        request = Request(call, items_in(call), arrived_s, deadline_s, answer, identity)
        request.gone = gone
        one = self._only
        if one is None or version is not None:
            one = self._by_version[version if version is not None else self._versions.choose(identity)]
        request.version = one.version
        if self._tracer is not None:
            request.trace = self._tracer.begin(headers, one.version)
        if left_ms is not None:
            try:
                left_s = float(left_ms) / 1e3
            except ValueError:
                left_s = -1.0
            if not left_s >= 0.0:
                answer(request, error_reply(400, "mark-deadline-ms must be a number of milliseconds"), NOBODY)
                return
            request.deadline_s = arrived_s + min(left_s, _LONGEST_DEADLINE_S)
        key = headers.get(b"mark-key")
        if key is not None:
            if len(key) > _LONGEST_KEY:
                answer(request, error_reply(400, f"mark-key must have {_LONGEST_KEY} bytes at most"), NOBODY)
                return
            request.key = key.decode("latin-1")
        one.backend.offer(request)

    # Routes

    def _add_routes(self) -> None:
        routes, model = self.routes, f"/v2/models/{self.name}"
        get = self._only_by
        routes[b"/v2"] = get(b"GET", self._server_metadata)
        routes[b"/v2/health/live"] = get(b"GET", self._live)
        routes[b"/v2/health/ready"] = get(b"GET", self._is_ready)
        routes[b"/ping"] = get(b"GET", self._ping)
        routes[b"/"] = get(b"GET", self._index)
        routes[b"/docs"] = get(b"GET", self._docs)
        routes[b"/openapi.json"] = get(b"GET", self._openapi)
        routes[b"/metrics"] = get(b"GET", self._metrics_page)
        routes[b"/v2/repository/index"] = get(b"POST", self._repository_index)
        routes[b"/invocations"] = get(b"POST", partial(self._called, sagemaker_call, None))
        for version in (None, *self._by_version):
            base = (model if version is None else f"{model}/versions/{version}").encode()
            routes[base] = get(b"GET", partial(self._model_metadata, version))
            routes[base + b"/ready"] = get(b"GET", partial(self._model_ready, version))
            routes[base + b"/infer"] = get(b"POST", partial(self._called, self._read, version))
            if self._feedback is not None:
                routes[base + b"/feedback"] = get(b"POST", partial(self._feedback.post, version))
        for other in self.beside:
            routes.update({path: route for path, route in other.routes.items() if path.startswith(b"/v2/models/")})
        if self.beside:  # these are of one model, and name none
            for path in (b"/", b"/docs", b"/openapi.json", b"/invocations"):
                del routes[path]

    def _only_by(self, method: bytes, route: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        also = b"HEAD" if method == b"GET" else method

        def checked(exchange: Exchange) -> None:
            if exchange.method == method or exchange.method == also:
                route(exchange)
            else:
                reply = error_reply(405, f"only {method.decode()} here")
                exchange.answer(405, reply.body, JSON, b"allow: %b\r\n" % method)

        return checked

    def _called(self, read: Callable[[Exchange, int], Call], version: str | None, exchange: Exchange) -> None:
        try:
            call = read(exchange, self._most_bytes)
        except Refused as error:
            self._refuse(exchange, error.status, str(error), error.headers)
        else:
            answer = partial(self._answer, exchange)
            self.infer(call, exchange.headers, exchange.arrived_s, version, answer, exchange.has_gone)

    def _answer(self, exchange: Exchange, request: Request, reply: Reply, made_by: str) -> None:
        headers = b"%bx-request-id: %b\r\n" % (_BY[made_by], request.id.encode("latin-1"))
        if reply.json_bytes is not None:
            headers += b"inference-header-content-length: %d\r\n" % reply.json_bytes
        elif made_by == NOBODY and reply.status in RETRIED:
            headers += retry_after(self.retry_after_s())
        if request.stages:
            headers += b"mark-stages: %b\r\n" % request.stages.encode()
        exchange.answer(reply.status, reply.body, reply.content_type.encode(), headers)
        if self.answered is not None:
            self.answered(request, reply, made_by)

    def retry_after_s(self) -> float:
        """When a request that is refused now should be sent again."""
        return min(one.backend.retry_after_s() for one in self._by_version.values())

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
            said = openapi(self.name, self.versions, inputs, feedback=self._feedback is not None)
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
        self.metrics.prices = self.told_prices.at(exchange.arrived_s)
        exchange.answer(200, self.metrics.page(), numbers.CONTENT_TYPE.encode())

    def _not_found(self, exchange: Exchange) -> None:
        path, names = exchange.path[:200].decode("latin-1"), [self.name, *(other.name for other in self.beside)]
        here = f"the model here is {self.name}" if len(names) == 1 else "the models here are " + ", ".join(names)
        self._refuse(exchange, 404, f"nothing at {path}; {here}")

    def _refuse(self, exchange: Exchange, status: int, what: str, headers: bytes = b"") -> None:
        reply = error_reply(status, what)
        exchange.answer(reply.status, reply.body, JSON, headers)
