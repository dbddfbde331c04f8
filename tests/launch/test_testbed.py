"""What a load on the testbed sends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.launch.testbed import calls_of
from mark.models.items import items_in

QUERIES = [{"pixels": [1, 2]}, [3, 4], {"instances": [5, 6]}]  # the last two would be two items each


def test_each_query_of_a_file_is_drawn_by_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(f"{json.dumps(query)}\n" for query in QUERIES))
    calls = calls_of(file, None, 3000, 7)
    assert all(items_in(call) == 1 for call in calls)
    drawn = Counter(json.dumps(json.loads(bytes(call.body))["instances"][0]) for call in calls)
    assert set(drawn) == {json.dumps(query) for query in QUERIES}
    assert min(drawn.values()) > 900  # of 1,000 expected: four standard deviations
    assert calls_of(file, None, 3000, 7) == calls
    assert calls_of(file, None, 3000, 8) != calls


def test_a_file_with_one_query_is_sent_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "query.json"
    file.write_text(json.dumps(QUERIES[0]))
    assert [bytes(call.body) for call in calls_of(file, None, 2, 0)] == [file.read_bytes()] * 2


def test_a_pipeline_is_sent_no_query_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="body: must be said for a pipeline"):
        calls_of(None, None, 1, 0)
    (tmp_path / "q.jsonl").write_text("1\n{\n")
    with pytest.raises(BadInput, match=r"q\.jsonl:2: is no JSON"):
        calls_of(tmp_path / "q.jsonl", None, 1, 0)
