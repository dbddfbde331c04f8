"""Retry a launch that the SLO monitor requested and the market refused.

The monitor requests one offer. If it is refused, `Rescue` keeps the request open so that another offer can be launched,
and `in_vain` restores the state of the monitor if no offer has capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mark.control.monitor import MonitorState
from mark.control.snapshot import Outcome
from mark.domain.backoff import RESCUE
from mark.domain.command import Launch, Resume


@dataclass(frozen=True, slots=True)
class Rescue:
    """A rescue under way: `lacking` instances are still to be launched, for `reason`.

    `before` is the monitor's state before the rescue.
    """

    before: MonitorState
    lacking: int
    reason: str

    def after(self, outcomes: Sequence[Outcome], stopped: Collection[int]) -> Rescue | None:
        """Return the rescue with the instances that the market still lacks; None if it is complete or was not refused.

        `stopped` are the numbers of instances that are stopped now. A resume whose answer was lost has succeeded if its
        instance is not among them.
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
    """Return the monitor's state after a rescue for which no offer had capacity: the state before, with an early retry.

    The instances of an earlier rescue are kept until the retry, because fewer would make the trouble worse.
    """
    if before.extra == 0 or before.launched_s is None:
        return before
    return replace(before, launched_s=min(now_s, now_s - before.pause_s + RESCUE.first_s))
