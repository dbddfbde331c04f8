"""Scheduled events: the cloud announces days ahead that it will stop, end or restart an instance, which leaves in time.

Pure. An event is ignored until it is near, because the plan ends most instances before. Then the instance leaves
like one whose offer may not be bought any more (`Fleet.leaving`): it no longer counts toward the plan, so another one
is launched; it serves until all planned instances are ready, and is then drained and terminated. Its offer can be
bought as before, because the event is not a spot interruption.
"""

from __future__ import annotations

from mark.domain.copying import replace
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.fleet import Fleet, Instance, Phase

# Enough for six failed boots, or for an hour in which a type is unavailable.
LEAD_S = 3600.0


def is_due(instance: Instance, now_s: float) -> bool:
    """Return whether the instance has an event that is near, or past without being reported as over.

    Events of stopped instances do not count, because they lose no requests.
    """
    event = instance.event
    return event is not None and instance.phase is not Phase.STOPPED and event.at_s - now_s < LEAD_S


def why_due(instance: Instance, now_s: float) -> str:
    """Return the near event in words, or ""."""
    event = instance.event
    if event is None or not is_due(instance, now_s):
        return ""
    left_s = event.at_s - now_s
    return f"{event.code} is scheduled for it " + (f"in {left_s / 60.0:.0f} min" if left_s > 0.0 else "now")


def leaving_in_time(fleet: Fleet, now_s: float) -> Fleet:
    """Return the fleet with the instances whose events are due among the leaving ones.

    In the last two minutes before its event an instance is marked as interrupted, so that it is drained in any case.
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
