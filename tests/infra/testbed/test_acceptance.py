"""The whole acceptance script against the strict emulation, with real commands, processes and Terraform."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from argparse import Namespace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from tests.infra.testbed.real_processes import processes_of
from tests.terraform.conftest import ROOT, Terraform, provider, terraform

__all__ = ["provider", "terraform"]  # the fixtures

SCRIPT = ROOT / "scripts" / "aws-acceptance"
SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.9
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
markets = ["spot"]
instances = ["c5.*"]
max_instances = 3
max_usd_per_hour = 2.0
[overflow]
function = "none"
"""
PROFILE = """model,instance,batch,latency_ms,basis
echo:Echo,c5.large,1,20,assumed
echo:Echo,c6i.large,1,20,assumed
"""
MODEL = """
import mark


class Echo(mark.Model):
    inputs = (mark.TensorSpec("text", "BYTES"),)
    outputs = (mark.TensorSpec("length", "FP64"),)
    warmup = (b"a text",)

    def predict(self, batch):
        return [float(len(text)) for text in batch]
"""
STEPS = ("deploy", "load", "roll out", "roll back", "interrupt", "change types", "destroy", "nothing left")


@pytest.fixture
def service(tmp_path: Path) -> Path:
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "echo.toml").write_text(SERVICE)
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "echo.py").write_text(MODEL)
    return folder / "echo.toml"


def command_of(service: Path, work: Path, *options: str) -> list[str]:
    return [
        *(sys.executable, str(SCRIPT), str(service), "--emulated", "--region", "us-east-1", "--other-types", "c6i.*"),
        *("--work", str(work), "--minutes", "0.2", "--rps", "5", *options),
    ]


