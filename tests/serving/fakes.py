"""Fakes of a replica's collaborators. They hold state, and fail when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import mark
from mark.models.answer import Answer
from mark.models.answering import answer
from mark.models.call import Call, Reply
from mark.serving.backend.replica import WorkerPool
from mark.serving.backend.request import Request
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Spent


class FakeWorkers:
    """Keeps batches until a test answers them."""

    def __init__(self) -> None:
        self.sent: dict[int, list[Call]] = {}
        self.ahead: dict[int, list[Call]] = {}  # each worker's next batch
        self.poison: set[bytes] = set()  # bodies that the model fails on, and with it the whole batch

    def send(self, worker_id: int, calls: Sequence[Call]) -> None:
        assert worker_id not in self.ahead, "a worker has two batches at a time"
        (self.ahead if worker_id in self.sent else self.sent)[worker_id] = list(calls)

    def replies(self, worker_id: int) -> list[Reply]:
        """Return the worker's replies to its batch: each body, echoed, unless the model fails."""
        calls = self.sent.pop(worker_id)
        if worker_id in self.ahead:
            self.sent[worker_id] = self.ahead.pop(worker_id)
        if any(bytes(call.body) in self.poison for call in calls):
            return [Reply(500, "application/json", b"failed")] * len(calls)
        return [Reply(200, "application/json", bytes(call.body)) for call in calls]


class FakeFunctions:
    """Echoes, or answers with no reply where `silent`; raises `error` if there is one; while `held`, calls wait."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.error: Exception | None = None
        self.held: asyncio.Event | None = None
        self.timeouts_s: list[float] = []
        self.closed = False
        self.silent = False
        self.spent = Spent()

    async def open(self) -> None:
        """Do nothing: it is always open."""

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        self.calls += [bytes(call.body) for call in calls]
        self.timeouts_s.append(timeout_s)
        if self.held is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.held.wait()
            except TimeoutError:
                raise FunctionsFailed("no answer in time") from None
        if self.closed:
            raise FunctionsFailed("closed")
        if self.error is not None:
            raise self.error
        answered = () if self.silent else calls
        return [Reply(200, "application/json", b"f:" + bytes(call.body)) for call in answered]

    async def close(self) -> None:
        self.closed = True
        if self.held is not None:
            self.held.set()


class ModelFunctions(FakeFunctions):
    """Functions that have the model."""

    def __init__(self, model: mark.Model) -> None:
        super().__init__()
        self._model = model

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        await super().call(calls, timeout_s)
        return answer(self._model, calls)


class Answers:
    """Every answer by request id; a second one to the same request is an error."""

    def __init__(self) -> None:
        self.by_id: dict[str, tuple[int, bytes, str]] = {}

    def request(self, identity: str, arrived_s: float, rt_max_s: float, deadline_s: float | None = None) -> Request:
        def answered(request: Request, answer: Answer) -> None:
            if identity in self.by_id:
                pytest.fail(f"{identity} is answered twice")  # no Exception: those a replica survives
            self.by_id[identity] = (answer.reply.status, bytes(answer.reply.body), answer.made_by)

        call = Call("oip", "application/json", identity.encode())
        latest_s = arrived_s + rt_max_s
        return Request(call, 1, arrived_s, latest_s if deadline_s is None else deadline_s, answered, identity)


_workers: type[WorkerPool] = FakeWorkers
_functions: type[FunctionClient] = FakeFunctions
