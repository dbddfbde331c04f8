"""The bouncer: admission and batching for the workers of one instance (MArk, sections 4.1 and 4.3).

It is one state machine without I/O and without a clock: requests, workers' events and the time go in, decisions come
out. It decides with the functions of `mark.domain.rules`, as the simulator's kernel does, and
`tests/serving/backend/test_bouncer.py` compares the two request by request. On each event the shell around it calls, in
this order:

    on a request            offer(request, now); INSTANCE: queued here, FUNCTION: send it there, REJECT: refuse it
    after every step        next_batch(now) until None, each batch to an idle worker; then next_ahead(now) until None,
                            each to the worker that has the batch it follows; take_expired(); timer at due_s()
    on a worker's answer    finished(batch, now); try_apart(the requests that failed together, now)
    on a worker's end       worker_down(now, back_s, batch), later worker_up(now)
    on a stop               drain(now, until)

Requests that arrive together may be offered before next_batch is called once, so that they share a batch.

The queue has closed batches, which no request joins any more, in order, and at most one open batch behind them. A
request never overtakes another. While all workers are busy, the one that will be free first may already get a closed
batch (`next_ahead`): the batch cannot change any more, and the worker need not idle for a round trip. If that worker
then takes so long that a promise is in danger, an idle worker gets the batch instead, and the first worker's answer to
it is dropped.

Predictions start from the current state: a batch runs until its predicted end, and a batch that overran it is assumed
to end now. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, Protocol

from mark.domain.errors import BadInput
from mark.domain.rules.admission import (
    FUNCTION,
    INSTANCE,
    NEVER_S,
    REJECT,
    TOLERANCE_S,
    destination,
    doubtful,
    in_time_probability,
    late_budget,
    margin_s,
    queues_late,
)
from mark.domain.rules.batching import joins, reserve_s, start_s
from mark.serving.backend.lineup import IllegalTransition, Lineup
from mark.serving.backend.request import Batch, Request, is_left

__all__ = [
    "DEADLINE", "DRAINING", "FUNCTION", "INSTANCE", "NO_WORKER", "OVERLOADED", "QUEUE_FULL", "REJECT", "TOO_LARGE",
    "Bouncer", "FixedTimes", "IllegalTransition", "Overflow", "QueueLimits", "ServiceTimes", "Stranded",
]  # fmt: skip

# The reason why a request was not queued here (`Bouncer.reason`).
OVERLOADED = "overloaded"  # it would not finish within RT_max
DEADLINE = "deadline"  # its client's own deadline is too short even for an idle instance
TOO_LARGE = "too_large"  # more items than service times are known for, or more bytes than a batch may have
QUEUE_FULL = "queue_full"
NO_WORKER = "no_worker"  # no worker is up, and none is expected back
DRAINING = "draining"

# A lost or failed request is tried once more, apart from others. A third try could cost a third worker, because the
# request may be the reason why workers end.
_MOST_TRIES = 2
# Later than any deadline, but before "never".
_WHENEVER_S = 1e9
_LONGEST_RETRY_AFTER_S = 60.0


class ServiceTimes(Protocol):
    """The service time of a batch on a worker, by its number of items."""

    @property
    def n_batch(self) -> int:
        """Return the most items that are batched together, at least 1."""

    @property
    def service_s(self) -> Sequence[float]:
        """Return predicted seconds by number of items, up to `n_batch` or more; the one at index 0 is unused.

        If the sequence is longer, a single request of more than `n_batch` items is served too, alone in its batch.
        """

    def observe(self, items: int, seconds: float) -> bool:
        """Note the time that a batch took; return whether `n_batch` or `service_s` changed."""


class FixedTimes:
    """The times of a profile: `Candidate.service_s.tolist()` and `BatchPolicy.n_batch`."""

    __slots__ = ("n_batch", "service_s")

    def __init__(self, service_s: Iterable[float], n_batch: int | None = None) -> None:
        self.service_s: Sequence[float] = tuple(service_s)
        self.n_batch = len(self.service_s) - 1 if n_batch is None else n_batch
        _check_times(self)

    def observe(self, items: int, seconds: float) -> bool:
        return False


class Stranded(NamedTuple):
    """Requests that the remaining workers cannot answer in time."""

    overflow: list[Request]  # a function can answer them in time
    failed: list[Request]  # neither a worker nor a function can


@dataclass(frozen=True, slots=True)
class Overflow:
    """The rule for requests that workers do not answer in time.

    `function_s` is the service time of a warm function, infinite without functions. A request that would be late
    everywhere goes to the destination `late`, FUNCTION or REJECT. If service times vary and workers are too unlikely to
    be in time, by `least_in_time` (`mark.domain.rules.admission.doubtful`), a request goes to a function that is. If
    they vary and the function is late too, `late_share` late requests per request may queue (`queues_late`, there).
    """

    function_s: float = NEVER_S
    late: int = FUNCTION
    least_in_time: float = 0.0
    late_share: float = 0.0

    def __post_init__(self) -> None:
        if not self.function_s > 0.0:
            raise BadInput("no bouncer can have this", "function_s", self.function_s)
        for name, value in (("least_in_time", self.least_in_time), ("late_share", self.late_share)):
            if not 0.0 <= value <= 1.0:
                raise BadInput("no bouncer can have this", name, value)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The most requests that wait, and the most bytes of bodies in a batch."""

    requests: int = 10_000
    batch_bytes: float = NEVER_S

    def __post_init__(self) -> None:
        if not self.requests >= 1:
            raise BadInput("no bouncer can have this", "max_queued", self.requests)
        if not self.batch_bytes > 0:
            raise BadInput("no bouncer can have this", "max_batch_bytes", self.batch_bytes)


