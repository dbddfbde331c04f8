"""Launches: within the limits, and never twice.

A launch is stored (`Intent`) before the call and removed when its outcome is known. A controller that was killed in
between, or that got no answer, repeats the call under the same token, so the cloud launches nothing twice. A controller
that takes over also repeats the launches made just before, because the cloud may not show their instances yet.
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

# A launch whose outcome stays unknown is repeated for this time, in which the fleet begins to show its instances.
UNSURE_S = 300.0
# A launch that was made is kept for the next controller for this time, in which the cloud begins to show its instances.
SHOWN_S = 30.0
# These errors prove that no instance was launched. Any other CloudError, including throttling of a second attempt, may
# hide a lost answer.
DECIDED = (CapacityError, LimitError, NotFoundError, DeniedError)


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch at `at_s` of `count` instances of `offer`, which count for the offer `planned`.

    `made`: it started instances. `throttled`: all its calls so far were throttled, so it started none.
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
    alternatives: tuple[str, ...] = ()  # offers that the cloud may start instead; they also count for `planned`
    throttled: bool = False


def _not_ahead(intent: Intent, now_s: float) -> Intent:
    """Return another process's intent with a time of at most `now_s`, because its clock may have been ahead."""
    return intent if intent.at_s <= now_s else replace(intent, at_s=now_s)


def _said(launched: Launched, count: int, others: str = "") -> str:
    """Return the journal's text for a launch of `count`; `others` lists the instances of alternative offers."""
    started = len(launched.numbers)
    if started == count:
        return f"done{others}"
    text = f"the market had {started} of {count}{others}"
    return text if launched.refused is None else f"{text}: {launched.refused}"


def _result(started: int, count: int) -> Result:
    """Return the result of a launch of `count` instances that reached the cloud."""
    return Result.DONE if started == count else Result.PART if started else Result.FAILED


def _is_gone(why: CloudError | None) -> bool:
    """Return whether the release's launch template, image or another part of it no longer exists."""
    return isinstance(why, NotFoundError) or (isinstance(why, CapacityError) and why.gone)


def _why_short(launched: Launched, count: int) -> CapacityError | ThrottledError | None:
    """Return why fewer than `count` instances were launched; None if all were."""
    if len(launched.numbers) >= count:
        return None
    return launched.refused or CapacityError("no reason was given")


