"""The same pipeline as `mark.kernel.central_queues`, plain and slow: SimPy processes, one for each query and stage.

Simultaneous events happen in this order:

1. batches are answered, replicas join and leave, queries arrive and go on to their next stages;
2. at each stage, free replicas pull in order of their numbers, the earliest deadline first;
3. calls whose last moment is now (or was before they came) go to the stage's function, the earliest deadline first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from mark.domain.pipeline import ALL, Join
from mark.domain.rules.admission import NEVER_S, in_time
from mark.kernel.central_queues import StageFunction
from mark.kernel.random import factor_of
from tests.kernel.reference import Environments

PULL, LEAVE = 2, 3  # SimPy's own events have priorities 0 and 1
Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class PulledBy:
    """A replica of a stage; `service_s[b - 1]` is the time of a batch of b."""

    stage: int
    service_s: tuple[float, ...]
    ready_s: float = 0.0
    leave_s: float = np.inf


@dataclass(frozen=True)
class PipelineCase:
    """Stages by number, with their predecessors; replicas in order of number within their stages."""

    after: tuple[tuple[int, ...], ...]
    replicas: tuple[PulledBy, ...]
    arrivals_s: tuple[float, ...]
    calls: tuple[tuple[int, ...], ...]  # by query and stage
    joins: tuple[Join, ...] = ()  # empty: all wait for all
    deadlines_s: tuple[float, ...] = ()  # by query; empty: none, the first to arrive goes first
    sigma: float = 0.0  # of the logarithm of a batch's time, and of its first call's factor
    seed: int = 0
    functions: tuple[StageFunction | None, ...] = ()  # by stage; empty: no stage has a function

    def urgency(self) -> dict[int, int]:
        """Return the rank of each query in order of deadlines, then of arrivals."""
        deadlines_s = self.deadlines_s or self.arrivals_s
        order = sorted(range(len(self.arrivals_s)), key=lambda query: (deadlines_s[query], self.arrivals_s[query]))
        return {query: number for number, query in enumerate(order)}

    def join(self, stage: int) -> Join:
        return self.joins[stage] if self.joins else ALL

    def function(self, stage: int) -> StageFunction | None:
        return self.functions[stage] if self.functions else None

    def deadline_s(self, query: int) -> float:
        return self.deadlines_s[query] if self.deadlines_s else np.inf


@dataclass(order=True)
class WaitingCall:
    """A call that waits; the most urgent call is the least."""

    urgent_s: float
    arrival_s: float
    query: int
    call: int
    ready_s: float = field(compare=False)
    answer: simpy.Event = field(compare=False)
    asked: bool = field(default=False, compare=False)  # its last moment has passed


class CentralQueue:
    def __init__(self, world: PipelineWorld, stage: int) -> None:
        self.world, self.stage = world, stage
        self.replicas = [replica for replica in world.case.replicas if replica.stage == stage]
        self.free_s = [replica.ready_s for replica in self.replicas]
        self.waiting: list[WaitingCall] = []  # the most urgent first
        self.function = world.case.function(stage)
        self.environments = Environments(world.env, self.function.use if self.function else None)
        for replica in self.replicas:
            world.env.process(self.join(replica))

    def join(self, replica: PulledBy) -> Steps:
        yield self.world.env.timeout(replica.ready_s)
        self.wake()

    def put(self, query: int, call: int) -> simpy.Event:
        """Queue a call; the event is its answer."""
        case, answer = self.world.case, self.world.env.event()
        arrival_s = case.arrivals_s[query]
        urgent_s = case.deadlines_s[query] if case.deadlines_s else arrival_s
        heapq.heappush(self.waiting, WaitingCall(urgent_s, arrival_s, query, call, self.world.env.now, answer))
        self.wake()
        if (last_s := self.last_moment_s(query)) < np.inf:
            self.at(max(last_s - self.world.env.now, 0.0), LEAVE, self.leave)
        return answer

    def wake(self) -> None:
        self.at(0.0, PULL, self.pull)

    def at(self, delay_s: float, priority: int, what: Callable[[simpy.Event], None]) -> None:
        event = self.world.env.event()
        event._ok, event._value = True, None
        event.callbacks.append(what)
        self.world.env.schedule(event, priority, delay_s)  # type: ignore[arg-type]

    def last_moment_s(self, query: int) -> float:
        """Return when a call can just be in time on the function or in a full batch, whichever takes longer."""
        if self.function is None:
            return np.inf
        takes_s = max(self.function.use.warm_s, self.function.batch_s)
        return self.world.case.deadline_s(query) - (self.function.behind_s + takes_s)

    def leave(self, _: simpy.Event) -> None:
        for one in sorted(self.waiting):
            if not one.asked and self.last_moment_s(one.query) <= self.world.env.now:
                one.asked = True
                if self.sent(one):
                    self.waiting.remove(one)
        heapq.heapify(self.waiting)

    def sent(self, one: WaitingCall) -> bool:
        """Return whether the function takes the call, warm in time as far as is known."""
        now = self.world.env.now
        if self.function is None:
            return False
        if not in_time(now + self.function.use.warm_s, self.world.case.deadline_s(one.query) - self.function.behind_s):
            return False
        latency_s = self.environments.latency_s()
        if latency_s == NEVER_S:
            self.world.throttled[self.stage] += 1
            return False
        self.environments.call(latency_s)
        self.world.by_function[self.stage] += 1
        self.world.env.process(self.answered(one.answer, latency_s))
        return True

    def answered(self, answer: simpy.Event, latency_s: float) -> Steps:
        yield self.world.env.timeout(latency_s)
        answer.succeed()

    def late(self, now: float, replica: PulledBy, query: int) -> bool:
        """Return whether a full batch of the replica would end too late for the stages behind."""
        return self.function is not None and not in_time(
            now + replica.service_s[-1], self.world.case.deadline_s(query) - self.function.behind_s
        )

    def pull(self, _: simpy.Event) -> None:
        now = self.world.env.now
        for number, replica in enumerate(self.replicas):
            if self.free_s[number] <= now < replica.leave_s:
                batch, factor = self.batch(replica)
                if batch:
                    service_s = replica.service_s[len(batch) - 1] * factor
                    self.free_s[number] = now + service_s
                    self.world.env.process(self.serve(batch, service_s))

    def batch(self, replica: PulledBy) -> tuple[list[simpy.Event], float]:
        """Return the answers of the calls that the replica takes, and a factor of its time."""
        now, case, world = self.world.env.now, self.world.case, self.world
        batch: list[simpy.Event] = []
        factor = 1.0
        while self.waiting and len(batch) < len(replica.service_s):
            one = heapq.heappop(self.waiting)
            query = one.query
            if self.late(now, replica, query) and self.sent(one):
                continue
            world.wait_s[self.stage] += now - one.ready_s
            if not batch and case.sigma:
                left = case.calls[query][self.stage] - one.call
                factor = factor_of(case.seed, self.stage, world.urgency[query], left, case.sigma)
            batch.append(one.answer)
        return batch, factor

    def serve(self, batch: list[simpy.Event], service_s: float) -> Steps:
        self.world.batches[self.stage].append(len(batch))
        yield self.world.env.timeout(service_s)
        for answer in batch:
            answer.succeed()
        self.wake()


class PipelineWorld:
    """Times by query and stage; infinite for events that never happen."""

    def __init__(self, case: PipelineCase) -> None:
        self.case, self.env, self.urgency = case, simpy.Environment(), case.urgency()
        shape = len(case.arrivals_s), len(case.after)
        self.ready_s, self.answer_s = (np.full(shape, np.inf) for _ in range(2))
        self.batches: list[list[int]] = [[] for _ in case.after]
        self.wait_s = np.zeros(shape[1])
        self.by_function, self.throttled = (np.zeros(shape[1], dtype=np.int64) for _ in range(2))
        self.queues = [CentralQueue(self, stage) for stage in range(shape[1])]
        for query in range(shape[0]):
            self.env.process(self.query(query))
        self.env.run()

    def query(self, query: int) -> Steps:
        yield self.env.timeout(self.case.arrivals_s[query])
        done = [self.env.event() for _ in self.case.after]
        for stage in range(len(done)):
            self.env.process(self.visit(query, stage, done))

    def visit(self, query: int, stage: int, done: list[simpy.Event]) -> Steps:
        all_done = self.env.all_of([done[before] for before in self.case.after[stage]])
        yield all_done | self.env.process(self.enough(query, stage, done))
        self.ready_s[query, stage] = self.env.now
        yield self.env.all_of([self.queues[stage].put(query, n) for n in range(self.case.calls[query][stage])])
        self.answer_s[query, stage] = self.env.now
        done[stage].succeed()

    def enough(self, query: int, stage: int, done: list[simpy.Event]) -> Steps:
        """End a while after enough of the stages before have answered; a skipped stage has not answered."""
        join = self.case.join(stage)
        asked = [done[before] for before in self.case.after[stage] if self.case.calls[query][before]]
        if len(asked) < join.least or join.deadline_s == np.inf:
            yield self.env.event()  # never
        while len(missing := [event for event in asked if not event.processed]) > len(asked) - join.least:
            yield self.env.any_of(missing)
        yield self.env.timeout(join.deadline_s)
