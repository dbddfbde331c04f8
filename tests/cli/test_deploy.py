"""mark deploy, as far as it comes without Terraform."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.cli.main import main


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--destroy", "inception-v3"], "name no service"),
        (["--destroy", "--dry-run"], "not allowed with"),
        (["inception-v3", "--budget", "100"], "--alarm-email"),
        (["inception-v3", "--budget", "-1"], "above zero"),
        (["--region", "eu-west-1", "--clients", "10.0.0.0/8"], "say which services"),
        (["no-such.toml", "--region", "eu-west-1"], "no-such.toml"),
        (["--destroy", "--yes", "--region", "eu-west-1"], "nothing was deployed from here as mark"),
        (["inception-v3", "--profile", "nobody"], "AWS profile: is not in AWS's configuration: nobody"),
        (["--destroy", "--region", "eu-west-1"], "there is no terminal to ask"),
        (["inception-v3", "--region", "eu-west-1", "--clients", "10.0.0.0/8"], "terraform: is not installed"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["deploy", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""
