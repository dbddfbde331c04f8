"""Second copies of requests that take long (Dean and Barroso, The Tail at Scale, CACM 2013), in compiled code.

The rules are the gateway's (docs/semantics.md, 19): a request that is not answered `hedge_after_s` after its arrival
gets a second copy on another replica, and the first answer wins; the other copy leaves its queue if it still waits.

A copy may leave a closed batch, so here batches start, and answers come, in order of time. Second copies are due in the
order of arrivals, so the two sequences are merged. Two trees hold each replica's next start and next answer. The
slots, `Stage.worker_free_s` and the routing trees hold the foreseen times, and `mark.kernel.known` the expected ones,
as without second copies. So the same functions admit requests, and route them unless routing counts those in flight.
"""

from __future__ import annotations

from mark.domain.rules import admission, batching, routing, second_attempts
from mark.kernel import function_environments, known, learned, loop, replica_faults
from mark.kernel.arrays import (
    CONCURRENCY,
    CROWDED,
    FEWEST_IN_FLIGHT,
    GATEWAY,
    INF,
    READY,
    REQUEST,
    THROTTLED,
    TICKED_S,
    WARM_S,
    FaultState,
    Floats,
    FunctionPool,
    Stage,
    StageRules,
)
from mark.kernel.compiled import compiled
from mark.kernel.copies import (
    AFTER_S,
    AGAIN,
    AGAIN_AT,
    AGAIN_S,
    BUDGET,
    CALLED,
    CALLS,
    DONE,
    ENDED,
    FREE,
    FULL,
    GIVEN_UP,
    HEDGES,
    LEAF,
    LEVELS,
    NEXT,
    NO_ROOM,
    NOT_SENT,
    OLDEST,
    RETRIED,
    RUNNING,
    STOPPED,
    WAITING,
    WASTED_S,
    WON,
    Copies,
)
from mark.kernel.departures import BY_FUNCTION, CHUNK, REFUSED, Departures, depart
from mark.kernel.records import batch_s, of_kind, of_member, of_slot
from mark.kernel.service_loop import earn_late, passed_on, queued_late
from mark.kernel.tree import ROOT, first_leaf, set_leaf

_destination = compiled(admission.destination)
_in_time = compiled(admission.in_time)
_start_s = compiled(batching.start_s)
_better = compiled(routing.better)
_grown = compiled(second_attempts.grown)
_FUNCTION = admission.FUNCTION


# -- replicas ----------------------------------------------------------------------------------------------------------


@compiled
def _show(st: Stage, slot: int) -> None:
    """Update a replica's leaves in the routing trees."""
    own = of_slot(st, slot)
    kind, leaf = own.kind, own.leaf
    if leaf < 0 or known.varies(st):
        return
    at = of_kind(st, kind).tree_at
    if own.open_size > 0:
        set_leaf(st.free_tree, at, leaf, INF)
        set_leaf(st.open_tree, at, leaf, loop.open_key(st, slot, kind))
        if of_kind(st, kind).workers > 1:
            set_leaf(st.due_tree, at, leaf, own.open_start_s)
    else:
        set_leaf(st.open_tree, at, leaf, INF)
        set_leaf(st.due_tree, at, leaf, INF)
        loop.show_free(st, slot, kind)


@compiled
def _hide(st: Stage, slot: int) -> int:
    """Exclude the replica from routing until `_unhide`, and return its place among the ready ones, or -1."""
    leaf = of_slot(st, slot).leaf
    if leaf >= 0:
        at = of_kind(st, of_slot(st, slot).kind).tree_at
        set_leaf(st.free_tree, at, leaf, INF)
        set_leaf(st.open_tree, at, leaf, INF)
        set_leaf(st.due_tree, at, leaf, INF)
    ready = st.counter[READY]
    for place in range(ready):
        if st.ready[place] == slot:
            for other in range(place, ready - 1):
                st.ready[other] = st.ready[other + 1]
            st.counter[READY] = ready - 1
            return place
    return -1


