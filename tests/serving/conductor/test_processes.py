"""`mark serve` of a pipeline in production form: real processes, whose workers are killed under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import trustme

from mark.cli.main import main
from tests.infra.testbed.real_processes import wait_for
from tests.serving.learned.processes import Client, Gone
from tests.serving.test_server_process import address, served

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
STALLS = """
import pathlib

class Stalls(mark.Model):
    def predict(self, batch):
        try:
            pathlib.Path("stall").rename("stalls")  # one of two attempts
        except FileNotFoundError:
            pass
        else:
            while pathlib.Path("stalls").exists():
                time.sleep(0.01)
        return [item + 1 for item in batch]
"""
KEY = "a-key-of-the-stages"
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
@pytest.mark.parametrize(("workers", "slo_ms", "right"), [(2, 20_000, 790), (1, 500, 100)])
def test_every_query_is_answered_once_though_workers_are_killed(
    folder: Path, workers: int, slo_ms: int, right: int
) -> None:
    """One worker of each of two stages is killed three times while queries come: each query has one answer.

    With another worker and enough time nearly all answers are right; without both, queries are refused until it
    restarts.
    """
    write(folder, slo_ms=slo_ms, s=0.002)
    with served(folder, "--workers", str(workers), service="p.toml") as (process, url):
        answers = asyncio.run(_killing(url, process.pid))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len(answers) == 800
    statuses = Counter(status for _, status, _ in answers)
    assert statuses[-1] == 0, answers
    assert all(value == number + 1 + 1000 * (number + 1 >= 100) for number, status, value in answers if status == 200)
    assert statuses[200] >= right, statuses
    assert statuses.keys() <= {200, 429, 503, 504}


async def _killing(url: str, pid: int) -> list[tuple[int, int, object]]:
    answers: list[tuple[int, int, object]] = []
    numbers = iter([number for number in range(802) if number not in (665, 666)])  # on which a model fails

    async def one_after_the_other() -> None:
        client = Client(url)
        for number in numbers:
            try:
                got = await client.ask("POST", "/invocations", json.dumps({"x": number}).encode())
            except (Gone, TimeoutError) as error:
                answers.append((number, -1, repr(error)))
                continue
            answers.append((number, got.status, json.loads(got.body)))
            if len(answers) in (150, 350, 550):
                _kill_one_of_each(pid)
        client.close()

    await asyncio.gather(*(one_after_the_other() for _ in range(16)))
    return answers


def _kill_one_of_each(pid: int) -> None:
    """Kill one worker of each stage; a worker is a child whose arguments name the model."""
    first: dict[str, int] = {}
    for child in psutil.Process(pid).children():
        arguments = " ".join(child.cmdline())
        if "steps:Step" in arguments:
            first.setdefault("second" if "add=1000" in arguments else "first", child.pid)
    for worker in first.values():
        os.kill(worker, signal.SIGKILL)


@pytest.mark.slow
def test_a_remote_stage_is_asked_with_its_key_or_missed(folder: Path) -> None:
    (folder / "keys").write_text(f"conductor:{KEY}\n")
    (folder / "key").write_text(f"{KEY}\n")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "tls-key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.pem"))
    tls = ("--keys", "keys", "--tls-cert", "tls.pem", "--tls-key", "tls-key.pem")
    with (
        served(folder, "--stage", "second", *tls, service="p.toml") as (stage, at),
        served(
            folder, "--stage-at", f"second={at}", "--stage-key", "key", "--stage-ca", "ca.pem", service="p.toml"
        ) as (process, url),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        answer = client.post("/invocations", json={"x": 200})
        assert (answer.status_code, answer.json()) == (200, 1201)
        assert [said.split("=")[0] for said in answer.headers["mark-stages"].split(";")] == ["first", "second"]
        failed = client.post("/invocations", json={"x": 665})
        assert (failed.status_code, failed.json()) == (500, {"error": "stage second: the model failed: ValueError"})
        assert 'mark_requests_total{answered_by="instance",code="200",model="p",stage="second"' in (
            client.get("/metrics").text
        )
        trusting = ssl.create_default_context(cafile=folder / "ca.pem")
        with httpx.Client(base_url=at, verify=trusting, trust_env=False) as other:
            assert other.get("/v2/models/second", headers={"x-api-key": KEY}).json()["name"] == "second"
            assert other.get("/v2/models/second").status_code == 401
        stage.kill()
        wait_for(lambda: client.get("/v2/health/ready").status_code == 503, "it is not ready without the stage")
        refused = client.post("/invocations", json={"x": 200})
        assert (refused.status_code, refused.json()) == (503, {"error": "stage second: no replica is ready"})
        assert client.post("/invocations", json={"x": 1}).json() == 2  # which does not need it
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.slow
def test_an_overloaded_stage_is_answered_by_its_function(folder: Path) -> None:
    """The function is another server of the stage: behind one endpoint, alone, and by a gateway without an instance."""
    text = FILE.format(slo_ms=2000, s=0).replace("add=1000&s=0", "add=1000&s=0.2")
    (folder / "p.toml").write_text(text)
    with ExitStack() as started:
        _, at = started.enter_context(served(folder, "--stage", "second", "--workers", "4", service="p.toml"))
        function = f"{at}/v2/models/second"
        options = ("--stage-function", f"second={function}", "--function-ms", "250", "--max-batch", "1")
        _, whole = started.enter_context(served(folder, *options, service="p.toml"))
        _, alone = started.enter_context(served(folder, "--stage", "second", *options, service="p.toml"))
        conductors = [whole]
        for second in (
            alone,
            started.enter_context(gateway(folder, function=("--function", function, "--stage", "second"))),
        ):
            _, url = started.enter_context(served(folder, "--stage-at", f"second={second}", service="p.toml"))
            conductors.append(url)
        for url in conductors:
            states, rounds = Counter[str](), 0
            while not states["/function"] and rounds < 5:  # on a busy machine all may be late
                states += asyncio.run(_together(url, 40))
                rounds += 1
            assert states["/function"] > 0, (url, states)
            assert states["missed"] + states["/function"] + states[""] == 40 * rounds, (url, states)
        page = httpx.get(f"{alone}/metrics", trust_env=False).text
        assert 'mark_requests_total{answered_by="function",code="200",model="p",stage="second",version="1"}' in page
        assert 'mark_overflow_total{model="p",reason="overloaded",stage="second",version="1"}' in page


async def _together(url: str, count: int) -> Counter[str]:
    """Return the second stage's states for queries sent together; "missed" stands for an answer that is not right."""
    states: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as client:

        async def ask(number: int) -> None:
            got = await client.post("/invocations", json={"x": 200 + number})
            state = got.headers["mark-stages"].rpartition("=")[2].lstrip("0123456789")
            states[state if got.status_code == 200 and got.json() == 1201 + number else "missed"] += 1

        await asyncio.gather(*(ask(number) for number in range(count)))
    return states


