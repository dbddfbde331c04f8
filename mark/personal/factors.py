"""Vectors of items from rewards: matrix factorisation by alternating least squares, as the thesis's experiments use it.

It stands in for the model that a user brings: `mark personal replay` has a log of rewards and no model.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray, IntArray

DIMENSION = 10
RIDGE = 8.0
_ROUNDS = 10
_SHRINK = 5.0


def item_factors(
    keys: IntArray,
    items: IntArray,
    rewards: FloatArray,
    item_count: int,
    seed: int,
    dimension: int = DIMENSION,
    ridge: float = RIDGE,
) -> FloatArray:
    """Return a vector for each item. Items without a reward get zeros, so that only their mean predicts."""
    center = rewards.mean()
    counts = np.bincount(items, minlength=item_count)
    means = np.bincount(items, rewards - center, minlength=item_count) / (counts + _SHRINK)
    left = rewards - center - means[items]
    vectors = np.random.default_rng(seed).normal(0.0, 0.1, (item_count, dimension))
    weights = np.zeros((int(keys.max()) + 1, dimension))
    by_key, by_item = _groups(keys), _groups(items)
    for _ in range(_ROUNDS):
        _solve(weights, by_key, vectors[items], left, ridge)
        _solve(vectors, by_item, weights[keys], left, ridge)
    vectors[counts == 0] = 0.0
    return vectors


def _groups(numbers: IntArray) -> dict[int, IntArray]:
    """Return the places of each number that occurs."""
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    return {int(numbers[part[0]]): part for part in parts}


def _solve(found: FloatArray, groups: dict[int, IntArray], rows: FloatArray, left: FloatArray, ridge: float) -> None:
    """Fit each group of rows by ridge regression, and write the weights to `found`."""
    diagonal = ridge * np.eye(rows.shape[1])
    for number, places in groups.items():
        own = rows[places]
        found[number] = np.linalg.solve(own.T @ own + diagonal, own.T @ left[places])
