"""Boots that fail: a release that does not start is not bought again and again.

A boot has failed when its instance is gone before it was ready, though neither it was ended by us nor announced as
interrupted, or when it exceeds the boot timeout. After `IN_A_ROW` of them, with none that succeeded in between, one
instance at a time is tried, after a pause that doubles with each further one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mark.domain.command import Command, Launch
from mark.domain.fleet import Fleet, Phase
from mark.domain.time import HOUR_S

IN_A_ROW = 3
PAUSE_S, LONGEST_PAUSE_S = 60.0, HOUR_S


@dataclass(frozen=True, slots=True)
class Boots:
    """`failed` in a row, the last at `failed_s`; the instances with the numbers `booting` are on their way."""

    booting: tuple[int, ...] = ()
    failed: int = 0
    failed_s: float = -math.inf

    def seen(self, fleet: Fleet, now_s: float) -> Boots:
        """With what the fleet shows. The same object while nothing changes."""
        phases = {i.number: i.phase for i in fleet.instances}
        gone = [n for n in self.booting if n not in phases]
        doomed = {i.number for i in fleet.instances if i.interruption_at_s is not None}
        booting = tuple(n for n, phase in phases.items() if phase is Phase.PENDING and n not in doomed)
        failed, failed_s = self.failed, self.failed_s
        if any(phases.get(n) is Phase.READY for n in self.booting):
            failed = 0
        elif gone:
            failed, failed_s = failed + len(gone), now_s
        if (booting, failed, failed_s) == (self.booting, self.failed, self.failed_s):
            return self
        return Boots(booting, failed, failed_s)

    def timed_out(self, numbers: Collection[int], now_s: float) -> Boots:
        """These exceed the boot timeout; each counts once."""
        failed = [n for n in self.booting if n in numbers]
        return self.without(*failed, failed=self.failed + len(failed), failed_s=now_s) if failed else self

    def without(self, *numbers: int, failed: int | None = None, failed_s: float | None = None) -> Boots:
        """These are ended by us: that they are gone says nothing."""
        if not set(numbers) & set(self.booting):
            return self
        return Boots(
            tuple(n for n in self.booting if n not in numbers),
            self.failed if failed is None else failed,
            self.failed_s if failed_s is None else failed_s,
        )

    def pause_s(self) -> float:
        """How long after the last failure the next boot is tried; 0 while too few have failed."""
        more = self.failed - IN_A_ROW
        return 0.0 if more < 0 else min(PAUSE_S * 2.0 ** min(more, 16), LONGEST_PAUSE_S)

    def allowed(self, commands: Sequence[Command], now_s: float) -> Sequence[Command]:
        """The commands with as many launches as may be tried now: all, one instance, or none."""
        if self.failed < IN_A_ROW:
            return commands
        left = 0 if self.booting or now_s < self.failed_s + self.pause_s() else 1
        result: list[Command] = []
        for command in commands:
            if not isinstance(command, Launch):
                result.append(command)
            elif left > 0:
                result.append(replace(command, count=1, usd_per_hour=command.usd_per_hour / command.count))
                left = 0
        return result

    def trouble(self) -> str:
        """One line for people, where boots are held back."""
        if self.failed < IN_A_ROW:
            return ""
        return f"{self.failed} boots failed in a row: one instance is tried {self.pause_s():.0f} s after the last"
