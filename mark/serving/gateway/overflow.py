"""The gateway's calls of functions, for requests that no replica can take.

A fleet that is being launched, or was lost as a whole, has no bouncer to send requests to functions, so the gateway
does. It knows no service times and promises nothing: every answer of a function is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mark.models.call import Call, Reply
from mark.serving.frontend.calls import oip_call, sagemaker_call, stage_call
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import HttpLimits
from mark.serving.overflow.breaker import Breaker
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Throttled, Unsuitable

log = logging.getLogger("mark.serving")

MOST_CALLS, MOST_BYTES = 1000, 512 << 20  # at a time
MOST_BODY_BYTES = HttpLimits().body_bytes  # of one body, after decompression
_SOON_S = 1.0  # a function that had less time is not at fault


@dataclass(frozen=True, slots=True)
class ByFunctions:
    """Functions that have the model, and the name by which clients call the model.

    `rt_max_s` is the time promised to clients; later answers count as late. For a `stage` of a pipeline the calls of
    its conductor are accepted too.
    """

    functions: FunctionClient
    model: str
    rt_max_s: float
    stage: bool = False

    def asks_ready(self, exchange: Exchange) -> bool:
        """Return whether the request asks if the model is ready. With functions it is."""
        return exchange.method in (b"GET", b"HEAD") and exchange.path == b"/v2/models/%b/ready" % self.model.encode()

    def call_of(self, exchange: Exchange) -> Call | None:
        """Return the request's call for a function; None if functions do not serve it (another model, a named version).

        Raises Refused for a request that every server refuses.
        """
        if exchange.method != b"POST":
            return None
        if exchange.path == b"/invocations":
            return sagemaker_call(exchange, MOST_BODY_BYTES)
        if exchange.path == b"/v2/models/%b/infer" % self.model.encode():
            return (stage_call if self.stage else oip_call)(exchange, MOST_BODY_BYTES)
        return None


# Called once when a call ends, with the reply or None.
Done = Callable[[Reply | None], None]


class LastResort:
    """Calls of functions in progress. Everything runs on one event loop."""

    def __init__(self, by: ByFunctions, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self.by, self._loop, self._now = by, loop, now
        self._breaker = Breaker()
        self._calls: set[asyncio.Task[None]] = set()
        self._bytes = 0

    def begin(self, exchange: Exchange, deadline_s: float, done: Done, *, hurried: bool) -> bool:
        """Send the request to a function; return False if that is impossible. Raises Refused.

        `done` is called once at the call's end, and not after False. `hurried`: the deadline is the client's own, so
        that missing it is not the functions' fault.
        """
        now_s = self._now()
        if exchange.gone or deadline_s <= now_s or len(self._calls) >= MOST_CALLS or not self._breaker.admits(now_s):
            return False
        call = self.by.call_of(exchange)
        if call is None or self._bytes + len(call.body) > MOST_BYTES:
            return False
        self._bytes += len(call.body)
        period = self._breaker.begin(now_s)
        hurried = hurried or deadline_s < now_s + _SOON_S
        task = self._loop.create_task(self._call(call, deadline_s, period, done, hurried))
        self._calls.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._calls.discard(task)
            self._bytes -= len(call.body)
            if task.cancelled():
                self._breaker.undecided(period)
                done(None)

        task.add_done_callback(ended)
        return True

    async def drain(self, timeout_s: float) -> None:
        """Wait for the calls in progress for `timeout_s`, then give them up."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=timeout_s)
        for task in self._calls:
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def _call(self, call: Call, deadline_s: float, period: int, done: Done, hurried: bool) -> None:
        asked_s, blameless = 0.0, False
        try:
            # Loops count in milliseconds, and may be early by one.
            (reply,) = await self.by.functions.call([call], max(deadline_s - self._now(), 0.0) + 2e-3)
        except Throttled as error:
            asked_s = error.retry_after_s
        except FunctionsFailed as error:
            log.warning("function: %s", error)
            blameless = isinstance(error, Unsuitable) or (hurried and self._now() >= deadline_s)
        except Exception:
            log.exception("the adapter of functions failed")
        else:
            self._breaker.succeeded()
            done(reply)
            return
        if blameless:
            self._breaker.undecided(period)
        elif left_alone_s := self._breaker.failed(period, self._now(), asked_s):
            log.warning("functions fail, and are left alone for %.1f s", left_alone_s)
        done(None)
