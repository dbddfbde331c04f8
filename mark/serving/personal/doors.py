"""The routes of personal heads.

POST   /v2/models/M/top        the best items for the key of the header mark-key
GET    /v2/models/M/keys/KEY   the state of a key, for API keys of the scope admin
DELETE /v2/models/M/keys/KEY   deletes it, for keys of the scope admin
GET    /v2/models/M/personal   errors, memory and rates, as JSON or as a page
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import orjson

from mark.models.answer import INSTANCE, Answer, Provenance
from mark.models.call import Call, Reply
from mark.models.compression import Refused
from mark.personal.settings import LONGEST_NAME
from mark.serving.backend.refusals import RETRIED, error_reply, refusal, retry_after
from mark.serving.backend.request import Request
from mark.serving.frontend.calls import body_of, deadline_in
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import JSON
from mark.serving.frontend.live_page import answer_live
from mark.serving.frontend.openapi import TOP_SCHEMAS, key_operation, personal_operation, top_operation
from mark.serving.frontend.routes import ModelRoute
from mark.serving.personal.features import Features, NoVector
from mark.serving.personal.heads import PersonalHeads, note_of
from mark.serving.personal.keyed_feedback import PersonalFeedback
from mark.serving.personal.notes import MOST_KEY_BYTES, Vector, key_name, key_of_header
from mark.serving.personal.page import personal_page

MOST_TOP_BYTES = 4 << 20
MOST_TOP, MOST_NAMED, MOST_INPUTS = 1000, 10_000, 1000
Answered = Callable[[Request, Answer], None]


class TopQuestion(NamedTuple):
    """A request for the `k` best of `items` (None: of the table), except those to exclude; with their `inputs`."""

    k: int
    items: list[str] | None
    inputs: list[Any] | None
    exclude: frozenset[str]


def question_in(body: bytes, heads: PersonalHeads) -> TopQuestion:
    """Return the request in a body. Raises Refused."""
    if len(body) > MOST_TOP_BYTES:
        raise Refused(413, f"more than {MOST_TOP_BYTES} bytes")
    try:
        said = orjson.loads(body)
    except ValueError:
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(said, dict) or (unknown := said.keys() - {"k", "items", "exclude"}):
        unknown = unknown if isinstance(said, dict) else set()
        raise Refused(400, "the body must be an object with k, items and exclude" + _but(unknown))
    k = said.get("k", 10)
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_TOP:
        raise Refused(400, f"k must be a whole number from 1 to {MOST_TOP}")
    exclude = said.get("exclude", [])
    if not isinstance(exclude, list) or not all(isinstance(one, str) for one in exclude):
        raise Refused(400, "exclude must be a list of items")
    items = said.get("items")
    if items is None:
        if heads.table is None:
            raise Refused(400, "items are needed, because [personal] has no table")
        return TopQuestion(k, None, None, frozenset(exclude))
    most = MOST_NAMED if heads.table is not None else MOST_INPUTS
    if not isinstance(items, list) or not 1 <= len(items) <= most:
        raise Refused(400, f"items must be a list of 1 to {most}")
    names, inputs = (items, None) if heads.table is not None else _named_inputs(items)
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise Refused(400, f"an item must be a text of 1 to {LONGEST_NAME} characters")
        if inputs is None and not heads.has_item(name):
            raise Refused(400, f"no item of the table: {name[:100]!r}")
    if len(set(names)) < len(names):
        raise Refused(400, "items names an item twice")
    return TopQuestion(k, names, inputs, frozenset(exclude))


def _but(unknown: set[str]) -> str:
    return f", and not {', '.join(sorted(unknown))[:200]}" if unknown else ""


def _named_inputs(items: list[Any]) -> tuple[list[Any], list[Any]]:
    for one in items:
        if not isinstance(one, dict) or one.keys() != {"item", "input"}:
            raise Refused(400, 'each of items must be {"item": NAME, "input": INPUT}, because [personal] has no table')
    return [one["item"] for one in items], [one["input"] for one in items]


class PersonalDoors:
    """Answers the routes. `feedback` None: nothing is learned, and no key can be deleted.

    `may_manage` decides from the headers whether a client may read and delete keys. `identity` gives a request its id,
    and `answered` is called with answers that may get feedback. `version` is the service's.
    """

    def __init__(
        self,
        name: str,
        heads: PersonalHeads,
        features: Features | None,
        feedback: PersonalFeedback | None,
        loop: asyncio.AbstractEventLoop,
        *,
        lag: Callable[[], int] = lambda: 0,
        erased: Callable[[], Coroutine[Any, Any, bool]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._heads, self._features, self._feedback = name, heads, features, feedback
        self._loop, self._lag, self._erased, self._now = loop, lag, erased, now
        self._tasks: set[asyncio.Task[None]] = set()
        self.may_manage: Callable[[Mapping[bytes, bytes]], bool] = lambda headers: True
        self.identity: Callable[[Mapping[bytes, bytes]], str] = lambda headers: ""
        self.answered: Answered | None = None
        self.rt_max_s, self.version = 1.0, ""

    def routes(self) -> list[ModelRoute]:
        """Return the routes of the model."""
        keys, of_key = b"/keys/*", self._for_admin
        return [
            ModelRoute(b"POST", b"/top", self.top, described=top_operation, schemas=TOP_SCHEMAS),
            ModelRoute(b"GET", keys, of_key(self.show), described=partial(key_operation, "show")),
            ModelRoute(b"DELETE", keys, of_key(self.delete), described=partial(key_operation, "delete")),
            ModelRoute(b"GET", b"/personal", self.page, described=personal_operation),
        ]

    # The best items

    def top(self, version: str | None, exchange: Exchange) -> None:
        """Answer with the best items, later if their inputs go through the features stage."""
        try:
            question = question_in(body_of(exchange, MOST_TOP_BYTES), self._heads)
            key = _key_in(exchange.headers)
            deadline_s = deadline_in(exchange.headers, exchange.arrived_s, self.rt_max_s)
        except Refused as error:
            _refuse(exchange, error_reply(error.status, str(error)), error.headers)
            return
        if self._now() >= deadline_s:
            _refuse(exchange, refusal("expired"))
        elif question.inputs is None:
            self._top(exchange, key, question, None)
        else:
            self._begin(self._top_of_inputs(exchange, key, question, deadline_s))

    async def _top_of_inputs(self, exchange: Exchange, key: str, question: TopQuestion, deadline_s: float) -> None:
        assert self._features is not None, "without a table there is a stage"
        assert question.inputs is not None, "a table needs no inputs"
        found = await self._features.vectors(question.inputs, self.identity(exchange.headers), deadline_s)
        vectors: list[Vector] = []
        for name, one in zip(question.items or (), found, strict=True):
            if isinstance(one, NoVector):
                _refuse(exchange, error_reply(one.reply.status, f"item {name[:100]!r}: {one.said()}"))
                return
            vectors.append(one)
        self._top(exchange, key, question, vectors)

    def _top(self, exchange: Exchange, key: str, question: TopQuestion, vectors: list[Vector] | None) -> None:
        try:
            found = self._heads.top(key, question.k, question.items, vectors, question.exclude)
        except ValueError as error:
            _refuse(exchange, error_reply(500, str(error)))
            return
        rows = zip(found.items, found.values.tolist(), found.uncertainty.tolist(), strict=True)
        items = [{"item": item, "score": score, "uncertainty": deviation} for item, score, deviation in rows]
        identity = self.identity(exchange.headers)
        body = orjson.dumps({"id": identity, "items": items, "prior": found.prior})
        by_item = None if vectors is None else dict(zip(question.items or (), vectors, strict=True))
        note = note_of(key, self._heads.version, found, by_item).to_json()
        call = Call("top", "application/json", exchange.body)
        request = Request(call, 1, exchange.arrived_s, exchange.arrived_s + self.rt_max_s, _nobody, identity)
        headers = b"x-request-id: %b\r\nmark-answered-by: instance\r\n" % identity.encode("latin-1")
        exchange.answer(200, body, JSON, headers)
        if self.answered is not None:
            reply = Reply(200, "application/json", body)
            self.answered(request, Answer(reply, INSTANCE, self.version, provenance=Provenance(note=note)))

    # Keys

    def show(self, key: str, exchange: Exchange) -> None:
        """Answer with the state of a key."""
        found = self._heads.show(key_name(key))
        if found is None:
            _refuse(exchange, error_reply(404, "nothing is known of this key"))
        else:
            exchange.answer(200, orjson.dumps(found | {"key": key}), JSON)

    def delete(self, key: str, exchange: Exchange) -> None:
        """Delete a key, and answer once the deletion is durable and the key's data is gone from the files here."""
        if self._feedback is None:
            _refuse(exchange, error_reply(400, "nothing is learned here: there is no section [feedback]"))
            return

        def told(kept: bool) -> None:
            if kept:
                self._begin(self._deleted(key, exchange))
            else:
                _refuse(exchange, error_reply(503, "the deletion could not be kept"))

        if not self._feedback.forget(key_name(key), told):
            _refuse(exchange, error_reply(503, "too much feedback is on its way"))

    async def _deleted(self, key: str, exchange: Exchange) -> None:
        if await self._erased():
            exchange.answer(200, orjson.dumps({"key": key, "result": "deleted"}), JSON)
        else:
            _refuse(exchange, error_reply(503, "the key is forgotten, but the disk refused to erase it from files"))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _for_admin(self, answer: Callable[[str, Exchange], None]) -> Callable[[str | None, Exchange], None]:
        def handle(version: str | None, exchange: Exchange) -> None:
            if not self.may_manage(exchange.headers):
                _refuse(exchange, error_reply(403, "the API key must have the scope admin"))
                return
            raw = unquote_to_bytes(exchange.path.rstrip(b"/").rpartition(b"/")[2])
            if not 0 < len(raw) <= MOST_KEY_BYTES:
                _refuse(exchange, error_reply(400, f"a key has 1 to {MOST_KEY_BYTES} bytes"))
                return
            answer(raw.decode("utf-8", "replace"), exchange)

        return handle

    # Numbers

    def page(self, version: str | None, exchange: Exchange) -> None:
        """Answer with the current values."""
        said = self._heads.said() | {"lag_facts": self._lag()}
        answer_live(exchange, self._name, said, personal_page)


def _key_in(headers: Mapping[bytes, bytes]) -> str:
    """Return the name of a request's key, "" without one. Raises Refused."""
    key = headers.get(b"mark-key", b"")
    if len(key) > MOST_KEY_BYTES:
        raise Refused(400, f"mark-key must have {MOST_KEY_BYTES} bytes at most")
    return key_name(key_of_header(key.decode("latin-1"))) if key else ""


def _nobody(request: Request, answer: Answer) -> None:
    """Do nothing, because the exchange has its answer."""


def _refuse(exchange: Exchange, reply: Reply, headers: bytes = b"") -> None:
    if reply.status in RETRIED:
        headers += retry_after(1.0)
    exchange.answer(reply.status, reply.body, JSON, headers)
