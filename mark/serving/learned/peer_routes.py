"""The routes on which processes exchange learned facts. They are for peers, and not in `/openapi.json`.

POST /v2/models/M/learned/facts      takes facts, one a line
POST /v2/models/M/learned/lacking    answers a vector with the facts that it lacks, a page of them
GET  /v2/models/M/learned/snapshot   a page of the whole state
GET  /v2/models/M/learned/aside      data that helps a process to start
POST /v2/models/M/learned/feedback   takes feedback that a peer passes on
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

import orjson

from mark.models.compression import Refused
from mark.serving.backend.refusals import error_reply
from mark.serving.feedback.port import Feedback
from mark.serving.frontend.calls import body_of
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import JSON
from mark.serving.frontend.routes import ModelRoute
from mark.serving.learned.forwarding import FeedbackForwarding
from mark.serving.learned.learning import Learning

_MOST_BYTES = 4 << 20
_LINES = b"application/x-ndjson"


def routes_of(learning: Learning, forwarding: FeedbackForwarding, loop: asyncio.AbstractEventLoop) -> list[ModelRoute]:
    """Return the routes of a process that learns."""
    doors = _Doors(learning, forwarding, loop)
    return [
        ModelRoute(b"POST", b"/learned/facts", doors.of(doors.facts)),
        ModelRoute(b"POST", b"/learned/lacking", doors.of(doors.lacking)),
        ModelRoute(b"GET", b"/learned/snapshot", doors.of(doors.snapshot)),
        ModelRoute(b"GET", b"/learned/aside", doors.of(doors.aside)),
        ModelRoute(b"POST", b"/learned/feedback", doors.of(doors.feedback)),
    ]


class _Doors:
    def __init__(self, learning: Learning, forwarding: FeedbackForwarding, loop: asyncio.AbstractEventLoop) -> None:
        self._learning, self._forwarding, self._loop = learning, forwarding, loop
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, answer: Callable[[Exchange], None]) -> Callable[[str | None, Exchange], None]:
        """Return the handler of a route: it serves peers only, and answers a malformed request with 400."""

        def handle(version: str | None, exchange: Exchange) -> None:
            if not self._learning.may_teach(exchange.headers):
                _refuse(exchange, 403, "for peers: the key must be named peer or conductor, or have the scope admin")
                return
            try:
                answer(exchange)
            except Refused as error:
                _refuse(exchange, error.status, str(error), error.headers)
            except (ValueError, KeyError, TypeError) as error:
                _refuse(exchange, 400, f"cannot be read ({type(error).__name__})")

        return handle

    def facts(self, exchange: Exchange) -> None:
        exchange.answer(200, self._learning.have(_body(exchange)), JSON)

    def lacking(self, exchange: Exchange) -> None:
        exchange.answer(200, self._learning.lacking(_body(exchange)), _LINES)

    def aside(self, exchange: Exchange) -> None:
        data = self._learning.aside.own()
        if data is None:
            _refuse(exchange, 404, "nothing helps a process to start")
        else:
            exchange.answer(200, data, b"application/octet-stream")

    def snapshot(self, exchange: Exchange) -> None:
        asked = parse_qs(exchange.query.decode("latin-1"), strict_parsing=True)
        self._begin(self._page(exchange, int(asked["number"][0]), max(0, int(asked["begin"][0]))))

    async def _page(self, exchange: Exchange, number: int, begin: int) -> None:
        page = await self._learning.snapshots.page(number, begin)
        if page is None:
            _refuse(exchange, 404, "this snapshot is not held any more")
        else:
            exchange.answer(200, page, b"application/octet-stream")

    def feedback(self, exchange: Exchange) -> None:
        body = _body(exchange)
        said = orjson.loads(body)
        feedback = [_piece(one) for one in said["feedback"]]
        self._begin(self._judge(exchange, feedback, len(body), bool(said["known_only"])))

    def _begin(self, answering: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _judge(self, exchange: Exchange, feedback: list[Feedback], size: int, known_only: bool) -> None:
        results = await self._forwarding.judged(feedback, size, known_only)
        exchange.answer(200, orjson.dumps({"results": results}), JSON)  # null: it could not be stored


def _piece(said: Any) -> Feedback:
    identity, what, version = said
    if not isinstance(identity, str) or not isinstance(what, dict) or not isinstance(version, str | None):
        raise ValueError("no feedback")
    return Feedback(identity, what, version)


def _body(exchange: Exchange) -> bytes:
    body = body_of(exchange, _MOST_BYTES)
    if len(body) > _MOST_BYTES:
        raise Refused(413, f"more than {_MOST_BYTES} bytes")
    return body


def _refuse(exchange: Exchange, status: int, what: str, headers: bytes = b"") -> None:
    reply = error_reply(status, what)
    exchange.answer(reply.status, reply.body, JSON, headers)
