"""Tables of items: the valid `.npz` files, and one clear line for every other file."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.personal.table import ItemTable, item_table


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_table_has_names_vectors_and_lengths() -> None:
    found = item_table(_npz(ids=["a", "b"], vectors=np.array([[3.0, 4.0], [0.0, 1.0]])), "songs.npz")

    assert (found.ids, found.numbers, found.dimension, len(found)) == (["a", "b"], {"a": 0, "b": 1}, 2, 2)
    assert found.vectors.dtype == np.float32
    assert found.squares.tolist() == [25.0, 1.0]


@pytest.mark.parametrize("ids", [np.array([7, 8]), np.array([b"7", b"8"]), np.array(["7", "8"])])
def test_names_may_be_numbers_or_bytes(ids: Any) -> None:
    assert item_table(_npz(ids=ids, vectors=np.ones((2, 3))), "songs.npz").ids == ["7", "8"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no file of numpy.savez"),
        (b"PK\x03\x04 broken", "is no file of numpy.savez"),
        (pickle.dumps({"ids": 1}), "is no file of numpy.savez"),
        (_npy(np.ones(3)), "is one array"),
        (_npz(ids=["a"]), "has no array 'vectors', only ids"),
        (_npz(ids=np.array([object()]), vectors=np.ones((1, 2))), "without pickled objects"),
        (_npz(ids=[1.5], vectors=np.ones((1, 2))), "must be a list of texts or whole numbers"),
        (_npz(ids=[["a"]], vectors=np.ones((1, 2))), "must be a list of texts"),
        (_npz(ids=[b"\xff"], vectors=np.ones((1, 2))), "no UTF-8 text"),
        (_npz(ids=["a"], vectors=["x"]), "must be numbers"),
        (_npz(ids=["a"], vectors=np.ones(2)), "must have a row for each item"),
        (_npz(ids=np.array([], dtype=str), vectors=np.ones((0, 2))), "must have a row for each item"),
        (_npz(ids=["a", "b"], vectors=np.ones((1, 2))), "differ in length: 2 and 1"),
        (_npz(ids=["a", "b", "a"], vectors=np.ones((3, 2))), "names an item twice: a"),
        (_npz(ids=["a", ""], vectors=np.ones((2, 2))), "a name that is empty"),
        (_npz(ids=["a", "b"], vectors=np.array([[1.0], [np.nan]])), "must be finite, 1,000,000 at most: b"),
        (_npz(ids=["a", "b"], vectors=np.array([[1.0], [1e7]])), "must be finite, 1,000,000 at most: b"),
        (_npz(ids=["a"], vectors=np.ones((1, 1025))), "1,024 columns at most: 1025"),
    ],
)
def test_table_that_cannot_be_is_one_line(data: bytes, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        item_table(data, "songs.npz")

    assert str(caught.value).startswith("songs.npz: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_table_of_1024_columns_is_fine() -> None:
    assert ItemTable(["a"], np.ones((1, 1024)), "songs.npz").dimension == 1024
