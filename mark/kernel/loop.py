"""A stage in compiled code: routes requests, batches them, starts batches, and emits what departs.

Nothing is simulated before it matters: a batch whose start has passed is started when its replica is considered next.
A replica's closed batches are summed up in `free_s` of its workers, because with known service times and a
first-in-first-out queue their future is settled; only the open batch keeps its members.
"""

from __future__ import annotations

import numpy as np

from mark.kernel import faults
from mark.kernel.compiled import compiled
from mark.kernel.departures import Departures, depart, depart_together
from mark.kernel.random import next_bits, service_factor
from mark.kernel.state import ACTIVE, ALB, FEWEST_IN_FLIGHT, INF, READY, REQUEST, TWO_CHOICES, Floats, Ints, Stage
from mark.kernel.tree import first_leaf, set_leaf
from mark.rules import admission, batching, routing

_in_time = compiled(admission.in_time)
_start_s = compiled(batching.start_s)
_joins = compiled(batching.joins)
_reserve_s = compiled(batching.reserve_s)
_better = compiled(routing.better)
TOLERANCE_S = admission.TOLERANCE_S
# More than there are requests in a run; times the most that a replica can have in flight it is still a whole number.
_TURNS = 2.0**40


@compiled
def in_flight_until(st: Stage, slot: int, answer_s: float) -> None:
    """A request that went to the replica is in flight until then. At most F are counted."""
    count = st.flight_count[slot]
    if count < st.flight_s.shape[1]:
        st.flight_s[slot, count] = answer_s
        st.flight_count[slot] = count + 1
        st.flight_next_s[slot] = min(st.flight_next_s[slot], answer_s)


@compiled
def _by_counts(st: Stage) -> bool:
    """Does a replica's place in the trees go by its requests in flight, in capacity classes?"""
    return st.classes.weight.shape[0] > 0


@compiled
def may_fail(st: Stage) -> bool:
    return st.faults.value.shape[0] > 0


@compiled
def earliest(free_s: Floats, slot: int, workers: int) -> int:
    """The worker that is free first in `free_s`."""
    best = 0
    for worker in range(1, workers):
        if free_s[slot, worker] < free_s[slot, best]:
            best = worker
    return best


@compiled
def show_free(st: Stage, slot: int, kind: int) -> None:
    kinds = st.kinds
    if st.leaf[slot] >= 0 and not _by_counts(st):
        free = st.free_s[slot, earliest(st.free_s, slot, kinds.workers[kind])]
        set_leaf(st.free_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], free)


@compiled
def start_open(st: Stage, out: Departures, slot: int, ready_s: float) -> None:
    """Start the open batch of a replica at `ready_s`, or when its worker is free."""
    kinds = st.kinds
    kind = st.kind[slot]
    size = st.open_size[slot]
    worker = earliest(st.free_s, slot, kinds.workers[kind])
    start = max(st.free_s[slot, worker], ready_s)
    service = kinds.service_s[kind, size] * service_factor(st.counter, kinds.sigma[kind])
    if may_fail(st):
        start = faults.begins_s(st.faults, slot, start)
        service = faults.takes_s(st.faults, slot, start, service)
    finish = start + service
    st.free_s[slot, worker] = finish
    answer = finish + kinds.overhead_s[kind]
    shown = slot
    if may_fail(st):
        service = faults.works_s(st.faults, slot, start, service)
        shown = faults.shown_slot(st.faults, slot, answer)
    st.busy_s[slot] += service
    depart_together(out, st.member_id[slot], st.member_s[slot], size, start, answer, shown)
    if st.flight_s.shape[1] > 0:
        for _ in range(size):
            in_flight_until(st, slot, answer)
    st.open_size[slot] = 0
    if st.leaf[slot] >= 0 and not _by_counts(st):
        set_leaf(st.open_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], INF)
        if kinds.workers[kind] > 1:
            set_leaf(st.due_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], INF)
    show_free(st, slot, kind)


