"""Options choose the executor."""

from __future__ import annotations

import sys

import pytest

from mark.cli.executors import executor_from
from mark.cli.main import main, parser
from mark.studies.executor import HereExecutor, ProcessExecutor

LINE = ("frontier", "synthetic:poisson?rate=20", "--service", "inception-v3")


@pytest.mark.parametrize("command", ["frontier", "compare", "reconcile"])
def test_runs_are_spread_over_as_many_processes_as_are_said(command: str) -> None:
    line = [command, *LINE[1:], *(("--bill", "cur.csv") if command == "reconcile" else ())]
    asked = parser(command)
    assert executor_from(asked.parse_args([*line, "--jobs", "3"])) == ProcessExecutor(3)
    assert executor_from(asked.parse_args([*line, "--jobs", "1"])) == HereExecutor()


def test_without_ray_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert main([*LINE, "--executor", "ray"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "mark: error: --executor: needs ray (pip install 'mark-serving[ray]'): ray\n"


def test_another_place_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LINE, "--executor", "rays"]) == 2
    assert "did you mean ray?" in capsys.readouterr().err
