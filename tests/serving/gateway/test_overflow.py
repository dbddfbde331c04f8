"""Requests that no replica can take: a function answers, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mark.cli.main import main as mark_command
from mark.models.call import RESULTS, Call, Reply
from mark.models.results import call_with
from mark.serving.gateway.overflow import MOST_BODY_BYTES, ByFunctions
from mark.serving.overflow.breaker import MOST_FAILURES
from mark.serving.overflow.functions import FunctionsFailed, Throttled, Unsuitable
from tests.serving.fake_replicas import CLOSE, FakeReplica, said
from tests.serving.fakes import FakeFunctions
from tests.serving.front import INFER, Front, always, run
from tests.serving.test_server_process import INFER as REAL_INFER
from tests.serving.test_server_process import address, body, served
from tests.serving.test_server_process import folder as folder


class Kept(FakeFunctions):
    """Keeps calls unchanged, and answers with a part in JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[Call] = []

    async def call(self, calls: list[Call], timeout_s: float) -> list[Reply]:  # type: ignore[override]
        self.came += calls
        await super().call(calls, timeout_s)
        return [Reply(200, "application/octet-stream", b"{}" + bytes(call.body), 2) for call in calls]


def front(
    *replicas: FakeReplica, functions: FakeFunctions, rt_max_s: float = 10.0, stage: bool = False, **forwarding: Any
) -> Front:
    return Front(*replicas, by_functions=ByFunctions(functions, "m", rt_max_s, stage), **forwarding)


async def numbers(of: Front) -> dict[str, float]:
    page = (await of.client.get("/metrics")).text
    rows = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_a_function_answers_when_no_replica_is_ready() -> None:
    """The answer carries the request's id unchanged. The call is counted, with the adapter's report of its cost."""

    async def main() -> None:
        functions = FakeFunctions()
        functions.spent.calls, functions.spent.billed_s = 3, 1.5
        async with front(functions=functions) as none:
            assert (await none.client.get("/v2/health/ready")).status_code == 200
            answer = await none.post(b"hi", content_type="application/json", x_request_id="mine")
            assert (answer.status_code, answer.content) == (200, b"f:hi")
            assert answer.headers["mark-answered-by"] == "function"
            assert answer.headers["x-request-id"] == "mine"
            assert answer.headers["content-type"] == "application/json"
            assert (await none.post(b"ho", "/invocations")).content == b"f:ho"
            found = await numbers(none)
            assert found['mark_gateway_requests_total{code="200"}'] == found["mark_gateway_by_functions_total"] == 2.0
            assert found["mark_gateway_late_total"] == 0.0
            assert found["mark_gateway_function_calls_total"] == 3.0
            assert found["mark_gateway_function_billed_seconds_total"] == 1.5

    run(main())


def test_a_function_call_equals_the_one_a_bouncer_makes() -> None:
    """The call is inflated, with its binary part, its type, and the headers of SageMaker's clients."""

    async def main() -> None:
        functions = Kept()
        async with front(functions=functions) as none:
            answer = await none.post(b"{}ab", content_type="a/b", inference_header_content_length="2")
            assert (answer.content, answer.headers["inference-header-content-length"]) == (b"{}{}ab", "2")
            await none.post(gzip.compress(b"hi"), content_encoding="gzip", accept="x/y")
            await none.post(b"ho", "/invocations", content_type="text/csv", accept="x/y")
            assert functions.came == [
                Call("oip", "a/b", b"{}ab", 2),
                Call("oip", "", b"hi"),
                Call("sagemaker", "text/csv", b"ho", None, "x/y"),
            ]

    run(main())


def test_what_a_function_cannot_know_is_not_asked_of_it() -> None:
    """This covers another model, a version, and requests other than inference."""

    async def main() -> None:
        functions = FakeFunctions()
        async with front(functions=functions) as none:
            refused = [
                await none.post(path="/v2/models/other/infer"),
                await none.post(path="/v2/models/m/versions/1/infer"),
                await none.client.get("/v2/models/m"),
                await none.client.get(INFER),
            ]
            assert [(r.status_code, r.json()["error"], r.headers["retry-after"]) for r in refused] == [
                (503, "no replica is ready", "1")
            ] * len(refused)
            assert functions.calls == []

    run(main())


@pytest.mark.parametrize("stage", [True, False])
def test_a_conductors_call_is_taken_for_a_stage_only(stage: bool) -> None:
    """A bouncer of the stage does the same, and answers with decoded results."""

    async def main() -> None:
        functions, call = Kept(), call_with({"x": 1})
        async with front(functions=functions, stage=stage) as none:
            length = str(call.json_bytes)
            await none.post(bytes(call.body), content_type=RESULTS, inference_header_content_length=length)
            assert functions.came == [call if stage else Call("oip", RESULTS, call.body, call.json_bytes)]

    run(main())


def test_a_model_with_functions_is_ready_without_a_replica() -> None:
    """Only this model is ready; with a replica, that replica is asked."""

    async def main() -> None:
        path = "/v2/models/m/ready"
        async with front(functions=FakeFunctions()) as none:
            ready = await none.client.get(path)
            assert (ready.status_code, ready.json()) == (200, {"name": "m", "ready": True})
            assert (await none.client.get("/v2/models/other/ready")).status_code == 503
        replica = FakeReplica()
        async with front(replica, functions=FakeFunctions()) as one:
            await one.client.get(path)
            assert path in [asked.target for asked in replica.asked]
            assert "mark_gateway_requests_total" not in str(await numbers(one)), "a question is no request"
        async with Front() as without:
            assert (await without.client.get(path)).status_code == 503
            assert "mark_gateway_refused_total" not in str(await numbers(without))

    run(main())