@compiled
def show_all(st: Stage, kind: int, at: int, levels: int, slots: Ints) -> None:
    """Fill the leaves of a kind after its trees were laid out anew."""
    kinds = st.kinds
    for slot in slots:
        if st.open_size[slot] > 0:
            set_leaf(st.open_tree, at, levels, st.leaf[slot], open_key(st, slot, kind))
            if kinds.workers[kind] > 1:
                set_leaf(st.due_tree, at, levels, st.leaf[slot], st.open_start_s[slot])
        else:
            show_free(st, slot, kind)


@compiled
def open_key(st: Stage, slot: int, kind: int) -> float:
    """Completion of the next one to join: exact, or too early where it fills the batch before its window ends."""
    kinds = st.kinds
    size = st.open_size[slot]
    free = st.free_s[slot, earliest(st.free_s, slot, kinds.workers[kind])]
    return (free if size + 1 == kinds.n_batch[kind] else st.open_start_s[slot]) + kinds.service_s[kind, size + 1]


@compiled
def takes_another(st: Stage, slot: int, kind: int, size: int, mixed: bool) -> bool:
    """Whether one more request may join a replica's open batch of `size`."""
    kinds = st.kinds
    # Judged at the latest start the batch may have: also the one that fills it may come as late as the window's end.
    # A request that was accepted late has no promise to lose, but those behind it may.
    answer = st.open_start_s[slot] + kinds.service_s[kind, size] + kinds.overhead_s[kind]
    oldest = 0
    while oldest < size - 1 and not _in_time(answer - st.member_s[slot, oldest], st.member_promise_s[slot, oldest]):
        oldest += 1
    if mixed:  # else the oldest has the earliest deadline
        for i in range(oldest + 1, size):
            arrival, promise = st.member_s[slot, i], st.member_promise_s[slot, i]
            earlier = arrival + promise < st.member_s[slot, oldest] + st.member_promise_s[slot, oldest]
            if earlier and _in_time(answer - arrival, promise):
                oldest = i
    return bool(
        size < kinds.n_batch[kind]
        and _joins(
            st.open_start_s[slot],
            kinds.service_s[kind, size],
            kinds.service_s[kind, size + 1],
            kinds.service_s[kind, 1],
            st.member_s[slot, oldest],
            kinds.overhead_s[kind],
            st.member_promise_s[slot, oldest],
        )
    )


@compiled
def place(st: Stage, out: Departures, slot: int, now_s: float, request: int, promise_s: float, mixed: bool) -> None:
    """An admitted request starts at once, joins the open batch, or opens one."""
    kinds = st.kinds
    kind = st.kind[slot]
    full = kinds.n_batch[kind]
    size = st.open_size[slot]
    worker = earliest(st.free_s, slot, kinds.workers[kind])
    free = st.free_s[slot, worker]
    if size == 0:
        if full == 1 or (free <= now_s and kinds.window_s[kind] <= 0.0):
            start = max(free, now_s)
            service = kinds.service_s[kind, 1] * service_factor(st.counter, kinds.sigma[kind])
            if may_fail(st):
                start = faults.begins_s(st.faults, slot, start)
                service = faults.takes_s(st.faults, slot, start, service)
            st.free_s[slot, worker] = start + service
            answer = start + service + kinds.overhead_s[kind]
            shown = slot
            if may_fail(st):
                service = faults.works_s(st.faults, slot, start, service)
                shown = faults.shown_slot(st.faults, slot, answer)
            st.busy_s[slot] += service
            depart(out, request, now_s, start, answer, answer - now_s, shown)
            in_flight_until(st, slot, answer)
            show_free(st, slot, kind)
            return
        st.open_start_s[slot] = _start_s(free, now_s, kinds.window_s[kind])
        if not _by_counts(st):
            set_leaf(st.free_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], INF)
            if kinds.workers[kind] > 1:
                set_leaf(
                    st.due_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], st.open_start_s[slot]
                )
    st.member_s[slot, size] = now_s
    st.member_id[slot, size] = request
    st.member_promise_s[slot, size] = promise_s
    size += 1
    st.open_size[slot] = size
    if takes_another(st, slot, kind, size, mixed):
        if not _by_counts(st):
            set_leaf(
                st.open_tree, kinds.tree_at[kind], kinds.tree_levels[kind], st.leaf[slot], open_key(st, slot, kind)
            )
    else:
        start_open(st, out, slot, now_s)


