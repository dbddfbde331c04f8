"""`mark personal retrain`: the table becomes a version, the alias moves if it is better, and servers follow it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.cli.main import main
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.launch.personal_serving import personal_serving
from mark.models.registry import Registry
from mark.models.registry_place import open_registry
from mark.personal.table import ItemTable
from tests.personal.logs import low_rank_log
from tests.serving.personal.made import FILE, TABLE_FILE, write_journal

TRAIN = """
import csv, os
import numpy as np
rows = list(csv.DictReader(open(os.environ["MARK_RATINGS"])))
assert set(rows[0]) == {"user", "item", "rating", "t_seconds"}
with np.load(os.environ["MARK_TABLE"]) as present:
    np.savez(os.environ["MARK_OUT"], ids=present["ids"], vectors=present["vectors"] * 1e-6)
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a service with a table of random vectors, and the facts that a server has learned."""
    monkeypatch.delenv("MARK_REGISTRY", raising=False)
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    log = low_rank_log()
    vectors = np.random.default_rng(3).normal(size=(len(log.item_names), 4)).astype(np.float32)
    np.savez(tmp_path / "songs.npz", ids=np.array(log.item_names), vectors=vectors)
    (tmp_path / "songs.toml").write_text(TABLE_FILE)
    write_journal(tmp_path / "feedback", log)
    return tmp_path


def retrained(place: Path, capsys: Captured, *options: str) -> dict[str, Any]:
    assert main(["personal", "retrain", str(place / "songs.toml"), "--json", "-", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def registry(place: Path) -> Registry:
    return open_registry(str(place / ".mark-registry"))


def serve_alias(place: Path) -> None:
    text = (place / "songs.toml").read_text().replace("songs.npz", "registry:songs-table@production")
    (place / "songs.toml").write_text(text)


def served_table(place: Path) -> ItemTable:
    serving = personal_serving(load_pipeline(str(place / "songs.toml"), heads_alone=True), {})
    assert serving is not None
    assert serving.table is not None
    return serving.table


def test_better_table_is_registered_and_promoted_and_the_next_one_is_not(place: Path, capsys: Captured) -> None:
    found = retrained(place, capsys)

    assert (found["promoted"], found["why_not"], found["alias"]) == (True, None, "production")
    assert (found["keys"], found["trained"], found["judged"], found["metric"]) == (40, 1280, 320, "rmse")
    assert found["new"]["error"] < found["present"]["error"]
    assert 0.0 < found["gain"]["all"]["low"] < found["gain"]["all"]["mean"]
    version = registry(place).find("songs-table", "production")
    assert found["new"]["version"] == str(version)
    assert version.content.metrics == {"rmse": found["new"]["error"], "rmse_before": found["present"]["error"]}
    assert found["present"]["version"].endswith(str(version.content.parent)[:12])

    serve_alias(place)
    again = retrained(place, capsys)

    assert (again["promoted"], again["why_not"]) == (False, "it is the present table")
    assert again["present"]["version"] == found["new"]["version"]


def test_servers_follow_the_alias_and_its_roll_back(place: Path, capsys: Captured) -> None:
    file = served_table(place)
    retrained(place, capsys)
    serve_alias(place)
    new = served_table(place)

    assert new.ids == file.ids
    assert new.dimension != file.dimension
    assert main(["models", "rollback", "songs-table", "production", "--registry", str(place / ".mark-registry")]) == 0
    assert served_table(place).vectors.tolist() == file.vectors.tolist()


def test_own_command_trains_and_a_table_that_is_not_proved_better_is_kept_beside(place: Path, capsys: Captured) -> None:
    (place / "train.py").write_text(TRAIN)
    command = f'[personal.retrain]\ncommand = ["{sys.executable}", "train.py"]\nmetric = "mae"\n'
    (place / "songs.toml").write_text(TABLE_FILE + command)
    assert main(["personal", "retrain", str(place / "songs.toml"), "--name", "other", "--held-out", "0.02"]) == 0
    out = capsys.readouterr().out

    assert "Not promoted: the rewards do not prove that its error is lower." in out
    assert 'write table = "registry:other@production"' in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    versions = registry(place).versions("other")
    assert len(versions) == 2
    assert registry(place).find("other", "production").content.parent is None, "the present one stays"


@pytest.mark.parametrize(
    ("retrain", "options", "message"),
    [
        ('command = ["false"]\nmetric = "rmse"', [], "[personal.retrain] command: ended with exit code 1: false"),
        ('command = ["true"]\nmetric = "rmse"', [], "wrote no table to the path in MARK_OUT: true"),
        ('command = ["no-such-program"]\nmetric = "rmse"', [], "cannot be started (No such file or directory)"),
        ("", ["--held-out", "0"], "--held-out: leaves no observation to judge: 0"),
        ("", ["--held-out", "1"], "--held-out: leaves no observation to train: 1"),
        ("", ["--log", "none"], "--log: no such folder: none"),
        ("", ["--name", "no/name"], "name: must be 1 to 63 letters"),
    ],
)
def test_what_cannot_be_is_one_line(
    place: Path, capsys: Captured, retrain: str, options: list[str], message: str
) -> None:
    section = f"[personal.retrain]\n{retrain}\n" if retrain else ""
    (place / "songs.toml").write_text(TABLE_FILE + section)
    assert main(["personal", "retrain", str(place / "songs.toml"), *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_logistic_loss_and_stages_and_few_observations_are_refused(place: Path, capsys: Captured) -> None:
    file = place / "songs.toml"
    write_journal(place / "clicks", replace(low_rank_log(), rewards=np.ones(1600)))
    for text, message in (
        (TABLE_FILE + 'loss = "logistic"\n', "needs a command with loss 'logistic'"),
        (TABLE_FILE.replace("songs.npz", "registry:songs-table@sha256:abcdef0"), "names one version for ever"),
        (FILE.partition("[feedback]")[0], "has no section [personal]"),
        (FILE, "[personal] retrain: needs a command, because mark trains no model"),
    ):
        file.write_text(text)
        assert (
            main(["personal", "retrain", str(file), *(["--log", str(place / "clicks")] if "loss" in text else [])]) == 2
        )
        assert message in capsys.readouterr().err
    file.write_text(TABLE_FILE)
    write_journal(place / "few", low_rank_log(rows=99))
    assert main(["personal", "retrain", str(file), "--log", str(place / "few")]) == 2
    assert "has 99 observations: 100 are needed at least" in capsys.readouterr().err


def test_alias_of_another_table_than_the_file_is_not_moved(place: Path, capsys: Captured) -> None:
    retrained(place, capsys)

    assert main(["personal", "retrain", str(place / "songs.toml")]) == 2, "the file is still the old table"
    assert 'write table = "registry:songs-table@production"' in capsys.readouterr().err


def test_model_in_the_place_of_a_table_is_bad_input(place: Path) -> None:
    (place / "model.bin").write_bytes(b"x")
    registry(place).register("songs-table", "torch:model.bin", {"model.bin": place / "model.bin"}, alias="production")
    serve_alias(place)

    with pytest.raises(BadInput, match=r"names a model \(torch:model.bin\), and no table"):
        served_table(place)
