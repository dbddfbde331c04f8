"""The state of requests that may have two copies: the place of each copy, waiting and running batches, the next event.

Without second copies a closed batch is settled, and only the open one keeps its members. With second copies, a waiting
copy may be removed from a closed batch, so every batch keeps its members until it is answered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.kernel.arrays import INF, FaultState, Floats, FunctionPool, Ints, Stage
from mark.kernel.replica_faults import with_slots
from mark.kernel.tree import ROOT, first_leaf_of, levels_for, places_for, set_leaf

# Positions in Copies.number
NEXT, OLDEST, FREE, AGAIN, AGAIN_AT, GIVEN_UP, LEVELS, LEAF, STOPPED, HEDGES, WON, RETRIED = range(12)
# Positions in Copies.value
AFTER_S, BUDGET, AGAIN_S, WASTED_S = range(4)
# States of a copy
NOT_SENT, WAITING, RUNNING, CALLED, ENDED = range(5)
# Why the loop returned: all is done, the buffer of departures is full, or a request or batch finds no place
DONE, FULL, NO_ROOM = range(3)
# Leaves of `answer_tree` before the replicas' leaves, the first at LEAF: warm calls of functions, cold ones
CALLS = 2


class Copies(NamedTuple):
    """R places for requests, by number modulo R (a power of two); B batches; S slots, C most workers, N largest batch.

    A member of a batch is twice a request's number, plus one for the second copy.
    """

    number: Ints
    value: Floats
    arrival_s: Floats  # [R]
    answered: Ints  # [R] 1: answered or refused
    hedged: Ints  # [R] 1: the second copy was sent because the first took long
    slot: Ints  # [R, 2] where each copy went; -1: to no replica
    sent_s: Floats  # [R, 2] when
    state: Ints  # [R, 2]
    batch: Ints  # [R, 2] where it waits or runs
    again: Ints  # [R] requests that a crash left without a copy
    member: Ints  # [B, N]
    size: Ints  # [B] once it is closed
    kind: Ints  # [B] of its replica when it closed
    factor: Floats  # [B] of its service time, drawn when it closed
    ready_s: Floats  # [B] its earliest start
    start_s: Floats  # [B]
    took_s: Floats  # [B] at work
    answer_s: Floats  # [B] once it runs
    behind: Ints  # [B] the next one in its list, -1: none
    open_batch: Ints  # [S] -1: none
    opened_s: Floats  # [S] when it was opened
    first_waiting: Ints  # [S] closed and not started
    last_waiting: Ints  # [S]
    first_running: Ints  # [S, C] started and not answered
    last_running: Ints  # [S, C]
    free_s: Floats  # [S, C] when workers end their current batches; a replica's own `free_s` includes waiting batches
    faults: FaultState  # as far as batches have started; Stage.faults is as far as they are foreseen
    in_flight: Ints  # [S] copies of requests that are not answered
    start_tree: Floats  # by slot, when its next batch starts
    answer_tree: Floats  # when the next answer comes, of functions and by slot
    call: Ints  # [2, E] calls of functions, warm and cold: members as above
    call_start_s: Floats  # [2, E] when they began
    call_s: Floats  # [2, E] when they are answered
    calls: Ints  # [2, 2] place of the first, and their number


def copies_of(st: Stage, pool: FunctionPool, after_s: float, budget: float) -> Copies:
    """Return the state without requests; second copies are sent `after_s` after a request's arrival."""
    places = 64  # a power of two
    value = np.zeros(4)
    value[AFTER_S], value[BUDGET] = after_s, budget
    number = np.zeros(12, dtype=np.int64)
    number[FREE] = -1
    slots, workers = st.worker_free_s.shape
    found = Copies(
        number=number,
        value=value,
        arrival_s=np.zeros(places),
        answered=np.zeros(places, dtype=np.int64),
        hedged=np.zeros(places, dtype=np.int64),
        slot=np.full((places, 2), -1, dtype=np.int64),
        sent_s=np.zeros((places, 2)),
        state=np.zeros((places, 2), dtype=np.int64),
        batch=np.full((places, 2), -1, dtype=np.int64),
        again=np.zeros(places, dtype=np.int64),
        member=np.zeros((0, st.members.shape[1]), dtype=np.int64),
        size=np.zeros(0, dtype=np.int64),
        kind=np.zeros(0, dtype=np.int64),
        factor=np.zeros(0),
        ready_s=np.zeros(0),
        start_s=np.zeros(0),
        took_s=np.zeros(0),
        answer_s=np.zeros(0),
        behind=np.zeros(0, dtype=np.int64),
        open_batch=np.zeros(0, dtype=np.int64),
        opened_s=np.zeros(0),
        first_waiting=np.zeros(0, dtype=np.int64),
        last_waiting=np.zeros(0, dtype=np.int64),
        first_running=np.zeros((0, workers), dtype=np.int64),
        last_running=np.zeros((0, workers), dtype=np.int64),
        free_s=np.zeros((0, workers)),
        faults=st.faults,
        in_flight=np.zeros(0, dtype=np.int64),
        start_tree=np.zeros(0),
        answer_tree=np.zeros(0),
        call=np.zeros((2, pool.warm_end_s.shape[0]), dtype=np.int64),
        call_start_s=np.zeros((2, pool.warm_end_s.shape[0])),
        call_s=np.zeros((2, pool.warm_end_s.shape[0])),
        calls=np.zeros((2, 2), dtype=np.int64),
    )
    return with_replicas(with_batches(found, places), slots)


