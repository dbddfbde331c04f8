"""A rescue under way: what the SLO monitor asked for, as long as the market may have it under another name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mark.control.monitor import MonitorState
from mark.control.snapshot import Outcome
from mark.domain.backoff import RESCUE
from mark.domain.command import Launch, Resume


@dataclass(frozen=True, slots=True)
class Rescue:
    """`lacking` instances are still to be had, for `reason`. `before` is the monitor's state before the rescue."""

    before: MonitorState
    lacking: int
    reason: str

    def after(self, outcomes: Sequence[Outcome], stopped: Collection[int]) -> Rescue | None:
        """What the market lacked of it; None where nothing was refused. `stopped`: numbers of what is not started now.

        A start whose answer was lost may have been made: then it is not among these.
        """
        refused, started = False, 0
        for one in outcomes:
            if isinstance(one.command, Resume):
                not_made = one.refused and one.command.number in stopped
                started += one.done or (one.refused and not not_made)
                refused = refused or not_made
            elif isinstance(one.command, Launch):
                started += len(one.started)
                refused = refused or one.refused
        return replace(self, lacking=self.lacking - started) if refused and started < self.lacking else None


def in_vain(before: MonitorState, now_s: float) -> MonitorState:
    """The monitor's state after a rescue that nothing was to be had for: as before it, and soon asked for again.

    What an earlier rescue added is kept until then: with less there would be more trouble.
    """
    if before.extra == 0 or before.launched_s is None:
        return before
    return replace(before, launched_s=min(now_s, now_s - before.pause_s + RESCUE.first_s))
