"""Rows in SQLite: the promises of the port, and that the file keeps nothing of deleted rows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.serving.personal.rows import SqliteRows


def test_rows_are_put_replaced_and_deleted(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "rows.sqlite")
    rows.put("a", 1.0, b"one")
    rows.put("a", 3.0, b"three")
    rows.put("b", 2.0, b"two")
    assert (rows.get("a"), rows.get("b"), rows.get("c")) == (b"three", b"two", None)
    rows.delete("a")
    rows.delete("a")
    assert rows.get("a") is None
    rows.close()


def test_keys_are_those_from_before_a_time(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "rows.sqlite")
    rows.put("b", 2.0, b"")
    rows.put("a", 1.0, b"")
    rows.put("never", -math.inf, b"")
    assert list(rows.keys()) == ["a", "b", "never"]
    assert list(rows.keys(2.0)) == ["a", "never"]
    rows.close()


def test_keys_may_be_deleted_while_they_are_listed(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "rows.sqlite")
    for number in range(2500):
        rows.put(f"{number:04}", 1.0, b"x")
    for key in rows.keys():  # noqa: SIM118, it is no dict
        rows.delete(key)
    assert list(rows.keys()) == []
    rows.close()


def test_deleted_and_replaced_rows_are_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    rows = SqliteRows(path)
    rows.put("a", 1.0, b"first-secret" * 100)
    rows.put("a", 1.0, b"other")
    rows.put("b", 1.0, b"second-secret" * 100)
    rows.delete("b")
    rows.close()
    assert b"secret" not in path.read_bytes()


def test_rows_of_an_earlier_process_are_gone(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "rows.sqlite")
    rows.put("a", 1.0, b"one")
    rows.close()
    again = SqliteRows(tmp_path / "rows.sqlite")
    assert again.get("a") is None
    again.close()


def test_folder_that_is_missing_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        SqliteRows(tmp_path / "none" / "rows.sqlite")