@compiled
def _unhide(st: Stage, slot: int, place: int) -> None:
    if place >= 0:
        for other in range(st.counter[READY], place, -1):
            st.ready[other] = st.ready[other - 1]
        st.ready[place] = slot
        st.counter[READY] += 1
    _show(st, slot)


@compiled
def _plan_start(st: Stage, cp: Copies, slot: int) -> None:
    """Set the time when the replica's next batch starts."""
    start = INF
    batch = cp.first_waiting[slot]
    if batch >= 0:
        worker = loop.earliest(cp.free_s, slot, of_kind(st, of_slot(st, slot).kind).workers)
        start = max(cp.free_s[slot, worker], cp.ready_s[batch])
    elif of_slot(st, slot).open_size > 0:
        start = of_slot(st, slot).open_start_s
    set_leaf(cp.start_tree, ROOT, cp.number[LEAF] + CALLS + slot, start)


@compiled
def _answers_next(st: Stage, cp: Copies, slot: int) -> int:
    """Return the worker whose batch is answered next, or -1."""
    best = -1
    for worker in range(of_kind(st, of_slot(st, slot).kind).workers):
        batch = cp.first_running[slot, worker]
        if batch >= 0 and (best < 0 or cp.answer_s[batch] < cp.answer_s[cp.first_running[slot, best]]):
            best = worker
    return best


@compiled
def _plan_answer(st: Stage, cp: Copies, slot: int) -> None:
    worker = _answers_next(st, cp, slot)
    answer = INF if worker < 0 else cp.answer_s[cp.first_running[slot, worker]]
    set_leaf(cp.answer_tree, ROOT, cp.number[LEAF] + CALLS + slot, answer)


@compiled
def _plan_call(cp: Copies, ring: int) -> None:
    mask = cp.call.shape[1] - 1
    answer = cp.call_s[ring, cp.calls[ring, 0] & mask] if cp.calls[ring, 1] > 0 else INF
    set_leaf(cp.answer_tree, ROOT, cp.number[LEAF] + ring, answer)


@compiled
def _free(cp: Copies, batch: int) -> None:
    """Release the place of a batch."""
    cp.behind[batch] = cp.number[FREE]
    cp.number[FREE] = batch


@compiled
def _play(st: Stage, cp: Copies, fs: FaultState, free_s: Floats, slot: int, batch: int) -> int:
    """Let the first free worker in `free_s` run a closed batch, and return that worker."""
    kind = cp.kind[batch]
    worker = loop.earliest(free_s, slot, of_kind(st, kind).workers)
    start = max(free_s[slot, worker], cp.ready_s[batch])
    service = batch_s(st, kind, cp.size[batch]) * cp.factor[batch]
    if loop.may_fail(st):
        start = replica_faults.begins_s(fs, slot, start)
        service = replica_faults.takes_s(fs, slot, start, service)
    cp.start_s[batch] = start
    cp.took_s[batch] = service
    free_s[slot, worker] = start + service
    return worker


@compiled
def _foresee_free(st: Stage, slot: int) -> None:
    """Set the slot's `free_s` from `worker_free_s`, which this module also uses for a single worker."""
    free_s, own = st.worker_free_s, of_slot(st, slot)
    own.free_s = free_s[slot, loop.earliest(free_s, slot, of_kind(st, own.kind).workers)]


