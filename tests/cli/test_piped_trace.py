"""Every process of a command can read a trace from a pipe, and errors name the pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.traffic.traces.files import alb_line

LOG = "".join(alb_line(k / 10.0) for k in range(600)).encode()


def mark(*words: str, sent: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "mark.cli.main", *words]
    return subprocess.run(command, input=sent, capture_output=True, env={**os.environ, **environment})


@pytest.mark.slow
def test_a_comparison_on_several_processes_reads_the_pipe(tmp_path: Path) -> None:
    words = ("--service", "inception-v3", "--policies", "reactive,best-fixed", "--attribute", "none", "--no-bound")
    done = mark("compare", "-", *words, sent=LOG, PYTHON_CPU_COUNT="2", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert b"600 requests" in done.stdout
    assert not list(tmp_path.glob("mark-*"))


def test_an_error_names_the_pipe() -> None:
    done = mark("trace", "info", "-", sent=LOG + b"?\n" * 99)
    assert done.returncode == 2
    assert done.stderr.startswith(b"mark: error: - line 601: 99 of 699 lines are no requests")
    assert b"--skip-bad-lines 14.17% leaves them out" in done.stderr


def test_several_files_are_answered_with_a_pattern(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(LOG)
    done = mark("trace", "info", str(tmp_path / "a.log"), str(tmp_path / "b.log"), sent=b"")
    assert done.returncode == 2
    assert b"several files are one TRACE as a quoted pattern" in done.stderr
