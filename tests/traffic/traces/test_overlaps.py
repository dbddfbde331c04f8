"""Requests that occur in two files of a folder are found, whatever the files' names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from tests.traffic.traces.files import alb_line, written

LINES = [alb_line(k + k * 7919 % 997 / 1e3) for k in range(400)]


def test_a_log_that_was_copied_before_it_was_cut_overlaps(tmp_path: Path) -> None:
    written(tmp_path, "".join(LINES[:220]), "access.log.1")
    written(tmp_path, "".join(LINES[200:]), "access.log")
    with pytest.raises(BadInput, match=r"access.log: its first requests stand in access.log.1, too: .* a pattern"):
        open_trace(str(tmp_path))
    assert open_trace(str(tmp_path / "access*")).rows == 420


def test_the_sum_of_logs_beside_them_overlaps(tmp_path: Path) -> None:
    written(tmp_path, "".join(LINES[:200]), "monday.log.gz")
    written(tmp_path, "".join(LINES[200:]), "tuesday.log")
    written(tmp_path, "".join(LINES), "all.log")
    with pytest.raises(BadInput, match="its first requests stand in"):
        open_trace(str(tmp_path))


def test_two_equal_lines_are_no_overlap(tmp_path: Path) -> None:
    """Two nodes may answer the same health check in the same second."""
    written(tmp_path, "".join(LINES[:200]), "node1.log")
    written(tmp_path, "".join([*LINES[198:200], *LINES[300:]]), "node2.log")
    assert open_trace(str(tmp_path)).rows == 302


def test_equal_lines_of_start_up_are_no_overlap(tmp_path: Path) -> None:
    fields = "#Software: IIS\n#Version: 1.0\n#Date: 2026-05-01\n#Fields: date time cs-method sc-status\n"
    for node, second in (("a", 0), ("b", 1)):
        rows = "".join(f"2026-05-01 10:{i // 30:02}:{2 * (i % 30) + second:02} GET 200\n" for i in range(200))
        written(tmp_path, fields + rows, f"{node}.log")
    assert open_trace(str(tmp_path)).rows == 400


def test_tables_of_the_same_times_are_not_joined(tmp_path: Path) -> None:
    for name, offset in (("a.csv", 0), ("b.csv", 30)):
        rows = "".join(f"2026-05-01T10:{i:02}:{offset:02}Z,{100 + i * 7 % 11}\n" for i in range(40))
        written(tmp_path, "time,requests\n" + rows, name)
    with pytest.raises(BadInput, match=r"a.csv and b.csv hold rows of the same time: .*`series` sum"):
        open_trace(str(tmp_path))
