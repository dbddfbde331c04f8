"""Keeps Lambda environments warm.

Lambda has no call for this: only an invocation that finds all environments busy starts another one. So as many
concurrent invocations as environments are wanted, each holding its environment for a moment, start the missing ones and
keep the others. A separate thread makes them; a caller never waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from mark.control.ports import Clock
from mark.domain.function_offer import REFRESH_SHARE
from mark.serving.overflow.functions import FunctionsFailed, Spent, Throttled
from mark_infra.aws.lambda_functions import LambdaFunctions

_LOG = logging.getLogger("mark.aws")

# Long enough for the slowest of a hundred invocations to be sent while the first still holds its environment.
HOLD_MS = 200.0
# Time for a cold start with a large model; the invocation continues after that.
_TIMEOUT_S = 120.0
MOST = 1000  # an account's default limit of concurrent executions


class Pinged(Protocol):
    """The part of `LambdaFunctions` that warming uses."""

    spent: Spent

    async def open(self) -> None: ...
    async def warm(self, hold_ms: float, timeout_s: float) -> bool: ...
    async def close(self) -> None: ...


class LambdaWarming:
    """Keeps environments of one function, or of one version, warm. Thread-safe.

    Lambda keeps an idle environment for `keep_alive_s`. `counts` are pings by result: "started", "warm", "throttled",
    "failed".
    """

    def __init__(
        self,
        name: str,
        keep_alive_s: float,
        clock: Clock,
        *,
        region: str | None = None,
        session: Any = None,
        functions: Callable[[str], Pinged] | None = None,
    ) -> None:
        self._name, self._keep_alive_s, self._clock = name, keep_alive_s, clock
        self._make: Callable[[str], Pinged] = functions or (
            lambda name: LambdaFunctions(name, region=region, connections=MOST, session=session)
        )
        self._functions: Pinged | None = None
        self._made_for = ""
        self._spent_before = Spent()  # on earlier functions
        self._lock = threading.Lock()
        self._warm = 0  # environments that the last round reached
        self._warm_s = float("-inf")
        self._under_way = False
        self._loop: asyncio.AbstractEventLoop | None = None  # made with the thread, because many terms never warm
        self._thread: threading.Thread | None = None
        self._round: asyncio.Task[None] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def spent(self) -> Spent:
        """The calls and billed seconds of all pings so far."""
        before, now = self._spent_before, self._functions.spent if self._functions is not None else Spent()
        return Spent(before.calls + now.calls, before.billed_s + now.billed_s)

    def use(self, name: str) -> None:
        """Keep this function, or version, warm from now on; it has environments of its own. Repeatable."""
        with self._lock:
            if name != self._name:
                self._name, self._warm, self._warm_s = name, 0, float("-inf")

    def warm(self, environments: int) -> int:
        """Have that many environments warm; return how many are being started. Repeatable.

        Returns 0 while a round is running and if enough were warm recently; `counts` has the results.
        """
        environments = min(environments, MOST)
        with self._lock:
            now_s = self._clock.now_s()
            age = (now_s - self._warm_s) / self._keep_alive_s
            if self._under_way or (environments <= self._warm and age < REFRESH_SHARE):
                return 0
            there = self._warm if age < 1.0 else 0
            self._under_way, name = True, self._name
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="warming", daemon=True)
                self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, name, environments, now_s)
        return max(0, environments - there)

    def close(self) -> None:
        """Stop pinging and cancel running pings."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _begin(self, name: str, environments: int, now_s: float) -> None:
        assert self._loop is not None
        self._round = self._loop.create_task(self._reach(name, environments, now_s))

    async def _reach(self, name: str, environments: int, now_s: float) -> None:
        reached = 0
        try:
            functions = await self._of(name)
            await functions.open()
            ended = Counter(await asyncio.gather(*(_pinged(functions) for _ in range(environments))))
            reached = ended["started"] + ended["warm"]
        except Exception:  # for example of `open`; a missing function must not end the controller
            _LOG.exception("function %s cannot be kept warm", name)
            ended = Counter(failed=environments)
        if reached < environments:
            _LOG.warning("function %s: %d of %d environments are warm", name, reached, environments)
        with self._lock:
            self.counts.update(ended)
            self._under_way = False
            if name == self._name:
                self._warm, self._warm_s = reached, now_s

    async def _of(self, name: str) -> Pinged:
        if self._functions is not None and name == self._made_for:
            return self._functions
        if self._functions is not None:
            await self._functions.close()
            self._spent_before, self._functions = self.spent, None
        self._functions, self._made_for = self._make(name), name
        return self._functions

    async def _end(self) -> None:
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])
        if self._functions is not None:
            await self._functions.close()


async def _pinged(functions: Pinged) -> str:
    try:
        return "started" if await functions.warm(HOLD_MS, _TIMEOUT_S) else "warm"
    except Throttled:
        return "throttled"
    except FunctionsFailed as error:
        _LOG.warning("a ping failed: %s", error)
        return "failed"
