"""Fixtures of the data plane's tests: both event loops, and one `mark serve` process for read-only tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]

MODELS = """
import time
import numpy as np
import mark

class Double(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (2,))]
    outputs = [mark.TensorSpec("y", "FP32", (2,))]

    def predict(self, batch):
        return np.stack(batch) * np.float32(2.0)

class Many(mark.Model):
    inputs = [mark.TensorSpec("a", "INT64"), mark.TensorSpec("b", "INT64"), mark.TensorSpec("text", "BYTES", (1,))]
    outputs = [mark.TensorSpec("sum", "INT64"), mark.TensorSpec("loud", "BYTES", (1,))]

    def predict(self, batch):
        return [
            {"sum": each["a"] + each["b"], "loud": np.array([each["text"][0].upper()], dtype=object)} for each in batch
        ]

class Echo(mark.Model):
    def predict(self, batch):
        return batch

class Slow(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (2,))]

    def predict(self, batch):
        if float(batch[0][0]) == 7.0:
            time.sleep(1.0)
        return batch
"""
SERVICE = """
[service]
name = "plain"
model = "models:Double"
slo_ms = 5000
slo_attainment = 0.98
[service.versions]
"1" = { model = "models:Double", weight = 1.0 }
"many" = { model = "models:Many", weight = 0.0 }
"echo" = { model = "models:Echo", weight = 0.0 }
"slow" = { model = "models:Slow", weight = 0.0 }
[feedback]
log = "feedback"
"""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a runner of a test's coroutine on a plain loop and on uvloop, at most a minute."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def go(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 60))

    return go


class Addresses(NamedTuple):
    """Addresses, `host:port`."""

    http: str
    grpc: str


@pytest.fixture(scope="module")  # no longer: other files look for processes that were left behind
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """Yield a service "plain": version 1 doubles, others answer requests that name them. It takes feedback."""
    with serving(tmp_path_factory.mktemp("plain")) as (_, addresses, _):
        yield addresses


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Addresses, list[str]]]:
    """Yield a process of that service, once it is ready. It must end with 0, and without a traceback.

    The list has its later log lines when it has ended.
    """
    (folder / "models.py").write_text(MODELS)
    (folder / "plain.toml").write_text(SERVICE)
    command = [sys.executable, "-m", "mark.cli.main", "serve", "plain.toml", "--port", "0", "--grpc-port", "0"]
    said: list[str] = []
    reading, writing = os.pipe()
    command += ["--ready-fd", str(writing), *options]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, pass_fds=(writing,))
    os.close(writing)
    try:
        with open(reading) as ready:
            yield process, _addresses(process, ready), said
    finally:
        process.terminate()
        try:
            _, rest = process.communicate(timeout=20)
            said.append(rest)
        finally:
            process.kill()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest, rest


def _addresses(process: subprocess.Popen[str], ready: TextIO) -> Addresses:
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if "gRPC listens on " in line and (where := ready.read()):
            return Addresses(json.loads(where)["url"].split("//")[-1], json.loads(line)["message"].split()[-1])
    raise AssertionError("".join(said))
