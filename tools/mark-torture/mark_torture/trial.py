"""A run of one seed, what came of it, and the shortest schedule that still fails."""

from __future__ import annotations

import gc
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mark.domain.time import DAY_S
from mark_torture.coverage import STATES
from mark_torture.drawn_faults import KINDS, STAND_IN, Schedule, smaller
from mark_torture.invariants import INVARIANTS, Broken
from mark_torture.process import ProcessParts
from mark_torture.world import World

_TOLD = 60  # lines of a story before the first broken invariant
MOST_TRIES = 200  # of the shrinker


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a schedule. `fleet_days` as far as it was run: a service for a day is one."""

    schedule: Schedule
    broken: Broken | None
    story: tuple[str, ...]  # the last lines, where an invariant is broken
    met: Counter[tuple[str, str]]  # (fault, state) -> how often one met the other
    fleet_days: float


@dataclass(slots=True)
class Tortured:
    """What came of several."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.broken is not None]

    @property
    def fleet_days(self) -> float:
        return math.fsum(trial.fleet_days for trial in self.trials)

    def coverage(self) -> dict[str, dict[str, int]]:
        """Fault -> state -> how often one met the other. A cell without any was not tested."""
        met: Counter[tuple[str, str]] = Counter()
        for trial in self.trials:
            met.update(trial.met)
        return {kind: {state: met[kind, state] for state in STATES} for kind in KINDS}


def tried(schedule: Schedule, parts: ProcessParts | None = None) -> Trial:
    """Run it. Equal arguments, equal trials: nothing is drawn but from the schedule's seed."""
    with _quiet(), _uncollected():
        # What is right to leave out of a controller as it is may not be of one with a planted bug.
        world = World(schedule, parts, rests=parts is None)
        world.run()
    broken = world.watch.broken
    days = schedule.services * world.now_s / DAY_S
    return Trial(schedule, broken, tuple(world.story)[-_TOLD:] if broken else (), world.met, days)


def trial_of(schedule: Schedule, progress: Callable[[float], None] | None = None) -> Trial:
    """`tried`, as a study's executor asks for it; its progress is not told."""
    return tried(schedule)


def shrunk(trial: Trial, parts: ProcessParts | None = None, most: int = MOST_TRIES) -> Trial:
    """A trial with fewer and shorter faults in which the same invariant is broken; the same one where none is found."""
    assert trial.broken is not None
    left, found = most, trial
    again = True
    while again and left > 0:
        again = False
        for less in smaller(found.schedule):
            if left == 0:
                break
            left -= 1
            other = tried(less, parts)
            if other.broken is not None and other.broken.invariant == trial.broken.invariant:
                found, again = other, True
                break
    return found


def told(trial: Trial) -> str:
    """The story of a trial that failed: what was to happen, what happened, and what did not hold."""
    schedule, broken = trial.schedule, trial.broken
    assert broken is not None
    lines = [
        f"seed {schedule.seed}, {schedule.hours:g} h: {schedule.controllers} controllers, {schedule.services} services"
        f"{_besides(schedule)}",
        "faults:",
        *(f"  {fault}" for fault in schedule.faults),
        "the last events:",
        *(f"  {line}" for line in trial.story),
        f"{broken.invariant}: {INVARIANTS[broken.invariant]}",
        f"  {broken.text}",
    ]
    return "\n".join(lines)


def _besides(schedule: Schedule) -> str:
    """What else the services have."""
    warm = f", a warm pool of {schedule.warm_pool}" if schedule.warm_pool else ""
    standbys = ", standbys" if schedule.standbys else ""
    policy = f", policy {schedule.policy}" if schedule.policy != STAND_IN else ""
    return f"{warm}{standbys}{', releases' if schedule.releases else ''}{policy}"


@contextmanager
def _uncollected() -> Iterator[None]:
    """A world is small, and goes as a whole when its trial is over: to look for garbage in between is wasted."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """Controllers log every decision and trouble, of which there are many."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
