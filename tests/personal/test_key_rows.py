"""Rows of one key: packed without loss, deleted by time, written and read."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mark.personal.item_means import NO_ITEM, ItemMeans
from mark.personal.key_rows import PACKED_AFTER_S, KeyRows, PackedRows, RowArrays

HOUR = PACKED_AFTER_S


def _rows(count: int, step_s: float = HOUR, slot: int = NO_ITEM, *, pack: bool = True) -> KeyRows:
    draw, found = np.random.default_rng(1), KeyRows(3)
    for at in range(count):
        found.add(slot, float(at), at * step_s, draw.normal(size=3).astype(np.float32))
        if pack:
            found.pack()
    return found


def _sums(found: RowArrays) -> PackedRows:
    """Return the sums of all rows, packed or not."""
    whole = PackedRows.empty(3)
    whole.add(found.vectors, found.rewards)
    if found.packed is not None:
        whole.merge(found.packed)
    return whole


def test_packed_rows_have_the_sums_of_all_rows() -> None:
    packed, plain = _rows(100), _rows(100, pack=False)
    one, other = _sums(packed.arrays()), _sums(plain.arrays())

    assert packed.packed is not None
    assert (packed.count, packed.newest_s) == (100, 99 * HOUR)
    assert len(packed.arrays().rewards) < 70
    assert one.gram == pytest.approx(other.gram)
    assert one.moment == pytest.approx(other.moment)


def test_rows_of_the_last_hour_stay_rows() -> None:
    assert _rows(100, step_s=1.0).packed is None


def test_rows_with_an_item_stay_rows() -> None:
    assert _rows(100, slot=0).packed is None


def test_packed_rows_of_a_wide_vector_take_less_memory() -> None:
    packed, plain = _rows(400), _rows(400, pack=False)

    assert packed.memory_bytes < plain.memory_bytes / 3


def test_drop_returns_the_rows_until_a_time() -> None:
    rows = _rows(10, pack=False)
    gone = rows.drop(4 * HOUR)

    assert gone.rewards.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rows.arrays().rewards.tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert rows.newest_s == 9 * HOUR
    assert rows.arrays().vectors.shape == (5, 3)


def test_drop_removes_sums_that_hold_a_row_from_before() -> None:
    rows = _rows(100)
    assert rows.packed is not None
    packed = rows.packed

    assert rows.drop(packed.oldest_s - 1.0).packed is None
    assert rows.drop(packed.newest_s - 1.0).packed is packed, "a deletion wins over rows that cannot be told apart"
    assert rows.packed is None


@pytest.mark.parametrize("count", [0, 5, 100])
def test_rows_are_read_as_they_were_written(count: int) -> None:
    means, rows = ItemMeans(), _rows(count)
    slot = means.slot("song")
    rows.add(slot, 4.5, 1e6, np.ones(3, dtype=np.float32))
    rows.judged, rows.squares = 3, 1.5
    other = ItemMeans("squared", ["unlike", "song"])  # another process has another number for the item
    found = KeyRows.of_bytes(rows.to_bytes(means.name), 3, other.slot)

    assert (found.count, found.newest_s, found.judged, found.squares) == (count + 1, 1e6, 3, 1.5)
    assert _sums(found.arrays()).gram == pytest.approx(_sums(rows.arrays()).gram)
    assert found.arrays().slots[-1] == 1
    assert (found.packed is None) == (rows.packed is None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"items": [null], "rewards": [1.0], "times": [], "vectors": "", "judged": [0, 0.0]}',
        b'{"items": [null], "rewards": [1.0], "times": [1.0], "vectors": "AAAA", "judged": [0, 0.0]}',
        b'{"items": [], "rewards": ["a"], "times": [], "vectors": "", "judged": [0, 0.0]}',
        b'{"items": [], "rewards": [], "times": [], "vectors": "", "judged": [0, 0.0], "packed": ["AAAA", "", 0, 0]}',
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        KeyRows.of_bytes(data, 3, ItemMeans().slot)


def test_rows_are_before_a_time_only_if_the_newest_is() -> None:
    """They arrive in any order, so the row that came last need not be the newest."""
    rows = KeyRows(0)
    assert rows.is_before(0.0)
    for at_s in (5.0, 9.0, 2.0):
        rows.add(0, 1.0, at_s, None)
    assert (rows.newest_s, rows.is_before(9.0), rows.is_before(9.5)) == (9.0, False, True)


def test_rows_beyond_the_copied_size_are_the_same() -> None:
    rows = KeyRows(100)
    for number in range(30):
        rows.add(number, float(number), 0.0, np.full(100, number, dtype=np.float32))
    frozen = rows.freeze()
    rows.add(30, 30.0, 0.0, np.zeros(100, dtype=np.float32))
    assert frozen.records()["reward"].tolist() == list(range(30))
    assert rows.arrays().vectors[:, 0].tolist() == [*range(30), 0.0]


def test_key_with_twenty_rows_takes_the_memory_that_is_counted() -> None:
    made, count = [], 2000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        made.append(KeyRows(0))
        for number in range(20):
            made[-1].add(number, 0.5 * number, 1e9 + number, None)
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    # The budget also counts the name of the key and its place in the book.
    assert 0.7 * made[0].memory_bytes < each + 150 <= made[0].memory_bytes
