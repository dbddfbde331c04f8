"""Reading files that users write."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.cells import read_rows, read_text
from mark.domain.errors import BadInput


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "file.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path: Path) -> list[dict[str, str]]:
    return [dict(row.cells) for row in read_rows(path, ("a", "b"), ("c",))]


def test_columns_may_be_reordered_and_optional_ones_missing(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "b,a\n2, 1 \n\n4,3\n")) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    """Spreadsheets write both."""
    assert rows(written(tmp_path, b"\xef\xbb\xbfa,b\r\n1,2\r\n")) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "file.csv: is empty"),
        ("a,b,d\n", "file.csv:1: unknown column: d"),
        ("a,b,a\n", "file.csv:1: the same column twice: a"),
        ("a,c\n", "file.csv:1: missing column: b"),
        ("a,b\n1,2\n1\n", "file.csv:3: 1 cells under a header of 2"),
        ('a,b\n"1,2\n', "file.csv:2: is no CSV"),
        (b"\xff\xfe\x00", "file.csv: is no UTF-8 text"),
        ("a,b\n1,\0\n", "file.csv: is no text: it holds NUL bytes"),
    ],
)
def test_a_wrong_table_is_named_with_line_and_column(tmp_path: Path, content: bytes | str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        rows(written(tmp_path, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.csv", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            read_text(path)


@pytest.mark.parametrize("cell", ["nan", "inf", "-1", "x", "", "1e999"])
def test_a_number_is_finite_and_in_range_or_named(tmp_path: Path, cell: str) -> None:
    (row,) = read_rows(written(tmp_path, f"a,b\n{cell},2\n"), ("a", "b"), ())
    with pytest.raises(BadInput, match=r"file\.csv:2 a: "):
        row.number("a")


def test_whole_numbers_and_flags_are_read_strictly(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path, "a,b\n1.5,yes\n"), ("a", "b"), ())
    with pytest.raises(BadInput, match=r"whole number: 1\.5"):
        row.whole("a")
    with pytest.raises(BadInput, match="true or false: yes"):
        row.flag("b")
    assert row.whole("missing", 3) == 3
    assert row.number_or("missing", 0.5) == 0.5
    assert row.flag("missing") is False
