"""The same stage as `mark.kernel`, plain and slow: SimPy events, a bouncer that asks every replica, nothing clever.

Simultaneous events happen in this order:

1. workers finish and environments of functions become idle; batches that are due start (a window's end included);
2. the fleet changes (added, drained, slowed down, crashed; environments warmed), in the order given; requests lost in a
   crash come again immediately;
3. requests arrive, in the order given; one that starts or closes a batch does so before the next arrives.

A batch's service time is fixed when it closes (no request may join any more), at the latest when it starts. The factor
that is drawn for it and the faults of its replica decide when it ends, and are unknown until then: expectations use the
mean service, and a batch that overruns its mean is expected to end now.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, count, takewhile
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.function_offer import REFRESH_SHARE, FunctionOffer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.rules import admission, batching, routing
from mark.domain.rules.capacity_classes import class_weights
from mark.domain.service import FunctionUse
from mark.kernel.random import factor_of
from mark.kernel.stage import LEARNING
from tests.kernel.learning_balancer import LearningBalancer

CHANGE, ARRIVAL = 2, 3  # SimPy's own events have priorities 0 and 1

REFUSED, BY_FUNCTION = -2, -1
# A worker that overruns is expected to be free a moment after now, so that routing prefers an idle one.
MOMENT_S = 1e-9
GOLDEN, BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1


def candidate(
    service_s: list[float],
    *,
    window_s: float = 0.0,
    workers: int = 1,
    overhead_s: float = 0.0,
    sigma: float = 0.0,
) -> Candidate:
    """Return a candidate whose batch of b takes `service_s[b - 1]`."""
    rows = tuple(
        ProfileRow(b, t * 1e3, workers=workers, overhead_ms=overhead_s * 1e3) for b, t in enumerate(service_s, start=1)
    )
    largest = len(service_s)
    rate = workers * largest / service_s[-1]
    table = np.array([0.0, *service_s])
    return Candidate(Profile("m", "i", rows), BatchPolicy(largest, window_s), table, rate, rate, sigma)


def function(
    warm_s: float,
    cold_s: float,
    *,
    concurrency: int = 1000,
    ramp_per_10s: float = 10_000.0,
    burst: float = 0.0,
    keep_alive_s: float = 2700.0,
    bills_init: bool = False,
) -> FunctionUse:
    offer = FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, concurrency, ramp_per_10s, keep_alive_s, burst, bills_init)
    return FunctionUse(offer, warm_s, cold_s, "measured")


@dataclass(frozen=True)
class Change:
    """One step of the fleet's history: `what` is add, drain, speed, crash or warm."""

    at_s: float
    what: str
    number: int = 0
    candidate: int = 0
    speed: float = 1.0
    environments: int = 0


@dataclass(frozen=True)
class Case:
    candidates: tuple[Candidate, ...]
    changes: tuple[Change, ...]
    arrivals_s: tuple[float, ...]
    rt_max_s: float
    function: FunctionUse | None = None
    bouncers: bool = True
    routing: str = "least-completion"
    seed: int = 0
    limits_s: tuple[float, ...] = ()  # by request; empty: RT_max for all
    late: int = admission.FUNCTION
    classes: tuple[int, ...] = ()  # by candidate; empty: all in one
    faults: Faults = NO_FAULTS
    least: float = 0.0  # probability of being in time below which a function that is in time gets a request
    late_share: float = 0.0  # requests that a replica may queue late, per request, if the function is late


