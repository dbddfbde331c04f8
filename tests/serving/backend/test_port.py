"""Wrappers of backends behind the real server: they get all that they need, and no server knows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import uvloop

from mark.models.answer import CACHE, INSTANCE, RECONSTRUCTION, Answer, AskedModel, Provenance
from mark.models.answering import decode, encode
from mark.models.call import Call, Reply
from mark.models.results import results_of
from mark.serving.backend.bouncer import Bouncer, FixedTimes
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.port import Backend
from mark.serving.backend.replica import Replica
from mark.serving.backend.request import Attempt, Request
from mark.serving.worker.workers import WorkerEvents, WorkerModel, Workers
from tests.serving.frontend.test_grpc import infer_request
from tests.serving.place import RT_MAX_S, Place, Twice

INFER = "/v2/models/twice/infer"
HOW = Provenance((AskedModel("1", 0.9), AskedModel("2", 0.1)), "thompson;1", 0.875, "agreement=0.93")
SAID = {"mark-selected": "thompson;1", "mark-confidence": "0.875", "mark-degraded": "agreement=0.93"}
BODY = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}


class Behind:
    """The behaviour that all wrappers share: they are ready, refuse and drain as the backend behind them."""

    def __init__(self, behind: Backend) -> None:
        self.behind = behind
        self.offered: list[Request] = []

    @property
    def ready(self) -> bool:
        return self.behind.ready

    def offer(self, request: Request) -> None:
        self.offered.append(request)
        self.behind.offer(request)

    def retry_after_s(self) -> float:
        return self.behind.retry_after_s()

    async def drain(self, until_s: float) -> None:
        await self.behind.drain(until_s)


class Cache(Behind):
    """Answers a repeated body with its earlier answer."""

    def __init__(self, behind: Backend) -> None:
        super().__init__(behind)
        self.answers: dict[bytes, Answer] = {}

    def offer(self, request: Request) -> None:
        body = bytes(request.call.body)
        if (kept := self.answers.get(body)) is not None:
            request.answer(request, Answer(kept.reply, CACHE, kept.version))
        else:
            self.behind.offer(request.attempt(self._answered))

    def _answered(self, attempt: Request, answer: Answer) -> None:
        assert isinstance(attempt, Attempt)
        request = attempt.of
        assert request is not None
        if answer.reply.status == 200:
            self.answers[bytes(request.call.body)] = answer
        request.answer(request, answer)


class Sum(Behind):
    """Makes two attempts, the second with another payload, and answers with the sum of their results."""

    def __init__(self, behind: Backend, second: Call) -> None:
        super().__init__(behind)
        self.second = second
        self.parts: dict[int, list[Any]] = {}

    def offer(self, request: Request) -> None:
        for number, call in enumerate((request.call, self.second)):
            self.behind.offer(request.attempt(self._answered, call, number=number, decoded=True))

    def _answered(self, attempt: Request, answer: Answer) -> None:
        assert isinstance(attempt, Attempt)
        assert attempt.of is not None
        self.parts[attempt.number] = results_of(answer.reply)
        if len(self.parts) == 2:
            sums = [first + second for first, second in zip(self.parts.pop(0), self.parts.pop(1), strict=True)]
            opened = decode(Twice(), [attempt.of.call])
            opened.results = sums
            (reply,) = encode(Twice(), opened)
            attempt.of.answer(attempt.of, Answer(reply, RECONSTRUCTION, answer.version))


class Choosing(Behind):
    """Adds to each answer how it was made."""

    def offer(self, request: Request) -> None:
        self.behind.offer(request.attempt(self._answered))

    def _answered(self, attempt: Request, answer: Answer) -> None:
        assert isinstance(attempt, Attempt)
        assert attempt.of is not None
        attempt.of.answer(attempt.of, Answer(answer.reply, answer.made_by, answer.version, provenance=HOW))


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


def test_a_cache_before_a_replica_answers_both_protocols() -> None:
    async def main() -> None:
        async with Place(wrap=Cache) as place:
            answers = [await place.client.post(INFER, json=BODY) for _ in range(2)]
            assert [answer.headers["mark-answered-by"] for answer in answers] == [INSTANCE, CACHE]
            assert answers[0].json()["outputs"][0]["data"] == answers[1].json()["outputs"][0]["data"] == [2.0, 4.0]
            for made_by in (INSTANCE, CACHE):
                call = place.stub.ModelInfer(infer_request())
                await call
                assert dict(await call.trailing_metadata())["mark-answered-by"] == made_by
            assert len(place.pool.calls) == 2

    run(main)


def test_two_attempts_with_own_payloads_become_one_answer() -> None:
    async def main() -> None:
        second = Call("sagemaker", "application/json", b'{"instances": [[10.0, 20.0]]}')
        async with Place(wrap=lambda replica: Sum(replica, second)) as place:
            answer = await place.client.post(INFER, json=BODY)
            assert answer.headers["mark-answered-by"] == RECONSTRUCTION
            assert answer.json()["outputs"][0]["data"] == [22.0, 44.0]
            call = place.stub.ModelInfer(infer_request())
            np.testing.assert_array_equal(np.frombuffer((await call).raw_output_contents[0], "<f4"), [22.0, 44.0])
            assert dict(await call.trailing_metadata())["mark-answered-by"] == RECONSTRUCTION

    run(main)


def test_both_protocols_say_how_an_answer_came_about() -> None:
    async def main() -> None:
        async with Place(wrap=Choosing) as place:
            answer = await place.client.post(INFER, json=BODY)
            assert SAID.items() <= dict(answer.headers).items()
            call = place.stub.ModelInfer(infer_request())
            await call
            assert SAID.items() <= dict(await call.trailing_metadata()).items()
            assert [told.provenance for _, told in place.told] == [HOW] * 2
            assert [told.version for _, told in place.told] == ["1"] * 2

    run(main)


def test_a_backend_gets_key_and_deadline_of_the_client() -> None:
    async def main() -> None:
        backends: list[Behind] = []

        def wrap(replica: Backend) -> Backend:
            backends.append(Behind(replica))
            return backends[0]

        async with Place(wrap=wrap) as place:
            await place.client.post(INFER, json=BODY, headers={"mark-key": "user-7", "mark-deadline-ms": "5000"})
            await place.stub.ModelInfer(infer_request(), metadata=[("mark-key", "user-8")])
            await place.stub.ModelInfer(infer_request(), timeout=20.0)
            long = await place.client.post(INFER, json=BODY, headers={"mark-key": "k" * 129})
            assert (long.status_code, long.json()) == (400, {"error": "mark-key must have 128 bytes at most"})
            offered = backends[0].offered
            assert [request.key for request in offered] == ["user-7", "user-8", ""]
            allowed_s = [request.deadline_s - request.arrived_s for request in offered]
            assert allowed_s == pytest.approx([5.0, RT_MAX_S, RT_MAX_S])

    run(main)


def test_backend_gets_what_the_client_accepts() -> None:
    async def main() -> None:
        backends: list[Behind] = []

        def wrap(replica: Backend) -> Backend:
            backends.append(Behind(replica))
            return backends[0]

        async with Place(wrap=wrap) as place:
            await place.client.post(INFER, json=BODY, headers={"mark-accept": "degraded"})
            await place.stub.ModelInfer(infer_request(), metadata=[("mark-accept", "exact")])
            await place.client.post(INFER, json=BODY)
            assert [request.accepts for request in backends[0].offered] == ["degraded", "exact", ""]
            for bad in ("Exact", "exact, degraded", "d" * 5000):
                refused = await place.client.post(INFER, json=BODY, headers={"mark-accept": bad})
                said = {"error": "mark-accept must be exact or degraded"}
                assert (refused.status_code, refused.json()) == (400, said)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await place.stub.ModelInfer(infer_request(), metadata=[("mark-accept", "all")])
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert len(backends[0].offered) == 3

    run(main)


def test_no_client_gets_decoded_results() -> None:
    async def main() -> None:
        async with Place() as place:
            headers = {"accept": "application/vnd.mark.results", "content-type": "application/json"}
            answer = await place.client.post("/invocations", content=b"[[1.0, 2.0]]", headers=headers)
            assert answer.status_code == 406

    run(main)


def test_a_worker_process_gives_decoded_results(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(
        "import mark, numpy as np\n"
        "class Twice(mark.Model):\n"
        "    def predict(self, batch):\n"
        "        return [{'twice': np.asarray(item) * 2, 'text': b'\\xff'} for item in batch]\n"
    )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        bouncer = Bouncer(FixedTimes([0.0, 0.01, 0.01], 2), rt_max_s=20.0, workers=0)
        replica = Replica(bouncer, None, ModelMetrics("twice", "1"), loop, rt_max_s=20.0)
        ready = asyncio.Event()

        def on_ready(worker: int, load_s: float, said: bytes) -> None:
            replica.worker_ready(worker)
            ready.set()

        events = WorkerEvents(on_ready, replica.worker_done, replica.worker_lost, pytest.fail)
        workers = Workers(WorkerModel("doubling:Twice", tmp_path), 1, events)
        replica.attach(workers)
        workers.start()
        await ready.wait()
        replies: asyncio.Queue[Reply] = asyncio.Queue()

        def answered(request: Request, answer: Answer) -> None:
            replies.put_nowait(answer.reply)

        call = Call("sagemaker", "application/json", b'{"instances": [[1, 2], [3, 4]]}')
        request = Request(call, 2, loop.time(), loop.time() + 20.0, answered)
        replica.offer(request.attempt(answered, decoded=True))
        first, second = results_of(await replies.get())
        np.testing.assert_array_equal(first["twice"], [2, 4])
        np.testing.assert_array_equal(second["twice"], [6, 8])
        assert first["text"] == b"\xff"
        replica.offer(request.attempt(answered, Call("sagemaker", "application/json", b"[1")))
        refused = await replies.get()
        assert refused.status == 400
        with pytest.raises(ValueError, match="no decoded results: status 400"):
            results_of(refused)
        await replica.drain(loop.time() + 1.0)
        await workers.stop(5.0)

    run(main)


_: type[Backend] = Cache
