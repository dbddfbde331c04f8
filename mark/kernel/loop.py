"""The loop over requests: route, admit, batch, serve, in arrival order, up to any time.

Nothing is simulated before it matters: a batch whose start has passed is started when somebody looks at its replica.
A replica's closed batches are summed up in `free_s` of its workers, because with known service times and a
first-in-first-out queue their future is settled; only the open batch keeps its members.
"""

from __future__ import annotations

import numpy as np

from mark.kernel import functions
from mark.kernel.compiled import compiled
from mark.kernel.random import next_bits, service_factor
from mark.kernel.state import (
    ACTIVE,
    FEWEST_IN_FLIGHT,
    FUNCTIONS,
    HISTOGRAM_FIRST,
    HISTOGRAM_SHIFT,
    HISTOGRAM_SIZE,
    INF,
    INSTANCES,
    LATE,
    LATENCY_MAX,
    LATENCY_SUM,
    READY,
    REJECTED,
    REQUEST,
    RING_COUNT,
    RING_GOOD,
    RING_POS,
    THROTTLED,
    TWO_CHOICES,
    WARM_S,
    Floats,
    FunctionPool,
    Ints,
    Stage,
)
from mark.kernel.tree import first_leaf, set_leaf
from mark.rules import admission, batching, routing

_destination = compiled(admission.destination)
_in_time = compiled(admission.in_time)
_start_s = compiled(batching.start_s)
_joins = compiled(batching.joins)
_reserve_s = compiled(batching.reserve_s)
_better = compiled(routing.better)
_FUNCTION = admission.FUNCTION
_INSTANCE = admission.INSTANCE
TOLERANCE_S = admission.TOLERANCE_S


@compiled
def _note(st: Stage, arrival_s: float, good: bool) -> None:
    """Count one finished (or refused) request in its minute and among the last M."""
    minute = int(arrival_s * (1.0 / 60.0))
    if good:
        st.minute_good[minute] += 1
    size = st.ring.shape[0]
    place = st.counter[RING_POS]
    if st.counter[RING_COUNT] == size:
        st.counter[RING_GOOD] -= st.ring[place]
    else:
        st.counter[RING_COUNT] += 1
    st.ring[place] = good
    st.counter[RING_GOOD] += good
    st.counter[RING_POS] = place + 1 if place + 1 < size else 0


@compiled
def _answered(st: Stage, arrival_s: float, latency_s: float, rt_max_s: float) -> None:
    st.total[LATENCY_SUM] += latency_s
    if latency_s > st.total[LATENCY_MAX]:
        st.total[LATENCY_MAX] = latency_s
    bin_ = (np.float64(latency_s).view(np.int64) >> HISTOGRAM_SHIFT) - HISTOGRAM_FIRST
    st.histogram[max(0, min(HISTOGRAM_SIZE - 1, int(bin_)))] += 1
    good = _in_time(latency_s, rt_max_s)
    if not good:
        st.counter[LATE] += 1
    _note(st, arrival_s, good)


@compiled
def _record(st: Stage, request: int, slot: int, start_s: float, finish_s: float) -> None:
    if st.recorded_slot.shape[0] > 0:
        st.recorded_slot[request] = slot
        st.recorded_start_s[request] = start_s
        st.recorded_finish_s[request] = finish_s


@compiled
def _in_flight_until(st: Stage, slot: int, answer_s: float) -> None:
    """A request that went to the replica is in flight until then. Beyond F nobody counts."""
    count = st.flight_count[slot]
    if count < st.flight_s.shape[1]:
        st.flight_s[slot, count] = answer_s
        st.flight_count[slot] = count + 1
        st.flight_next_s[slot] = min(st.flight_next_s[slot], answer_s)


@compiled
def _earliest(st: Stage, slot: int, workers: int) -> int:
    best = 0
    for worker in range(1, workers):
        if st.free_s[slot, worker] < st.free_s[slot, best]:
            best = worker
    return best


@compiled
def _show_free(st: Stage, slot: int, kind: int) -> None:
    if st.leaf[slot] >= 0:
        free = st.free_s[slot, _earliest(st, slot, st.workers[kind])]
        set_leaf(st.free_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], free)


