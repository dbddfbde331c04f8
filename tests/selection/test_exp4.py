"""Exp4: votes and means with weights that fall exponentially with the losses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.exp4 import Exp4, full_losses
from mark.selection.policy import CandidateReply, Choice, Query
from tests.selection.selections import query_of, replied, sums_of

LABEL = st.sampled_from([0, 1, 2])
# Losses where equal weights, and votes that are equal up to rounding, are likely.
LOSSES = st.lists(
    st.sampled_from([0.0, 1.0, 2.0, 2.310490601866484, 40.0]) | st.floats(0.0, 9.0), min_size=2, max_size=5
)


def combined(query: Query) -> Choice:
    return Exp4().combine(query)


def test_all_open_candidates_are_asked_at_once_and_once() -> None:
    query = query_of([0.0, 0.0, 0.0], open={2, 0})
    assert Exp4().ask(query) == [(0, 1.0), (2, 1.0)]
    replied(query, {0: 1})
    assert Exp4().ask(query) == ()


def test_heavier_label_wins_and_its_best_candidate_answers() -> None:
    query = replied(query_of([5.0, 1.0, 0.5, 0.6]), {0: 7, 1: 7, 2: 3, 3: 3})
    choice = combined(query)
    assert (choice.label, choice.candidate) == (3, 2)
    weights = [math.exp(-0.3 * loss) for loss in (5.0, 1.0, 0.5, 0.6)]
    assert choice.agreement == pytest.approx((weights[2] + weights[3]) / sum(weights))


def test_weak_candidates_together_outvote_the_best() -> None:
    choice = combined(replied(query_of([0.0, 1.0, 1.0]), {0: "a", 1: "b", 2: "b"}))
    assert (choice.label, choice.candidate) == ("b", 1)


def test_best_candidate_decides_a_tie() -> None:
    assert combined(replied(query_of([1.0, 1.0]), {0: "x", 1: "y"})).label == "x"
    assert combined(replied(query_of([1.0, 1.0]), {1: "y", 0: "x"})).label == "x"


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ([1, 2], [1, 2], True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        (True, 1, True),
        ([["a", 1]], {"a": 1}, False),
        ("7", 7, False),
        (None, 0, False),
    ],
)
def test_equal_labels_vote_together(one: Any, other: Any, agree: bool) -> None:
    choice = combined(replied(query_of([1.0, 1.0]), {0: one, 1: other}))
    assert choice.agreement == pytest.approx(1.0 if agree else 0.5)


def test_late_candidate_does_not_agree_and_a_failed_one_does_not_count() -> None:
    query = replied(query_of([1.0, 1.0, 1.0]), {0: "x", 1: "x"})
    assert combined(query).agreement == pytest.approx(1.0)  # as if the third had failed
    query.asked[2] = 1.0
    assert combined(query).agreement == pytest.approx(2 / 3)


def test_mean_of_arrays_is_weighted() -> None:
    arrays = [np.array([0.0, 2.0], np.float32), np.array([3.0, 2.0], np.float32)]
    query = replied(
        query_of([0.0, math.log(2.0) / 0.3]), {at: CandidateReply(one, one.tolist()) for at, one in enumerate(arrays)}
    )
    choice = combined(query)
    assert choice.result.dtype == np.float32
    assert choice.result == pytest.approx([1.0, 2.0])
    assert (choice.label, choice.candidate, choice.agreement) == (pytest.approx([1.0, 2.0]), None, None)


@pytest.mark.parametrize(
    "results",
    [
        [np.array([0.5]), np.array([0.5, 0.5])],
        [np.array([1]), np.array([2])],
        [np.array(["a"]), np.array(["a"])],
        [np.array([0.5]), 0.5],
    ],
)
def test_arrays_that_have_no_mean_are_voted_for(results: list[Any]) -> None:
    labels = [np.asarray(one).tolist() for one in results]
    query = replied(query_of([1.0, 1.0]), {at: CandidateReply(results[at], labels[at]) for at in range(2)})
    choice = combined(query)
    assert choice.result is results[0]
    assert choice.candidate == 0


def test_weights_that_underflow_still_vote() -> None:
    query = replied(query_of([0.0, 9_000.0, 9_001.0]), {1: "x", 2: "y"})
    choice = combined(query)
    assert (choice.label, choice.agreement) == ("x", pytest.approx(1 / (1 + math.exp(-0.3))))
    query.asked[0] = 1.0  # the heavy candidate is late: no candidate that counts agrees
    assert combined(query).agreement == 0.0


def test_weights_that_underflow_still_have_a_mean() -> None:
    arrays = {at: CandidateReply(np.array([float(at)]), float(at)) for at in (1, 2)}
    choice = combined(replied(query_of([0.0, 9_000.0, 9_000.0]), arrays))
    assert choice.result == pytest.approx([1.5])


def test_candidate_that_is_often_late_gains_no_weight() -> None:
    often, late = full_losses(sums_of([10.0, 2.0], [200.0, 40.0]))
    assert often == 10.0
    assert late == pytest.approx(10.0, rel=0.05)


def test_new_candidate_begins_as_the_mean_of_all() -> None:
    assert full_losses(sums_of([10.0, 30.0, 0.0], [200.0, 200.0, 0.0])) == pytest.approx([10.0, 30.0, 20.0])
    assert list(full_losses(sums_of([0.0, 0.0], [0.0, 0.0]))) == [0.0, 0.0]


def test_candidates_seen_equally_often_keep_their_losses() -> None:
    assert full_losses(sums_of([3.0, 4.0], [9.0, 9.0])) == [3.0, 4.0]


@given(LOSSES, st.data())
def test_settled_query_keeps_its_label_whatever_the_awaited_candidates_say(losses: list[float], data: Any) -> None:
    n = len(losses)
    known = data.draw(st.dictionaries(st.integers(0, n - 1), LABEL, min_size=1))
    query = replied(query_of(losses), known)
    for one in list(query.open):
        query.asked[one] = 1.0
    if not Exp4().settled(query):
        return
    label, awaited = combined(query).label, [one for one in query.asked if one not in known]
    # An awaited candidate gives one of the labels, a new one, or none.
    for answers in itertools.product([0, 1, 2, 3, None], repeat=len(awaited)):
        said = {one: answer for one, answer in zip(awaited, answers, strict=True) if answer is not None}
        assert combined(replied(query_of(losses), {**known, **said})).label == label


@given(LOSSES, st.data())
def test_query_settles_as_soon_as_no_answer_can_change_it(losses: list[float], data: Any) -> None:
    """If it is not settled, awaited candidates with one new label, or with the second label, come near the first."""
    n = len(losses)
    known = data.draw(st.dictionaries(st.integers(0, n - 1), LABEL, min_size=1))
    query = replied(query_of(losses), known)
    weights = [math.exp(-0.3 * (loss - min(losses))) for loss in losses]
    shares = sorted(
        [sum(weights[one] for one, said in known.items() if said == label) for label in set(known.values())] + [0.0]
    )
    awaited = sum(weights) - sum(weights[one] for one in known)
    for one in list(query.open):
        query.asked[one] = 1.0
    lead = shares[-1] - shares[-2]
    if lead > awaited + 1e-6:
        assert Exp4().settled(query)
    if lead < awaited - 1e-6:
        assert not Exp4().settled(query)


def test_means_need_every_reply() -> None:
    query = replied(query_of([0.0, 50.0]), {0: CandidateReply(np.array([1.0]), 1)})
    query.asked[1] = 1.0
    assert not Exp4().settled(query)
