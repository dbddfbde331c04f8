"""A stage to simulate: owns the flat arrays, adds and drains replicas, advances through arrivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.function_offer import FunctionCalls
from mark.domain.profile import Candidate
from mark.domain.rules import second_attempts
from mark.domain.rules.admission import FUNCTION, in_time
from mark.domain.rules.capacity_classes import class_weights
from mark.domain.service import FunctionUse
from mark.kernel import function_environments, known, learned, loop, service_loop
from mark.kernel.accounting import Accounting
from mark.kernel.arrays import (
    ACTIVE,
    ALB,
    BUDGET,
    CROWDED,
    FEWEST_IN_FLIGHT,
    GATEWAY,
    IDLE_COUNT,
    INF,
    KIND,
    LEAST_COMPLETION,
    MEMBER,
    RANDOM,
    READY,
    REQUEST,
    SLOT,
    THROTTLED,
    TWO_CHOICES,
    ArrivalTimes,
    Classes,
    Floats,
    Ints,
    Kinds,
    Stage,
    StageRules,
)
from mark.kernel.checks import check_arrivals, check_candidates, check_replica, check_time
from mark.kernel.compiled import Prepared
from mark.kernel.departures import BY_FUNCTION, CHUNK, REFUSED, Departures, Recording, buffer, by_request, joined
from mark.kernel.lost import Lost, ended
from mark.kernel.replica_faults import fault_state, with_slots
from mark.kernel.tree import ROOT, WIDTH, first_leaf_of, levels_for, places_for

T = TypeVar("T", np.float64, np.int64, np.void)

ROUTING = {
    "least-completion": LEAST_COMPLETION,
    "power-of-two-choices": TWO_CHOICES,
    "fewest-in-flight": FEWEST_IN_FLIGHT,
    "alb": ALB,
}
# Routings of mark's gateway, which learns how fast each replica answers.
LEARNING = ("least-completion", "fewest-in-flight")
COUNTING = (FEWEST_IN_FLIGHT, ALB, GATEWAY)
# Most requests in flight counted for a replica: a live gateway has no more there either.
MOST_IN_FLIGHT = 512


@dataclass(frozen=True)
class Admission:
    """The requests that a stage accepts; without `bouncers` all.

    Requests that are late everywhere go to `late` (`mark.domain.rules.admission`). If service times vary, a request
    goes to a function that is in time if a replica is in time with a lower probability than `least_in_time`
    (`least_probability`, there). If the function is late, such a replica may queue `late_share` late requests per
    request (`queues_late`, there). `horizons_s` limits the latency that each candidate's bouncers promise (spot).
    """

    bouncers: bool = True
    late: int = FUNCTION
    least_in_time: float = 0.0
    late_share: float = 0.0
    horizons_s: Sequence[float] | None = None


_ALL_IN_TIME = Admission()


class StageSimulation:
    """Replicas behind one queue discipline, simulated request by request.

    `candidates` are the kinds of replicas; a replica is known by its number, and numbers ascend with launch order.
    Times are seconds from the start of the evaluated part, and arrivals end with that of `accounts`. `classes` are the
    capacity classes of the candidates (`mark.domain.rules.capacity_classes`) for routing by an ALB; by default one for
    all. Stages whose replicas are on the same instances share one `fault_seed`. With `keep` the departures are kept
    until `departures` takes them.

    Methods raise BadInput for numbers and times with which compiled code would read and write elsewhere.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        accounts: Accounting,
        admission: Admission = _ALL_IN_TIME,
        function: FunctionUse | None = None,
        routing: str = "least-completion",
        classes: Sequence[int] | None = None,
        seed: int = 0,
        faults: Faults = NO_FAULTS,
        fault_seed: int | None = None,
        keep: bool = False,
    ) -> None:
        self._candidates = tuple(candidates)
        self.accounts = accounts
        self._limit_s = np.array([accounts.rt_max_s])
        # Without slow or hanging replicas a gateway has nothing to learn.
        learns = routing in LEARNING and (faults.slows or faults.hangs)
        self._routing = GATEWAY if learns else ROUTING[routing]
        is_late = function is not None and not in_time(function.warm_s, accounts.rt_max_s)
        late_share = admission.late_share if is_late and admission.bouncers else 0.0
        self._rules = StageRules(self._routing, admission.bouncers, admission.late, late_share)
        self._kept: list[Departures] | None = [] if keep else None
        self._lost = Lost() if faults.crashes else None
        self._second_attempts, self._arrived_then = second_attempts.BURST, 0
        self._function = function
        horizons_s = admission.horizons_s
        self._horizons_s = [INF] * len(self._candidates) if horizons_s is None else list(horizons_s)
        self._class_of = [0] * len(self._candidates) if classes is None else list(classes)
        check_candidates(self._candidates, self._horizons_s, self._class_of)
        if not 0.0 <= admission.least_in_time <= 1.0:
            raise BadInput("a probability lies between 0 and 1", "least_in_time", admission.least_in_time)
        if not 0.0 <= admission.late_share <= 1.0:
            raise BadInput("a share lies between 0 and 1", "late_share", admission.late_share)
        self._since_s = 0.0  # no arrival comes earlier
        self._added: set[int] = set()
        groups = max(self._class_of, default=-1) + 1 if self._routing == ALB else 0
        # kind = (candidate, speed): a burstable without credits is a slower kind of the same candidate
        self._kinds: list[tuple[int, float]] = []
        self._kind_of: dict[tuple[int, float], int] = {}
        self._ready: set[int] = set()
        self._stale = True
        largest = max((c.policy.n_batch for c in self._candidates), default=1)
        most_workers = max((c.workers for c in self._candidates), default=1)
        counter = np.zeros(5, dtype=np.int64)
        counter[RANDOM] = seed
        varies = faults.any or any(c.sigma != 0.0 for c in self._candidates)
        queues, batches = known.none_known(varies)
        gateway, knowledge = learned.nothing_learned(learns, second_attempts.BURST)
        most_in_flight = MOST_IN_FLIGHT if self._routing in COUNTING else 0
        self._st = Stage(
            kinds=_kinds(0, largest),
            classes=Classes(*(np.zeros(groups, dtype=np.int64) for _ in Classes._fields)),
            slots=np.zeros(0, dtype=SLOT),
            worker_free_s=np.zeros((0, most_workers)),
            members=np.zeros((0, largest), dtype=MEMBER),
            ready=np.zeros(0, dtype=np.int64),
            flight_s=np.zeros((0, most_in_flight)),
            sent_s=np.zeros((0, most_in_flight if learns else 0)),
            turn=np.zeros(0, dtype=np.int64),
            open_tree=np.full(WIDTH, INF),
            free_tree=np.full(WIDTH, INF),
            due_tree=np.full(WIDTH, INF),
            count_tree=np.full(WIDTH, INF),
            flight_tree=np.full(WIDTH, INF),
            leaf_slot=np.zeros(WIDTH, dtype=np.int64),
            counter=counter,
            faults=fault_state(faults, seed, fault_seed),
            queues=queues,
            batches=batches,
            played_s=np.zeros(most_workers),
            gateway=gateway,
            learned=knowledge,
            late_left=np.zeros(0),
            least=np.array([admission.least_in_time if admission.bouncers and varies else 0.0]),
        )
        self._out = buffer(CHUNK + 1, self._has_rows)
        self._pool = function_environments.pool_for(function)
        self._run_advance, self._run_warm = Prepared(service_loop.advance), Prepared(function_environments.warm)
        self._start_open, self._run_learn = Prepared(loop.start_open), Prepared(loop.learn)
        self._show_all = Prepared(loop.show_all_in_flight if self._routing == ALB else loop.show_all)

    # -- replicas (the simulated cloud's data plane) -------------------------------------------------------------------

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        """Make replica `number` of a candidate ready from `at_s` on; a resumed one comes back under its number."""
        if number < 0:
            raise BadInput("must be from 0 on", "number", number)
        if not 0 <= offer_index < len(self._candidates):
            raise BadInput(f"must be one of {len(self._candidates)} candidates", "offer_index", offer_index)
        check_time("at_s", at_s)
        self._learn(at_s)
        self._added.add(number)
        self._grow(number + 1)
        kind = self._kind(offer_index, 1.0)
        own = self._st.slots[number]
        own["kind"], own["free_s"], own["open_size"] = kind, at_s, 0
        self._st.worker_free_s[number, :] = at_s
        self._st.late_left[number] = 0.0
        self._forget_batches(number)
        if self._routing == GATEWAY and number not in self._ready:
            self._introduce(number, at_s)
        self._ready.add(number)
        self._stale = True

    def drain(self, number: int, at_s: float) -> None:
        """Send the replica no new request; its accepted ones are finished. Repeatable."""
        check_replica(number, self._added)
        if number not in self._ready:
            return
        self._learn(at_s)
        self._settle(number)
        self._ready.discard(number)

    def remove(self, number: int, at_s: float) -> None:
        """Remove a replica. It loses no request: a spot bouncer promises nothing beyond the notice time."""
        self.drain(number, at_s)
        if self._lost is not None:
            self._st.faults.crash_s[number] = INF
            self._ended(self._lost.waiting(number))

    def doom(self, number: int, crash_s: float) -> None:
        """Let a replica crash at `crash_s`, unless it is removed before.

        Call this right after `add`. No decision uses this time.
        """
        check_replica(number, self._added)
        if math.isnan(crash_s):
            raise BadInput("must be a time", "crash_s", crash_s)
        self._st.faults.crash_s[number] = crash_s

    def crash(self, number: int, at_s: float) -> None:
        """Crash a replica at the time set by `doom`. Its unanswered requests are lost.

        A gateway immediately sends each to another replica, once, within the budget of second attempts. Otherwise a
        function answers it, or it fails; behind an ALB it always fails. A request with its own limit has what is left
        of it.
        """
        assert self._lost is not None
        assert self._st.faults.crash_s[number] == at_s
        self.drain(number, at_s)
        self._st.faults.crash_s[number] = INF
        self._st.slots["free_s"][number] = self._st.worker_free_s[number, :] = at_s
        self._forget_batches(number)
        lost = self._lost.crashed(number)
        again = ~lost.again & (self._routing != ALB)
        budget = second_attempts.grown(self._second_attempts, self.arrived - self._arrived_then)
        if self._routing == GATEWAY:
            budget = float(self._st.gateway[BUDGET])
        again &= np.cumsum(again) <= budget
        self._second_attempts, self._arrived_then = budget - np.count_nonzero(again), self.arrived
        self._st.gateway[BUDGET:] = self._second_attempts
        request, arrival_s = lost.request[again], lost.arrival_s[again]
        if len(request):
            arrived = self.arrived
            limit_s = self._lost.left_s(request, arrival_s, at_s)
            self._st.counter[REQUEST] = self._lost.numbered(request, arrival_s)
            self._pass(np.full(len(request), at_s), 0, INF, limit_s)
            self._st.counter[REQUEST] = arrived
        for place in np.flatnonzero(~again):
            self._give_up(lost.request[place : place + 1], lost.arrival_s[place : place + 1], at_s)

    def idle_at(self, number: int) -> float:
        """Return when all accepted requests are finished; for a draining replica that is final."""
        check_replica(number, self._added)
        own = self._st.slots[number]
        if self._st.kinds.rows["workers"][own["kind"]] == 1:
            return float(own["free_s"])
        return float(self._st.worker_free_s[number].max())

    def busy_s(self, number: int) -> float:
        """Return the worker-seconds of its batches since it was first added, current batches in full."""
        if number not in self._added:  # a stage on shared instances may get its replica later
            check_time("number", number)
            return 0.0
        return float(self._st.slots["busy_s"][number])

    def in_flight(self, at_s: float) -> int | None:
        """Return the number of requests that wait or are served at `at_s`, at most `MOST_IN_FLIGHT` a replica.

        None if routing does not count them.
        """
        if self._routing not in COUNTING:
            return None
        slots, answers_s = self._st.slots, self._st.flight_s
        # An idle replica's last answers stay until routing considers it again, and forever after its end.
        busy_until_s = np.maximum(slots["free_s"], self._st.worker_free_s.max(axis=1, initial=0.0))
        kinds, opened = self._st.kinds, slots[slots["open_size"] > 0]
        overhead_s = kinds.rows["overhead_s"].max(initial=0.0)
        some = np.flatnonzero((slots["flight_count"] > 0) & (busy_until_s + overhead_s > at_s))
        counts = slots["flight_count"][some]
        most = int(counts.max(initial=0))
        to_come = (np.arange(most) < counts[:, None]) & (answers_s[some, :most] > at_s)
        # Simulation is lazy: an open batch whose start has passed may have been answered by now.
        answer_s = opened["open_start_s"] + kinds.service_s[opened["kind"], opened["open_size"]] + overhead_s
        return int(to_come.sum() + opened["open_size"][answer_s > at_s].sum())

    def all_busy_s(self) -> float:
        """Return the sum of `busy_s` over all replicas that ever existed."""
        return float(self._st.slots["busy_s"].sum())

    def set_speed(self, number: int, factor: float, at_s: float) -> None:
        """Let its batches take 1 / factor times as long from the next batch on (burstables out of credits)."""
        check_replica(number, self._added)
        if not 0.0 < factor < INF:
            raise BadInput("a speed must be above zero", "factor", factor)
        own = self._st.slots[number]
        if own["open_size"] > 0 and own["open_start_s"] <= at_s:
            self._settle(number)
        offer_index, _ = self._kinds[own["kind"]]
        own["kind"] = self._kind(offer_index, factor)
        self._stale = True

    def warm(self, at_s: float, environments: int) -> int:
        """Ping functions until that many environments exist, and return how many were started."""
        check_time("at_s", at_s)
        return int(self._run_warm(self._pool, float(at_s), environments)) if self._function is not None else 0

    def start_warm(self, environments: int) -> None:
        """Make environments warm at the start, unbilled: they are part of the first fleet."""
        if environments < 0:
            raise BadInput("must not be negative", "environments", environments)
        if self._function is None:
            return
        count = min(environments, self._function.offer.concurrency)
        self._pool.idle_since_s[:count] = 0.0
        self._pool.number[IDLE_COUNT] = count

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, arrivals_s: Floats, first: int, until_s: float, limit_s: Floats | None = None) -> int:
        """Simulate arrivals [first, ...) before `until_s`, and return the position of the next.

        May be called repeatedly. `limit_s` is the latency that each request is admitted for, by default RT_max. Either
        all calls for a stage pass it or none does. Raises BadInput for arrivals that do not ascend, also from one call
        to the next, or come after `end_s`. Requests of a pipeline, which have limits, may come later: accounts count
        them in the last minute.
        """
        after = self._pass(arrivals_s, first, until_s, limit_s)
        if self._lost is not None and limit_s is not None:
            self._lost.admitted(limit_s[first:after])
        return after

    def _pass(self, arrivals_s: Floats, first: int, until_s: float, limit_s: Floats | None) -> int:
        if self._stale:
            self._rebuild()
        arrivals_s = np.ascontiguousarray(arrivals_s, dtype=np.float64)
        self._since_s = check_arrivals(arrivals_s, first, float(until_s), self._since_s, self.accounts.end_s, limit_s)
        limits_s = self._limit_s if limit_s is None else np.ascontiguousarray(limit_s, dtype=np.float64)
        arrivals = ArrivalTimes(arrivals_s, limits_s, limit_s is not None)
        while True:
            first = self._run_advance(
                self._st,
                self._pool,
                self._out,
                self.accounts.arrays,
                arrivals,
                first,
                float(until_s),
                self._rules,
                self._has_rows,
                self._lost is None,
            )
            crowded = self._st.counter[CROWDED] > 0
            if crowded:
                self._st = known.with_longer_rings(self._st)
            if not crowded and (not self._has_rows or not self._out.rows[0]):
                return int(first)
            if self._lost is not None:
                self._departed()
            elif self._kept is not None:
                self._kept.append(self._out.taken())

    def reach(self, until_s: float) -> None:
        """Declare that no further arrival comes before `until_s`. Nothing to do here, because simulation is lazy."""

    def settle(self, until_s: float) -> None:
        """Let all accepted requests depart whose batches start by `until_s`, and so all that complete before then."""
        if self._stale:
            self._rebuild()
        loop.settle(self._st, self._out, until_s)
        self._departed()

    def finish(self) -> None:
        """Finish all accepted requests. Call this once, after the last arrival and the last crash."""
        self.settle(INF)
        if self._lost is not None:
            for number in self._lost.replicas():
                self._ended(self._lost.waiting(number))

    # -- results -------------------------------------------------------------------------------------------------------

    def departures(self) -> Departures:
        """Return all departures kept since the last call, in the order of departure."""
        assert self._kept is not None, "made without `keep`"
        taken = joined(self._kept)
        self._kept.clear()
        return taken

    def recording(self) -> Recording:
        """Return the departures kept since the last call of `departures`, by request."""
        assert self._kept is not None, "made without `keep`"
        return by_request(joined(self._kept), self.arrived)

    @property
    def arrived(self) -> int:
        return int(self._st.counter[REQUEST])

    @property
    def lost(self) -> tuple[int, int]:
        """The requests lost in crashes, counted each time, and how many of them were retried."""
        return (0, 0) if self._lost is None else (self._lost.lost, self._lost.retried)

    @property
    def hedges(self) -> tuple[int, int, float]:
        """Second copies sent, those that answered first, and worker-seconds of copies that were not used."""
        return 0, 0, 0.0

    @property
    def by_instances(self) -> int:
        """The number of requests accepted by replicas, answered or not yet."""
        return self.arrived - self.accounts.by_functions - self.accounts.rejected

    def function_usd(self) -> float:
        """Return the dollars of all invocations: warm, cold (initialisation if the catalogue bills it) and pings."""
        return 0.0 if self._function is None else function_environments.usd_of(self._function, self._pool.number)

    def function_calls(self) -> FunctionCalls:
        use = self._function
        return FunctionCalls() if use is None else function_environments.calls_of(use, self._pool.number)

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _kind(self, offer_index: int, speed: float) -> int:
        key = (offer_index, speed)
        if key not in self._kind_of:
            self._kind_of[key] = len(self._kinds)
            self._kinds.append(key)
            kinds = _kinds(len(self._kinds), self._st.kinds.service_s.shape[1])
            for k, (index, factor) in enumerate(self._kinds):
                c = self._candidates[index]
                row = kinds.rows[k]
                row["n_batch"], row["window_s"], row["workers"] = c.policy.n_batch, c.policy.w_batch_s, c.workers
                row["overhead_s"], row["sigma"], row["horizon_s"] = c.overhead_s, c.sigma, self._horizons_s[index]
                kinds.variation[k] = c.variation
                kinds.service_s[k, : c.policy.n_batch + 1] = c.service_s / factor
            self._st = self._st._replace(kinds=kinds)
            self._stale = True
        return self._kind_of[key]

    def _grow(self, slots: int) -> None:
        have = len(self._st.slots)
        if slots <= have:
            return
        more = max(slots, 2 * have, 64) - have
        st = self._st
        self._st = st._replace(
            slots=_padded(st.slots, more),
            worker_free_s=_padded(st.worker_free_s, more),
            members=_padded(st.members, more),
            ready=_padded(st.ready, more),
            flight_s=_padded(st.flight_s, more),
            sent_s=_padded(st.sent_s, more),
            turn=_padded(st.turn, more),
            faults=with_slots(st.faults, more),
            queues=_padded(st.queues, more),
            batches=_padded(st.batches, more),
            learned=_padded(st.learned, more if self._routing == GATEWAY else 0),
            late_left=_padded(st.late_left, more),
        )
        self._st.slots["leaf"][have:] = -1
        self._st.slots["flight_next_s"][have:] = INF
        # A chunk with one free row left must also hold the rows of one arrival that starts every open batch.
        self._out = buffer(CHUNK + self._st.members.size + 1, self._has_rows)

    def _learn(self, until_s: float) -> None:
        """Let a gateway learn up to `until_s`, before the fleet changes."""
        if self._routing == GATEWAY:
            if self._stale:
                self._rebuild()
            self._run_learn(self._st, self._out, float(until_s))
            self._departed()

    def _introduce(self, number: int, at_s: float) -> None:
        """Give a gateway a new replica. One that still has requests in flight stays known."""
        own = self._st.slots[number]
        if not (self._st.flight_s[number, : own["flight_count"]] > at_s).any():
            own["flight_count"], own["flight_next_s"] = 0, INF
            learned.new_replica(self._st, number)

    def _forget_batches(self, number: int) -> None:
        queue = self._st.queues[number]
        queue["first"], queue["count"], queue["behind_s"] = 0, 0, 0.0

    def _settle(self, number: int) -> None:
        """Start the open batch at its due time, without updating the trees, which are rebuilt later."""
        own = self._st.slots[number]
        own["leaf"] = -1
        self._stale = True
        if own["open_size"] > 0:
            self._start_open(self._st, self._out, number, float(own["open_start_s"]))
            self._departed()

    def _departed(self) -> None:
        """Account the rows in the buffer, and empty it."""
        rows = self._out.taken()
        self._ended(rows if self._lost is None else self._lost.without(rows))

    def _ended(self, rows: Departures) -> None:
        """Account these rows."""
        self.accounts.add(rows)
        if self._kept is not None:
            self._kept.append(rows)

    def _give_up(self, request: Ints, arrival_s: Floats, at_s: float) -> None:
        """Let a lost request that no replica will answer depart: by a gateway's function, or refused."""
        takes_s = INF if self._routing == ALB else function_environments.latency_s(self._pool, at_s)
        if takes_s < INF:
            function_environments.begin(self._pool, at_s)
        elif self._function is not None and self._routing != ALB:
            self._pool.number[THROTTLED] += 1
        slot = BY_FUNCTION if takes_s < INF else REFUSED
        self._ended(ended(request, arrival_s, at_s, np.array([takes_s]), slot))

    @property
    def _has_rows(self) -> bool:
        """Whether the buffer has every column, and is read in Python."""
        return self._kept is not None or self._lost is not None

    def _rebuild(self) -> None:
        """Lay out the trees again: leaves of a kind ascend by number, so that the leftmost has the lowest number."""
        st = self._st
        numbers = np.array(sorted(self._ready), dtype=np.int64)
        kinds = st.slots["kind"][numbers]
        st.ready[: len(numbers)] = numbers
        st.counter[READY] = len(numbers)
        # The trees of a kind: its own, or its capacity class's.
        by_class = self._routing == ALB
        tree_of = np.array([self._class_of[i] for i, _ in self._kinds] if by_class else range(len(self._kinds)), int)
        trees = tree_of[kinds]
        size = 0
        active = []
        for tree in range(max(tree_of, default=-1) + 1):
            count = int((trees == tree).sum())
            if count:
                active.append(tree)
                st.kinds.rows["tree_at"][tree_of == tree] = size + ROOT
                st.kinds.rows["tree_levels"][tree_of == tree] = levels_for(count)
                size += places_for(levels_for(count))
        st.kinds.active[: len(active)] = active
        st.counter[ACTIVE] = len(active)
        if size > len(st.open_tree):
            size = max(size, 2 * len(st.open_tree))
            self._st = st = st._replace(
                open_tree=np.zeros(size),
                free_tree=np.zeros(size),
                due_tree=np.zeros(size),
                count_tree=np.zeros(size),
                flight_tree=np.zeros(size),
                leaf_slot=np.zeros(size, dtype=np.int64),
            )
        for values in (st.open_tree, st.free_tree, st.due_tree, st.count_tree, st.flight_tree):
            values[:] = INF
        for tree in active:
            row = st.kinds.rows[np.argmax(tree_of == tree)]
            at, levels = row["tree_at"], row["tree_levels"]
            mine = numbers[trees == tree]
            leaves = first_leaf_of(levels) + np.arange(len(mine))
            st.slots["leaf"][mine] = leaves
            st.leaf_slot[at + leaves] = mine
            if by_class:
                st.classes.tree_at[tree], st.classes.tree_levels[tree] = at, levels
            self._show_all(st, mine)
        if by_class:
            st.classes.weight[:] = self._weights(trees, kinds)
        self._stale = False

    def _weights(self, classes: Ints, kinds: Ints) -> list[int] | int:
        """Return the weights of the classes by the capacity of ready replicas, given the class and kind of each."""
        if not len(kinds):
            return 0
        capacity_rps = np.array([self._candidates[i].capacity_rps for i, _ in self._kinds])
        sums_rps = np.bincount(classes, capacity_rps[kinds], len(self._st.classes.weight))
        return class_weights(sums_rps.tolist())


def _padded(array: NDArray[T], rows: int) -> NDArray[T]:
    return np.concatenate([array, np.zeros((rows, *array.shape[1:]), dtype=array.dtype)])


def _kinds(kinds: int, largest: int) -> Kinds:
    """Return new arrays for batches of up to `largest`."""

    return Kinds(
        rows=np.zeros(kinds, dtype=KIND),
        service_s=np.zeros((kinds, largest + 1)),
        variation=np.zeros(kinds),
        active=np.zeros(kinds, dtype=np.int64),
    )