@compiled
def start_open(st: Stage, slot: int, ready_s: float, rt_max_s: float) -> None:
    """Start the open batch of a replica at `ready_s`, or when its worker is free."""
    kind = st.kind[slot]
    size = st.open_size[slot]
    worker = _earliest(st, slot, st.workers[kind])
    start = max(st.free_s[slot, worker], ready_s)
    service = st.service_s[kind, size] * service_factor(st.counter, st.sigma[kind])
    finish = start + service
    st.free_s[slot, worker] = finish
    st.busy_s[slot] += service
    answer = finish + st.overhead_s[kind]
    for i in range(size):
        _answered(st, st.member_s[slot, i], answer - st.member_s[slot, i], rt_max_s)
        _in_flight_until(st, slot, answer)
    if st.recorded_slot.shape[0] > 0:
        for i in range(size):
            _record(st, st.member_id[slot, i], slot, start, answer)
    st.open_size[slot] = 0
    if st.leaf[slot] >= 0:
        set_leaf(st.open_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], INF)
        if st.workers[kind] > 1:
            set_leaf(st.due_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], INF)
    _show_free(st, slot, kind)


@compiled
def show_all(st: Stage, kind: int, at: int, levels: int, slots: Ints) -> None:
    """Fill the leaves of a kind after its trees were laid out anew."""
    for slot in slots:
        if st.open_size[slot] > 0:
            set_leaf(st.open_tree, at, levels, st.leaf[slot], _open_key(st, slot, kind))
            if st.workers[kind] > 1:
                set_leaf(st.due_tree, at, levels, st.leaf[slot], st.open_start_s[slot])
        else:
            _show_free(st, slot, kind)


@compiled
def _open_key(st: Stage, slot: int, kind: int) -> float:
    """Completion of the next one to join: exact, or too early where it fills the batch before its window ends."""
    size = st.open_size[slot]
    free = st.free_s[slot, _earliest(st, slot, st.workers[kind])]
    return (free if size + 1 == st.n_batch[kind] else st.open_start_s[slot]) + st.service_s[kind, size + 1]


@compiled
def _place(st: Stage, slot: int, now_s: float, request: int, rt_max_s: float) -> None:
    """An admitted request: it starts at once, joins the open batch, or opens one."""
    kind = st.kind[slot]
    full = st.n_batch[kind]
    size = st.open_size[slot]
    worker = _earliest(st, slot, st.workers[kind])
    free = st.free_s[slot, worker]
    st.counter[INSTANCES] += 1
    if size == 0:
        if full == 1 or (free <= now_s and st.window_s[kind] <= 0.0):
            start = max(free, now_s)
            service = st.service_s[kind, 1] * service_factor(st.counter, st.sigma[kind])
            st.free_s[slot, worker] = start + service
            st.busy_s[slot] += service
            answer = start + service + st.overhead_s[kind]
            _answered(st, now_s, answer - now_s, rt_max_s)
            _in_flight_until(st, slot, answer)
            _record(st, request, slot, start, answer)
            _show_free(st, slot, kind)
            return
        st.open_start_s[slot] = _start_s(free, now_s, st.window_s[kind])
        set_leaf(st.free_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], INF)
        if st.workers[kind] > 1:
            set_leaf(st.due_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], st.open_start_s[slot])
    st.member_s[slot, size] = now_s
    if st.recorded_slot.shape[0] > 0:
        st.member_id[slot, size] = request
    size += 1
    st.open_size[slot] = size
    # Judged at the latest start the batch may have: also the one that fills it may come as late as the window's end.
    # Who was accepted late has no promise to lose, but those behind may.
    answer = st.open_start_s[slot] + st.service_s[kind, size] + st.overhead_s[kind]
    oldest = 0
    while oldest < size - 1 and not _in_time(answer - st.member_s[slot, oldest], st.promised_s[kind]):
        oldest += 1
    if size < full and _joins(
        st.open_start_s[slot],
        st.service_s[kind, size],
        st.service_s[kind, size + 1],
        st.service_s[kind, 1],
        st.member_s[slot, oldest],
        st.overhead_s[kind],
        st.promised_s[kind],
    ):
        set_leaf(st.open_tree, st.tree_at[kind], st.tree_levels[kind], st.leaf[slot], _open_key(st, slot, kind))
    else:
        start_open(st, slot, now_s, rt_max_s)


