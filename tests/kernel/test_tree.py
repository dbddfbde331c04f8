"""The tournament trees against a plain array."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.kernel.tree import ROOT, WIDTH, first_leaf, first_leaf_of, levels_for, places_for, set_leaf

VALUES = st.one_of(st.integers(0, 5).map(float), st.just(np.inf))


@settings(max_examples=200)
@given(
    leaves=st.integers(1, 600),
    at=st.integers(0, 3),
    changes=st.lists(st.tuples(st.integers(0, 599), VALUES), max_size=60),
    limit=st.integers(0, 5).map(float),
)
def test_a_tree_answers_as_a_plain_search_does(
    leaves: int, at: int, changes: list[tuple[int, float]], limit: float
) -> None:
    """After any changes the root is the lowest value, and the leftmost leaf up to a limit is found."""
    levels = levels_for(leaves)
    tree = np.full(at + places_for(levels) + 5, np.inf)
    tree[:at] = tree[at + places_for(levels) :] = -7.0  # a neighbour's
    plain = np.full(WIDTH**levels, np.inf)
    first, root = first_leaf_of(levels), at + ROOT
    for leaf, value in changes:
        set_leaf(tree, root, first + leaf % leaves, value)
        plain[leaf % leaves] = value
        assert tree[root] == plain.min()
    if plain.min() <= limit:
        assert first_leaf(tree, root, levels, limit) - first == int(np.argmax(plain <= limit))
    assert np.all(tree[:at] == -7.0)
    assert np.all(tree[at + places_for(levels) :] == -7.0)


def test_a_tree_is_as_large_as_needed() -> None:
    assert [levels_for(n) for n in (1, 8, 9, 64, 65, 512, 513)] == [1, 1, 2, 2, 3, 3, 4]
