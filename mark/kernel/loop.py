"""A stage in compiled code: routes requests, batches them, starts batches, and emits departures.

Simulation is lazy: a batch whose start has passed is started when its replica is considered next. A replica's closed
batches are summed up in `free_s` of its workers, because in a first-in-first-out queue their future is settled; only
the open batch keeps its members. If service times vary, `free_s` and `open_start_s` are the true future times, and
routing and admission use `mark.kernel.known` for a bouncer's expectations.
"""

from __future__ import annotations

import numpy as np

from mark.domain.rules import admission, batching, routing
from mark.kernel import known, learned, replica_faults
from mark.kernel.arrays import (
    ACTIVE,
    ALB,
    BUDGET,
    FEWEST_IN_FLIGHT,
    INF,
    READY,
    REQUEST,
    TICKED_S,
    TWO_CHOICES,
    Floats,
    Ints,
    Stage,
)
from mark.kernel.compiled import compiled
from mark.kernel.departures import Departures, depart, depart_together
from mark.kernel.random import next_bits
from mark.kernel.records import batch_s, of_kind, of_member, of_slot
from mark.kernel.tree import first_leaf, lowest, set_leaf

_in_time = compiled(admission.in_time)
_start_s = compiled(batching.start_s)
_joins = compiled(batching.joins)
_reserve_s = compiled(batching.reserve_s)
_margin_s = compiled(admission.margin_s)
_in_time_probability = compiled(admission.in_time_probability)
_doubtful = compiled(admission.doubtful)
_better = compiled(routing.better)
TOLERANCE_S = admission.TOLERANCE_S
# More than there are requests in a run; multiplied by a replica's most requests in flight it is still exact as a float.
_TURNS = 2.0**40


@compiled
def _by_completion(st: Stage) -> bool:
    """Return whether the trees are ordered by completion.

    They are not in capacity classes, which are ordered by requests in flight, nor if completions change over time.
    """
    return st.classes.weight.shape[0] == 0 and not known.varies(st)


@compiled
def in_flight_until(st: Stage, slot: int, sent_s: float, answer_s: float) -> None:
    """Count a request that went to the replica as in flight until `answer_s`. At most F are counted."""
    if learned.learns(st):
        learned.sent(st, slot, sent_s, answer_s)
        return
    own = of_slot(st, slot)
    count = own.flight_count
    if count < st.flight_s.shape[1]:
        st.flight_s[slot, count] = answer_s
        own.flight_count = count + 1
        own.flight_next_s = min(own.flight_next_s, answer_s)


@compiled
def may_fail(st: Stage) -> bool:
    return st.faults.value.shape[0] > 0


@compiled
def earliest(free_s: Floats, slot: int, workers: int) -> int:
    """Return the first free worker in `free_s`."""
    best = 0
    for worker in range(1, workers):
        if free_s[slot, worker] < free_s[slot, best]:
            best = worker
    return best


@compiled
def _work_until(st: Stage, slot: int, workers: int, until_s: float) -> None:
    """Give the first free worker work until `until_s`."""
    if workers == 1:
        of_slot(st, slot).free_s = until_s
    else:
        free_s = st.worker_free_s
        free_s[slot, earliest(free_s, slot, workers)] = until_s
        of_slot(st, slot).free_s = free_s[slot, earliest(free_s, slot, workers)]


@compiled
def show_free(st: Stage, slot: int, kind: int) -> None:
    own = of_slot(st, slot)
    if own.leaf >= 0 and _by_completion(st):
        set_leaf(st.free_tree, of_kind(st, kind).tree_at, own.leaf, own.free_s)


@compiled
def _serve(st: Stage, slot: int, kind: int, start_s: float, size: int) -> tuple[float, float, int]:
    """Give a worker a batch at `start_s`; return when it begins, when it is answered, and the slot of its departure."""
    own, row = of_slot(st, slot), of_kind(st, kind)
    mean = batch_s(st, kind, size)
    if not known.varies(st):
        _work_until(st, slot, row.workers, start_s + mean)
        own.busy_s += mean
        return start_s, start_s + mean + row.overhead_s, slot
    start, service = start_s, mean * known.next_factor(st, slot)
    if may_fail(st):
        start = replica_faults.begins_s(st.faults, slot, start)
        service = replica_faults.takes_s(st.faults, slot, start, service)
    finish = start + service
    _work_until(st, slot, row.workers, finish)
    known.close(st, slot, start_s, finish, mean)
    answer = finish + row.overhead_s
    shown = slot
    if may_fail(st):
        answer += replica_faults.answers_later_s(st.faults, slot)
        service = replica_faults.works_s(st.faults, slot, start, service)
        shown = replica_faults.shown_slot(st.faults, slot, answer)
    own.busy_s += service
    return start, answer, shown