class _Deadlines:
    """The deadlines of requests: arrival + RT_max, unless the client has its own (`own_deadline`)."""

    def __init__(self, rt_max_s: float) -> None:
        self._rt_max_s = rt_max_s
        self._own_below_s = rt_max_s - TOLERANCE_S
        self._own_above_s = rt_max_s + TOLERANCE_S

    def of(self, request: Request) -> tuple[float, bool]:
        """Return the request's deadline, infinite without a promise, and whether it is the client's own."""
        if request.late:
            return NEVER_S, False
        allowed_s = request.deadline_s - request.arrived_s
        if allowed_s < self._own_below_s or self._own_above_s < allowed_s < NEVER_S:
            return request.deadline_s, True
        return request.arrived_s + self._rt_max_s, False

    def tightest_s(self, batch: Batch, answer_s: float, now_s: float) -> float:
        """Return the earliest deadline in a batch that an answer at `answer_s` meets, else that of a new request."""
        promises = (self.of(request)[0] for request in batch.requests)
        return min((s for s in promises if answer_s <= s + TOLERANCE_S), default=now_s + self._rt_max_s)


class _LateRequests:
    """The budget of late requests that may queue where a function is late too (`Overflow.late_share`)."""

    def __init__(self, share: float) -> None:
        self.share, self._left = share, 0.0

    def earn(self) -> None:
        """Note one more request."""
        self._left = late_budget(self._left, self.share)

    def queues(self, instance_s: float, function_s: float, left_s: float) -> bool:
        """Note a late request, and return whether it queues."""
        left = self._left
        self._left = late_budget(left, -1.0)
        return queues_late(left, instance_s, function_s, left_s)


