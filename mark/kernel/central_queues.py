"""A pipeline's stages in compiled code: one central queue per stage, earliest deadline first; replicas pull batches.

A free replica takes waiting calls, up to its largest batch, and begins immediately (InferLine, SoCC '20, section 3).

Stages are advanced one after the other through windows of time, in topological order, each through the whole window.
Without feedback from a later stage to an earlier one that is exact: a batch that starts before the window's end depends
only on earlier events, so every answer before the end is known when the next stage is advanced, and all other answers
are known to come later. The results do not depend on where windows end, and no heap of events is needed.

A stage may have a function. A call that its replicas have not begun at its *last moment* goes there: the latest time at
which a full batch of theirs, or the function, would still leave enough time for the later stages. Last moments follow
the order of deadlines, so the next one belongs to the lowest number.

Queries are numbered by priority (earliest deadline first, ties by arrival). So a queue is a set of numbers, kept as one
bit for each query: a waiting call sets a bit, and a pull takes the lowest.

A call takes 20 to 55 ns on a shared core (benchmarks/planner/pipelines.py): 7 to 12 to find when queries are ready and
to sort them, 15 to 20 for a batch with its two steps through the tree of replicas, which the calls of a batch share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionCalls
from mark.domain.pipeline import Join
from mark.domain.profile import MOST_BATCH
from mark.domain.rules import admission
from mark.domain.service import FunctionUse
from mark.kernel import function_environments
from mark.kernel.arrays import INF, THROTTLED, WARM_S, Floats, FunctionPool, Ints
from mark.kernel.compiled import compiled
from mark.kernel.random import factor_of
from mark.kernel.tree import ROOT, WIDTH, first_leaf, first_leaf_of, levels_for, places_for, set_leaf

_in_time = compiled(admission.in_time)
_first_leaf_of = compiled(first_leaf_of)
_destination = compiled(admission.destination)
_FUNCTION, _REJECT = admission.FUNCTION, admission.REJECT

# Positions in CentralQueues.tally
OPEN, WAITING, LOWEST, UNASKED, LOWEST_UNASKED = range(5)
# Positions in CentralQueues.total
BUSY_S, WAIT_S, LAST_S = range(3)
# Positions in CentralQueues.counter
ENTERED, JUDGED, MISSED, CHUNK = range(4)
# Arrivals in a window at first. Speed is the same from 64 to all; with short windows a lost promise is noticed soon.
FIRST_CHUNK = 1024
# Moves for each item after which sorting by insertion is given up: a move takes half a nanosecond, a merge of a window
# 30 to 40 an item. Only paths of very different length at above a thousand queries/s reach this limit.
_MOVES = 64

_ONE = np.uint64(1)
_SIX = np.uint64(6)
# The position of a word's only bit: the top six bits of its product with this number give it (de Bruijn).
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_TOP = np.uint64(58)
_BIT = np.zeros(64, dtype=np.int64)
for _n in range(64):
    _BIT[(int(_DE_BRUIJN) << _n & (1 << 64) - 1) >> 58] = _n

Counts = NDArray[np.int32]
_NO_CALLS = FunctionCalls()


class CentralQueues(NamedTuple):
    """S stages, N queries by priority, K kinds of replicas, B largest batch, P predecessors of all stages.

    L places of all trees (`mark.kernel.tree`), R places of all replicas, W words of a bit for each query.
    """

    arrival_s: Floats  # [N]
    deadline_s: Floats  # [N] infinite: none
    order: Ints  # [N] the queries by arrival
    calls: Counts  # [S, N]
    predecessor: Ints  # [P]
    predecessor_at: Ints  # [S + 1] where a stage's predecessors begin
    least: Ints  # [S] `Join.least`
    join_s: Floats  # [S] `Join.deadline_s`
    last: Ints  # stages without a successor
    active: Ints  # stages to simulate, ascending; the answers of the others are known
    n_batch: Ints  # [K]
    service_s: Floats  # [K, B + 1]
    sigma: Floats  # [K] of the logarithm of a batch's time, whose mean is service_s
    seed: int  # of these times
    tree: Floats  # [L] when replicas are free; infinite: left
    tree_at: Ints  # [S]
    tree_levels: Ints  # [S]
    replica_at: Ints  # [S]
    kind: Ints  # [R]
    leave_s: Floats  # [R] no batch starts from then on
    bridged: NDArray[np.bool_]  # [S] whether the stage has a function
    behind_s: Floats  # [S] time that its calls there leave for the later stages
    needed_s: Floats  # [S] from a call's last moment to the query's deadline
    pools: FunctionPool  # [S, ...] one for each stage; of no stage unless one has a function
    unasked: NDArray[np.uint64]  # [S, W] calls that wait for a replica or their last moment; or of no stage
    ready_s: Floats  # [S, N] when the calls entered the queue; without calls, when the query passed the stage
    answer_s: Floats  # [S, N] of the last call, or as above; infinite: not known yet
    partial_s: Floats  # [S, N] latest answer of a query whose calls are not all started
    left: Counts  # [S, N] calls not started, of queries with several
    bits: NDArray[np.uint64]  # [S, W] waiting calls
    open: Ints  # [S, N] queries that have arrived and are not ready yet
    item_s: Floats  # [N] times of calls that become ready in this window
    item: Ints  # [N] their queries
    merged_s: Floats  # [N] times, for merging
    merged: Ints  # [N] queries, for merging
    member: Ints  # [B] of the batch that is being filled
    batches: Ints  # [S, B + 1] started, by size
    tally: Ints  # [S, 5]
    total: Floats  # [S, 3]
    counter: Ints  # [4]
    clock: Floats  # [1] the end of the last window


@compiled
def _ready_s(p: CentralQueues, stage: int, query: int) -> float:
    """Return when the query goes on to the stage, as far as answers are known.

    It does once all predecessors are done with it, or `join_s` after the `least`-th answer. A predecessor that the
    query does not call is done when the query has passed it, which is not an answer. If all unknown answers come at t
    or later, a result below t is right, and a result of at least t is right or its true value is at least t.
    """
    begin, end = p.predecessor_at[stage], p.predecessor_at[stage + 1]
    all_s = p.arrival_s[query]
    for i in range(begin, end):
        all_s = max(all_s, p.answer_s[p.predecessor[i], query])
    if p.join_s[stage] == INF:
        return all_s
    for i in range(begin, end):
        answer_s = p.answer_s[p.predecessor[i], query]
        if p.calls[p.predecessor[i], query] > 0:
            before = 0  # answers before this one
            for j in range(begin, end):
                if p.calls[p.predecessor[j], query] > 0:
                    other_s = p.answer_s[p.predecessor[j], query]
                    before += other_s < answer_s or (other_s == answer_s and j < i)
            if before == p.least[stage] - 1:
                return min(all_s, answer_s + p.join_s[stage])
    return all_s


@compiled
def _merge(p: CentralQueues, size: int) -> None:
    """Sort by time: merge runs of one, two, four ... back and forth between two pairs of arrays."""
    width = 1
    here_s, here, there_s, there = p.item_s, p.item, p.merged_s, p.merged
    while width < size:
        for begin in range(0, size, 2 * width):
            middle, end = min(begin + width, size), min(begin + 2 * width, size)
            left, right = begin, middle
            at = begin
            while left < middle and right < end:
                from_right = here_s[right] < here_s[left]
                source = right if from_right else left
                there_s[at], there[at] = here_s[source], here[source]
                right += from_right
                left += not from_right
                at += 1
            while left < middle:
                there_s[at], there[at] = here_s[left], here[left]
                left += 1
                at += 1
            while right < end:
                there_s[at], there[at] = here_s[right], here[right]
                right += 1
                at += 1
        here_s, there_s = there_s, here_s
        here, there = there, here
        width *= 2
    for i in range(size):
        p.item_s[i], p.item[i] = here_s[i], here[i]


@compiled
def _sort(p: CentralQueues, size: int) -> None:
    """Sort by time.

    Queries mostly leave a stage in the order they entered: use insertion, and merging if that takes long.
    """
    item_s, item = p.item_s, p.item
    moves = _MOVES * size
    for i in range(1, size):
        time_s = item_s[i]
        if time_s >= item_s[i - 1]:
            continue
        query = item[i]
        j = i
        while j > 0 and item_s[j - 1] > time_s:
            item_s[j], item[j] = item_s[j - 1], item[j - 1]
            j -= 1
        item_s[j], item[j] = time_s, query
        moves -= i - j
        if moves < 0:
            _merge(p, size)
            return


@compiled
def _gather(p: CentralQueues, stage: int, until_s: float, first: int, last: int) -> int:
    """Collect the calls that become ready at the stage before `until_s`, from open and newly arrived queries."""
    ready = 0
    still_open = 0
    was_open = p.tally[stage, OPEN]
    for i in range(was_open + last - first):
        query = p.open[stage, i] if i < was_open else p.order[first + i - was_open]
        ready_s = _ready_s(p, stage, query)
        if ready_s < until_s:
            p.ready_s[stage, query] = ready_s
            if p.calls[stage, query] > 0:
                p.item_s[ready] = ready_s
                p.item[ready] = query
                ready += 1
            else:
                p.answer_s[stage, query] = ready_s
        else:
            p.open[stage, still_open] = query
            still_open += 1
    p.tally[stage, OPEN] = still_open
    return ready


@compiled
def _lowest_in(word: int, bits: np.uint64) -> int:
    """Return the lowest number in a word with at least one bit."""
    return (word << 6) + _BIT[((bits & (~bits + _ONE)) * _DE_BRUIJN) >> _TOP]


@compiled
def _bit_of(query: int) -> np.uint64:
    return _ONE << (np.uint64(query) & np.uint64(63))


@compiled
def _last_moment_s(p: CentralQueues, stage: int, query: int) -> float:
    return p.deadline_s[query] - p.needed_s[stage]


@compiled
def _lowest_unasked(p: CentralQueues, stage: int) -> int:
    """Return the query with the earliest last moment, or -1."""
    if p.tally[stage, UNASKED] == 0:
        return -1
    word = p.tally[stage, LOWEST_UNASKED]
    while p.unasked[stage, word] == np.uint64(0):
        word += 1
    p.tally[stage, LOWEST_UNASKED] = word
    return _lowest_in(word, p.unasked[stage, word])


@compiled
def _await_last_moment(p: CentralQueues, stage: int, query: int) -> None:
    word = query >> 6
    before = p.tally[stage, UNASKED]
    p.tally[stage, LOWEST_UNASKED] = word if before == 0 else min(p.tally[stage, LOWEST_UNASKED], word)
    p.tally[stage, UNASKED] = before + 1
    p.unasked[stage, word] |= _bit_of(query)


@compiled
def _forget_last_moment(p: CentralQueues, stage: int, query: int) -> None:
    """Remove the query's last moment, because it has come, or because the query no longer waits. Repeatable."""
    word, bit = query >> 6, _bit_of(query)
    if p.unasked[stage, word] & bit != np.uint64(0):
        p.unasked[stage, word] ^= bit
        p.tally[stage, UNASKED] -= 1