@compiled
def start_open(st: Stage, out: Departures, slot: int, ready_s: float) -> None:
    """Start the open batch of a replica at `ready_s`, or when its worker is free."""
    own = of_slot(st, slot)
    kind = own.kind
    row = of_kind(st, kind)
    size = own.open_size
    start, answer, shown = _serve(st, slot, kind, max(own.free_s, ready_s), size)
    depart_together(out, st.members[slot], size, start, answer, shown)
    if st.flight_s.shape[1] > 0:
        for i in range(size):
            in_flight_until(st, slot, of_member(st, slot, i).arrival_s, answer)
    own.open_size = 0
    if own.leaf >= 0 and _by_completion(st):
        set_leaf(st.open_tree, row.tree_at, own.leaf, INF)
        if row.workers > 1:
            set_leaf(st.due_tree, row.tree_at, own.leaf, INF)
    show_free(st, slot, kind)


@compiled
def show_all(st: Stage, slots: Ints) -> None:
    """Fill the leaves of a kind after its trees were laid out again."""
    for slot in slots:
        own = of_slot(st, slot)
        kind = own.kind
        row = of_kind(st, kind)
        if own.open_size > 0:
            set_leaf(st.open_tree, row.tree_at, own.leaf, open_key(st, slot, kind))
            if row.workers > 1:
                set_leaf(st.due_tree, row.tree_at, own.leaf, own.open_start_s)
        else:
            show_free(st, slot, kind)


@compiled
def open_key(st: Stage, slot: int, kind: int) -> float:
    """Return the next member's completion: exact, or too early if it fills the batch before its window ends."""
    own = of_slot(st, slot)
    size = own.open_size
    fills = size + 1 == of_kind(st, kind).n_batch
    return (own.free_s if fills else own.open_start_s) + batch_s(st, kind, size + 1)


@compiled
def takes_another(st: Stage, slot: int, kind: int, size: int, start: float, mixed: bool) -> bool:
    """Return whether one more request may join a replica's open batch of `size`, which is to start at `start`."""
    row = of_kind(st, kind)
    # Use the latest start that the batch may have, because even the request that fills it may come at the window's end.
    # A request that was accepted late has no promise or cannot lose it, but later requests may.
    answer = start + batch_s(st, kind, size) + row.overhead_s
    oldest = 0
    while oldest < size - 1:
        one = of_member(st, slot, oldest)
        if one.promise_s < INF and _in_time(answer - one.arrival_s, one.promise_s):
            break
        oldest += 1
    if mixed:  # otherwise the oldest has the earliest deadline
        for i in range(oldest + 1, size):
            other, so_far = of_member(st, slot, i), of_member(st, slot, oldest)
            earlier = other.arrival_s + other.promise_s < so_far.arrival_s + so_far.promise_s
            if earlier and _in_time(answer - other.arrival_s, other.promise_s):
                oldest = i
    return bool(
        size < row.n_batch
        and _joins(
            start,
            batch_s(st, kind, size),
            batch_s(st, kind, size + 1),
            batch_s(st, kind, 1),
            of_member(st, slot, oldest).arrival_s,
            row.overhead_s,
            of_member(st, slot, oldest).promise_s,
        )
    )


@compiled
def _joins_still(st: Stage, slot: int, free: float) -> bool:
    """Return whether one more request may join the open batch, given the current expectation of a free worker.

    That was decided when the batch last grew, unless a worker has overrun since.
    """
    own, queue = of_slot(st, slot), known.queue_of(st, slot)
    start = _start_s(free, queue.opened_s, of_kind(st, own.kind).window_s)
    return start <= queue.open_start_s or takes_another(st, slot, own.kind, own.open_size, start, True)


