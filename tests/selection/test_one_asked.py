"""Policies that ask one candidate: their probabilities are those with which they ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.one_asked import Exp3, FixedSplit, Thompson, exponential_weights
from mark.selection.policy import Query, SelectionPolicy
from tests.selection.selections import query_of, replied

POLICIES = {
    "split": lambda seed: FixedSplit([0.7, 0.3, 0.0]),
    "exp3": lambda seed: Exp3(),
    "thompson": lambda seed: Thompson(np.random.default_rng(seed)),
}
MAKE = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
Make = Callable[[int], SelectionPolicy]


def three(**others: Any) -> Query:
    return query_of([5.0, 20.0, 21.0], counts=[100.0, 100.0, 30.0], **others)


@MAKE
@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("among", [{0, 1, 2}, {1, 2}, {2}])
def test_probabilities_are_those_of_the_draws(make: Make, explore: float, among: set[int]) -> None:
    policy, generator = make(1), np.random.default_rng(2)
    asked: Counter[int] = Counter()
    mean = np.zeros(3)
    runs = 4_000
    for _ in range(runs):
        query = three(draw=generator.random, explore=explore, open=set(among))
        ((candidate, propensity),) = policy.ask(query)
        assert propensity == query.shares[candidate] > 0.0
        assert sum(query.shares) == pytest.approx(1.0)
        assert {one for one, share in enumerate(query.shares) if share} <= among
        asked[candidate] += 1
        mean += np.array(query.shares) / runs
    # Four standard errors.
    assert [asked[one] / runs for one in range(3)] == pytest.approx(mean.tolist(), abs=4 * 0.5 / runs**0.5)
    if explore:
        assert min(mean[one] for one in among) >= explore / len(among) - 1e-9


@MAKE
def test_one_candidate_is_asked_and_its_reply_is_the_answer(make: Make) -> None:
    policy, query = make(1), three()
    ((candidate, propensity),) = policy.ask(query)
    query.open.discard(candidate)
    query.asked[candidate] = propensity
    assert policy.ask(query) == ()  # it waits
    replied(query, {candidate: "x"})
    assert policy.ask(query) == ()
    assert policy.settled(query)
    choice = policy.combine(query)
    assert (choice.label, choice.candidate, choice.agreement) == ("x", candidate, None)


@MAKE
def test_another_candidate_takes_the_place_of_one_that_failed(make: Make) -> None:
    policy, query = make(1), three(open={0, 2})
    assert policy.ask(query)[0][0] in {0, 2}
    query.open.clear()
    assert policy.ask(query) == ()


def test_split_without_any_weight_left_asks_all_alike() -> None:
    query = query_of([0.0] * 3, open={1, 2})
    assert FixedSplit([1.0, 0.0, 0.0]).ask(query)[0][1] == 0.5


def test_exp3_asks_at_least_its_mixed_share() -> None:
    query = query_of([0.0, 1e6, 1e9])
    Exp3().ask(query)
    assert min(query.shares) == pytest.approx(0.05 / 3)


def test_thompson_asks_a_candidate_without_losses_nearly_always() -> None:
    policy, query = Thompson(np.random.default_rng(1)), query_of([0.0, 900.0], counts=[1000.0, 1000.0])
    assert list(policy.ask(query)) == [(0, 1.0)]


def test_thompson_takes_sums_that_rounding_has_made_impossible() -> None:
    query = query_of([1.0 + 1e-12, 0.0], counts=[1.0, 0.0])
    assert Thompson(np.random.default_rng(1)).ask(query)


def test_equal_seeds_ask_alike() -> None:
    found = [[Thompson(np.random.default_rng(5)).ask(three())[0] for _ in range(3)] for _ in range(2)]
    assert found[0] == found[1]


@given(st.lists(st.floats(0.0, 1e12), min_size=1, max_size=9), st.floats(1e-3, 10.0))
def test_exponential_weights_add_up_to_one_and_fall_with_losses(losses: list[float], rate: float) -> None:
    weights = exponential_weights(losses, rate)
    assert sum(weights) == pytest.approx(1.0)
    ranked = [weight for _, weight in sorted(zip(losses, weights, strict=True))]
    assert ranked == sorted(ranked, reverse=True)
