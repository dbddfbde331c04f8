"""The port `CallsStages`: what a conductor does for the items of a request, and what it keeps of the request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mark.models.call import Call, Reply
from mark.serving.backend.port import StageBackend
from mark.serving.backend.request import Request
from mark.serving.conductor.query import QueryProgress


class RunOfItems(Protocol):
    """The request of an item, as a conductor keeps it."""

    request: Request
    progress: QueryProgress


class CallsStages(Protocol):
    """What makes the calls of an item (`mark.serving.conductor.conductor.Conductor`). Repeating a call is not safe."""

    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    backends: tuple[StageBackend, ...]

    def call(
        self,
        run: Any,
        stage: int,
        call: Call,
        now_s: float,
        needed_s: float,
        told: Callable[[int, Any, Reply | None], None],
        probes: bool,
        due_s: float = math.inf,
    ) -> None:
        """Offer the call to the stage; `told` gets its result, or its error, once."""
        ...

    def needed_s(self) -> Sequence[float]:
        """Of each stage the least time from its call to the query's answer."""
        ...

    def too_late(self, stage: int) -> Reply:
        """The error of a query whose call of the stage was dropped."""
        ...

    def done(self, run: Any, index: int, result: Any) -> None:
        """The item has its result."""
        ...

    def fail(self, run: Any, reply: Reply) -> None:
        """The item has none, and so has the request."""
        ...
