"""`mark feedback join`: where its lines go, and its one-line errors. Joins are tested in tests/serving/feedback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main
from mark.serving.feedback.log import FeedbackLog
from tests.serving.feedback.made import answer, feedback


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Write an answer into one log, and feedback on it an hour later into the other."""
    one, other = (FeedbackLog(tmp_path / name, 16_000_000) for name in ("one", "other"))
    one.answered([answer("a", 1000.0)])
    other.received([], [feedback("a")], 4600.0)
    one.close()
    other.close()
    return tmp_path


def test_lines_go_to_stdout_or_a_file(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = [str(logs / "one"), str(logs / "other")]
    assert main(["feedback", "join", *where]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["feedback"] == {"label": 7}
    assert main(["feedback", "join", *where, "--out", str(logs / "all.jsonl")]) == 0
    assert (logs / "all.jsonl").read_text() == out
    assert capsys.readouterr().out == ""


def test_feedback_past_the_horizon_is_counted(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "join", str(logs), "--horizon-s", "30m"]) == 0
    out, err = capsys.readouterr()
    assert (out, "0 observations" in err, "1 without an answer" in err) == ("", True, True)


def test_a_folder_without_a_log_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "join", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"mark: error: folder: no feedback log in it: {tmp_path}\n"


@pytest.mark.parametrize("name", ["x" * 5000, "/none/here"])
def test_a_folder_that_cannot_be_read_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "join", name]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mark: error: folder: cannot be read (")
    assert err.count("\n") == 1