class Bouncer:
    """Admission and batching for `workers` identical workers, each of which serves one batch at a time.

    `times` has the mean service times, and `variation` is their squared coefficient of variation, 0 if they are certain
    or unknown. `overhead_s` is added once per request. A batch that is not full waits up to `window_s` for more
    requests even if a worker is idle (0: work-conserving). `workers` is the number of workers that are up, and may be
    0. The shell may set `function_s` to infinity while functions refuse.

    A request whose deadline differs from arrival + RT_max has its client's own deadline, which replaces RT_max. It is
    not admitted if it would miss that deadline, and dropped (`take_expired`) once it cannot be met. A request without
    one is served however late.

    Learned times can be wrong, and a bouncer that refuses everything learns nothing. So every `probe_every_s` it serves
    one request although even idle workers are predicted to be too slow for it.

    Raises BadInput for numbers out of range.
    """

    def __init__(
        self,
        times: ServiceTimes,
        *,
        rt_max_s: float,
        variation: float = 0.0,
        overhead_s: float = 0.0,
        window_s: float = 0.0,
        workers: int = 1,
        overflow: Overflow | None = None,
        limits: QueueLimits | None = None,
        probe_every_s: float = NEVER_S,
    ) -> None:
        for name, value, good in (
            ("rt_max_s", rt_max_s, 0.0 < rt_max_s < NEVER_S),
            ("variation", variation, 0.0 <= variation < NEVER_S),
            ("overhead_s", overhead_s, 0.0 <= overhead_s < NEVER_S),
            ("window_s", window_s, 0.0 <= window_s < NEVER_S),
            ("workers", workers, workers >= 0),
            ("probe_every_s", probe_every_s, probe_every_s > 0.0),
        ):
            if not good:
                raise BadInput("no bouncer can have this", name, value)
        _check_times(times)
        overflow, limits = overflow or Overflow(), limits or QueueLimits()
        self.function_s = overflow.function_s
        self.reason = ""  # why the last request that was not queued here was refused or passed on
        self.queued = 0  # waiting requests
        self.in_flight = 0  # requests at workers
        self.workers = workers  # workers that are up
        self._times = times
        self._variation = variation
        self._late = overflow.late
        self._least = overflow.least_in_time
        self._late_requests = _LateRequests(overflow.late_share)
        self._rt_max_s = rt_max_s
        self._overhead_s = overhead_s
        self._deadlines = _Deadlines(rt_max_s)
        self._asked_window_s = window_s
        self._max_batch_bytes = limits.batch_bytes
        self._room = limits.requests
        self._probe_every_s = probe_every_s
        self._probe_s = -NEVER_S if probe_every_s < NEVER_S else NEVER_S
        self._until_s = NEVER_S  # end of a drain
        self._together = 1  # the most retried requests in a batch; no other request joins them
        self._expired: list[Request] = []
        self._line = Lineup(workers)
        self._read_times()

    # Requests

    def offer(self, request: Request, now_s: float) -> int:
        """Decide where the request goes: INSTANCE (queued here), or the caller sends it to FUNCTION or must REJECT it.

        `reason` is set for FUNCTION and REJECT. Raises ValueError for a request without items.
        """
        deadline_s, own = self._deadlines.of(request)
        size = len(request.call.body)
        if self.queued >= self._room or size > self._max_batch_bytes or not 0 < request.items <= self._n_batch:
            if request.items < 1:
                raise ValueError(f"request {request.id}: {request.items} items")
            if size > self._max_batch_bytes or request.items >= len(self._service_s):
                self.reason = TOO_LARGE
                return REJECT
            if self.queued >= self._room:
                return self._elsewhere(DRAINING if self._room == 0 else QUEUE_FULL, deadline_s - now_s, own)
        if self._late_requests.share:
            self._late_requests.earn()
        where = self._decide(request, size, now_s, deadline_s, own, True)
        if where != INSTANCE and now_s >= self._probe_s and not own and self._is_idle:
            self._probe_s = now_s + self._probe_every_s
            where = self._decide(request, size, now_s, now_s + _WHENEVER_S, True, False)
        return where

    def retry_after_s(self, now_s: float) -> float:
        """Return the seconds until the queue is short enough to admit a request; at most a minute."""
        latency_s = self._line.behind_all_s(now_s, self._service_s) + self._service_s[1] + self._overhead_s - now_s
        return min(max(latency_s - self._rt_max_s, 0.0), _LONGEST_RETRY_AFTER_S)

    def next_batch(self, now_s: float) -> Batch | None:
        """Return the batch that an idle worker starts now, if any, and mark it as running.

        A batch that was handed ahead to a worker that takes too long comes first: its requests move to the idle worker,
        and an empty batch stays behind the slow worker's, whose answer to it is dropped. Next come closed batches, in
        order, and then the open one if its window is over. Requests are taken out (`take_expired`) if their client has
        gone, or if their own deadline cannot be met even alone.
        """
        line = self._line
        while line.idle > 0:
            if (first := self._first_stuck()) is not None and now_s >= self._patience_s(first):
                return line.take_back(first, now_s)
            if line.closed:
                batch = line.first_closed()
            elif line.open is not None and now_s >= line.open.oldest_s + self._window_s:
                batch, line.open = line.open, None
                batch.service_s = self._service_s[batch.items]
            else:
                return None
            line.settled_s = -NEVER_S
            self.queued -= len(batch.requests)
            if now_s + batch.service_s + self._overhead_s > batch.expires_s or any(map(is_left, batch.requests)):
                self._drop_expired(batch, now_s)
                if not batch.requests:
                    continue
            line.start(batch, now_s)
            self.in_flight += len(batch.requests)
            return batch
        return None

    def next_ahead(self, now_s: float) -> tuple[Batch, Batch] | None:
        """Return (a running batch, the closed batch that its worker may get now and serves next), if any.

        The worker is the one that is free first; it has at most one batch ahead. A batch with a client's own deadline
        stays here, so that its requests can still be dropped.
        """
        line = self._line
        while line.closed and all(map(is_left, line.closed[0].requests)):
            self._expired += (batch := line.first_closed()).requests
            line.settled_s = -NEVER_S
            self.queued -= len(batch.requests)
        if line.idle or not line.closed or not line.running or line.closed[0].expires_s < NEVER_S:
            return None
        first = min(line.running, key=lambda running: running.free_s(now_s))
        if first.behind is not None:
            return None
        first.behind = batch = line.first_closed()
        line.settled_s = -NEVER_S
        self.queued -= len(batch.requests)
        if any(map(is_left, batch.requests)):
            self._drop_expired(batch, now_s)
        self.in_flight += len(batch.requests)
        return first, batch

    def take_expired(self) -> list[Request]:
        """Return the requests dropped since the last call; the caller must answer them.

        They were dropped because their client's deadline cannot be met or the client has gone.
        """
        if not self._expired:
            return []
        expired, self._expired = self._expired, []
        return expired

    def due_s(self) -> float:
        """Return when to call next_batch again without an event: when a window ends or a worker has taken too long.

        Infinite if that is not needed.
        """
        line = self._line
        if line.idle == 0:
            return NEVER_S
        first = self._first_stuck()
        patience_s = NEVER_S if first is None else self._patience_s(first)
        return patience_s if line.open is None else min(patience_s, line.open.oldest_s + self._window_s)

    # Workers

    def finished(self, batch: Batch, now_s: float, took_s: float = 0.0, *, failed: bool = False) -> None:
        """Note that a worker answered its batch, and is idle or begins its next one.

        `took_s` is the worker's own measurement. It exceeds the time between two answers if a part of the work overlaps
        the model's run on another batch. It is then the time that is learned, because a batch on an idle worker takes
        that long. The time of a batch that `failed` sooner than predicted is not learned. Raises IllegalTransition if
        the batch is not running.
        """
        self._leave(batch)
        if batch.behind is None:
            self._line.idle += 1
        else:
            batch.behind.runs(now_s)
            self._line.running.append(batch.behind)
        seconds = now_s - batch.started_s
        if took_s > seconds:
            seconds = took_s
        if (not failed or seconds > batch.service_s) and self._times.observe(batch.items, seconds):
            self._read_times()

    def try_apart(self, failed: Sequence[Request], now_s: float) -> list[int]:
        """Return the new destination of each of the requests that failed together in a finished batch.

        One of them may have caused the others' failure, so each is tried once more alone, and its next error is its
        own. INSTANCE: the request meets its deadline behind all waiting requests, where it breaks no promise, and is
        queued there. FUNCTION: only a function meets the deadline. REJECT: neither does, or its second try has failed.
        """
        self._line.close_open(self._service_s)
        self._together = 1
        places = []
        for request in failed:
            request.tries += 1
            deadline_s = min(request.deadline_s, self._until_s)
            if request.tries >= _MOST_TRIES:
                places.append(REJECT)
            else:
                places.append(self._decide(request, len(request.call.body), now_s, deadline_s, True, False))
        return places

    def worker_down(
        self, now_s: float, back_s: float = NEVER_S, batch: Batch | None = None, *, at_next: bool = False
    ) -> Stranded:
        """Note that a worker is down, with its batch or (None) idle. `back_s` is when it should be up again.

        Until then the worker counts as busy, and a late one is assumed to take as long again. With no worker left, a
        request is admitted if a restarted worker can be in time. The batch's requests are tried once more, at the head
        of the queue. One of them may have ended the worker, so each goes alone if time allows, and otherwise as few as
        possible share a batch.

        Lost and queued requests that can no longer be answered in time are returned by the rule of admission: to
        functions if there are any. Without functions a lost request fails, and a request that has not been tried yet
        stays, however late, if a worker is expected back. `at_next`: the worker had finished `batch` without reporting
        it and was running the batch behind it, whose requests are therefore the suspects.

        Raises IllegalTransition if the batch is not running, or if it is None and no worker is idle.
        """
        line = self._line
        if batch is not None:
            self._leave(batch)
        elif line.idle == 0:
            raise IllegalTransition("no idle worker can go down")
        else:
            line.idle -= 1
            line.settled_s = -NEVER_S
        self.workers -= 1
        line.back_s.append(back_s)
        lost: Sequence[Request] = [] if batch is None else batch.requests
        stranded = Stranded([], [])
        queued = self._empty_queue()
        if batch is not None and batch.behind is not None:
            self.in_flight -= len(batch.behind.requests)
            ahead = batch.behind.requests
            if at_next:
                lost, ahead = ahead, batch.requests
            queued = ahead + queued
        for request in lost:
            request.tries += 1
        self._together = self._most_together(lost, now_s)
        for request in lost:
            self._requeue(request, now_s, stranded, may_fail=True)
        for request in queued:
            self._requeue(request, now_s, stranded, may_fail=False)
        return stranded

    def worker_up(self, now_s: float) -> None:
        """Note that a worker is up and idle. The service times are read again."""
        line = self._line
        self._read_times()
        if line.back_s:
            line.back_s.remove(min(line.back_s))
        self.workers += 1
        line.idle += 1
        line.settled_s = -NEVER_S

    def drain(self, now_s: float, until_s: float) -> list[Request]:
        """Accept no new requests; return the queued ones that cannot be finished by `until_s`.

        Batches no longer wait for a window. It may be called again with a new `until_s`; finally `drain(now, now)`
        returns all requests that still wait. Running batches continue; to stop one, end its worker and call
        `worker_down`.
        """
        self._room = 0
        self._until_s = until_s
        self._window_s = 0.0
        left: list[Request] = []
        for request in self._empty_queue():
            size = len(request.call.body)
            for deadline_s in (min(request.deadline_s, until_s), until_s):
                if self._decide(request, size, now_s, deadline_s, True, False) == INSTANCE:
                    break
            else:
                left.append(request)
        return left

    # Numbers

    @property
    def n_batch(self) -> int:
        """Return the most items that are currently batched together."""
        return self._n_batch

    @property
    def least_s(self) -> float:
        """Return the time of one item on an idle worker."""
        return self._service_s[1] + self._overhead_s

    @property
    def draining(self) -> bool:
        return self._room == 0

    @property
    def _is_idle(self) -> bool:
        return self._line.idle == self.workers > 0 == self.queued

    @property
    def running(self) -> Sequence[Batch]:
        """Return the batches that workers are serving."""
        return self._line.running

    # Decisions

    def _decide(self, request: Request, size: int, now_s: float, deadline_s: float, hard: bool, reserves: bool) -> int:
        """Return where the request goes, and queue it if it stays here.

        `hard`: a request that is late everywhere is refused. `reserves`: a request that opens a batch is admitted only
        if it would be in time with a full batch, and any request only with a margin if service times vary.
        """
        service_s, full, items, overhead_s = self._service_s, self._n_batch, request.items, self._overhead_s
        line = self._line
        # `free` is when a worker is free for the batch behind the closed ones.
        if line.idle > len(line.closed):
            free = now_s
        elif now_s <= line.settled_s:
            free = line.free_s[0]
        else:
            free = line.play_through(now_s)
        batch = line.open
        if batch is not None:
            start = start_s(free, batch.oldest_s, self._window_s)
            total = batch.items + items
            # Whether one more item may join was checked when the batch last grew; a worker that overran changes that.
            asks_again = items > 1 or start > batch.start_s
            if (
                total > full
                or request.tries != batch.requests[0].tries
                or batch.bytes + size > self._max_batch_bytes
                or (asks_again and not self._may_join(batch, items, start, now_s))
            ):
                batch = None
                free = line.behind_all_s(now_s, service_s)
        if batch is None:
            total = items
            start = start_s(free, request.arrived_s, self._window_s)
            answer_s = start + service_s[items] + overhead_s
            latency = answer_s - now_s
            if reserves and full > 1:
                latency += reserve_s(self._window_s > 0.0 or free > now_s, service_s[items], service_s[full])
        else:
            answer_s = start + service_s[total] + overhead_s
            # A request that fills a batch ends the batch's window.
            latency = (answer_s if total < full else free + service_s[total] + overhead_s) - now_s
        left_s = deadline_s - now_s
        if reserves and self._variation > 0.0:
            squares_s2, waits = line.squares_s2(service_s, total, batch is None, self.workers)
            expected_s = latency - overhead_s
            latency += margin_s(waits, squares_s2, self._variation)
            if latency <= left_s + TOLERANCE_S and self._passed_on(items, expected_s, squares_s2, left_s):
                return self._elsewhere(OVERLOADED, left_s, hard)
        if latency > left_s + TOLERANCE_S:
            where = self._elsewhere(NO_WORKER if latency == NEVER_S else OVERLOADED, left_s, hard)
            late_there = where == FUNCTION and self.function_s > left_s + TOLERANCE_S and self._variation > 0.0
            if not (reserves and late_there and self._late_requests.queues(latency, self.function_s, left_s)):
                return where
            request.late, deadline_s = True, NEVER_S

        if batch is None:
            line.close_open(service_s)
            expires_s = deadline_s if hard else NEVER_S
            batch = line.open = Batch(request, items, size, request.arrived_s, deadline_s, expires_s)
        else:
            batch.requests.append(request)
            batch.items = total
            batch.bytes += size
            if deadline_s < batch.tightest_s:
                batch.tightest_s = deadline_s
            if hard and deadline_s < batch.expires_s:
                batch.expires_s = deadline_s
        batch.start_s = start
        self.queued += 1
        # Check now whether one more item may join, so that the batch's completion is known before that item comes.
        alone = request.tries and len(batch.requests) >= self._together
        if total < full and not alone and self._may_join(batch, 1, start, now_s):
            return INSTANCE
        line.close_open(service_s)
        return INSTANCE

    def _passed_on(self, items: int, expected_s: float, squares_s2: float, left_s: float) -> bool:
        """Return whether a request that is expected in time here goes to a function, because that is too doubtful."""
        if self._least == 0.0 or self.function_s > left_s + TOLERANCE_S:
            return False
        room_s, one_s = left_s - self._overhead_s, self._service_s[items]
        return doubtful(
            in_time_probability(expected_s, squares_s2, self._variation, room_s),
            in_time_probability(one_s, one_s**2, self._variation, room_s),
            self._least,
        )

    def _elsewhere(self, reason: str, left_s: float, hard: bool) -> int:
        """Return FUNCTION or REJECT for a request that gets no worker."""
        where = destination(NEVER_S, self.function_s, left_s, REJECT if hard else self._late)
        if hard and where == REJECT and self._service_s[1] + self._overhead_s > left_s + TOLERANCE_S:
            reason = DEADLINE
        self.reason = reason
        return where

    def _may_join(self, batch: Batch, items: int, start: float, now_s: float) -> bool:
        service_s, total = self._service_s, batch.items
        answer_s, tightest_s = start + service_s[total] + self._overhead_s, batch.tightest_s
        if answer_s > tightest_s + TOLERANCE_S:
            tightest_s = self._deadlines.tightest_s(batch, answer_s, now_s)
        return joins(
            start, service_s[total], service_s[total + items], service_s[items], tightest_s, self._overhead_s, 0.0
        )

    def _drop_expired(self, batch: Batch, now_s: float) -> None:
        """Drop from a batch that is about to start each request whose client has gone or that would be late even alone.

        Only a client's own deadline counts.
        """
        keep: list[Request] = []
        for request in batch.requests:
            _, own = self._deadlines.of(request)
            answer_s = now_s + self._service_s[request.items] + self._overhead_s
            late = own and answer_s > request.deadline_s + TOLERANCE_S
            (self._expired if late or is_left(request) else keep).append(request)
        if len(keep) < len(batch.requests):
            batch.keep(keep)
            batch.service_s = self._service_s[batch.items]

    # Queue and workers

    def _first_stuck(self) -> Batch | None:
        """Return the running batch, of those with requests behind them, whose patience (`_patience_s`) ends first."""
        stuck = [batch for batch in self._line.running if batch.behind is not None and batch.behind.requests]
        return min(stuck, key=self._patience_s, default=None)

    def _patience_s(self, batch: Batch) -> float:
        """Return the time until which the batch behind this one waits for its worker.

        That is this batch's predicted end, plus half of the time from then until another worker would have to begin.
        """
        assert batch.behind is not None, "only batches with one behind them are stuck"
        promise_s = min(batch.behind.tightest_s, batch.behind.oldest_s + self._rt_max_s)
        spare_s = promise_s - batch.end_s - batch.behind.service_s - self._overhead_s
        return batch.end_s + 0.5 * max(0.0, spare_s)

    def _leave(self, batch: Batch) -> None:
        self._line.leave(batch)
        self.in_flight -= len(batch.requests)

    def _empty_queue(self) -> list[Request]:
        self.queued = 0
        return self._line.empty()

    def _most_together(self, lost: Sequence[Request], now_s: float) -> int:
        """Return the batch size for retrying lost requests: the smallest that meets the earliest promise among them.

        Other requests are assumed to wait.
        """
        most = len(lost)
        if most < 2:
            return 1
        free_s = self._line.play_through(now_s)
        left_s = min(self._deadlines.of(request)[0] for request in lost) - self._overhead_s - free_s
        items = sum(request.items for request in lost) / most
        together = 1
        while together < most:
            batches = ceil(most / together / max(1, self.workers))
            if batches * self._service_s[min(ceil(items * together), self._n_batch)] <= left_s:
                break
            together *= 2
        return together

    def _requeue(self, request: Request, now_s: float, stranded: Stranded, *, may_fail: bool) -> None:
        request.late = False
        deadline_s, own = self._deadlines.of(request)
        deadline_s = min(deadline_s, self._until_s)
        size = len(request.call.body)
        if request.tries >= _MOST_TRIES:
            where = self._elsewhere(NO_WORKER, deadline_s - now_s, own)
        else:
            where = self._decide(request, size, now_s, deadline_s, own or self.draining, False)
        if where == REJECT and not may_fail and not own:
            where = self._decide(request, size, now_s, min(now_s + _WHENEVER_S, self._until_s), True, False)
        if where == FUNCTION:
            stranded.overflow.append(request)
        elif where == REJECT:
            stranded.failed.append(request)

    def _read_times(self) -> None:
        self._n_batch, self._service_s = self._times.n_batch, self._times.service_s
        # No window if no request can join a batch.
        self._window_s = self._asked_window_s if self._n_batch > 1 and not self.draining else 0.0


def _check_times(times: ServiceTimes) -> None:
    if not 1 <= times.n_batch < len(times.service_s):
        raise BadInput("times must be known for 1 to n_batch items", "n_batch", times.n_batch)
    if not all(0.0 < seconds < NEVER_S for seconds in times.service_s[1:]):
        raise BadInput("a time must be above zero", "service_s", list(times.service_s))
