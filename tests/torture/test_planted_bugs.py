"""Every planted bug is found, by an invariant that is about it, within a few fleet-days."""

from __future__ import annotations

import pytest
from mark_torture.drawn_faults import drawn
from mark_torture.invariants import INVARIANTS
from mark_torture.trial import tried

from tests.torture.planted_bugs import BUGS

MOST_FLEET_DAYS = 25.0  # bad releases that stand beside good ones for long enough are rare
HOURS = 4.0


def test_every_bug_names_invariants_that_there_are() -> None:
    assert all(about and about <= INVARIANTS.keys() for _, about in BUGS.values())


@pytest.mark.acceptance
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    fleet_days, seed = 0.0, 1000
    parts, about = BUGS[name]
    while fleet_days < MOST_FLEET_DAYS:
        trial = tried(drawn(seed, HOURS), parts)
        if trial.broken is not None:
            assert trial.broken.invariant in about
            return
        fleet_days, seed = fleet_days + trial.fleet_days, seed + 1
    pytest.fail(f"not found within {fleet_days:.1f} fleet-days")
