"""Queries as JSON Lines, and the error that names an invalid line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.planning.graphs.queries import SampleQuery, read_queries


def test_a_query_a_line(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes('{"a": [1]}\r\n\n"two\u2028lines"\n3'.encode())
    found = read_queries(str(file))
    assert [(query.line, query.value()) for query in found] == [(1, {"a": [1]}), (3, "two\u2028lines"), (4, 3)]
    found[0].value()["a"].append(2)
    assert found[0].value() == {"a": [1]}
    assert found[2] == SampleQuery(4, "3")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "q.jsonl: holds no query"),
        (b"\n \n", "q.jsonl: holds no query"),
        (b"1\n{'a': 1}\n", "q.jsonl:2: is no JSON"),
        (b"[1,\n2]\n", "q.jsonl:1: is no JSON"),
        (b"NaN\n", "q.jsonl:1: is no JSON (NaN is no number of JSON): NaN"),
        (b"[" * 100_000, "q.jsonl:1: is no JSON"),
        (b"\xff\n", "q.jsonl: is no UTF-8 text"),
    ],
)
def test_what_is_no_query_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_queries(str(file))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
