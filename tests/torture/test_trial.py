"""Seeds: the same story again, nothing broken, and a failing one made shorter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.torture.faults import LEAST_H, Schedule, drawn
from mark.torture.trial import Tortured, shrunk, told, tried
from tests.torture.planted_bugs import BUGS

# A line each: seed and hours of what failed once, with a word on why.
FAILED_ONCE = [
    line.split()[:2]
    for line in (Path(__file__).parent / "failed_once.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def test_a_seed_replays_exactly() -> None:
    first, again = (tried(drawn(3, LEAST_H), BUGS["never terminates"]) for _ in range(2))
    assert first.broken is not None
    assert (first.broken, first.story, first.met) == (again.broken, again.story, again.met)


def test_without_faults_nothing_is_broken() -> None:
    trial = tried(Schedule(1, LEAST_H, 2, 1, ()))
    assert (trial.broken, trial.story) == (None, ())
    assert trial.fleet_days == pytest.approx(LEAST_H / 24.0)


def test_a_failing_seed_is_shrunk_and_told() -> None:
    parts = BUGS["ends what serves"]
    trial = tried(drawn(3, LEAST_H), parts)
    shortest = shrunk(trial, parts)
    assert shortest.broken is not None
    assert shortest.broken.invariant == "drained first"
    assert shortest.schedule.faults == (), "this bug takes no fault"
    story = told(shortest)
    assert "BROKEN: drained first" in story
    assert "seed 3, 2.5 h" in story


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "hours"), FAILED_ONCE)
def test_what_failed_once_holds(seed: str, hours: str) -> None:
    assert tried(drawn(int(seed), float(hours))).broken is None


@pytest.mark.slow
@pytest.mark.acceptance
def test_seeds_hold_and_a_third_of_cells_is_covered() -> None:
    found = Tortured([tried(drawn(seed, 5.0)) for seed in range(300, 330)])
    assert [told(trial) for trial in found.failed] == []
    met = [count for states in found.coverage().values() for count in states.values()]
    assert sum(count > 0 for count in met) > len(met) / 3.0


def test_a_fault_dropped_changes_no_draw_of_another() -> None:
    schedule = drawn(3, LEAST_H)
    assert tried(replace(schedule, faults=schedule.faults[:1])).broken is None