@compiled
def _next_s(p: CentralQueues, stage: int, free_s: float, entry_s: float) -> float:
    """Return the next event of a stage with a function: a free replica, an entering call, or a last moment."""
    query = _lowest_unasked(p, stage)
    next_s = min(free_s, entry_s)
    return next_s if query < 0 else min(next_s, _last_moment_s(p, stage, query))


@compiled
def _goes_to_function(p: CentralQueues, stage: int, query: int, now_s: float, instance_s: float, asked: int) -> bool:
    """Send the query's calls to the function if a replica would be late and it would not.

    Return whether all of them went. Calls without an environment stay; at most `asked` of them are counted as
    throttled.
    """
    pool = FunctionPool(
        p.pools.number[stage],
        p.pools.value[stage],
        p.pools.idle_since_s[stage],
        p.pools.warm_end_s[stage],
        p.pools.cold_end_s[stage],
    )
    horizon_s = p.deadline_s[query] - p.behind_s[stage] - now_s
    # A cold start cannot be foreseen, so the warm latency is used.
    if _destination(instance_s, pool.value[WARM_S], horizon_s, _REJECT) != _FUNCTION:
        return False
    several = p.calls[stage, query] > 1
    left = p.left[stage, query] if several else 1
    answer_s = p.partial_s[stage, query] if several else -INF
    while left > 0:
        latency_s = function_environments.latency_s(pool, now_s)
        if latency_s == INF:
            pool.number[THROTTLED] += min(left, asked)
            break
        function_environments.begin(pool, now_s)
        answer_s = max(answer_s, now_s + latency_s)
        left -= 1
    if left == 0:
        p.answer_s[stage, query] = answer_s
    elif several:
        p.left[stage, query], p.partial_s[stage, query] = left, answer_s
    return left == 0


