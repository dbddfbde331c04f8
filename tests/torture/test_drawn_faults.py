"""The schedule of a seed: drawn the same again, and made smaller."""

from __future__ import annotations

import json

from mark_torture.coverage import IMPOSSIBLE, STATES
from mark_torture.drawn_faults import CALM_S, KINDS, QUIET_S, RELEASES, drawn, replayed, smaller


def test_a_seed_draws_the_same_schedule_again() -> None:
    assert drawn(3, 6.0) == drawn(3, 6.0) != drawn(4, 6.0)


def test_faults_leave_beginning_and_end_alone() -> None:
    for seed in range(50):
        schedule = drawn(seed, 6.0)
        assert all(QUIET_S <= f.start_s < f.end_s <= schedule.end_s - CALM_S + 1.0 for f in schedule.faults)
        assert all(f.target is None or f.target < schedule.controllers for f in schedule.faults)
        assert all((f.target is not None) == KINDS[f.kind].of_one for f in schedule.faults)


def test_every_kind_is_drawn() -> None:
    assert {f.kind for seed in range(100) for f in drawn(seed, 6.0).faults} == KINDS.keys()


def test_every_smaller_schedule_has_less_of_it() -> None:
    schedule = drawn(3, 6.0)

    def size(faults: object) -> tuple[int, float]:
        return len(faults), sum(f.end_s - f.start_s for f in faults)  # type: ignore[arg-type, attr-defined]

    found = list(smaller(schedule))
    assert len(found) > len(schedule.faults)
    assert all(size(less.faults) < size(schedule.faults) for less in found)
    assert all(less.seed == schedule.seed for less in found)


def test_a_schedule_is_read_as_it_was_written() -> None:
    schedule = drawn(3, 6.0)
    assert replayed(json.loads(json.dumps(schedule.as_json()))) == schedule


def test_releases_are_of_services_that_have_them() -> None:
    schedules = [drawn(seed, 6.0) for seed in range(50)]
    deployed = [any(f.kind in RELEASES for f in schedule.faults) for schedule in schedules]
    assert any(deployed)
    assert all(schedule.releases for schedule, is_so in zip(schedules, deployed, strict=True) if is_so)


def test_what_cannot_meet_is_a_fault_and_a_state() -> None:
    assert all(kind in KINDS and state in STATES for kind, state in IMPOSSIBLE)