def test_an_invalid_body_is_refused_as_by_a_replica() -> None:
    """The body does not match its headers, so trying it again would not help."""

    async def main() -> None:
        functions = FakeFunctions()
        large = gzip.compress(random.Random(1).randbytes(600_000) + bytes(MOST_BODY_BYTES))  # not 32-fold
        async with front(functions=functions) as none:
            refused = [
                await none.post(inference_header_content_length="9"),
                await none.post(inference_header_content_length="x"),
                await none.post(inference_header_content_length="1" * 5000),
                await none.post(b"no gzip", content_encoding="gzip"),
                await none.post(large, content_encoding="gzip"),
                await none.post(content_encoding="br"),
            ]
            assert [r.status_code for r in refused] == [400, 400, 400, 400, 413, 415]
            assert refused[-1].headers["accept-encoding"] == "gzip, deflate"
            assert all("retry-after" not in r.headers and r.json()["error"] for r in refused)
            assert functions.calls == []
            found = await numbers(none)
            assert found['mark_gateway_requests_total{code="400"}'] == 4.0

    run(main())


def test_replicas_come_first() -> None:
    """A replica's refusal stands. Only a request that both replicas lost goes to a function."""

    async def main() -> None:
        functions, a, b = FakeFunctions(), FakeReplica(), FakeReplica()
        async with front(a, b, functions=functions) as two:
            assert (await two.post()).content == b"hi"
            a.then = b.then = always(said(429, b"no"))
            assert (await two.post()).status_code == 429
            a.then = b.then = always(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
            a.ends = b.ends = True
            assert (await two.post()).status_code == 502
            assert functions.calls == []
            a.then = b.then = always(CLOSE)
            wrong = await two.post(inference_header_content_length="1" * 5000)
            assert wrong.status_code == 400
            assert functions.calls == []
            assert (await two.post()).content == b"f:hi"
            assert functions.calls == [b"hi"]

    run(main())


def test_broken_functions_are_left_alone() -> None:
    """Each failure is a refusal as without functions; a faulty or hurried call says nothing about functions."""

    async def main() -> None:
        functions = FakeFunctions()
        async with front(functions=functions) as none:
            functions.error = Unsuitable("too large")
            for _ in range(2 * MOST_FAILURES):
                assert (await none.post()).status_code == 503
            functions.error, functions.held = None, asyncio.Event()
            for _ in range(2 * MOST_FAILURES):
                assert (await none.post(mark_deadline_ms="300")).status_code == 504
            functions.held = None
            functions.error = FunctionsFailed("broken")
            for number in range(2 * MOST_FAILURES):
                functions.error = (FunctionsFailed("broken"), Throttled(30.0), ZeroDivisionError())[number % 3]
                answer = await none.post()
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert len(functions.calls) == 5 * MOST_FAILURES
            found = await numbers(none)
            assert found['mark_gateway_refused_total{reason="nobody_ready"}'] == 4 * MOST_FAILURES
            assert found['mark_gateway_refused_total{reason="expired"}'] == 2 * MOST_FAILURES

    run(main())


def test_a_late_answer_is_an_answer_and_counted() -> None:
    async def main() -> None:
        async with front(functions=FakeFunctions(), rt_max_s=1e-9) as none:
            assert (await none.post()).status_code == 200
            assert (await numbers(none))["mark_gateway_late_total"] == 1.0

    run(main())


@pytest.mark.parametrize("ends", [True, False])
def test_a_drain_waits_for_functions_and_not_for_ever(ends: bool) -> None:
    async def main() -> None:
        functions = FakeFunctions()
        functions.held = asyncio.Event()
        async with front(functions=functions) as none:
            asked = asyncio.create_task(none.post())
            while not functions.calls:
                await asyncio.sleep(0)
            drained = asyncio.create_task(none.forwarder.drain(10.0 if ends else 0.0))
            if ends:
                functions.held.set()
            await drained
            assert (await asked).status_code == (200 if ends else 503)

    run(main())


def test_a_real_gateway_without_replicas_asks_another_server(folder: Path) -> None:
    """The server given by `--function URL` is a bouncer here, which is not among its replicas."""
    with served(folder) as (_, where):
        command = [
            sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--model", "echo", "--slo-ms", "1000",
            "--function", f"{where}/v2/models/echo",
        ]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            answer = httpx.post(address(process) + REAL_INFER, content=body(7), timeout=20.0)
            assert (answer.status_code, answer.headers["mark-answered-by"]) == (200, "function")
            direct = httpx.post(where + REAL_INFER, content=body(7), timeout=20.0)
            assert answer.json()["outputs"] == direct.json()["outputs"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20.0)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--function", "http://127.0.0.1:1/v2/models/m"], "--model: must be said with --function"),
        (["--function", "http://127.0.0.1:1/v2/models/m", "--model", "m"], "--slo-ms: must be said with --function"),
        (["--model", "m"], "--model: is for a --function: m"),
        (["--stage", "m"], "--stage: is for a --function: m"),
        (
            ["--function", "http://127.0.0.1:1/v2/models/m", "--stage", "m", "--model", "m"],
            "--stage: is said instead of --model: m",
        ),
        (["--function-key", "x"], "--function-key: is for a --function at a URL"),
        (["--profile", "x"], "AWS profile: is for the name of a Lambda --function: x"),
        (["--function", "overflow", "--profile", "absent"], "AWS profile: is not in AWS's configuration: absent"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mark_command(["gateway", "--port", "0", *options]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