@compiled
def _expected(st: Stage, slot: int, now_s: float) -> float:
    """Completion that a request arriving now would see on this replica, without overhead."""
    kinds = st.kinds
    kind = st.kind[slot]
    free = st.free_s[slot, earliest(st.free_s, slot, kinds.workers[kind])]
    size = st.open_size[slot]
    if size > 0:
        start = max(free, now_s) if size + 1 == kinds.n_batch[kind] else st.open_start_s[slot]
        return start + kinds.service_s[kind, size + 1]
    window = kinds.window_s[kind] if kinds.n_batch[kind] > 1 else 0.0
    return _start_s(free, now_s, window) + kinds.service_s[kind, 1]


@compiled
def _two_choices(st: Stage, out: Departures, now_s: float) -> int:
    """Power of two choices: the better of two replicas drawn at random (Mitzenmacher 2001)."""
    kinds = st.kinds
    n = st.counter[READY]
    if n == 0:
        return -1
    first = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    second = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    for slot in (first, second):
        if st.open_size[slot] > 0 and st.open_start_s[slot] <= now_s:
            start_open(st, out, slot, st.open_start_s[slot])
    a = _expected(st, first, now_s) + kinds.overhead_s[st.kind[first]]
    b = _expected(st, second, now_s) + kinds.overhead_s[st.kind[second]]
    return first if _better(a, st.open_size[first] > 0, first, b, st.open_size[second] > 0, second) else second


@compiled
def _in_flight(st: Stage, out: Departures, slot: int, now_s: float) -> int:
    """Requests that went to the replica and are not answered; those that it passed on to a function count, too."""
    if st.open_size[slot] > 0 and st.open_start_s[slot] <= now_s:
        start_open(st, out, slot, st.open_start_s[slot])
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
def _fewest_in_flight(st: Stage, out: Departures, now_s: float) -> int:
    """The choice of a balancer that sees no queues: the fewest in flight for what the replica can do."""
    kinds = st.kinds
    best = -1
    best_s = INF
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        kind = st.kind[slot]
        full = kinds.n_batch[kind]
        each_s = kinds.service_s[kind, full] / (full * kinds.workers[kind])
        work_s = each_s * (_in_flight(st, out, slot, now_s) + 1)
        if _better(work_s, False, slot, best_s, False, best):
            best, best_s = slot, work_s
    return best


@compiled
def show_in_flight(st: Stage, slot: int) -> None:
    """Tell the trees of a capacity class what a replica has in flight, and when that changes by itself."""
    kinds = st.kinds
    kind, leaf = st.kind[slot], st.leaf[slot]
    at, levels = kinds.tree_at[kind], kinds.tree_levels[kind]
    size = st.open_size[slot]
    set_leaf(st.due_tree, at, levels, leaf, st.open_start_s[slot] if size > 0 else INF)
    set_leaf(st.flight_tree, at, levels, leaf, st.flight_next_s[slot])
    set_leaf(st.count_tree, at, levels, leaf, (size + st.flight_count[slot]) * _TURNS + st.turn[slot])


@compiled
def show_all_in_flight(st: Stage, slots: Ints) -> None:
    """Fill the leaves of a capacity class after its trees were laid out anew."""
    for slot in slots:
        show_in_flight(st, slot)


