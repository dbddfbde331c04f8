"""Requests that occur in two files of a folder are found, whatever the files' names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.blocks import _BLOCK
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


def stamped(k: int, client: int = 0) -> str:
    at = f"{10 + k // 3600}:{k // 60 % 60:02}:{k % 60:02}"
    return f'10.0.{client}.{k * 37 % 251} - - [01/May/2026:{at} +0000] "GET /p HTTP/1.1" 200 {k}\n'


WEB = [stamped(k) for k in range(400)]
COPIES = {
    "whole": ("".join(WEB * 2), 401, 1, 800, "line"),
    "from the middle": ("".join(WEB + WEB[150:]), 401, 151, 650, "line"),
    "before later lines": ("".join([*WEB[:200], *WEB[100:]]), 201, 101, 500, "line"),
    "W3C": (
        "#Fields: date time sc-bytes\n"
        + 2 * "".join(f"2026-05-01 10:{k // 60:02}:{k % 60:02} {k}\n" for k in range(300)),
        302,
        2,
        600,
        "time",
    ),
    "objects": (
        2
        * "".join(
            f'{{"time":"2026-05-01T10:{k // 60:02}:{k % 60:02}Z","status":200,"n":{k % 50}}}\n' for k in range(300)
        ),
        301,
        1,
        600,
        "time",
    ),
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("case", COPIES)
def test_a_copy_that_was_appended_is_found(tmp_path: Path, case: str, packed: str) -> None:
    text, line, first, both, field = COPIES[case]
    path = written(tmp_path, text, f"access.log{packed}")
    with pytest.raises(BadInput, match=rf"line {line}: repeats its lines from line {first} on, .* {field}=\* for both"):
        open_trace(path)
    assert open_trace(path, log_filter=(field, "*")).rows == both


def test_a_copy_is_found_across_blocks(tmp_path: Path) -> None:
    """The lines that the copy repeats are in two blocks of the file."""
    lines = [f"{stamped(k).rstrip():<599}\n" for k in range(15_000)]
    begins = _BLOCK // 600 - 3
    path = written(tmp_path, "".join(lines + lines[begins:]), "access.log")
    with pytest.raises(BadInput, match=f"line 15001: repeats its lines from line {begins + 1} on"):
        open_trace(path)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("".join(WEB + [stamped(k, client=1) for k in range(400)]), 800),  # two nodes, one behind the other
        ("".join([*WEB[:300], *WEB[10:12], *WEB[300:]]), 402),  # two requests that took minutes
        ("".join([*WEB[100:], *WEB[:100]]), 400),  # rotated files, the newer first
    ],
)
def test_steps_back_without_a_copy_ask_nothing(tmp_path: Path, text: str, rows: int) -> None:
    assert open_trace(written(tmp_path, text, "access.log")).rows == rows


def test_slow_requests_do_not_hide_a_copy(tmp_path: Path) -> None:
    """The line of a request that took a minute steps back alone."""
    lines = []
    for k in range(90, 400):
        lines += [WEB[k], stamped(k - 80, client=2)] if k % 20 == 0 else [WEB[k]]
    path = written(tmp_path, "".join(lines + lines[50:]), "access.log")
    with pytest.raises(BadInput, match=rf"line {len(lines) + 1}: repeats its lines from line 51 on"):
        open_trace(path)
