"""Seeds: the same story again, nothing broken, and a failing one made shorter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mark_torture.coverage import IMPOSSIBLE
from mark_torture.drawn_faults import CLOCKS, LEAST_H, Schedule, drawn, replayed
from mark_torture.trial import Tortured, shrunk, told, tried
from mark_torture.world import World

from tests.samples import first
from tests.torture.planted_bugs import BUGS

# A line for each failure of the past: its schedule, which does not depend on the seeds' draws, and its reason.
FAILED_ONCE = [json.loads(line) for line in (Path(__file__).parent / "failed_once.jsonl").read_text().splitlines()]
# A round in which nothing else happens is left out, although these are asked for.
_ASKED = CLOCKS | {"telemetry gap", "telemetry zeros", "telemetry NaN"}


def test_a_seed_replays_exactly() -> None:
    first, again = (tried(drawn(3, LEAST_H), BUGS["ends what serves"][0]) for _ in range(2))
    assert first.broken is not None
    assert (first.broken, first.story, first.met) == (again.broken, again.story, again.met)


def test_without_faults_nothing_is_broken() -> None:
    trial = tried(Schedule(1, LEAST_H, 2, 1, ()))
    assert (trial.broken, trial.story) == (None, ())
    assert trial.fleet_days == pytest.approx(LEAST_H / 24.0)


def test_a_failing_seed_is_shrunk_and_told() -> None:
    parts, _ = BUGS["ends what serves"]
    trial = tried(drawn(3, LEAST_H), parts)
    shortest = shrunk(trial, parts)
    assert shortest.broken is not None
    assert shortest.broken.invariant == "drained first"
    assert shortest.schedule.faults == (), "this bug takes no fault"
    story = told(shortest)
    assert "BROKEN: drained first" in story
    assert "seed 3, 2.5 h" in story


@pytest.mark.parametrize(("seed", "hours"), first(0, [(3017, 6.0), *((seed, 3.0) for seed in range(40, 45))], slow=1))
def test_rounds_left_out_change_nothing(seed: int, hours: float) -> None:
    """The rounds that `RestingRuntime` skips would have done nothing."""
    every, few = (World(drawn(seed, hours), rests=rests) for rests in (False, True))
    for world in (every, few):
        world.run()
    assert list(few.story) == list(every.story)
    assert few.watch.broken == every.watch.broken
    assert few.met.keys() == every.met.keys()
    met = [{pair: n for pair, n in world.met.items() if pair[0] not in _ASKED} for world in (few, every)]
    assert met[0] == met[1], "but how often a clock is asked, or a load that is not to be seen"
    for name, truth in every.services.items():
        other = few.services[name]
        assert other.store.journal == truth.store.journal
        assert (other.cloud.ended, other.cloud.usd()) == (truth.cloud.ended, truth.cloud.usd())


@pytest.mark.parametrize("once", first(0, reversed(FAILED_ONCE), slow=8), ids=lambda once: once["why"])
def test_what_failed_once_holds(once: dict[str, object]) -> None:
    assert tried(replayed(once["schedule"])).broken is None  # type: ignore[arg-type]


@pytest.mark.acceptance
def test_seeds_hold_and_pairs_are_covered() -> None:
    found = Tortured([tried(drawn(seed, 5.0)) for seed in range(300, 340)])
    assert [told(trial) for trial in found.failed] == []
    coverage = found.coverage()
    pairs = [(kind, state) for kind, states in coverage.items() for state in states if (kind, state) not in IMPOSSIBLE]
    assert sum(coverage[kind][state] > 0 for kind, state in pairs) > 0.8 * len(pairs)


@pytest.mark.acceptance
def test_the_real_policy_holds() -> None:
    found = Tortured([tried(drawn(seed, 3.0, policy="mark")) for seed in range(3)])
    assert [told(trial) for trial in found.failed] == []


def test_a_fault_dropped_changes_no_draw_of_another() -> None:
    schedule = drawn(3, LEAST_H)
    assert tried(replace(schedule, faults=schedule.faults[:1])).broken is None
