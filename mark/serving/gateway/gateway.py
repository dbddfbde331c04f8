"""The gateway's decisions: which replica gets a request, which its second attempt, and which is ejected for a while.

One state machine without I/O and without a clock: requests, what became of their attempts and the time go in, decisions
come out. A replica is a server of the model behind one URL, mostly a bouncer. The shell
(`mark.serving.gateway.forwarding`) does:

    on a request            begin(request, now): an attempt, or why not (NOBODY_READY, FULL)
    on a replica's answer   answered(attempt, status, now): PASS_ON, WAIT, or an attempt for another attempt
    on none                 failed(attempt, now): GIVE_UP, WAIT, or an attempt for another attempt
    after hedge_after_s     hedge(request, now): an attempt for another attempt, or None
    at the deadline         expired(request, now)
    on a client's leaving   abandoned(request)
    every now and then      tick(now): replicas whose readiness is to be asked, then probed(replica, ready, now)

An `InFlightRequest` is one request on its way, a `ReplicaAttempt` one try of it at one replica, with the request's body
or another one. Each attempt is closed exactly once, with what became of it or with the end of its request, and
in-flight counts are changed by nothing else.

The rules:

- Least expected completion: the learned response time x (in flight + 1) / weight, plus what is left of `avoid_s` for a
  replica that has just refused or failed; without it one that refuses everything looks idle, and attracts everything.
  Ties go to the replica that came first.
- Or, where it stands for an AWS Application Load Balancer (`routing` ALB): a group of replicas is drawn by weight,
  whether it is ready or not, and in it the replica with the fewest in flight gets the request, whatever it can do; ties
  in turn. There are no second attempts.
- A request has two attempts at most, and no two of them go to the same replica. A second one is made when
  nothing of an answer came, when a bouncer refused (429, 503) and another replica has not done so just now, or to
  hedge; only if there is time until the deadline, and only out of a budget, a share of all requests, so that replicas
  in trouble do not get twice the load.
- After `eject_after` failures in a row a replica is out for a back-off time, which doubles when it soon fails again,
  and until it says that it is ready. Answers 500 and 502 count as well, but for them at most half of the replicas are
  put out: what a client sent may be the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from math import exp, isfinite
from random import Random
from typing import Any, Generic, TypeVar

from mark.domain.errors import BadInput
from mark.domain.rules import second_attempts
from mark.domain.rules.admission import NEVER_S
from mark.domain.rules.routing import better
from mark.serving.backend.bouncer import IllegalTransition
from mark.serving.backend.refusals import FULL, NOBODY_READY

# What becomes of a request.
PASS_ON = "pass on"  # this answer is the client's
WAIT = "wait"  # for the other attempt
GIVE_UP = "give up"  # no replica answered it

# Which replica gets a request.
LEAST_COMPLETION, ALB = ROUTINGS = ("least-completion", "alb")

_MOST_ATTEMPTS = 2  # of one request

# Of the first replicas, before any answer. Less than any real one: a replica that is asked more then looks slower, so
# that all are tried; and one slow first answer, over a connection that had to be made, does not put a replica off.
_FIRST_RESPONSE_S = 0.0005
_LEARNED = 0.1  # share of the newest answer in the response time
_FORGETTING_S = 10.0  # in which two thirds are forgotten of how much slower than the best a replica was


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """How a gateway decides."""

    most_in_flight: int = 10_000  # requests
    most_bytes: int = 1024**3  # of their bodies
    most_per_replica: int = 512  # attempts, and so connections
    eject_after: int = 3
    backoff_s: float = 1.0
    longest_backoff_s: float = 30.0
    probe_s: float = 1.0  # between questions for readiness
    avoid_s: float = 0.1  # after a refusal or a failure; a queue changes its mind within a batch or two
    retry_share: float = second_attempts.SHARE  # second attempts per request, in the long run
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
    """What the gateway knows of one replica. Read it; only `Gateway` writes."""

    __slots__ = (
        "answers", "avoid_until_s", "back_s", "each_s", "ejections", "failed", "failures", "group", "in_flight",
        "number", "probe_at_s", "probing", "ready", "refused", "response_s", "seen_s", "turn", "url", "weight",
    )  # fmt: skip

    def __init__(self, url: str, number: int, now_s: float) -> None:
        self.url, self.number = url, number
        self.weight = 0.0
        self.group = ""
        self.turn = 0  # the number of the last request that was routed here by ALB
        self.ready = False  # until it says so
        self.in_flight = 0
        self.response_s = _FIRST_RESPONSE_S
        self.each_s = NEVER_S  # response_s / weight
        self.seen_s = -NEVER_S  # its last answer
        self.failures = 0  # in a row
        self.ejections = 0
        self.back_s = -NEVER_S  # when it was last let in
        self.avoid_until_s = -NEVER_S
        self.probe_at_s = now_s
        self.probing = False
        # Since the start.
        self.answers = self.refused = self.failed = 0

    def __repr__(self) -> str:
        return f"<{self.url} weight {self.weight:g}, {'ready' if self.ready else 'out'}, {self.in_flight} in flight>"


class InFlightRequest:
    """A request on its way through the gateway. Times are of one monotonic clock; `size` is its body's, in bytes."""

    __slots__ = ("attempts", "deadline_s", "size", "under_way")

    def __init__(self, deadline_s: float, size: int) -> None:
        self.deadline_s, self.size = deadline_s, size
        self.under_way = False
        self.attempts: list[ReplicaAttempt[Any]] = []  # in the order they were made, until it is over


