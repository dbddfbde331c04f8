"""One version of a model on this machine: its bouncer, its workers, and the calls of functions.

The bouncer decides. This module has the I/O: workers, a timer, tasks that wait for functions, and the counts.
Everything runs on one event loop, and only a call of a function needs a task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from mark.domain.rules.admission import FUNCTION as TO_FUNCTION
from mark.domain.rules.admission import INSTANCE as HERE
from mark.domain.rules.admission import NEVER_S, in_time
from mark.models.answer import FUNCTION, INSTANCE, NOBODY, Answer
from mark.models.call import Call, Reply
from mark.serving.backend.bouncer import DRAINING, OVERLOADED, QUEUE_FULL, Bouncer
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.port import Backend
from mark.serving.backend.refusals import error_reply, refusal
from mark.serving.backend.request import Batch, Request, is_left, own_deadline
from mark.serving.overflow.breaker import Breaker
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Throttled, Unsuitable

_LOG = logging.getLogger("mark.serving")

# Called with an answered batch and its seconds before its requests are answered.
Served = Callable[[Batch, float], None]
# Return how many seconds later the answers of a batch leave, from its start in Unix seconds.
AnswersLater = Callable[[float], float]


class WorkerPool(Protocol):
    """A replica's workers (`mark.serving.worker.workers.Workers`)."""

    def send(self, worker_id: int, calls: Sequence[Call]) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Limits of the time of a function call, of concurrent calls, and of the bodies of all unanswered requests."""

    function_timeout_s: float = 30.0
    calls: int = 1000
    held_bytes: int = 512 << 20


class Replica:
    """The backend that has the model: it takes requests and answers each exactly once.

    `served` is called with each batch that a worker answered. `profiled_s[items]` is the batch's time in the profile,
    in seconds; empty without a profile. `answers_later_s` simulates a slow network.
    """

    def __init__(
        self,
        bouncer: Bouncer,
        functions: FunctionClient | None,
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        rt_max_s: float,
        limits: ReplicaLimits | None = None,
        served: Served | None = None,
        profiled_s: Sequence[float] = (),
        answers_later_s: AnswersLater | None = None,
        now: Callable[[], float] = time.monotonic,  # uvloop's own clock has a resolution of milliseconds
    ) -> None:
        self.bouncer, self.metrics = bouncer, metrics
        metrics.refresh = self._refresh
        self._functions, self._loop, self._now = functions, loop, now
        self._breaker, self._function_s = Breaker(), bouncer.function_s
        self._rt_max_s = rt_max_s
        self._limits = limits or ReplicaLimits()
        self._served, self._profiled_s, self._answers_later_s = served, profiled_s, answers_later_s
        self._on_their_way = 0  # batches whose answers leave later
        self._held_bytes = 0
        self._workers: WorkerPool | None = None
        self._batches: dict[int, deque[Batch]] = {}  # by worker: its current batch, and its next one
        self._idle: list[int] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = NEVER_S
        self._settled: asyncio.Future[None] | None = None

    def attach(self, workers: WorkerPool) -> None:
        """Set the workers, which report their events through `worker_ready`, `worker_done` and `worker_lost`."""
        self._workers = workers

    # Requests

    def offer(self, request: Request) -> None:
        """Queue the request, send it to a function, or refuse it."""
        self._held_bytes += len(request.call.body)
        if self._held_bytes > self._limits.held_bytes:
            self._refuse(request, QUEUE_FULL)
            return
        where = self.bouncer.offer(request, self._now())
        if where != HERE and not self._breaker.closed and self._breaker.admits(self._now()):
            # The breaker's pause is over, and this request tests the functions.
            self.bouncer.function_s = self._function_s
            where = self.bouncer.offer(request, self._now())
            if where != TO_FUNCTION:  # no function gets the request, so functions are not tested
                self.bouncer.function_s = NEVER_S
        if where == HERE:
            if not self._pumping:
                # Requests that arrive in this turn of the loop may share the batch.
                self._pumping = True
                self._loop.call_soon(self._pump)
        elif where == TO_FUNCTION:
            self._overflow(request, self.bouncer.reason)
        else:
            self._refuse(request, self.bouncer.reason)

    @property
    def least_s(self) -> float:
        """Return the least time of a request with one item, here or on a function, in seconds."""
        return min(self.bouncer.least_s, self.bouncer.function_s)

    def retry_after_s(self) -> float:
        """Return the seconds after which a refused request should be sent again."""
        return self.bouncer.retry_after_s(self._now())

    # Workers

    @property
    def ready(self) -> bool:
        """Return whether a request would be served here."""
        return self.bouncer.workers > 0 and not self.bouncer.draining

    def worker_ready(self, worker_id: int) -> None:
        """Note that a worker has loaded the model and is idle."""
        self.metrics.workers_ready += 1
        self._idle.append(worker_id)
        self.bouncer.worker_up(self._now())
        self._pump()

    def worker_done(self, worker_id: int, replies: Sequence[Reply], service_s: float) -> None:
        """Take a worker's answers to its batch."""
        batches = self._batches.get(worker_id)
        if batches is None:  # a drain gave the batch up
            return
        now_s, batch = self._now(), batches.popleft()
        failed = 0
        for reply in replies:
            if reply.status == 500:
                failed += 1
        self.bouncer.finished(batch, now_s, service_s, failed=failed > 0)
        if not batches:
            del self._batches[worker_id]
            self._idle.append(worker_id)
        requests: Sequence[Request] = batch.requests
        if failed > 1 and requests:  # a request that fails alone is itself at fault
            requests, replies = self._try_apart(requests, replies, now_s)
        # The next batch is sent first, so that the worker is busy while answers are written.
        self._pump()
        metrics = self.metrics
        metrics.service_s.observe(service_s)
        if batch.items < len(self._profiled_s):
            ratio = service_s / self._profiled_s[batch.items]
            metrics.service_ratio.observe(ratio)
            metrics.pace.observe(batch.started_s, ratio)
        if not batch.requests:  # another worker got the requests
            return
        if self._served is not None:
            self._served(batch, service_s)
        later_s = 0.0
        if self._answers_later_s is not None:
            later_s = self._answers_later_s(time.time() - (now_s - batch.started_s))
        if later_s > 0.0:
            self._on_their_way += 1
            self._loop.call_later(later_s, self._arrived, batch, requests, replies)
        else:
            self._answer_batch(batch, requests, replies, now_s)

    def _arrived(self, batch: Batch, requests: Sequence[Request], replies: Sequence[Reply]) -> None:
        """Answer a batch whose answers were delayed."""
        self._on_their_way -= 1
        self._answer_batch(batch, requests, replies, self._now())

    def _answer_batch(self, batch: Batch, requests: Sequence[Request], replies: Sequence[Reply], now_s: float) -> None:
        metrics = self.metrics
        by_status, latency, wait = metrics.requests, metrics.latency_s.observe, metrics.wait_s.observe
        late = 0
        for request, reply in zip(requests, replies, strict=True):
            latency_s = now_s - request.arrived_s
            latency(latency_s)
            wait(batch.started_s - request.arrived_s)
            if not in_time(latency_s, request.deadline_s - request.arrived_s):
                late += 1
            by_status[INSTANCE, reply.status] += 1
            self._held_bytes -= len(request.call.body)
            try:
                request.answer(request, Answer(reply, INSTANCE, request.version))
            except Exception:  # the other requests of the batch must get their answers
                self._unanswered(request)
        metrics.deadline_misses += late
        if self._settled is not None:
            self._settle()

    def _try_apart(
        self, requests: Sequence[Request], replies: Sequence[Reply], now_s: float
    ) -> tuple[Sequence[Request], Sequence[Reply]]:
        """Return the requests of a batch to answer now, with their replies.

        Requests that failed together are tried again if time allows.
        """
        failed = [request for request, reply in zip(requests, replies, strict=True) if reply.status == 500]
        places = iter(self.bouncer.try_apart(failed, now_s))
        answered: list[Request] = []
        with_reply: list[Reply] = []
        for request, reply in zip(requests, replies, strict=True):
            where = next(places) if reply.status == 500 else None
            if where == HERE:
                self.metrics.retries += 1
            elif where == TO_FUNCTION and self._functions is not None:
                self._overflow(request, "failed")
            else:
                answered.append(request)
                with_reply.append(reply)
        return answered, with_reply

    def worker_lost(self, worker_id: int, reason: str, back_in_s: float, at_next: bool = False) -> None:
        """Note that a ready worker crashed or hung; it should be back in `back_in_s` seconds (infinite: never).

        `at_next`: it had the results of its batch and failed in the batch that it had ahead.
        """
        self.metrics.workers_ready -= 1
        self.metrics.worker_losses += 1
        batches = self._batches.pop(worker_id, None)
        batch = None if batches is None else batches[0]
        if batch is not None:
            self.metrics.retries += len(batch.requests)
        elif worker_id in self._idle:
            self._idle.remove(worker_id)
        else:  # a drain gave its batch up
            return
        now_s = self._now()
        stranded = self.bouncer.worker_down(now_s, now_s + back_in_s, batch, at_next=at_next)
        for request in stranded.overflow:
            self._overflow(request, "crash")
        for request in stranded.failed:
            self._refuse(request, "lost")
        self._pump()

    # Stopping

    async def drain(self, until_s: float) -> None:
        """Finish all requests or send them to functions; return when all are answered.

        That is soon after `until_s` at the latest. Requests unanswered by then go to functions or are refused. Batches
        that workers have at that time are given up, so end the workers afterwards.
        """
        self._strand(self.bouncer.drain(self._now(), until_s), "drain")
        self._pump()
        await self._until_settled(until_s)
        now_s = self._now()
        self._strand(self.bouncer.drain(now_s, now_s), "drain")
        self._strand([r for has in self._batches.values() for batch in has for r in batch.requests], "drain")
        self._batches.clear()
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._rt_max_s)
        self._functions = None  # later requests are refused
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if self._timer is not None:
            self._timer.cancel()

    async def _until_settled(self, until_s: float) -> None:
        self._settled = self._loop.create_future()
        self._settle()
        await asyncio.wait([self._settled], timeout=max(0.0, until_s - self._now()))

    def _settle(self) -> None:
        busy = self.bouncer.queued or self._batches or self._calls or self._on_their_way
        if self._settled is not None and not busy and not self._settled.done():
            self._settled.set_result(None)

    def _strand(self, requests: Sequence[Request], reason: str) -> None:
        for request in requests:
            if self._functions is not None:
                self._overflow(request, reason)
            else:
                self._refuse(request, DRAINING)

    # Inside

    def _pump(self) -> None:
        """Start batches, drop expired requests, and set the timer to the end of the next window."""
        self._pumping = False
        bouncer, idle = self.bouncer, self._idle
        now_s = self._now()
        while idle:
            batch = bouncer.next_batch(now_s)
            if batch is None:
                break
            self._send(idle.pop(), batch)
        while bouncer.queued and (ahead := bouncer.next_ahead(now_s)) is not None:
            running, batch = ahead
            self._send(next(w for w, has in self._batches.items() if has[0] is running), batch)
        for request in bouncer.take_expired():
            if is_left(request):
                self._forget(request, now_s)
            else:
                self.metrics.expired += 1
                self._refuse(request, "expired")
        due_s = bouncer.due_s()
        if due_s != self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = due_s
            self._timer = self._loop.call_later(max(0.0, due_s - now_s), self._window_over) if due_s < NEVER_S else None
        if self._settled is not None:
            self._settle()

    def _send(self, worker_id: int, batch: Batch) -> None:
        self._batches.setdefault(worker_id, deque()).append(batch)
        self.metrics.batch_items.observe(batch.items)
        assert self._workers is not None, "workers are attached before one is ready"
        self._workers.send(worker_id, [request.call for request in batch.requests])

    def _window_over(self) -> None:
        self._timer, self._timer_s = None, NEVER_S
        self._pump()

    def _overflow(self, request: Request, reason: str) -> None:
        if is_left(request):
            self._forget(request, self._now())
            return
        if self._functions is None:
            self._refuse(request, reason if reason != "crash" else "lost")
            return
        if len(self._calls) >= self._limits.calls:
            self._refuse(request, "throttled")
            return
        now_s = self._now()
        if not self._breaker.admits(now_s):
            self._refuse(request, "functions")
            return
        period = self._breaker.begin(now_s)
        if not self._breaker.closed:
            self.bouncer.function_s = NEVER_S  # one call is enough to test the functions
        self.metrics.overflow[reason] += 1
        task = self._loop.create_task(self._call(self._functions, request, period))
        self._calls.add(task)
        task.add_done_callback(partial(self._called, request, period))

    def _called(self, request: Request, period: int, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if task.cancelled():  # a drain cancelled it, perhaps before it began
            self._breaker.undecided(period)
            self._refuse(request, "late")
        if self._settled is not None:
            self._settle()

    async def _call(self, functions: FunctionClient, request: Request, period: int) -> None:
        reason, asked, asked_s = "functions", False, 0.0
        try:
            # The client gives up at its own deadline. RT_max is only a promise: a later answer is late, but still an
            # answer.
            own_s = request.deadline_s - self._now()
            asked = own_deadline(request.deadline_s - request.arrived_s, self._rt_max_s)
            timeout_s = min(self._limits.function_timeout_s, own_s) if asked else self._limits.function_timeout_s
            (reply,) = await functions.call([request.call], max(timeout_s, 1e-3))
        except Throttled as error:
            reason, asked_s = "throttled", error.retry_after_s
        except Unsuitable as error:
            _LOG.warning("function: %s", error, extra={"request_id": request.id})
            reason = OVERLOADED
        except FunctionsFailed as error:
            _LOG.warning("function: %s", error, extra={"request_id": request.id})
            reason = "late" if self._now() >= request.deadline_s else "functions"
        except Exception:
            _LOG.exception("the adapter of functions failed", extra={"request_id": request.id})
        else:
            if not self._breaker.closed:
                _LOG.warning("functions answer again")
                self.bouncer.function_s = self._function_s
            self._breaker.succeeded()
            latency_s = self._now() - request.arrived_s
            self.metrics.latency_s.observe(latency_s)
            if not in_time(latency_s, request.deadline_s - request.arrived_s):
                self.metrics.deadline_misses += 1
            self._answer(request, reply, FUNCTION)
            return
        if reason == OVERLOADED or (asked and reason == "late"):
            self._breaker.undecided(period)  # the request was at fault, or its deadline too short
        elif left_alone_s := self._breaker.failed(period, self._now(), asked_s):
            self.bouncer.function_s = NEVER_S
            _LOG.warning("functions fail, and are left alone for %.1f s", left_alone_s)
        self._refuse(request, reason)

    def _refresh(self) -> None:
        metrics, bouncer = self.metrics, self.bouncer
        metrics.queued, metrics.running, metrics.n_batch = bouncer.queued, bouncer.in_flight, bouncer.n_batch

    def _refuse(self, request: Request, reason: str) -> None:
        self.metrics.refused[reason] += 1
        self.metrics.deadline_misses += 1
        self._answer(request, refusal(reason), NOBODY)

    def _forget(self, request: Request, now_s: float) -> None:
        """Answer a request whose client has gone; it counts as a miss only after its deadline."""
        self.metrics.refused["gone"] += 1
        self.metrics.deadline_misses += now_s > request.deadline_s
        self._answer(request, refusal("gone"), NOBODY)

    def _answer(self, request: Request, reply: Reply, made_by: str) -> None:
        self.metrics.requests[made_by, reply.status] += 1
        self._held_bytes -= len(request.call.body)
        try:
            request.answer(request, Answer(reply, made_by, request.version))
        except Exception:
            self._unanswered(request)

    def _unanswered(self, request: Request) -> None:
        """Answer with an error, because the answer could not be written or an observer failed; other requests must go
        on.
        """
        _LOG.exception("an answer failed", extra={"request_id": request.id})
        with suppress(Exception):  # most likely the request has its answer
            request.answer(request, Answer(error_reply(500, "internal error"), NOBODY, request.version))


_: type[Backend] = Replica
