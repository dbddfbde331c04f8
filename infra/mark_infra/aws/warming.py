"""Keeps Lambda environments warm: the control port `Functions`.

Lambda has no call for it: an environment is started by an invocation that finds all others busy, so that as many
invocations at once as environments are wanted, each of which holds its environment for a moment, start what is missing
and keep the rest. They are made by a thread of their own; a caller never waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from mark.control.ports import Clock
from mark.control.ports import Functions as FunctionsPort
from mark.serving.overflow.functions import FunctionsFailed, Spent, Throttled
from mark_infra.aws.functions import LambdaFunctions

_LOG = logging.getLogger("mark.aws")

# Long enough for the slowest of a hundred invocations to be sent while the first still holds its environment.
HOLD_MS = 200.0
# A cold start with a large model; the invocation goes on when nothing waits for it.
_TIMEOUT_S = 120.0
# Environments are pinged again when this share of the keep-alive has passed: AWS promises no time at all.
_REFRESH_SHARE = 0.5
MOST = 1000  # what an account may run at once unless it asked for more


class Pinged(Protocol):
    """What is asked of `LambdaFunctions`."""

    spent: Spent

    async def open(self) -> None: ...
    async def warm(self, hold_ms: float, timeout_s: float) -> bool: ...
    async def close(self) -> None: ...


class LambdaWarming:
    """The port `Functions` for one function, which keeps an idle environment for `keep_alive_s`. Thread-safe.

    `counts` are pings by what became of them: "started", "warm", "throttled", "failed".
    """

    def __init__(
        self,
        name: str,
        keep_alive_s: float,
        clock: Clock,
        *,
        region: str | None = None,
        session: Any = None,
        functions: Callable[[], Pinged] | None = None,
    ) -> None:
        self._name, self._keep_alive_s, self._clock = name, keep_alive_s, clock
        self._make: Callable[[], Pinged] = functions or (
            lambda: LambdaFunctions(name, region=region, connections=MOST, session=session)
        )
        self._functions: Pinged | None = None
        self._lock = threading.Lock()
        self._warm = 0  # environments that the last round reached, and when it was begun
        self._warm_s = float("-inf")
        self._under_way = False
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._round: asyncio.Task[None] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def spent(self) -> Spent:
        """What the pings cost so far."""
        return self._functions.spent if self._functions is not None else Spent()

    def warm(self, environments: int) -> int:
        """Have that many environments warm; returns how many are missing and now being started. Repeatable.

        0 while a round is under way, and when enough were warm of late: see `counts` for what came of it.
        """
        environments = min(environments, MOST)
        with self._lock:
            now_s = self._clock.now_s()
            age = (now_s - self._warm_s) / self._keep_alive_s
            if self._under_way or (environments <= self._warm and age < _REFRESH_SHARE):
                return 0
            there = self._warm if age < 1.0 else 0
            self._under_way = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop.run_forever, name="warming", daemon=True)
                self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, environments, now_s)
        return max(0, environments - there)

    def close(self) -> None:
        """No ping from now on; those under way are given up."""
        thread, self._thread = self._thread, None
        if thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
        self._loop.close()

    def _begin(self, environments: int, now_s: float) -> None:
        self._round = self._loop.create_task(self._reach(environments, now_s))

    async def _reach(self, environments: int, now_s: float) -> None:
        reached = 0
        try:
            if self._functions is None:
                self._functions = self._make()
            await self._functions.open()
            ended = Counter(await asyncio.gather(*(_pinged(self._functions) for _ in range(environments))))
            reached = ended["started"] + ended["warm"]
        except Exception:  # of `open`, say: a function that is not to be had must not end the controller
            _LOG.exception("function %s cannot be kept warm", self._name)
            ended = Counter(failed=environments)
        if reached < environments:
            _LOG.warning("function %s: %d of %d environments are warm", self._name, reached, environments)
        with self._lock:
            self.counts.update(ended)
            self._warm, self._warm_s, self._under_way = reached, now_s, False

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


_: type[FunctionsPort] = LambdaWarming
