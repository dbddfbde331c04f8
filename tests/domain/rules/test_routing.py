"""Routing: a total order, so that the choice never depends on the order of asking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.routing import better

Choice = tuple[float, bool, int]

choices = st.tuples(st.integers(0, 3).map(float), st.booleans(), st.integers(0, 3))


def test_completion_then_open_batch_then_lowest_id() -> None:
    """The three keys in their order."""
    assert better(1.0, False, 9, 2.0, True, 0)
    assert better(1.0, True, 9, 1.0, False, 0)
    assert better(1.0, True, 3, 1.0, True, 4)


@given(choices, choices, choices)
def test_a_strict_total_order(a: Choice, b: Choice, c: Choice) -> None:
    """Of two different choices exactly one is better, a choice never beats itself, and the order is transitive."""
    assert better(*a, *b) + better(*b, *a) == (a != b)
    if better(*a, *b) and better(*b, *c):
        assert better(*a, *c)
