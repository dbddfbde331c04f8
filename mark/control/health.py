"""Health: which instances are given up although the cloud says that they run, and when.

Pure. Instances that exceed the boot timeout are terminated. If the bouncer of an instance is silent for `SILENT_S`, a
replacement is launched, and then the instance is drained. While all instances are silent, none is drained, because the
controller's own network is the likelier cause; nor in the next `SILENT_S`, because they do not all answer again at the
same moment. At most `SHARE` of the ready instances are drained for silence within `PAUSE_S`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Phase

SILENT_S = 30.0  # six unanswered reads of its metrics
SHARE = 0.1  # this share of ready instances (at least one) may be given up within PAUSE_S
PAUSE_S = 300.0
BOOT_S, BOOTS = 600.0, 4.0


def boot_timeout_s(mean_s: float) -> float:
    """Return the boot timeout: an instance that takes longer could not fetch its software or load its model."""
    return max(BOOT_S, BOOTS * mean_s)


def unhealthy(fleet: Fleet, now_s: float) -> tuple[Instance, ...]:
    """Return the instances that have been silent for too long, longest first, at most as many as may be given up."""
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    silent = [i for i in ready if i.silent_s is not None and now_s - i.silent_s >= SILENT_S]
    silent.sort(key=lambda i: (i.silent_s, i.number))
    return tuple(silent[: _most(ready)])


def overdue(fleet: Fleet, now_s: float) -> tuple[Instance, ...]:
    """Return the instances that exceed the boot timeout."""
    return tuple(
        i
        for i in fleet.instances
        if i.phase is Phase.PENDING
        and i.ready_s is not None
        and now_s - i.launched_s >= boot_timeout_s(i.ready_s - i.launched_s)
    )


def mark_unhealthy(fleet: Fleet, now_s: float) -> Fleet:
    """Return the fleet with unhealthy and overdue instances marked as interrupted at an unknown time.

    They may continue to serve until they are replaced.
    """
    given_up = (*unhealthy(fleet, now_s), *overdue(fleet, now_s))
    found = {i.number for i in given_up if i.interruption_at_s is None}
    if not found:
        return fleet
    marked = tuple(replace(i, interruption_at_s=math.inf) if i.number in found else i for i in fleet.instances)
    return replace(fleet, instances=marked)


def none_answers(fleet: Fleet) -> bool:
    """Return whether there are ready instances and all of them are silent."""
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    return bool(ready) and all(i.silent_s is not None for i in ready)


def to_give_up(fleet: Fleet, now_s: float, before_s: Sequence[float], answered_since_s: float) -> tuple[Instance, ...]:
    """Return the instances to drain now.

    `before_s` has the times of earlier drains; since `answered_since_s` at least one instance answers.
    """
    if now_s - answered_since_s < SILENT_S:
        return ()
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    left = _most(ready) - sum(now_s - at_s < PAUSE_S for at_s in before_s)
    return unhealthy(fleet, now_s)[: max(0, left)]


def _most(ready: Sequence[Instance]) -> int:
    return max(1, math.floor(SHARE * len(ready)))
