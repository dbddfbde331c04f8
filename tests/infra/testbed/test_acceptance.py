"""The acceptance script, whole, against the strict emulation: as real commands, processes and Terraform."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def accept(service: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, str(SCRIPT), str(service), "--emulated", "--region", "us-east-1", "--other-types", "c6i.*"),
        *("--work", str(work), "--minutes", "0.2", "--rps", "5", *options),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)


def outcomes(said: str) -> dict[str, str]:
    """Of the table's rows."""
    rows = {
        name: line[len(name) :].split() for line in said.splitlines() for name in STEPS if line.startswith(f"{name} ")
    }
    return {name: row[2] if row[2] != "not" else "not run" for name, row in rows.items()}


def test_help_says_that_no_real_account_was_tried() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True)
    assert "never been run on a real account" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "--max-usd"), (("--max-usd", "5"), "--certificate ARN")],
)
def test_a_real_account_wants_a_limit_and_clients(service: Path, options: tuple[str, ...], said: str) -> None:
    command = [sys.executable, str(SCRIPT), str(service), "--region", "us-east-1", "--other-types", "c6i.*", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.slow
@pytest.mark.acceptance
def test_every_step_is_done_and_nothing_is_left(service: Path, tmp_path: Path, terraform: Terraform) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips where there is no provider
    done = accept(service, tmp_path / "work", "--max-usd", "50")
    assert outcomes(done.stdout) == dict.fromkeys(STEPS, "ok"), done.stdout + done.stderr
    assert done.returncode == 0
    assert "is gone" in done.stdout  # a spot instance ran, and was interrupted
    assert "denied" not in done.stdout
    assert processes_of(tmp_path) == []


@pytest.mark.slow
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
