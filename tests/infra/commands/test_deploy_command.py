"""mark deploy, as far as it runs without Terraform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import TemplateVersion
from mark_infra.commands.deploy_command import _changes
from mark_infra.deploy.bake import ImageWanted
from mark_infra.deploy.deploy import Planned
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.terraform import ResourceChange

from mark.cli.main import main

PIPELINES = Path(__file__).parents[3] / "examples" / "pipeline"


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
        ([str(PIPELINES / "digits.toml"), "--region", "eu-west-1"], "slo_ms: must be said of each stage"),
        ([str(PIPELINES / "social.toml"), "--region", "eu-west-1"], "nothing says which queries visit it"),
        (["inception-v3", "--profile", "absent"], "AWS profile: is not in AWS's configuration: absent"),
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


def test_images_to_bake_are_named_before_anything_is_agreed(tmp_path: Path) -> None:
    nothing: Any = None
    target, wanted = DeployTarget(state=tmp_path), (ImageWanted("echo", "0123", ("c5.large", "c5.xlarge"), "x86_64"),)
    planned = Planned([], [], target, nothing, nothing, nothing, nothing, to_bake=wanted)
    assert _changes(planned) == "images to bake first: echo on a c5.large\nnothing else to change"
    planned = Planned(
        [ResourceChange("a", "aws_lb", "create")], [], target, nothing, nothing, nothing, nothing, to_bake=wanted
    )
    assert _changes(planned).startswith("images to bake first: echo on a c5.large\n1 to create; all of it in ")
    assert _changes(Planned([], [], target, nothing, nothing, nothing, nothing)) == "nothing to change"


class Taken:
    """A stand-in for a site's releases and conductors that records the roll-backs in order."""

    def __init__(self) -> None:
        self.back: list[object] = []

    def before(self, service: str) -> TemplateVersion | None:
        assert not self.back, "what is before is known before"
        return TemplateVersion("lt-1", service)

    def roll_back(self, services: list[str]) -> None:
        self.back += services

    def take_back(self, pipeline: str, stage: TemplateVersion) -> str:
        self.back.append((pipeline, stage.version))
        return "they go"


def test_a_pipelines_driver_is_taken_back_with_its_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = "".join(f'[stage.{name}]\nmodel = "echo:Echo"\nslo_ms = 100\n' for name in ("first", "second"))
    head = '[service]\nname = "two"\nslo_ms = 600\nslo_attainment = 0.98\npipeline = "driver:run"\n'
    (tmp_path / "two.toml").write_text(head + stages)
    taken = Taken()
    for name in ("site_releases", "site_conductors"):
        monkeypatch.setattr(f"mark_infra.commands.deploy_command.{name}", lambda target: taken)
    argv = ["--rollback", "--yes", "--no-wait", "--region", "eu-west-1"]
    assert main(["deploy", str(tmp_path / "two.toml"), "inception-v3", *argv]) == 0
    assert taken.back == ["two-first", "two-second", "inception-v3", ("two", "two-first")]
    assert capsys.readouterr().out == "two: they go\n"
