"""Each command that reads a trace first says which requests it read."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from mark.cli.main import main, parser

Captured = pytest.CaptureFixture[str]

READ = "read 1,200 requests in 10 minutes, 2/s, every 60 s"
RUN = ("--service", "inception-v3")
COMMANDS = {
    "simulate": ("simulate", "t.csv", *RUN, "--no-bound"),
    "compare": ("compare", "t.csv", *RUN, "--policies", "mark-paper", "--attribute", "none", "--no-bound"),
    "bound": ("bound", "t.csv", *RUN),
    "insure": ("insure", "t.csv", *RUN),
    "plan": ("plan", "t.csv", *RUN),
    "plan, commitments": ("plan", "t.csv", *RUN, "--advise-commitment"),
    "frontier": ("frontier", "t.csv", *RUN, "--slo-ms", "700", "--attainment", "0.98"),
    "diff": ("diff", "inception-v3", "inception-v3", "--trace", "t.csv"),
    "forecast backtest": ("forecast", "backtest", "t.csv", "--predictor", "artefact", "--horizon-s", "60"),
    "trace info": ("trace", "info", "t.csv"),
}
WITHOUT_JSON = {
    "forecast fit": ("forecast", "fit", "t.csv", "--predictor", "lstm-quantile", "--out", "p.bin"),
    "init": ("init", "mine", "t.csv"),
}
ELSEWHERE = {
    "reconcile": "tests/cli/test_reconcile.py",
    "testbed load": "tests/studies/report/test_testbed_report.py",
    "reproduce": "the paper's own stream, whose numbers are the paper's",
}


@pytest.fixture(autouse=True)
def _counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("t_seconds,count\n" + "".join(f"{60 * i},120\n" for i in range(10)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_first_what_it_read(command: str, capsys: Captured) -> None:
    assert main([*COMMANDS[command], "--json", "said.json"]) == 0
    assert capsys.readouterr().out.startswith(f"{READ}\n")
    assert READ in json.dumps(json.loads(Path("said.json").read_text()))


def test_a_pull_request_says_what_was_read(capsys: Captured) -> None:
    assert main([*COMMANDS["diff"], "--markdown", "-"]) == 0
    assert READ in capsys.readouterr().out


def test_a_new_service_says_first_what_it_read(capsys: Captured) -> None:
    assert main([*WITHOUT_JSON["init"]]) == 0
    assert capsys.readouterr().out.startswith(f"{READ}\n")


def test_a_check_says_what_it_read(capsys: Captured) -> None:
    assert main(["check", "t.csv"]) == 0
    assert capsys.readouterr().out == f"t.csv: ok, a trace of {READ.removeprefix('read ')}\n"


def test_a_generated_trace_was_not_read(capsys: Captured) -> None:
    assert main(["forecast", "backtest", "synthetic:poisson?rate=2", "--train", "600", "--duration", "600"]) == 0
    assert "read " not in capsys.readouterr().out.split("\n")[0]


def test_no_command_that_takes_a_trace_is_left_out() -> None:
    known = {name.partition(",")[0] for name in {**COMMANDS, **WITHOUT_JSON, **ELSEWHERE}}
    names = next(iter(action.choices for action in parser()._actions if action.dest == "command"))
    assert {found for name in names for found in _with_trace(parser(name), ())} == known


def _with_trace(of: argparse.ArgumentParser, names: tuple[str, ...]) -> list[str]:
    found = [" ".join(names)] if any(action.dest == "trace" for action in of._actions) else []
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found += _with_trace(inner, (*names, name))
    return found
