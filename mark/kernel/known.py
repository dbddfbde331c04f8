"""The knowledge of a bouncer whose batches take longer or shorter than predicted, in compiled code.

The end of a batch is drawn when it closes, but no decision may use it before it has come. A bouncer knows the batches
of its workers, their starts, and the mean of each. It expects a batch to end after its mean, and a batch that overruns
it to end now. So each replica keeps its closed batches in a ring, in order, until they have ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mark.kernel.arrays import BATCH, CROWDED, INF, QUEUE, Records, Stage
from mark.kernel.compiled import compiled
from mark.kernel.random import factor_of
from mark.kernel.records import batch_s, of_kind, of_slot

# An overrunning worker is expected to be free a moment after now, so that routing prefers an idle one.
MOMENT_S = 1e-9
# Places that a ring keeps free: an arrival may close two batches of a replica, and a drain one more.
_SPARE = 3
FIRST_RING = 8


def none_known(varies: bool) -> tuple[Records, Records]:
    """Return empty queues and rings; with `varies` the stage will have them."""
    return np.zeros(0, dtype=QUEUE), np.zeros((0, FIRST_RING if varies else 0), dtype=BATCH)


def with_longer_rings(st: Stage) -> Stage:
    """Return the same stage with twice as many places in each ring."""
    before = st.batches
    size = before.shape[1]
    places = (st.queues["first"][:, None] + np.arange(size)) % size
    rings = np.zeros((len(before), 2 * size), dtype=BATCH)
    rings[:, :size] = np.take_along_axis(before, places, axis=1)
    st.queues["first"] = 0
    st.counter[CROWDED] = 0
    return st._replace(batches=rings)


@compiled
def varies(st: Stage) -> bool:
    """Return whether a batch may take longer or shorter than predicted, or may fail."""
    return st.batches.shape[1] > 0


@compiled
def queue_of(st: Stage, slot: int) -> Any:
    return st.queues[np.uint64(slot)]


@compiled
def _batch(st: Stage, slot: int, nth: int) -> Any:
    """Return a closed batch of a replica, counted from the oldest in its ring."""
    place = (queue_of(st, slot).first + nth) & (st.batches.shape[1] - 1)
    return st.batches[np.uint64(slot), np.uint64(place)]


@compiled
def next_factor(st: Stage, slot: int) -> float:
    """Draw the factor of the replica's next batch to close, from the seed, the replica and the batch's number."""
    queue = queue_of(st, slot)
    queue.closed += 1
    sigma = of_kind(st, of_slot(st, slot).kind).sigma
    return 1.0 if sigma == 0.0 else factor_of(st.faults.key[0], slot, queue.closed, 0, sigma)


@compiled
def forget_ended(st: Stage, slot: int, now_s: float) -> None:
    queue = queue_of(st, slot)
    while queue.count > 0 and _batch(st, slot, 0).end_s <= now_s:
        queue.first += 1
        queue.count -= 1
        queue.behind_s = queue.behind_s - _batch(st, slot, 0).mean_s if queue.count > 1 else 0.0


@compiled
def close(st: Stage, slot: int, given_s: float, end_s: float, mean_s: float) -> None:
    """Add a closed batch that a worker gets and ends at these times (infinite: `begin` sets them)."""
    queue = queue_of(st, slot)
    if queue.count > 0:
        queue.behind_s += mean_s
    batch = _batch(st, slot, queue.count)
    batch.given_s, batch.end_s, batch.mean_s = given_s, end_s, mean_s
    queue.count += 1
    if queue.count > st.batches.shape[1] - _SPARE:
        st.counter[CROWDED] = 1


@compiled
def begin(st: Stage, slot: int, given_s: float, end_s: float) -> None:
    """Note that a worker gets the first waiting batch, for which `close` could not know the time."""
    for nth in range(queue_of(st, slot).count):
        batch = _batch(st, slot, nth)
        if batch.given_s == INF:
            batch.given_s, batch.end_s = given_s, end_s
            return


@compiled
def forget_waiting(st: Stage, slot: int) -> None:
    """Forget the batches that no worker has got: they are closed again, because one of them has changed."""
    queue = queue_of(st, slot)
    while queue.count > 0 and _batch(st, slot, queue.count - 1).given_s == INF:
        queue.count -= 1
    queue.behind_s = 0.0
    for nth in range(1, queue.count):
        queue.behind_s += _batch(st, slot, nth).mean_s


@compiled
def has_idle(st: Stage, slot: int, now_s: float) -> bool:
    """Return whether a worker is idle. Call this after `free_s` at that time."""
    busy = 0
    for nth in range(queue_of(st, slot).count):
        busy += _batch(st, slot, nth).end_s > now_s
    return bool(busy < of_kind(st, of_slot(st, slot).kind).workers)


@compiled
def _earliest(st: Stage, workers: int) -> int:
    best = 0
    for worker in range(1, workers):
        if st.played_s[worker] < st.played_s[best]:
            best = worker
    return best


@compiled
def free_s(st: Stage, slot: int, now_s: float) -> float:
    """Return when a worker is expected to be free for the batch behind all closed ones."""
    forget_ended(st, slot, now_s)
    own, queue = of_slot(st, slot), queue_of(st, slot)
    workers = of_kind(st, own.kind).workers
    if workers == 1:
        if queue.count == 0:
            return max(own.free_s, now_s)
        first = _batch(st, slot, 0)
        return max(now_s, min(first.given_s, now_s) + first.mean_s) + queue.behind_s
    busy, nth = 0, 0
    while nth < queue.count and _batch(st, slot, nth).given_s <= now_s:
        batch = _batch(st, slot, nth)
        if batch.end_s > now_s:
            st.played_s[busy] = max(now_s, batch.given_s + batch.mean_s)
            busy += 1
        nth += 1
    for worker in range(busy, workers):
        st.played_s[worker] = now_s
    while nth < queue.count:
        st.played_s[_earliest(st, workers)] += _batch(st, slot, nth).mean_s
        nth += 1
    return st.played_s[_earliest(st, workers)]


@compiled
def behind_open_s(st: Stage, slot: int, free: float) -> float:
    """Return when a worker is expected to be free behind the open batch.

    `free` is the result of `free_s`, called just before.
    """
    own = of_slot(st, slot)
    workers = of_kind(st, own.kind).workers
    until_s = free + batch_s(st, own.kind, own.open_size)
    if workers == 1:
        return until_s
    st.played_s[_earliest(st, workers)] = until_s
    return st.played_s[_earliest(st, workers)]


@compiled
def closed_s2(st: Stage, slot: int, now_s: float) -> tuple[float, bool]:
    """Return the summed squares of the mean times of unended closed batches, and whether one waits for a worker."""
    squares, waits = 0.0, False
    for nth in range(queue_of(st, slot).count):
        batch = _batch(st, slot, nth)
        if batch.end_s > now_s:
            squares += batch.mean_s * batch.mean_s
            waits |= batch.given_s > now_s
    return squares, waits
