"""The plain reference with second copies: each copy waits, runs, or is at a function, until its request is answered.

Simultaneous events are ordered as in `tests.kernel.reference`, with two additions. Answers come first, those of
functions before others, then by the number of the replica. Second copies are sent after changes of the fleet and before
arrivals.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from mark.domain.rules import admission, second_attempts
from tests.kernel.learning_balancer import Attempt
from tests.kernel.reference import BY_FUNCTION, REFUSED, Batch, Case, Replica, World

ANSWER, SECOND = 0.5, 2.5  # between the priorities of SimPy and of `tests.kernel.reference`
WAITS, RUNS, CALLED, ENDED = "waits", "runs", "called", "ended"


@dataclass(eq=False)
class Copy:
    replica: Replica | None  # that it was sent to
    state: str = ENDED
    attempt: Attempt | None = None  # of the gateway's code, if the world has that


class CountingReplica(Replica):
    world: HedgedWorld

    def in_flight(self) -> int:
        mine = (copy for n in self.asked if not self.world.done[n] for copy in self.world.copies[n])
        return sum(copy.replica is self and copy.state != ENDED for copy in mine)


class HedgedWorld(World):
    def __init__(self, case: Case, after_s: float) -> None:
        super().__init__(case)
        self.after_s = after_s
        self.copies: list[list[Copy]] = [[] for _ in case.arrivals_s]
        self.done = [False] * len(self.copies)
        self.hedged: set[int] = set()
        self.budget = second_attempts.BURST
        self.won = self.lost = self.again = 0
        self.wasted_s = 0.0

    def replica(self, number: int, candidate: int) -> Replica:
        return CountingReplica(self, number, candidate)

    # -- sending

    def arrive(self, request: int) -> None:
        self.budget = min(second_attempts.BURST, self.budget + second_attempts.SHARE)
        self.env.process(self.hedge(request))
        self.send(request)

    def hedge(self, request: int) -> Generator[simpy.Event, Any, Any]:
        yield self.at(self.case.arrivals_s[request] + self.after_s, SECOND)
        first = self.copies[request][0]
        if not self.done[request] and len(self.copies[request]) == 1 and first.replica and self.budget >= 1.0:
            self.send(request, besides=first.replica)

    def send(self, request: int, besides: Replica | None = None) -> None:
        best = self.choice(request, besides)
        if besides is not None:
            if best is None:
                return
            self.hedged.add(request)
            self.budget -= 1.0
        self.send_to(request, best, besides)

    def send_to(self, request: int, best: Replica | None, besides: Replica | None = None) -> None:
        now, case = self.env.now, self.case
        copy = Copy(best)
        if self.balancer is not None and best is not None:
            copy.attempt = self.balancer.attempts[request]
        self.copies[request].append(copy)
        latency = admission.NEVER_S
        if best is not None:
            best.asked.append(request)
            best.late_left = admission.late_budget(best.late_left, case.late_share)
            latency = best.completion_s() - now + best.reserve_s() + best.margin_s()
            if admission.in_time(latency, case.rt_max_s) and self.passed_on(best, case.rt_max_s):
                latency = admission.NEVER_S
            if admission.in_time(latency, case.rt_max_s) or not case.bouncers:
                copy.state = WAITS
                best.take(request, case.rt_max_s if case.bouncers else admission.NEVER_S)
                return
        by_function = self.environments.latency_s()
        promised = case.function.warm_s if case.function and by_function < admission.NEVER_S else admission.NEVER_S
        if admission.destination(latency, promised, case.rt_max_s, case.late) == admission.FUNCTION:
            if best is not None and self.queues_late(best, latency, promised):
                copy.state = WAITS
                best.take(request, admission.NEVER_S)
                return
            self.environments.call(by_function)
            if best is None:
                self.settle(request, BY_FUNCTION, now, now + by_function)
            else:
                copy.state = CALLED
                order = -0.5 if by_function > promised else -1.0  # warm calls before cold ones
                self.env.process(self.ends(request, copy, BY_FUNCTION, now, now + by_function, 0.0, order))
            return
        if self.balancer is not None and best is not None:
            other = self.balancer.refused(request, now)
            if other is not None:
                self.budget -= 1.0
                self.send_to(request, self.replicas[other])
                return
        if besides is None:
            self.settle(request, REFUSED, now, np.inf)

    def choice(self, request: int, besides: Replica | None) -> Replica | None:
        if self.balancer is not None:
            now = self.env.now
            number = self.balancer.begin(request, now) if besides is None else self.balancer.hedge(request, now)
            return None if number is None else self.replicas[number]
        there = besides is not None and self.replicas.pop(besides.number, None) is not None
        best = self.choose(request)
        if there:
            assert besides is not None
            self.replicas[besides.number] = besides
        return best

    # -- answers

    def started(self, replica: Replica, batch: Batch, begin_s: float, finish_s: float) -> None:
        share_s = (finish_s - begin_s) / len(batch.members)
        answer_s = finish_s + replica.kind.overhead_s + replica.troubles.answers_later_s(begin_s)
        for request, _, _ in batch.members:
            copy = next(copy for copy in self.copies[request] if copy.replica is replica)
            copy.state = RUNS
            self.env.process(self.ends(request, copy, replica.number, begin_s, answer_s, share_s, replica.number))

    def ends(
        self, request: int, copy: Copy, slot: int, start_s: float, answer_s: float, share_s: float, order: float
    ) -> Generator[simpy.Event, Any, Any]:
        yield self.at(answer_s, ANSWER + order / 1e4)
        if copy.state == ENDED:  # a crash took it
            return
        copy.state = ENDED
        if self.done[request]:
            self.wasted_s += share_s
            return
        self.won += request in self.hedged and copy is self.copies[request][1]
        if copy.attempt is not None:
            assert self.balancer is not None
            self.balancer.answered(copy.attempt, self.env.now)
        self.settle(request, slot, start_s, answer_s)

    def settle(self, request: int, slot: int, start_s: float, answer_s: float) -> None:
        self.answer(request, slot, start_s, answer_s)
        self.done[request] = True
        for copy in self.copies[request]:
            if copy.state == WAITS:
                copy.state = ENDED
                assert copy.replica is not None
                take_out(copy.replica, request)

    # -- crashes

    def crash(self, number: int) -> None:
        """Crash the replica: a request that has no other copy comes again, if it had no second copy before."""
        self.replicas.pop(number, None)
        self.tell_balancer()
        replica = self.ever[number]
        replica.crashed = True
        alone = []
        for request, copies in enumerate(self.copies):
            for copy in copies:
                if copy.replica is replica and copy.state in (WAITS, RUNS):
                    copy.state = ENDED
                    if not self.done[request] and all(other.state == ENDED for other in copies):
                        alone.append(request)
        self.lost += len(alone)
        given_up = []
        for request in alone:
            if len(self.copies[request]) == 1 and self.budget >= 1.0:
                self.budget -= 1.0
                self.again += 1
                self.send_again(request)
            else:
                given_up.append(request)
        for request in given_up:
            if self.balancer is not None and self.balancer.attempts[request].request.under_way:
                self.balancer.abandoned(request)
            by_function, now = self.environments.latency_s(), self.env.now
            if by_function < admission.NEVER_S:
                self.environments.call(by_function)
                self.settle(request, BY_FUNCTION, now, now + by_function)
            else:
                self.settle(request, REFUSED, now, np.inf)

    def send_again(self, request: int) -> None:
        if self.balancer is None:
            self.send(request)
            return
        attempt = self.copies[request][0].attempt
        number = None if attempt is None else self.balancer.failed(request, attempt, self.env.now)
        self.send_to(request, None if number is None else self.replicas[number])


def take_out(replica: Replica, request: int) -> None:
    """Take the request out of the replica's queue. Its batch stays open or closed, as it was."""
    batches = [*replica.closed, *([replica.open] if replica.open else [])]
    batch = next(b for b in batches if any(member[0] == request for member in b.members))
    batch.members = [member for member in batch.members if member[0] != request]
    if batch is replica.open:
        if not batch.members:
            replica.open = None
    elif batch.members:
        batch.service_s = float(replica.kind.service_s[len(batch.members)]) / batch.speed
    else:
        replica.closed.remove(batch)