P = TypeVar("P", bound=InFlightRequest)


class ReplicaAttempt(Generic[P]):
    """An attempt of a request at a replica; `open` until it is known what became of it.

    `payload` is the body that it sends, None: that of the request.
    """

    __slots__ = ("open", "payload", "replica", "request", "sent_s")

    def __init__(self, request: P, replica: ReplicaState, sent_s: float, payload: bytes | None = None) -> None:
        self.request, self.replica, self.sent_s, self.payload = request, replica, sent_s, payload
        self.open = True


class Gateway(Generic[P]):
    """See the module. Methods raise IllegalTransition, and change nothing, for an attempt or request that is closed."""

    def __init__(self, policy: GatewayPolicy | None = None) -> None:
        self.policy = policy or GatewayPolicy()
        self.replicas: dict[str, ReplicaState] = {}
        self.leaving: dict[str, ReplicaState] = {}  # removed, with attempts still in flight
        self.in_flight = 0  # requests
        self.bytes = 0
        self.retries = self.hedges = self.ejections = 0
        self._budget = self.policy.retry_burst
        self._numbers = 0
        self._open: list[ReplicaState] = []  # may be chosen: ready, with weight; in the order they came
        # By group: its weight, and those of its replicas that may be chosen. Only routing by ALB asks.
        self._groups: dict[str, tuple[float, list[ReplicaState]]] = {}
        self._turns = 0
        self._random = Random(0)
        self._ticked_s = -NEVER_S

    @property
    def ready(self) -> bool:
        """Would a request find a replica?"""
        return bool(self._open)

    def put(self, weights: Mapping[str, float], now_s: float, groups: Mapping[str, str] | None = None) -> None:
        """These and no other replicas, by URL. Weight 0: nothing new is sent there; what is there stays.

        `groups` names the group of a replica, "" unless said; routing by ALB takes its weight for that of the group,
        which is the same for all in it. A new replica is asked for its readiness before it gets anything. Raises
        BadInput, and changes nothing, where a weight is not a number of zero or more, or a group has two.
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
        """Its first attempt; or NOBODY_READY, or FULL, and then it is not under way."""
        if request.under_way:
            raise IllegalTransition("this request is under way")
        policy = self.policy
        if not self._open:
            return NOBODY_READY
        among = self._open
        if policy.routing == ALB and not (among := self._drawn()):
            return NOBODY_READY
        if self.in_flight >= policy.most_in_flight or self.bytes + request.size > policy.most_bytes:
            return FULL
        replica = self._best(now_s) if policy.routing == LEAST_COMPLETION else self._fewest(among)
        if replica is None:
            return FULL
        self._budget = min(policy.retry_burst, self._budget + policy.retry_share)
        self.in_flight += 1
        self.bytes += request.size
        request.under_way = True
        return self._attempt(request, replica, now_s, None)

    def answered(self, attempt: ReplicaAttempt[P], status: int, now_s: float) -> ReplicaAttempt[P] | str:
        """The whole answer of a replica is there."""
        self._close(attempt)
        request, replica = attempt.request, attempt.replica
        replica.answers += 1
        if status == 429 or status == 503:
            replica.refused += 1
            replica.failures = 0
            replica.avoid_until_s = now_s + self.policy.avoid_s
            if self._waits(request):
                return WAIT
            other = self._another(request, now_s, attempt.payload, after_refusal=True)
            if other is not None:
                self.retries += 1
                return other
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
        """No answer will come: refused, reset, closed, nonsense. `began`: a part of one came."""
        self._close(attempt)
        request = attempt.request
        self._fault(attempt.replica, now_s)
        if self._waits(request):
            return WAIT
        if not began:
            other = self._another(request, now_s, attempt.payload)
            if other is not None:
                self.retries += 1
                return other
        self._end(request)
        return GIVE_UP

    def hedge(self, request: P, now_s: float, payload: bytes | None = None) -> ReplicaAttempt[P] | None:
        """A second attempt of a request that takes long, with the same body unless `payload` is another one.

        None: it has one, or no replica can take it.
        """
        self._check(request)
        other = self._another(request, now_s, payload)
        if other is not None:
            self.hedges += 1
        return other

    def expired(self, request: P, now_s: float, *, hung: bool) -> None:
        """Its time is over. `hung`: by our own measure, so a replica that has an attempt has failed."""
        self._check(request)
        if hung:
            for attempt in request.attempts:
                if attempt.open:
                    self._fault(attempt.replica, now_s)
        self._end(request)

    def abandoned(self, request: P) -> None:
        """Its client has gone."""
        self._check(request)
        self._end(request)

    # Replicas

    def tick(self, now_s: float) -> list[ReplicaState]:
        """Replicas to be asked whether they are ready; each is to be reported by `probed`."""
        best_s = min((one.response_s for one in self._open if one.seen_s >= self._ticked_s), default=NEVER_S)
        for one in self._open:
            if one.seen_s < self._ticked_s and not one.in_flight and one.response_s > best_s:
                # Once slow, a replica is chosen no more, and would never show that it is fast again.
                one.response_s = best_s + (one.response_s - best_s) * exp((self._ticked_s - now_s) / _FORGETTING_S)
                one.each_s = one.response_s / one.weight
        self._ticked_s = now_s
        due = [one for one in self.replicas.values() if not one.probing and one.probe_at_s <= now_s]
        for one in due:
            one.probing = True
        return due

    def probed(self, replica: ReplicaState, ready: bool | None, now_s: float) -> None:
        """What it said of its readiness; None: nothing."""
        if not replica.probing:
            raise IllegalTransition(f"{replica.url} was not asked")
        replica.probing = False
        was, due_s = replica.ready, replica.probe_at_s
        replica.probe_at_s = now_s + self.policy.probe_s
        if not was and due_s > now_s:
            replica.probe_at_s = due_s  # it was ejected while it was asked: the back-off is not to be cut short
        elif ready is None:
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
            finish_s = one.each_s * (one.in_flight + 1)
            if one.avoid_until_s > now_s:
                finish_s += one.avoid_until_s - now_s
            # Most are not better, which takes no call to find out.
            if (
                finish_s <= best_s
                and (besides is None or one not in besides)
                and one.in_flight < most
                and (best is None or better(finish_s, False, one.number, best_s, False, best.number))
            ):
                best, best_s = one, finish_s
        return best

    def _drawn(self) -> list[ReplicaState]:
        """Those that may be chosen of a group drawn by weight: maybe none, and no other group is looked for."""
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

    def _another(
        self, request: P, now_s: float, payload: bytes | None, *, after_refusal: bool = False
    ) -> ReplicaAttempt[P] | None:
        attempts = request.attempts
        if len(attempts) == _MOST_ATTEMPTS or self._budget < 1.0 or self.policy.routing == ALB:
            return None
        replica = self._best(now_s, [attempt.replica for attempt in attempts])
        if replica is None or now_s + replica.response_s > request.deadline_s:
            return None
        if after_refusal and replica.avoid_until_s > now_s:
            return None
        self._budget -= 1.0
        return self._attempt(request, replica, now_s, payload)

    def _attempt(self, request: P, replica: ReplicaState, now_s: float, payload: bytes | None) -> ReplicaAttempt[P]:
        replica.in_flight += 1
        attempt = ReplicaAttempt(request, replica, now_s, payload)
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
        """Is another attempt in flight?"""
        return any(attempt.open for attempt in request.attempts)

    def _check(self, request: P) -> None:
        if not request.under_way:
            raise IllegalTransition("this request is not under way")

    def _end(self, request: P) -> None:
        request.under_way = False
        self.in_flight -= 1
        self.bytes -= request.size
        for attempt in request.attempts:
            if attempt.open:
                self._close(attempt)
        request.attempts.clear()  # a cycle would wait for the garbage collector

    def _learn(self, replica: ReplicaState, response_s: float, now_s: float) -> None:
        replica.response_s += _LEARNED * (response_s - replica.response_s)
        replica.seen_s = now_s
        if replica.weight:
            replica.each_s = replica.response_s / replica.weight

    def _outrun(self, request: P, now_s: float) -> None:
        """A replica that still has an attempt takes at least this long; cancelled, it would look idle and fast."""
        for attempt in request.attempts:
            if attempt.open:
                slow, took_s = attempt.replica, now_s - attempt.sent_s
                if took_s > slow.response_s:
                    slow.avoid_until_s = now_s + self.policy.avoid_s
                    self._learn(slow, took_s, now_s)

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
