"""The book of keys: a budget that moves rows to a store, and deletion that reaches both."""

from __future__ import annotations

import numpy as np
import pytest

from mark.personal.head import HeadPrior
from mark.personal.item_means import ItemMeans
from mark.personal.key_book import KeyBook
from tests.personal.learners import RowsInMemory


def _book(store: RowsInMemory | None, most_bytes: int) -> KeyBook:
    means = ItemMeans()
    return KeyBook(0, most_bytes, means.slot, means.name, store)


def _add(book: KeyBook, key: str, at_s: float = 0.0) -> None:
    rows = book.new_rows(key)
    before = rows.memory_bytes
    rows.add(0, 1.0, at_s, None)
    book.changed(rows, rows.memory_bytes - before)
    book.shrink()


def _filled(store: RowsInMemory | None, most_bytes: int, keys: int) -> KeyBook:
    means = ItemMeans("squared", ["song"])
    book = KeyBook(0, most_bytes, means.slot, means.name, store)
    for at in range(keys):
        _add(book, f"u{at}", float(at))
    return book


def test_rows_beyond_the_budget_move_to_the_store() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 50)

    assert book.used_bytes <= 10_000
    assert 20 < book.in_memory < 35
    assert "u0" in store.rows
    assert "u49" not in store.rows
    rows = book.rows("u0")
    assert rows is not None
    assert rows.count == 1


def test_key_that_was_used_last_stays_in_memory() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 8)
    for at in range(8, 40):
        book.rows("u0")
        _add(book, f"u{at}")

    assert ("put", "u0") not in store.calls
    assert ("put", "u1") in store.calls


def test_rows_that_did_not_change_are_not_written_again() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 50)
    store.calls.clear()
    for at in range(50):
        book.rows(f"u{at}")
        book.shrink()

    assert [key for call, key in store.calls if call == "put"] == sorted(
        {key for call, key in store.calls if call == "put"}
    ), "each at most once, when its first rows leave memory"


def test_rows_without_a_store_stay_in_memory() -> None:
    assert _filled(None, 10_000, 50).in_memory == 50


def test_heads_have_half_of_the_budget() -> None:
    book = _filled(None, 100_000, 1)
    prior = HeadPrior(np.zeros(20), np.ones(20))
    for at in range(50):
        book.keep_head(f"u{at}", prior.head())
        book.shrink()

    assert book.heads == 50_000 // prior.head().memory_bytes
    assert book.head("u0") is None
    assert book.head("u49") is not None
    for at in range(50):
        book.drop_head(f"u{at}")
    assert book.used_bytes == _filled(None, 100_000, 1).used_bytes


def test_buried_key_is_in_neither_memory_nor_store() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 50)
    for key in ("u0", "u49"):
        gone = book.bury(key, 100.0)
        assert gone is not None
        assert gone.rewards.tolist() == [1.0]
        assert book.rows(key) is None
        assert book.dump(key) is None
        assert key not in store.rows
        assert (book.is_buried(key, 100.0), book.is_buried(key, 100.5)) == (True, False)
    assert "u49" not in book.known()


def test_rows_after_the_deletion_stay() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 1)
    _add(book, "u0", 50.0)
    book.flush()
    gone = book.bury("u0", 10.0)

    assert gone is not None
    assert gone.rewards.tolist() == [1.0]
    assert "u0" not in store.rows, "the file still had the deleted row"
    book.flush()
    assert store.rows["u0"][0] == 50.0


def test_keys_are_known_by_the_age_of_their_newest_row() -> None:
    book = _filled(RowsInMemory(), 10_000, 50)

    assert book.known(3.0) == ["u0", "u1", "u2"]
    assert len(book.known()) == 50


def test_clear_leaves_nothing() -> None:
    store = RowsInMemory()
    book = _filled(store, 10_000, 50)
    book.bury("u3", 1.0)
    book.clear()

    assert (store.rows, book.in_memory, book.used_bytes, book.known()) == ({}, 0, 0, [])
    assert _book(store, 10_000).rows("u0") is None


@pytest.mark.parametrize("keys", [1, 30])
def test_flush_writes_all_that_changed(keys: int) -> None:
    store = RowsInMemory()
    _filled(store, 1_000_000, keys).flush()

    assert len(store.rows) == keys
