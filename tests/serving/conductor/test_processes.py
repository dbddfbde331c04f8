"""`mark serve` of a pipeline as its users run it: real processes, whose workers are killed under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from mark.cli.main import main
from tests.serving.test_server_process import served

MODELS = """
import time
import mark

class Step(mark.Model):
    def __init__(self, add="1", s="0"):
        self._add, self._s = int(add), float(s)

    def predict(self, batch):
        if 666 in batch:
            raise ValueError("not 666")
        time.sleep(self._s)
        return [item + self._add for item in batch]

@mark.pipeline
async def two(query, models):
    half = await models.first(query["x"])
    return half if half < 100 else await models.second(half)
"""
FILE = """
[service]
name = "p"
slo_ms = {slo_ms}
slo_attainment = 0.99
pipeline = "steps:two"
[stage.first]
model = "steps:Step?s={s}"
[stage.second]
model = "steps:Step?add=1000&s={s}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(MODELS)
    write(tmp_path)
    return tmp_path


def write(folder: Path, slo_ms: int = 5000, s: float = 0.0) -> None:
    (folder / "p.toml").write_text(FILE.format(slo_ms=slo_ms, s=s))


def test_queries_are_answered_and_errors_name_their_stage(folder: Path) -> None:
    with served(folder, service="p.toml") as (process, url), httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/v2/health/ready").status_code == 200
        answer = client.post("/invocations", json={"x": 200})
        assert (answer.status_code, answer.json()) == (200, 1201)
        assert answer.headers["mark-answered-by"] == "instance"
        first, second = answer.headers["mark-stages"].split(";")
        assert (first.split("=")[0], second.split("=")[0]) == ("first", "second")
        tensor = {"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 300]}
        answer = client.post("/v2/models/p/infer", json={"inputs": [tensor]})
        assert answer.json()["outputs"][0]["data"] == [2, 1301]
        failed = client.post("/invocations", json={"x": 665})
        assert (failed.status_code, failed.json()) == (500, {"error": "stage second: the model failed: ValueError"})
        assert failed.headers["mark-stages"].endswith("/failed")
        late = client.post("/invocations", json={"x": 1}, headers={"mark-deadline-ms": "0"})
        assert (late.status_code, late.headers.get("mark-answered-by")) == (504, None)
        page = client.get("/metrics").text
        for stage in ("", "first", "second"):
            assert f'mark_workers_ready{{model="p",stage="{stage}",version="1"}} 1.0' in page
        process.terminate()
        assert process.wait(20) == 0


def test_a_stage_that_cannot_be_loaded_ends_the_start(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "p.toml").read_text()
    (folder / "p.toml").write_text(text.replace("steps:Step?add", "steps:Nothing?add"))
    assert main(["serve", str(folder / "p.toml"), "--port", "0"]) == 2
    assert "steps has no Nothing" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "slo_ms", "right"), [(2, 20_000, 1990), (1, 500, 100)])
def test_every_query_is_answered_once_though_workers_are_killed(
    folder: Path, workers: int, slo_ms: int, right: int
) -> None:
    """One worker of each of two stages, three times, while queries come: each query has one answer.

    With another worker and time nearly all are right; with neither what comes meanwhile is refused.
    """
    write(folder, slo_ms=slo_ms, s=0.002)
    with served(folder, "--workers", str(workers), service="p.toml") as (process, url):
        answers = asyncio.run(_killing(url, process.pid))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len(answers) == 2000
    statuses = Counter(status for _, status, _ in answers)
    assert statuses[-1] == 0, answers
    assert all(value == number + 1 + 1000 * (number + 1 >= 100) for number, status, value in answers if status == 200)
    assert statuses[200] >= right, statuses
    assert statuses.keys() <= {200, 429, 503, 504}


async def _killing(url: str, pid: int) -> list[tuple[int, int, object]]:
    answers: list[tuple[int, int, object]] = []
    numbers = iter([number for number in range(2002) if number not in (665, 666)])  # on which a model fails
    limits = httpx.Limits(max_connections=16)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for number in numbers:
                try:
                    got = await client.post("/invocations", json={"x": number})
                except httpx.HTTPError as error:
                    answers.append((number, -1, repr(error)))
                    continue
                answers.append((number, got.status_code, json.loads(got.content)))
                if len(answers) in (300, 800, 1300):
                    _kill_one_of_each(pid)

        await asyncio.gather(*(one_after_the_other() for _ in range(16)))
    return answers


def _kill_one_of_each(pid: int) -> None:
    """A worker is a child whose arguments name the model."""
    first: dict[str, int] = {}
    for child in psutil.Process(pid).children():
        arguments = " ".join(child.cmdline())
        if "steps:Step" in arguments:
            first.setdefault("second" if "add=1000" in arguments else "first", child.pid)
    for worker in first.values():
        os.kill(worker, signal.SIGKILL)