@compiled
def _leave_at_last_moment(p: CentralQueues, stage: int, now_s: float) -> int:
    """Send calls whose last moment has come, possibly before they entered, to the function.

    Return the number of queries. Calls that cannot go keep waiting, as without a function.
    """
    gone = 0
    query = _lowest_unasked(p, stage)
    while query >= 0 and _last_moment_s(p, stage, query) <= now_s:
        _forget_last_moment(p, stage, query)
        if _goes_to_function(p, stage, query, now_s, INF, p.calls[stage, query]):
            p.bits[stage, query >> 6] ^= _bit_of(query)
            gone += 1
        query = _lowest_unasked(p, stage)
    return gone


@compiled
def _advance_stage(p: CentralQueues, stage: int, until_s: float, first: int, last: int) -> None:
    """Start all batches of the stage that start before `until_s`.

    At one instant, first all answers come and replicas join and leave; then ready calls enter the queue; then free
    replicas pull, in order of their numbers; then calls go to the stage's function.
    """
    ready = _gather(p, stage, until_s, first, last)
    _sort(p, ready)
    at, levels, replica_at = p.tree_at[stage], p.tree_levels[stage], p.replica_at[stage]
    first_replica = _first_leaf_of(levels)
    waiting, lowest = p.tally[stage, WAITING], p.tally[stage, LOWEST]
    bridged = p.bridged[stage]
    now_s = -INF  # waiting calls already wait for replicas that are not free before this window
    entered = 0
    while True:
        if waiting == 0:
            if entered == ready:
                break
            now_s = max(now_s, p.item_s[entered])
        next_s = p.tree[at]
        if bridged:
            next_s = _next_s(p, stage, next_s, p.item_s[entered] if entered < ready else INF)
        now_s = max(now_s, next_s)
        while entered < ready and p.item_s[entered] <= now_s:
            query = p.item[entered]
            word = query >> 6
            calls = p.calls[stage, query]
            if calls > 1:
                p.left[stage, query] = calls
                p.partial_s[stage, query] = -INF
            p.bits[stage, word] |= _bit_of(query)
            if bridged:
                _await_last_moment(p, stage, query)
            lowest = word if waiting == 0 else min(lowest, word)
            waiting += 1
            entered += 1
        if now_s >= until_s:
            break
        if bridged and p.tree[at] > now_s:
            waiting -= _leave_at_last_moment(p, stage, now_s)
            continue
        replica = first_leaf(p.tree, at, levels, now_s) - first_replica
        if p.leave_s[replica_at + replica] <= now_s:
            set_leaf(p.tree, at, first_replica + replica, INF)
            continue
        kind = p.kind[replica_at + replica]
        most = p.n_batch[kind]
        full_s = p.service_s[kind, most]
        size = 0
        members = 0
        leader = leader_left = -1  # query of the first call in the batch, and its number of calls left then
        split = -1  # the query of which only some calls fit
        while size < most and waiting > 0:
            while p.bits[stage, lowest] == np.uint64(0):
                lowest += 1
            word_bits = p.bits[stage, lowest]
            bit = word_bits & (~word_bits + _ONE)
            query = (lowest << 6) + _BIT[(bit * _DE_BRUIJN) >> _TOP]
            calls = p.calls[stage, query]
            if not bridged or not _goes_to_function(p, stage, query, now_s, full_s, most - size):
                left = calls if calls == 1 else p.left[stage, query]
                taken = min(left, most - size)
                if size == 0:
                    leader, leader_left = query, left
                size += taken
                p.total[stage, WAIT_S] += taken * (now_s - p.ready_s[stage, query])
                if taken < left:
                    p.left[stage, query] = left - taken
                    split = query
                    break
                p.member[members] = query
                members += 1
            if bridged:
                _forget_last_moment(p, stage, query)
            p.bits[stage, lowest] = word_bits ^ bit
            waiting -= 1
        if size == 0:
            continue
        service_s = p.service_s[kind, size]
        if p.sigma[kind] > 0.0:
            service_s *= factor_of(p.seed, stage, leader, leader_left, p.sigma[kind])
        answer_s = now_s + service_s
        set_leaf(p.tree, at, first_replica + replica, answer_s)
        p.total[stage, BUSY_S] += service_s
        p.total[stage, LAST_S] = max(p.total[stage, LAST_S], answer_s)
        p.batches[stage, size] += 1
        for i in range(members):
            query = p.member[i]
            last_s = answer_s
            if p.calls[stage, query] > 1:
                last_s = max(answer_s, p.partial_s[stage, query])
            p.answer_s[stage, query] = last_s
        if split >= 0:
            p.partial_s[stage, split] = max(answer_s, p.partial_s[stage, split])
    p.tally[stage, WAITING], p.tally[stage, LOWEST] = waiting, lowest


