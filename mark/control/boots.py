"""Boots that fail: what does not start is not bought again and again.

A boot has failed when its instance is gone before it was ready, though neither it was ended by us nor announced as
interrupted, nor was it refused after its launch (`mark.control.late_refusals`); or when it exceeds the boot timeout.
After `IN_A_ROW` of an offer, with none that succeeded in between, one of it at a time is tried, after a pause that
doubles with each further one; meanwhile it counts as not to be had.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.backoff import BOOTS
from mark.domain.command import Command, Launch
from mark.domain.fleet import Fleet, Instance, Phase

IN_A_ROW = 3
# Of what happened to instances in a longer time without a look nothing is known.
LOOKS_S = 60.0


@dataclass(frozen=True, slots=True)
class Boots:
    """Of one offer: the instances with the numbers `booting` are on their way, `given_up` exceed the boot timeout.

    `failed` in a row, the last at `failed_s`. From `IN_A_ROW` on those count that were tried alone.
    """

    booting: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    failed: int = 0
    failed_s: float = -math.inf

    def seen(self, instances: Sequence[Instance], now_s: float, late: Collection[int]) -> Boots:
        """With what the fleet shows of the offer; `late` are numbers that exceed the boot timeout."""
        there = {i.number for i in instances}
        pending = [i for i in instances if i.phase is Phase.PENDING and i.interruption_at_s is None]
        given_up = tuple(i.number for i in pending if i.number in late or i.number in self.given_up)
        booting = tuple(i.number for i in pending if i.number not in given_up)
        failures = sum(n not in there for n in self.booting) + sum(n not in self.given_up for n in given_up)
        began_well = any(
            (i.phase is Phase.READY and (i.ready_s or 0.0) > self.failed_s)
            or (i.phase is Phase.STOPPED and i.number in self.booting)  # a standby, once it has been ready
            for i in instances
        )
        failed, failed_s = self.failed, self.failed_s
        if failures > 0:
            # What was launched together fails of one cause, if not at one time: only what is tried alone tells more.
            alone = len(self.booting) == 1
            failed, failed_s = min(failed + failures, IN_A_ROW) if failed < IN_A_ROW else failed + alone, now_s
        elif began_well:
            failed = 0
        found = Boots(booting, given_up, failed, failed_s)
        return self if found == self else found

    @property
    def held_back(self) -> bool:
        """Did `IN_A_ROW` fail, so that only one at a time is tried?"""
        return self.failed >= IN_A_ROW

    @property
    def until_s(self) -> float:
        """From when on the next one is tried; never later than an hour after the last failure."""
        if not self.held_back:
            return -math.inf
        return self.failed_s + BOOTS.pause_s(self.failed - IN_A_ROW + 1)


def seen(
    boots: Mapping[str, Boots], seen_s: float, fleet: Fleet, now_s: float, late: Collection[int]
) -> dict[str, Boots]:
    """The boots by offer after a look at the fleet, when the last one was at `seen_s`."""
    by_offer: dict[str, list[Instance]] = {offer: [] for offer in boots}
    for i in fleet.instances:
        by_offer.setdefault(i.offer, []).append(i)
    refused = {one.number for one in fleet.refused}
    known = {o: replace(one, booting=tuple(n for n in one.booting if n not in refused)) for o, one in boots.items()}
    if now_s - seen_s > LOOKS_S:  # what was on its way then may have been ready since, and ended
        known = {offer: replace(one, booting=(), given_up=()) for offer, one in known.items()}
    found = {offer: known.get(offer, Boots()).seen(those, now_s, late) for offer, those in by_offer.items()}
    return {offer: one for offer, one in found.items() if one != Boots()}


def ended(boots: Mapping[str, Boots], offer: str, number: int) -> dict[str, Boots]:
    """It is ended by us: that it is gone says nothing."""
    one = boots.get(offer)
    if one is None or number not in one.booting:
        return dict(boots)
    return {**boots, offer: replace(one, booting=tuple(n for n in one.booting if n != number))}


def allowed(boots: Mapping[str, Boots], commands: Sequence[Command], now_s: float) -> Sequence[Command]:
    """The commands with as many launches as may be tried now: of an offer that is held back one, or none."""
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
    """One line for people, where boots are held back."""
    held = [f"{one.failed} of {offer}" for offer, one in sorted(boots.items()) if one.held_back]
    return f"boots failed in a row, and are tried one at a time: {', '.join(held)}" if held else ""
