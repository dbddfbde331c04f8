"""stdout has the result only, in valid JSON if requested."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest

from mark.cli import output
from mark.cli.output import (
    CountingShown,
    ReadingShown,
    cores,
    deliver,
    json_text,
    progress,
    progress_clock,
    write_file,
)
from mark.domain.errors import BadInput
from mark.studies.report.report import DataTable, Marked, Report


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Iterator[Clock]:
    """Replace the clock of progress."""
    clock = Clock()
    before = progress_clock.set(clock)
    yield clock
    progress_clock.reset(before)


def test_undefined_numbers_become_null_and_numpys_become_plain() -> None:
    data = {"nan": float("nan"), "inf": [np.float64("inf")], "n": np.int64(3), "ok": True, "none": None}
    assert json.loads(json_text(data)) == {"nan": None, "inf": [None], "n": 3, "ok": True, "none": None}


def test_json_to_stdout_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(Report({"schema": 1}, "a headline"), "-")
    assert json.loads(capsys.readouterr().out) == {"schema": 1}


def test_json_to_a_file_leaves_the_table_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deliver(Report({"schema": 1}, "a headline"), str(tmp_path / "r.json"))
    assert capsys.readouterr().out == "a headline\n"
    assert json.loads((tmp_path / "r.json").read_text()) == {"schema": 1}


def test_piped_tables_are_plain_text_without_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    table = DataTable(("policy", ("bill", "${:.2f}".format)), [(Marked("a", "missed"), 1.0)])
    deliver(Report({}, parts=[table]), None)
    assert capsys.readouterr().out == "\npolicy  bill\na      $1.00\n\n"


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_file(str(tmp_path), "x", "--json")


def test_a_log_that_is_gone_does_not_end_the_work(now: Clock) -> None:
    closed = io.StringIO()
    closed.close()
    with progress("x") as tell, redirect_stderr(closed):
        now.s = 11.0
        tell(0.5)


def test_progress_into_a_pipe_is_a_line_after_one_second_and_every_ten(
    now: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_TICK_S", 60.0)
    with progress("simulating") as tell:
        for share in (0.1, 0.2, 0.3, 0.4, 0.5):
            tell(share)
            now.s += 6.0
    assert capsys.readouterr() == ("", "simulating: 20 %\nsimulating: 40 %\n")


def test_progress_is_shown_before_the_work_reports_any(now: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the kernel takes longer than a reader waits for a sign of life."""
    said = io.StringIO()
    monkeypatch.setattr(output, "_TICK_S", 0.001)
    with redirect_stderr(said), progress("comparing"):
        now.s += 3.0
        for _ in range(10_000_000):
            if said.getvalue():
                break
    assert said.getvalue() == "comparing, 3 s\n"


def test_reading_says_bytes_and_rate_every_ten_seconds(now: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ReadingShown()
    for megabytes in (0, 100, 200, 300, 400):
        shown(megabytes * 1_000_000, 1_000_000_000)
        now.s += 6.0
    shown(7_000_000, 0)  # another file starts another ten seconds
    now.s += 11.0
    shown(77_000_000, 0)
    assert capsys.readouterr() == (
        "",
        "reading 100 of 1,000 MB, 17 MB/s\nreading 300 of 1,000 MB, 17 MB/s\nreading 77 MB, 7 MB/s\n",
    )


def test_counting_names_its_types_once_and_then_says_how_many_are_done(
    now: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, types = CountingShown(), ["c7i.large", "m7i.large", "t3.small"]
    for done in (0, 1, 2, 3):  # the first is too soon for a line
        shown(done, types)
        now.s += 10.0
    for _ in range(2):  # for another policy; nothing is said of a type that is named and a count of 0 or of all
        now.s += 11.0
        shown(0, types[:1])
        shown(1, types[:1])
    shown(0, ["g6.xlarge"])
    assert capsys.readouterr() == (
        "",
        "counting late shares of c7i.large, m7i.large, t3.small\n"
        "late shares: 2 of 3 types counted\n"
        "counting late shares of g6.xlarge\n",
    )


def test_a_short_reading_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ReadingShown()(1000, 1000)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("asked", "processes"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_processes_are_as_many_as_asked_for(asked: str, processes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise there are as many as this process may use."""
    monkeypatch.setenv("PYTHON_CPU_COUNT", asked)
    assert cores() == (processes or len(os.sched_getaffinity(0)))