@compiled
def _end_s(p: CentralQueues, query: int) -> float:
    """Return when the query is done: when its last stages are."""
    end_s = p.arrival_s[query]
    for stage in p.last:
        end_s = max(end_s, p.answer_s[stage, query])
    return end_s


@compiled
def advance(p: CentralQueues, until_s: float, most_missed: int) -> None:
    """Advance all active stages to `until_s`; stop earlier once more than `most_missed` queries have certainly missed.

    Windows hold a number of arrivals. That number doubles when far more queries than that are under way, because the
    stages that a query has not reached look at it once in every window.
    """
    queries = p.arrival_s.shape[0]
    while p.clock[0] < until_s:
        first = p.counter[ENTERED]
        end_s = until_s
        at = first + p.counter[CHUNK]
        while at < queries and p.arrival_s[p.order[at]] <= p.clock[0]:
            at += p.counter[CHUNK]
        if at < queries:
            end_s = min(end_s, p.arrival_s[p.order[at]])
        last = first
        while last < queries and p.arrival_s[p.order[last]] < end_s:
            last += 1
        under_way = 0
        for stage in p.active:
            _advance_stage(p, stage, end_s, first, last)
            under_way = max(under_way, p.tally[stage, OPEN] + p.tally[stage, WAITING])
        p.counter[ENTERED] = last
        p.clock[0] = end_s
        if under_way > 4 * p.counter[CHUNK]:
            p.counter[CHUNK] *= 2
        judged = p.counter[JUDGED]
        while judged < queries and p.deadline_s[judged] + admission.TOLERANCE_S < end_s:
            p.counter[MISSED] += not _in_time(_end_s(p, judged), p.deadline_s[judged])
            judged += 1
        p.counter[JUDGED] = judged
        if p.counter[MISSED] > most_missed:
            return


