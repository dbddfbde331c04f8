"""The program behind `Terraform`, with a stand-in that answers as it does."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from mark_infra.deploy.terraform import ResourceChange, Terraform

from mark.domain.errors import BadInput, MarkError

# Prints the answer of `answers.json` to its first argument, and writes down its calls.
STAND_IN = """import json, os, sys
answers = json.load(open("answers.json"))
with open("calls", "a") as calls:
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    called = [sys.argv[1:], os.environ.get("TF_VAR_keys"), os.environ.get("TF_CLI_CONFIG_FILE"), aws]
    print(json.dumps(called), file=calls)
code, out, err = answers.get(sys.argv[1], [0, "", ""])
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
VERSION = [0, '{"terraform_version": "1.11.4"}', ""]


class StandIn:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, list[object]] = {"version": VERSION}
        self.says()

    def says(self, **answers: list[object]) -> None:
        self.answers |= answers
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    @property
    def calls(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    (tmp_path / "bin").mkdir()
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    file = tmp_path / "bin" / "terraform"
    # A shell starts it, because the interpreter's path after "#!" may not hold a space.
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/stand_in.py" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return StandIn(tmp_path)


def lines(*events: dict[str, object]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def complete(address: str) -> dict[str, object]:
    return {"type": "apply_complete", "hook": {"resource": {"addr": address}}}


def test_a_plan_is_what_changes(program: StandIn) -> None:
    changes = [
        {"address": "b", "type": "aws_vpc", "change": {"actions": ["update"]}},
        {"address": "a", "type": "aws_lb", "change": {"actions": ["create", "delete"]}},
        {"address": "c", "type": "aws_eip", "change": {"actions": ["no-op"]}},
        {"address": "d", "type": "aws_ami", "change": {"actions": ["read"]}},
    ]
    program.says(show=[0, json.dumps({"resource_changes": changes}), ""])
    terraform = Terraform(program.folder)
    assert terraform.plan() == [ResourceChange("a", "aws_lb", "replace"), ResourceChange("b", "aws_vpc", "update")]


def test_a_plan_may_be_of_some_things_only(program: StandIn) -> None:
    program.says(show=[0, "{}", ""])
    Terraform(program.folder).plan(targets=['module.fleet["a"]', "module.network"])
    (asked,) = (call[0] for call in program.calls if call[0][0] == "plan")
    assert asked[-2:] == ['-target=module.fleet["a"]', "-target=module.network"]


def test_resources_are_found_in_modules_of_modules(program: StandIn) -> None:
    inner = {"resources": [{"address": "module.a.module.b.aws_vpc.c", "values": {"id": "vpc-1"}}]}
    root = {
        "resources": [{"address": "aws_eip.d", "values": {"id": "e"}}],
        "child_modules": [{"child_modules": [inner]}],
    }
    program.says(show=[0, json.dumps({"values": {"root_module": root}}), ""])
    found = Terraform(program.folder).resources()
    assert found == {"aws_eip.d": {"id": "e"}, "module.a.module.b.aws_vpc.c": {"id": "vpc-1"}}
    program.says(show=[0, '{"format_version": "1.0"}', ""])
    assert Terraform(program.folder).resources() == {}


def test_progress_is_the_share_done(program: StandIn) -> None:
    program.says(apply=[0, lines(complete("a"), {"type": "log"}, complete("b")) + "no json\n", ""])
    seen: list[tuple[float, str]] = []
    Terraform(program.folder).apply(2, lambda share, what: seen.append((share, what)))
    assert seen == [(0.5, "a"), (1.0, "b")]


def test_a_failure_is_its_first_error_in_one_line(program: StandIn) -> None:
    def error(summary: str) -> dict[str, object]:
        return {"type": "diagnostic", "@level": "error", "diagnostic": {"summary": summary, "detail": "no\nright"}}

    program.says(apply=[1, lines(error("creating LB"), error("creating VPC")), ""])
    with pytest.raises(MarkError, match=r"^terraform apply: creating LB: no right \(and 1 more\)$"):
        Terraform(program.folder).apply(1, None)
    program.says(init=[1, "", "╷\n│ Error: Failed to query\n│ \n│ no such host\n╵\n"])
    with pytest.raises(MarkError, match=r"^terraform init: Error: Failed to query no such host$"):
        Terraform(program.folder).init()


def test_secrets_stand_on_no_command_line(program: StandIn) -> None:
    program.says(show=[0, "{}", ""])
    terraform = Terraform(program.folder)
    terraform.give("keys", "s3cret")
    terraform.plan(destroy=True)
    assert all(keys == "s3cret" for _, keys, *_ in program.calls[1:])  # the first call asks for the version
    assert "s3cret" not in json.dumps([arguments for arguments, *_ in program.calls])
    assert ["plan", "-json", "-input=false", "-out=site.tfplan", "-destroy"] in [call[0] for call in program.calls]


def test_a_configuration_that_cannot_be_read_is_not_passed_on(
    program: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, passed in (("missing.tfrc", None), ("calls", "calls")):
        monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(program.folder / name))
        Terraform(program.folder)
        assert program.calls[-1][2] == (passed and str(program.folder / passed))


def test_credentials_given_take_the_environments_place(program: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables would win over a profile. Every command asks for keys again, and no command line has them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("AWS_CONFIG_FILE", "config")
    told = iter(["first", "second"])
    terraform = Terraform(program.folder, lambda: {"AWS_SECRET_ACCESS_KEY": next(told)})
    terraform.init()
    assert [aws["AWS_SECRET_ACCESS_KEY"] for *_, aws in program.calls] == ["first", "second"]
    assert all(aws["AWS_CONFIG_FILE"] == "config" for *_, aws in program.calls)
    assert not [word for *_, aws in program.calls for word in aws.values() if word == "ours"]
    assert "second" not in json.dumps([arguments for arguments, *_ in program.calls])


def test_without_credentials_the_environment_stays(program: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    Terraform(program.folder)
    assert program.calls[-1][3]["AWS_PROFILE"] == "mine"


def test_outputs_by_name(program: StandIn) -> None:
    program.says(output=[0, '{"address": {"value": "https://x", "type": "string"}}', ""])
    assert Terraform(program.folder).outputs() == {"address": "https://x"}


def test_a_terraform_that_is_missing_or_old(program: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    program.says(version=[0, '{"terraform_version": "1.9.8"}', ""])
    with pytest.raises(BadInput, match=r"1\.11 or newer.*1\.9\.8"):
        Terraform(program.folder)
    monkeypatch.setenv("PATH", str(program.folder))
    with pytest.raises(BadInput, match="not installed"):
        Terraform(program.folder)
