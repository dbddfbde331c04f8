"""Launches: within the limits, and never twice.

A launch is written down before it is made (`Intent`) and crossed out when its outcome is known. A controller that was
killed in between, or whose answer was lost, repeats it under the same token: the cloud launches nothing twice. A
controller that takes over also repeats what was launched just before, as the cloud may not show it yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from mark.cloud.ec2.refusal import refused_with
from mark.control.headroom import Limit, counted, headroom
from mark.control.health import mark_unhealthy
from mark.control.interruption import instead_of
from mark.control.monitor import default_offer
from mark.control.ports import Clock, Cloud, Launched, Result, Store
from mark.control.shared_limits import Holding
from mark.control.snapshot import Outcome
from mark.control.views import Limits
from mark.domain.backoff import LAUNCH, THROTTLED
from mark.domain.command import Launch
from mark.domain.errors import (
    CapacityError,
    CloudError,
    DeniedError,
    LimitError,
    NotFoundError,
    RefusalScope,
    ThrottledError,
)
from mark.domain.offer import Offer
from mark.domain.service import ResolvedService

# A launch whose outcome stays unknown is repeated for this long; by then the fleet shows what it started.
UNSURE_S = 300.0
# A launch that was made is kept for the next controller for this long; by then the cloud shows it.
SHOWN_S = 30.0
# After these it is certain that nothing was launched; after any other CloudError, throttling of a second attempt
# among them, an answer may have got lost.
DECIDED = (CapacityError, LimitError, NotFoundError, DeniedError)


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch under way, begun at `at_s`, or `made` then: `count` of `offer`, to count for the offer `planned`.

    `throttled`: every call of it was, so far, and so has started nothing.
    """

    token: str
    at_s: float
    offer: str
    count: int
    standby: bool
    planned: str
    reason: str
    made: bool = False
    release: str = ""
    alternatives: tuple[str, ...] = ()  # of which some may be, counting for `planned` as well
    throttled: bool = False


def _not_ahead(intent: Intent, now_s: float) -> Intent:
    """As another process wrote it down: by a clock that was ahead, it would be under way for as much longer."""
    return intent if intent.at_s <= now_s else replace(intent, at_s=now_s)


def _said(launched: Launched, count: int, others: str = "") -> str:
    """The outcome of a launch of `count` as it is recorded; `others`: what was started of its alternatives."""
    started = len(launched.numbers)
    if started == count:
        return f"done{others}"
    text = f"the market had {started} of {count}{others}"
    return text if launched.refused is None else f"{text}: {launched.refused}"


def _result(started: int, count: int) -> Result:
    """The result of a launch of `count` instances that the cloud was asked for."""
    return Result.DONE if started == count else Result.PART if started else Result.FAILED


def _is_gone(why: CloudError | None) -> bool:
    """Is it what a release boots from that is not there?"""
    return isinstance(why, NotFoundError) or (isinstance(why, CapacityError) and why.gone)


def _why_short(launched: Launched, count: int) -> CapacityError | ThrottledError | None:
    """Why there are fewer than `count`; None where there are not."""
    if len(launched.numbers) >= count:
        return None
    return launched.refused or CapacityError("no reason was given")


