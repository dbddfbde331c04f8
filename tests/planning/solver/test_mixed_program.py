"""Small mixed programs are solved as by trying everything, and their bound lies below."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.solver.mixed_program import Constraint, solve_mixed

NUMBERS = st.integers(1, 9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=3),
    st.tuples(st.integers(1, 25), st.integers(1, 25)),
)
def test_whole_numbers_are_the_cheapest_of_all(kinds: list[tuple[int, int, int]], needed: tuple[int, int]) -> None:
    cost, first, second = (np.array(column, dtype=float) for column in zip(*kinds, strict=True))
    places = range(len(kinds))
    rows = [Constraint(places, first.tolist(), needed[0]), Constraint(places, second.tolist(), needed[1])]
    found = solve_mixed(cost, np.ones(len(kinds), dtype=bool), np.full(len(kinds), 25.0), rows)
    counts = np.array(list(itertools.product(range(26), repeat=len(kinds))))
    enough = (counts @ first >= needed[0]) & (counts @ second >= needed[1])
    least = float((counts[enough] @ cost).min())
    assert found.optimal
    assert found.values is not None
    assert float(np.round(found.values) @ cost) == pytest.approx(least, rel=1e-4)
    assert found.bound <= least + 1e-6
    assert found.bound >= least * (1.0 - 2e-4)


def test_only_whole_columns_are_whole() -> None:
    row = Constraint([0, 1], [1.0, 1.0], 2.5, 2.5)
    found = solve_mixed(np.array([2.0, 3.0]), np.array([True, False]), np.array([9.0, 9.0]), [row])
    assert found.values is not None
    assert found.values.tolist() == pytest.approx([2.0, 0.5])


def test_a_constraint_limits_from_above() -> None:
    """A column that earns is as large as the row lets it be, not as its own limit."""
    row = Constraint([0, 1], [2.0, 1.0], 0.0, 7.0)
    found = solve_mixed(np.array([-3.0, 0.0]), np.array([True, True]), np.array([9.0, 9.0]), [row])
    assert found.values is not None
    assert found.values[0] == pytest.approx(3.0)


def test_program_without_a_solution_has_none() -> None:
    found = solve_mixed(np.array([1.0]), np.array([True]), np.array([2.0]), [Constraint([0], [1.0], 3.0, math.inf)])
    assert (found.values, found.optimal) == (None, False)
