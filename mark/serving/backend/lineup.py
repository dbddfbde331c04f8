"""The batches of a bouncer in their order, and when a worker is free for the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heapreplace

from mark.domain.rules.admission import NEVER_S
from mark.serving.backend.request import Batch, Request

# Up to this many closed batches are assigned to workers one by one in predictions. More are divided evenly among the
# workers; the error is less than one batch's time.
_DEEP = 64


class IllegalTransition(Exception):
    """The shell reported an impossible event; the bouncer's state is unchanged."""


class Lineup:
    """Running batches, closed ones that wait for a worker, and at most one open batch behind them.

    `idle` counts idle workers, and `back_s` has the times when each worker that is down should be up again. `free_s` is
    a heap of the times when each worker is free after the closed batches; it is valid until `settled_s`.
    """

    def __init__(self, workers: int) -> None:
        self.running: list[Batch] = []
        self.closed: deque[Batch] = deque()
        self.open: Batch | None = None
        self.idle = workers
        self.back_s: list[float] = []
        self.free_s = [NEVER_S]
        self.settled_s = -NEVER_S
        self._backlog_s = 0.0  # total service time of the closed batches

    def start(self, batch: Batch, now_s: float) -> None:
        """Start a batch on an idle worker."""
        batch.runs(now_s)
        self.running.append(batch)
        self.idle -= 1
        self.settled_s = -NEVER_S

    def take_back(self, first: Batch, now_s: float) -> Batch:
        """Start the batch behind a running one on an idle worker."""
        assert first.behind is not None, "only batches with one behind them are stuck"
        batch = first.behind.again()
        first.behind.requests = []
        self.start(batch, now_s)
        return batch

    def leave(self, batch: Batch) -> None:
        """Remove a batch from the running ones. Raises IllegalTransition if it is not among them."""
        try:
            self.running.remove(batch)
        except ValueError:
            raise IllegalTransition("this batch is not running") from None
        self.settled_s = -NEVER_S

    def close_open(self, service_s: Sequence[float]) -> None:
        """Close the open batch, if any, so that no request joins it."""
        batch = self.open
        if batch is not None:
            batch.service_s = service_s[batch.items]
            self.closed.append(batch)
            self._backlog_s += batch.service_s
            self.open = None
            heapreplace(self.free_s, self.free_s[0] + batch.service_s)

    def first_closed(self) -> Batch:
        """Remove and return the first closed batch. The times in `free_s` remain as they are."""
        batch = self.closed.popleft()
        self._backlog_s = self._backlog_s - batch.service_s if self.closed else 0.0
        return batch

    def empty(self) -> list[Request]:
        """Remove all waiting requests and return them in order."""
        queued = [request for batch in self.closed for request in batch.requests]
        if self.open is not None:
            queued += self.open.requests
        self.closed.clear()
        self._backlog_s = 0.0
        self.open = None
        self.settled_s = -NEVER_S
        return queued

    def play_through(self, now_s: float) -> float:
        """Return when a worker is free for the batch behind all closed ones; keep all workers' times in `free_s`."""
        free = [batch.free_s(now_s) for batch in self.running]
        free += [now_s] * self.idle
        # A late worker is assumed to take as long again: one that never comes soon is too late for any request.
        free += [max(back_s, 2.0 * now_s - back_s) for back_s in self.back_s]
        if not free:
            free.append(NEVER_S)
        heapify(free)
        # The times are valid until a worker overruns its running batch, even if another batch is behind that; with an
        # idle worker they are valid only now.
        self.settled_s = -NEVER_S if self.idle else min([b.end_s for b in self.running] + self.back_s, default=NEVER_S)
        if len(free) == 1:
            free[0] += self._backlog_s
        elif len(self.closed) <= _DEEP:
            for batch in self.closed:
                heapreplace(free, free[0] + batch.service_s)
        else:
            free = [(sum(free) + self._backlog_s) / len(free)] * len(free)
        self.free_s = free
        return free[0]

    def behind_all_s(self, now_s: float, service_s: Sequence[float]) -> float:
        """Return when a worker is free for a batch behind the open one."""
        free = self.play_through(now_s)
        if self.open is None:
            return free
        played = self.free_s.copy()
        heapreplace(played, free + service_s[self.open.items])
        return played[0]

    def squares_s2(self, service_s: Sequence[float], items: int, opens: bool, workers: int) -> tuple[float, bool]:
        """Return the sum of squared mean times of a request's batch and of a worker's share of the batches before it.

        Also return whether a batch waits for a worker. The request's batch is the open one, or with `opens` a new one
        behind it.
        """
        before = [*self.running, *self.closed]
        ahead = [batch.behind for batch in self.running if batch.behind is not None]
        waits = len(self.closed) > self.idle or len(ahead) > 0
        squares_s2 = sum(batch.service_s**2 for batch in before + ahead)
        if opens and self.open is not None:
            squares_s2 += service_s[self.open.items] ** 2
        return squares_s2 / max(1, workers) + service_s[items] ** 2, waits
