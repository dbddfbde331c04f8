"""stdout belongs to the result, JSON to JSON."""

import io
import json
import os
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest

from mark.cli.output import cores, deliver, json_text, progress, write_file
from mark.domain.errors import BadInput
from mark.reporting.layout import columns, text


def test_undefined_numbers_become_null_and_numpys_become_plain() -> None:
    data = {"nan": float("nan"), "inf": [np.float64("inf")], "n": np.int64(3), "ok": True, "none": None}
    assert json.loads(json_text(data)) == {"nan": None, "inf": [None], "n": 3, "ok": True, "none": None}


def test_json_to_stdout_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    deliver({"schema": 1}, "-", lambda: pytest.fail("the table was made"))
    assert json.loads(capsys.readouterr().out) == {"schema": 1}


def test_json_to_a_file_leaves_the_table_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deliver({"schema": 1}, str(tmp_path / "r.json"), lambda: text("a table"))
    assert capsys.readouterr().out == "a table\n"
    assert json.loads((tmp_path / "r.json").read_text()) == {"schema": 1}


def test_piped_tables_are_plain_text_without_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    table = columns("policy", "bill")
    table.add_row(text("a", "bold red"), "$1.00")
    deliver({}, None, lambda: table)
    assert capsys.readouterr().out == "policy  bill\na      $1.00\n"


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_file(str(tmp_path), "x", "--json")


def test_without_a_terminal_progress_is_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.0, 9.9, 10.0, 15.0, 19.9, 20.5])
    with progress("comparing", clock=lambda: next(times)) as tell:
        for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            tell(share)
    assert capsys.readouterr() == ("", "mark: comparing, 30% done\nmark: comparing, 60% done\n")


def test_a_log_that_is_gone_does_not_end_the_work() -> None:
    closed = io.StringIO()
    closed.close()
    times = iter([0.0, 10.0])
    with progress("x", clock=lambda: next(times)) as tell, redirect_stderr(closed):
        tell(0.5)


@pytest.mark.parametrize(("asked", "processes"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_processes_are_as_many_as_asked_for(asked: str, processes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else as many as the process may use."""
    monkeypatch.setenv("PYTHON_CPU_COUNT", asked)
    assert cores() == (processes or len(os.sched_getaffinity(0)))
