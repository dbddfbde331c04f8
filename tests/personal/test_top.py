"""The search by bounds finds the best, and computes few exact scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.arrays import IntArray
from mark.domain.errors import BadInput
from mark.domain.extras import check_installed
from mark.personal.explore import best
from mark.personal.top import UsearchItems, asked_of_index, best_by_bound


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3000), k=st.integers(1, 300))
def test_search_by_bounds_finds_the_best(seed: int, count: int, k: int) -> None:
    draw = np.random.default_rng(seed)
    exact = draw.normal(size=count)
    bounds = exact + draw.exponential(0.3, count)
    found, scores = best_by_bound(bounds, lambda numbers: exact[numbers], min(k, count))

    assert found.tolist() == best(exact, k).tolist()
    assert scores.tolist() == exact[found].tolist()


def test_search_by_bounds_leaves_out_what_cannot_be_best() -> None:
    exact, asked = np.arange(100_000.0), []

    def scored(numbers: IntArray) -> np.ndarray:
        asked.append(len(numbers))
        return exact[numbers]

    found, _ = best_by_bound(exact + 100.0, scored, 10)

    assert found.tolist() == list(range(99_999, 99_989, -1))
    assert asked == [64, 128]  # the tenth score is as high as the bound of the 110th item


def test_search_by_bounds_ends_after_the_most_scores() -> None:
    asked: list[int] = []

    def scored(numbers: IntArray) -> np.ndarray:
        asked.extend(numbers.tolist())
        return -numbers.astype(float)

    found, _ = best_by_bound(np.full(100_000, 1.0), scored, 10, 512)

    assert (found.tolist(), len(asked)) == (list(range(10)), 512)


def test_index_finds_the_greatest_inner_products() -> None:
    pytest.importorskip("usearch", reason="the extra `ann` is not installed")
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(2000, 8)).astype(np.float32)
    query = draw.normal(size=8)
    found = UsearchItems(vectors).near(query, asked_of_index(10))

    assert len(set(found.tolist()) & set(best(vectors @ query, 10).tolist())) >= 9


def test_index_without_its_library_names_the_extra() -> None:
    try:
        check_installed("usearch", "here")
    except BadInput:
        with pytest.raises(BadInput, match=r"needs usearch \(pip install 'mark-serving\[ann\]'\)"):
            UsearchItems(np.ones((1, 2), dtype=np.float32))
