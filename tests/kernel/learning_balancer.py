"""mark's gateway before the replicas of a reference world: its own code, told of requests and answers."""

from __future__ import annotations

import math

from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.rules.routing import TICK_S
from mark.serving.gateway.gateway import Gateway, InFlightRequest, ReplicaAttempt

Attempt = ReplicaAttempt[InFlightRequest]


class LearningBalancer:
    """Replicas are known by their numbers. A request's last attempt is in `attempts`."""

    def __init__(self) -> None:
        self.gateway: Gateway[InFlightRequest] = Gateway()
        self.next_tick_s = 0.0
        self.attempts: dict[int, Attempt] = {}
        self.to_come: list[tuple[float, float, int, Attempt]] = []  # answers: when, and when their requests were sent

    def put(self, numbers: list[int], now_s: float) -> None:
        """Replace the replicas; new ones are ready at once."""
        self.reach(now_s)
        self.gateway.put({str(number): 1.0 for number in numbers}, now_s)
        for url, replica in self.gateway.replicas.items():
            if not replica.ready:
                replica.number = int(url)
                replica.probing = True
                self.gateway.probed(replica, True, now_s)

    def begin(self, request: int, now_s: float) -> int | None:
        """Return the replica of the request's first attempt."""
        self.reach(now_s)
        return self._number(request, self.gateway.begin(InFlightRequest(math.inf, 0), now_s))

    def hedge(self, request: int, now_s: float) -> int | None:
        self.reach(now_s)
        return self._number(request, self.gateway.hedge(self.attempts[request].request, now_s))

    def refused(self, request: int, now_s: float) -> int | None:
        """Return the replica of the second attempt after a refusal, if there is one."""
        return self._number(request, self.gateway.answered(self.attempts[request], 429, now_s))

    def failed(self, request: int, attempt: Attempt, now_s: float) -> int | None:
        """Return the replica of the second attempt after a crash, if there is one."""
        self.reach(now_s)
        return self._number(request, self.gateway.failed(attempt, now_s, began=False))

    def abandoned(self, request: int) -> None:
        if self.attempts[request].request.under_way:
            self.gateway.abandoned(self.attempts[request].request)

    def answers_at(self, request: int, answer_s: float) -> None:
        """Note that the last attempt of the request is answered then."""
        attempt = self.attempts[request]
        self.to_come.append((answer_s, attempt.sent_s, request, attempt))

    def answered(self, attempt: Attempt, now_s: float) -> None:
        """Take an answer; the gateway's ticks at the same moment come later."""
        while self.next_tick_s < now_s:
            self._tick()
        self.gateway.answered(attempt, 200, now_s)

    def reach(self, now_s: float) -> None:
        """Take all answers up to `now_s`, and tick."""
        while self.next_tick_s <= now_s:
            self._tick()
        self._hear(now_s)

    def _tick(self) -> None:
        self._hear(self.next_tick_s)
        for replica in self.gateway.tick(self.next_tick_s):
            self.gateway.probed(replica, True, self.next_tick_s)
        self.next_tick_s += TICK_S

    def _hear(self, until_s: float) -> None:
        due = sorted(one for one in self.to_come if one[0] <= until_s + TOLERANCE_S)
        self.to_come = [one for one in self.to_come if one[0] > until_s + TOLERANCE_S]
        for answer_s, _, _, attempt in due:
            if attempt.open:  # otherwise a crash came before
                self.gateway.answered(attempt, 200, answer_s)

    def _number(self, request: int, begun: Attempt | str | None) -> int | None:
        if not isinstance(begun, ReplicaAttempt):
            return None
        self.attempts[request] = begun
        return begun.replica.number