@compiled
def expected_start_s(st: Stage, slot: int, now_s: float) -> float:
    """Return when the open batch, which a request joins now, is expected to start."""
    queue, own = known.queue_of(st, slot), of_slot(st, slot)
    window = of_kind(st, own.kind).window_s
    queue.open_start_s = _start_s(known.free_s(st, slot, now_s), queue.opened_s, window)
    return queue.open_start_s


@compiled
def place(st: Stage, out: Departures, slot: int, now_s: float, request: int, promise_s: float, mixed: bool) -> None:
    """Start an admitted request immediately, add it to the open batch, or open one. After `expected_latency_s`."""
    own = of_slot(st, slot)
    kind = own.kind
    row = of_kind(st, kind)
    varies = known.varies(st)
    if varies and own.open_size > 0 and known.queue_of(st, slot).joins == 0:
        start_open(st, out, slot, now_s)
    size = own.open_size
    if size == 0:
        free = own.free_s
        if row.n_batch == 1 or (free <= now_s and row.window_s <= 0.0):
            start, answer, shown = _serve(st, slot, kind, max(free, now_s), 1)
            depart(out, request, now_s, start, answer, answer - now_s, shown)
            in_flight_until(st, slot, now_s, answer)
            show_free(st, slot, kind)
            return
        own.open_start_s = _start_s(free, now_s, row.window_s)
        if varies:
            known.queue_of(st, slot).opened_s = now_s
        if _by_completion(st):
            set_leaf(st.free_tree, row.tree_at, own.leaf, INF)
            if row.workers > 1:
                set_leaf(st.due_tree, row.tree_at, own.leaf, own.open_start_s)
    member = of_member(st, slot, size)
    member.arrival_s = now_s
    member.promise_s = promise_s
    member.request = request
    size += 1
    own.open_size = size
    start = expected_start_s(st, slot, now_s) if varies else own.open_start_s
    if not takes_another(st, slot, kind, size, start, mixed):
        start_open(st, out, slot, now_s)
    elif _by_completion(st):
        set_leaf(st.open_tree, row.tree_at, own.leaf, open_key(st, slot, kind))


@compiled
def _known_completion(st: Stage, slot: int, now_s: float) -> tuple[float, bool]:
    """Return `_expected` for varying service times, and whether a batch that the request opens waits for a worker."""
    own, queue = of_slot(st, slot), known.queue_of(st, slot)
    row = of_kind(st, own.kind)
    free = known.free_s(st, slot, now_s)
    opened, size = now_s, 0
    queue.joins = 1
    if own.open_size > 0:
        if _joins_still(st, slot, free):
            opened, size = queue.opened_s, own.open_size
        else:
            queue.joins = 0
            free = known.behind_open_s(st, slot, free)
    waits = size == 0 and (row.window_s > 0.0 or free > now_s)
    if free <= now_s and not known.has_idle(st, slot, now_s):
        free = now_s + known.MOMENT_S
    start = _start_s(free, opened, row.window_s) if size + 1 < row.n_batch else max(free, now_s)
    return start + batch_s(st, own.kind, size + 1), waits


@compiled
def _expected(st: Stage, slot: int, now_s: float) -> float:
    """Return the completion of a request that arrives now, without overhead, for deterministic times."""
    own = of_slot(st, slot)
    row = of_kind(st, own.kind)
    size = own.open_size
    if size > 0:
        start = max(own.free_s, now_s) if size + 1 == row.n_batch else own.open_start_s
        return start + batch_s(st, own.kind, size + 1)
    window = row.window_s if row.n_batch > 1 else 0.0
    return _start_s(own.free_s, now_s, window) + batch_s(st, own.kind, 1)


@compiled
def _slot_at(st: Stage, at: int, leaf: int) -> int:
    return st.leaf_slot[np.uint64(at + leaf)]


@compiled
def _start_if_due(st: Stage, out: Departures, slot: int, now_s: float) -> None:
    own = of_slot(st, slot)
    if own.open_size > 0 and own.open_start_s <= now_s:
        start_open(st, out, slot, own.open_start_s)


