"""The head of one key: weights and the inverse of the precision matrix, updated in place for each observation.

With the squared loss a head is ridge regression. The sums of its normal equations do not depend on the order of the
observations, and Sherman-Morrison (1950) updates their solution in d^2 steps. With the logistic loss each observation
is one Newton step, so the order matters slightly until the head is built from its rows again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from mark.domain.arrays import FloatArray

_NEWTON_ROUNDS, _NEWTON_STEP = 100, 1e-11
_LEAST_CURVATURE = 1e-6  # of the logistic loss far from 0, where a step would divide by zero


@dataclass(frozen=True, slots=True, eq=False)
class HeadPrior:
    """A Gaussian: its mean `weights` and the diagonal of its `precision`."""

    weights: FloatArray
    precision: FloatArray

    def head(self) -> Head:
        """Return a head without observations."""
        return Head(self.weights.copy(), np.asfortranarray(np.diag(1.0 / self.precision)))


class Head:
    """A head: `weights` and `inverse`, of which only the lower triangle is updated. Vectors are float64.

    It is built again once there are more than `until` observations of all keys.
    """

    __slots__ = ("inverse", "until", "updates", "weights")

    def __init__(self, weights: FloatArray, inverse: FloatArray) -> None:
        self.weights = weights
        # BLAS updates it in place only in column order; in another order it would silently update a copy.
        self.inverse = np.asfortranarray(inverse)
        self.updates = 0
        self.until = math.inf

    @property
    def memory_bytes(self) -> int:
        """The memory of the head, roughly."""
        return self.inverse.nbytes + self.weights.nbytes + 300

    def learn(self, vector: FloatArray, target: float) -> None:
        """Add an observation by the squared loss; `target` is the observed value of `weights . vector`."""
        moved = blas.dsymv(1.0, self.inverse, vector, lower=1)
        scale = 1.0 + blas.ddot(vector, moved)
        error = target - blas.ddot(vector, self.weights)
        blas.daxpy(moved, self.weights, a=error / scale)
        blas.dsyr(-1.0 / scale, moved, lower=1, a=self.inverse, overwrite_a=1)
        self.updates += 1

    def learn_logistic(self, vector: FloatArray, offset: float, reward: float) -> None:
        """Add an observation by the logistic loss: a reward of 0 to 1, predicted by sigmoid(offset + weights . vector).

        It is one Newton step from the present weights; the earlier observations count as a Gaussian around them.
        """
        expected = sigmoid(offset + blas.ddot(vector, self.weights))
        curvature = max(_LEAST_CURVATURE, expected * (1.0 - expected))
        moved = blas.dsymv(1.0, self.inverse, vector, lower=1)
        scale = 1.0 + curvature * blas.ddot(vector, moved)
        blas.daxpy(moved, self.weights, a=(reward - expected) / scale)
        blas.dsyr(-curvature / scale, moved, lower=1, a=self.inverse, overwrite_a=1)
        self.updates += 1

    def variances(self, vectors: FloatArray) -> FloatArray:
        """Return the variance of `weights . vector` for each row, for noise of variance 1."""
        moved = blas.dsymm(1.0, self.inverse, vectors.T, lower=1)
        found: FloatArray = np.maximum(0.0, np.einsum("nd,dn->n", vectors, moved))
        return found


def sigmoid(value: float) -> float:
    """Return 1 / (1 + exp(-value)), without overflow."""
    if value >= 0.0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)


def sigmoids(values: FloatArray) -> FloatArray:
    """Return `sigmoid` of each value."""
    grown = np.exp(-np.abs(values))
    return np.where(values >= 0.0, 1.0, grown) / (1.0 + grown)


def ridge(
    prior: HeadPrior,
    vectors: FloatArray,
    targets: FloatArray,
    gram: FloatArray | None = None,
    moment: FloatArray | None = None,
) -> Head:
    """Return the head after these rows, and after packed rows given by X'X (`gram`) and X'y (`moment`)."""
    pull = vectors.T @ (targets - vectors @ prior.weights)
    if gram is None or moment is None:
        inverse = _inverse(prior.precision, vectors)
    else:
        inverse = _inverted(np.diag(prior.precision) + gram + vectors.T @ vectors)
        pull += moment - gram @ prior.weights
    return Head(prior.weights + inverse @ pull, inverse)


def logistic(
    prior: HeadPrior, vectors: FloatArray, offset: float, rewards: FloatArray, counts: FloatArray | None = None
) -> Head:
    """Return the head of the greatest posterior probability after these rows.

    Row i stands for `counts[i]` observations with the mean reward `rewards[i]`.
    """
    weights = prior.weights.copy()
    counts = np.ones(len(rewards)) if counts is None else counts

    def loss(at: FloatArray) -> float:
        logits = offset + vectors @ at
        fit = counts @ (np.logaddexp(0.0, logits) - rewards * logits)
        return float(fit + 0.5 * prior.precision @ (at - prior.weights) ** 2)

    reached = loss(weights)
    for _ in range(_NEWTON_ROUNDS):
        expected = sigmoids(offset + vectors @ weights)
        slope = prior.precision * (weights - prior.weights) - vectors.T @ (counts * (rewards - expected))
        inverse = _curved_inverse(prior, vectors, expected, counts)
        step = inverse @ slope
        # Far from the optimum a full Newton step may overshoot, so it is halved until the loss falls.
        for _ in range(40):
            tried = loss(weights - step)
            if tried <= reached + 1e-12 * abs(reached):
                break
            step = 0.5 * step
        weights, reached = weights - step, tried
        if np.abs(step).max(initial=0.0) <= _NEWTON_STEP:
            break
    return Head(weights, _curved_inverse(prior, vectors, sigmoids(offset + vectors @ weights), counts))


def _curved_inverse(prior: HeadPrior, vectors: FloatArray, expected: FloatArray, counts: FloatArray) -> FloatArray:
    curvature = counts * np.maximum(_LEAST_CURVATURE, expected * (1.0 - expected))
    return _inverse(prior.precision, vectors * np.sqrt(curvature)[:, None])


def _inverse(precision: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return (diag(precision) + X'X)^-1. Woodbury's identity makes it cheap for fewer rows than dimensions."""
    rows, dimension = vectors.shape
    if rows >= dimension:
        return _inverted(np.diag(precision) + vectors.T @ vectors)
    scaled = vectors / precision
    inner = np.eye(rows) + scaled @ vectors.T
    found: FloatArray = np.diag(1.0 / precision) - scaled.T @ np.linalg.solve(inner, scaled)
    return found


def _inverted(matrix: FloatArray) -> FloatArray:
    return np.linalg.inv(matrix).astype(np.float64, copy=False)