@compiled
def _foresee(st: Stage, cp: Copies, slot: int) -> None:
    """Compute all waiting batches again, after copies have left the queue."""
    kind = of_slot(st, slot).kind
    for worker in range(of_kind(st, kind).workers):
        st.worker_free_s[slot, worker] = cp.free_s[slot, worker]
    if loop.may_fail(st):
        foreseen, begun = st.faults, cp.faults
        foreseen.slow[slot] = begun.slow[slot]
        foreseen.slow_until_s[slot] = begun.slow_until_s[slot]
        foreseen.slow_drawn[slot] = begun.slow_drawn[slot]
        foreseen.hang_s[slot] = begun.hang_s[slot]
        foreseen.hangs_drawn[slot] = begun.hangs_drawn[slot]
    if known.varies(st):
        known.forget_waiting(st, slot)
    batch = cp.first_waiting[slot]
    while batch >= 0:
        _play(st, cp, st.faults, st.worker_free_s, slot, batch)
        if known.varies(st):
            known.close(st, slot, INF, INF, batch_s(st, cp.kind[batch], cp.size[batch]))
        batch = cp.behind[batch]
    _foresee_free(st, slot)
    if of_slot(st, slot).open_size > 0:
        free = of_slot(st, slot).free_s
        of_slot(st, slot).open_start_s = _start_s(free, cp.opened_s[slot], of_kind(st, kind).window_s)


@compiled
def close(st: Stage, cp: Copies, slot: int, ready_s: float) -> None:
    """Close the open batch. It starts at `ready_s`, or later, when a worker is free."""
    batch = cp.open_batch[slot]
    kind = of_slot(st, slot).kind
    cp.size[batch] = of_slot(st, slot).open_size
    cp.kind[batch] = kind
    cp.factor[batch] = 1.0
    if known.varies(st):
        cp.factor[batch] = known.next_factor(st, slot)
        known.close(st, slot, INF, INF, batch_s(st, kind, cp.size[batch]))
    cp.ready_s[batch] = ready_s
    cp.behind[batch] = -1
    if cp.last_waiting[slot] >= 0:
        cp.behind[cp.last_waiting[slot]] = batch
    else:
        cp.first_waiting[slot] = batch
    cp.last_waiting[slot] = batch
    cp.open_batch[slot] = -1
    of_slot(st, slot).open_size = 0
    _play(st, cp, st.faults, st.worker_free_s, slot, batch)
    _foresee_free(st, slot)
    _show(st, slot)
    _plan_start(st, cp, slot)


@compiled
def _queue(st: Stage, cp: Copies, slot: int, now_s: float, member: int, promise_s: float) -> None:
    """Add an admitted copy to the open batch, or open one."""
    kind = of_slot(st, slot).kind
    full = of_kind(st, kind).n_batch
    varies = known.varies(st)
    if varies and of_slot(st, slot).open_size > 0 and known.queue_of(st, slot).joins == 0:
        close(st, cp, slot, now_s)
    size = of_slot(st, slot).open_size
    if size == 0:
        if varies:
            known.queue_of(st, slot).opened_s = now_s
        batch = cp.number[FREE]
        cp.number[FREE] = cp.behind[batch]
        cp.open_batch[slot] = batch
        cp.opened_s[slot] = now_s
        free = of_slot(st, slot).free_s
        of_slot(st, slot).open_start_s = _start_s(free, now_s, of_kind(st, kind).window_s if full > 1 else 0.0)
    batch = cp.open_batch[slot]
    place, copy = _place_of(cp, member)
    cp.batch[place, copy] = batch
    cp.member[batch, size] = member
    of_member(st, slot, size).arrival_s = now_s
    of_member(st, slot, size).promise_s = promise_s
    size += 1
    of_slot(st, slot).open_size = size
    start = loop.expected_start_s(st, slot, now_s) if varies else of_slot(st, slot).open_start_s
    if of_slot(st, slot).open_start_s > now_s and loop.takes_another(st, slot, kind, size, start, False):
        _show(st, slot)
        _plan_start(st, cp, slot)
    else:
        close(st, cp, slot, now_s)


