"""A request on its way through a backend, an attempt at answering it, and a batch that a worker serves together."""

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

    `answer` is called exactly once, with the request itself and its answer. The request is an argument so that neither
    holds the other, because cycles wait for the garbage collector. `items` is the number of the model's inputs in it,
    its share of a batch.
    """

    call: Call
    items: int
    arrived_s: float
    deadline_s: float  # arrived_s + RT_max, or the client's own: a later answer is useless to the client
    answer: Callable[[Request, Answer], None]
    id: str = ""
    tries: int = 0  # workers that were lost with it
    late: bool = False  # it was queued although it would be late, and has no promise
    trace: RequestTrace | None = None  # if requests are traced
    key: str = ""  # chosen by the client to group requests, for example by user
    version: str = ""  # of the model that serves it
    gone: Callable[[], bool] | None = None  # whether its client has gone and would not read an answer
    accepts: str = (
        ""  # answers that it accepts (`mark.insurance.insurance_settings.ACCEPTS`); "": the service's setting
    )

    def attempt(
        self,
        answer: Callable[[Request, Answer], None],
        call: Call | None = None,
        *,
        number: int = 0,
        version: str = "",
        decoded: bool = False,
    ) -> Attempt:
        """Return an attempt at answering this request, whose answer goes to `answer`.

        It has the request's call or another one, and is for the request's version unless `version` names one.
        `decoded`: the model's reply holds its results unencoded, for `mark.models.results.results_of`. The caller keeps
        its attempts, because a request that held them would form a cycle with them.
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
        """Return a call with one item that helps to answer this request, such as a call of a stage.

        It has its own times and no trace, and continues when the client leaves.
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
    """Return whether the request's client has gone."""
    return request.gone is not None and request.gone()


def own_deadline(allowed_s: float, rt_max_s: float) -> bool:
    """Return whether a deadline `allowed_s` after the arrival is the client's own, which replaces RT_max.

    An infinite one is not.
    """
    return allowed_s < rt_max_s - TOLERANCE_S or rt_max_s + TOLERANCE_S < allowed_s < NEVER_S


class Batch:
    """Requests that one worker serves together. `service_s` is the predicted time, `end_s` the predicted end."""

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
        self.expires_s = expires_s  # the earliest of the clients' own deadlines
        self.start_s = oldest_s  # predicted start
        self.service_s = self.started_s = self.end_s = NEVER_S
        self.behind: Batch | None = None  # the batch that its worker already has and serves next

    def again(self) -> Batch:
        """Return a batch of the same requests for another worker."""
        batch = Batch(self.requests[0], self.items, self.bytes, self.oldest_s, self.tightest_s, self.expires_s)
        batch.requests, batch.start_s, batch.service_s = self.requests, self.start_s, self.service_s
        return batch

    def keep(self, requests: list[Request]) -> None:
        """Drop its other requests."""
        self.requests = requests
        self.items = sum(request.items for request in requests)
        self.bytes = sum(len(request.call.body) for request in requests)

    def runs(self, now_s: float) -> None:
        """Note that a worker starts the batch."""
        self.started_s = now_s
        self.end_s = now_s + self.service_s

    def free_s(self, now_s: float) -> float:
        """Return when its worker is free; a batch that overran its predicted end is assumed to end now."""
        free_s = self.end_s if self.end_s > now_s else now_s
        return free_s if self.behind is None else free_s + self.behind.service_s
