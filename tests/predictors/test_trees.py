"""Trees are scikit-learn's, to the last bit, and leaves are where the splits say."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from mark_predictors.trees import Tree, grow_trees
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

LEAF = 12


def drawn(samples: int, features: int, targets: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return features of few values, a constant one and one that splits cleanly among them; some targets follow."""
    rng = np.random.default_rng(seed)
    given = rng.normal(size=(samples, features)).astype(np.float32)
    given[:, 0], given[:, 1], given[:, 2] = rng.integers(0, 3, samples), 1.5, given[:, 3] > 0.5
    waves = [np.sin(given[:, 3] * k) + 0.3 * given[:, 0] for k in range(1, targets + 1)]
    return given, np.stack(waves, axis=1) + rng.normal(0.0, 0.1, (samples, targets))


def grown(given: NDArray[np.float32], followed: NDArray[np.float64], seed: int) -> list[Tree]:
    return grow_trees(given, followed, trees=4, leaf=LEAF, share=0.5, seed=seed)


@pytest.mark.parametrize(
    ("samples", "features", "targets", "seed"), [(23, 5, 1, 0), (300, 7, 1, 1), (900, 12, 3, 5), (2500, 40, 14, 99)]
)
def test_trees_equal_those_of_scikit_learn(samples: int, features: int, targets: int, seed: int) -> None:
    given, followed = drawn(samples, features, targets, seed)
    theirs = ExtraTreesRegressor(4, min_samples_leaf=LEAF, max_features=0.5, random_state=seed)
    theirs.fit(given, followed.squeeze())
    leaves = theirs.apply(given)
    for k, tree in enumerate(grown(given, followed, seed)):
        other = theirs.estimators_[k].tree_
        inner = other.feature >= 0
        np.testing.assert_array_equal(tree.feature, np.where(inner, other.feature, -1))
        np.testing.assert_array_equal(tree.threshold[inner], other.threshold[inner])
        np.testing.assert_array_equal(tree.left, other.children_left)
        np.testing.assert_array_equal(tree.right, other.children_right)
        np.testing.assert_array_equal(tree.leaf_of, leaves[:, k])


def test_targets_that_are_all_alike_are_not_split() -> None:
    given, _ = drawn(100, 6, 1, seed=2)
    for tree in grown(given, np.full((100, 2), 0.25), seed=0):
        assert (len(tree.feature), set(tree.leaf_of.tolist())) == (1, {0})


def test_features_that_are_all_constant_are_not_split() -> None:
    for tree in grown(np.ones((100, 6), dtype=np.float32), drawn(100, 6, 2, seed=3)[1], seed=0):
        assert tree.feature.tolist() == [-1]


def test_same_seed_grows_the_same_trees() -> None:
    given, followed = drawn(300, 8, 2, seed=4)
    first, again, other = grown(given, followed, 7), grown(given, followed, 7), grown(given, followed, 8)

    def same(one: Tree, two: Tree) -> bool:
        return all(np.array_equal(getattr(one, field.name), getattr(two, field.name)) for field in fields(Tree))

    assert all(map(same, first, again))
    assert not any(map(same, first, other))
