"""Renting as `mark profile --on` does finds the best type of five families for at most half of the dollars."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "data_plane"))

import profile_on


@pytest.mark.parametrize("family", profile_on.FAMILIES, ids=lambda family: family.name)
def test_the_best_type_costs_half_of_measuring_all(family: profile_on.Family) -> None:
    offers = profile_on.offers_of(family)
    for seed in range(5):
        world, every = profile_on.World(family, offers, seed), profile_on.World(family, offers, seed)
        assert profile_on.search(family, offers, world).best == profile_on.truly_best(family, offers)
        profile_on.all_of_them(family, offers, every)
        assert world.spent_usd <= 0.5 * every.spent_usd
        assert every.rentals == len(family.types) > world.rentals


def test_the_five_families_have_different_winners_and_losers() -> None:
    """CPUs and a GPU win; a small type is too slow; another one cannot run the model."""
    best = {family.name: profile_on.truly_best(family, profile_on.offers_of(family)) for family in profile_on.FAMILIES}
    assert best == {
        "linear": "c8g.large",
        "saturating": "c8g.large",
        "GPU wins": "g6.xlarge",
        "GPU dominated": "c8g.large",
        "too small": "c8g.2xlarge",
    }