@compiled
def _start(st: Stage, cp: Copies, slot: int) -> None:
    """Start the next batch of a replica. From then on no copy leaves it."""
    if cp.first_waiting[slot] < 0:
        close(st, cp, slot, of_slot(st, slot).open_start_s)
    batch = cp.first_waiting[slot]
    cp.first_waiting[slot] = cp.behind[batch]
    if cp.behind[batch] < 0:
        cp.last_waiting[slot] = -1
    cp.behind[batch] = -1
    worker = loop.earliest(cp.free_s, slot, of_kind(st, of_slot(st, slot).kind).workers)
    given = max(cp.free_s[slot, worker], cp.ready_s[batch])
    _play(st, cp, cp.faults, cp.free_s, slot, batch)
    if known.varies(st):
        known.begin(st, slot, given, cp.free_s[slot, worker])
    cp.answer_s[batch] = cp.free_s[slot, worker] + of_kind(st, cp.kind[batch]).overhead_s
    if loop.may_fail(st):
        cp.answer_s[batch] += replica_faults.answers_later_s(cp.faults, slot)
        cp.took_s[batch] = replica_faults.works_s(st.faults, slot, cp.start_s[batch], cp.took_s[batch])
    of_slot(st, slot).busy_s += cp.took_s[batch]
    for at in range(cp.size[batch]):
        place, copy = _place_of(cp, cp.member[batch, at])
        cp.state[place, copy] = RUNNING
    _run(cp, slot, worker, batch)
    if cp.first_running[slot, worker] == batch:
        _plan_answer(st, cp, slot)
    _plan_start(st, cp, slot)


@compiled
def _run(cp: Copies, slot: int, worker: int, batch: int) -> None:
    """Insert a started batch into its worker's list by answer time, because answers may be delayed."""
    last = cp.last_running[slot, worker]
    if last >= 0 and cp.answer_s[last] <= cp.answer_s[batch]:
        cp.behind[last] = batch
        cp.last_running[slot, worker] = batch
        return
    before = -1
    one = cp.first_running[slot, worker]
    while one >= 0 and cp.answer_s[one] <= cp.answer_s[batch]:
        before = one
        one = cp.behind[one]
    cp.behind[batch] = one
    if before < 0:
        cp.first_running[slot, worker] = batch
    else:
        cp.behind[before] = batch
    if one < 0:
        cp.last_running[slot, worker] = batch


# -- requests ----------------------------------------------------------------------------------------------------------


@compiled
def _place_of(cp: Copies, member: int) -> tuple[int, int]:
    """Return where a member's request is kept, and which copy it is."""
    return (member >> 1) & (cp.arrival_s.shape[0] - 1), member & 1


@compiled
def _is_open(cp: Copies, place: int, copy: int) -> bool:
    """Return whether this copy may still answer."""
    state = cp.state[place, copy]
    return bool(state != NOT_SENT and state != ENDED)


@compiled
def _cancel(st: Stage, cp: Copies, member: int) -> None:
    """Remove a waiting copy from its batch, which stays open or closed unless empty."""
    place, copy = _place_of(cp, member)
    slot, batch = cp.slot[place, copy], cp.batch[place, copy]
    cp.state[place, copy] = ENDED
    is_open = cp.open_batch[slot] == batch
    size = (of_slot(st, slot).open_size if is_open else cp.size[batch]) - 1
    at = 0
    while cp.member[batch, at] != member:
        at += 1
    for i in range(at, size):
        cp.member[batch, i] = cp.member[batch, i + 1]
        if is_open:
            of_member(st, slot, i).arrival_s = of_member(st, slot, i + 1).arrival_s
            of_member(st, slot, i).promise_s = of_member(st, slot, i + 1).promise_s
    if is_open:
        of_slot(st, slot).open_size = size
        if size == 0:
            cp.open_batch[slot] = -1
            _free(cp, batch)
    else:
        cp.size[batch] = size
        if size == 0:
            _unlink(cp, slot, batch)
            _free(cp, batch)
        _foresee(st, cp, slot)
    _show(st, slot)
    _plan_start(st, cp, slot)


