"""Lines of a file are changed or removed, whole and durably, and folders of ended processes are found."""

from __future__ import annotations

import fcntl
from pathlib import Path

from mark.serving.feedback.rewriting import left_folders, rewrite_lines


def test_lines_are_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"keep\nremove\nchange\n")
    change = {b"keep\n": b"keep\n", b"remove\n": b"", b"change\n": b"changed\n"}
    size = rewrite_lines(path, change.__getitem__)
    assert path.read_bytes() == b"keep\nchanged\n"
    assert size == len(b"keep\nchanged\n")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.jsonl"]


def test_file_without_a_changed_line_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    before = path.stat().st_ino
    assert rewrite_lines(path, lambda line: line) == 8
    assert path.stat().st_ino == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.jsonl"]


def test_line_that_was_cut_off_is_removed(tmp_path: Path) -> None:
    """It may be about the user to erase, and it cannot be parsed."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ncut o")
    rewrite_lines(path, lambda line: line)
    assert path.read_bytes() == b"one\n"


def test_folders_that_a_process_holds_are_not_left(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    with (tmp_path / "1" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [one.name for one in left_folders(tmp_path)] == ["2"]
