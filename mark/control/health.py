"""Bouncers that do not answer though the cloud says that their instance runs: who is given up, and when.

Pure. Whoever boots for far too long is ended. Whoever is silent for long is replaced first, and leaves the balancer
only when somebody else answers: where nobody does, it is more likely our network, and what serves is left alone; also
for a while afterwards, as not all are heard again at once. Few are given up at a time, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mark.domain.fleet import Fleet, Instance, Phase

SILENT_S = 30.0  # six times asked for its metrics
SHARE = 0.1  # of those that serve (one at least) may be given up within PAUSE_S
PAUSE_S = 300.0
# Who is not ready by then never will be: its software could not be fetched, or its model does not load.
BOOT_S, BOOTS = 600.0, 4.0  # the longer one of the two; the second as so many times what a boot takes on average


def unhealthy(fleet: Fleet, now_s: float) -> tuple[Instance, ...]:
    """Who has been silent for too long: those that fell silent first, no more than may be given up."""
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    silent = [i for i in ready if i.silent_s is not None and now_s - i.silent_s >= SILENT_S]
    silent.sort(key=lambda i: (i.silent_s, i.number))
    return tuple(silent[: _most(ready)])


def overdue(fleet: Fleet, now_s: float) -> tuple[Instance, ...]:
    """Who boots, and should have been ready long ago."""
    return tuple(
        i
        for i in fleet.instances
        if i.phase is Phase.PENDING
        and i.ready_s is not None
        and now_s - i.launched_s >= max(BOOT_S, BOOTS * (i.ready_s - i.launched_s))
    )


def mark_unhealthy(fleet: Fleet, now_s: float) -> Fleet:
    """The fleet with its unhealthy, and who is overdue, as doomed at no known time: they serve on, if they do, and are
    replaced."""
    given_up = (*unhealthy(fleet, now_s), *overdue(fleet, now_s))
    found = {i.number for i in given_up if i.doomed_s is None}
    if not found:
        return fleet
    return Fleet(tuple(replace(i, doomed_s=math.inf) if i.number in found else i for i in fleet.instances))


def none_answers(fleet: Fleet) -> bool:
    """Is there somebody who should, and does nobody?"""
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    return bool(ready) and all(i.silent_s is not None for i in ready)


def to_give_up(fleet: Fleet, now_s: float, before_s: Sequence[float], answered_since_s: float) -> tuple[Instance, ...]:
    """Who leaves now; `before_s`: when others had to, `answered_since_s`: since when anybody answers."""
    if now_s - answered_since_s < SILENT_S:
        return ()
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    left = _most(ready) - sum(now_s - at_s < PAUSE_S for at_s in before_s)
    return unhealthy(fleet, now_s)[: max(0, left)]


def _most(ready: Sequence[Instance]) -> int:
    return max(1, math.floor(SHARE * len(ready)))
