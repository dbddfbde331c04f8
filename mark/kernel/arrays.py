"""The kernel's state: only flat arrays, so that compiled code can pass them around at no cost.

The fields of a replica that every request needs lie together, in 64 bytes; likewise those of a kind.

A *stage* is a set of replicas behind one queue discipline. A *kind* is the shared data of replicas (service times by
batch size, batch policy, overhead); a *slot* is one replica. Slots of a kind are the leaves of tournament trees:
`open_tree` holds the completion of a newcomer in a replica with an open batch (never later than the truth), `free_tree`
the time at which the earliest worker of every other replica is free, and `due_tree`, for kinds with several workers,
when open batches start. They find the best replica in O(log n). With routing ALB the kinds of a *capacity class* share
their trees, and `count_tree` and `flight_tree` find the replica with the fewest requests in flight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = NDArray[np.void]

INF = np.inf

# Values of `routing`
LEAST_COMPLETION, TWO_CHOICES, FEWEST_IN_FLIGHT, ALB, GATEWAY = range(5)
# Positions in Stage.counter
ACTIVE, READY, RANDOM, REQUEST, CROWDED = range(5)
# Positions in Stage.gateway
TICKED_S, BUDGET = range(2)
# Positions in FunctionPool.number
IDLE_FIRST, IDLE_COUNT, WARM_FIRST, WARM_COUNT, COLD_FIRST, COLD_COUNT = range(6)
WARM_CALLS, COLD_CALLS, PINGS, THROTTLED, KEPT = range(6, 11)
# Positions in FunctionPool.value
WARM_S, COLD_S, KEEP_ALIVE_S, TOKENS, TOKENS_AT_S, TOKENS_MAX, TOKENS_PER_S, CONCURRENCY, REFRESH_S = range(9)

KIND = np.dtype(
    [
        ("n_batch", np.int64),
        ("window_s", np.float64),
        ("workers", np.int64),
        ("overhead_s", np.float64),
        ("sigma", np.float64),  # log standard deviation; 0 deterministic, -1 exponential (tests)
        ("horizon_s", np.float64),  # the longest latency that a bouncer promises
        ("tree_at", np.int64),  # the roots of a kind's trees
        ("tree_levels", np.int64),  # see mark.kernel.tree
    ]
)
SLOT = np.dtype(
    [
        ("kind", np.int64),
        ("leaf", np.int64),  # its place in the trees; -1: not ready
        ("free_s", np.float64),  # when the first free worker has done all closed batches
        ("open_size", np.int64),
        ("open_start_s", np.float64),
        ("busy_s", np.float64),
        ("flight_count", np.int64),  # outstanding answers, if routing counts requests in flight
        ("flight_next_s", np.float64),  # when the first of them comes
    ]
)
MEMBER = np.dtype(
    [
        ("arrival_s", np.float64),
        ("promise_s", np.float64),  # promised latency of the answer; infinite: none
        ("request", np.int64),
    ]
)
# A bouncer's knowledge of a replica whose service times vary (mark.kernel.known)
QUEUE = np.dtype(
    [
        ("first", np.int64),  # place of its oldest batch
        ("count", np.int64),  # closed batches that may not have ended
        ("behind_s", np.float64),  # mean service of all of them but the first
        ("opened_s", np.float64),  # arrival of the first request in the open batch
        ("open_start_s", np.float64),  # expected start when a request last joined the open batch
        ("joins", np.int64),  # 0: the last considered request opens a batch behind the open one
        ("closed", np.int64),  # number of batches ever closed
    ]
)
BATCH = np.dtype(
    [
        ("given_s", np.float64),  # when a worker gets it; the bouncer learns of it then
        ("end_s", np.float64),  # when the worker is free again; likewise
        ("mean_s", np.float64),
    ]
)
# A gateway's knowledge of a replica (mark.kernel.learned)
LEARNED = np.dtype(
    [
        ("response_s", np.float64),
        ("seen_s", np.float64),  # time of its last answer
        ("avoid_until_s", np.float64),
        ("answers", np.int64),
    ]
)


class Kinds(NamedTuple):
    """The shared data of replicas, by kind; K kinds, N largest batch."""

    rows: Records  # [K] of KIND
    service_s: Floats  # [K, N+1]
    variation: Floats  # [K] squared coefficient of variation of service
    active: Ints  # [K] kinds that have ready replicas, the first counter[ACTIVE] entries


class StageRules(NamedTuple):
    """How a stage routes and admits requests."""

    routing: int
    bouncers: bool
    late: int  # destination of requests that are late everywhere (`mark.domain.rules.admission`)
    late_share: float  # requests that a replica may queue late, per request; 0: none


class ArrivalTimes(NamedTuple):
    """Requests, by arrival; n of them."""

    times_s: Floats  # [n], ascending
    limit_s: Floats  # [n], or [1] for all: the latency that each is admitted for
    mixed: bool  # whether each has its own limit


class Classes(NamedTuple):
    """Target groups of a balancer, by capacity class; G of them, 0 unless routing is ALB."""

    weight: Ints  # [G] 0 without a ready replica
    tree_at: Ints  # [G] where the trees of its kinds begin
    tree_levels: Ints  # [G]


class FaultState(NamedTuple):
    """The random faults of replicas, see mark.kernel.replica_faults; all empty without faults."""

    value: Floats  # [8]
    key: Ints  # [3] key of the draws: the seed, the number of replicas in a host group, and the seed of faults
    slow: Ints  # [S] 1 in a slow period
    slow_until_s: Floats  # [S] end of the period in which the last batch began
    slow_drawn: Ints  # [S]
    hang_s: Floats  # [S] begin of the last hang that was drawn
    hangs_drawn: Ints  # [S]
    crash_s: Floats  # [S] infinite: it does not crash


class Stage(NamedTuple):
    """One stage; shapes in brackets: K kinds, S slots, N largest batch, C most workers, L leaves."""

    kinds: Kinds
    classes: Classes
    slots: Records  # [S] of SLOT
    worker_free_s: Floats  # [S, C] of replicas with several workers
    members: Records  # [S, N] of MEMBER, the open batch
    ready: Ints  # [S] ready slots, the first counter[READY] entries
    # [S, F] outstanding answers, by routing GATEWAY in order; F is 0 unless routing counts requests in flight
    flight_s: Floats
    sent_s: Floats  # [S, F] when their requests were sent; F is 0 unless routing is GATEWAY
    turn: Ints  # [S] of the last request that a balancer sent there, by routing ALB only
    open_tree: Floats  # [L]
    free_tree: Floats  # [L]
    due_tree: Floats  # [L]
    count_tree: Floats  # [L] in flight, then the turn
    flight_tree: Floats  # [L] when the next answer comes
    leaf_slot: Ints  # [L]
    counter: Ints
    faults: FaultState
    queues: Records  # [S] of QUEUE; empty if every batch takes as long as predicted
    batches: Records  # [S, Q] of BATCH, rings of the closed batches; Q is a power of two, or 0 as above
    played_s: Floats  # [C] scratch space for playing closed batches through
    gateway: Floats  # [2] when it last forgot, its budget of second attempts; empty unless routing is GATEWAY
    learned: Records  # [S] of LEARNED; empty as above
    late_left: Floats  # [S] late requests that a replica may still queue
    least: Floats  # [1] probability of being in time below which a function that is in time gets a request; 0: never


class FunctionPool(NamedTuple):
    """The function's environments: idle ones in a ring ordered by idle-since, busy ones in two rings ordered by end.

    Warm and cold calls have one length each, so each ring stays in order.
    """

    number: Ints
    value: Floats
    idle_since_s: Floats
    warm_end_s: Floats
    cold_end_s: Floats
