"""Failed boots: an offer whose instances do not start is not launched again and again.

A boot has failed if it exceeds the boot timeout, or if its instance disappears before it was ready for no known reason:
the controller did not end it, no interruption was announced, and it was not refused after its launch
(`mark.control.late_refusals`). After `IN_A_ROW` failures of an offer in a row, its instances are tried one at a time,
after a pause that doubles with each further failure. During the pause the offer counts as unavailable.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.backoff import BOOTS
from mark.domain.command import Command, Launch
from mark.domain.fleet import Fleet, Instance, Phase

IN_A_ROW = 3
# After a longer time without a look, the fate of booting instances is unknown.
LOOKS_S = 60.0


@dataclass(frozen=True, slots=True)
class Boots:
    """The boots of one offer: numbers of `booting` instances, and of `given_up` ones that exceed the boot timeout.

    `failed` counts failures in a row, the last at `failed_s`. From `IN_A_ROW` on only single tries count.
    """

    booting: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    failed: int = 0
    failed_s: float = -math.inf

    def seen(self, instances: Sequence[Instance], now_s: float, late: Collection[int]) -> Boots:
        """Return the boots after a look at the offer's instances; `late` are numbers that exceed the boot timeout."""
        there = {i.number for i in instances}
        pending = [i for i in instances if i.phase is Phase.PENDING and i.interruption_at_s is None]
        given_up = tuple(i.number for i in pending if i.number in late or i.number in self.given_up)
        booting = tuple(i.number for i in pending if i.number not in given_up)
        failures = sum(n not in there for n in self.booting) + sum(n not in self.given_up for n in given_up)
        began_well = any(
            (i.phase is Phase.READY and (i.ready_s or 0.0) > self.failed_s)
            or (i.phase is Phase.STOPPED and i.number in self.booting)  # a standby that has been ready
            for i in instances
        )
        failed, failed_s = self.failed, self.failed_s
        if failures > 0:
            # Instances launched together fail of one cause, perhaps at different times, so after `IN_A_ROW` failures
            # only the failure of a single try says anything new.
            alone = len(self.booting) == 1
            failed, failed_s = min(failed + failures, IN_A_ROW) if failed < IN_A_ROW else failed + alone, now_s
        elif began_well:
            failed = 0
        found = Boots(booting, given_up, failed, failed_s)
        return self if found == self else found

    @property
    def held_back(self) -> bool:
        """Whether `IN_A_ROW` boots failed, so that one instance at a time is tried."""
        return self.failed >= IN_A_ROW

    @property
    def until_s(self) -> float:
        """The time from which the next instance is tried; at most an hour after the last failure."""
        if not self.held_back:
            return -math.inf
        return self.failed_s + BOOTS.pause_s(self.failed - IN_A_ROW + 1)


def seen(
    boots: Mapping[str, Boots], seen_s: float, fleet: Fleet, now_s: float, late: Collection[int]
) -> dict[str, Boots]:
    """Return the boots by offer after a look at the fleet; the last look was at `seen_s`."""
    by_offer: dict[str, list[Instance]] = {offer: [] for offer in boots}
    for i in fleet.instances:
        by_offer.setdefault(i.offer, []).append(i)
    refused = {one.number for one in fleet.refused}
    known = {o: replace(one, booting=tuple(n for n in one.booting if n not in refused)) for o, one in boots.items()}
    if now_s - seen_s > LOOKS_S:  # booting instances may have been ready since, and been terminated
        known = {offer: replace(one, booting=(), given_up=()) for offer, one in known.items()}
    found = {offer: known.get(offer, Boots()).seen(those, now_s, late) for offer, those in by_offer.items()}
    return {offer: one for offer, one in found.items() if one != Boots()}


def ended(boots: Mapping[str, Boots], offer: str, number: int) -> dict[str, Boots]:
    """Note that the controller ends an instance, so that its end is not a failed boot."""
    one = boots.get(offer)
    if one is None or number not in one.booting:
        return dict(boots)
    return {**boots, offer: replace(one, booting=tuple(n for n in one.booting if n != number))}


def allowed(boots: Mapping[str, Boots], commands: Sequence[Command], now_s: float) -> Sequence[Command]:
    """Return the commands with at most one launch of one instance of each offer that is held back."""
    tried: set[str] = set()
    result: list[Command] = []
    for command in commands:
        one = boots.get(command.offer) if isinstance(command, Launch) else None
        if one is None or not one.held_back or not isinstance(command, Launch):
            result.append(command)
        elif not one.booting and now_s >= one.until_s and command.offer not in tried:
            tried.add(command.offer)
            result.append(replace(command, count=1, usd_per_hour=command.usd_per_hour / command.count))
    return result


def trouble(boots: Mapping[str, Boots]) -> str:
    """Return one line about the offers that are held back; else ""."""
    held = [f"{one.failed} of {offer}" for offer, one in sorted(boots.items()) if one.held_back]
    return f"boots failed in a row, and are tried one at a time: {', '.join(held)}" if held else ""
