"""Item vectors from rewards: they recover a matrix of low rank, and leave unknown items at zero."""

from __future__ import annotations

import numpy as np

from mark.personal.factors import item_factors


def test_vectors_explain_rewards_of_low_rank() -> None:
    draw = np.random.default_rng(0)
    tastes, songs = draw.normal(size=(60, 2)), draw.normal(size=(40, 2))
    keys, items = np.divmod(draw.permutation(2400)[:1600], 40)
    rewards = 3.0 + (tastes[keys] * songs[items]).sum(1)
    vectors = item_factors(keys, items, rewards, 41, seed=1, dimension=2, ridge=0.1)
    # Each song is then a linear map of its vector.
    fit, *_ = np.linalg.lstsq(vectors[:40], songs, rcond=None)

    assert np.abs(vectors[:40] @ fit - songs).mean() < 0.1
    assert vectors[40].tolist() == [0.0, 0.0]


def test_equal_seeds_give_equal_vectors() -> None:
    draw = np.random.default_rng(1)
    keys, items, rewards = draw.integers(0, 5, 50), draw.integers(0, 8, 50), draw.normal(size=50)

    assert np.array_equal(item_factors(keys, items, rewards, 8, 3), item_factors(keys, items, rewards, 8, 3))
