"""The run of one seed, its outcome, and the shortest schedule that still fails."""

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

_TOLD = 60  # lines of the story that lead to the first violation
MOST_TRIES = 200  # most runs of the shrinker


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a schedule. `fleet_days`: simulated service days until the run ended."""

    schedule: Schedule
    broken: Broken | None
    story: tuple[str, ...]  # the last lines, if an invariant was violated
    met: Counter[tuple[str, str]]  # (fault, state) -> how often the fault acted in the state
    fleet_days: float


@dataclass(slots=True)
class Tortured:
    """The outcomes of several schedules."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.broken is not None]

    @property
    def fleet_days(self) -> float:
        return math.fsum(trial.fleet_days for trial in self.trials)

    def coverage(self) -> dict[str, dict[str, int]]:
        """Return fault -> state -> how often the fault acted in the state. Zero means that the pair was not tested."""
        met: Counter[tuple[str, str]] = Counter()
        for trial in self.trials:
            met.update(trial.met)
        return {kind: {state: met[kind, state] for state in STATES} for kind in KINDS}


def tried(schedule: Schedule, parts: ProcessParts | None = None) -> Trial:
    """Run a schedule. Equal arguments give equal trials, because every draw comes from the schedule's seed."""
    with _quiet(), _uncollected():
        # Run every round of a controller with a planted bug, because skipping rounds is only proven safe without bugs.
        world = World(schedule, parts, rests=parts is None)
        world.run()
    broken = world.watch.broken
    days = schedule.services * world.now_s / DAY_S
    return Trial(schedule, broken, tuple(world.story)[-_TOLD:] if broken else (), world.met, days)


def trial_of(schedule: Schedule, progress: Callable[[float], None] | None = None) -> Trial:
    """Run a schedule, with the signature that a study's executor needs; progress is not reported."""
    return tried(schedule)


def shrunk(trial: Trial, parts: ProcessParts | None = None, most: int = MOST_TRIES) -> Trial:
    """Return a trial with fewer and shorter faults and the same violation, or the trial itself."""
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
    """Return the story of a failed trial: its faults, its last events and the violation."""
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
    """Return the optional features of the services."""
    warm = f", a warm pool of {schedule.warm_pool}" if schedule.warm_pool else ""
    standbys = ", standbys" if schedule.standbys else ""
    policy = f", policy {schedule.policy}" if schedule.policy != STAND_IN else ""
    return f"{warm}{standbys}{', releases' if schedule.releases else ''}{policy}"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector: a world is small and freed as a whole after its trial."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable logging, because controllers log every decision and every fault."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
