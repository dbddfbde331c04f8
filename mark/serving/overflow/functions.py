"""The port to functions, to which a bouncer sends requests that it cannot finish in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from mark.domain.errors import MarkError
from mark.models.call import Call, Reply


class FunctionsFailed(MarkError):
    """The function did not answer: broken, unreachable, or too late. The message says which."""


class Throttled(FunctionsFailed):
    """No environment is available now; `retry_after_s` is a guess at when one is."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("functions are throttled")
        self.retry_after_s = retry_after_s


class Unsuitable(FunctionsFailed):
    """The function does not accept this call, for example because it is too large; it may accept others."""


@dataclass(slots=True)
class Spent:
    """The use of functions so far: invocations that ran or may have run, and the seconds that they bill.

    The seconds are as their handlers measured them; for an invocation without an answer, the time of the wait for it.
    `capped` calls were not sent, because they would have exceeded the functions' cost limit.
    """

    calls: int = 0
    billed_s: float = 0.0
    capped: int = 0


class FunctionClient(Protocol):
    """A function or another service that has the model."""

    @property
    def spent(self) -> Spent: ...

    async def open(self) -> None:
        """Prepare for calls, before there are requests: it may block the loop for a second. May be repeated.

        Raises BadInput if it can never be called.
        """
        ...

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        """Return one reply for each call, in order, from one invocation.

        If a model refuses a call, its reply says so (status 400 or 500). Raises Throttled if no environment is free,
        Unsuitable if the call is at fault, and FunctionsFailed for every other failure, such as missing replies after
        `timeout_s` or a closed client. Inference is free of side effects, so an invocation may be repeated.
        """
        ...

    async def close(self) -> None:
        """Close the connections for good; calls in progress fail."""
        ...


class UnderWay:
    """For adapters: the calls in progress of the port `name`, each with its time limit, until `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._limits: set[asyncio.Timeout] = set()
        self._closed = False
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Limit the time of the block. Raises FunctionsFailed if it takes longer, or the port is closed before."""
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
        """Refuse further calls and end those in progress, which have released their connections when this returns."""
        self._closed = True
        now_s = asyncio.get_running_loop().time()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(now_s)
        if self._limits:
            await self._ended.wait()
