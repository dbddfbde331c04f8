"""The port of policies, and their shared parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.policy import CandidateReply, answer_of, draw_one
from tests.selection.selections import FixedTables, numbers, query_of, replied

NEARLY_ONE = 1.0 - 2.0**-53


@pytest.mark.parametrize(("drawn", "asked"), [(0.0, 0), (0.19, 0), (0.21, 1), (0.69, 1), (0.71, 3), (NEARLY_ONE, 3)])
def test_draw_by_weight(drawn: float, asked: int) -> None:
    query = query_of([0.0] * 4, draw=numbers(drawn))
    candidate, propensity = draw_one(query, [0.2, 0.5, 0.0, 0.3])
    assert candidate == asked
    assert propensity == pytest.approx([0.2, 0.5, 0.0, 0.3][asked])


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=6), st.floats(0.0, 1.0), st.floats(0.0, NEARLY_ONE))
def test_drawn_candidate_has_a_probability(weights: list[float], explore: float, drawn: float) -> None:
    query = query_of([0.0] * len(weights), draw=numbers(drawn), explore=explore)
    candidate, propensity = draw_one(query, weights)
    assert 0.0 < propensity <= 1.0
    assert query.shares[candidate] == propensity
    assert sum(query.shares) == pytest.approx(1.0)


def test_rounding_never_draws_a_candidate_without_weight() -> None:
    query = query_of([0.0] * 4, draw=numbers(NEARLY_ONE))
    assert draw_one(query, [0.1, 0.2, 0.1 + 0.2, 0.0])[0] == 2


def test_answer_has_the_probability_that_its_score_says() -> None:
    tables = FixedTables({(1, 1): 0.8})
    query = replied(query_of([0.0, 0.0], tables=tables), {1: CandidateReply({"y": 3}, 3, 0.5), 0: 2})
    assert answer_of(query, 1) == ({"y": 3}, 3, 1, 0.8, None)
    assert answer_of(query, 0, 0.6) == (2, 2, 0, None, 0.6)


def test_query_waits_until_all_that_were_asked_have_replied() -> None:
    query = replied(query_of([0.0, 0.0]), {0: 1})
    assert not query.waits
    query.asked[1] = 1.0
    assert query.waits
