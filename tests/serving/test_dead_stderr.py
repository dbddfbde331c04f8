"""A standard error that accepts no output ends neither a bouncer nor a gateway, and does not change how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.infra.testbed.real_processes import wait_for
from tests.serving.test_server_process import folder as folder

PROGRAMS = {"serve": ("serve", "echo.toml"), "gateway": ("gateway", "--replica", "http://127.0.0.1:9")}


@pytest.mark.slow
@pytest.mark.parametrize("stderr", ["full", "closed"])
@pytest.mark.parametrize("words", PROGRAMS.values(), ids=PROGRAMS)
def test_it_serves_on_and_ends_with_0(folder: Path, words: Sequence[str], stderr: str) -> None:
    """The disk is full, or the reader of a pipe has gone."""
    if stderr == "full":
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        reads, out = os.pipe()
        os.close(reads)
    ready = folder / "ready"
    command = [sys.executable, "-m", "mark.cli.main", *words, "--port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    os.close(out)
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, "readiness")
        assert process.poll() is None
        url = json.loads(ready.read_text())["url"]
        assert httpx.get(f"{url}/v2/health/live", trust_env=False).status_code == 200
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