@compiled
def _two_choices(st: Stage, out: Departures, now_s: float) -> int:
    """Return the better of two replicas drawn at random: the power of two choices (Mitzenmacher 2001)."""
    n = st.counter[READY]
    if n == 0:
        return -1
    first = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    second = st.ready[np.int64(next_bits(st.counter) % np.uint64(n))]
    best, best_finish, best_open = -1, INF, False
    for slot in (first, second):
        _start_if_due(st, out, slot, now_s)
        own = of_slot(st, slot)
        finish = _known_completion(st, slot, now_s)[0] if known.varies(st) else _expected(st, slot, now_s)
        finish += of_kind(st, own.kind).overhead_s
        if best < 0 or _better(finish, own.open_size > 0, slot, best_finish, best_open, best):
            best, best_finish, best_open = slot, finish, own.open_size > 0
    return best


@compiled
def _in_flight(st: Stage, out: Departures, slot: int, now_s: float) -> int:
    """Return the unanswered requests that went to the replica, including requests that it passed on to a function."""
    _start_if_due(st, out, slot, now_s)
    own = of_slot(st, slot)
    if own.flight_next_s <= now_s + TOLERANCE_S:
        kept = 0
        first_s = INF
        for i in range(own.flight_count):
            answer_s = st.flight_s[slot, i]
            if answer_s > now_s + TOLERANCE_S:
                st.flight_s[slot, kept] = answer_s
                first_s = min(first_s, answer_s)
                kept += 1
        own.flight_count = kept
        own.flight_next_s = first_s
    return int(own.open_size + own.flight_count)


@compiled
def _fewest_in_flight(st: Stage, out: Departures, now_s: float) -> int:
    """Return the choice of a balancer that sees no queues: the fewest in flight relative to a replica's capacity."""
    best = -1
    best_s = INF
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        kind = of_slot(st, slot).kind
        full = of_kind(st, kind).n_batch
        each_s = batch_s(st, kind, full) / (full * of_kind(st, kind).workers)
        work_s = each_s * (_in_flight(st, out, slot, now_s) + 1)
        if _better(work_s, False, slot, best_s, False, best):
            best, best_s = slot, work_s
    return best


@compiled
def learn(st: Stage, out: Departures, until_s: float) -> None:
    """Let a gateway learn from all answers up to `until_s`, and forget at its ticks."""
    while True:
        tick_s = learned.next_tick_s(st)
        ticks = tick_s <= until_s
        at_s = tick_s if ticks else until_s
        for a in range(st.counter[READY]):
            slot = st.ready[a]
            _start_if_due(st, out, slot, at_s)
            learned.answered(st, slot, at_s)
        if not ticks:
            return
        best_s = learned.best_seen_s(st)
        idle = best_s == INF
        for a in range(st.counter[READY]):
            slot = st.ready[a]
            own = of_slot(st, slot)
            in_flight = own.open_size + own.flight_count
            idle = idle and in_flight == 0
            learned.forget(st, slot, in_flight, best_s, tick_s)
        st.gateway[TICKED_S] = tick_s
        if idle:
            learned.skip_ticks(st, until_s)


@compiled
def _learned_completion(st: Stage, now_s: float, besides: int) -> int:
    """Return the replica from which a gateway expects the first answer, other than `besides`. After `learn`."""
    best = -1
    best_s = INF
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        own = of_slot(st, slot)
        finish_s = learned.expected(st, slot, own.open_size + own.flight_count, now_s)
        if slot != besides and _better(finish_s, False, slot, best_s, False, best):
            best, best_s = slot, finish_s
    return best


@compiled
def choose_learned(st: Stage, out: Departures, now_s: float) -> int:
    """Return the choice of a gateway that learns from answers, and sees no queue; -1 without a ready replica."""
    learn(st, out, now_s)
    return _learned_completion(st, now_s, -1)


@compiled
def refused(st: Stage, slot: int, now_s: float, retries: bool) -> int:
    """Let a gateway avoid a replica whose bouncer refused; return another one for a second attempt, or -1."""
    learned.refused(st, slot, now_s)
    if not retries or st.gateway[BUDGET] < 1.0:
        return -1
    other = _learned_completion(st, now_s, slot)
    if other < 0 or learned.of_replica(st, other).avoid_until_s > now_s:
        return -1
    st.gateway[BUDGET] -= 1.0
    return other


