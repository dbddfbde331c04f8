"""The gateway's decisions: which replica gets a request, which its second attempt, and which is ejected for a while.

One state machine without I/O and without a clock: requests, the results of their attempts and the time go in, decisions
come out. A replica is a server of the model behind one URL, mostly a bouncer. The shell
(`mark.serving.gateway.forwarding`) calls:

    on a request            begin(request, now): an attempt, HOLD, or why not (NOBODY_READY, FULL)
    on a replica's answer   answered(attempt, status, now): PASS_ON, WAIT, or an attempt for another attempt
    on none                 failed(attempt, now): GIVE_UP, WAIT, HOLD, or an attempt for another attempt
    after hedge_after_s     hedge(request, now): an attempt for another attempt, or None
    at the deadline         expired(request, now)
    on a client's leaving   abandoned(request)
    every now and then      tick(now): replicas whose readiness is to be asked, then probed(replica, ready, now)
    after each of these     resumed(now): held requests that go on, with an attempt or why not

An `InFlightRequest` is one request in progress, a `ReplicaAttempt` one try of it at one replica, with the request's
body or another one. Each attempt is closed exactly once, with its result or with the end of its request, and only that
changes in-flight counts.

The rules:

- Least expected completion: the learned response time x (in flight + 1) / weight, plus the remaining part of `avoid_s`
  for a replica that has just refused or failed. Otherwise a replica that refuses everything would look idle and attract
  all requests. Ties go to the older replica.
- A second attempt at a slow request is made only if it is expected before the first one, which is assumed to take as
  long again as it has taken.
- When one of two attempts is answered, the other is cancelled, but its replica may go on working. It is assumed to take
  as long again, and at least the learned response time; until then the replica counts as avoided. If it has taken
  longer than the learned response time, the assumed time is learned.
- Or, to simulate an AWS Application Load Balancer (`routing` ALB): a group of replicas is drawn by weight, ready or
  not. Its ready replica with the fewest requests in flight gets the request, whatever its capacity; ties go in turn.
  There are no second attempts.
- A request has at most two attempts, at different replicas. A second one is made if no part of an answer came, if a
  bouncer refused (429, 503) and another replica has not just refused too, or to hedge. It needs time until the deadline
  and a budget, a share of all requests, so that replicas in trouble do not get twice the load.
- After `eject_after` failures in a row a replica is ejected, until a back-off time is over and it reports that it is
  ready. The back-off doubles if the replica soon fails again. Answers 500 and 502 count as well, but eject at most half
  of the replicas, because a client's input may be the reason.
- A request that `may_wait` and for which no replica is left is held until each replica that is out has been polled
  once, even during its back-off, because it may have restarted a moment ago. ALB holds no request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from random import Random
from typing import Any, Generic, TypeVar

from mark.domain.errors import BadInput
from mark.domain.rules import second_attempts
from mark.domain.rules.admission import NEVER_S
from mark.domain.rules.routing import (
    AVOID_S,
    FIRST_RESPONSE_S,
    better,
    expected_s,
    forgotten_s,
    learned_s,
    outrun_s,
    overtakes,
)
from mark.serving.backend.bouncer import IllegalTransition
from mark.serving.backend.refusals import FULL, NOBODY_READY

# The result of an attempt for its request.
PASS_ON = "pass on"  # the answer goes to the client
WAIT = "wait"  # for the other attempt
GIVE_UP = "give up"  # no replica answered
HOLD = "hold"  # until the replicas that are out have been polled

# How a replica is chosen for a request.
LEAST_COMPLETION, ALB = ROUTINGS = ("least-completion", "alb")

_MOST_ATTEMPTS = 2  # of one request


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """The limits and times of a gateway's decisions."""

    most_in_flight: int = 10_000  # requests
    most_bytes: int = 1024**3  # of the requests' bodies
    most_per_replica: int = 512  # attempts, and therefore connections
    eject_after: int = 3
    backoff_s: float = 1.0
    longest_backoff_s: float = 30.0
    probe_s: float = 1.0  # between readiness polls
    avoid_s: float = AVOID_S  # after a refusal or a failure
    retry_share: float = second_attempts.SHARE  # long-run share of second attempts in requests
    retry_burst: float = second_attempts.BURST
    hedge_after_s: float = NEVER_S
    routing: str = LEAST_COMPLETION

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "routing" and not getattr(self, one.name) > 0:
                raise BadInput("must be above zero", f"policy.{one.name}", getattr(self, one.name))
        if self.routing not in ROUTINGS:
            raise BadInput(f"must be one of {', '.join(ROUTINGS)}", "policy.routing", self.routing)


