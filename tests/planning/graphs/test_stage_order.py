"""The combined edges of several queries."""

from __future__ import annotations

import pytest

from mark.domain.errors import BadInput
from mark.planning.graphs.stage_order import ancestors, check_order, reduced

CHAIN = {("a", "b"), ("b", "c"), ("a", "c")}


def test_what_follows_from_other_edges_is_left_out() -> None:
    assert reduced(CHAIN, [frozenset("abc")]) == {("a", "b"), ("b", "c")}


def test_what_follows_only_where_a_stage_is_visited_stays() -> None:
    assert reduced(CHAIN, [frozenset("abc"), frozenset("ac")]) == CHAIN
    assert reduced(CHAIN, [frozenset("bc")]) == {("b", "c")}
    assert reduced(CHAIN, []) == set()


def test_ancestors_are_direct_and_through_others() -> None:
    assert ancestors({("a", "b"), ("b", "c"), ("x", "c")}) == {
        "a": set(),
        "x": set(),
        "b": {"a"},
        "c": {"a", "b", "x"},
    }


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ({("a", "b"): 1, ("b", "a"): 7}, "q: no order .*: b waits for a in line 1, and a waits for b in line 7"),
        ({("a", "b"): 4, ("b", "a"): 4}, "q:4: a is called before b and again behind it"),
        ({("a", "b"): 1, ("b", "c"): 2, ("c", "a"): 3}, "q: no order .*c waits for b in line 2"),
    ],
)
def test_no_order_suits_all(edges: dict[tuple[str, str], int], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_order(edges, "q")


def test_an_order_that_suits_all() -> None:
    check_order(dict.fromkeys(CHAIN, 1), "q")