@compiled
def show_in_flight(st: Stage, slot: int) -> None:
    """Update the trees of a capacity class with a replica's requests in flight and the time of their next change."""
    own = of_slot(st, slot)
    at, leaf, size = of_kind(st, own.kind).tree_at, own.leaf, own.open_size
    set_leaf(st.due_tree, at, leaf, own.open_start_s if size > 0 else INF)
    set_leaf(st.flight_tree, at, leaf, own.flight_next_s)
    set_leaf(st.count_tree, at, leaf, (size + own.flight_count) * _TURNS + st.turn[slot])


@compiled
def show_all_in_flight(st: Stage, slots: Ints) -> None:
    """Fill the leaves of a capacity class after its trees were laid out again."""
    for slot in slots:
        show_in_flight(st, slot)


@compiled
def _alb(st: Stage, out: Departures, now_s: float) -> int:
    """Draw a target group by weight, and return its replica with the fewest in flight, whatever its capacity.

    Ties go in turn.
    """
    classes = st.classes
    total = 0
    for weight in classes.weight:  # a sum of an array would make numba import SciPy, for half a second
        total += weight
    if total == 0:
        return -1
    drawn = np.int64(next_bits(st.counter) % np.uint64(total))
    group = 0
    while drawn >= classes.weight[group]:
        drawn -= classes.weight[group]
        group += 1
    at, levels = classes.tree_at[group], classes.tree_levels[group]
    # Batches that `settle` started still appear as due.
    while True:
        if lowest(st.due_tree, at) <= now_s:
            leaf = first_leaf(st.due_tree, at, levels, now_s)
        elif lowest(st.flight_tree, at) <= now_s + TOLERANCE_S:
            leaf = first_leaf(st.flight_tree, at, levels, now_s + TOLERANCE_S)
        else:
            break
        slot = _slot_at(st, at, leaf)
        _in_flight(st, out, slot, now_s)
        show_in_flight(st, slot)
    slot = _slot_at(st, at, first_leaf(st.count_tree, at, levels, lowest(st.count_tree, at)))
    st.turn[slot] = st.counter[REQUEST]
    return int(slot)


@compiled
def _least_known_completion(st: Stage, out: Departures, now_s: float) -> int:
    """Return `_least_completion` if completions change over time, by asking every replica."""
    best = -1
    best_finish = INF
    best_open = False
    for a in range(st.counter[READY]):
        slot = st.ready[a]
        _start_if_due(st, out, slot, now_s)
        own = of_slot(st, slot)
        finish = _known_completion(st, slot, now_s)[0] + of_kind(st, own.kind).overhead_s
        if _better(finish, own.open_size > 0, slot, best_finish, best_open, best):
            best, best_finish, best_open = slot, finish, own.open_size > 0
    return best


@compiled
def _least_completion(st: Stage, out: Departures, now_s: float) -> int:
    kinds = st.kinds
    best = -1
    best_finish = INF
    best_open = False
    for a in range(st.counter[ACTIVE]):
        kind = kinds.active[a]
        row = of_kind(st, kind)
        at, levels, overhead = row.tree_at, row.tree_levels, row.overhead_s
        # With several workers a replica may become a better choice once its batch has started, because the next worker
        # is free.
        if row.workers > 1:
            while lowest(st.due_tree, at) <= now_s:
                slot = _slot_at(st, at, first_leaf(st.due_tree, at, levels, now_s))
                start_open(st, out, slot, of_slot(st, slot).open_start_s)
        window = row.window_s if row.n_batch > 1 else 0.0
        # Open batches. A key is never later than the truth, so the lowest key is the best replica if the key is exact
        # and the batch has not started yet. A key above the completion on a free replica is not looked up, because
        # descending a tree takes a fifth of a request's time.
        while True:
            free_finish = _start_s(lowest(st.free_tree, at), now_s, window) + batch_s(st, kind, 1) + overhead
            key = lowest(st.open_tree, at)
            if key == INF or key + overhead > min(best_finish, free_finish):
                break
            leaf = first_leaf(st.open_tree, at, levels, key)
            slot = _slot_at(st, at, leaf)
            if of_slot(st, slot).open_start_s <= now_s:
                start_open(st, out, slot, of_slot(st, slot).open_start_s)
                continue
            finish = _expected(st, slot, now_s)
            if finish > key:
                set_leaf(st.open_tree, at, leaf, finish)  # time passed; the new key is still never too late
                continue
            finish += overhead
            if _better(finish, True, slot, best_finish, best_open, best):
                best, best_finish, best_open = slot, finish, True
            break
        # All others: every replica free by the end of the window is equally good, so take the lowest id among them.
        if free_finish < INF and free_finish <= best_finish:
            limit = max(lowest(st.free_tree, at), now_s + window)
            slot = _slot_at(st, at, first_leaf(st.free_tree, at, levels, limit))
            if _better(free_finish, False, slot, best_finish, best_open, best):
                best, best_finish, best_open = slot, free_finish, False
    return best


