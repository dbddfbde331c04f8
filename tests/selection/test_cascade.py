"""Cascades: candidates in their order, the next one only while it is worth its price."""

from __future__ import annotations

import pytest

from mark.selection.cascade import Cascade
from mark.selection.policy import CandidateReply, Query
from tests.selection.selections import FixedTables, query_of, replied


def asked(cascade: Cascade, query: Query) -> list[int]:
    return [one for one, _ in cascade.ask(query)]


def scored(query: Query, scores: dict[int, float | None]) -> Query:
    return replied(query, {one: CandidateReply(one, one, score) for one, score in scores.items()})


@pytest.mark.parametrize("given", [{}, {"threshold": 0.5, "correct_usd": 1.0}])
def test_cascade_needs_exactly_one_of_threshold_and_value(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a threshold or a value"):
        Cascade(**given)


def test_first_open_candidate_is_asked_first() -> None:
    cascade = Cascade(threshold=0.5)
    assert asked(cascade, query_of([0.0] * 3)) == [0]
    assert asked(cascade, query_of([0.0] * 3, open={1, 2})) == [1]


def test_cascade_waits_for_a_reply() -> None:
    query = query_of([0.0] * 3, open={1, 2}, asked={0: 1.0})
    assert asked(Cascade(threshold=0.5), query) == []


@pytest.mark.parametrize(("score", "next_one"), [(0.49, [1]), (0.5, []), (0.9, []), (-3.0, [1]), (None, [1])])
def test_next_candidate_is_asked_below_the_threshold(score: float | None, next_one: list[int]) -> None:
    assert asked(Cascade(threshold=0.5), scored(query_of([0.0] * 3), {0: score})) == next_one


def test_no_earlier_candidate_is_asked_after_a_later_one() -> None:
    query = scored(query_of([0.0] * 3), {1: 0.1})  # 0 failed before, and is open no more
    query.open.add(0)
    assert asked(Cascade(threshold=0.5), query) == [2]


def test_last_candidate_has_no_next_one() -> None:
    assert asked(Cascade(threshold=0.5), scored(query_of([0.0] * 2), {0: 0.1, 1: 0.1})) == []


def test_last_reply_is_the_answer() -> None:
    assert Cascade(threshold=0.5).combine(scored(query_of([0.0] * 3), {0: 0.1, 2: 0.9})).candidate == 2


KNOWN = {(0, 0): 0.6, (0, 1): 0.8, (0, 2): 0.9}


@pytest.mark.parametrize(
    ("correct_usd", "usd", "next_one"),
    [
        (1.0, [0.0, 0.1, 0.5], [1]),
        (1.0, [0.0, 0.21, 0.5], []),
        (1.0, [0.0, 0.1, 0.15], [2]),  # the later one is worth more
        (1e-9, [0.0, 0.0, 0.0], [2]),
        (10.0, [0.0, 1.9, 2.8], [2]),
    ],
)
def test_candidate_with_the_largest_gain_is_asked(correct_usd: float, usd: list[float], next_one: list[int]) -> None:
    query = scored(query_of([0.0] * 3, tables=FixedTables(KNOWN), usd=usd), {0: 0.5})
    assert asked(Cascade(correct_usd=correct_usd), query) == next_one


def test_candidate_that_is_no_better_is_not_asked_even_for_nothing() -> None:
    query = scored(query_of([0.0] * 2, tables=FixedTables({(0, 0): 0.6, (0, 1): 0.6})), {0: 0.5})
    assert asked(Cascade(correct_usd=1.0), query) == []


@pytest.mark.parametrize(("known", "next_one"), [({}, [1]), ({(0, 0): 0.9}, [1]), ({(0, 0): 0.9, (0, 1): 0.8}, [2])])
def test_candidate_of_which_too_little_is_known_is_asked(
    known: dict[tuple[int, int], float], next_one: list[int]
) -> None:
    query = scored(query_of([0.0] * 3, tables=FixedTables(known), usd=[9.0] * 3), {0: 0.5})
    assert asked(Cascade(correct_usd=1.0), query) == next_one


def test_reply_without_a_score_asks_the_next_one() -> None:
    query = scored(query_of([0.0] * 3, tables=FixedTables(KNOWN), usd=[9.0] * 3), {0: None})
    assert asked(Cascade(correct_usd=1.0), query) == [1]


def test_explored_query_asks_all_in_turn_with_the_probability_of_exploring() -> None:
    cascade = Cascade(threshold=0.5)
    query = scored(query_of([0.0] * 3, explores=True, explore=0.02), {0: 0.9})
    assert list(cascade.ask(query)) == [(1, 0.02)]
    assert list(cascade.ask(scored(query, {1: 0.9}))) == [(2, 0.02)]
    assert list(cascade.ask(scored(query, {2: 0.9}))) == []


def test_query_below_the_threshold_asks_with_certainty_though_it_explores() -> None:
    query = scored(query_of([0.0] * 2, explores=True, explore=0.02), {0: 0.1})
    assert list(Cascade(threshold=0.5).ask(query)) == [(1, 1.0)]


def test_cascade_is_never_settled_early() -> None:
    query = query_of([0.0] * 2, open={1}, asked={0: 1.0})
    assert not Cascade(threshold=0.5).settled(query)