@compiled
def _expected(st: Stage, slot: int, now_s: float) -> float:
    """Completion that a request arriving now would see on this replica, without overhead."""
    kind = st.kind[slot]
    free = st.free_s[slot, _earliest(st, slot, st.workers[kind])]
    size = st.open_size[slot]
    if size > 0:
        start = max(free, now_s) if size + 1 == st.n_batch[kind] else st.open_start_s[slot]
        return start + st.service_s[kind, size + 1]
    window = st.window_s[kind] if st.n_batch[kind] > 1 else 0.0
    return _start_s(free, now_s, window) + st.service_s[kind, 1]


@compiled
def _two_choices(st: Stage, now_s: float, rt_max_s: float) -> int:
    """Power of two choices: the better of two replicas drawn at random (Mitzenmacher 2001)."""
    n = st.counter[READY]
    if n == 0:
        return -1
    first = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    second = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    for slot in (first, second):
        if st.open_size[slot] > 0 and st.open_start_s[slot] <= now_s:
            start_open(st, slot, st.open_start_s[slot], rt_max_s)
    a = _expected(st, first, now_s) + st.overhead_s[st.kind[first]]
    b = _expected(st, second, now_s) + st.overhead_s[st.kind[second]]
    return first if _better(a, st.open_size[first] > 0, first, b, st.open_size[second] > 0, second) else second


@compiled
def _in_flight(st: Stage, slot: int, now_s: float, rt_max_s: float) -> int:
    """Requests that went to the replica and are not answered; those that it passed on to a function count, too."""
    if st.open_size[slot] > 0 and st.open_start_s[slot] <= now_s:
        start_open(st, slot, st.open_start_s[slot], rt_max_s)
    if st.flight_next_s[slot] <= now_s + TOLERANCE_S:
        kept = 0
        first_s = INF
        for i in range(st.flight_count[slot]):
            answer_s = st.flight_s[slot, i]
            if answer_s > now_s + TOLERANCE_S:
                st.flight_s[slot, kept] = answer_s
                first_s = min(first_s, answer_s)
                kept += 1
        st.flight_count[slot] = kept
        st.flight_next_s[slot] = first_s
    return int(st.open_size[slot] + st.flight_count[slot])


@compiled
def _fewest_in_flight(st: Stage, now_s: float, rt_max_s: float) -> int:
    """As somebody chooses who counts, and sees no queue: the fewest in flight for what the replica can do."""
    best = -1
    best_s = INF
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        kind = st.kind[slot]
        full = st.n_batch[kind]
        each_s = st.service_s[kind, full] / (full * st.workers[kind])
        work_s = each_s * (_in_flight(st, slot, now_s, rt_max_s) + 1)
        if _better(work_s, False, slot, best_s, False, best):
            best, best_s = slot, work_s
    return best


