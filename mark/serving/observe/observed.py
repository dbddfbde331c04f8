"""The parts of requests and batches that logs and traces read (`mark.serving.backend.request`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mark.models.call import Call


@dataclass(slots=True)
class RequestTrace:
    """A request's data for its span. `parent` has the headers of the client's own trace."""

    parent: dict[str, str]
    served: dict[str, float] = field(default_factory=dict)  # its worker's times, and its batch


class ObservedRequest(Protocol):
    """A request that was answered, or is about to be. Times are of the loop's monotonic clock, in seconds."""

    @property
    def id(self) -> str: ...
    @property
    def call(self) -> Call: ...
    @property
    def items(self) -> int: ...
    @property
    def arrived_s(self) -> float: ...
    @property
    def trace(self) -> RequestTrace | None: ...


class ServedBatch(Protocol):
    """Requests that one worker has served together."""

    @property
    def requests(self) -> Sequence[ObservedRequest]: ...
    @property
    def items(self) -> int: ...
    @property
    def started_s(self) -> float: ...
