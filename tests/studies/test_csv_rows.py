"""CSV files row by row, with the place of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.studies.csv_rows import csv_rows


def test_rows_have_their_place_and_stripped_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\na , b\n1,"x, y"\n\n 2 ,z\n')

    assert list(csv_rows(str(path))) == [
        (f"{path}:3", {"a": "1", "b": "x, y"}),
        (f"{path}:5", {"a": "2", "b": "z"}),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", "t.csv:2: 1 cells under a header of 2"),
        (b"a,a\n1,2\n", "t.csv:1: the same column twice: a"),
        (b"a,b\n\xff,1\n", "t.csv:2: is no UTF-8 text"),
    ],
)
def test_file_that_is_no_table_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        list(csv_rows(str(tmp_path / "t.csv")))

    assert message in str(caught.value)
