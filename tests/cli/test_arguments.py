"""Lists may use commas or repetition; results never overwrite input files."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mark.cli.arguments import Listed, refuse_overwriting
from mark.cli.main import main
from mark.cli.options import policy_list
from mark.domain.errors import BadInput
from tests.samples import first

Captured = pytest.CaptureFixture[str]
SERVICE = '[service]\nname = "s"\nmodel = "m"\nslo_ms = 100\nslo_attainment = 0.9\nprofile = "p.csv"\n[fleet]\n'


def listed(*words: str, **how: Any) -> Any:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", action=Listed, **how)
    return parser.parse_args(words).x


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"parse": policy_list}, ("a", "b", "c")),
        ({"default": ()}, ("a", "b", "c")),
        ({"each": str.upper}, ("A", "B", "C")),
    ],
)
@pytest.mark.parametrize(
    "words", [("--x", "a,b,c"), ("--x", "a", "--x", "b", "--x", "c"), ("--x", "a,b", "--x=c")], ids=" ".join
)
def test_commas_and_repetition_say_the_same(words: tuple[str, ...], how: Any, expected: tuple[str, ...]) -> None:
    assert listed(*words, **how) == expected


def test_a_default_is_replaced_and_an_error_names_the_option() -> None:
    assert listed(default=("d",)) == ("d",)
    assert listed("--x", "a", default=("d",)) == ("a",)
    with pytest.raises(argparse.ArgumentError, match=r"--x: names a policy twice: 'a,b,a'"):
        listed("--x", "a", "--x", "b,a", parse=policy_list)


def test_a_file_with_commas_in_its_name_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a,b.csv"
    path.touch()
    assert listed("--x", str(path), "--x", "c,d") == (str(path), "c", "d")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    Path("package").mkdir()
    for name in ("t.csv", "p.csv", "logs/a.log", "old.json", "echo.py", "package/own.py", "net.onnx"):
        Path(name).write_text("kept")
    Path("s.toml").write_text(SERVICE)
    Path("own.toml").write_text(SERVICE.replace('"m"', '"echo:Echo"'))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trace": "t.csv", "json": "t.csv"}, "--json: would be written over t.csv, which is read: t.csv"),
        ({"trace": "t.csv", "json": "./logs/../t.csv"}, "which is read"),
        ({"service": "s.toml", "json": "s.toml"}, "--json: would be written over s.toml"),
        ({"service": "s.toml", "report": "p.csv"}, "--report: would be written over p.csv"),
        ({"spot_trace": ("t.csv", "p.csv"), "out": "p.csv"}, "--out: would be written over p.csv"),
        ({"trace": "logs", "json": "logs/a.log"}, "would be written over logs"),
        ({"trace": "t.csv", "certificate": "t.csv"}, "--certificate: would be written over t.csv"),
        ({"service": "s.toml", "ready_file": "s.toml"}, "--ready-file: would be written over s.toml"),
        ({"trace": "t.csv", "requests_log": "t.csv"}, "--log: would be written over t.csv"),
        ({"model": "echo:Echo", "json": "echo.py"}, "--json: would be written over echo.py"),
        ({"model": "package.own:Net", "json": "package/own.py"}, "--json: would be written over package/own.py"),
        ({"model": "onnx:net.onnx?threads=2", "json": "net.onnx"}, "--json: would be written over net.onnx"),
        ({"service": "own.toml", "json": "echo.py"}, "--json: would be written over echo.py"),
        ({"json": "x.html", "report": "x.html"}, "two results in one file"),
    ],
)
def test_what_is_read_is_not_written_over(folder: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        refuse_overwriting(argparse.Namespace(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"trace": "t.csv", "json": "old.json"},  # an older result
        {"trace": "t.csv", "json": "-"},
        {"trace": "logs", "json": "logs.json"},
        {"command": "profile", "model": "s.toml", "out": "p.csv"},  # rows are added to it
        {"command": "catalog", "catalog": "p.csv", "out": "p.csv"},  # its prices are refreshed
        {"trace": "t.csv", "json": "new.json", "policy": "mark", "start": 3.0},
    ],
)
def test_what_is_not_read_may_be_written(folder: Path, given: dict[str, Any]) -> None:
    refuse_overwriting(argparse.Namespace(**given))


def test_every_command_refuses(folder: Path, capsys: Captured) -> None:
    Path("t.csv").write_text("t_seconds,count\n0,5\n60,5\n")
    before = Path("t.csv").read_text()
    assert main(["trace", "info", "t.csv", "--json", "t.csv"]) == 2
    assert "which is read" in capsys.readouterr().err
    assert main(["simulate", "t.csv", "--service", "inception-v3", "--report", "t.csv"]) == 2
    assert "is a page: name it .html" in capsys.readouterr().err
    assert Path("t.csv").read_text() == before


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["simulate", "t.csv", "--servise", "s.toml"], "--servise, did you mean --service?"),
        (["trace", "info", "syntetic:diurnal"], "did you mean synthetic:diurnal?"),
        (["check", "s.toml"], "did you mean c7i.large?"),
    ],
)
def test_typos_are_told(folder: Path, capsys: Captured, argv: list[str], said: str) -> None:
    Path("s.toml").write_text(SERVICE + 'catalog = "aws-2026"\nmarkets = ["on-demand"]\ninstances = ["c7i.lage"]\n')
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_missing_profile_says_what_makes_it(folder: Path, capsys: Captured) -> None:
    fleet = 'catalog = "aws-2026"\nmarkets = ["on-demand"]\ninstances = ["c7i.*"]\n[overflow]\nfunction = "none"\n'
    Path("s.toml").write_text((SERVICE + fleet).replace("p.csv", "new.csv"))
    assert main(["check", "s.toml"]) == 2
    assert "measure first, `mark profile s.toml --instance TYPE --out new.csv`" in capsys.readouterr().err


@pytest.mark.parametrize("argv", first(1, [["catalog", "list"], ["--version"], ["--help"], ["simulate", "--help"]]))
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told(argv: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mark.cli.main", *argv],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "mark: error: the output cannot be written: no space left on device\n")