@compiled
def _unlink(cp: Copies, slot: int, batch: int) -> None:
    """Remove a batch from the waiting ones."""
    before = -1
    one = cp.first_waiting[slot]
    while one != batch:
        before = one
        one = cp.behind[one]
    if before < 0:
        cp.first_waiting[slot] = cp.behind[batch]
    else:
        cp.behind[before] = cp.behind[batch]
    if cp.last_waiting[slot] == batch:
        cp.last_waiting[slot] = before


@compiled
def _answered(st: Stage, cp: Copies, out: Departures, member: int, start_s: float, answer_s: float, shown: int) -> bool:
    """Note the answer of a copy; return False if the request had its answer already."""
    place, copy = _place_of(cp, member)
    cp.state[place, copy] = ENDED
    if cp.answered[place] > 0:
        return False
    arrival = cp.arrival_s[place]
    depart(out, member >> 1, arrival, start_s, answer_s, answer_s - arrival, shown)
    cp.answered[place] = 1
    if copy == 1:
        cp.number[WON] += cp.hedged[place]
    slot = cp.slot[place, copy]
    cp.in_flight[slot] -= 1
    if learned.learns(st):
        learned.learn(st, slot, answer_s - cp.sent_s[place, copy], answer_s)
        learned.of_replica(st, slot).answers += 1
    other = 1 - copy
    if _is_open(cp, place, other):
        cp.in_flight[cp.slot[place, other]] -= 1
        if learned.learns(st):
            learned.outrun(st, cp.slot[place, other], cp.sent_s[place, other], answer_s)
        if cp.state[place, other] == WAITING:
            _cancel(st, cp, member ^ 1)
    return True


@compiled
def _answer(st: Stage, cp: Copies, out: Departures, slot: int) -> None:
    """Answer the next batch of a replica."""
    worker = _answers_next(st, cp, slot)
    batch = cp.first_running[slot, worker]
    cp.first_running[slot, worker] = cp.behind[batch]
    if cp.behind[batch] < 0:
        cp.last_running[slot, worker] = -1
    size = cp.size[batch]
    unused = 0
    for at in range(size):
        if not _answered(st, cp, out, cp.member[batch, at], cp.start_s[batch], cp.answer_s[batch], slot):
            unused += 1
    cp.value[WASTED_S] += cp.took_s[batch] * unused / size
    _free(cp, batch)
    _plan_answer(st, cp, slot)


@compiled
def _answer_call(st: Stage, cp: Copies, out: Departures, ring: int) -> None:
    """Answer the next call of a function."""
    at = cp.calls[ring, 0] & (cp.call.shape[1] - 1)
    cp.calls[ring, 0] += 1
    cp.calls[ring, 1] -= 1
    _answered(st, cp, out, cp.call[ring, at], cp.call_start_s[ring, at], cp.call_s[ring, at], BY_FUNCTION)
    _plan_call(cp, ring)


@compiled
def _until(st: Stage, cp: Copies, out: Departures, until_s: float) -> bool:
    """Process answers and starts up to `until_s` in order of time; return False if the buffer is full.

    At one moment answers come before starts, so that a cancelled copy does not start. Among answers, functions' warm
    calls come first, then cold ones, then replicas by number.
    """
    levels, leaf = cp.number[LEVELS], cp.number[LEAF]
    while out.rows[0] < CHUNK:
        answer, start = cp.answer_tree[ROOT], cp.start_tree[ROOT]
        first = min(answer, start)
        if first > until_s or first == INF:
            return True
        if answer <= start:
            whose = first_leaf(cp.answer_tree, ROOT, levels, answer) - leaf
            if whose < CALLS:
                _answer_call(st, cp, out, whose)
            else:
                _answer(st, cp, out, whose - CALLS)
        else:
            _start(st, cp, first_leaf(cp.start_tree, ROOT, levels, start) - leaf - CALLS)
    return False


