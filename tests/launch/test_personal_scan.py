"""A scan finds a key in each place of a service's data, and in none after its deletion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main
from mark.launch.personal_scan import scan_key
from tests.serving.personal.made import FILE, Songs, place
from tests.serving.test_server_process import served

STORED = FILE.replace('log = "feedback"', 'log = "feedback"\nstore = "store"\ndurability = "store"')


def test_scan_finds_a_key_in_memory_files_and_store_and_not_after_its_deletion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    file = str(place(tmp_path, STORED) / "songs.toml")
    with served(tmp_path, service="songs.toml") as (_, url), Songs(url) as songs:
        for key in ("gone", "kept"):
            songs.predict(0.5, key)
            songs.feedback({"id": f"x-{key[0]}", "key": key, "input": 0.7, "reward": 4.0})
        command = ["personal", "scan", "gone", "--service", file, "--address", url, "--json", "-"]
        assert main(command) == 1
        found = json.loads(capsys.readouterr().out)
        kinds = {one["what"] for one in found["found"]}
        assert kinds >= {"learned facts", "lines of the feedback log", "observations in memory"}
        songs.http.delete("/keys/gone")
        assert main(command) == 1, "objects of the store expire"
        found = json.loads(capsys.readouterr().out)
        assert all("/store/learned/songs/" in one["where"] for one in found["found"])
        assert main(["personal", "scan", "gone", "--log", str(tmp_path / "feedback"), "--address", url]) == 0
        assert "gone: nothing in" in capsys.readouterr().out
        assert main(["personal", "scan", "kept", "--log", str(tmp_path / "feedback"), "--address", url]) == 1
        assert main(["personal", "show", "kept", "--address", url]) == 0
        assert "kept: 1 observations" in capsys.readouterr().out
        assert main(["personal", "show", "--address", url]) == 0
        assert "mean squared error" in capsys.readouterr().out
        assert main(["personal", "show", "gone", "--address", url]) == 2
        assert "knows nothing of this key" in capsys.readouterr().err


def test_scan_of_a_missing_folder_and_of_no_place_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["personal", "scan", "u", "--log", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["personal", "scan", "u"]) == 2
    assert "names no place to look at" in capsys.readouterr().err


def test_folder_without_a_feedback_log_and_an_empty_key_are_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clicks.csv").write_text("user,item,rating\nu42,s1,3\n")
    assert main(["personal", "scan", "u42", "--log", str(tmp_path)]) == 2
    assert "--log: holds no feedback log" in capsys.readouterr().err
    assert main(["personal", "scan", "", "--log", str(tmp_path)]) == 2
    assert "KEY: must not be empty" in capsys.readouterr().err


def test_line_that_cannot_be_read_is_searched_as_text(tmp_path: Path) -> None:
    (tmp_path / "feedback-00000001.jsonl").write_text('{"id": "a", "feedback": {"key": "u42", "rew')
    assert [one.count for one in scan_key("u42", [tmp_path]).found] == [1]
    assert scan_key("u4", [tmp_path]).found == []
