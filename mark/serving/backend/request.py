"""A request on its way through the bouncer, and where it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.models.call import Call, Reply

if TYPE_CHECKING:
    from mark.serving.observe.tracing import RequestTrace


@dataclass(slots=True, eq=False)
class Request:
    """An accepted request. Times are of the loop's monotonic clock, in seconds.

    `answer` is called exactly once, with the request itself (so that neither holds the other: cycles wait for the
    garbage collector), the reply and who made it (`INSTANCE`, `FUNCTION`, ...).
    `items` is how many inputs of the model it holds: its share of a batch.
    """

    call: Call
    items: int
    arrived_s: float
    deadline_s: float  # arrived_s + RT_max, or earlier where the client said so: then later is of no use to it
    answer: Callable[[Request, Reply, str], None]
    id: str = ""
    tries: int = 0  # workers that were lost with it
    trace: RequestTrace | None = None  # where requests are traced


# The values of `mark-answered-by`; a refusal was made by nobody and has no such header.
INSTANCE, FUNCTION, CACHE, RECONSTRUCTION, DEFAULT = "instance", "function", "cache", "reconstruction", "default"
NOBODY = "nobody"
