"""A stage that is served elsewhere, reached by HTTP at a server (`mark serve --stage`) or a gateway of several servers.

A call is a request to `/v2/models/STAGE/infer` that states its remaining time. Its body has the form that stages in one
process exchange (`mark.models.results`), and only the stage's workers read it. Models keep no state between calls, so a
call without an answer may be repeated once. Repetitions have a budget, so that a stage in trouble does not get twice
the load. The stage's readiness is polled; while its address does not answer, calls are refused without being sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from mark.domain.rules import second_attempts
from mark.models.answer import FUNCTION, INSTANCE, NOBODY, Answer
from mark.models.call import RESULTS, Reply
from mark.serving.backend.bouncer import DRAINING, QUEUE_FULL
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.refusals import NOBODY_READY, error_reply, refusal
from mark.serving.backend.request import Request, own_deadline
from mark.serving.conductor.least import LeastSeen
from mark.serving.overflow.http_client import Address, Asker, CallFailure, Failure, HttpAnswer, Reach, Upstream

_LOG = logging.getLogger("mark.serving")
_OF_THE_MODEL = frozenset((200, 400, 500))
# A stage's server answers calls with these statuses. All others come from the path to it: keys, routes, proxies.
_OF_THE_STAGE = _OF_THE_MODEL | {413, 429, 503, 504}
_BY_FUNCTION = b"mark-answered-by: function\r\n"
_LOOK_S = 0.25  # between checks for hanging calls and due readiness polls


@dataclass(frozen=True, slots=True)
class StageAddress:
    """The address of a stage, and how to reach it. Times in seconds; `rt_max_s` is the stage's part of RT_max.

    `key` is the API key required there. `service` is the stage's name among all services of a site, by which a load
    balancer in front of several stages routes calls ("" without one). At most `most_calls` are in progress, each on its
    own connection, and `most_queued` wait for a connection.

    `probe_s` is both the interval of readiness polls and the time limit of an answer. After an answer of a function,
    which is billed and counts as one of its requests, the interval is `function_probe_s`. A stage that is not ready is
    polled at growing intervals, up to `unready_probe_s`, because a load balancer counts each poll as a lost request.

    Second calls are limited to `retry_share` of all calls, after a burst. A call without an answer after
    `hedge_after_s` is made a second time over another connection, and the model's first answer counts.
    """

    address: Address
    rt_max_s: float
    key: str | None = field(default=None, repr=False)
    reach: Reach = field(default_factory=Reach)
    most_calls: int = 400  # a server takes 1,000 connections from all conductors
    most_queued: int = 10_000
    probe_s: float = 1.0
    function_probe_s: float = 10.0
    unready_probe_s: float = 4.0
    retry_share: float = second_attempts.SHARE
    retry_burst: float = second_attempts.BURST
    service: str = ""
    hedge_after_s: float = math.inf


class StageLine(Protocol):
    """The connections to an address (`mark.serving.overflow.http_client.Upstream`)."""

    def ask(self, tag: _Sent, data: bytes, identity: bytes = b"") -> Any: ...

    def cancel(self, connection: Any, tag: _Sent) -> None: ...

    def sweep(self) -> None: ...

    def close(self) -> None: ...


class _Sent:
    """A call that is sent or queued, or a readiness poll, whose `request` is None.

    `other` is another attempt at the same call that is also in progress.
    """

    __slots__ = ("connection", "describes", "other", "request", "sent_s", "timer", "tried", "until_s")

    def __init__(self, request: Request | None, until_s: float) -> None:
        self.request, self.until_s = request, until_s
        self.connection: Any = None
        self.sent_s = 0.0
        self.describes = False  # asks for metadata instead of readiness
        self.tried = False  # a first attempt failed, or a second one was made
        self.other: _Sent | None = None
        self.timer: asyncio.TimerHandle | None = None  # until the second attempt


class RemoteStage:
    """The backend of a remote stage: it answers each call exactly once. Everything runs on one event loop.

    `became_ready` is called whenever the stage becomes ready. `described` is called once with its model's metadata, if
    given. `line` makes the connections.
    """

    def __init__(
        self,
        name: str,
        at: StageAddress,
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        became_ready: Callable[[], None] = lambda: None,
        described: Callable[[bytes], None] | None = None,
        line: Callable[[Asker[_Sent]], StageLine] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics
        metrics.refresh = self._refresh
        self._name, self._at, self._loop, self._now = name, at, loop, now
        self._became_ready, self._described = became_ready, described
        self._line: StageLine = Upstream(at.address, self, at.reach, loop, now) if line is None else line(self)
        host = b"HTTP/1.1\r\nhost: %b\r\n" % at.address.authority
        if at.key is not None:
            host += b"authorization: Bearer %b\r\n" % at.key.encode()
        if at.service:
            host += b"mark-service: %b\r\n" % at.service.encode()
        model = b"/v2/models/%b" % name.encode()
        self._post = b"POST %b/infer %bcontent-type: %b\r\n" % (model, host, RESULTS.encode())
        self._question, self._metadata = (b"GET %b %b\r\n" % (path, host) for path in (model + b"/ready", model))
        self._under_way: set[_Sent] = set()
        self._queue: deque[_Sent] = deque()
        self._budget = at.retry_burst
        self._hedges = at.hedge_after_s < math.inf
        self._took, self._way = LeastSeen(), LeastSeen()  # a call; the network's round trip
        self._answered_s = -math.inf  # time of the last call with a result
        self._probe: _Sent | None = None
        self._probe_s = 0.0  # time of the next poll
        self._unready_s = _LOOK_S  # interval of polls while the stage reports that it is not ready
        self._said = ""  # last logged readiness
        self._ready = self._silent = self._draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._settled: asyncio.Future[None] | None = None

    # The port

    @property
    def ready(self) -> bool:
        """Return whether the stage was ready at the last poll."""
        return self._ready and not self._draining

    @property
    def least_s(self) -> float:
        """Return the shortest recent time of a call with its network time, in seconds; 0 before the first answer."""
        return self._took.value

    def retry_after_s(self) -> float:
        """Return the seconds after which a refused request should be sent again."""
        return self._at.probe_s

    def offer(self, request: Request) -> None:
        """Send the call, queue it for a connection, or refuse it."""
        now_s = self._now()
        self._budget = min(self._at.retry_burst, self._budget + self._at.retry_share)
        sent = _Sent(request, request.deadline_s + self._at.rt_max_s)
        if self._draining:
            self._refuse(sent, DRAINING)
        elif self._silent:
            self._refuse(sent, NOBODY_READY)
        elif not self._in_time(request, now_s):
            self._refuse(sent, "expired")
        elif not self._queue and len(self._under_way) < self._at.most_calls:
            self._send(sent, request, now_s)
        elif len(self._queue) < self._at.most_queued:
            self._queue.append(sent)
        else:
            self._refuse(sent, QUEUE_FULL)

    async def drain(self, until_s: float) -> None:
        """Refuse new calls and wait for those in progress, until `until_s` at the latest."""
        self._draining = True
        if self._under_way or self._queue:
            self._settled = self._loop.create_future()
            await asyncio.wait([self._settled], timeout=max(0.0, until_s - self._now()))
        while self._under_way:
            self._cancel(next(iter(self._under_way)), DRAINING)
        for sent in self._queue:
            self._refuse(sent, DRAINING)
        self._queue.clear()
        self.close()

    # Readiness, and calls that take too long

    def start(self) -> None:
        """Check calls and readiness periodically, until `close`."""
        self._timer = self._loop.call_later(_LOOK_S, self.start)
        self.look()

    def close(self) -> None:
        """Close every connection."""
        self._draining = True
        if self._timer is not None:
            self._timer.cancel()
        self._line.close()

    def look(self) -> None:
        """Give up calls that take too long, and poll readiness when it is due."""
        now_s = self._now()
        for sent in [one for one in self._under_way if one.until_s <= now_s]:
            if sent in self._under_way:  # otherwise it ended together with another attempt
                self._cancel(sent, "hung")
        self._send_queued(now_s)
        probe = self._probe
        if probe is None:
            if now_s >= self._probe_s:
                self._probe = probe = _Sent(None, now_s + self._at.probe_s)
                probe.describes = self._ready and self._described is not None
                self._ask(probe, self._metadata if probe.describes else self._question, now_s)
        elif probe.until_s <= now_s:
            self._line.cancel(probe.connection, probe)
            if self._answered_s < probe.sent_s:
                self._probed(None, "does not answer", now_s)
            else:  # the stage is busy and answers calls
                self._probe = None
        self._line.sweep()

    def _probed(self, status: int | None, why: str, now_s: float, by: str = NOBODY) -> None:
        """Note the result of a readiness poll; `status` is None if the address did not answer."""
        if self._draining:
            return
        was, self._ready, self._silent = self._ready, status == 200, status is None
        if self._ready:
            wait_s = self._at.function_probe_s if by == FUNCTION else self._at.probe_s
        else:
            wait_s = _LOOK_S if self._silent else self._unready_s
        says_no = not self._ready and not self._silent
        self._unready_s = min(self._at.unready_probe_s, 2.0 * self._unready_s) if says_no else _LOOK_S
        self._probe, self._probe_s = None, now_s + wait_s
        self.metrics.workers_ready = int(self._ready)
        said = "is ready" if self._ready else f"is not ready: {why}"
        if said != self._said:
            level = logging.INFO if self._ready else logging.WARNING
            _LOG.log(level, "stage %s: %s %s", self._name, self._at.address.url, said)
            self._said = said
        if self._ready and not was:
            self._became_ready()

    # Calls

    def _in_time(self, request: Request, now_s: float) -> bool:
        """Return whether an answer can still be in time, considering only the network's round trip."""
        return now_s + self._way.value < request.deadline_s

    def _send(self, sent: _Sent, request: Request, now_s: float) -> None:
        call = request.call
        assert call.json_bytes is not None, "a call by value says where its JSON ends"
        head = b"%bcontent-length: %d\r\ninference-header-content-length: %d\r\n" % (
            self._post,
            len(call.body),
            call.json_bytes,
        )
        for header, value in ((b"x-request-id", request.id), (b"mark-key", request.key)):
            if value:
                head += b"%b: %b\r\n" % (header, value.encode("latin-1"))
        # a call without its own deadline gets the stage's RT_max
        if own_deadline(request.deadline_s - request.arrived_s, self._at.rt_max_s):
            head += b"mark-deadline-ms: %.3f\r\n" % ((request.deadline_s - now_s - self._way.value) * 1e3)
        self._under_way.add(sent)
        if self._hedges and not sent.tried:
            wait_s = max(0.0, request.arrived_s + self._at.hedge_after_s - now_s)
            sent.timer = self._loop.call_later(wait_s, self._hedge, sent)
        self._ask(sent, b"".join((head, b"\r\n", call.body)), now_s)

    def _hedge(self, sent: _Sent) -> None:
        """Make a second call while the first is in progress, if time and budget allow it."""
        now_s, request = self._now(), sent.request
        if sent not in self._under_way or request is None or len(self._under_way) >= self._at.most_calls:
            return
        if not self._may_try_again(sent, request, now_s):
            return
        self._budget -= 1.0
        self.metrics.hedges += 1
        second = _Sent(request, sent.until_s)
        sent.tried = second.tried = True
        sent.other, second.other = second, sent
        self._send(second, request, now_s)

    def _ask(self, sent: _Sent, data: bytes, now_s: float) -> None:
        sent.sent_s = now_s
        identity = b"" if sent.request is None else sent.request.id.encode("latin-1")
        sent.connection = self._line.ask(sent, data, identity)

    def _send_queued(self, now_s: float) -> None:
        while self._queue and len(self._under_way) < self._at.most_calls:
            sent = self._queue.popleft()
            assert sent.request is not None, "only calls wait"
            if self._in_time(sent.request, now_s):
                self._send(sent, sent.request, now_s)
            else:
                self._refuse(sent, "expired")

    def answered(self, tag: _Sent, answer: HttpAnswer) -> None:
        """Take a complete answer."""
        now_s, status = self._now(), answer.status
        by = FUNCTION if _BY_FUNCTION in answer.headers else INSTANCE
        if tag.describes and self._described is not None:
            described, self._described = self._described, None
            self._probe, self._probe_s = None, now_s  # metadata does not tell readiness
            if status == 200:
                described(answer.body)
        elif tag.request is None:
            if not tag.tried and by != FUNCTION:  # a function may have had to start its environment
                self._way.observe(now_s - tag.sent_s, now_s)
            self._probed(status, f"status {status}", now_s, by)
        elif tag in self._under_way and not (
            (status not in _OF_THE_MODEL and self._other_goes_on(tag))
            or (status == 503 and self._again(tag, tag.request, now_s))
        ):
            if status == 200:
                self._took.observe(now_s - tag.sent_s, now_s)
                self._answered_s = now_s
            reply = Reply(status, answer.content_type.decode("latin-1"), answer.body, answer.json_bytes)
            if status not in _OF_THE_STAGE:
                reply = error_reply(502, f"its server answers with status {status}")
            self._end(tag, reply, by if status in _OF_THE_MODEL else NOBODY)
            self._send_queued(now_s)

    def failed(self, tag: _Sent, began: bool, why: CallFailure) -> None:
        """Take the failure of a call or poll that will get no answer."""
        now_s = self._now()
        if tag.request is None:
            if tag.tried or began or why.kind is not Failure.CLOSED:
                self._probed(None, why.text, now_s)
            else:  # the kept connection was closed
                tag.tried, tag.describes = True, False
                self._ask(tag, self._question, now_s)
        elif tag in self._under_way and not (self._other_goes_on(tag) or self._again(tag, tag.request, now_s)):
            _LOG.debug("stage %s: %s %s", self._name, self._at.address.url, why, extra={"request_id": tag.request.id})
            self._refuse(tag, "broken_off" if began else "lost")
            self._send_queued(now_s)

    def _again(self, sent: _Sent, request: Request, now_s: float) -> bool:
        """Repeat a call without an answer, if time and budget allow it; return whether it was repeated."""
        if not self._may_try_again(sent, request, now_s):
            return False
        sent.tried = True
        self._budget -= 1.0
        self.metrics.retries += 1
        self._send(sent, request, now_s)
        return True

    def _may_try_again(self, sent: _Sent, request: Request, now_s: float) -> bool:
        least_s = max(self.least_s, self._way.value)
        return not (sent.tried or self._draining or self._budget < 1.0 or now_s + least_s >= request.deadline_s)

    def _other_goes_on(self, sent: _Sent) -> bool:
        """Drop a failed attempt if another one is in progress; return whether there is one."""
        other = sent.other
        if other is None:
            return False
        self._under_way.discard(sent)
        sent.other = other.other = None
        self._send_queued(self._now())
        return True

    # Answers

    def _cancel(self, sent: _Sent, reason: str) -> None:
        self._line.cancel(sent.connection, sent)
        self._refuse(sent, reason)

    def _refuse(self, sent: _Sent, reason: str) -> None:
        self.metrics.refused[reason] += 1
        self._end(sent, refusal(reason), NOBODY)

    def _end(self, sent: _Sent, reply: Reply, made_by: str) -> None:
        request = sent.request
        assert request is not None, "a question for readiness is no call"
        self._under_way.discard(sent)
        if sent.timer is not None:
            sent.timer.cancel()
        if (other := sent.other) is not None:
            self._under_way.discard(other)
            if other.timer is not None:
                other.timer.cancel()
            self._line.cancel(other.connection, other)
        latency_s, allowed_s = self._now() - request.arrived_s, request.deadline_s - request.arrived_s
        self.metrics.answered(made_by, reply.status, latency_s, allowed_s)
        try:
            request.answer(request, Answer(reply, made_by, request.version))
        except Exception:  # a failing callback must not affect other calls
            _LOG.exception("an answer failed", extra={"request_id": request.id})
        if self._settled is not None and not self._under_way and not self._queue and not self._settled.done():
            self._settled.set_result(None)

    def _refresh(self) -> None:
        self.metrics.queued, self.metrics.running = len(self._queue), len(self._under_way)


_: type[StageBackend] = RemoteStage
