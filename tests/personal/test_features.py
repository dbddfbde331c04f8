"""The vectors that heads weigh: with and without biases, of rows and of their sums."""

from __future__ import annotations

import numpy as np
import pytest

from mark.personal.features import HeadFeatures
from mark.personal.item_means import NO_ITEM, ItemMeans
from mark.personal.key_rows import PackedRows, RowArrays
from mark.personal.settings import PersonalSettings
from tests.personal.learners import DIMENSION, table


def _means() -> ItemMeans:
    found = ItemMeans("squared", table().ids)
    for reward in (5.0, 5.0, 1.0):
        found.add(0 if reward == 5.0 else 1, reward)
    return found


def test_vector_has_a_constant_and_the_mean_of_the_item_before_its_numbers() -> None:
    items, means = table(), _means()
    features = HeadFeatures(PersonalSettings(table="items.npz"), items, DIMENSION, means)
    matrix = features.matrix(np.array([0, 1, NO_ITEM]), items.vectors[[0, 1, 2]])

    assert features.offset == pytest.approx(11 / 3)
    assert matrix[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert matrix[:, 1] == pytest.approx([means.above_center_of(0), means.above_center_of(1), 0.0])
    assert matrix[:, 2:] == pytest.approx(items.vectors[[0, 1, 2]])
    for at in (0, 1):
        assert features.row(at, None) == pytest.approx(matrix[at])
    assert features.by_item.weights.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_vector_without_biases_is_that_of_the_item() -> None:
    items = table()
    features = HeadFeatures(PersonalSettings(table="items.npz", bias=False), items, DIMENSION, _means())

    assert features.offset == 0.0
    assert features.row(3, None) == pytest.approx(items.vectors[3])
    assert features.matrix(np.array([3]), items.vectors[3:4]) == pytest.approx(items.vectors[3:4])


@pytest.mark.parametrize("bias", [True, False])
def test_head_from_sums_is_that_from_rows(bias: bool) -> None:
    draw = np.random.default_rng(0)
    vectors, rewards = draw.normal(size=(20, DIMENSION)), draw.normal(size=20)
    means = ItemMeans()
    slots = np.full(20, NO_ITEM)
    means.change(slots, rewards)
    features = HeadFeatures(PersonalSettings(features="tower", bias=bias), None, DIMENSION, means)
    packed = PackedRows.empty(DIMENSION)
    packed.add(vectors[:15], rewards[:15])
    whole = features.head(features.by_item, RowArrays(slots, rewards, vectors))
    in_part = features.head(features.by_item, RowArrays(slots[15:], rewards[15:], vectors[15:], packed))

    assert in_part.weights == pytest.approx(whole.weights)


def test_items_that_the_table_lacks_are_left_out() -> None:
    items, means = table(), _means()
    lacking = means.slot("new")
    features = HeadFeatures(PersonalSettings(table="items.npz"), items, DIMENSION, means)
    none = np.empty((2, 0))
    found = features.head(features.by_item, RowArrays(np.array([0, lacking]), np.array([5.0, -9.0]), none))
    expected = features.head(features.by_item, RowArrays(np.array([0]), np.array([5.0]), none[:1]))

    assert found.weights.tolist() == expected.weights.tolist()
