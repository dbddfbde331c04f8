"""Requests that crashes take from a stage before they are answered, until each has departed in another way.

The kernel knows a crash from when its replica is added, but no decision uses it. So a batch that closes knows whether
it will be answered; if not, its requests depart from the compiled loop with the slot LOST - slot. They wait here for
the crash, and then arrive again, under numbers that no arrival has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.kernel.arrays import Floats, Ints
from mark.kernel.departures import Departures, joined
from mark.kernel.replica_faults import LOST

# The first number of second attempts: a stage has fewer arrivals.
_SECOND = 1 << 38


@dataclass(frozen=True, slots=True)
class LostRequests:
    """Lost requests in order of arrival; `again` marks those that were lost before."""

    request: Ints
    arrival_s: Floats
    again: np.ndarray


class Lost:
    """The requests lost in crashes. `lost` counts each loss, `retried` the requests that were sent a second time."""

    def __init__(self) -> None:
        self.lost = self.retried = 0
        self._limits_s: list[Floats] = []  # of requests in order of arrival, if each has its own
        self._waiting: dict[int, list[Departures]] = {}  # by replica
        self._next = _SECOND
        self._first: dict[int, tuple[int, float]] = {}  # original request of each second attempt that has not departed
        self._again: set[int] = set()  # requests that had their second attempt

    def admitted(self, limit_s: Floats) -> None:
        """Note the limits of requests that have just arrived."""
        self._limits_s.append(limit_s.copy())

    def left_s(self, request: Ints, arrival_s: Floats, at_s: float) -> Floats | None:
        """Return the remaining limits of these requests at `at_s`; None if all requests have one limit."""
        if not self._limits_s:
            return None
        self._limits_s = [np.concatenate(self._limits_s)]
        left_s: Floats = self._limits_s[0][request] - (at_s - arrival_s)
        return left_s

    def without(self, rows: Departures) -> Departures:
        """Return the rows that depart for good; others wait for their crash.

        Second attempts get their requests' numbers.
        """
        if self._first:
            for at in np.flatnonzero(rows.request >= _SECOND):
                request, arrival_s = self._first.pop(int(rows.request[at]))
                rows.request[at], rows.arrival_s[at] = request, arrival_s
                rows.latency_s[at] = rows.answer_s[at] - arrival_s
        lost = rows.slot <= LOST
        if not lost.any():
            return rows
        taken = rows.slot[lost]
        for slot in np.unique(taken):
            part = _where(rows, rows.slot == slot)
            part.slot[:] = number = int(LOST - slot)
            self._waiting.setdefault(number, []).append(part)
        return _where(rows, ~lost)

    def waiting(self, number: int) -> Departures:
        """Return the departures of a replica that does not crash after all."""
        return joined(self._waiting.pop(number, []))

    def crashed(self, number: int) -> LostRequests:
        """Return the requests that the replica had not answered."""
        rows = self.waiting(number)
        order = np.argsort(rows.request)
        request = rows.request[order]
        self.lost += len(request)
        return LostRequests(request, rows.arrival_s[order], np.array([int(r) in self._again for r in request], bool))

    def replicas(self) -> tuple[int, ...]:
        """Return the replicas with requests that wait for a crash."""
        return tuple(sorted(self._waiting))

    def numbered(self, request: Ints, arrival_s: Floats) -> int:
        """Return the number of the first of these when they come again; the others follow."""
        first = self._next
        self._next += len(request)
        self._first.update(
            (first + i, (int(number), float(at_s)))
            for i, (number, at_s) in enumerate(zip(request, arrival_s, strict=True))
        )
        self._again.update(int(number) for number in request)
        self.retried += len(request)
        return first


def ended(request: Ints, arrival_s: Floats, at_s: float, takes_s: Floats, slot: int) -> Departures:
    """Return departures of requests that no replica answers: by function, or refused (`takes_s` infinite)."""
    answer_s = at_s + takes_s
    return Departures(
        rows=np.array([len(request)], dtype=np.uint64),
        arrival_s=arrival_s,
        latency_s=answer_s - arrival_s,
        slot=np.full(len(request), slot, dtype=np.int32),
        request=request,
        start_s=np.full(len(request), at_s),
        answer_s=answer_s,
    )


def _where(rows: Departures, chosen: np.ndarray) -> Departures:
    count = np.array([np.count_nonzero(chosen)], dtype=np.uint64)
    return Departures._make([count, *(column[chosen] for column in rows[1:])])
