"""Offers that are equivalent to another one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.offer import Offer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.service import ResolvedService
from mark.planning.market.near_equal import DEARER, MOST, near_equal
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, offer, resolved


def of(*pairs: tuple[Offer, float]) -> ResolvedService:
    """Return each offer with its capacity in requests/s."""
    candidates = [
        Candidate(
            Profile("m", "any", (ProfileRow(1, 1e3 / rps),)), BatchPolicy(1, 0.0), np.array([0.0, 1 / rps]), rps, rps
        )
        for _, rps in pairs
    ]
    return replace(resolved(), offers=tuple(one for one, _ in pairs), candidates=tuple(candidates))


def test_one_zone_stands_in_for_another() -> None:
    found = near_equal(resolved(ON_DEMAND, SPOT_A, SPOT_B))
    assert found == {ON_DEMAND.name: (), SPOT_A.name: (SPOT_B.name,), SPOT_B.name: (SPOT_A.name,)}


@pytest.mark.parametrize(
    ("usd_per_hour", "rps", "does"),
    [
        (0.085 * (1.0 + DEARER), 10.0, True),
        (0.085 * (1.0 + DEARER) + 1e-6, 10.0, False),
        (0.05, 9.99, False),  # it holds less
        (0.05, 40.0, True),
    ],
)
def test_it_holds_as_much_for_little_more(usd_per_hour: float, rps: float, does: bool) -> None:
    other = offer("m5.large", usd_per_hour=usd_per_hour)
    found = near_equal(of((ON_DEMAND, 10.0), (other, rps)))[ON_DEMAND.name]
    assert found == ((other.name,) if does else ())


def test_credits_are_no_capacity() -> None:
    """A burstable of another type has other credits; in another zone it is the same."""
    elsewhere, other = replace(BURSTABLE, zone="b"), replace(BURSTABLE, instance="t3.medium")
    assert near_equal(resolved(BURSTABLE, elsewhere, other))[BURSTABLE.name] == (elsewhere.name,)


def test_the_cheapest_for_their_load_come_first() -> None:
    pairs = [(offer(f"x{n}.large", usd_per_hour=0.085 - 0.001 * (n % 7)), 10.0 + n % 3) for n in range(2 * MOST)]
    found = near_equal(of((ON_DEMAND, 10.0), *((one, rps) for one, rps in pairs)))[ON_DEMAND.name]
    ratios = {one.name: one.usd_per_hour / rps for one, rps in pairs}
    assert list(found) == sorted(ratios, key=lambda name: (ratios[name], name))[:MOST]
