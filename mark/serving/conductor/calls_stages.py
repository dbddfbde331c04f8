"""The port `CallsStages`: the calls a conductor makes for a request's items, and the state it keeps of the request."""

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
    """Makes the calls of an item (`mark.serving.conductor.conductor.Conductor`). Repeating a call is not safe."""

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
        """Offer the call to the stage. `told` is called once, with its result or its error."""
        ...

    def needed_s(self) -> Sequence[float]:
        """Return for each stage the least time from its call to the query's answer."""
        ...

    def too_late(self, stage: int) -> Reply:
        """Return the error of a query whose call of the stage was dropped."""
        ...

    def done(self, run: Any, index: int, result: Any) -> None:
        """Store the item's result."""
        ...

    def fail(self, run: Any, reply: Reply) -> None:
        """End the request with the item's error."""
        ...