@compiled
def _least_completion(st: Stage, now_s: float, rt_max_s: float) -> int:
    best = -1
    best_finish = INF
    best_open = False
    for a in range(st.counter[ACTIVE]):
        kind = st.active[a]
        at, levels = st.tree_at[kind], st.tree_levels[kind]
        overhead = st.overhead_s[kind]
        # With several workers a replica may be a better choice once its batch has started: the next worker is free.
        if st.workers[kind] > 1:
            while st.due_tree[at] <= now_s:
                slot = st.leaf_slot[at + first_leaf(st.due_tree, at, levels, now_s)]
                start_open(st, slot, st.open_start_s[slot], rt_max_s)
        window = st.window_s[kind] if st.n_batch[kind] > 1 else 0.0
        # Open batches. A key is never later than the truth, so the lowest key is the best replica, once it turns out
        # to be the truth and its batch not to have started meanwhile. A key above what a free replica offers is not
        # even looked up: going down a tree is a fifth of a request's time.
        while True:
            free_finish = _start_s(st.free_tree[at], now_s, window) + st.service_s[kind, 1] + overhead
            key = st.open_tree[at]
            if key == INF or key + overhead > min(best_finish, free_finish):
                break
            slot = st.leaf_slot[at + first_leaf(st.open_tree, at, levels, key)]
            if st.open_start_s[slot] <= now_s:
                start_open(st, slot, st.open_start_s[slot], rt_max_s)
                continue
            finish = _expected(st, slot, now_s)
            if finish > key:
                set_leaf(st.open_tree, at, levels, st.leaf[slot], finish)  # time passed; the key is still never late
                continue
            finish += overhead
            if _better(finish, True, slot, best_finish, best_open, best):
                best, best_finish, best_open = slot, finish, True
            break
        # All others: every replica free by the end of the window is equally good; the lowest id among them.
        if free_finish < INF and free_finish <= best_finish:
            limit = max(st.free_tree[at], now_s + window)
            slot = st.leaf_slot[at + first_leaf(st.free_tree, at, levels, limit)]
            if _better(free_finish, False, slot, best_finish, best_open, best):
                best, best_finish, best_open = slot, free_finish, False
    return best


@compiled
def advance(
    st: Stage,
    pool: FunctionPool,
    arrivals_s: Floats,
    first: int,
    until_s: float,
    rt_max_s: float,
    fine_s: float,
    routing: int,
    bouncers: bool,
) -> int:
    """Simulate the arrivals [first, ...) that come before `until_s`; returns the position of the next one."""
    i = first
    end = arrivals_s.shape[0]
    per_fine = 1.0 / fine_s
    while i < end:
        now = arrivals_s[i]
        if now >= until_s:
            break
        i += 1
        request = st.counter[REQUEST]
        st.counter[REQUEST] = request + 1
        st.minute_total[int(now * (1.0 / 60.0))] += 1
        st.fine_count[int(now * per_fine)] += 1
        if routing == TWO_CHOICES:
            slot = _two_choices(st, now, rt_max_s)
        elif routing == FEWEST_IN_FLIGHT:
            slot = _fewest_in_flight(st, now, rt_max_s)
        else:
            slot = _least_completion(st, now, rt_max_s)
        if slot >= 0:
            kind = st.kind[slot]
            latency = _expected(st, slot, now) + st.overhead_s[kind] - now
            if st.open_size[slot] == 0:
                full = st.n_batch[kind]
                waits = full > 1 and (
                    st.window_s[kind] > 0.0 or st.free_s[slot, _earliest(st, slot, st.workers[kind])] > now
                )
                latency += _reserve_s(waits, st.service_s[kind, 1], st.service_s[kind, full])
            horizon = st.horizon_s[kind]
        else:
            latency = INF
            horizon = rt_max_s
        if slot >= 0 and (not bouncers or _in_time(latency, horizon)):
            _place(st, slot, now, request, rt_max_s)
            continue
        function = functions.latency_s(pool, now)
        # Nobody can tell beforehand whether a call will start cold, so a bouncer reckons with the warm latency.
        where = _destination(latency, min(function, pool.value[WARM_S]) if function < INF else INF, horizon)
        if where == _INSTANCE:
            _place(st, slot, now, request, rt_max_s)
        elif where == _FUNCTION:
            functions.call(pool, now)
            st.counter[FUNCTIONS] += 1
            st.minute_function[int(now * (1.0 / 60.0))] += 1
            _answered(st, now, function, rt_max_s)
            _record(st, request, -1, now, now + function)
            if slot >= 0:
                _in_flight_until(st, slot, now + function)
        else:
            pool.number[THROTTLED] += 1
            st.counter[REJECTED] += 1
            _note(st, now, False)
            _record(st, request, -2, now, INF)
    return i


@compiled
def finish(st: Stage, rt_max_s: float) -> None:
    """Start every batch that is still open, when its time comes."""
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        if st.open_size[slot] > 0:
            start_open(st, slot, st.open_start_s[slot], rt_max_s)
