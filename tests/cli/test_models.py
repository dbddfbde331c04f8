"""`mark models`: its output for people and scripts, and its errors."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from mark.cli.main import main

RANKER = "import mark\n\n\n@mark.model\ndef Ranker(batch):\n    return [{}] * len(batch)\n"
Captured = pytest.CaptureFixture[str]
PROFILE = "model,instance,batch,latency_ms\nranker:Ranker,c7i.large,1,{one}\nranker:Ranker,c7i.large,8,{eight}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARK_REGISTRY", raising=False)
    Path("ranker.py").write_text(RANKER.format(1))
    return tmp_path


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model in its registry, in production; a process of its own registers it."""
    folder = tmp_path_factory.mktemp("registered")
    (folder / "ranker.py").write_text(RANKER)
    with chdir(folder), redirect_stdout(StringIO()):
        words = ["--name", "ranker", "--files", "*.py", "--alias", "production"]
        assert main(["models", "register", "ranker:Ranker", *words]) == 0
    return folder


def said(capsys: Captured, *words: str) -> Any:
    capsys.readouterr()
    assert main(["models", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def register(capsys: Captured, weight: int = 1, *more: str) -> str:
    Path("ranker.py").write_text(RANKER.format(weight))
    found: str = said(capsys, "register", "ranker:Ranker", "--name", "ranker", "--files", "*.py", *more)["version"]
    return found


def test_a_model_goes_from_registered_to_rolled_back(folder: Path, capsys: Captured) -> None:
    old = register(capsys, 1)
    assert said(capsys, "promote", f"ranker@{old}", "production", "--expect", "none")["number"] == 1
    new = register(capsys, 2, "--parent", "production", "--alias", "staging")
    assert said(capsys, "show", "ranker@staging")["version"] == new
    assert said(capsys, "promote", f"ranker@{new[:15]}", "production", "--expect", old)["version"] == new
    (listed,) = said(capsys, "list")["models"]
    assert listed == {"name": "ranker", "versions": 2, "aliases": {"production": new, "staging": new}}
    assert said(capsys, "rollback", "ranker", "production")["version"] == old
    shown = said(capsys, "show", "ranker")
    assert [version["parent"] for version in shown["versions"]] == [None, old]
    assert [move["version"] for move in shown["aliases"]["production"]] == [old, new, old]
    assert said(capsys, "show", "ranker@production")["version"] == old
    assert (folder / ".mark-registry" / "models" / "ranker").is_dir()


def test_people_read_tables(capsys: Captured) -> None:
    version = register(capsys, 1, "--metrics", "auc=0.9")
    for words, expected in (
        (["list"], "ranker        1"),
        (["promote", f"ranker@{version}", "production"], f"ranker@production is {version[:19]}: move 1"),
        (["show", "ranker"], f"{version[:19]} 2"),
        (["show", "ranker@production"], "metric auc 0.9"),
    ):
        assert main(["models", *words]) == 0
        assert expected in capsys.readouterr().out


def test_a_diff_says_files_metrics_latency_and_dollars(capsys: Captured) -> None:
    Path("profile.csv").write_text(PROFILE.format(one=10, eight=40))
    Path("metrics.json").write_text('{"auc": 0.9, "old": 1}')
    old = register(capsys, 1, "--metrics", "metrics.json", "--profile", "profile.csv")
    Path("profile.csv").write_text(PROFILE.format(one=10, eight=60))
    Path("more.py").touch()
    new = register(capsys, 2, "--metrics", "auc=0.92", "--profile", "profile.csv")
    found = said(capsys, "diff", f"ranker@{old}", f"ranker@{new}")
    assert found["files"] == {"more.py": "added", "ranker.py": "changed"}
    assert found["metrics"] == {"auc": {"before": 0.9, "after": 0.92}, "old": {"before": 1.0, "after": None}}
    assert found["latency_ms"]["c7i.large"]["8"] == {"before": 40.0, "after": 60.0}
    usd = found["usd_per_million"]["c7i.large"]
    assert usd["after"] / usd["before"] == pytest.approx(1.5)
    assert usd["before"] == pytest.approx(0.08925 / 3600 / (8 / 0.040) * 1e6, rel=1e-6)
    assert main(["models", "diff", f"ranker@{old}", f"ranker@{new}"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "c7i.large, batch 8, ms 40 60 +50.0 %" in lines
    assert "c7i.large, $ per million 0.124 0.186 +50.0 %" in lines
    assert "more.py added" in lines


def test_versions_without_profiles_differ_without_dollars(capsys: Captured) -> None:
    old, new = register(capsys, 1), register(capsys, 2)
    found = said(capsys, "diff", f"ranker@{old}", f"ranker@{new}")
    assert (found["latency_ms"], found["usd_per_million"]) == ({}, {})


def test_another_place_is_another_registry(folder: Path, capsys: Captured) -> None:
    register(capsys, 1, "--registry", "there")
    assert said(capsys, "list")["models"] == []
    assert [one["name"] for one in said(capsys, "list", "--registry", "there")["models"]] == ["ranker"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["promote", "ranker", "production"], "NAME@V: must be NAME@ALIAS or NAME@sha256:HEX: ranker"),
        (["promote", "ranker@staging", "production"], "ranker@staging: no such alias: staging"),
        (["rollback", "ranker", "production"], "ranker@production: has named nothing before"),
        (["rollback", "ranker", "production", "--expect", "none"], "ranker@production: is not at none but at sha256:"),
        (["list", "--registry", "typo"], "--registry: no such folder; `mark models register` makes it: typo"),
        (["show", "rankr"], "has no such model, did you mean ranker?: rankr"),
        (["register", "ranker:Ranker", "--name", "x", "--alias", "a/b"], "alias: must be 1 to 63 letters"),
        (["register", "ranker:Ranker", "--name", "a/b"], "name: must be 1 to 63 letters"),
        (["register", "other:X", "--name", "x"], "model: is not among the files of"),
        (
            ["register", "ranker:Ranker", "--name", "x", "--metrics", "auc"],
            "metrics: must be a file, or NAME=NUMBER: auc",
        ),
        (["register", "ranker:Ranker", "--name", "x", "--metrics", "ranker.py"], "ranker.py: is no JSON"),
        (["register", "ranker:Ranker", "--name", "x", "--metrics", "auc=nan"], "metric auc: a metric is a number: nan"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    folder: Path, registered: Path, capsys: Captured, words: list[str], line: str
) -> None:
    shutil.copytree(registered, folder, dirs_exist_ok=True)
    assert main(["models", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("mark: error: ")
    assert told.err.count("\n") == 1
    assert line in told.err


def test_a_bad_alias_leaves_no_registry(folder: Path, capsys: Captured) -> None:
    """It is refused before a file is sent, which may have gigabytes."""
    assert main(["models", "register", "ranker:Ranker", "--name", "ranker", "--alias", "a b"]) == 2
    assert capsys.readouterr().err.endswith(
        "alias: must be 1 to 63 letters, digits, dots, dashes or underscores: a b\n"
    )
    assert not (folder / ".mark-registry").exists()


def test_a_registry_that_cannot_be_read_is_not_empty(folder: Path, capsys: Captured) -> None:
    """It neither lists no versions nor moves an alias: exit code 2, with the folder and the reason."""
    (folder / ".mark-registry").mkdir()
    (folder / ".mark-registry" / "models").touch()
    for words in (["list"], ["show", "ranker"], ["show", "ranker@production"], ["rollback", "ranker", "production"]):
        assert main(["models", *words]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1)
        assert "registry: cannot be read (Not a directory): " in told.err
        assert str(folder / ".mark-registry" / "models") in told.err


@pytest.mark.slow
def test_a_damaged_version_leaves_the_others_to_be_shown(folder: Path, capsys: Captured) -> None:
    bad, good = register(capsys, 1), register(capsys, 2)
    file = next(Path(".mark-registry/models/ranker/versions").glob(f"{bad.removeprefix('sha256:')}*"))
    file.chmod(0o644)
    file.write_text("{}")
    for words in (["show", "ranker"], ["list"]):
        assert main(["models", *words]) == 0
        assert "left out: ranker@sha256:" in capsys.readouterr().err
    (shown,) = said(capsys, "show", "ranker")["versions"]
    assert shown["version"] == good
    assert main(["models", "show", f"ranker@{bad}"]) == 2


@pytest.mark.slow
def test_files_are_named_with_commas_or_one_by_one(folder: Path, capsys: Captured) -> None:
    Path("ranker.joblib").write_text("x")
    once = said(capsys, "register", "ranker:Ranker", "--name", "r", "--files", "ranker.py,ranker.joblib")
    twice = said(capsys, "register", "ranker:Ranker", "--name", "r", "--files", "*.py", "--files", "*.joblib")
    assert once == twice
    assert list(once["files"]) == ["ranker.joblib", "ranker.py"]


@pytest.mark.slow
def test_a_model_is_registered_with_what_it_opens_alone(folder: Path, capsys: Captured) -> None:
    """The list is shown before anything is stored; logs, traces and settings beside the model stay where they are."""
    opening = (
        "open('weights.bin').close()\nimport os\nif os.path.exists('my-access.log'): open('my-access.log').close()\n"
    )
    Path("ranker.py").write_text(RANKER.format(1) + opening)
    for name in ("weights.bin", "my-access.log", "traffic.csv", "settings.ini", ".env", "test_ranker.py", "other.key"):
        Path(name).write_text("x")
    kept = said(capsys, "register", "ranker:Ranker", "--name", "r")
    assert list(kept["files"]) == ["ranker.py", "weights.bin"]
    assert main(["models", "register", "ranker:Ranker", "--name", "r"]) == 0
    err = capsys.readouterr().err
    assert f"of {folder} keeps 2 files, " in err
    assert "left out, as logs or possible secrets: my-access.log\n" in err


def test_a_model_that_lacks_a_file_is_not_registered(folder: Path, capsys: Captured) -> None:
    Path("ranker.py").write_text(RANKER.format(1) + "open('weights.bin').close()\n")
    Path("weights.bin").write_text("x")
    register_it = ["models", "register", "ranker:Ranker", "--name", "r", "--files", "ranker.py"]
    assert main(register_it) == 2
    assert "with the files that would be kept alone it does not load: " in capsys.readouterr().err
    assert not Path(".mark-registry").exists()
    assert main([*register_it, "--no-load"]) == 0
    assert main(["models", "register", "ranker:Ranker", "--name", "r", "--no-load"]) == 2
    assert "files: must say which files the model needs" in capsys.readouterr().err
