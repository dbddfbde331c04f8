"""Whole instances as arrays: which types are kept, and the mixes that no cheaper mix beats."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.offer import Delay
from mark.planning.bounds.whole_problem import mixes, whole_problem
from tests.planning.bounds.test_lower_bound import offer, problem

AMOUNTS = st.floats(1.0, 9.0)


@settings(max_examples=30, derandomize=True)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=3), st.floats(0.5, 6.0))
def test_mixes_hold_the_cheapest_way_to_serve_any_number(types: list[tuple[float, float]], top: float) -> None:
    usd, requests = np.array(types).T
    found = mixes(usd, requests, top)
    assert np.all(np.diff(found.usd) >= 0.0)
    assert np.all(np.diff(found.requests) > 0.0)
    assert np.allclose(found.numbers @ usd, found.usd)
    ranges = [range(math.ceil(top / each) + 1) for each in requests]
    for wanted in (0.3 * top, top):
        least = min(
            float(np.dot(numbers, usd)) for numbers in itertools.product(*ranges) if np.dot(numbers, requests) >= wanted
        )
        place = np.searchsorted(found.requests, wanted * (1.0 - 1e-12))
        assert found.usd[place] <= least * (1.0 + 1e-9)


def test_many_mixes_are_merged_at_the_lowest_price() -> None:
    """Three thousand instances of a type: the merged mixes serve at least as much for at most as much."""
    found = mixes(np.array([1.0]), np.array([2.0]), 6000.0)
    assert len(found.usd) <= 1000
    assert np.all(found.usd <= np.ceil(found.requests / 2.0) + 1e-9)
    assert found.requests[-1] >= 6000.0
    assert (found.usd[0], found.requests[0]) == (0.0, 0.0)


def test_types_that_others_can_replace_are_dropped() -> None:
    """Two small instances replace a large one, and boot as fast; the last type boots faster."""
    quick = offer("quick.large", 1.5, boot=Delay(60.0, 90.0))
    made = problem(
        np.ones(100), (offer(), 10.0), (offer("b.xlarge", 2.0), 20.0), (offer("c.xlarge", 1.9), 20.0), (quick, 10.0)
    )
    whole = whole_problem(made)
    assert whole is not None
    assert {name.split("/")[0] for name in whole.names} == {"a.large", "c.xlarge", "quick.large"}
    assert whole.counts[-1] == 0.0