@dataclass(frozen=True, eq=False, slots=True)
class PipelineQueries:
    """N queries of S stages, numbered by priority: the earliest deadline first, ties by arrival, then as given."""

    arrival_s: Floats  # (N,)
    deadline_s: Floats  # (N,) infinite: none
    order: Ints  # (N,) numbers by arrival
    calls: Counts  # (S, N)
    given: Ints  # (N,) position of each in the order in which they were given

    @classmethod
    def of(cls, arrivals_s: Floats, calls: Ints, deadline_s: Floats | None = None) -> PipelineQueries:
        """Make queries from times (s), shape (N,), in any order, and their calls of each stage, shape (N, S).

        Without deadlines the first to arrive has priority. Raises BadInput for other shapes, times that are not finite,
        negative calls, and deadlines that are NaN.
        """
        if arrivals_s.ndim != 1 or calls.ndim != 2 or len(calls) != len(arrivals_s):
            raise BadInput("one row for each arrival, one column for each stage", "calls", calls.shape)
        if not np.isfinite(arrivals_s).all():
            raise BadInput("must be finite", "arrivals_s")
        if calls.size and not 0 <= calls.min() <= calls.max() <= np.iinfo(np.int32).max:
            raise BadInput("must be counts", "calls")
        if deadline_s is not None and (deadline_s.shape != arrivals_s.shape or np.isnan(deadline_s).any()):
            raise BadInput("one time for each arrival", "deadline_s", deadline_s.shape)
        urgent_s = arrivals_s if deadline_s is None else deadline_s
        given = np.lexsort((arrivals_s, urgent_s))
        arrival_s = arrivals_s[given].astype(np.float64)
        return cls(
            arrival_s,
            np.full(len(given), INF) if deadline_s is None else deadline_s[given].astype(np.float64),
            np.argsort(arrival_s, kind="stable"),
            np.ascontiguousarray(calls[given].T, dtype=np.int32),
            given,
        )

    def as_given(self, values: Floats) -> Floats:
        """Return values by number, shape (N,), in the order in which the queries were given."""
        result = np.empty_like(values)
        result[self.given] = values
        return result