class ReplicaState:
    """The state of one replica. Only `Gateway` writes it."""

    __slots__ = (
        "answers", "avoid_until_s", "back_s", "each_s", "ejections", "failed", "failures", "group", "in_flight",
        "number", "polled_s", "probe_at_s", "probing", "ready", "refused", "response_s", "seen_s", "turn", "url",
        "weight",
    )  # fmt: skip

    def __init__(self, url: str, number: int, now_s: float) -> None:
        self.url, self.number = url, number
        self.weight = 0.0
        self.group = ""
        self.turn = 0  # number of the last request that ALB routed here
        self.ready = False  # until it reports that it is
        self.in_flight = 0
        self.response_s = FIRST_RESPONSE_S
        self.each_s = NEVER_S  # response_s / weight
        self.seen_s = -NEVER_S  # time of its last answer
        self.failures = 0  # in a row
        self.ejections = 0
        self.back_s = -NEVER_S  # when it last became ready
        self.avoid_until_s = -NEVER_S
        self.probe_at_s = now_s
        self.probing = False
        self.polled_s = -NEVER_S  # time of the last result of a poll
        # Counts since the start.
        self.answers = self.refused = self.failed = 0

    def __repr__(self) -> str:
        return f"<{self.url} weight {self.weight:g}, {'ready' if self.ready else 'out'}, {self.in_flight} in flight>"


class InFlightRequest:
    """A request in progress at the gateway. Times are of one monotonic clock; `size` is its body's, in bytes.

    One that `may_wait` is held while no replica is left for it.
    """

    __slots__ = ("attempts", "deadline_s", "held_s", "may_wait", "size", "under_way")

    def __init__(self, deadline_s: float, size: int, *, may_wait: bool = False) -> None:
        self.deadline_s, self.size, self.may_wait = deadline_s, size, may_wait
        self.under_way = False
        self.held_s = -NEVER_S  # when it was held last
        self.attempts: list[ReplicaAttempt[Any]] = []  # in their order, until the request ends


P = TypeVar("P", bound=InFlightRequest)


class ReplicaAttempt(Generic[P]):
    """An attempt of a request at a replica, `open` until its result is known."""

    __slots__ = ("open", "replica", "request", "sent_s")

    def __init__(self, request: P, replica: ReplicaState, sent_s: float) -> None:
        self.request, self.replica, self.sent_s = request, replica, sent_s
        self.open = True