@compiled
def flush(st: Stage, cp: Copies, out: Departures, slot: int) -> bool:
    """Answer all copies of a replica as foreseen, ahead of the clock; return False if the buffer is full."""
    while out.rows[0] < CHUNK:
        worker = _answers_next(st, cp, slot)
        if worker >= 0:
            _answer(st, cp, out, slot)
        elif cp.first_waiting[slot] >= 0 or of_slot(st, slot).open_size > 0:
            _start(st, cp, slot)
        else:
            return True
    return False


@compiled
def lose(st: Stage, cp: Copies, slot: int) -> int:
    """Remove all unanswered copies of a drained replica that crashes.

    Fill `again` with the requests that no other copy may answer, and return their number.
    """
    count = 0
    for list_of in range(cp.free_s.shape[1] + 1):
        waits = list_of == cp.free_s.shape[1]
        batch = cp.first_waiting[slot] if waits else cp.first_running[slot, list_of]
        while batch >= 0:
            for at in range(cp.size[batch]):
                member = cp.member[batch, at]
                place, copy = _place_of(cp, member)
                cp.state[place, copy] = ENDED
                if cp.answered[place] == 0:
                    cp.in_flight[slot] -= 1
                    if not _is_open(cp, place, 1 - copy):
                        cp.again[count] = member >> 1
                        count += 1
            behind = cp.behind[batch]
            _free(cp, batch)
            batch = behind
        if waits:
            cp.first_waiting[slot] = -1
            cp.last_waiting[slot] = -1
        else:
            cp.first_running[slot, list_of] = -1
            cp.last_running[slot, list_of] = -1
    _foresee(st, cp, slot)
    _plan_answer(st, cp, slot)
    _plan_start(st, cp, slot)
    return count


# -- sending -----------------------------------------------------------------------------------------------------------


@compiled
def _fewest_in_flight(st: Stage, cp: Copies) -> int:
    """Return the choice of `loop._fewest_in_flight`, by `Copies.in_flight`."""
    best = -1
    best_s = INF
    for at in range(st.counter[READY]):
        slot = st.ready[at]
        kind = of_slot(st, slot).kind
        full = of_kind(st, kind).n_batch
        each_s = batch_s(st, kind, full) / (full * of_kind(st, kind).workers)
        work_s = each_s * (cp.in_flight[slot] + 1)
        if _better(work_s, False, slot, best_s, False, best):
            best, best_s = slot, work_s
    return best


@compiled
def _learned_completion(st: Stage, cp: Copies, now_s: float, besides: int) -> int:
    """Return the choice of `loop._learned_completion`, by `Copies.in_flight`."""
    best = -1
    best_s = INF
    for at in range(st.counter[READY]):
        slot = st.ready[at]
        finish_s = learned.expected(st, slot, cp.in_flight[slot], now_s)
        if slot != besides and _better(finish_s, False, slot, best_s, False, best):
            best, best_s = slot, finish_s
    return best


@compiled
def _reach(st: Stage, cp: Copies, out: Departures, until_s: float) -> bool:
    """Process answers and starts up to `until_s`, and let a gateway forget at its ticks; False if the buffer is full.

    At an infinite time nothing is sent, so there are no ticks.
    """
    while True:
        ticks = learned.learns(st) and learned.next_tick_s(st) <= until_s < INF
        tick_s = learned.next_tick_s(st) if ticks else until_s
        if not _until(st, cp, out, tick_s):
            return False
        if not ticks:
            return True
        best_s = learned.best_seen_s(st)
        idle = best_s == INF
        for at in range(st.counter[READY]):
            in_flight = cp.in_flight[st.ready[at]]
            idle = idle and in_flight == 0
            learned.forget(st, st.ready[at], in_flight, best_s, tick_s)
        st.gateway[TICKED_S] = tick_s
        if idle:
            learned.skip_ticks(st, until_s)


