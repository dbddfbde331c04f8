"""What is bought, and what is remembered of the market: limits, launches, refusals, stand-ins.

A launch is written down before it is made (`Intent`) and crossed out when its outcome is known. A controller that was
killed in between, or whose answer was lost, repeats it under the same token: the cloud launches nothing twice. Whoever
takes over also repeats what was launched just before, as the cloud may not show it yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mark.control.health import judged
from mark.control.interruption import instead_of
from mark.control.ports import Cloud, Store
from mark.control.views import Limits
from mark.domain.command import Launch
from mark.domain.errors import CapacityError, CloudError, DeniedError, LimitError, NotFoundError
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService
from mark.planning.market.spot import Belief

# A launch whose outcome stays unknown is repeated for so long; by then the fleet shows what it started.
UNSURE_S = 300.0
# A launch that was made is told to whoever takes over for so long; by then the cloud shows it.
SHOWN_S = 30.0
# After these it is certain that nothing was launched; after any other CloudError, throttling of a second attempt
# among them, an answer may have got lost.
DECIDED = (CapacityError, LimitError, NotFoundError, DeniedError)


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch under way, or `made`: `count` of `offer`, to count for the offer `planned`."""

    token: str
    at_s: float
    offer: str
    count: int
    standby: bool
    planned: str
    reason: str
    made: bool = False


