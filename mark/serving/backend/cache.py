"""A cache before the backend of one version of a model, or of one stage: a repeated call is answered from memory.

    the answer is in memory ──────────────► answered by the cache
    the backend has an equal call already ► waits for the answer to that
    else ─────────────────────────────────► the backend, whose answer is kept

Only answers of the model itself are kept and shared: status 200, from an instance or a function, not degraded. After
any other answer of the backend, the first waiting request is offered to the backend, and the others wait for that one.
Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b

from mark.models.answer import CACHE, FUNCTION, INSTANCE, NOBODY, Answer
from mark.models.call import Call, Reply
from mark.serving.backend.hot_calls import HotCalls
from mark.serving.backend.metrics import CacheCounts, ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.refusals import error_reply, refusal
from mark.serving.backend.request import Request, own_deadline
from mark.serving.backend.sieve import ENTRY_BYTES, Sieve

_LOG = logging.getLogger("mark.serving")
KeptAnswers = Sieve[Reply]
# An answer may take this part of the memory, because a larger one would evict many others.
_LARGEST_PART = 8
# The number of kept hashes that start with a call's form. It is limited because clients choose content types.
_MOST_FORMS = 64
# After this many requests without a repeated one, only every eighth is looked up until one is repeated, so that the
# cache costs nothing if calls do not repeat.
_MOST_FRUITLESS, _EVERY = 10_000, 8
_OF_THE_MODEL = frozenset((INSTANCE, FUNCTION))


class _Waiting:
    """The requests that wait for the answer to a call that the backend has."""

    __slots__ = ("call", "led", "offering", "requests")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.led = True  # the backend has the call
        self.offering = False
        # By request: the timer of its own deadline, if it has one.
        self.requests: dict[Request, asyncio.TimerHandle | None] = {}


class Cache:
    """The backend that answers repeated calls from `store`, which all caches of a process share.

    `model` is the model's reference. Together with the labels of the metrics (service, version, stage) it is part of
    the key, so that no other cache finds these answers. An answer is used for `ttl_s` from the arrival of its request.
    A request whose deadline is not `rt_max_s` after its arrival has its client's own deadline. Answers of functions are
    kept with `keeps_functions`; with several versions side by side the function serves only one of them. At most
    `most_waiting` requests wait for answers to equal calls, and others go to the backend.
    """

    def __init__(
        self,
        behind: StageBackend,
        store: KeptAnswers,
        loop: asyncio.AbstractEventLoop,
        *,
        model: str,
        rt_max_s: float,
        ttl_s: float = math.inf,
        keeps_functions: bool = True,
        most_waiting: int = 10_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics: ModelMetrics = behind.metrics
        self._counts = self.metrics.cache = CacheCounts()
        self._behind, self._store, self._loop, self._now = behind, store, loop, now
        self._largest = store.budget // _LARGEST_PART
        self._rt_max_s, self._ttl_s = rt_max_s, ttl_s
        self._keeps_functions, self._most_waiting = keeps_functions, most_waiting
        self._hash_key = blake2b(repr((model, self.metrics.labels)).encode()).digest()
        self._forms: dict[tuple[str, str, str, bool], blake2b] = {}
        # By key, the calls that the backend has; None: no request waits for the answer.
        self._under_way: dict[bytes, _Waiting | None] = {}
        self._waiting = 0
        # Look-ups since the last repeated call; requests that came while only every eighth is looked up.
        self._fruitless = self._passed = 0
        self._draining = False
        self.hot: HotCalls | None = None  # counts the calls that are answered from memory

    # The port

    @property
    def ready(self) -> bool:
        """Return whether a call would be served if its answer is not in memory."""
        return self._behind.ready

    @property
    def least_s(self) -> float:
        """Return the least time of a call whose answer is not in memory."""
        return self._behind.least_s

    def retry_after_s(self) -> float:
        return self._behind.retry_after_s()

    def offer(self, request: Request) -> None:
        """Answer the request from memory, let it wait for an equal call, or offer it to the backend."""
        if self._draining:  # the backend refuses it
            self._behind.offer(request)
            return
        if self._fruitless >= _MOST_FRUITLESS:
            self._passed += 1
            if self._passed % _EVERY:
                self._counts.misses += 1
                self._behind.offer(request)
                return
        key = self._key(request.call)
        kept = self._store.get(key, request.arrived_s)
        if kept is not None:
            self._fruitless = 0
            self._counts.hits += 1
            if self.hot is not None:
                self.hot.used(key, request.call, request.arrived_s)
            self._answer(request, Answer(kept, CACHE, request.version), self._now())
            return
        if key not in self._under_way:
            self._fruitless += 1
            self._under_way[key] = None
            request.answer = partial(self._replied, key, request.answer)
        elif self._waiting < self._most_waiting:
            self._fruitless = 0
            self._wait(key, request, self._now())
            return
        self._counts.misses += 1
        self._behind.offer(request)

    async def drain(self, until_s: float) -> None:
        """Drain the backend. Waiting requests end with the call they wait for, or the backend refuses them."""
        self._draining = True
        await self._behind.drain(until_s)

    # Keys

    def _key(self, call: Call) -> bytes:
        json_bytes = call.json_bytes
        form = (call.protocol, call.content_type, call.accept, json_bytes is None)
        begun = self._forms.get(form)
        if begun is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            begun = self._forms[form] = blake2b(repr(form).encode(), key=self._hash_key, digest_size=32)
        found = begun.copy()
        if json_bytes is not None:
            found.update(b"%d;" % json_bytes)
        found.update(call.body)
        return found.digest()

    # Equal calls

    def _wait(self, key: bytes, request: Request, now_s: float) -> None:
        """Let the request wait for the answer to an equal call, until its own deadline at the latest."""
        waiting = self._under_way[key]
        if waiting is None:
            waiting = self._under_way[key] = _Waiting(request.call)
        request.call = waiting.call  # so that equal bodies are in memory only once
        waiting.requests[request] = None
        self._waiting += 1
        if own_deadline(request.deadline_s - request.arrived_s, self._rt_max_s):
            self._until_deadline(waiting, request, now_s)

    def _until_deadline(self, waiting: _Waiting, request: Request, now_s: float) -> None:
        left_s = max(0.0, request.deadline_s - now_s)
        waiting.requests[request] = self._loop.call_later(left_s, self._deadline, waiting, request)

    def _deadline(self, waiting: _Waiting, request: Request) -> None:
        now_s = self._now()
        if now_s < request.deadline_s:  # timers have a resolution of milliseconds
            self._until_deadline(waiting, request, now_s)
            return
        del waiting.requests[request]
        self._waiting -= 1
        self._counts.coalesced += 1
        self.metrics.expired += 1
        self.metrics.refused["expired"] += 1
        self._answer(request, Answer(refusal("expired"), NOBODY, request.version), now_s)

    def _first(self, waiting: _Waiting) -> Request:
        """Take the first waiting request out and return it."""
        request = next(iter(waiting.requests))
        timer = waiting.requests.pop(request)
        if timer is not None:
            timer.cancel()
        self._waiting -= 1
        return request

    def _replied(self, key: bytes, to_client: Callable[[Request, Answer], None], had: Request, answer: Answer) -> None:
        """Keep an answer of the model and share it with the waiting requests, then answer the backend's request.

        After any other answer the backend is offered one of the waiting requests.
        """
        had.answer = to_client  # first, so that an answer repeated after a failure bypasses the cache
        waiting = self._under_way[key]
        reply, made_by, how = answer.reply, answer.made_by, answer.provenance
        if reply.status == 200 and made_by in _OF_THE_MODEL and (how is None or not how.degraded):
            del self._under_way[key]
            if made_by == INSTANCE or self._keeps_functions:
                self._keep(key, reply, had.arrived_s)
            while waiting is not None and waiting.requests:
                request = self._first(waiting)
                self._counts.coalesced += 1
                self._answer(request, Answer(reply, CACHE, request.version), self._now())
        elif waiting is None:
            del self._under_way[key]
        else:
            waiting.led = False
            if not waiting.offering:
                self._offer_next(key, waiting)
        to_client(had, answer)

    def _offer_next(self, key: bytes, waiting: _Waiting) -> None:
        """Offer the backend the first waiting request, and the next one if that is refused immediately."""
        waiting.offering = True
        while waiting.requests and not waiting.led:
            request = self._first(waiting)
            request.answer = partial(self._replied, key, request.answer)
            waiting.led = True
            self._counts.misses += 1
            self._behind.offer(request)
        waiting.offering = False
        if not waiting.led:
            del self._under_way[key]

    def _keep(self, key: bytes, reply: Reply, asked_s: float) -> None:
        size = len(reply.body) + ENTRY_BYTES
        if size > self._largest:
            return
        if not isinstance(reply.body, bytes):  # a view of memory that may be reused
            reply = Reply(reply.status, reply.content_type, bytes(reply.body), reply.json_bytes)
        self._store.put(key, reply, self._counts.kept, size, asked_s, self._ttl_s)

    # Answers

    def _answer(self, request: Request, answer: Answer, now_s: float) -> None:
        latency_s, allowed_s = now_s - request.arrived_s, request.deadline_s - request.arrived_s
        self.metrics.answered(answer.made_by, answer.reply.status, latency_s, allowed_s)
        try:
            request.answer(request, answer)
        except Exception:  # the answer could not be written, or an observer of answers failed
            _LOG.exception("an answer failed", extra={"request_id": request.id})
            with suppress(Exception):  # most likely the request has its answer
                request.answer(request, Answer(error_reply(500, "internal error"), NOBODY, request.version))


_: type[StageBackend] = Cache
