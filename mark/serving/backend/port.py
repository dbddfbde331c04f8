"""The port `Backend`, to which a server hands requests.

A replica is one (`mark.serving.backend.replica`). A cache, a choice between models, hedging or an ensemble is another,
with backends behind it: it answers a request itself, passes it on, or makes attempts (`Request.attempt`) and answers
the request from their replies. Backends are composed and not derived, because the classes of the data plane are
compiled.
"""

from __future__ import annotations

from typing import Protocol

from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.request import Request


class Backend(Protocol):
    """Answers requests. Everything runs on one event loop."""

    @property
    def ready(self) -> bool:
        """Return whether a request would be served here."""
        ...

    def offer(self, request: Request) -> None:
        """Take the request. Its `answer` is called exactly once, now or later, in every case."""
        ...

    def retry_after_s(self) -> float:
        """Return the seconds after which a refused request should be sent again."""
        ...

    async def drain(self, until_s: float) -> None:
        """Refuse new requests; return when all are answered, soon after `until_s` (monotonic) at the latest."""
        ...


class StageBackend(Backend, Protocol):
    """A backend for the calls of a stage.

    It is a replica here (`mark.serving.backend.replica`), a server elsewhere (`mark.serving.conductor.remote_stage`),
    or a cache before one of these (`mark.serving.backend.cache`).
    """

    @property
    def metrics(self) -> ModelMetrics: ...

    @property
    def least_s(self) -> float:
        """Return the least known time of a call, in seconds."""
        ...