@compiled
def _another(st: Stage, cp: Copies, slot: int, now_s: float, retries: bool) -> int:
    """Let a gateway avoid a replica whose bouncer refused; return another one for a second attempt, or -1."""
    learned.refused(st, slot, now_s)
    if not retries or cp.value[BUDGET] < 1.0:
        return -1
    other = _learned_completion(st, cp, now_s, slot)
    if other < 0 or learned.of_replica(st, other).avoid_until_s > now_s:
        return -1
    cp.value[BUDGET] -= 1.0
    return other


@compiled
def _send(
    st: Stage,
    cp: Copies,
    pool: FunctionPool,
    out: Departures,
    member: int,
    hedges: bool,
    now_s: float,
    limit_s: float,
    rules: StageRules,
) -> None:
    """Send a copy to the replica that routing chooses now or to a function, or refuse it."""
    routing, bouncers, late, late_share = rules
    place, copy = _place_of(cp, member)
    besides = cp.slot[place, 0] if hedges else -1
    if routing == GATEWAY:
        slot = _learned_completion(st, cp, now_s, besides)
        if (
            hedges
            and slot >= 0
            and not learned.overtakes(st, slot, cp.in_flight[slot], besides, cp.sent_s[place, 0], now_s)
        ):
            return
    else:
        hidden = _hide(st, besides) if hedges else -1
        slot = _fewest_in_flight(st, cp) if routing == FEWEST_IN_FLIGHT else loop.choose(st, out, now_s, routing)
        if hedges:
            _unhide(st, besides, hidden)
    if hedges:
        if slot < 0:
            return
        cp.hedged[place] = 1
        cp.number[HEDGES] += 1
        cp.value[BUDGET] -= 1.0
    while True:
        latency = INF
        horizon = limit_s
        if slot >= 0:
            latency = loop.expected_latency_s(st, slot, now_s)
            horizon = min(limit_s, of_kind(st, of_slot(st, slot).kind).horizon_s)
            earn_late(st, slot, late_share)
            if passed_on(st, pool, slot, now_s, latency, horizon):
                latency = INF
        cp.slot[place, copy] = slot
        cp.sent_s[place, copy] = now_s
        admitted = slot >= 0 and (not bouncers or _in_time(latency, horizon))
        promise = horizon if bouncers else INF
        function = INF
        if not admitted:
            function = function_environments.latency_s(pool, now_s)
            warm = min(function, pool.value[WARM_S]) if function < INF else INF
            if _destination(latency, warm, horizon, late) == _FUNCTION:
                admitted, promise = queued_late(st, slot, latency, warm, horizon, late_share), INF
                if not admitted:
                    break
        if admitted:
            cp.state[place, copy] = WAITING
            cp.in_flight[slot] += 1
            _queue(st, cp, slot, now_s, member, promise)
            return
        cp.state[place, copy] = ENDED
        if routing == GATEWAY and slot >= 0:
            other = _another(st, cp, slot, now_s, copy == 0)
            if other >= 0:
                slot, copy = other, 1
                member += 1
                continue
        if pool.value[CONCURRENCY] > 0.0 and function == INF:
            pool.number[THROTTLED] += 1
        if not hedges:
            cp.answered[place] = 1
            arrival = cp.arrival_s[place]
            depart(out, member >> 1, arrival, now_s, INF, INF, REFUSED)
        return
    arrival = cp.arrival_s[place]
    function_environments.begin(pool, now_s)
    answer = now_s + function
    if slot < 0:  # no replica is ready, so no second copy follows
        cp.state[place, copy] = ENDED
        cp.answered[place] = 1
        depart(out, member >> 1, arrival, now_s, answer, answer - arrival, BY_FUNCTION)
        return
    cp.state[place, copy] = CALLED
    cp.in_flight[slot] += 1
    ring = 0 if function <= pool.value[WARM_S] else 1
    at = (cp.calls[ring, 0] + cp.calls[ring, 1]) & (cp.call.shape[1] - 1)
    cp.calls[ring, 1] += 1
    cp.call[ring, at] = member
    cp.call_start_s[ring, at] = now_s
    cp.call_s[ring, at] = answer
    _plan_call(cp, ring)


