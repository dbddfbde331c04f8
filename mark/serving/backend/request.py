"""A request on its way through a backend, an attempt at answering it, and the batch that a worker serves together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.domain.rules.admission import NEVER_S, TOLERANCE_S
from mark.models.answer import Answer
from mark.models.call import RESULTS, Call
from mark.models.items import items_in

if TYPE_CHECKING:
    from mark.serving.observe.observed import RequestTrace


@dataclass(slots=True, eq=False)
class Request:
    """An accepted request. Times are of the loop's monotonic clock, in seconds.

    `answer` is called exactly once, with the request itself (so that neither holds the other: cycles wait for the
    garbage collector) and its answer.
    `items` is how many inputs of the model it holds: its share of a batch.
    """

    call: Call
    items: int
    arrived_s: float
    deadline_s: float  # arrived_s + RT_max, or the client's own: after that the answer is of no use to it
    answer: Callable[[Request, Answer], None]
    id: str = ""
    tries: int = 0  # workers that were lost with it
    trace: RequestTrace | None = None  # where requests are traced
    key: str = ""  # the client's word for what it belongs to, say a user
    version: str = ""  # of the model, that it was given to
    gone: Callable[[], bool] | None = None  # has its client gone, so that its answer would not be read?
    accepts: str = ""  # answers that it takes (`mark.insurance.settings.ACCEPTS`); "": as the service says

    def attempt(
        self,
        answer: Callable[[Request, Answer], None],
        call: Call | None = None,
        *,
        number: int = 0,
        version: str = "",
        decoded: bool = False,
    ) -> Attempt:
        """An attempt at answering this request, with its own call or another one; its answer goes to `answer`.

        It asks for the request's version unless `version` names one. `decoded`: the reply of a model has its results as
        they are, for `mark.models.results.results_of`. The caller keeps its attempts: a request that held them would be
        in a cycle with them.
        """
        items = self.items if call is None else items_in(call)
        call = self.call if call is None else call
        if decoded:
            call = Call(call.protocol, call.content_type, call.body, call.json_bytes, RESULTS)
        attempt = Attempt(call, items, self.arrived_s, self.deadline_s, answer, self.id)
        attempt.trace, attempt.key, attempt.of, attempt.number = self.trace, self.key, self, number
        attempt.gone, attempt.version = self.gone, version or self.version
        attempt.accepts = self.accepts
        return attempt

    def part(
        self, answer: Callable[[Request, Answer], None], call: Call, arrived_s: float, deadline_s: float
    ) -> Attempt:
        """A call with one item on the way to this request's answer, as of a stage.

        It has times of its own and no trace, and goes on when the client leaves.
        """
        part = Attempt(call, 1, arrived_s, deadline_s, answer, self.id)
        part.key, part.of = self.key, self
        return part


@dataclass(slots=True, eq=False)
class Attempt(Request):
    """One of several attempts at answering the request `of`; `number` tells them apart."""

    of: Request | None = None
    number: int = 0


def is_left(request: Request) -> bool:
    """Has its client gone?"""
    return request.gone is not None and request.gone()


def own_deadline(allowed_s: float, rt_max_s: float) -> bool:
    """Is a deadline `allowed_s` after the arrival the client's own, which takes RT_max's place? Infinity is none."""
    return allowed_s < rt_max_s - TOLERANCE_S or rt_max_s + TOLERANCE_S < allowed_s < NEVER_S


class Batch:
    """Requests that one worker serves together. `service_s` is predicted, `end_s` when it should end."""

    __slots__ = (
        "behind", "bytes", "end_s", "expires_s", "items", "oldest_s", "requests", "service_s", "start_s", "started_s",
        "tightest_s",
    )  # fmt: skip

    def __init__(
        self, request: Request, items: int, size: int, oldest_s: float, tightest_s: float, expires_s: float
    ) -> None:
        self.requests = [request]
        self.items = items
        self.bytes = size
        self.oldest_s = oldest_s  # when its first request arrived
        self.tightest_s = tightest_s  # the earliest promise to one of its requests
        self.expires_s = expires_s  # the earliest deadline that a client set itself
        self.start_s = oldest_s  # when it should start, as last predicted
        self.service_s = self.started_s = self.end_s = NEVER_S
        self.behind: Batch | None = None  # what its worker does next, and has already

    def again(self) -> Batch:
        """A batch of the same requests, for another worker."""
        batch = Batch(self.requests[0], self.items, self.bytes, self.oldest_s, self.tightest_s, self.expires_s)
        batch.requests, batch.start_s, batch.service_s = self.requests, self.start_s, self.service_s
        return batch

    def runs(self, now_s: float) -> None:
        """A worker starts it."""
        self.started_s = now_s
        self.end_s = now_s + self.service_s

    def free_s(self, now_s: float) -> float:
        """When its worker is free: a batch that overruns its end is taken to end now."""
        free_s = self.end_s if self.end_s > now_s else now_s
        return free_s if self.behind is None else free_s + self.behind.service_s