@dataclass(frozen=True, slots=True)
class StageFunction:
    """A stage's function, with the times that decide whether its calls go there.

    `behind_s` is the least time of the later stages: a call there is in time if it leaves that much until the query's
    deadline. `batch_s` is the time of a full batch of the stage's replicas. Raises BadInput for negative times, and for
    a function that takes no time.
    """

    use: FunctionUse
    behind_s: float
    batch_s: float

    def __post_init__(self) -> None:
        name = self.use.offer.name
        if not self.use.warm_s > 0.0:
            raise BadInput("must be above zero", f"warm_s of {name}", self.use.warm_s)
        for what, seconds in (("behind_s", self.behind_s), ("batch_s", self.batch_s)):
            if not seconds >= 0.0:
                raise BadInput("must not be negative", f"{what} of {name}", seconds)

    @property
    def needed_s(self) -> float:
        """The time from a call's last moment to the query's deadline."""
        return self.behind_s + max(self.use.warm_s, self.batch_s)


@dataclass(frozen=True, eq=False, slots=True)
class StageOutcome:
    """The results of a stage, by query number. Infinite times are not known yet."""

    ready_s: Floats  # (N,) when the calls entered the queue; without calls, when the query passed the stage
    answer_s: Floats  # (N,) of the last call
    batches: Ints  # (B + 1,) started, by size
    busy_s: float  # of all replicas
    wait_s: float  # summed over all started calls, from ready to start
    last_s: float  # end of the last batch; minus infinity without a batch
    by_function: FunctionCalls = _NO_CALLS
    function_usd: float = 0.0

    @property
    def started(self) -> int:
        """The number of calls in batches."""
        return int(self.batches @ np.arange(len(self.batches)))


