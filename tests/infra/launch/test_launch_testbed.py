"""The requests of a load on the testbed, and the conditions that it waits for first."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mark_infra.launch.launch_testbed import LoadOptions, TraceLoad, awaited, calls_of
from mark_infra.testbed.control_server import ControlServer
from mark_infra.testbed.testbed_folder import DAEMON, SETTINGS

from mark.domain.errors import BadInput, MarkError
from mark.models.items import items_in

# without the envelope the last two would be two items each
QUERIES = [{"pixels": [1, 2]}, [3, 4], {"instances": [5, 6]}]


def test_each_query_of_a_file_is_drawn_by_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(f"{json.dumps(query)}\n" for query in QUERIES))
    calls = calls_of(file, None, 3000, 7)
    assert all(items_in(call) == 1 for call in calls)
    drawn = Counter(json.dumps(json.loads(bytes(call.body))["instances"][0]) for call in calls)
    assert set(drawn) == {json.dumps(query) for query in QUERIES}
    assert min(drawn.values()) > 900  # 1,000 expected, less four standard deviations of them
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


class Starting:
    """A conductor that answers from `ready_s` on; waiting for it lets time pass."""

    def __init__(self, ready_s: float) -> None:
        self.ready_s, self.now_s, self.asked = ready_s, 100.0, 0

    def url(self) -> str | None:
        self.asked += 1
        return "http://there" if self.now_s >= self.ready_s else None

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def awaited(self, until_s: float | None) -> str | None:
        return awaited(self.url, until_s, unix_s=lambda: self.now_s, pause=self.pause)


@pytest.mark.parametrize(
    ("ready_s", "begin_at_s", "found"),
    [
        (100.0, None, True),
        (100.0, 50.0, True),  # the load itself is late
        (101.0, None, False),  # the start is now
        (101.0, 100.0, False),
        (101.0, 110.0, True),
        (120.0, 110.0, False),
    ],
)
def test_a_load_waits_for_its_conductor_until_it_begins(ready_s: float, begin_at_s: float | None, found: bool) -> None:
    conductor = Starting(ready_s)
    assert (conductor.awaited(begin_at_s) is not None) == found
    assert conductor.now_s <= max(100.0, (begin_at_s or 0.0) + 1.0)
    assert found or begin_at_s is None or conductor.asked > 1 or begin_at_s <= 100.0


FILE = """
[service]
name = "one"
slo_ms = 100
slo_attainment = 0.9
[stage.only]
model = "quick"
slo_ms = 100
"""


class WithoutConductor:
    """The daemon of a testbed whose conductor waits for instances; an instance behind the stage's gateway never
    answers."""

    def __init__(self) -> None:
        self.ends = threading.Event()
        self.asked = 0

    def status(self) -> dict[str, Any]:
        self.asked += 1
        return {"pipelines": {"one": None}, "services": {"one-only": "http://127.0.0.1:9"}, "fleet": []}

    def interrupt(self, share: float, seed: int) -> list[str]:
        raise NotImplementedError

    def set_capacity(self, offer: str, count: int) -> None:
        raise NotImplementedError


def test_a_load_that_was_to_begin_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(FILE)
    (tmp_path / "query.json").write_text("1")
    (tmp_path / SETTINGS).write_text(json.dumps({"services": [str(tmp_path / "one.toml")], "time_scale": 1.0}))
    daemon = WithoutConductor()
    with ControlServer(daemon, "s3cret") as server:
        said = {"pid": 1, "url": server.url, "token": "s3cret", "endpoint": "http://here"}
        (tmp_path / DAEMON).write_text(json.dumps(said))
        query = tmp_path / "query.json"
        options = LoadOptions(trace="synthetic:poisson", state=tmp_path, duration_s=1.0, body=query, begin_at=0.0)
        with pytest.raises(BadInput, match="more than 10,000,000 requests to send"):
            TraceLoad(replace(options, scale=1e6))
        load = TraceLoad(options)
        with pytest.raises(MarkError, match="one: nothing answers yet, since a stage has no instance"):
            load.send(None)
    assert daemon.asked == 2
