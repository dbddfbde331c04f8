"""The port `Backend`: what a server hands requests to.

A replica is one (`mark.serving.backend.replica`). A cache, a choice between models, hedging or an ensemble is another
one, which has backends behind it: it answers a request by itself, passes it on, or makes attempts (`Request.attempt`)
and answers the request from their replies. It is composed, not derived: the classes of the data plane are compiled.
"""

from __future__ import annotations

from typing import Protocol

from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.request import Request


class Backend(Protocol):
    """Answers requests. Everything runs on one event loop."""

    @property
    def ready(self) -> bool:
        """Would a request be served here?"""
        ...

    def offer(self, request: Request) -> None:
        """Take the request: its `answer` is called exactly once, now or later, whatever happens to it."""
        ...

    def retry_after_s(self) -> float:
        """In how many seconds a request that is refused now should be sent again."""
        ...

    async def drain(self, until_s: float) -> None:
        """Take nothing new; returns when every request is answered, soon after `until_s` (monotonic) at the latest."""
        ...


class StageBackend(Backend, Protocol):
    """What answers the calls of a stage: a replica here (`mark.serving.backend.replica`), or a server elsewhere
    (`mark.serving.conductor.remote_stage`), or a cache before one of these (`mark.serving.backend.cache`)."""

    @property
    def metrics(self) -> ModelMetrics: ...

    @property
    def least_s(self) -> float:
        """What a call takes at least, as far as is known, in seconds."""
        ...
