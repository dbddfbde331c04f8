"""`mark serve` of a service with parity models: real processes, which are slow, hang, die and answer nonsense."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from mark.cli.main import main
from tests.infra.testbed.real_processes import wait_for
from tests.serving.test_server_process import served

MODELS = """
import pathlib
import time

import numpy as np

import mark

WEIGHTS = np.array([[1, -2, 0, 5], [0, 1, 3, 2], [4, 0, 1, 0]], np.float32)

class Linear(mark.Model):
    inputs = (mark.TensorSpec("x", "FP32", (3,)),)
    outputs = (mark.TensorSpec("y", "FP32", (4,)),)

    def __init__(self, role):
        self.role = role

    def predict(self, batch):
        rows = np.stack(batch)
        told = pathlib.Path("told")
        do = told.read_text() if told.exists() else ""
        if do == "slow" and self.role == "model" and (rows[:, 0] >= 100).any():
            time.sleep(1.0)
        if do == "hang" and self.role == "model" and (rows[:, 0] >= 100).any():
            time.sleep(60.0)
        if do == "nan" and self.role == "parity":
            return rows @ WEIGHTS * np.float32("nan")
        return rows @ WEIGHTS
"""
WEIGHTS = np.array([[1, -2, 0, 5], [0, 1, 3, 2], [4, 0, 1, 0]], np.float32)
FILE = """
[service]
name = "linear"
model = "linear:Linear?role=model"
slo_ms = 4000
slo_attainment = 0.99
[insurance]
parity = "parity/"
accept = "degraded"
after_ms = {after_ms}
"""
PARITY: dict[str, Any] = {
    "schema": 1,
    "code": "sum",
    "k": 2,
    "models": ["linear:Linear?role=parity"],
    "input": {"shape": [3]},
    "output": {"shape": [4]},
    "degraded_accuracy": 0.93,
}


def write(folder: Path, after_ms: int = 300, **changed: Any) -> None:
    (folder / "linear.py").write_text(MODELS)
    (folder / "parity").mkdir(exist_ok=True)
    (folder / "parity" / "parity.json").write_text(json.dumps(PARITY | changed))
    (folder / "s.toml").write_text(FILE.format(after_ms=after_ms))


def exact(first: float) -> list[float]:
    return [float(value) for value in np.array([first, 1.0, 2.0], np.float32) @ WEIGHTS]


class Asking:
    """A client of the server."""

    def __init__(self, folder: Path, process: Any, url: str, pool: ThreadPoolExecutor, client: httpx.Client) -> None:
        self.folder, self.process, self.url, self._pool, self._client = folder, process, url, pool, client

    def tell(self, what: str) -> None:
        (self.folder / "told").write_text(what)

    def post(self, first: float, **headers: str) -> httpx.Response:
        tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [first, 1.0, 2.0]}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.post("/v2/models/linear/infer", json={"inputs": [tensor]}, headers=sent)

    def begin(self, first: float, **headers: str) -> Future[httpx.Response]:
        return self._pool.submit(self.post, first, **headers)

    def claims(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/v2/models/linear/insurance").json()
        return found

    def metrics(self) -> str:
        return self._client.get("/metrics").text

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        wait_for(lambda: holds(self.claims()), "claims are not counted", 60.0)
        return self.claims()

    def workers_of(self, role: str) -> list[int]:
        children = psutil.Process(self.process.pid).children()
        return [child.pid for child in children if f"role={role}" in " ".join(child.cmdline())]


@contextmanager
def asking(folder: Path, *options: str) -> Iterator[Asking]:
    with (
        served(folder, *options, service="s.toml") as (process, url),
        ThreadPoolExecutor(4) as pool,
        httpx.Client(base_url=url, trust_env=False, timeout=60.0) as client,
    ):
        yield Asking(folder, process, url, pool, client)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def values(answer: httpx.Response) -> list[float]:
    found: list[float] = answer.json()["outputs"][0]["data"]
    return found


def test_query_on_a_slow_worker_is_answered_by_reconstruction_and_right(tmp_path: Path) -> None:
    write(tmp_path)
    with asking(tmp_path, "--workers", "2") as place:
        place.tell("slow")
        slow = place.begin(100.0)
        place.until(lambda claims: claims["members"] == 1)
        quick = place.post(3.0)
        assert (quick.status_code, quick.headers["mark-answered-by"]) == (200, "instance")
        assert values(quick) == exact(3.0)
        assert [quick.json()["outputs"][0][key] for key in ("name", "datatype")] == ["y", "FP32"]
        assert "mark-degraded" not in quick.headers
        answer = slow.result()
        assert (answer.status_code, answer.headers["mark-answered-by"]) == (200, "reconstruction")
        assert answer.headers["mark-degraded"] == "agreement=0.93"
        assert values(answer) == pytest.approx(exact(100.0), rel=1e-5)
        assert answer.json()["outputs"][0]["name"] == "y", "reconstructions are called alike"

        claims = place.until(lambda claims: claims["compared"] == 1)
        assert (claims["reconstructed"], claims["agreed"], claims["groups"], claims["parity_calls"]) == (1, 1, 1, 1)
        page = place.metrics()
        assert 'mark_insurance_reconstructed_total{model="linear"} 1.0' in page
        assert (
            'mark_requests_total{answered_by="reconstruction",code="200",model="linear",stage="",version="1"} 1.0'
            in page
        )

        waits = place.begin(100.0, mark_accept="exact")
        place.until(lambda claims: claims["members"] == 3)
        place.post(4.0)
        answer = waits.result()
        assert (answer.headers["mark-answered-by"], values(answer)) == ("instance", exact(100.0))
        assert place.claims()["reconstructed"] == 1
        refused = place.post(5.0, mark_accept="all")
        assert (refused.status_code, refused.json()) == (400, {"error": "mark-accept must be exact or degraded"})


def test_query_on_a_hanging_worker_is_reconstructed_and_saved(tmp_path: Path) -> None:
    write(tmp_path)
    with asking(tmp_path, "--workers", "2", "--hang-s", "3") as place:
        place.tell("hang")
        hangs = place.begin(100.0)
        place.until(lambda claims: claims["members"] == 1)
        assert place.post(3.0).headers["mark-answered-by"] == "instance"
        answer = hangs.result()
        assert answer.headers["mark-answered-by"] == "reconstruction"
        assert values(answer) == pytest.approx(exact(100.0), rel=1e-5)
        place.tell("")  # the worker is replaced, and the call is made again or lost
        place.until(lambda claims: claims["compared"] + claims["saved"] > 0 and claims["kept_bytes"] == 0)


def test_service_goes_on_exactly_where_parity_models_die_or_answer_nan(tmp_path: Path) -> None:
    write(tmp_path)
    with asking(tmp_path, "--workers", "2") as place:
        place.tell("nan")
        answers = [place.begin(float(number)) for number in range(4)]
        assert [answer.result().headers["mark-answered-by"] for answer in answers] == ["instance"] * 4
        claims = place.until(lambda claims: claims["malformed"] == 2)
        assert claims["reconstructed"] == 0
        place.tell("slow")
        for worker in place.workers_of("parity"):
            os.kill(worker, signal.SIGKILL)
        place.until(lambda claims: not claims["parity_ready"] or claims["passed_by"] > 0)
        answer = place.post(100.0)
        assert (answer.status_code, answer.headers["mark-answered-by"]) == (200, "instance")
        assert values(answer) == exact(100.0)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"input": {"shape": [5]}}, "the model does not fit, inputs: [3] is not the shape [5] of parity.json"),
        ({"output": {"shape": [2]}}, "the model does not fit, outputs: [4] is not the shape [2] of parity.json"),
    ],
)
def test_model_of_another_shape_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], what: str
) -> None:
    write(tmp_path, **changed)
    assert main(["serve", str(tmp_path / "s.toml"), "--port", "0"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert what in last or what.replace("the model", "a parity model") in last


def test_code_without_models_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    text = (tmp_path / "s.toml").read_text()
    (tmp_path / "s.toml").write_text(text.replace('"parity/"', '{ code = "sum", k = 2 }'))
    assert main(["serve", str(tmp_path / "s.toml"), "--port", "0"]) == 2
    assert "train them with `mark insure train`: sum, k = 2" in capsys.readouterr().err.splitlines()[-1]
