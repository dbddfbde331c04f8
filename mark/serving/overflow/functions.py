"""The port to functions: where a bouncer sends what it cannot finish in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from mark.domain.errors import MarkError
from mark.models.call import Call, Reply


class FunctionsFailed(MarkError):
    """The function did not answer: broken, unreachable, or not in time. The message says which."""


class Throttled(FunctionsFailed):
    """No environment is to be had now; `retry_after_s` is a guess at when."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("functions are throttled")
        self.retry_after_s = retry_after_s


class Unsuitable(FunctionsFailed):
    """The function takes no such call, say because it is too large; it may well take others."""


@dataclass(slots=True)
class Spent:
    """What functions were asked for so far: invocations that ran or may have run, and the seconds that they bill.

    The seconds are as their handlers measured them; for an invocation without an answer, as long as it was waited for.
    `capped` calls were not sent, because they would have cost more than functions may.
    """

    calls: int = 0
    billed_s: float = 0.0
    capped: int = 0


class FunctionClient(Protocol):
    """Somewhere else that has the model."""

    @property
    def spent(self) -> Spent: ...

    async def open(self) -> None:
        """Make ready to call, before there are requests: it may block the loop for a second. May be repeated.

        Raises BadInput where it can never be called.
        """
        ...

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        """One reply for each call, in order, of one invocation.

        A model that refuses a call says so in its reply (status 400 or 500). Raises Throttled where no environment is
        free, Unsuitable where the fault is the call's, FunctionsFailed for everything else: no answer to all of them in
        `timeout_s`, say, or closed. Inference has no effects, so that an invocation may be repeated.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, for good; calls under way fail."""
        ...


class UnderWay:
    """For adapters: the calls of the port `name` that are under way, each with its limit of time, until `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._limits: set[asyncio.Timeout] = set()
        self._closed = False
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Raises FunctionsFailed where the block takes longer, or is closed before its end."""
        if self._closed:
            raise FunctionsFailed(f"{self._name}: closed")
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                self._limits.add(limit)
                yield
        except TimeoutError:
            reason = "closed" if self._closed else f"no answer in {timeout_s:.3f} s"
            raise FunctionsFailed(f"{self._name}: {reason}") from None
        finally:
            self._left(limit)

    def _left(self, limit: asyncio.Timeout) -> None:
        self._limits.discard(limit)
        if self._closed and not self._limits:
            self._ended.set()

    async def close(self) -> None:
        """No call from now on, and an end to those under way: they have let go of their connections upon return."""
        self._closed = True
        now_s = asyncio.get_running_loop().time()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(now_s)
        if self._limits:
            await self._ended.wait()
