from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.solver.dynamic_program import cheapest, fewest
from mark.planning.solver.program import held, price, violation
from tests.planning.solver.programs import drawn, least_usd, program

FEW = settings(max_examples=40)
seeds = st.integers(0, 10_000)


@FEW
@given(seed=seeds, offers=st.integers(1, 3), first=st.booleans())
def test_it_is_the_best_of_all_plans(seed: int, offers: int, first: bool) -> None:
    """This includes running instances, boots and launches."""
    of = drawn(seed, offers, steps=3 if offers < 3 else 2, first=first)
    usd, counts, rented = cheapest(of, np.arange(offers))
    assert usd == pytest.approx(least_usd(of), rel=1e-12)
    assert price(of, counts) == pytest.approx(usd, rel=1e-12)
    assert not violation(of, counts)
    assert not rented.any()


@FEW
@given(seed=seeds)
def test_it_is_the_best_plan_within_the_limits(seed: int) -> None:
    """The limits apply to serving instances here."""
    of = drawn(seed, limits=True)
    usd, counts, _ = cheapest(of, np.arange(2), limits=True)
    assert usd == pytest.approx(least_usd(of, boots_count=False), rel=1e-12)
    assert counts.sum(axis=0).max() <= of.max_instances


def test_what_boots_beside_the_limit_is_let_through() -> None:
    """One instance may be held: the large one cannot boot beside the small one that serves."""
    of = program(usd=(1.0, 1.0), rps=(1.0, 4.0), boot=1, running=(1, 0), most=1, max_instances=1, usd_per_rps=9.0)
    _, counts, _ = cheapest(of, np.arange(2), limits=True)
    assert counts.tolist() == [[1, 0, 0, 0], [0, 1, 1, 1]]
    assert held(of, counts).sum(axis=0).tolist() == [2, 1, 1, 1]


@FEW
@given(seed=seeds)
def test_other_capacity_is_rented_where_it_is_cheaper_than_overflow(seed: int) -> None:
    """The reference is every plan of one offer, each with the best level of rented capacity in each step."""
    of = drawn(seed, offers=1, steps=3, most=3)
    rent = np.random.default_rng(seed).uniform(0.0, 0.8, 3)
    usd, counts, rented = cheapest(of, np.arange(1), rent)
    # Rent per step: overflow at the best point at or above the capacity; corners of the line and the capacity itself.
    shifted = []
    for t in range(3):
        points = np.linspace(0.0, of.levels * of.spacing_rps, 10 * of.levels + 1)
        overflow = np.interp(points, np.arange(of.levels + 1) * of.spacing_rps, of.overflow_usd[t])
        shifted.append([min(overflow[i:] + rent[t] * (points[i:] - points[i])) for i in range(len(points))])
    other = replace(of, overflow_usd=np.array(shifted), spacing_rps=of.spacing_rps / 10)
    assert usd == pytest.approx(least_usd(other), rel=1e-6)
    assert price(of, counts, rented) + float(rent @ rented) == pytest.approx(usd, rel=1e-12)


def test_equal_plans_are_decided_for_fewer_of_the_first() -> None:
    of = program(usd=(1.0, 1.0), rps=(2.0, 2.0), load_rps=(2.0, 2.0), most=1)
    assert cheapest(of, np.arange(2))[1].tolist() == [[0, 0], [1, 1]]


def test_the_largest_offers_are_taken_first() -> None:
    """Combined counts: 3 x 4 for the second and the last, 3 x 4 x 6 with the third."""
    of = program(usd=(1.0,) * 4, rps=(1.0, 9.0, 3.0, 5.0), most=(50, 2, 5, 3))
    assert fewest(of, 11).tolist() == [1]
    assert fewest(of, 12).tolist() == [1, 3]
    assert fewest(of, 72).tolist() == [1, 2, 3]
    assert fewest(of, 2).tolist() == []
