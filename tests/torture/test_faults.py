"""The schedule of a seed: drawn the same again, and made smaller."""

from __future__ import annotations

from mark.torture.faults import CALM_S, KINDS, QUIET_S, drawn, smaller


def test_a_seed_draws_the_same_schedule_again() -> None:
    assert drawn(3, 6.0) == drawn(3, 6.0) != drawn(4, 6.0)


def test_faults_leave_beginning_and_end_alone() -> None:
    for seed in range(50):
        schedule = drawn(seed, 6.0)
        assert all(QUIET_S <= f.start_s < f.end_s <= schedule.end_s - CALM_S + 1.0 for f in schedule.faults)
        assert all(f.target is None or f.target < schedule.controllers for f in schedule.faults)
        assert all((f.target is not None) == KINDS[f.kind].of_one for f in schedule.faults)


def test_every_kind_is_drawn() -> None:
    assert {f.kind for seed in range(60) for f in drawn(seed, 6.0).faults} == KINDS.keys()


def test_every_smaller_schedule_has_less_of_it() -> None:
    schedule = drawn(3, 6.0)

    def size(faults: object) -> tuple[int, float]:
        return len(faults), sum(f.end_s - f.start_s for f in faults)  # type: ignore[arg-type, attr-defined]

    found = list(smaller(schedule))
    assert len(found) > len(schedule.faults)
    assert all(size(less.faults) < size(schedule.faults) for less in found)
    assert all(less.seed == schedule.seed for less in found)
