"""Vectors of items in feedback or `/top`, from the features stage and the stages before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from mark.models.answer import Answer
from mark.models.call import Call, Reply
from mark.models.results import call_with, results_of
from mark.serving.backend.port import Backend
from mark.serving.backend.refusals import error_reply
from mark.serving.backend.request import Request
from mark.serving.personal.notes import Vector
from mark.serving.personal.stage import vector_in

_AT_ONCE = 16  # calls before readiness
_MOST_ALONE_RT = 10.0  # RT_max's for calls of single items


class NoVector(Exception):
    """The features stage gave no vector for an item; `reply` is its error, or tells why its answer is no vector."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply

    @property
    def is_of_item(self) -> bool:
        """Return whether the item is at fault. Otherwise the stage was late, overloaded or unreachable."""
        return self.reply.status <= 500 and self.reply.status not in (413, 429)

    def said(self) -> str:
        """Return the text of the error."""
        try:
            return str(orjson.loads(self.reply.body)["error"])
        except (ValueError, KeyError, TypeError):
            return f"status {self.reply.status}"


class Features:
    """Vectors from `backend`, a pipeline that ends with the features stage. `now` is the clock of requests."""

    def __init__(
        self,
        backend: Backend,
        rt_max_s: float,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._rt_max_s, self._loop, self._now = backend, rt_max_s, loop, now

    async def vectors(
        self, items: Sequence[Any], identity: str, deadline_s: float | None = None
    ) -> list[Vector | NoVector]:
        """Return the vector of each item, or the error of the stage; by default within RT_max from now."""
        until_s = self._now() + self._rt_max_s if deadline_s is None else deadline_s
        found = await asyncio.gather(*(self._vector(item, until_s, identity) for item in items), return_exceptions=True)
        vectors: list[Vector | NoVector] = []
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, NoVector):
                raise one
            vectors.append(one)
        return vectors

    async def vectors_apart(self, items: Sequence[Any], identity: str) -> list[Vector | NoVector]:
        """Return `vectors`, after another call, one at a time, for each item on which the model failed.

        Another item of its batch may have been the cause, and the stage had no time to try each alone. After
        `_MOST_ALONE_RT` the other items keep their errors.
        """
        found = await self.vectors(items, identity)
        until_s = self._now() + _MOST_ALONE_RT * self._rt_max_s
        for at, one in enumerate(found):
            if isinstance(one, NoVector) and one.reply.status == 500 and self._now() < until_s:
                (found[at],) = await self.vectors([items[at]], identity)
        return found

    async def _vector(self, item: Any, deadline_s: float, identity: str) -> Vector:
        try:
            call = call_with(item)
        except (RecursionError, TypeError):
            raise NoVector(error_reply(400, "an item is nested too deeply, or no plain value")) from None
        reply = await self._reply(call, deadline_s, identity)
        if reply.status != 200:
            raise NoVector(reply)
        try:
            (result,) = results_of(reply)
            return vector_in(result)
        except (ValueError, TypeError) as error:
            raise NoVector(error_reply(500, str(error))) from None

    async def ask(self, calls: Iterable[Call], until_s: float) -> int:
        """Ask the stage for the answers to the calls, a few at a time, until this time. Return how many it answered."""
        left, answered = iter(calls), 0

        async def ask_next() -> None:
            nonlocal answered
            for call in left:
                if self._now() >= until_s:
                    return
                answered += (await self._reply(call, until_s, "")).status == 200

        await asyncio.gather(*(ask_next() for _ in range(_AT_ONCE)))
        return answered

    async def _reply(self, call: Call, deadline_s: float, identity: str) -> Reply:
        answered: asyncio.Future[Reply] = self._loop.create_future()

        def answer(request: Request, answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer.reply)

        self._backend.offer(Request(call, 1, self._now(), deadline_s, answer, identity))
        return await answered
