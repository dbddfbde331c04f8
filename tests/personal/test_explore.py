"""Exploring: each policy's order, and propensities that are the measured shares."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.personal.explore import CandidateScores, best, ranked
from mark.personal.settings import Exploration

# The first looks best, the second has an unsure head, the third an unsure mean.
SCORES = CandidateScores(np.array([3.0, 2.5, 2.4]), np.array([0.01, 1.0, 0.01]), np.array([0.01, 0.01, 4.0]))


def _first(explore: Exploration, seed: int = 0) -> int:
    return int(ranked(explore, SCORES, 1, np.random.default_rng(seed)).numbers[0])


@pytest.mark.parametrize(
    ("explore", "first"),
    [(Exploration("greedy"), 0), (Exploration("linucb", 1.0), 1), (Exploration("item", 1.0), 2)],
)
def test_policy_adds_the_uncertainty_that_it_knows(explore: Exploration, first: int) -> None:
    found = ranked(explore, SCORES, 3, np.random.default_rng(0))

    assert found.numbers[0] == first
    assert sorted(found.numbers) == [0, 1, 2]
    assert found.propensities.tolist() == [1.0, 1.0, 1.0]


def test_answer_without_a_generator_is_greedy() -> None:
    found = ranked(Exploration("item", 5.0, 1.0), SCORES, 2, None)

    assert (found.numbers.tolist(), found.propensities.tolist()) == ([0, 1], [1.0, 1.0])


@pytest.mark.parametrize("policy", ["greedy", "thompson"])
def test_propensities_are_the_shares_of_first_places(policy: str) -> None:
    """Mean of 1/p over the times that an item is shown, weighted: each item's estimate of 1 is unbiased."""
    draw, explore = np.random.default_rng(3), Exploration(policy, 1.0, 0.2)
    counted, weighed = Counter[int](), np.zeros(3)
    for _ in range(4000):
        found = ranked(explore, SCORES, 1, draw)
        counted[int(found.numbers[0])] += 1
        weighed[found.numbers[0]] += 1.0 / found.propensities[0] / 4000

    assert weighed == pytest.approx(np.ones(3), abs=0.15)
    assert min(counted.values()) >= 200, "a fifth of the places is drawn uniformly"


def test_thompson_shows_the_unsure_item_more_often_than_a_sure_worse_one() -> None:
    counted = Counter(_first(Exploration("thompson", 1.0), seed) for seed in range(500))

    assert counted[0] > counted[1] > 20 * max(1, counted[2])


def test_uniform_places_come_from_the_whole_pool() -> None:
    draw, shown = np.random.default_rng(1), Counter[int]()
    pool = np.arange(10)
    for _ in range(600):
        found = ranked(Exploration(share=1.0), SCORES, 2, draw, np.array([4, 7, 9]), pool)
        assert found.propensities == pytest.approx([1 / 10, 1 / 9])
        assert len(set(found.numbers)) == 2
        shown.update(found.numbers.tolist())

    assert len(shown) == 10
    assert min(shown.values()) > 60


def test_equal_seeds_draw_equal_answers() -> None:
    explore = Exploration("thompson", 1.0, 0.3)
    answers = [ranked(explore, SCORES, 3, np.random.default_rng(9)) for _ in range(2)]

    assert answers[0].numbers.tolist() == answers[1].numbers.tolist()
    assert answers[0].propensities.tolist() == answers[1].propensities.tolist()


@given(
    scores=st.lists(st.integers(-5, 5), min_size=1, max_size=40).map(lambda one: np.array(one, dtype=float)),
    k=st.integers(1, 50),
)
def test_best_are_those_of_a_whole_sort(scores: FloatArray, k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]

    assert best(scores, k).tolist() == expected


@pytest.mark.parametrize("count", [5_121, 40_000])
def test_best_of_many_are_those_of_a_whole_sort(count: int) -> None:
    scores = np.random.default_rng(count).integers(0, 500, count).astype(np.float32)
    scores[::3] = -np.inf
    expected = np.lexsort((np.arange(count), -scores))[:10]

    assert best(scores, 10).tolist() == expected.tolist()
