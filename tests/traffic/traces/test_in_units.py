"""Traces in tokens, and requests with sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.service import ServiceConfig
from mark.traffic.traces.in_units import counted_in, resized
from mark.traffic.traces.info import trace_info
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.table_files import RECOGNISED, TableColumns
from mark.traffic.traces.trace import Trace

TOKENS = replace(load_service("nasnet"), source="chat.toml", unit=LoadUnit("tokens", 500.0), tail=2.0)
SIZED = "t_seconds,prompt,answer\n0,300,100\n3,500,100\n3.5,700,300\n12,0,0\n"


def read(folder: Path, text: str, columns: TableColumns = RECOGNISED) -> Trace:
    path = folder / "trace.csv"
    path.write_text(text)
    return open_trace(str(path), columns=columns)


def counted(folder: Path, text: str, size: str | None = None, service: ServiceConfig = TOKENS) -> Trace:
    return counted_in(read(folder, text, TableColumns(size=size)), service)


def test_counts_of_tokens_become_requests_of_the_mean_size(tmp_path: Path) -> None:
    trace = counted(tmp_path, "t_seconds,count\n0,30000\n60,60000\n")
    assert trace.total_counts(0.0, 120.0) == pytest.approx(180.0)
    assert trace.load(0.0, 120.0).mean_rps == pytest.approx([1.0, 2.0])
    drawn = sum(len(times) for times, _ in trace.chunks(0.0, 120.0, 10.0, seed=1))
    assert drawn == pytest.approx(1800, abs=5 * 1800**0.5)
    assert trace.read == "read 90,000 tokens in 2 minutes, 750/s, every 60 s"


def test_trace_of_requests_is_the_same_object(tmp_path: Path) -> None:
    trace = read(tmp_path, "t_seconds,count\n0,3\n60,5\n")
    assert counted_in(trace, load_service("nasnet")) is trace


def test_requests_with_sizes_keep_their_times(tmp_path: Path) -> None:
    trace = counted(tmp_path, SIZED, "prompt+answer")
    assert (trace.kind, trace.duration_s) == ("arrivals", 60.0)
    ((times, _),) = trace.chunks(0.0, 60.0)
    assert times.tolist() == [0.0, 3.0, 3.5, 12.0]
    assert trace.read == ("read 2,000 tokens in 60 s, 33.3/s; a row is a request, its size in 'prompt+answer'")


def test_larger_requests_of_a_time_count_more_often() -> None:
    random = np.random.default_rng(3)
    sizes = np.concatenate([random.gamma(2.0, 100.0, 5000), random.gamma(2.0, 300.0, 5000)])
    times = np.arange(10_000.0)
    found = resized(times, sizes, 400.0)
    assert np.all(np.diff(found) >= 0.0)
    for begin in range(0, 10_000, 1000):
        within = (found >= begin) & (found < begin + 1000.0)
        assert within.sum() == pytest.approx(sizes[begin : begin + 1000].sum() / 400.0, abs=1.0)
    assert resized(times, np.full(10_000, 7.0), 7.0).tolist() == times.tolist()


def test_trace_info_gives_the_settings_of_sizes(tmp_path: Path) -> None:
    info = trace_info(read(tmp_path, SIZED, TableColumns(size="prompt+answer")))
    assert (info["requests"], info["units"], info["unit_size"]) == (4, 2000.0, 500.0)
    assert info["tail"] > 1.0
    assert "4 requests in" in info["read"]


def test_notes_name_sizes_that_the_service_file_does_not_have(tmp_path: Path) -> None:
    notes = counted(tmp_path, SIZED, "prompt").notes
    assert "a request of this trace has 375 tokens, unit_size says 500" in notes
    assert any(note.startswith("sizes of this trace scatter as tail = ") and "tail says 2" in note for note in notes)
    assert "the load is counted as requests of 500 tokens on average; shares in time are of requests" in notes


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("t_seconds,count\n0,5\n60,7\n", "tokens", "size_column: no such column in .*trace.csv: there are count"),
        ("t_seconds,tokens\n0,5\n1,-7\n2,8\n", "tokens", "trace.csv line 3: a size is negative: -7"),
        (
            "t_seconds,tokens\n0,5\n1,many\n2,8\n",
            "tokens",
            "1 of 3 lines cannot be read, the first is line 3, no number",
        ),
        ("t_seconds,tokens\n0,5\n1,\n2,8\n", "tokens", "1 of 3 lines cannot be read, the first is line 3, no number"),
        ("t_seconds,a,b\n0,5,1\n1,,1\n2,8,1\n", "a+b", "1 of 3 lines cannot be read, the first is line 3, no number"),
        ("t_seconds,tokens\n0,0\n1,0\n", "tokens", "no size is above zero"),
        ("t_seconds,tokens\n0,high\n1,low\n", "tokens", "size_column: holds no numbers"),
        (
            "t_seconds,tokens\n0,5\n1,7\n",
            None,
            "requests without sizes, and chat.toml counts tokens: name the",
        ),
    ],
)
def test_sizes_that_cannot_be_counted_are_refused(tmp_path: Path, text: str, size: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        counted(tmp_path, text, size)


def test_sizes_are_refused_for_a_service_of_requests(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"size_column: .*needs `unit` and `unit_size` \(mean here 375\)"):
        counted(tmp_path, SIZED, "prompt", load_service("nasnet"))


def test_sizes_and_counts_of_one_table_exclude_each_other() -> None:
    with pytest.raises(BadInput, match="size_column: needs one row a request"):
        TableColumns(count="requests", size="tokens")
