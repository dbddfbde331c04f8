"""Means of items: shrunk, in any order, and as if deleted rewards had never been."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.personal.item_means import NO_ITEM, ItemMeans

rewards = st.lists(st.tuples(st.integers(NO_ITEM, 3), st.floats(0, 1)), max_size=30)
SLOTS = np.array([NO_ITEM, 0, 1, 2, 3])


def _means(rows: list[tuple[int, float]], loss: str = "squared") -> ItemMeans:
    found = ItemMeans(loss, "abcd")
    for slot, reward in rows:
        found.add(slot, reward)
    return found


def test_mean_of_an_item_is_shrunk_toward_the_mean_of_all() -> None:
    means = _means([(0, 4.0), (0, 4.0), (1, 1.0), (NO_ITEM, 3.0)])

    assert means.center == 3.0
    assert means.above_center(np.array([0, 1, 2])) == pytest.approx([2.0 / 7.0, -2.0 / 6.0, 0.0])
    assert means.above_center_of(0) == pytest.approx(2.0 / 7.0)


def test_rate_of_an_item_is_a_logit_with_the_logistic_loss() -> None:
    means = _means([(0, 1.0), (1, 0.0), (1, 0.0)], "logistic")
    rate = 1.5 / 4.0
    share = (1.0 + 5.0 * rate) / 6.0

    assert means.center == pytest.approx(np.log(rate / (1.0 - rate)))
    assert means.above_center_of(0) == pytest.approx(np.log(share / (1.0 - share)) - means.center)
    assert means.above_center_of(NO_ITEM) == 0.0


def test_variance_of_an_item_falls_with_its_rewards() -> None:
    means = _means([(0, 4.0)] * 7)

    assert means.variances(np.array([0, 1, NO_ITEM])) == pytest.approx([0.1, 1.0 / 3.0, 1.0 / 3.0])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@given(rows=rewards, data=st.data())
def test_order_of_rewards_does_not_matter(loss: str, rows: list[tuple[int, float]], data: st.DataObject) -> None:
    one, other = _means(rows, loss), _means(data.draw(st.permutations(rows)), loss)

    assert one.center == pytest.approx(other.center, abs=1e-9)
    assert one.above_center(SLOTS) == pytest.approx(other.above_center(SLOTS), abs=1e-9)


@given(kept=rewards, gone=rewards)
def test_rewards_taken_out_leave_no_trace(kept: list[tuple[int, float]], gone: list[tuple[int, float]]) -> None:
    means, expected = _means(kept + gone), _means(kept)
    means.change(np.array([slot for slot, _ in gone], dtype=np.int64), np.array([one for _, one in gone]), -1.0)

    assert means.count == expected.count
    assert means.center == pytest.approx(expected.center, abs=1e-9)
    assert means.above_center(SLOTS) == pytest.approx(expected.above_center(SLOTS), abs=1e-9)


def test_new_names_get_new_slots_beyond_the_first_room() -> None:
    means = ItemMeans()
    slots = [means.slot(f"i{at}") for at in range(200)]

    assert slots == list(range(200))
    assert means.slot("i7") == 7
    assert means.name(7) == "i7"
    assert (means.slot(None), means.name(NO_ITEM), means.find("unknown")) == (NO_ITEM, None, NO_ITEM)
    means.add(199, 2.0)
    assert means.counts(np.array([199, 198])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_means_of_first_slots_equal_means_by_slot(loss: str) -> None:
    means = ItemMeans(loss, [f"i{number}" for number in range(5)])
    for slot in (0, 0, 3, NO_ITEM):
        means.add(slot, 1.0)

    slots = np.arange(4)
    assert means.above_center_of_first(4).tolist() == means.above_center(slots).tolist()
    assert means.variances_of_first(4).tolist() == means.variances(slots).tolist()
