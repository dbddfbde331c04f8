"""Routing: a total order, so that the choice never depends on the order of asking."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.routing import better, expected_s, forgotten_s, learned_s, outrun_s, overtakes

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


def test_slow_replica_gets_a_request_only_once_the_fast_one_has_as_much_work() -> None:
    assert expected_s(0.1, 2, -math.inf, 5.0) == pytest.approx(0.3)
    assert expected_s(0.3, 0, -math.inf, 5.0) == pytest.approx(0.3)


def test_replica_that_refused_is_put_back_for_the_rest_of_its_time() -> None:
    assert expected_s(0.1, 0, 5.04, 5.0) == pytest.approx(0.14)
    assert expected_s(0.1, 0, 4.99, 5.0) == 0.1


def test_response_time_follows_a_tenth_of_each_answer() -> None:
    assert learned_s(0.1, 0.3) == pytest.approx(0.12)
    response_s = 0.1
    for _ in range(50):
        response_s = learned_s(response_s, 0.3)
    assert response_s == pytest.approx(0.3, rel=0.01)


def test_unasked_replica_approaches_the_best_but_never_passes_it() -> None:
    assert forgotten_s(0.3, 0.1, 10.0) == pytest.approx(0.1 + 0.2 / math.e)
    assert forgotten_s(0.3, 0.1, 1000.0) == pytest.approx(0.1)
    assert forgotten_s(0.1, 0.2, 10.0) == 0.1
    assert forgotten_s(0.3, math.inf, 10.0) == 0.3  # no replica answered


def test_outrun_attempt_is_assumed_to_take_as_long_again() -> None:
    assert outrun_s(0.1, 0.2) == 0.4
    assert outrun_s(0.1, 0.06) == pytest.approx(0.12)
    assert outrun_s(0.1, 0.01) == 0.1  # it had no time to answer


def test_second_attempt_overtakes_only_if_it_is_expected_first() -> None:
    """The first attempt has taken 0.2 s and is assumed to take 0.4 s."""
    assert overtakes(0.19, 0.2, outrun_s(0.1, 0.2))
    assert not overtakes(0.2, 0.2, outrun_s(0.1, 0.2))