@contextmanager
def gateway(folder: Path, *replicas: str, function: Sequence[str] = ()) -> Iterator[str]:
    """Yield the gateway's address. It is killed when the test leaves."""
    command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--probe-s", "0.2"]
    if function:
        command += [*function, "--slo-ms", "1000"]
    process = subprocess.Popen(
        [*command, *(f"--replica={url}" for url in replicas)], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield address(process)
    finally:
        process.kill()
        process.communicate()


HEDGED = """
[service]
name = "p"
slo_ms = 20000
slo_attainment = 0.99
[stage.first]
model = "steps:Stalls"
[insurance]
hedge_after_ms = 100
"""


def test_call_that_stalls_is_answered_by_its_second_attempt(folder: Path) -> None:
    (folder / "steps.py").write_text(MODELS + STALLS)
    (folder / "p.toml").write_text(HEDGED)
    with (
        served(folder, "--stage", "first", "--workers", "2", service="p.toml") as (stage, at),
        served(folder, "--stage-at", f"first={at}", service="p.toml") as (conductor, url),
        httpx.Client(base_url=url, trust_env=False, timeout=60.0) as client,
    ):
        (folder / "stall").touch()
        answer = client.post("/invocations", json=41)
        assert (answer.status_code, answer.json()) == (200, 42)
        assert (folder / "stalls").exists(), "the first attempt still runs"
        assert 'mark_hedges_total{model="p",stage="first",version="1"} 1.0' in client.get("/metrics").text
        (folder / "stalls").unlink()
        for process in (conductor, stage):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@pytest.mark.slow
def test_every_query_is_answered_once_though_machines_are_killed(folder: Path) -> None:
    """Two instances of a stage behind a gateway, two conductors behind another; one of each is killed under load.

    Queries are sent on a schedule, without waiting for earlier answers.
    """
    write(folder, slo_ms=20_000, s=0.002)
    with ExitStack() as started:

        def serve(*options: str) -> tuple[subprocess.Popen[str], str]:
            return started.enter_context(served(folder, *options, "--workers", "2", service="p.toml"))

        stages = [serve("--stage", "second") for _ in range(2)]
        second = started.enter_context(gateway(folder, *(url for _, url in stages)))
        conductors = [serve("--stage-at", f"second={second}") for _ in range(2)]
        front = started.enter_context(gateway(folder, *(url for _, url in conductors)))
        kills = {
            100: lambda: stages[0][0].kill(),
            200: lambda: _kill_one_of_each(stages[1][0].pid),
            300: lambda: conductors[0][0].kill(),
        }
        answers = asyncio.run(_by_the_clock(front, 400, 0.02, kills))
        assert [process.wait(10) for process, _ in (stages[0], conductors[0])] == [-signal.SIGKILL] * 2
        for process, _ in (conductors[1], stages[1]):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert sorted(number for number, *_ in answers) == list(range(400))
    statuses = Counter(status for _, status, _ in answers)
    assert statuses.keys() <= {200, 429, 502, 503, 504}, answers
    assert all(value == number + 1101 for number, status, value in answers if status == 200)
    assert statuses[200] >= 380, statuses


async def _by_the_clock(
    url: str, count: int, apart_s: float, then: Mapping[int, Callable[[], object]]
) -> list[tuple[int, int, object]]:
    """Send queries on a schedule and return their numbers, statuses and answers; status -1 stands for no answer.

    `then` maps a query's number to an action.
    """
    answers: list[tuple[int, int, object]] = []
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as client:

        async def ask(number: int) -> None:
            try:
                got = await client.post("/invocations", json={"x": 100 + number})
            except httpx.HTTPError as error:
                answers.append((number, -1, repr(error)))
            else:
                answers.append((number, got.status_code, json.loads(got.content)))

        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(0.0, began_s + number * apart_s - loop.time()))
                if number in then:
                    then[number]()
                group.create_task(ask(number))
    return answers
