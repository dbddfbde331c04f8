"""Interrupts of a deployment: the deploying process, with a Terraform that ends in order, or does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Deploys from the current folder, as `mark deploy` does, and prints each step.
DEPLOYS = """
import signal, sys
from pathlib import Path
from mark.cli.main import guarded
from mark_infra.deploy.terraform import Terraform

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where these tests are run by nohup, and then it stays so

def deploy():
    terraform = Terraform(Path.cwd(), say=lambda text: print(text, flush=True))
    if sys.argv[1:] == ["real"]:
        terraform.init()
        terraform.plan()
    terraform.apply(2, lambda share, what: print("made", what, flush=True))
    return 0

sys.exit(guarded(deploy))
"""
# Makes one resource and then a second one until it is interrupted. The first time it prints more than a pipe holds
# before it writes its state; the second time it ends immediately.
STAND_IN = """
import json, os, signal, sys

def say(address):
    print(json.dumps({"type": "apply_complete", "hook": {"resource": {"addr": address}}}), flush=True)

def interrupt(*_):
    came.append(1)
    if len(came) > 1:
        os._exit(1)
    say("stopping")
    if "second" in os.listdir():
        return
    for _ in range(5000):
        say("rest")
    open("state", "w").write(f"interrupted {len(came)} times")
    os._exit(1)

if sys.argv[1] == "version":
    print('{"terraform_version": "1.11.4"}')
elif sys.argv[1] == "apply":
    came = []
    signal.signal(signal.SIGINT, interrupt)
    say("first")
    while True:
        signal.pause()
"""
# Terraform makes these resources itself, without provider or account.
REAL = """
resource "terraform_data" "first" {}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" { command = "sleep 600" }
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder in which the stand-in is found as Terraform."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    file = tmp_path / "bin" / "terraform"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/stand_in.py" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@contextmanager
def deploying(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Deploy in a session of its own, as in a terminal, and yield after the first step."""
    with subprocess.Popen(
        [sys.executable, "-c", DEPLOYS, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            until(process, "made")
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    return next(line for line in process.stdout if line.startswith(beginning))


def rest(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = process.stdout.read()
    process.wait(30)
    return said


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_an_interrupt_waits_for_what_is_being_made(folder: Path, number: signal.Signals, code: int) -> None:
    with deploying(folder) as process:
        os.killpg(process.pid, number)  # to all processes in the foreground, as a terminal does
        said = rest(process)
    assert process.returncode == code, said
    assert (folder / "state").read_text() == "interrupted 1 times"
    assert "waiting until Terraform has finished" in said
    assert said.count("made rest") == 5000


def test_a_second_interrupt_says_what_is_lost(folder: Path) -> None:
    (folder / "second").touch()
    with deploying(folder) as process:
        process.send_signal(signal.SIGINT)
        until(process, "made stopping")
        process.send_signal(signal.SIGINT)
        said = rest(process)
    assert process.returncode == 130, said
    assert "the resources under way are in no state" in said
    assert not (folder / "state").exists()


@pytest.mark.slow
def test_terraform_itself_keeps_its_state_and_no_lock(tmp_path: Path) -> None:
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    (tmp_path / "main.tf").write_text(REAL)
    with deploying(tmp_path, "real") as process:
        os.killpg(process.pid, signal.SIGINT)
        said = rest(process)
    assert process.returncode == 130, said
    state = json.loads((tmp_path / "terraform.tfstate").read_text())
    assert "first" in [one["name"] for one in state["resources"]]
    assert list(tmp_path.glob(".terraform.tfstate.lock*")) == []
