"""The calls of a selection's queries: closed forms of every policy, and laws that hold for any answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.graphs.answers_file import Answers
from mark.selection.policies import policy_of
from mark.selection.policy import Query
from mark.selection.settings import SelectionSettings
from mark.selection.tally import Sums
from mark.simulation.selected_calls import SelectedCalls, SelectedQueries, selection_run

NAMES = ("small", "large")
FREE = [0.0, 0.0]
MISSING = float("nan")


def answers(rows: int = 400, seed: int = 0) -> Answers:
    """Return answers: the small model's score is its probability of being correct; the large one is mostly correct."""
    generator = np.random.default_rng(seed)
    score = generator.random(rows)
    correct = np.stack([generator.random(rows) < score, generator.random(rows) < 0.95], axis=1)
    return Answers(NAMES, correct.astype(float), np.stack([score, np.full(rows, MISSING)], axis=1))


def cascade(**said: float) -> SelectionSettings:
    return SelectionSettings("cascade", score="score", **said)  # type: ignore[arg-type]


def shares(found: SelectedCalls, usd: list[float]) -> list[float]:
    """Return the calls per query of each candidate, by the law."""
    per_query: list[float] = found.law(usd).calls_per_query.tolist()
    return per_query


def error(found: SelectedCalls, usd: list[float], queries: int = 40_000) -> float:
    """Return the share of wrong answers of drawn queries."""
    drawn = SelectedQueries(found, queries, FREE, 3)
    calls = drawn.asked(0, queries, usd)
    run = selection_run(NAMES, calls, FREE, calls.sum(axis=0).tolist(), drawn, calls > 0)
    assert run.error is not None
    return run.error


def test_split_asks_by_its_weights_as_the_policy_does() -> None:
    said = SelectionSettings("split", weights=(0.9, 0.1), explore=0.2)
    found = SelectedCalls(said, answers(), 0)
    assert shares(found, FREE) == pytest.approx([0.8 * 0.9 + 0.1, 0.8 * 0.1 + 0.1])
    draws = iter([0.0, 0.999])
    query = Query(Sums([0.0] * 2, [0.0] * 2, [0.0] * 2), None, FREE, lambda: next(draws), {0, 1}, explore=0.2)  # type: ignore[arg-type]
    policy = policy_of(said, 2, np.random.default_rng(0))
    told = dict([*policy.ask(query), *policy.ask(query)])
    assert [told[0], told[1]] == pytest.approx(shares(found, FREE))
    correct = found.answers.correct.mean(axis=0)
    assert error(found, FREE) == pytest.approx(1.0 - 0.82 * correct[0] - 0.18 * correct[1], abs=0.01)


def test_a_vote_asks_everybody_and_its_error_is_that_of_the_best() -> None:
    """The better of two candidates decides each vote, whatever the other one answers."""
    found = SelectedCalls(SelectionSettings("exp4"), answers(), 0)
    assert shares(found, FREE) == [1.0, 1.0]
    assert error(found, FREE) == pytest.approx(1.0 - found.answers.correct[:, 1].mean(), abs=0.01)


def test_three_equal_voters_are_wrong_where_two_of_them_are() -> None:
    rows = [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    correct = np.array(rows, dtype=float)
    found = SelectedCalls(SelectionSettings("exp4"), Answers(("a", "b", "c"), correct, np.full((6, 3), MISSING)), 0)
    _, right = found.judged(np.arange(6), np.ones((6, 3), dtype=np.bool_))
    assert right.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("explore", [0.0, 0.1])
@pytest.mark.parametrize("threshold", [0.0, 0.35, 2.0])
def test_a_fixed_cascade_asks_the_share_of_scores_below_its_threshold(threshold: float, explore: float) -> None:
    found = SelectedCalls(cascade(threshold=threshold, explore=explore), answers(), 0)
    below = found.answers.scores[:, 0] < threshold
    share = float(below.mean())
    assert shares(found, [1.0, 1e9]) == pytest.approx([1.0, share + (1.0 - share) * explore]), "prices do not matter"
    small, large = found.answers.correct.T
    right = np.where(below, large, small) * (1.0 - explore) + large * explore
    assert error(found, FREE) == pytest.approx(1.0 - right.mean(), abs=0.01)


def test_a_priced_cascade_asks_where_the_gain_is_worth_its_price() -> None:
    """The small model's score is its probability, so that the gain is 0.95 less the score."""
    value, price = 1e-5, 4e-6
    found = SelectedCalls(cascade(correct_usd=value, explore=0.0), answers(50_000), 0)
    asked = found.asked(np.arange(50_000), [0.0, price], np.random.default_rng(0))[:, 1] > 0
    score = found.answers.scores[:, 0]
    limit = 0.95 - price / value
    assert asked[score < limit - 0.06].all()
    assert not asked[score > limit + 0.06].any()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, 1e-4), min_size=2, max_size=6), st.floats(1e-6, 1e-3), st.integers(0, 9))
