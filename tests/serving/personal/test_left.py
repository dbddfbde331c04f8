"""The observations that servers left in journals and snapshots: each once, and without deleted keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mark.personal.rewards_replay import LoggedRewards
from mark.personal.settings import PersonalSettings
from mark.serving.learned.facts import Fact, line_of
from mark.serving.learned.journal import Journals
from mark.serving.learned.shared import Shared
from mark.serving.personal.left import observations_left
from mark.serving.personal.notes import HeadFact, key_name
from mark.serving.personal.served import PersonalServing
from tests.personal.logs import low_rank_log
from tests.serving.personal.made import heads, items, write_journal


def served() -> PersonalServing:
    return PersonalServing(PersonalSettings(table="songs.npz"), "v", items())


def log_of_songs() -> LoggedRewards:
    log = low_rank_log(keys=5, items=50, rows=60)
    return replace(log, item_names=items().ids)


def test_facts_of_a_snapshot_and_of_all_journals_are_read_once(tmp_path: Path) -> None:
    log = log_of_songs()
    write_journal(tmp_path, log)
    write_journal(tmp_path, log, "2")
    shared = Shared(heads(table=True), 0, 0)
    shared.take(Journals(tmp_path).facts())
    (tmp_path / "1" / "learned.snapshot").write_bytes(shared.snapshot().to_bytes())
    (tmp_path / "1" / "learned-00000001.jsonl").unlink()

    found = observations_left(tmp_path, served())

    assert len(found) == 2 * len(log), "each of two writers once"
    expected = sorted((key_name(log.key_names[key]), reward) for key, reward in zip(log.keys, log.rewards, strict=True))
    assert sorted((one.key, one.reward) for one in found)[::2] == expected
    assert {one.item for one in found} == {log.item_names[item] for item in log.items}
    assert min(one.at_s for one in found) == 1e9


def test_deleted_key_has_no_observation(tmp_path: Path) -> None:
    write_journal(tmp_path, log_of_songs())
    gone = key_name("u3")
    with (tmp_path / "1" / "learned-00000002.jsonl").open("wb") as file:
        file.write(line_of(Fact("w1", 61, 2e9, "d", HeadFact(gone, 2e9).to_json())))

    found = observations_left(tmp_path, served())

    assert 0 < len(found) < 60
    assert gone not in {one.key for one in found}


def test_empty_folder_has_none(tmp_path: Path) -> None:
    assert observations_left(tmp_path, served()) == []