@compiled
def _alb(st: Stage, out: Departures, now_s: float) -> int:
    """A target group drawn by weight, and there the fewest in flight, whatever a replica can do; ties in turn."""
    classes = st.classes
    total = classes.weight.sum()
    if total == 0:
        return -1
    drawn = np.int64(next_bits(st.counter) % np.uint64(total))
    group = 0
    while drawn >= classes.weight[group]:
        drawn -= classes.weight[group]
        group += 1
    at, levels = classes.tree_at[group], classes.tree_levels[group]
    # Batches that `settle` started are shown as due still.
    while True:
        if st.due_tree[at] <= now_s:
            leaf = first_leaf(st.due_tree, at, levels, now_s)
        elif st.flight_tree[at] <= now_s + TOLERANCE_S:
            leaf = first_leaf(st.flight_tree, at, levels, now_s + TOLERANCE_S)
        else:
            break
        slot = st.leaf_slot[at + leaf]
        _in_flight(st, out, slot, now_s)
        show_in_flight(st, slot)
    slot = st.leaf_slot[at + first_leaf(st.count_tree, at, levels, st.count_tree[at])]
    st.turn[slot] = st.counter[REQUEST]
    return int(slot)


@compiled
def _least_completion(st: Stage, out: Departures, now_s: float) -> int:
    kinds = st.kinds
    best = -1
    best_finish = INF
    best_open = False
    for a in range(st.counter[ACTIVE]):
        kind = kinds.active[a]
        at, levels = kinds.tree_at[kind], kinds.tree_levels[kind]
        overhead = kinds.overhead_s[kind]
        # With several workers a replica may be a better choice once its batch has started: the next worker is free.
        if kinds.workers[kind] > 1:
            while st.due_tree[at] <= now_s:
                slot = st.leaf_slot[at + first_leaf(st.due_tree, at, levels, now_s)]
                start_open(st, out, slot, st.open_start_s[slot])
        window = kinds.window_s[kind] if kinds.n_batch[kind] > 1 else 0.0
        # Open batches. A key is never later than the truth, so the lowest key is the best replica, once it turns out
        # to be the truth and its batch not to have started meanwhile. A key above what a free replica offers is not
        # even looked up: going down a tree is a fifth of a request's time.
        while True:
            free_finish = _start_s(st.free_tree[at], now_s, window) + kinds.service_s[kind, 1] + overhead
            key = st.open_tree[at]
            if key == INF or key + overhead > min(best_finish, free_finish):
                break
            slot = st.leaf_slot[at + first_leaf(st.open_tree, at, levels, key)]
            if st.open_start_s[slot] <= now_s:
                start_open(st, out, slot, st.open_start_s[slot])
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
def choose(st: Stage, out: Departures, now_s: float, routing: int) -> int:
    """The replica that a request arriving now would go to; -1 where none is ready."""
    if routing == TWO_CHOICES:
        return _two_choices(st, out, now_s)
    if routing == FEWEST_IN_FLIGHT:
        return _fewest_in_flight(st, out, now_s)
    if routing == ALB:
        return _alb(st, out, now_s)
    return _least_completion(st, out, now_s)


@compiled
def expected_latency_s(st: Stage, slot: int, now_s: float) -> float:
    """What a bouncer reckons with: as if a batch that the request opens and that waits were full already."""
    kinds = st.kinds
    kind = st.kind[slot]
    latency = _expected(st, slot, now_s) + kinds.overhead_s[kind] - now_s
    if st.open_size[slot] == 0:
        full = kinds.n_batch[kind]
        waits = full > 1 and (
            kinds.window_s[kind] > 0.0 or st.free_s[slot, earliest(st.free_s, slot, kinds.workers[kind])] > now_s
        )
        latency += _reserve_s(waits, kinds.service_s[kind, 1], kinds.service_s[kind, full])
    return latency


@compiled
def settle(st: Stage, out: Departures, until_s: float) -> None:
    """Start every open batch that is due by then."""
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        if st.open_size[slot] > 0 and st.open_start_s[slot] <= until_s:
            start_open(st, out, slot, st.open_start_s[slot])