class PipelineSimulation:
    """A pipeline's stages with their replicas, advanced through queries.

    `kinds[k]` are the times of a kind's batches of b (s), shape (largest batch + 1,); index 0 is unused. With `sigmas`
    these are means, and a batch's time is lognormal with that sigma of its logarithm: always the same for the same
    `seed`, stage and first call of a batch. Stages in `known` are not simulated. `chunk` is the number of
    arrivals in a window at first; it changes no result.

    A call of a stage in `functions` goes to the function if no replica has begun it at its last moment, which is
    `StageFunction.needed_s` before its query's deadline; or if the replica that pulls it later would be late with a
    full batch. If it would be late on the function as well, or finds no environment, it is left to the replicas. Raises
    BadInput for a table without a batch of one, or with times that are not above zero and finite.
    """

    def __init__(
        self,
        queries: PipelineQueries,
        predecessors: Sequence[Sequence[int]],
        joins: Sequence[Join],
        kinds: Sequence[Floats],
        *,
        sigmas: Sequence[float] | None = None,
        seed: int = 0,
        known: Mapping[int, StageOutcome] | None = None,
        functions: Mapping[int, StageFunction] | None = None,
        chunk: int = FIRST_CHUNK,
    ) -> None:
        stages, n = queries.calls.shape
        if len(predecessors) != stages or len(joins) != stages:
            raise BadInput("one column for each stage", "calls", queries.calls.shape)
        for number, table in enumerate(kinds):
            if not 2 <= len(table) <= MOST_BATCH + 1:
                raise BadInput(f"a batch holds 1 to {MOST_BATCH:,} calls", f"kinds[{number}]", len(table) - 1)
            if not (np.isfinite(table[1:]).all() and table[1:].min() > 0.0):
                raise BadInput("service times must be above zero", f"kinds[{number}]", table[1:])
        for stage, before in enumerate(predecessors):
            if not all(0 <= other < stage for other in before):
                raise BadInput("a stage comes after all before it", f"predecessors[{stage}]", list(before))
        if sigmas is not None and not (len(sigmas) == len(kinds) and all(0.0 <= sigma < INF for sigma in sigmas)):
            raise BadInput("one from 0 on for each kind", "sigmas", list(sigmas))
        if chunk < 1:
            raise BadInput("must be at least 1", "chunk", chunk)
        known = known or {}
        for stage, outcome in known.items():
            if not 0 <= stage < stages or outcome.answer_s.shape != (n,):
                raise BadInput(f"one answer for each of {n} queries", f"known[{stage}]", outcome.answer_s.shape)
        largest = max((len(table) for table in kinds), default=2)
        tables = np.full((len(kinds), largest), INF)
        for row, table in zip(tables, kinds, strict=True):
            row[: len(table)] = table
        flat = [p for before in predecessors for p in before]
        self.queries = queries
        self._replicas: list[list[tuple[int, float]]] = [[] for _ in range(stages)]  # kind, when it leaves
        self._new: list[tuple[int, int, float]] = []  # stage, number, ready
        self._laid_out = False
        self._known = known
        self._functions = functions or {}
        of_stages = [self._functions.get(stage) for stage in range(stages)]
        active = np.array([stage for stage in range(stages) if stage not in known], dtype=np.int64)
        ready_s, answer_s = np.empty((stages, n)), np.empty((stages, n))
        ready_s[active] = answer_s[active] = INF
        for stage, outcome in known.items():
            answer_s[stage] = outcome.answer_s
        self._p = CentralQueues(
            arrival_s=queries.arrival_s,
            deadline_s=queries.deadline_s,
            order=queries.order,
            calls=queries.calls,
            predecessor=np.array(flat, dtype=np.int64),
            predecessor_at=np.cumsum([0, *map(len, predecessors)]),
            least=np.array([join.least for join in joins]),
            join_s=np.array([join.deadline_s for join in joins], dtype=np.float64),
            last=np.array([stage for stage in range(stages) if stage not in flat], dtype=np.int64),
            active=active,
            n_batch=np.array([len(table) - 1 for table in kinds], dtype=np.int64),
            service_s=tables,
            sigma=np.zeros(len(kinds)) if sigmas is None else np.array(sigmas, dtype=np.float64),
            seed=seed,
            tree=np.zeros(0),
            tree_at=np.zeros(stages, dtype=np.int64),
            tree_levels=np.zeros(stages, dtype=np.int64),
            replica_at=np.zeros(stages, dtype=np.int64),
            kind=np.zeros(0, dtype=np.int64),
            leave_s=np.zeros(0),
            bridged=np.array([one is not None for one in of_stages]),
            behind_s=np.array([0.0 if one is None else one.behind_s for one in of_stages]),
            needed_s=np.array([0.0 if one is None else one.needed_s for one in of_stages]),
            pools=_pools(of_stages),
            unasked=np.zeros((stages if self._functions else 0, n // 64 + 1), dtype=np.uint64),
            ready_s=ready_s,
            answer_s=answer_s,
            partial_s=np.empty((stages, n)),
            left=np.empty((stages, n), dtype=np.int32),
            bits=np.zeros((stages, n // 64 + 1), dtype=np.uint64),
            open=np.empty((stages, n), dtype=np.int64),
            item_s=np.empty(n),
            item=np.empty(n, dtype=np.int64),
            merged_s=np.empty(n),
            merged=np.empty(n, dtype=np.int64),
            member=np.empty(largest, dtype=np.int64),
            batches=np.zeros((stages, largest), dtype=np.int64),
            tally=np.zeros((stages, 5), dtype=np.int64),
            total=np.zeros((stages, 3)),
            counter=np.array([0, 0, 0, chunk]),
            clock=np.array([-INF]),
        )
        self._p.total[:, LAST_S] = -INF

    @property
    def clock_s(self) -> float:
        """The time up to which all starts are settled."""
        return float(self._p.clock[0])

    @property
    def missed(self) -> int:
        """The number of queries whose deadline passed before the clock without completion."""
        return int(self._p.counter[MISSED])

    def add(self, stage: int, kind: int, ready_s: float, leave_s: float = INF) -> int:
        """Add a replica that is ready from `ready_s` on, and return its number at the stage.

        Raises BadInput for times in the past, and for unknown stages and kinds.
        """
        self._must_be_one("stage", stage, len(self._replicas))
        self._must_be_one("kind", kind, len(self._p.n_batch))
        if math.isnan(leave_s):
            raise BadInput("must be a time", "leave_s", leave_s)
        self._must_be_ahead(ready_s, "ready_s")
        self._replicas[stage].append((kind, leave_s))
        number = len(self._replicas[stage]) - 1
        self._new.append((stage, number, ready_s))
        self._laid_out = False
        return number

    def drain(self, stage: int, number: int, at_s: float) -> None:
        """Let the replica start no batch from `at_s` on. Raises BadInput for the past, and for an unknown replica."""
        self._must_be_one("stage", stage, len(self._replicas))
        self._must_be_one("number", number, len(self._replicas[stage]))
        self._must_be_ahead(at_s, "at_s")
        kind, _ = self._replicas[stage][number]
        self._replicas[stage][number] = kind, at_s
        if self._laid_out:
            self._p.leave_s[self._p.replica_at[stage] + number] = at_s

    def advance(self, until_s: float = INF, most_missed: int | None = None) -> None:
        """Settle all that starts before `until_s`; stop earlier when more than `most_missed` queries have missed.

        `clock_s` tells how far it came, and it can always be advanced further.
        """
        if not self._laid_out:
            self._lay_out()
        advance(self._p, until_s, len(self.queries.arrival_s) if most_missed is None else most_missed)

    def outcome(self, stage: int) -> StageOutcome:
        """Return the results of one stage so far."""
        self._must_be_one("stage", stage, len(self._replicas))
        if stage in self._known:
            return self._known[stage]
        p = self._p
        function = self._functions.get(stage)
        return StageOutcome(
            p.ready_s[stage],
            p.answer_s[stage],
            p.batches[stage],
            float(p.total[stage, BUSY_S]),
            float(p.total[stage, WAIT_S]),
            float(p.total[stage, LAST_S]),
            *(() if function is None else self._called(stage, function.use)),
        )

    def _called(self, stage: int, use: FunctionUse) -> tuple[FunctionCalls, float]:
        number = self._p.pools.number[stage]
        return function_environments.calls_of(use, number), function_environments.usd_of(use, number)

    def end_s(self) -> Floats:
        """Return when each query, as numbered, is done: when its last stages are. Infinite: not yet."""
        return np.maximum(self._p.arrival_s, self._p.answer_s[self._p.last].max(axis=0))

    @staticmethod
    def _must_be_one(where: str, number: int, count: int) -> None:
        if not 0 <= number < count:
            raise BadInput(f"must be from 0 to {count - 1}", where, number)

    def _must_be_ahead(self, time_s: float, where: str) -> None:
        if not time_s >= self.clock_s:
            raise BadInput(f"all before {self.clock_s:g} s is settled", where, time_s)

    def _lay_out(self) -> None:
        """Lay out trees and places for all replicas, including new ones."""
        p, before = self._p, self._p
        free_s = [np.full(len(replicas), INF) for replicas in self._replicas]
        for stage, number, ready_s in self._new:
            free_s[stage][number] = ready_s
        new = [{number for of, number, _ in self._new if of == stage} for stage in range(len(free_s))]
        self._new, self._laid_out = [], True
        trees, tree_at, tree_levels, replica_at = [], [], [], []
        places = replicas_before = 0
        for stage, own_s in enumerate(free_s):
            old = len(own_s) - len(new[stage])  # numbers ascend, so the new ones stand last
            if old:
                levels = int(before.tree_levels[stage])
                leaves = int(before.tree_at[stage]) + first_leaf_of(levels)
                own_s[:old] = before.tree[leaves : leaves + old]
            levels = levels_for(len(own_s))
            tree_at.append(places + ROOT)
            tree_levels.append(levels)
            replica_at.append(replicas_before)
            trees.append(_tree_of(own_s, levels))
            places += places_for(levels)
            replicas_before += len(own_s)
        replicas = [replica for of_stage in self._replicas for replica in of_stage]
        self._p = p._replace(
            tree=np.concatenate(trees),
            tree_at=np.array(tree_at),
            tree_levels=np.array(tree_levels),
            replica_at=np.array(replica_at),
            kind=np.array([kind for kind, _ in replicas], dtype=np.int64),
            leave_s=np.array([leave_s for _, leave_s in replicas], dtype=np.float64),
        )


def _pools(of_stages: Sequence[StageFunction | None]) -> FunctionPool:
    """Return the stages' pools in rows, all as long as the longest; without rows unless a stage has a function."""
    if not any(of_stages):
        return FunctionPool(*(np.empty((0, *one.shape), one.dtype) for one in function_environments.pool_for(None)))
    pools = [function_environments.pool_for(None if one is None else one.use) for one in of_stages]
    shape = len(pools), max(len(pool.idle_since_s) for pool in pools)
    return FunctionPool(
        np.stack([pool.number for pool in pools]),
        np.stack([pool.value for pool in pools]),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros(shape),
    )


def _tree_of(values: Floats, levels: int) -> Floats:
    """Return the tree over these leaves, in the form of `mark.kernel.tree`."""
    level = np.full(WIDTH**levels, INF)
    level[: len(values)] = values
    parts = [level]
    while len(level) > WIDTH:
        level = level.reshape(-1, WIDTH).min(axis=1)
        parts.insert(0, level)
    return np.concatenate([np.full(ROOT, INF), [level.min()], *parts])
