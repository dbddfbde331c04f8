"""One head: equal to closed forms and to reference fits, in any order of the observations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from mark.domain.arrays import FloatArray
from mark.personal.head import Head, HeadPrior, logistic, ridge, sigmoid, sigmoids

seeds = st.integers(0, 2**32 - 1)


def _prior(dimension: int, draw: np.random.Generator) -> HeadPrior:
    return HeadPrior(draw.normal(size=dimension), draw.uniform(0.5, 3.0, dimension))


def _closed_form(prior: HeadPrior, vectors: FloatArray, targets: FloatArray) -> FloatArray:
    precision = np.diag(prior.precision)
    found = np.linalg.solve(precision + vectors.T @ vectors, precision @ prior.weights + vectors.T @ targets)
    return found.astype(np.float64)


def _full(head: Head) -> FloatArray:
    lower = np.tril(head.inverse)
    return lower + np.tril(lower, -1).T


@given(seed=seeds, rows=st.integers(1, 40), dimension=st.integers(1, 8))
def test_updates_in_any_order_equal_closed_form_ridge(seed: int, rows: int, dimension: int) -> None:
    draw = np.random.default_rng(seed)
    prior, vectors, targets = _prior(dimension, draw), draw.normal(size=(rows, dimension)), draw.normal(size=rows)
    head = prior.head()
    for at in draw.permutation(rows):
        head.learn(np.ascontiguousarray(vectors[at]), float(targets[at]))

    assert head.updates == rows
    assert head.weights == pytest.approx(_closed_form(prior, vectors, targets), abs=1e-6)
    expected = np.linalg.inv(np.diag(prior.precision) + vectors.T @ vectors)
    assert _full(head) == pytest.approx(expected, abs=1e-6)


@given(seed=seeds, rows=st.integers(0, 20), dimension=st.integers(1, 8))
def test_ridge_from_rows_and_sums_equals_closed_form(seed: int, rows: int, dimension: int) -> None:
    draw = np.random.default_rng(seed)
    prior, vectors, targets = _prior(dimension, draw), draw.normal(size=(rows, dimension)), draw.normal(size=rows)
    packed = rows // 2
    sums = vectors[:packed].T @ vectors[:packed], vectors[:packed].T @ targets[:packed]
    whole, in_part = ridge(prior, vectors, targets), ridge(prior, vectors[packed:], targets[packed:], *sums)

    assert whole.weights == pytest.approx(_closed_form(prior, vectors, targets), abs=1e-6)
    assert in_part.weights == pytest.approx(whole.weights, abs=1e-6)
    assert _full(in_part) == pytest.approx(_full(whole), abs=1e-6)


def test_update_changes_the_matrix_in_place() -> None:
    """A copy at each update would cost more than the update itself."""
    head = HeadPrior(np.zeros(3), np.ones(3)).head()
    kept = head.inverse
    head.learn(np.array([1.0, 2.0, 3.0]), 1.0)

    assert head.inverse is kept
    assert kept[0, 0] == pytest.approx(1.0 - 1.0 / 15.0)


def test_prior_stays_as_it_was_when_its_head_learns() -> None:
    prior = HeadPrior(np.zeros(2), np.ones(2))
    prior.head().learn(np.array([1.0, 1.0]), 5.0)

    assert prior.weights.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("rows", "dimension"), [(40, 3), (3, 8)])
def test_logistic_head_is_the_reference_fit(rows: int, dimension: int) -> None:
    draw = np.random.default_rng(3)
    vectors = draw.normal(size=(rows, dimension))
    rewards = (draw.random(rows) < sigmoids(vectors @ draw.normal(size=dimension))).astype(float)
    rewards[:2] = 0.0, 1.0
    reference = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(vectors, rewards)
    head = logistic(HeadPrior(np.zeros(dimension), np.full(dimension, 2.0)), vectors, 0.0, rewards)

    assert head.weights == pytest.approx(reference.coef_[0], abs=1e-6)


@given(seed=seeds, rows=st.integers(0, 30), offset=st.floats(-3, 3))
def test_logistic_head_has_slope_zero(seed: int, rows: int, offset: float) -> None:
    draw = np.random.default_rng(seed)
    prior, vectors = _prior(4, draw), 3.0 * draw.normal(size=(rows, 4))
    rewards = draw.integers(0, 2, rows).astype(float)
    head = logistic(prior, vectors, offset, rewards)
    slope = prior.precision * (head.weights - prior.weights)
    slope -= vectors.T @ (rewards - sigmoids(offset + vectors @ head.weights))

    assert slope == pytest.approx(np.zeros(4), abs=1e-6)


def test_counts_repeat_rows_of_a_logistic_head() -> None:
    draw = np.random.default_rng(4)
    vectors, rewards = draw.normal(size=(6, 3)), draw.integers(0, 2, 6).astype(float)
    prior = HeadPrior(np.zeros(3), np.ones(3))
    counts = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    repeated = logistic(
        prior, np.repeat(vectors, counts.astype(int), axis=0), 0.2, np.repeat(rewards, counts.astype(int))
    )

    assert logistic(prior, vectors, 0.2, rewards, counts).weights == pytest.approx(repeated.weights, abs=1e-9)


def test_logistic_updates_come_near_the_fit_of_all_rows() -> None:
    draw = np.random.default_rng(5)
    vectors = draw.normal(size=(400, 3))
    rewards = (draw.random(400) < sigmoids(vectors @ np.array([1.0, -1.0, 0.5]))).astype(float)
    prior = HeadPrior(np.zeros(3), np.ones(3))
    head = prior.head()
    for row, reward in zip(vectors, rewards, strict=True):
        head.learn_logistic(row, 0.0, float(reward))

    assert head.weights == pytest.approx(logistic(prior, vectors, 0.0, rewards).weights, abs=0.1)


@given(seed=seeds, rows=st.integers(1, 10))
def test_variances_are_those_of_the_posterior(seed: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    prior, vectors = _prior(3, draw), draw.normal(size=(rows, 3))
    head = prior.head()
    head.learn(np.array([1.0, 0.5, -0.5]), 1.0)
    expected = [row @ _full(head) @ row for row in vectors]

    assert head.variances(vectors) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("value", [-800.0, -1.0, 0.0, 1.0, 800.0])
def test_sigmoid_of_large_values_is_no_overflow(value: float) -> None:
    assert 0.0 <= sigmoid(value) <= 1.0
    assert sigmoids(np.array([value]))[0] == pytest.approx(sigmoid(value))
    assert sigmoid(value) + sigmoid(-value) == pytest.approx(1.0)
