"""`mark torture`: its table, its JSON, and its one-line refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main


def test_it_tells_coverage_and_writes_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert main(["torture", "--seeds", "1", "--hours", "2.5", "--seed", "3", "--jobs", "1", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "seeds: 1, " in out
    assert "none broken" in out
    found = json.loads(file.read_text())
    assert (found["seeds"], found["failed"], found["story"]) == (1, [], None)
    assert found["coverage"].keys() >= {"crash", "pause"}
    assert {"fault": "silent", "state": "none ready"}.items() <= found["impossible"][0].items()


def test_hours_without_room_for_faults_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torture", "--hours", "1"]) == 2
    assert "must lie between 2.5 and 720" in capsys.readouterr().err
