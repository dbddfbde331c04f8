"""`mark completion`: a real bash completes commands, flags and names by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mark.cli.completion import SHELLS, script
from mark.cli.main import main

_BASH = """
source ./completion.bash
COMP_WORDS=(mark "$@"); COMP_CWORD=$#
function=$(complete -p mark | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
"$function" mark "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("completion")
    (made / "completion.bash").write_text(script("bash"))
    (made / "inner.toml").touch()
    (made / "traffic.csv").touch()
    return made


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["com"], "compare completion"),
        (["compare", "--poli"], "--policies --policy"),
        (["compare", "traffic.csv", "--service", "in"], "inception-v3-2026 inception-v3 inner.toml"),
        (["diff", "inn"], "inner.toml"),
        (["simulate", "tra"], "traffic.csv"),
        (["simulate", "traffic.csv", "--policy", "mark-"], "mark-paper mark-optimal"),
        (["simulate", "traffic.csv", "--predictor", "seas"], "seasonal-naive"),
        (["catalog", "sh"], "show"),
        (["catalog", "show", "aws-202"], "aws-2026"),
        (["reproduce", "table"], "table2 table3 table5"),
    ],
)
def test_bash_completes(folder: Path, typed: list[str], completed: str) -> None:
    shell = ["bash", "--norc", "-c", _BASH, "bash", *typed]
    found = subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == completed.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_with_all_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("compare", "time-column", "best-fixed", "opennmt-ende-2026"))


def test_a_shell_that_is_not_known_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bsh"]) == 2
    assert "did you mean bash?" in capsys.readouterr().err
