"""Figs. 3.7 to 3.10 on digits, small: the laws of each."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.clipper.classifiers import DIGITS, Classified, classified
from mark_papers.clipper.dialects import Dialects, dialects, user_errors
from mark_papers.clipper.ensembles import ensemble_rows
from mark_papers.clipper.failure import BROKEN, MENDED, broken_answers, queries, window_errors
from mark_papers.clipper.stragglers import DEADLINE_MS, straggler_row


@pytest.fixture(scope="module")
def digits() -> Classified:
    return classified(DIGITS)


def test_answers_that_all_models_give_are_rarely_wrong(digits: Classified) -> None:
    rows = {str(row["answers"]): row for row in ensemble_rows(digits)}
    agreed, unsure = rows["exp4, all 5 agree"], rows["exp4, fewer than 5 agree"]
    assert float(agreed["share"]) + float(unsure["share"]) == pytest.approx(1.0)
    assert float(agreed["error"]) < 0.005 < float(unsure["error"])
    assert float(rows["exp4"]["error"]) < 0.02
    whole = sum(float(row["share"]) * float(row["error"]) for row in (agreed, unsure))
    assert whole == pytest.approx(float(rows["exp4"]["error"]))


def test_best_model_is_broken_for_a_quarter_of_the_queries(digits: Classified) -> None:
    answers, labels = broken_answers(digits, seed=0)
    wrong = answers[:, int(digits.errors.argmin())] != labels
    assert wrong[BROKEN:MENDED].mean() == pytest.approx(0.9, abs=0.02)
    assert max(wrong[:BROKEN].mean(), wrong[MENDED:].mean()) < 0.02


def test_ensemble_leaves_a_broken_model_and_comes_back(digits: Classified) -> None:
    """It takes at most 500 queries both times."""
    errors = window_errors("exp4", digits.names, queries(digits, seed=0)[:12_000], seed=0, window=500)
    assert errors[:10].mean() < 0.02
    assert errors[11:20].mean() < 0.06
    assert errors[21:].mean() < 0.02


def test_deadline_bounds_the_wait_for_stragglers(digits: Classified) -> None:
    row = straggler_row(digits.answers, digits.labels, queries=500, seed=0)
    assert float(row["p99_ms"]) <= DEADLINE_MS < float(row["p99_all_ms"])
    assert float(row["mean_ms"]) < float(row["mean_all_ms"])
    assert 0.02 < float(row["missing"]) < 0.05
    assert abs(float(row["error"]) - float(row["error_all"])) < 0.02


@pytest.fixture(scope="module")
def spoken() -> Dialects:
    return dialects(DIGITS)


def test_dialects_own_models_are_better_than_one_for_all(spoken: Dialects) -> None:
    assert spoken.answers.shape == (8, 899, 9)
    assert spoken.error_of_own < 0.5 * spoken.error_for_all


def test_each_user_gets_the_models_of_his_dialect(spoken: Dialects) -> None:
    """After 50 feedbacks about as good as the own dialect's model; with one context for all users it never is."""
    own, shared = (user_errors(spoken, users=16, by_key=by_key) for by_key in (True, False))
    assert own.shape == (16, 100)
    assert own[:, 50:].mean() < spoken.error_of_own + 0.02 < shared[:, 50:].mean()
    assert np.array_equal(own[:2], user_errors(spoken, users=2))