def with_replicas(copies: Copies, more: int) -> Copies:
    """Return the state with `more` additional empty replicas."""
    none = np.full(more, -1, dtype=np.int64)
    no_batch = np.full((more, copies.free_s.shape[1]), -1, dtype=np.int64)
    have = len(copies.open_batch)
    levels = levels_for(CALLS + have + more)
    trees = []
    for before in (copies.start_tree, copies.answer_tree):
        tree = np.full(places_for(levels), INF)
        if len(before):
            for leaf in range(CALLS + have):
                own_s = before[ROOT + copies.number[LEAF] + leaf]
                set_leaf(tree, ROOT, first_leaf_of(levels) + leaf, float(own_s))
        trees.append(tree)
    copies.number[LEVELS], copies.number[LEAF] = levels, first_leaf_of(levels)
    return copies._replace(
        open_batch=np.concatenate([copies.open_batch, none]),
        opened_s=np.concatenate([copies.opened_s, np.zeros(more)]),
        first_waiting=np.concatenate([copies.first_waiting, none]),
        last_waiting=np.concatenate([copies.last_waiting, none]),
        first_running=np.concatenate([copies.first_running, no_batch]),
        last_running=np.concatenate([copies.last_running, no_batch]),
        free_s=np.concatenate([copies.free_s, np.zeros((more, copies.free_s.shape[1]))]),
        faults=with_slots(copies.faults, more),
        in_flight=np.concatenate([copies.in_flight, np.zeros(more, dtype=np.int64)]),
        start_tree=trees[0],
        answer_tree=trees[1],
    )


def with_batches(copies: Copies, more: int) -> Copies:
    """Return the state with `more` additional places for batches."""
    have = len(copies.size)
    behind = np.arange(have + 1, have + more + 1, dtype=np.int64)
    behind[-1] = copies.number[FREE]
    copies.number[FREE] = have
    ints, floats = np.zeros(more, dtype=np.int64), np.zeros(more)
    return copies._replace(
        member=np.concatenate([copies.member, np.zeros((more, copies.member.shape[1]), dtype=np.int64)]),
        size=np.concatenate([copies.size, ints]),
        kind=np.concatenate([copies.kind, ints]),
        factor=np.concatenate([copies.factor, floats]),
        ready_s=np.concatenate([copies.ready_s, floats]),
        start_s=np.concatenate([copies.start_s, floats]),
        took_s=np.concatenate([copies.took_s, floats]),
        answer_s=np.concatenate([copies.answer_s, floats]),
        behind=np.concatenate([copies.behind, behind]),
    )


def with_requests(copies: Copies) -> Copies:
    """Return the state with twice as many places for requests."""
    places = len(copies.arrival_s)
    # Requests from OLDEST on are kept; each goes to its number modulo 2 R.
    numbers = copies.number[OLDEST] + np.arange(places)
    before, after = numbers % places, numbers % (2 * places)

    def spread(column: np.ndarray) -> np.ndarray:
        found = np.zeros((2 * places, *column.shape[1:]), dtype=column.dtype)
        found[after] = column[before]
        return found

    return copies._replace(
        arrival_s=spread(copies.arrival_s),
        answered=spread(copies.answered),
        hedged=spread(copies.hedged),
        slot=spread(copies.slot),
        sent_s=spread(copies.sent_s),
        state=spread(copies.state),
        batch=spread(copies.batch),
        again=np.concatenate([copies.again, np.zeros(places, dtype=np.int64)]),
    )