class Launcher:
    """Launches for one service within `limits`, and keeps what it intends in the store.

    `failures` and `fallbacks` as in `Controller`. `seed` marks the launch tokens.
    """

    def __init__(
        self, resolved: ResolvedService, cloud: Cloud, clock: Clock, store: Store, limits: Limits, seed: int
    ) -> None:
        self._cloud, self._clock, self._store, self._seed = cloud, clock, store, seed
        self.use(resolved, limits)
        self.failures: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self._intents = {intent.token: _not_ahead(intent, clock.now_s()) for intent in store.get("intents") or ()}
        self._made: tuple[Intent, ...] = ()  # of late, by this one
        self._kept = True  # is what the store has known to be these?
        # By token: when it is asked for again. By another process at once, but for what may be given up: not before the
        # fleet shows what it has started all the same (by an attempt before the one that was throttled).
        self._again_s = {
            one.token: clock.now_s() + THROTTLED.first_s for one in self._intents.values() if one.throttled
        }
        self._tokens = (-math.inf, 0)  # time of the last launch, launches at that time

    def use(self, resolved: ResolvedService, limits: Limits) -> None:
        """The same offers within other limits, or at other prices."""
        self._resolved, self._limits = resolved, limits
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._usd_per_hour = {offer.name: offer.usd_per_hour for offer in resolved.offers}

    @property
    def offers(self) -> Sequence[Offer]:
        """What may be launched."""
        return self._resolved.offers

    def launch(self, now_s: float, command: Launch, *, substitute: bool) -> Iterator[Outcome]:
        """Launch within the limits; with `substitute`, what the market lacks in other zones, then on demand.

        Without, the planner is asked again and says itself what to launch instead.
        """
        planned = self._offers[command.planned or command.offer]
        outcome = yield from self._launch_one(now_s, command, planned)
        if outcome.refused and not substitute:
            self.fall_back(f"planned again without {planned.instance}/{planned.market}")
            return
        missing, why_not = command.count - len(outcome.started), outcome.text
        for other in instead_of(planned, self._resolved) if outcome.refused else ():
            reason = f"instead of {planned.name} ({why_not}): {command.reason}"
            retry = Launch(reason, missing * other.usd_per_hour, other.name, missing, command.standby, command.release)
            outcome = yield from self._launch_one(now_s, retry, planned)
            if outcome.started:
                self.fall_back(f"{other.name} instead of {planned.name}", len(outcome.started))
                missing -= len(outcome.started)
            if missing == 0 or not outcome.refused:
                break

    def repeat(self, now_s: float, lacking: Callable[[str], float]) -> Iterator[Outcome]:
        """Make the launches again whose outcome is unknown, or which may not show yet, under their tokens.

        Those that were throttled, and so have started nothing as far as is known, are given up where the fleet is
        `lacking` fewer instances of their release than they would start: the plan may have come down, after a spike of
        telemetry, say.
        Standbys are in no hurry: theirs always are, and planned anew within a minute.
        """
        if not self._kept:  # it may have been written all the same, and the next controller would launch it
            self._made = self._not_shown()
            self._keep(self._intents, self._made)
        for intent in tuple(self._intents.values()):
            # What is not sold any more may not be bought. And by UNSURE_S the fleet shows what was started: asked for
            # again now, by a controller that begins hours later, it would be bought for an old plan.
            sold = self._offers.keys() >= {intent.offer, *intent.alternatives}
            if not sold or now_s - intent.at_s >= (SHOWN_S if intent.made else UNSURE_S):
                self._cross_out(intent)
                continue
            if now_s < self._again_s.get(intent.token, -math.inf):
                continue
            throttled = intent.throttled
            if throttled and (intent.standby or lacking(intent.release) < intent.count):
                # Half a minute after the call the fleet would show what it started; what is lacking is planned anew.
                self._cross_out(intent)
                continue
            if throttled:
                intent = replace(intent, throttled=False)
                self._write_down(intent)  # first: of this call nothing is known, should its answer be lost
            launched = Launched(())
            why: CloudError | None = None
            try:
                launched = self._launched(intent)
                why, outcome = _why_short(launched, intent.count), _said(launched, intent.count)
            except CloudError as error:
                if not isinstance(error, DECIDED) and now_s - intent.at_s < UNSURE_S:
                    self._put_off(intent, error, now_s)
                    if throttled and isinstance(error, ThrottledError):
                        self._known_throttled(intent)
                    continue
                why, outcome = error, self.failed(error)
            usd_per_hour = 0.0 if intent.standby else intent.count * self._usd_per_hour[intent.offer]
            command = Launch(
                intent.reason, usd_per_hour, intent.offer, intent.count, intent.standby, intent.release,
                intent.alternatives,
            )  # fmt: skip
            # What was made already has taught all that it can.
            put_off, whole_release = self._refused_with(intent.offer, None if intent.made else why, launched)
            numbers, refused = launched.numbers, bool(put_off)
            self._known(intent, numbers)
            result = _result(len(numbers), intent.count)
            yield Outcome(
                command, outcome, result, refused, numbers, intent.planned, put_off, whole_release, _is_gone(why)
            )
            if not intent.made:
                self._store.record(now_s, command, outcome, result, len(numbers))
            self._keep(self._intents, self._made)

    @property
    def repeats(self) -> bool:
        """Has `repeat` anything to do?"""
        return bool(self._intents) or not self._kept

    def unsure(self, *, standby: bool) -> Counter[str]:
        """Instances that may be there or not, by the planned offer: launches whose outcome is unknown."""
        unsure: Counter[str] = Counter()
        for intent in self._intents.values():
            if intent.standby == standby:
                unsure[intent.planned] += intent.count
        return unsure

    def headroom(self, offer: str, now_s: float) -> tuple[int, Limit]:
        """How many more of the offer the limits allow now, and which limit that is.

        Unhealthy instances are not counted: at the limit they could not be replaced. These are few, so few exceed the
        limit, and only until they have left.
        """
        return headroom(self._limits, self._offers[offer], self._running(now_s), self._usd_per_hour)

    def holding(self, now_s: float) -> Holding:
        """What the limits are used for now."""
        running = self._running(now_s)
        usd_per_hour = sum(self._usd_per_hour.get(name, 0.0) * count for name, count in running.items())
        first = default_offer(self._resolved)
        if running.total() == 0 and first is not None and self._resolved.service.min_instances > 0:
            usd_per_hour = first.usd_per_hour  # to begin with: its part of nothing would be nothing
        return Holding(sum(running.values()), usd_per_hour, self._limits)

    def _running(self, now_s: float) -> Counter[str]:
        running = counted(mark_unhealthy(self._cloud.fleet(), now_s))
        for intent in self._intents.values():
            running[self._dearest(intent.offer, intent.alternatives)] += intent.count
        return running

    def failed(self, error: CloudError) -> str:
        """Count a refusal; its message is the outcome."""
        self.failures[type(error).__name__] += 1
        return str(error)

    def fall_back(self, name: str, times: int = 1) -> None:
        """Count that a substitute was used."""
        self.fallbacks[name] += times

    def _dearest(self, offer: str, alternatives: Sequence[str]) -> str:
        """Limits hold whichever of them the cloud starts."""
        return max((offer, *alternatives), key=lambda name: self._usd_per_hour.get(name, 0.0))

    def _refused_with(self, offer: str, why: CloudError | None, launched: Launched) -> tuple[tuple[str, ...], bool]:
        """The offers that are refused with this one, itself first; and whether its whole release is, whatever is asked.

        Where some were launched the release can be: the reason is one of these instances.
        """
        if isinstance(why, NotFoundError):
            return (), True
        if not isinstance(why, CapacityError):
            return (), False
        if why.scope is RefusalScope.EVERYTHING and not launched.numbers:
            return (), True
        return refused_with(self._offers[offer], why.scope, self._offers.values()), False

    def _launched(self, intent: Intent) -> Launched:
        return self._cloud.launch(
            intent.offer, intent.count, intent.token, standby=intent.standby, release=intent.release,
            alternatives=intent.alternatives,
        )  # fmt: skip

    def _launch_one(self, now_s: float, command: Launch, planned: Offer) -> Generator[Outcome, None, Outcome]:
        """Launch of one offer, or of what does as well, to count for `planned`."""
        most, limit = self.headroom(self._dearest(command.offer, command.alternatives), now_s)
        if most == 0 and command.alternatives:
            # The last dollars of a limit may do for what is planned, and not for what is a little dearer.
            command = replace(command, alternatives=())
            most, limit = self.headroom(command.offer, now_s)
        text, count = str(limit), min(command.count, most)
        launched = Launched(())
        why: CloudError | None = None
        if count > 0:
            token = self._token(now_s)
            intent = Intent(
                token, now_s, command.offer, count, command.standby, planned.name, command.reason,
                release=command.release, alternatives=command.alternatives,
            )  # fmt: skip
            self._write_down(intent)
            try:
                launched = self._launched(intent)
                others = self._others(command, launched.numbers)
                why, text, decided = _why_short(launched, count), _said(launched, count, others), True
                if why is None and count < command.count:
                    text = f"{count} of {command.count}: {limit}{others}"
            except CloudError as error:
                why, text, decided = error, self.failed(error), isinstance(error, DECIDED)
                if not decided:
                    self._put_off(intent, error, now_s)
                    if isinstance(error, ThrottledError):
                        self._known_throttled(intent)
            if decided:
                self._known(intent, launched.numbers)
        else:
            self.failures["LimitError"] += 1
        put_off, whole_release = self._refused_with(command.offer, why, launched)
        numbers = launched.numbers
        result = Result.LIMIT if count == 0 else _result(len(numbers), command.count)
        outcome = Outcome(
            command, text, result, bool(put_off), numbers, planned.name, put_off, whole_release, _is_gone(why)
        )
        yield outcome  # first, so that what was started is known whatever the store does
        self._store.record(now_s, command, text, result, len(numbers))
        if not self._kept:
            self._keep(self._intents, self._made)
        return outcome

    def _others(self, command: Launch, numbers: Sequence[int]) -> str:
        """What was started of its alternatives, as the journal has it."""
        if not command.alternatives or not numbers:
            return ""
        started = Counter(i.offer for i in self._cloud.fleet().instances if i.number in numbers)
        return "".join(f", {n} of them {name}" for name, n in sorted(started.items()) if name != command.offer)

    def _put_off(self, intent: Intent, error: CloudError, now_s: float) -> None:
        backoff = THROTTLED if isinstance(error, ThrottledError) else LAUNCH
        # It was asked for after pauses that add up to its age, so that as long again is twice the last one.
        self._again_s[intent.token] = now_s + min(max(backoff.first_s, now_s - intent.at_s), backoff.longest_s)

    def _write_down(self, intent: Intent) -> None:
        self._keep({**self._intents, intent.token: intent}, self._made)

    def _known_throttled(self, intent: Intent) -> None:
        """To this process whatever the store does, and to the next one."""
        self._intents = {**self._intents, intent.token: replace(intent, throttled=True)}
        self._keep(self._intents, self._made)

    def _cross_out(self, intent: Intent) -> None:
        """It has ended, and is not repeated."""
        self._known(intent, ())
        self._keep(self._intents, self._made)

    def _known(self, intent: Intent, numbers: tuple[int, ...]) -> None:
        """Its outcome is known: these were launched. Whatever the store does, this process asks for it no more."""
        self._again_s.pop(intent.token, None)
        made = self._not_shown()
        if numbers:
            # Until the cloud shows it: from the call on, which may come long after its round has begun.
            at_s = intent.at_s if intent.made else self._clock.now_s()
            made = (*made, replace(intent, at_s=at_s, made=True))
        self._intents = {token: one for token, one in self._intents.items() if token != intent.token}
        self._made, self._kept = made, False

    def _not_shown(self) -> tuple[Intent, ...]:
        """What was made, and the cloud may not show to others yet."""
        now_s = self._clock.now_s()
        return tuple(one for one in self._made if now_s - one.at_s < SHOWN_S)

    def _keep(self, intents: dict[str, Intent], made: tuple[Intent, ...]) -> None:
        self._kept = False
        self._store.put("intents", (*intents.values(), *made))
        self._intents, self._made, self._kept = intents, made, True

    def _token(self, now_s: float) -> str:
        """Names a launch by its place in the run: a controller that repeats a tick repeats its tokens."""
        at_s, count = self._tokens
        self._tokens = (now_s, count + 1 if at_s == now_s else 0)
        return f"{self._resolved.service.name}/{self._seed}/{now_s:.3f}/{self._tokens[1]}"