def test_a_dearer_call_is_never_asked_more(prices: list[float], value: float, seed: int) -> None:
    found = SelectedCalls(cascade(correct_usd=value), answers(60, seed), 0)
    asks = [shares(found, [0.0, price])[1] for price in sorted(prices)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(asks))
    assert shares(found, [0.0, value])[1] == pytest.approx(0.02), "explored, because no gain is above 1"


def test_bandits_mostly_ask_the_best_candidate() -> None:
    """The large model is right twice as often. Exp3 keeps 5 % of random queries, half of which ask the small one."""
    thompson, again, exp3 = (SelectedCalls(SelectionSettings(one), answers(), 0) for one in (*["thompson"] * 2, "exp3"))
    assert thompson.law(FREE).queries.tolist() == again.law(FREE).queries.tolist(), "the same seed has the same shares"
    for found in (thompson, exp3):
        small, large = shares(found, FREE)
        assert large > 0.9
        assert small + large == pytest.approx(1.0)
    assert small == pytest.approx(0.025, abs=0.015)


def test_a_query_keeps_the_answer_that_it_has_where_the_next_call_is_refused() -> None:
    found = SelectedCalls(cascade(threshold=2.0), answers(), 0)
    rows = np.arange(3)
    chosen, right = found.judged(rows, np.array([[True, True], [True, False], [False, False]]))
    assert chosen.tolist() == [1, 0, -1]
    assert right.tolist() == [found.answers.correct[0, 1], found.answers.correct[1, 0], 0.0]


def test_windows_change_no_choice_at_one_price() -> None:
    selected = SelectedCalls(cascade(correct_usd=1e-5), answers(), 0)
    whole, parts = (SelectedQueries(selected, 1000, [0.0, 1e-6], 5) for _ in range(2))
    assert whole.rows.tolist() == parts.rows.tolist()
    once = whole.asked(0, 1000, [0.0, 2e-6])
    cut = [parts.asked(first, first + 250, [0.0, 2e-6]) for first in range(0, 1000, 250)]
    assert np.concatenate(cut).tolist() == once.tolist()
    dearer = SelectedQueries(selected, 1000, [0.0, 3e-6], 5).asked(0, 1000, [0.0, 0.0])
    assert dearer.tolist() == once.tolist(), "what is paid by the call is a part of the price"


def test_figures_of_a_run_count_answers_given_and_calls_made() -> None:
    rows = Answers(NAMES, np.array([[1.0, 0.0]]), np.full((1, 2), MISSING))
    queries = SelectedQueries(SelectedCalls(SelectionSettings("split"), rows, 0), 4, FREE, 0)
    calls = np.array([[1, 0], [1, 0], [1, 0], [0, 1]])
    answered = np.array([[True, False], [True, False], [False, False], [False, True]])
    run = selection_run(NAMES, calls, [0.0, 0.25], [3, 1], queries, answered)
    assert (run.asked, run.asks_per_query, run.call_usd) == ((0.75, 0.25), 1.0, 0.25)
    assert run.answered == pytest.approx((2 / 3, 1 / 3))
    assert (run.error, run.correct) == (pytest.approx(1 / 3), 2.0)
    nobody = selection_run(NAMES, calls, FREE, [0, 0], queries, np.zeros((4, 2), dtype=np.bool_))
    assert (nobody.error, nobody.correct) == (None, 0.0)


def test_a_policy_of_ones_own_is_not_simulated_with_answers() -> None:
    with pytest.raises(ValueError, match="no policy of mark's own"):
        SelectedCalls(replace(SelectionSettings("split"), policy="own:Policy"), answers(), 0)