class Gateway(Generic[P]):
    """The state machine of the module.

    Methods raise IllegalTransition, and change nothing, for an attempt or request that is closed.
    """

    def __init__(self, policy: GatewayPolicy | None = None) -> None:
        self.policy = policy or GatewayPolicy()
        self._held: dict[P, None] = {}  # in the order in which they began to wait
        self.replicas: dict[str, ReplicaState] = {}
        self.leaving: dict[str, ReplicaState] = {}  # removed replicas with attempts in flight
        self.in_flight = 0  # requests
        self.bytes = 0
        self.retries = self.hedges = self.ejections = 0
        self._budget = self.policy.retry_burst
        self._numbers = 0
        self._open: list[ReplicaState] = []  # may be chosen: ready, with weight; oldest first
        # By group: its weight, and its replicas that may be chosen. Only the routing ALB uses it.
        self._groups: dict[str, tuple[float, list[ReplicaState]]] = {}
        self._turns = 0
        self._random = Random(0)
        self._ticked_s = -NEVER_S

    @property
    def ready(self) -> bool:
        """Return whether a replica can take a request."""
        return bool(self._open)

    def put(self, weights: Mapping[str, float], now_s: float, groups: Mapping[str, str] | None = None) -> None:
        """Replace the replicas by these, with their weights by URL.

        A replica with weight 0 gets no new requests; requests in progress continue. `groups` names the group of a
        replica, "" by default. The routing ALB takes a replica's weight as that of its group, so all replicas of a
        group have the same. A new replica's readiness is polled before it gets a request. Raises BadInput, and changes
        nothing, if a weight is not a number of zero or more, or if a group has two weights.
        """
        of_group = {url: (groups or {}).get(url, "") for url in weights}
        shares = {group: weights[url] for url, group in of_group.items()}
        for url, weight in weights.items():
            if not (isfinite(weight) and weight >= 0.0):
                raise BadInput("a weight is a number of zero or more", url, weight)
            if self.policy.routing == ALB and weight != shares[of_group[url]]:
                raise BadInput("a group has one weight: that of all replicas in it", url, weight)
        for url in [url for url in self.replicas if url not in weights]:
            gone = self.replicas.pop(url)
            gone.weight = 0.0
            if gone.in_flight:
                self.leaving[url] = gone
        known = [one.response_s for one in self.replicas.values() if one.answers]
        for url, weight in weights.items():
            one = self.replicas.get(url)
            if one is None:
                one = self.leaving.pop(url, None)
                if one is None:
                    one = ReplicaState(url, self._numbers, now_s)
                    self._numbers += 1
                    if known:
                        one.response_s = min(known)
                self.replicas[url] = one
            one.weight, one.group = float(weight), of_group[url]
        self._sort_out()

    # Requests

    def begin(self, request: P, now_s: float) -> ReplicaAttempt[P] | str:
        """Return the request's first attempt, or HOLD; or NOBODY_READY or FULL, and the request does not begin."""
        if request.under_way:
            raise IllegalTransition("this request is under way")
        policy = self.policy
        holds = not self._open and self._may_hold(request)
        if not self._open and not holds:
            return NOBODY_READY
        among = self._open
        if policy.routing == ALB and not (among := self._drawn()):
            return NOBODY_READY
        if self.in_flight >= policy.most_in_flight or self.bytes + request.size > policy.most_bytes:
            return FULL
        replica = None
        if not holds:
            replica = self._best(now_s) if policy.routing == LEAST_COMPLETION else self._fewest(among)
            if replica is None:
                return FULL
        self._budget = min(policy.retry_burst, self._budget + policy.retry_share)
        self.in_flight += 1
        self.bytes += request.size
        request.under_way = True
        if replica is None:
            return self._hold(request, now_s)
        return self._attempt(request, replica, now_s)

    def answered(self, attempt: ReplicaAttempt[P], status: int, now_s: float) -> ReplicaAttempt[P] | str:
        """Take the complete answer of a replica; return the next step."""
        self._close(attempt)
        request, replica = attempt.request, attempt.replica
        replica.answers += 1
        if status == 429 or status == 503:
            replica.refused += 1
            replica.failures = 0
            replica.avoid_until_s = now_s + self.policy.avoid_s
            if self._waits(request):
                return WAIT
            other = self._for_second(request, now_s)
            if other is not None and other.avoid_until_s <= now_s:
                self.retries += 1
                return self._second(request, other, now_s)
        elif status == 500 or status == 502:
            self._fault(replica, now_s, answered=True)
        else:
            replica.failures = 0
            if status < 300:
                self._learn(replica, now_s - attempt.sent_s, now_s)
            if len(request.attempts) > 1:
                self._outrun(request, now_s)
        self._end(request)
        return PASS_ON

    def failed(self, attempt: ReplicaAttempt[P], now_s: float, *, began: bool) -> ReplicaAttempt[P] | str:
        """Take the failure of an attempt: refused, reset, closed, malformed. `began`: a part of an answer came."""
        self._close(attempt)
        request = attempt.request
        self._fault(attempt.replica, now_s)
        if self._waits(request):
            return WAIT
        if not began:
            other = self._for_second(request, now_s)
            if other is not None:
                self.retries += 1
                return self._second(request, other, now_s)
            if self._may_second(request) and self._may_hold(request):
                return self._hold(request, now_s)
        self._end(request)
        return GIVE_UP

    def resumed(self, now_s: float) -> list[tuple[P, ReplicaAttempt[P] | str]]:
        """Return the held requests that go on, with their next attempts, and those that ended.

        A request ends once each replica that is out has been polled since it was held: with GIVE_UP if it lost a
        replica, otherwise with NOBODY_READY or FULL.
        """
        out = [one.polled_s for one in self.replicas.values() if one.weight and not one.ready] if self._held else []
        polled_s = min(out, default=now_s)
        found: list[tuple[P, ReplicaAttempt[P] | str]] = []
        for request in tuple(self._held):
            polling = request.held_s > polled_s
            if polling and not self._open:
                break  # later requests wait as well
            lost = request.attempts[-1:]
            replica = self._for_second(request, now_s) if lost else self._best(now_s)
            if replica is None:
                if not polling:
                    self._end(request)
                    found.append((request, GIVE_UP if lost else FULL if self._open else NOBODY_READY))
            elif lost:
                self.retries += 1
                found.append((request, self._second(request, replica, now_s)))
            else:
                found.append((request, self._attempt(request, replica, now_s)))
        return found

    def hedge(self, request: P, now_s: float) -> ReplicaAttempt[P] | None:
        """Return a second attempt of a slow request.

        None: it has two already, or no replica is expected to answer before the first one.
        """
        self._check(request)
        other = self._for_second(request, now_s) if request.attempts else None
        if other is None:
            return None
        first = request.attempts[0]
        took_s = now_s - first.sent_s
        finish_s = expected_s(other.each_s, other.in_flight, other.avoid_until_s, now_s)
        if not overtakes(finish_s, took_s, outrun_s(first.replica.response_s, took_s)):
            return None
        self.hedges += 1
        return self._second(request, other, now_s)

    def expired(self, request: P, now_s: float, *, hung: bool) -> None:
        """End a request whose time is over. `hung`: after the gateway's own limit, so its replicas have failed."""
        self._check(request)
        if hung:
            for attempt in request.attempts:
                if attempt.open:
                    self._fault(attempt.replica, now_s)
        self._end(request)

    def abandoned(self, request: P) -> None:
        """End a request whose client has gone."""
        self._check(request)
        self._end(request)

    # Replicas

    def tick(self, now_s: float) -> list[ReplicaState]:
        """Return the replicas whose readiness to poll; report each with `probed`."""
        best_s = min((one.response_s for one in self._open if one.seen_s >= self._ticked_s), default=NEVER_S)
        for one in self._open:
            if one.seen_s < self._ticked_s and not one.in_flight:
                one.response_s = forgotten_s(one.response_s, best_s, now_s - self._ticked_s)
                one.each_s = one.response_s / one.weight
        self._ticked_s = now_s
        held_s = next(reversed(self._held)).held_s if self._held else -NEVER_S
        due = [
            one
            for one in self.replicas.values()
            if not one.probing and (one.probe_at_s <= now_s or (one.weight and not one.ready and one.polled_s < held_s))
        ]
        for one in due:
            one.probing = True
            one.probe_at_s = min(one.probe_at_s, now_s)  # a poll for a held request ends the back-off
        return due

    def probed(self, replica: ReplicaState, ready: bool | None, now_s: float) -> None:
        """Take the result of a readiness poll; None: no answer."""
        if not replica.probing:
            raise IllegalTransition(f"{replica.url} was not asked")
        replica.probing = False
        was, due_s = replica.ready, replica.probe_at_s
        replica.probe_at_s = now_s + self.policy.probe_s
        if not was and due_s > now_s:
            replica.probe_at_s = due_s  # it was ejected during the poll, and its back-off stays
            return
        replica.polled_s = now_s
        if ready is None:
            if was:
                self._fault(replica, now_s)
        else:
            replica.ready = ready
            if ready and not was:
                replica.failures = 0
                replica.back_s = now_s
        if replica.ready != was:
            self._sort_out()

    # Inside

    def _best(self, now_s: float, besides: Collection[ReplicaState] | None = None) -> ReplicaState | None:
        most, best, best_s = self.policy.most_per_replica, None, NEVER_S
        for one in self._open:
            # Most replicas are not better, which shows here without a call.
            if (
                one.each_s * (one.in_flight + 1) > best_s
                or one.in_flight >= most
                or (besides is not None and one in besides)
            ):
                continue
            finish_s = expected_s(one.each_s, one.in_flight, one.avoid_until_s, now_s)
            if best is None or better(finish_s, False, one.number, best_s, False, best.number):
                best, best_s = one, finish_s
        return best

    def _drawn(self) -> list[ReplicaState]:
        """Return the ready replicas of a group drawn by weight; they may be none, and no other group is drawn."""
        groups = list(self._groups.values())
        if len(groups) == 1:
            return groups[0][1]
        return self._random.choices([ready for _, ready in groups], [weight for weight, _ in groups])[0]

    def _fewest(self, among: list[ReplicaState]) -> ReplicaState | None:
        best = min(among, key=lambda one: (one.in_flight, one.turn, one.number))
        if best.in_flight >= self.policy.most_per_replica:
            return None
        self._turns += 1
        best.turn = self._turns
        return best

    def _for_second(self, request: P, now_s: float) -> ReplicaState | None:
        """Return the best replica for a second attempt; None if there is none in time, or no second one is allowed."""
        if not self._may_second(request):
            return None
        replica = self._best(now_s, [attempt.replica for attempt in request.attempts])
        return replica if replica is not None and now_s + replica.response_s <= request.deadline_s else None

    def _may_second(self, request: P) -> bool:
        return len(request.attempts) < _MOST_ATTEMPTS and self._budget >= 1.0 and self.policy.routing != ALB

    def _may_hold(self, request: P) -> bool:
        """Return whether the request waits, because a replica that is out may report that it is ready."""
        if not request.may_wait or self.policy.routing == ALB:
            return False
        tried = [attempt.replica for attempt in request.attempts]
        return any(one.weight and not one.ready and one not in tried for one in self.replicas.values())

    def _hold(self, request: P, now_s: float) -> str:
        request.held_s = now_s
        self._held[request] = None
        return HOLD

    def _second(self, request: P, replica: ReplicaState, now_s: float) -> ReplicaAttempt[P]:
        self._budget -= 1.0
        return self._attempt(request, replica, now_s)

    def _attempt(self, request: P, replica: ReplicaState, now_s: float) -> ReplicaAttempt[P]:
        self._held.pop(request, None)
        replica.in_flight += 1
        attempt = ReplicaAttempt(request, replica, now_s)
        request.attempts.append(attempt)
        return attempt

    def _close(self, attempt: ReplicaAttempt[P]) -> None:
        if not attempt.open:
            raise IllegalTransition("this attempt is closed")
        attempt.open = False
        replica = attempt.replica
        replica.in_flight -= 1
        if not replica.in_flight and self.leaving.get(replica.url) is replica:
            del self.leaving[replica.url]

    def _waits(self, request: P) -> bool:
        """Return whether another attempt is in flight."""
        return any(attempt.open for attempt in request.attempts)

    def _check(self, request: P) -> None:
        if not request.under_way:
            raise IllegalTransition("this request is not under way")

    def _end(self, request: P) -> None:
        request.under_way = False
        self._held.pop(request, None)
        self.in_flight -= 1
        self.bytes -= request.size
        for attempt in request.attempts:
            if attempt.open:
                self._close(attempt)
        request.attempts.clear()  # otherwise a cycle would wait for the garbage collector

    def _learn(self, replica: ReplicaState, response_s: float, now_s: float) -> None:
        replica.response_s = learned_s(replica.response_s, response_s)
        replica.seen_s = now_s
        if replica.weight:
            replica.each_s = replica.response_s / replica.weight

    def _outrun(self, request: P, now_s: float) -> None:
        """Assume when the other replica ends its attempt at a request that was just answered; learn a slow time.

        Otherwise that replica would look free and fast once its attempt is cancelled.
        """
        for attempt in request.attempts:
            if attempt.open:
                slow, took_s = attempt.replica, now_s - attempt.sent_s
                assumed_s = outrun_s(slow.response_s, took_s)
                slow.avoid_until_s = max(slow.avoid_until_s, attempt.sent_s + assumed_s)
                if took_s > slow.response_s:
                    self._learn(slow, assumed_s, now_s)

    def _fault(self, replica: ReplicaState, now_s: float, *, answered: bool = False) -> None:
        policy = self.policy
        if not answered:
            replica.failed += 1
        replica.failures += 1
        replica.avoid_until_s = now_s + policy.avoid_s
        if not replica.ready or replica.failures < policy.eject_after:
            return
        if answered and 2 * (len(self._open) - 1) < sum(1 for one in self.replicas.values() if one.weight):
            return
        if now_s - replica.back_s > policy.longest_backoff_s:
            replica.ejections = 0
        out_s = min(policy.longest_backoff_s, policy.backoff_s * 2.0 ** min(replica.ejections, 30))
        replica.ejections += 1
        self.ejections += 1
        replica.ready = False
        replica.probe_at_s = now_s + out_s
        self._sort_out()

    def _sort_out(self) -> None:
        self._open = sorted((one for one in self.replicas.values() if one.ready and one.weight), key=lambda r: r.number)
        self._groups = {one.group: (one.weight, []) for one in self.replicas.values() if one.weight}
        for one in self._open:
            self._groups[one.group][1].append(one)
        for one in self.replicas.values():
            one.each_s = one.response_s / one.weight if one.weight else NEVER_S