@compiled
def _due_s(st: Stage, cp: Copies) -> float:
    """Return when a second copy is due next if no answer comes first; set `NEXT` to its request."""
    number = cp.number
    mask = cp.arrival_s.shape[0] - 1
    while number[NEXT] < st.counter[REQUEST]:
        place = number[NEXT] & mask
        if cp.answered[place] == 0 and cp.state[place, 1] == NOT_SENT and cp.slot[place, 0] >= 0:
            return cp.arrival_s[place] + cp.value[AFTER_S]
        number[NEXT] += 1
    return INF


@compiled
def _has_room(st: Stage, cp: Copies) -> bool:
    """Return whether there is a place for one more request."""
    number = cp.number
    places = cp.arrival_s.shape[0]
    if st.counter[REQUEST] - number[OLDEST] < places:
        return True
    while number[OLDEST] < number[NEXT]:
        place = number[OLDEST] & (places - 1)
        if cp.answered[place] == 0 or _is_open(cp, place, 0) or _is_open(cp, place, 1):
            break
        number[OLDEST] += 1
    return bool(st.counter[REQUEST] - number[OLDEST] < places)


@compiled
def advance(
    st: Stage,
    cp: Copies,
    pool: FunctionPool,
    out: Departures,
    arrivals_s: Floats,
    first: int,
    until_s: float,
    last: bool,
    limit_s: float,
    rules: StageRules,
) -> int:
    """Simulate arrivals [first, ...) before `until_s`, and second copies; return the position of the next arrival.

    With `last` no other arrival comes before `until_s`. Otherwise simulation ends at the last of these arrivals.
    Requests retried after a crash are sent first. `Copies.number[STOPPED]` is the reason for returning.
    """
    number, value = cp.number, cp.value
    mask = cp.arrival_s.shape[0] - 1
    i = first
    end = arrivals_s.shape[0]
    number[STOPPED] = DONE
    while True:
        again = number[AGAIN_AT] < number[AGAIN]
        arrival = arrivals_s[i] if i < end else INF
        due = _due_s(st, cp)
        now = value[AGAIN_S] if again else min(due, arrival)
        if i == end and not last and not again:
            return i
        stop = not again and (now >= until_s or now == INF)
        if not _reach(st, cp, out, min(now, until_s)):
            number[STOPPED] = FULL
            return i
        if stop:
            return i
        crowded = st.counter[CROWDED] > 0
        if crowded or number[FREE] < 0 or (not again and arrival < due and not _has_room(st, cp)):
            number[STOPPED] = NO_ROOM
            return i
        hedges = False
        if again:
            request = cp.again[number[AGAIN_AT]]
            number[AGAIN_AT] += 1
            if cp.state[request & mask, 1] != NOT_SENT or value[BUDGET] < 1.0:
                cp.again[number[GIVEN_UP]] = request
                number[GIVEN_UP] += 1
                continue
            value[BUDGET] -= 1.0
            number[RETRIED] += 1
            member = 2 * request + 1
        elif due <= arrival:
            request = number[NEXT]
            number[NEXT] += 1
            if cp.answered[request & mask] > 0 or value[BUDGET] < 1.0:
                continue
            hedges = True
            member = 2 * request + 1
        else:
            i += 1
            request = st.counter[REQUEST]
            st.counter[REQUEST] = request + 1
            place = request & mask
            cp.arrival_s[place] = arrival
            cp.answered[place] = 0
            cp.hedged[place] = 0
            cp.state[place, 0] = NOT_SENT
            cp.state[place, 1] = NOT_SENT
            cp.slot[place, 0] = -1
            cp.slot[place, 1] = -1
            value[BUDGET] = _grown(value[BUDGET], 1)
            member = 2 * request
        _send(st, cp, pool, out, member, hedges, now, limit_s, rules)
