"""What the cloud will stop, end or restart by itself, and has said so days ahead: it leaves in time.

Pure. Nothing is done until an event is near, for the plan ends most instances before. Then it is as with one that may
not be bought any more (`Fleet.leaving`): it counts no longer towards the plan, for which another one is launched,
serves until all that is planned is ready, is drained, and ended. Its offer can be bought as before, and is no spot that
was taken back.
"""

from __future__ import annotations

from mark.domain.copying import replace
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.fleet import Fleet, Instance, Phase

# Six boots that fail, or an hour in which none of a type is to be had.
LEAD_S = 3600.0


def is_due(instance: Instance, now_s: float) -> bool:
    """Is something that is scheduled for it near, or past and not told to be over? What is stopped loses nothing."""
    event = instance.event
    return event is not None and instance.phase is not Phase.STOPPED and event.at_s - now_s < LEAD_S


def why_due(instance: Instance, now_s: float) -> str:
    """What is near, in words; "" where nothing is."""
    event = instance.event
    if event is None or not is_due(instance, now_s):
        return ""
    left_s = event.at_s - now_s
    return f"{event.code} is scheduled for it " + (f"in {left_s / 60.0:.0f} min" if left_s > 0.0 else "now")


def leaving_in_time(fleet: Fleet, now_s: float) -> Fleet:
    """The fleet with what is due among those that leave.

    In the last two minutes it is one that is interrupted then: it is drained in any case.
    """
    due = [i for i in fleet.instances if is_due(i, now_s)]
    if not due and not any(is_due(i, now_s) for i in fleet.leaving):
        return fleet
    leaving = sorted((*fleet.leaving, *due), key=lambda i: i.number)
    return replace(
        fleet,
        instances=tuple(i for i in fleet.instances if not is_due(i, now_s)),
        leaving=tuple(_doomed(i, now_s) for i in leaving),
    )


def _doomed(instance: Instance, now_s: float) -> Instance:
    event = instance.event
    if event is None or instance.interruption_at_s is not None or event.at_s - now_s >= INTERRUPTION_NOTICE_S:
        return instance
    return replace(instance, interruption_at_s=event.at_s)
