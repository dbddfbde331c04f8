"""The journal: entries survive a crash, and old files are deleted only after a snapshot has their facts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mark.serving.learned.facts import line_of
from mark.serving.learned.journal import Journal, Journals
from mark.serving.learned.shared import Shared
from tests.serving.learned.made import Tally, fact


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "1"
    own.mkdir()
    return own


def numbers(folder: Path) -> list[int]:
    return [one.number for one in Journals(folder.parent).facts()]


def snapshot(*taken: int) -> bytes:
    shared = Shared(Tally(), 10**6, 10**6)
    shared.take(fact("a", number) for number in taken)
    return shared.snapshot().to_bytes()


def test_appended_facts_are_read_by_the_next_process(folder: Path) -> None:
    """It reads all folders, without a line that a crash has cut off."""
    journal = Journal(folder, 0)
    journal.append([fact("a", 1), fact("a", 2)])
    journal.append([])
    (folder.parent / "2").mkdir()
    Journal(folder.parent / "2", 0).append([fact("b", 3)])
    with (folder / "learned-00000001.jsonl").open("ab") as file:
        file.write(line_of(fact("a", 9))[:-1])
    Journal(folder, 0).append([fact("c", 4)])
    found = Journals(folder.parent)
    assert [(one.writer, one.number) for one in found.facts()] == [("a", 1), ("a", 2), ("c", 4), ("b", 3)]
    assert found.unreadable == 1


def test_old_files_go_once_a_snapshot_has_their_facts(folder: Path) -> None:
    """Facts that arrive during the snapshot stay, and so do those under way, which it may lack."""
    journal = Journal(folder, 0)
    journal.append([fact("a", 1), fact("a", 2)])
    journal.rotate()
    journal.append([fact("a", 3)])
    journal.keep(snapshot(1), [fact("a", 2)])
    assert sorted(numbers(folder)) == [2, 3]
    (found,) = Journals(folder.parent).snapshots()
    assert found.vector.has("a", 1)
    journal.append([fact("a", 4)])
    assert sorted(numbers(folder)) == [2, 3, 4]


def test_the_latest_files_are_kept_for_peers_that_lag(folder: Path) -> None:
    journal = Journal(folder, 3 * len(line_of(fact("a", 1))))
    for number in range(1, 7):
        journal.append([fact("a", number)])
        journal.rotate()
    assert journal.since_snapshot_bytes == 0
    journal.keep(snapshot(*range(1, 7)), [])
    assert numbers(folder) == [4, 5, 6]


def test_the_fullest_snapshot_comes_first_and_a_damaged_one_is_passed_over(folder: Path) -> None:
    for place, taken in (("1", (1,)), ("2", (1, 2, 3)), ("3", (1, 2))):
        (folder.parent / place).mkdir(exist_ok=True)
        Journal(folder.parent / place, 0).keep(snapshot(*taken), [])
    path = folder.parent / "3" / "learned.snapshot"
    path.write_bytes(path.read_bytes()[:-1])
    found = Journals(folder.parent).snapshots()
    assert [one.vector.writers["a"].through for one in found] == [3, 1]


def test_facts_whose_write_failed_are_written_to_another_file(folder: Path) -> None:
    journal = Journal(folder, 0)
    journal.append([fact("a", 1)])
    read_only = os.open(os.devnull, os.O_RDONLY)
    good, journal._open = journal._open, read_only
    with pytest.raises(OSError, match="Bad file descriptor"):
        journal.append([fact("a", 2)])
    journal.append([fact("a", 2)])
    assert numbers(folder) == [1, 2]
    assert len(list(folder.glob("learned-*.jsonl"))) == 2
    assert good is not None
    os.close(good)


def test_files_are_for_the_servers_user_only(folder: Path) -> None:
    journal = Journal(folder, 0)
    journal.append([fact("a", 1)])
    journal.keep(snapshot(1), [])
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_data_aside_of_the_last_process_are_read(folder: Path) -> None:
    journals = Journals(folder.parent)
    assert journals.aside() is None
    (folder.parent / "2").mkdir()
    for number, name in enumerate(("2", "1")):
        Journal(folder.parent / name, 0).put_aside(name.encode())
        os.utime(folder.parent / name / "learned.aside", (number, number))
    assert journals.aside() == b"1"