@compiled
def choose(st: Stage, out: Departures, now_s: float, routing: int) -> int:
    """Return the replica that a request arriving now would go to; -1 without a ready one.

    Routing GATEWAY has `choose_learned`.
    """
    if routing == TWO_CHOICES:
        return _two_choices(st, out, now_s)
    if routing == FEWEST_IN_FLIGHT:
        return _fewest_in_flight(st, out, now_s)
    if routing == ALB:
        return _alb(st, out, now_s)
    if known.varies(st):
        return _least_known_completion(st, out, now_s)
    return _least_completion(st, out, now_s)


@compiled
def _known_squares_s2(st: Stage, slot: int, now_s: float) -> tuple[float, bool]:
    """Return the sum of squared mean times up to an arriving request's batch, and whether one of them waits.

    Call this after `_known_completion`.
    """
    own = of_slot(st, slot)
    kind, size = own.kind, own.open_size
    before, waits = known.closed_s2(st, slot, now_s)
    if size > 0 and known.queue_of(st, slot).joins == 0:
        before += batch_s(st, kind, size) ** 2
        size = 0
    return before / of_kind(st, kind).workers + batch_s(st, kind, size + 1) ** 2, waits


@compiled
def _known_latency_s(st: Stage, slot: int, now_s: float) -> float:
    """Return `expected_latency_s` for varying service times, without the overhead and the margin."""
    own = of_slot(st, slot)
    finish, waits = _known_completion(st, slot, now_s)
    full = batch_s(st, own.kind, of_kind(st, own.kind).n_batch)
    return finish - now_s + _reserve_s(waits, batch_s(st, own.kind, 1), full)


@compiled
def doubtful(st: Stage, slot: int, now_s: float, horizon_s: float) -> bool:
    """Return whether a request that the replica would admit should go to a function that is in time."""
    own = of_slot(st, slot)
    variation = st.kinds.variation[own.kind]
    if variation == 0.0:
        return False
    left = horizon_s - of_kind(st, own.kind).overhead_s
    expected = _known_latency_s(st, slot, now_s)
    probability = _in_time_probability(expected, _known_squares_s2(st, slot, now_s)[0], variation, left)
    one = batch_s(st, own.kind, 1)
    alone = _in_time_probability(one, one * one, variation, left)
    return bool(_doubtful(probability, alone, st.least[0]))


@compiled
def expected_latency_s(st: Stage, slot: int, now_s: float) -> float:
    """Return the latency that a bouncer assumes: as if a waiting batch that the request opens were full already."""
    own = of_slot(st, slot)
    row = of_kind(st, own.kind)
    if known.varies(st):
        latency = _known_latency_s(st, slot, now_s) + row.overhead_s
        variation = st.kinds.variation[own.kind]
        if variation == 0.0:
            return latency
        squares, waits = _known_squares_s2(st, slot, now_s)
        return latency + _margin_s(waits, squares, variation)
    latency = _expected(st, slot, now_s) + row.overhead_s - now_s
    if own.open_size == 0:
        waits = row.n_batch > 1 and (row.window_s > 0.0 or own.free_s > now_s)
        latency += _reserve_s(waits, batch_s(st, own.kind, 1), batch_s(st, own.kind, row.n_batch))
    return latency


@compiled
def settle(st: Stage, out: Departures, until_s: float) -> None:
    """Start every open batch that is due by `until_s`."""
    for a in range(st.counter[READY]):
        _start_if_due(st, out, st.ready[a], until_s)
