"""`mark torture`: its table, its JSON, and what is refused in one line."""

from __future__ import annotations

import json

import pytest

from mark.cli.main import main


def test_it_tells_coverage_and_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["torture", "--seeds", "1", "--hours", "2.5", "--seed", "3", "--jobs", "1"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "seeds: 1, " in out
    assert "none broken" in out
    assert main([*asked, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seeds"], found["failed"], found["story"]) == (1, [], None)
    assert found["coverage"].keys() >= {"crash", "pause"}
    assert {"fault": "silent", "state": "none ready"}.items() <= found["impossible"][0].items()


def test_hours_without_room_for_faults_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torture", "--hours", "1"]) == 2
    assert "must lie between 2.5 and 720" in capsys.readouterr().err