class Launcher:
    """Launches for one service within `limits`, and keeps its intents in the store.

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
        self._made: tuple[Intent, ...] = ()  # made by this process, and perhaps not shown by the cloud yet
        self._kept = True  # whether the store is known to hold the intents and the made launches
        # When to repeat a launch, by token. Launches of another process are repeated immediately, except throttled
        # ones: these may be given up, but only after the fleet shows instances that an earlier call may have started.
        self._again_s = {
            one.token: clock.now_s() + THROTTLED.first_s for one in self._intents.values() if one.throttled
        }
        self._tokens = (-math.inf, 0)  # time of the last launch, launches at that time

    def use(self, resolved: ResolvedService, limits: Limits) -> None:
        """Use the same offers with other limits or prices."""
        self._resolved, self._limits = resolved, limits
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._usd_per_hour = {offer.name: offer.usd_per_hour for offer in resolved.offers}

    @property
    def offers(self) -> Sequence[Offer]:
        """The offers that may be launched."""
        return self._resolved.offers

    def launch(self, now_s: float, command: Launch, *, substitute: bool) -> Iterator[Outcome]:
        """Launch within the limits. With `substitute`, try other zones and then on-demand for a refused part.

        Without `substitute` the planner plans again and chooses the replacement.
        """
        planned = self._offers[command.planned or command.offer]
        outcome = yield from self._launch_one(now_s, command, planned)
        if outcome.refused and not substitute:
            self.fall_back(f"planned again without {planned.instance}/{planned.market}")
            return
        missing, why_not = command.count - len(outcome.started), outcome.text
        for other in instead_of(planned, self._resolved) if outcome.refused else ():
            reason = f"instead of {planned.name} ({why_not}): {command.reason}"
            usd_per_hour = missing * other.usd_per_hour
            retry = replace(
                command, reason=reason, usd_per_hour=usd_per_hour, offer=other.name, count=missing, alternatives=(),
                planned="",
            )  # fmt: skip
            outcome = yield from self._launch_one(now_s, retry, planned)
            if outcome.started:
                self.fall_back(f"{other.name} instead of {planned.name}", len(outcome.started))
                missing -= len(outcome.started)
            if missing == 0 or not outcome.refused:
                break

    def repeat(self, now_s: float, lacking: Callable[[str], float]) -> Iterator[Outcome]:
        """Repeat, under their tokens, launches whose outcome is unknown or whose instances may not show yet.

        A throttled launch, which has probably started no instance, is given up if the fleet lacks fewer instances of
        its release (`lacking`) than it would start, because the plan may have shrunk. A throttled launch of standbys is
        always given up, because the next plan, within a minute, requests them again.
        """
        if not self._kept:  # the failed write may have arrived, and the next controller would repeat its launches
            self._made = self._not_shown()
            self._keep(self._intents, self._made)
        for intent in tuple(self._intents.values()):
            # An offer that left the catalogue may not be bought. And after UNSURE_S the fleet shows all instances that
            # were started: a controller that begins hours later would only buy more of them for an old plan.
            sold = self._offers.keys() >= {intent.offer, *intent.alternatives}
            if not sold or now_s - intent.at_s >= (SHOWN_S if intent.made else UNSURE_S):
                self._cross_out(intent)
                continue
            if now_s < self._again_s.get(intent.token, -math.inf):
                continue
            throttled = intent.throttled
            if throttled and (intent.standby or lacking(intent.release) < intent.count):
                # Half a minute after the call the fleet shows its instances, and the next plan adds missing ones.
                self._cross_out(intent)
                continue
            if throttled:
                intent = replace(intent, throttled=False)
                self._write_down(intent)  # before the call: if its answer is lost, the launch may have been made
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
            # The outcome of a launch that was made has been learned already.
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
        """Whether `repeat` has anything to do."""
        return bool(self._intents) or not self._kept

    def unsure(self, *, standby: bool) -> Counter[str]:
        """Return the instances of launches whose outcome is unknown, by planned offer."""
        unsure: Counter[str] = Counter()
        for intent in self._intents.values():
            if intent.standby == standby:
                unsure[intent.planned] += intent.count
        return unsure

    def headroom(self, offer: str, now_s: float) -> tuple[int, Limit]:
        """Return how many more of the offer the limits allow now, and which limit binds.

        Unhealthy instances do not count, because otherwise they could not be replaced at the limit. The few of them
        exceed the limit until they have left.
        """
        return headroom(self._limits, self._offers[offer], self._running(now_s), self._usd_per_hour)

    def holding(self, now_s: float) -> Holding:
        """Return the instances and dollars that count toward the limits now."""
        running = self._running(now_s)
        usd_per_hour = sum(self._usd_per_hour.get(name, 0.0) * count for name, count in running.items())
        first = default_offer(self._resolved)
        if running.total() == 0 and first is not None and self._resolved.service.min_instances > 0:
            usd_per_hour = first.usd_per_hour  # otherwise a service that holds nothing would get no share
        return Holding(sum(running.values()), usd_per_hour, self._limits)

    def _running(self, now_s: float) -> Counter[str]:
        running = counted(mark_unhealthy(self._cloud.fleet(), now_s))
        for intent in self._intents.values():
            running[self._dearest(intent.offer, intent.alternatives)] += intent.count
        return running

    def failed(self, error: CloudError) -> str:
        """Count a refusal and return its message, for the outcome."""
        self.failures[type(error).__name__] += 1
        return str(error)

    def fall_back(self, name: str, times: int = 1) -> None:
        """Count the use of a substitute."""
        self.fallbacks[name] += times

    def _dearest(self, offer: str, alternatives: Sequence[str]) -> str:
        """Return the dearest of the offers, so that the limits hold whichever one the cloud starts."""
        return max((offer, *alternatives), key=lambda name: self._usd_per_hour.get(name, 0.0))

    def _refused_with(self, offer: str, why: CloudError | None, launched: Launched) -> tuple[tuple[str, ...], bool]:
        """Return the offers that are refused with this one, itself first, and whether its whole release is refused.

        If some instances were launched, the release can be launched, and the reason concerns single instances.
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
        """Launch one offer or its alternatives; the instances count for `planned`."""
        most, limit = self.headroom(self._dearest(command.offer, command.alternatives), now_s)
        if most == 0 and command.alternatives:
            # The dollars that are left may be enough for the offer, but not for a dearer alternative.
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
        yield outcome  # before storing it, so that started instances are known even if the store fails
        self._store.record(now_s, command, text, result, len(numbers))
        if not self._kept:
            self._keep(self._intents, self._made)
        return outcome

    def _others(self, command: Launch, numbers: Sequence[int]) -> str:
        """Return the instances of alternative offers, worded for the journal; "" if the fleet cannot be read."""
        if not command.alternatives or not numbers:
            return ""
        try:
            fleet = self._cloud.fleet()
        except CloudError:  # must not make the launch, which was made, a doubtful one
            return ""
        started = Counter(i.offer for i in fleet.instances if i.number in numbers)
        return "".join(f", {n} of them {name}" for name, n in sorted(started.items()) if name != command.offer)

    def _put_off(self, intent: Intent, error: CloudError, now_s: float) -> None:
        """Set the time to repeat a launch whose outcome is unknown."""
        backoff = THROTTLED if isinstance(error, ThrottledError) else LAUNCH
        # The pauses so far add up to the launch's age, so waiting for that age again doubles the pause.
        self._again_s[intent.token] = now_s + min(max(backoff.first_s, now_s - intent.at_s), backoff.longest_s)

    def _write_down(self, intent: Intent) -> None:
        self._keep({**self._intents, intent.token: intent}, self._made)

    def _known_throttled(self, intent: Intent) -> None:
        """Remember that the launch was throttled, in this process even if the store fails, and for the next one."""
        self._intents = {**self._intents, intent.token: replace(intent, throttled=True)}
        self._keep(self._intents, self._made)

    def _cross_out(self, intent: Intent) -> None:
        """Remove the launch, so that it is not repeated."""
        self._known(intent, ())
        self._keep(self._intents, self._made)

    def _known(self, intent: Intent, numbers: tuple[int, ...]) -> None:
        """Note the launched instances, so that this process does not repeat the launch even if the store fails."""
        self._again_s.pop(intent.token, None)
        made = self._not_shown()
        if numbers:
            # SHOWN_S counts from the call, which may come long after the round began.
            at_s = intent.at_s if intent.made else self._clock.now_s()
            made = (*made, replace(intent, at_s=at_s, made=True))
        self._intents = {token: one for token, one in self._intents.items() if token != intent.token}
        self._made, self._kept = made, False

    def _not_shown(self) -> tuple[Intent, ...]:
        """Return the made launches that the cloud may not show to other processes yet."""
        now_s = self._clock.now_s()
        return tuple(one for one in self._made if now_s - one.at_s < SHOWN_S)

    def _keep(self, intents: dict[str, Intent], made: tuple[Intent, ...]) -> None:
        """Store the launches; `_kept` stays false if the store fails."""
        self._kept = False
        self._store.put("intents", (*intents.values(), *made))
        self._intents, self._made, self._kept = intents, made, True

    def _token(self, now_s: float) -> str:
        """Return a token made from the launch's place in the run, so that a repeated tick repeats its tokens."""
        at_s, count = self._tokens
        self._tokens = (now_s, count + 1 if at_s == now_s else 0)
        return f"{self._resolved.service.name}/{self._seed}/{now_s:.3f}/{self._tokens[1]}"