def accept(service: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = command_of(service, work, *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)


def outcomes(said: str) -> dict[str, str]:
    """Return the outcomes in the table's rows."""
    rows = {
        name: line[len(name) :].split() for line in said.splitlines() for name in STEPS if line.startswith(f"{name} ")
    }
    return {name: row[2] if row[2] != "not" else "not run" for name, row in rows.items()}


@pytest.fixture(scope="module")
def script() -> Any:
    """Import the script as a module."""
    loader = SourceFileLoader("aws_acceptance", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # its dataclasses look it up there
    sys.path.insert(0, str(SCRIPT.parent))  # its neighbour stands there
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # its bytecode would lie in the checkout
    loader.exec_module(module)
    sys.dont_write_bytecode = writes
    return module


def test_a_domain_is_handed_on_with_its_certificate(script: Any, tmp_path: Path) -> None:
    said = ["my.toml", "--max-usd", "5", "--region", "eu-west-1", "--other-types", "c6i.*", "--certificate", "arn:1"]
    given = script.parse([*said, "--domain", "models.example.org", "--hosted-zone", "Z1"])
    site = script.AcceptanceSite(given, None, Path("my.toml"), tmp_path, {}, None, str)
    deploys, destroys = site.command("my.toml"), site.command("--destroy")
    for option, value in (("--certificate", "arn:1"), ("--domain", "models.example.org"), ("--hosted-zone", "Z1")):
        assert deploys[deploys.index(option) + 1] == value
        assert option not in destroys


class SiteOfNobody:
    """A site without instances that costs nothing."""

    def instances(self) -> list[object]:
        return []

    def stopped(self) -> str:
        return ""


def test_without_a_spot_instance_the_interruption_is_skipped(script: Any) -> None:
    row = script.StepRow("interrupt")
    script._step(SiteOfNobody(), row, script.interrupt, False)
    assert row.outcome == "skipped"
    assert "no spot instance runs" in row.said
    assert script.exit_code([script.StepRow("deploy", outcome="ok"), row]) == 3
    assert script.exit_code([script.StepRow("deploy", outcome="FAILED"), row]) == 1


@pytest.mark.parametrize(
    ("destroy", "nothing_left", "state", "kept"),
    [
        ("ok", "ok", True, False),
        ("FAILED", "ok", True, True),
        ("ok", "FAILED", True, True),
        (None, None, True, True),
        (None, None, False, False),
    ],
)
def test_a_live_sites_state_is_not_deleted(
    script: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    destroy: str | None,
    nothing_left: str | None,
    state: bool,
    kept: bool,
) -> None:
    work = tmp_path / "work"
    (work / "state").mkdir(parents=True)
    if state:
        (work / "state" / "terraform.tfstate").write_text("{}")
    given = Namespace(name="mine", region="eu-west-1", profile="deployer", work=None)
    ended = [("destroy", destroy), ("nothing left", nothing_left)]
    rows = [script.StepRow(name, outcome="ok") for name, _ in script.STEPS]
    rows += [script.StepRow(name, outcome=outcome) for name, outcome in ended if outcome is not None]
    script.clear(given, work, rows)
    assert work.exists() == kept
    destroys = f"mark deploy --destroy --name mine --region eu-west-1 --state {work}/state --profile deployer"
    assert (destroys in capsys.readouterr().out) == kept


HANGS = """#!/bin/sh
case "$1" in
  version) echo '{"terraform_version": "1.11.4"}' ;;
  *) exec sleep 600 ;;
esac
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_end_the_script_are_counted(script: Any, number: signal.Signals) -> None:
    # The handler of this test keeps pytest alive if the script does not handle a signal.
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    interrupts = script.Interrupts()
    try:
        interrupts.listen()
        signal.raise_signal(number)
        assert interrupts.count == 1
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.mark.slow
def test_whatever_ends_it_the_site_is_destroyed(service: Path, tmp_path: Path) -> None:
    """The signal comes in the middle of the first deployment, while Terraform hangs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "terraform").write_text(HANGS)
    (tmp_path / "bin" / "terraform").chmod(0o755)
    with subprocess.Popen(
        command_of(service, tmp_path / "work", "--max-usd", "50"), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "deploy ...\n"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    found = outcomes(said)
    assert (found["deploy"], found["load"], found["nothing left"]) == ("FAILED", "not run", "ok"), said
    assert "interrupted" in said
    assert found["destroy"] == "FAILED"  # it was tried, although there was no site yet
    assert process.returncode == 1
    assert processes_of(tmp_path) == []


def test_help_says_that_no_real_account_was_tried(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        script.parse(["--help"])
    assert "never been run on a real account" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--max-usd"),
        (("--max-usd", "5"), "--certificate ARN"),
        (("--max-usd", "5", "--certificate", "arn:aws:acm:x"), "--certificate and --domain go together"),
        (("--max-usd", "5", "--clients", "192.0.2.0/24", "--hosted-zone", "Z1"), "--hosted-zone needs --domain"),
    ],
)
def test_a_real_account_wants_a_limit_and_clients(
    script: Any, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.parse(["my.toml", "--region", "us-east-1", "--other-types", "c6i.*", *options])
    assert said in capsys.readouterr().err


@pytest.mark.acceptance
def test_every_step_is_done_and_nothing_is_left(service: Path, tmp_path: Path, terraform: Terraform) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    done = accept(service, tmp_path / "work", "--max-usd", "50")
    assert outcomes(done.stdout) == dict.fromkeys(STEPS, "ok"), done.stdout + done.stderr
    assert done.returncode == 0
    assert "is gone" in done.stdout  # a spot instance ran and was interrupted
    assert "denied" not in done.stdout
    assert processes_of(tmp_path) == []


@pytest.mark.acceptance
def test_too_many_dollars_stop_it_and_leave_nothing(service: Path, tmp_path: Path, terraform: Terraform) -> None:
    terraform.init(terraform.home / "examples" / "complete")
    done = accept(service, tmp_path / "work", "--max-usd", "0.05")
    found = outcomes(done.stdout)
    assert done.returncode == 1
    assert "stopped at --max-usd" in done.stdout
    assert "FAILED" in found.values()
    assert (found["destroy"], found["nothing left"]) == ("ok", "ok")
    assert processes_of(tmp_path) == []