class Launcher:
    """Launches for one service within `limits`, and keeps in the store what it learned of the market.

    `beliefs` by offer, `stands_for`: number of an instance bought instead of a planned offer that could not be had ->
    that offer; `refused`: did the market refuse a launch since that was last reset? `failures` and `fallbacks` as in
    `Controller`. `seed` marks the launch tokens.
    """

    def __init__(self, resolved: ResolvedService, cloud: Cloud, store: Store, limits: Limits, seed: int) -> None:
        self._resolved, self._cloud, self._store, self._seed = resolved, cloud, store, seed
        self._offers = {offer.name: offer for offer in resolved.offers}
        self.limits = limits
        self.beliefs: dict[str, Belief] = dict(store.get("beliefs") or {})
        self.stands_for: dict[int, str] = dict(store.get("stands_for") or {})
        self.refused = False
        self.failures: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self._intents: dict[str, Intent] = {intent.token: intent for intent in store.get("intents") or ()}
        self._made: tuple[Intent, ...] = ()  # of late, by this one
        self._tokens = (-math.inf, 0)  # time of the last launch, launches at that time

    def use(self, resolved: ResolvedService, limits: Limits) -> None:
        """The same offers within other limits, or at other prices."""
        self._resolved, self.limits = resolved, limits
        self._offers = {offer.name: offer for offer in resolved.offers}

    # -- beliefs -------------------------------------------------------------------------------------------------------

    def watch_market(self, now_s: float, fleet: Fleet) -> None:
        """What is held of spot now was not taken since the last look."""
        held = {i.offer for i in fleet.instances if i.phase in (Phase.PENDING, Phase.READY)}
        held = {name for name in held if self._offers[name].market is Market.SPOT}
        for name in sorted(held | self.beliefs.keys()):
            self.beliefs[name] = self._belief(name, now_s).watched(now_s, name in held)
        if self.beliefs:
            self._store.put("beliefs", dict(self.beliefs))

    def interrupted(self, now_s: float, offer: str, share: float) -> None:
        """`share` of what was held of the offer got a notice."""
        self._believe(offer, self._belief(offer, now_s).interrupted(now_s, share))

    def _belief(self, offer: str, now_s: float) -> Belief:
        return self.beliefs.get(offer) or Belief(at_s=now_s)

    def _believe(self, offer: str, belief: Belief) -> None:
        self.beliefs[offer] = belief
        self._store.put("beliefs", dict(self.beliefs))

    # -- stand-ins -----------------------------------------------------------------------------------------------------

    def forget_gone(self, fleet: Fleet) -> None:
        """Instances that are no more stand for nothing."""
        if self.stands_for:
            there = {i.number for i in fleet.instances}
            self.stands_for = {n: offer for n, offer in self.stands_for.items() if n in there}

    def counted_as(self, fleet: Fleet, planned: Mapping[str, int]) -> dict[int, str]:
        """Number -> the planned offer that an instance counts for.

        A stand-in counts for what it stands in for, unless the plan asks for more of its own offer than there is.
        """
        carrying = [i for i in fleet.instances if carries(i)]
        own = Counter(i.offer for i in carrying if i.number not in self.stands_for)
        counted_as = {}
        for i in carrying:
            counted_as[i.number] = self.stands_for.get(i.number, i.offer)
            if i.number in self.stands_for and own[i.offer] < planned.get(i.offer, 0):
                own[i.offer] += 1
                counted_as[i.number] = i.offer
        return counted_as

    # -- launching -----------------------------------------------------------------------------------------------------

    def launch(self, now_s: float, command: Launch, *, replans: bool) -> bool:
        """Launch within the limits; what the market has not is tried in other zones, then on demand.

        Where the planner can be asked again (`replans`), it says itself what to buy instead.
        """
        planned = self._offers[command.offer]
        missing, why_not = self._launch_one(now_s, command, planned)
        if why_not and replans:
            self.fall_back(f"planned again without {planned.instance}/{planned.market}")
            return False
        for other in instead_of(planned, self._resolved) if why_not else ():
            if missing == 0:
                break
            reason = f"instead of {planned.name} ({why_not}): {command.reason}"
            retry = Launch(reason, missing * other.usd_per_hour, other.name, missing, command.standby)
            before = missing
            missing, still = self._launch_one(now_s, retry, planned)
            if missing < before:
                self.fall_back(f"{other.name} instead of {planned.name}", before - missing)
            if missing and not still:
                break
        return missing == 0

    def repeat(self, now_s: float) -> None:
        """Make the launches again whose outcome is unknown, or which may not show yet, under their tokens."""
        for intent in tuple(self._intents.values()):
            offer = self._offers.get(intent.offer)
            # What is not sold any more may not be bought.
            if offer is None or (intent.made and now_s - intent.at_s >= SHOWN_S):
                self._cross_out(intent)
                continue
            try:
                numbers = self._cloud.launch(intent.offer, intent.count, intent.token, standby=intent.standby)
                outcome = "done" if len(numbers) == intent.count else f"the market had {len(numbers)} of {intent.count}"
                self._stand_in(intent, numbers)
            except CloudError as error:
                if not isinstance(error, DECIDED) and now_s - intent.at_s < UNSURE_S:
                    continue
                numbers, outcome = (), self.failed(error)
            if not intent.made:
                usd_per_hour = 0.0 if intent.standby else intent.count * offer.usd_per_hour
                command = Launch(intent.reason, usd_per_hour, intent.offer, intent.count, intent.standby)
                self._store.record(now_s, command, outcome)
            self._cross_out(intent, numbers)

    def promised(self, *, standby: bool) -> Counter[str]:
        """Instances that may be there or not, by the planned offer: launches whose outcome is unknown."""
        promised: Counter[str] = Counter()
        for intent in self._intents.values():
            if intent.standby == standby:
                promised[intent.planned] += intent.count
        return promised

    def room(self, offer: Offer, now_s: float, planned: Mapping[str, int] | None = None) -> tuple[int, str]:
        """How many more of the offer the service's limits allow, and which limit that is.

        Counted is all that is neither stopped nor gone; or `planned`, when nothing is there yet. A suspect is not: at
        the limit it could not be replaced. Suspects are few, so few exceed the limit, and only until those have left.
        """
        running = planned
        if running is None:
            running = Counter(
                i.offer
                for i in judged(self._cloud.fleet(), now_s).instances
                if i.phase is not Phase.STOPPED and i.doomed_s != math.inf
            )
            for intent in self._intents.values():
                running[intent.offer] += intent.count
        usd_per_hour = sum(self._offers[name].usd_per_hour * count for name, count in running.items())
        # 1e-9: a budget of exactly ten instances must hold ten.
        by_price = max(0, math.floor((self.limits.max_usd_per_hour - usd_per_hour) / offer.usd_per_hour + 1e-9))
        # A SageMaker endpoint is not bound by max_instances (docs/semantics.md, 14).
        if offer.market is Market.SAGEMAKER:
            return by_price, f"max_usd_per_hour {self.limits.max_usd_per_hour:g} is reached"
        by_number = max(0, self.limits.max_instances - sum(running.values()))
        if by_number <= by_price:
            return by_number, f"max_instances {self.limits.max_instances} is reached"
        return by_price, f"max_usd_per_hour {self.limits.max_usd_per_hour:g} is reached"

    def failed(self, error: CloudError) -> str:
        """Count a refusal; its message is the outcome."""
        self.failures[type(error).__name__] += 1
        return str(error)

    def fall_back(self, name: str, times: int = 1) -> None:
        """Count that something else had to do."""
        self.fallbacks[name] += times
        self._store.put("fallbacks", dict(self.fallbacks))

    def _launch_one(self, now_s: float, command: Launch, planned: Offer) -> tuple[int, str]:
        """Launch of one offer: (how many are still missing, why the market fell short; "" when it did not)."""
        offer = self._offers[command.offer]
        room, limit = self.room(offer, now_s)
        count = min(command.count, room)
        numbers: tuple[int, ...] = ()
        outcome, why_not = limit, ""
        if count > 0:
            intent = Intent(self._token(now_s), now_s, offer.name, count, command.standby, planned.name, command.reason)
            self._write_down(intent)
            try:
                numbers = self._cloud.launch(offer.name, count, intent.token, standby=command.standby)
                if len(numbers) < count:
                    why_not = f"the market had {len(numbers)} of {count}"
                    outcome = why_not
                decided = True
            except CloudError as error:
                outcome, decided = self.failed(error), isinstance(error, DECIDED)
                if isinstance(error, CapacityError):
                    why_not = outcome
            self._stand_in(intent, numbers)
            if decided:
                self._cross_out(intent, numbers)
        else:
            self.failures["LimitError"] += 1
        known = self._belief(offer.name, now_s)
        if why_not:
            self.refused = True
            self._believe(offer.name, known.refused(now_s))
        elif numbers and known.refusals:
            self._believe(offer.name, known.sold())
        if len(numbers) == command.count:
            outcome = "done"
        elif len(numbers) == count > 0:
            outcome = f"{count} of {command.count}: {limit}"
        self._store.record(now_s, command, outcome)
        return command.count - len(numbers), why_not

    def _stand_in(self, intent: Intent, numbers: tuple[int, ...]) -> None:
        if numbers and intent.offer != intent.planned and not intent.standby:
            self.stands_for.update(dict.fromkeys(numbers, intent.planned))
            self._store.put("stands_for", self.stands_for)

    def _write_down(self, intent: Intent) -> None:
        self._keep({**self._intents, intent.token: intent}, self._made)

    def _cross_out(self, intent: Intent, numbers: tuple[int, ...] = ()) -> None:
        """Its outcome is known: these were launched."""
        made = tuple(one for one in self._made if one.at_s > intent.at_s - SHOWN_S)
        if numbers:
            made = (*made, replace(intent, made=True))
        self._keep({token: one for token, one in self._intents.items() if token != intent.token}, made)

    def _keep(self, intents: dict[str, Intent], made: tuple[Intent, ...]) -> None:
        self._store.put("intents", (*intents.values(), *made))
        self._intents, self._made = intents, made

    def _token(self, now_s: float) -> str:
        """Names a launch by its place in the run: a controller that repeats a tick repeats its tokens."""
        at_s, count = self._tokens
        self._tokens = (now_s, count + 1 if at_s == now_s else 0)
        return f"{self._resolved.service.name}/{self._seed}/{now_s:.3f}/{self._tokens[1]}"


def carries(instance: Instance) -> bool:
    """Does it count towards the plan: serves or will, is not doomed, and is no standby?"""
    return instance.phase in (Phase.PENDING, Phase.READY) and instance.doomed_s is None and not instance.standby
