"""Departures from a stage: one row for each request, written when its answer is settled.

Rows come in the order in which batches close, not in order of completion: `settle` of a stage at a time t guarantees
that every request that completes before t has departed. Refused and overflowing requests depart on arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.kernel.arrays import INF, Floats, Ints, Records
from mark.kernel.compiled import compiled

# Values of `slot` that are not replicas
BY_FUNCTION, REFUSED = -1, -2
# Rows after which the buffer is read and emptied: few enough to stay in the fastest cache
CHUNK = 1024
_ONE = np.uint64(1)


class Departures(NamedTuple):
    """A buffer of departures; the first `rows[0]` rows are filled. The last three columns are empty unless kept."""

    rows: NDArray[np.uint64]  # [1]
    arrival_s: Floats
    latency_s: Floats  # infinite if refused
    slot: NDArray[np.int32]  # the replica's number, BY_FUNCTION or REFUSED
    request: Ints  # position among all arrivals of the stage
    start_s: Floats  # of the batch, or of the function's call
    answer_s: Floats  # infinite if refused

    def taken(self) -> Departures:
        """Return copies of the filled rows, and empty the buffer."""
        filled = Departures._make([self.rows.copy(), *(column[: self.rows[0]].copy() for column in self[1:])])
        self.rows[0] = 0
        return filled


def buffer(rows: int, kept: bool) -> Departures:
    """Return an empty buffer; with `kept` it has every column."""
    more = rows if kept else 0
    return Departures(
        rows=np.zeros(1, dtype=np.uint64),
        arrival_s=np.empty(rows),
        latency_s=np.empty(rows),
        slot=np.empty(rows, dtype=np.int32),
        request=np.empty(more, dtype=np.int64),
        start_s=np.empty(more),
        answer_s=np.empty(more),
    )


def joined(parts: Sequence[Departures]) -> Departures:
    """Return the rows of all parts, one after the other."""
    rows, *columns = (np.concatenate(columns) for columns in zip(*(buffer(0, True), *parts), strict=True))
    return Departures._make([rows.sum(keepdims=True), *columns])


@compiled
def depart(
    out: Departures, request: int, arrival_s: float, start_s: float, answer_s: float, latency_s: float, slot: int
) -> None:
    row = out.rows[0]
    out.arrival_s[row] = arrival_s
    out.latency_s[row] = latency_s
    out.slot[row] = slot
    if out.request.shape[0] > 0:
        out.request[row] = request
        out.start_s[row] = start_s
        out.answer_s[row] = answer_s
    out.rows[0] = row + _ONE


@compiled
def depart_together(out: Departures, members: Records, size: int, start_s: float, answer_s: float, slot: int) -> None:
    """Let the first `size` members of a batch depart, with a common start and answer."""
    row = out.rows[0]
    for i in range(size):
        at = row + np.uint64(i)
        out.arrival_s[at] = members[np.uint64(i)].arrival_s
        out.latency_s[at] = answer_s - members[np.uint64(i)].arrival_s
        out.slot[at] = slot
    if out.request.shape[0] > 0:
        for i in range(size):
            at = row + np.uint64(i)
            out.request[at] = members[np.uint64(i)].request
            out.start_s[at] = start_s
            out.answer_s[at] = answer_s
    out.rows[0] = row + np.uint64(size)


@dataclass(frozen=True, slots=True)
class Recording:
    """Departures by request: the replica (or BY_FUNCTION, REFUSED), when its batch started, its answer."""

    slot: Ints
    start_s: Floats
    finish_s: Floats


def by_request(departures: Departures, requests: int) -> Recording:
    """Sort departures by arrival; slot -3 and infinite times if a request has not departed yet."""
    slot, start_s, finish_s = np.full(requests, -3), np.full(requests, INF), np.full(requests, INF)
    slot[departures.request] = departures.slot
    start_s[departures.request] = departures.start_s
    finish_s[departures.request] = departures.answer_s
    return Recording(slot, start_s, finish_s)