@dataclass
class Outcome:
    """The outcome by request, as `mark.kernel.departures.Recording` has it."""

    slot: NDArray[np.int64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    cold_starts: int = 0
    pings: list[int] = field(default_factory=list)
    promised: list[int] = field(default_factory=list)  # requests that a bouncer admitted


@dataclass(eq=False)
class Batch:
    opened_s: float
    members: list[tuple[int, float, float]] = field(default_factory=list)  # request, arrival, promise
    service_s: float = 0.0
    speed: float = 1.0  # of its replica when it closed
    factor: float = 1.0  # drawn then
    expected_start_s: float = 0.0  # when a request joined it last


def mix(z: int) -> int:
    """Return the hash by SplitMix64 (Steele, Lea, Flood 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


class Troubles:
    """The slow periods and hangs of a replica, from time 0 on."""

    def __init__(self, faults: Faults, seed: int, number: int) -> None:
        self.faults, self.seed, self.number = faults, seed, number
        group = number // faults.host_group
        self.begins_slow = self.uniform(0, group, 0) <= faults.slow_share
        # When periods end, slow and calm, and when hangs begin.
        self.turns_s = Times(lambda n: self.period_s(group, n), 0.0) if faults.slows else ()
        self.hangs_s = Times(self.between_s, faults.hang_s) if faults.hangs else ()

    def uniform(self, purpose: int, whose: int, drawn: int) -> float:
        z = mix(mix((self.seed + GOLDEN * (purpose + 1)) & BITS) ^ whose)
        return ((mix((z + GOLDEN * drawn) & BITS) >> 11) + 1) / 2.0**53

    def period_s(self, group: int, nth: int) -> float:
        slow = self.begins_slow == (nth % 2 == 0)
        share = self.faults.slow_share
        mean_s = self.faults.slow_s * (1.0 if slow else (1.0 - share) / share)
        return -mean_s * math.log(self.uniform(0, group, nth + 1))

    def between_s(self, nth: int) -> float:
        return -3600.0 / self.faults.hangs_per_hour * math.log(self.uniform(1, self.number, nth))

    def begins_s(self, at_s: float) -> float:
        """Return when a batch begins that a worker gets at this time."""
        length_s = self.faults.hang_s
        begun = takewhile(lambda hang_s: hang_s <= at_s, self.hangs_s)
        return next((hang_s + length_s for hang_s in begun if at_s < hang_s + length_s), at_s)

    def is_slow(self, at_s: float) -> bool:
        turns = sum(1 for _ in takewhile(lambda turn_s: turn_s <= at_s, self.turns_s))
        return bool(self.turns_s) and self.begins_slow == (turns % 2 == 0)

    def answers_later_s(self, begin_s: float) -> float:
        """Return the delay of the answers of a batch that begins at this time."""
        return self.faults.slow_answer_s if self.is_slow(begin_s) else 0.0

    def ends_s(self, begin_s: float, service_s: float) -> float:
        """Return when a batch ends that begins at this time."""
        if self.is_slow(begin_s):
            service_s = service_s * self.faults.slow_factor + self.faults.slow_add_s
        for hang_s in self.hangs_s:
            if hang_s >= begin_s + service_s:
                break
            if begin_s <= hang_s:
                service_s += self.faults.hang_s
        return begin_s + service_s


class Times:
    """Endless sums of steps, each but the first `more_s` longer; each is drawn when it is first needed."""

    def __init__(self, step_s: Callable[[int], float], more_s: float) -> None:
        self.step_s, self.more_s = step_s, more_s
        self.drawn_s: list[float] = []

    def __iter__(self) -> Iterator[float]:
        for nth in count():
            if nth == len(self.drawn_s):
                before_s = self.drawn_s[-1] + self.more_s if nth else 0.0
                self.drawn_s.append(before_s + self.step_s(nth))
            yield self.drawn_s[nth]


class Replica:
    def __init__(self, world: World, number: int, candidate: int) -> None:
        self.world, self.number, self.kind = world, number, world.case.candidates[candidate]
        self.speed = 1.0
        self.running: list[tuple[float, float, float]] = []  # when it ends, should end, and its mean time
        self.closes = 0
        self.closed: deque[Batch] = deque()
        self.open: Batch | None = None
        self.asked: list[int] = []  # requests that came here
        self.late_left = 0.0  # late requests that may still queue here
        self.troubles = Troubles(world.case.faults, world.case.seed, number)
        self.crashed = False
        self.group = world.case.classes[candidate] if world.case.classes else 0

    def service_s(self, size: int) -> float:
        return float(self.kind.service_s[size]) / self.speed

    def in_flight(self) -> int:
        """Return the number of requests that came here and have no answer from any replica or function."""
        seen = self.world.outcome
        still_s = self.world.env.now + admission.TOLERANCE_S
        return sum(bool(seen.finish_s[n] > still_s and seen.slot[n] != REFUSED) for n in self.asked)

    def work_s(self) -> float:
        """Return the work with one more request in flight, at the time per request of a full batch."""
        most = self.kind.policy.n_batch
        return float(self.in_flight() + 1) * (self.service_s(most) / (most * self.kind.workers))

    @property
    def window_s(self) -> float:
        return self.kind.policy.w_batch_s if self.kind.policy.n_batch > 1 else 0.0

    def expected_s(self) -> list[float]:
        """Return when workers should be free after all closed batches, as a heap, by playing these batches."""
        now = self.world.env.now
        idle = self.kind.workers - len(self.running)
        free = [*(max(now, expected_s) for _, expected_s, _ in self.running), *[now] * idle]
        heapq.heapify(free)
        for batch in self.closed:
            heapq.heapreplace(free, free[0] + batch.service_s)
        return free

    def worker_free_s(self) -> float:
        """Return when the first worker should be free after all closed batches."""
        return self.expected_s()[0]

    def end_s(self, free_s: float, batch: Batch) -> float:
        """Return when a batch ends that a worker gets at this time."""
        return self.troubles.ends_s(self.troubles.begins_s(free_s), batch.service_s * batch.factor)

    def joined(self) -> Batch | None:
        """Return the open batch, if one more request may join it now."""
        batch = self.open
        if batch is None:
            return None
        start = batching.start_s(self.worker_free_s(), batch.opened_s, self.window_s)
        return batch if start <= batch.expected_start_s or self.may_join(batch, start) else None

    def free_for_next_s(self) -> float:
        """Return when a worker should be free for a request that arrives now."""
        free = self.expected_s()
        if self.open is not None and self.joined() is None:
            heapq.heapreplace(free, free[0] + self.service_s(len(self.open.members)))
        return free[0]

    def completion_s(self) -> float:
        """Return when a request that arrives now would be answered if no further one came."""
        now, free, batch = self.world.env.now, self.free_for_next_s(), self.joined()
        if free <= now and len(self.running) == self.kind.workers:
            free = now + MOMENT_S
        if batch is None:
            return batching.start_s(free, now, self.window_s) + self.service_s(1) + self.kind.overhead_s
        size = len(batch.members) + 1
        fills = size == self.kind.policy.n_batch
        start = max(free, now) if fills else batching.start_s(free, batch.opened_s, self.window_s)
        return start + self.service_s(size) + self.kind.overhead_s

    def reserve_s(self) -> float:
        """Time that the bouncer keeps for requests that may still join the batch that a request would open."""
        if self.joined() is not None:
            return 0.0
        largest = self.kind.policy.n_batch
        waits = largest > 1 and (self.window_s > 0.0 or self.free_for_next_s() > self.world.env.now)
        return batching.reserve_s(waits, self.service_s(1), self.service_s(largest))

    def squares_s2(self) -> float:
        """Return the squared mean times of the batches up to that of a request that arrives now."""
        means_s = [*(mean_s for _, _, mean_s in self.running), *(batch.service_s for batch in self.closed)]
        size = 0
        if self.open is not None:
            size = len(self.open.members)
            if self.joined() is None:
                means_s.append(self.service_s(size))
                size = 0
        return float(sum(mean_s**2 for mean_s in means_s) / self.kind.workers + self.service_s(size + 1) ** 2)

    def margin_s(self) -> float:
        """Time that the bouncer keeps back for scatter, behind a batch that waits."""
        return admission.margin_s(bool(self.closed), self.squares_s2(), self.kind.variation)

    def doubtful(self, horizon_s: float) -> bool:
        """Return whether a request that would be admitted should rather go to a function that is in time."""
        left_s = horizon_s - self.kind.overhead_s
        expected_s = self.completion_s() - self.kind.overhead_s - self.world.env.now + self.reserve_s()
        one_s, variation = self.service_s(1), self.kind.variation
        return variation > 0.0 and admission.doubtful(
            admission.in_time_probability(expected_s, self.squares_s2(), variation, left_s),
            admission.in_time_probability(one_s, one_s**2, variation, left_s),
            self.world.case.least,
        )

    def take(self, request: int, promise_s: float) -> None:
        env = self.world.env
        if self.joined() is None:
            self.close()
            self.start_what_is_due()
            self.open = Batch(env.now)
            env.process(self.wait_for_window(self.open))
        batch = self.open
        assert batch is not None
        batch.members.append((request, env.now, promise_s))
        start = batching.start_s(self.worker_free_s(), batch.opened_s, self.window_s)
        batch.expected_start_s = start
        if len(batch.members) == self.kind.policy.n_batch or not self.may_join(batch, start):
            self.close()
        self.start_what_is_due()

    def may_join(self, batch: Batch, start: float) -> bool:
        """Return whether one more request may join a batch that starts at this time."""
        size = len(batch.members)
        answer = start + self.service_s(size) + self.kind.overhead_s
        promised = [m for m in batch.members[:-1] if m[2] < admission.NEVER_S] + batch.members[-1:]
        in_time = [m for m in promised if admission.in_time(answer - m[1], m[2])]
        _, first_s, within_s = min(in_time, key=lambda m: m[1] + m[2], default=batch.members[-1])
        return batching.joins(
            start,
            self.service_s(size),
            self.service_s(size + 1),
            self.service_s(1),
            first_s,
            self.kind.overhead_s,
            within_s,
        )

    def close(self) -> None:
        if self.open is not None:
            self.open.service_s, self.open.speed = self.service_s(len(self.open.members)), self.speed
            self.closes += 1
            if self.kind.sigma != 0.0:
                self.open.factor = factor_of(self.world.case.seed, self.number, self.closes, 0, self.kind.sigma)
            self.closed.append(self.open)
            self.open = None

    def wait_for_window(self, batch: Batch) -> Generator[simpy.Event, Any, Any]:
        yield self.world.env.timeout(self.window_s)
        self.start_what_is_due()

    def start_what_is_due(self) -> None:
        now = self.world.env.now
        while not self.crashed and len(self.running) < self.kind.workers:
            if not self.closed and self.open is not None and now >= self.open.opened_s + self.window_s:
                self.close()
            if not self.closed:
                return
            batch = self.closed.popleft()
            begin, finish = self.troubles.begins_s(now), self.end_s(now, batch)
            busy = finish, now + batch.service_s, batch.service_s
            self.running.append(busy)
            self.world.started(self, batch, begin, finish)
            self.world.env.process(self.serve(busy, finish - now))

    def serve(self, busy: tuple[float, float, float], service_s: float) -> Generator[simpy.Event, Any, Any]:
        yield self.world.env.timeout(service_s)
        self.running.remove(busy)
        self.start_what_is_due()


class Environments:
    """The environments of the function: busy, idle or recycled."""

    def __init__(self, env: simpy.Environment, use: FunctionUse | None) -> None:
        self.env, self.use = env, use
        self.idle_since_s: list[float] = []
        self.busy = 0
        self.cold_starts = 0
        if use is not None:
            self.most = max(use.offer.burst, use.offer.ramp_per_10s, 1.0)
            self.tokens, self.tokens_at_s = self.most, 0.0

    def may_start(self) -> bool:
        assert self.use is not None
        grown = (self.env.now - self.tokens_at_s) * self.use.offer.ramp_per_10s / 10.0
        self.tokens, self.tokens_at_s = min(self.most, self.tokens + grown), self.env.now
        return self.tokens >= 1.0 and self.busy < self.use.offer.concurrency

    def latency_s(self) -> float:
        if self.use is None or self.busy >= self.use.offer.concurrency:
            return admission.NEVER_S
        keep = self.use.offer.keep_alive_s
        self.idle_since_s = [since for since in self.idle_since_s if since + keep > self.env.now]
        if self.idle_since_s:
            return self.use.warm_s
        return self.use.warm_s + self.use.cold_s if self.may_start() else admission.NEVER_S

    def call(self, latency_s: float) -> None:
        if self.idle_since_s:
            self.idle_since_s.remove(max(self.idle_since_s))
        else:
            self.tokens -= 1.0
            self.cold_starts += 1
        self.busy += 1
        self.env.process(self.hold(latency_s))

    def warm(self, environments: int) -> int:
        if self.use is None:
            return 0
        self.latency_s()  # forgets those idle for too long
        wanted = min(environments, self.use.offer.concurrency)
        unwanted = max(0, len(self.idle_since_s) + self.busy - wanted)
        refreshed_s = REFRESH_SHARE * self.use.offer.keep_alive_s
        for since in sorted(self.idle_since_s)[unwanted:]:
            if since + refreshed_s <= self.env.now:
                self.idle_since_s.remove(since)
                self.busy += 1
                self.env.process(self.hold(self.use.warm_s))
        started = 0
        while len(self.idle_since_s) + self.busy < wanted:
            if not self.may_start():
                break
            self.tokens -= 1.0
            self.busy += 1
            self.env.process(self.hold(self.use.warm_s + self.use.cold_s))
            started += 1
        return started

    def hold(self, duration_s: float) -> Generator[simpy.Event, Any, Any]:
        yield self.env.timeout(duration_s)
        self.busy -= 1
        self.idle_since_s.append(self.env.now)


class World:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.env = simpy.Environment()
        self.environments = Environments(self.env, case.function)
        self.replicas: dict[int, Replica] = {}
        self.ever: dict[int, Replica] = {}  # drained ones, too
        self.retried: set[int] = set()
        self.random = case.seed
        n = len(case.arrivals_s)
        self.outcome = Outcome(np.full(n, -3), np.full(n, np.inf), np.full(n, np.inf))
        learns = case.routing in LEARNING and (case.faults.slows or case.faults.hangs)
        self.balancer = LearningBalancer() if learns else None

    def run(self) -> Outcome:
        self.env.process(self.changes())
        self.env.process(self.arrivals())
        self.env.run()
        self.outcome.cold_starts = self.environments.cold_starts
        return self.outcome

    def at(self, time_s: float, priority: float) -> simpy.Event:
        """Return an event that comes after all events of lower priority at its time, even those not yet scheduled."""
        event = self.env.event()
        event._ok, event._value = True, None
        self.env.schedule(event, priority, time_s - self.env.now)  # type: ignore[arg-type]
        return event

    def changes(self) -> Generator[simpy.Event, Any, Any]:
        for change in self.case.changes:
            yield self.at(change.at_s, CHANGE)
            if change.what == "add":
                self.replicas[change.number] = self.replica(change.number, change.candidate)
                self.ever[change.number] = self.replicas[change.number]
            elif change.what == "drain":
                self.replicas.pop(change.number)  # its events continue until it is empty
            elif change.what == "speed":
                self.replicas[change.number].speed = change.speed
            elif change.what == "crash":
                self.crash(change.number)
            else:
                self.outcome.pings.append(self.environments.warm(change.environments))
            self.tell_balancer()

    def tell_balancer(self) -> None:
        if self.balancer is not None:
            self.balancer.put(sorted(self.replicas), self.env.now)

    def arrivals(self) -> Generator[simpy.Event, Any, Any]:
        for request, at_s in enumerate(self.case.arrivals_s):
            yield self.at(at_s, ARRIVAL)
            self.arrive(request)

    def arrive(self, request: int) -> None:
        self.ask(request, self.choose(request))

    def ask(self, request: int, best: Replica | None) -> None:
        now, case = self.env.now, self.case
        limit = case.limits_s[request] - (now - case.arrivals_s[request]) if case.limits_s else case.rt_max_s
        horizon = limit if case.bouncers else admission.NEVER_S
        if best is not None:
            best.asked.append(request)
            best.late_left = admission.late_budget(best.late_left, case.late_share)
        latency = admission.NEVER_S if best is None else best.completion_s() - now + best.reserve_s() + best.margin_s()
        if best is not None and admission.in_time(latency, horizon) and not self.passed_on(best, horizon):
            self.outcome.promised.append(request)
            best.take(request, horizon)
            return
        by_function = self.environments.latency_s()
        # a bouncer knows whether functions answer at all, not whether the next call will be a cold start
        promised = case.function.warm_s if case.function and by_function < admission.NEVER_S else admission.NEVER_S
        if best is not None and admission.in_time(latency, horizon):
            latency = admission.NEVER_S  # passed on
        if admission.destination(latency, promised, limit, case.late) == admission.FUNCTION:
            if best is not None and not case.limits_s and self.queues_late(best, latency, promised):
                best.take(request, admission.NEVER_S)
                return
            self.environments.call(by_function)
            self.answer(request, BY_FUNCTION, now, now + by_function)
            if self.balancer is not None and best is not None:
                self.balancer.answers_at(request, now + by_function)
            return
        if self.balancer is not None and best is not None:
            best.asked.remove(request)
            other = self.balancer.refused(request, now)
            if other is not None:
                self.ask(request, self.replicas[other])
                return
        self.answer(request, REFUSED, now, np.inf)

    def queues_late(self, replica: Replica, latency_s: float, function_s: float) -> bool:
        """Return whether a request that the function would not answer in time either stays on the replica."""
        if admission.in_time(function_s, self.case.rt_max_s) or not self.case.bouncers or replica.kind.sigma == 0.0:
            return False
        left, replica.late_left = replica.late_left, admission.late_budget(replica.late_left, -1.0)
        return admission.queues_late(left, latency_s, function_s, self.case.rt_max_s)

    def passed_on(self, replica: Replica, horizon_s: float) -> bool:
        """Return whether a function gets a request that the replica expects to answer in time."""
        case = self.case
        if case.function is None or not case.bouncers or case.least == 0.0:
            return False
        answers = self.environments.latency_s() < admission.NEVER_S
        in_time = answers and admission.in_time(case.function.warm_s, horizon_s)
        return in_time and replica.doubtful(horizon_s)

    def crash(self, number: int) -> None:
        """Crash the replica: its unanswered requests come again once, except behind an ALB."""
        self.replicas.pop(number, None)
        self.tell_balancer()
        replica, seen = self.ever[number], self.outcome
        replica.crashed = True
        mine = [r for r in replica.asked if seen.slot[r] in (-3, number) and seen.finish_s[r] > self.env.now]
        once = sorted(r for r in mine if r not in self.retried and self.case.routing != "alb")
        self.retried.update(once)
        for request in mine:
            self.answer(request, -3, np.inf, np.inf)
            if self.balancer is not None:
                self.balancer.abandoned(request)
        for request in once:
            self.arrive(request)
        for request in sorted(set(mine) - set(once)):
            by_function = admission.NEVER_S if self.case.routing == "alb" else self.environments.latency_s()
            if by_function < admission.NEVER_S:
                self.environments.call(by_function)
                self.answer(request, BY_FUNCTION, self.env.now, self.env.now + by_function)
            else:
                self.answer(request, REFUSED, self.env.now, np.inf)

    def choose(self, request: int) -> Replica | None:
        numbers = sorted(self.replicas)
        if self.balancer is not None:
            number = self.balancer.begin(request, self.env.now)
            return None if number is None else self.replicas[number]
        if self.case.routing == "fewest-in-flight":
            return min((self.replicas[n] for n in numbers), key=Replica.work_s, default=None)
        if self.case.routing == "alb" and numbers:
            ready = [self.replicas[n] for n in numbers]
            groups = sorted({r.group for r in ready})
            share = class_weights([sum(r.kind.capacity_rps for r in ready if r.group == g) for g in groups])
            drawn = self.bits() % sum(share)
            group = next(g for g, upto in zip(groups, accumulate(share), strict=True) if drawn < upto)
            # In turn: the replica that was asked longest ago, and at first the lowest number.
            return min(
                (r for r in ready if r.group == group),
                key=lambda r: (r.in_flight(), r.asked[-1] if r.asked else -1, r.number),
            )
        if self.case.routing == "power-of-two-choices" and numbers:
            numbers = [numbers[self.bits() % len(numbers)], numbers[self.bits() % len(numbers)]]
        best: Replica | None = None
        for replica in (self.replicas[n] for n in numbers):
            if best is None or routing.better(
                replica.completion_s(), replica.open is not None, replica.number,
                best.completion_s(), best.open is not None, best.number,
            ):  # fmt: skip
                best = replica
        return best

    def replica(self, number: int, candidate: int) -> Replica:
        return Replica(self, number, candidate)

    def started(self, replica: Replica, batch: Batch, begin_s: float, finish_s: float) -> None:
        answer_s = finish_s + replica.kind.overhead_s + replica.troubles.answers_later_s(begin_s)
        for request, _, _ in batch.members:
            self.answer(request, replica.number, begin_s, answer_s)
            if self.balancer is not None:
                self.balancer.answers_at(request, answer_s)

    def bits(self) -> int:
        self.random = (self.random + GOLDEN) & BITS
        return mix(self.random)

    def answer(self, request: int, slot: int, start_s: float, finish_s: float) -> None:
        self.outcome.slot[request] = slot
        self.outcome.start_s[request] = start_s
        self.outcome.finish_s[request] = finish_s
