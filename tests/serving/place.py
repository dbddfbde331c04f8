"""A server of one model, whole but for its worker process: the model is in this one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import httpx
import numpy as np
from tritonclient.grpc import service_pb2_grpc

import mark
from mark.models.answer import Answer
from mark.models.answering import answer
from mark.models.call import Call
from mark.models.metadata import metadata
from mark.serving.backend.bouncer import Bouncer, FixedTimes
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.port import Backend
from mark.serving.backend.replica import Replica
from mark.serving.backend.request import Request
from mark.serving.frontend.auth import Auth
from mark.serving.frontend.grpc import GrpcListener
from mark.serving.frontend.http import HttpLimits, HttpServer
from mark.serving.frontend.routes import ModelRoute
from mark.serving.frontend.server import RequestObserver, ServedVersion, Server
from mark.serving.observe.tracing import Tracer

RT_MAX_S = 10.0  # on a starved machine a second may pass between two turns of a loop


class Twice(mark.Model):
    name, version = "twice", "1"
    inputs = (mark.TensorSpec("x", "FP32", (2,)),)
    outputs = (mark.TensorSpec("y", "FP32", (2,)),)

    def predict(self, batch: list[Any]) -> Any:
        return np.stack(batch) * np.float32(2.0)


class Pool:
    """A worker in this process; while `held`, its batches wait for `release`."""

    def __init__(self, replica: Replica, model: mark.Model) -> None:
        self._replica, self._model = replica, model
        self.held = False
        self.waiting: list[tuple[int, list[Call]]] = []
        self.calls: list[Call] = []

    def send(self, worker_id: int, calls: Sequence[Call]) -> None:
        self.calls += calls
        self.waiting.append((worker_id, list(calls)))
        if not self.held:
            asyncio.get_running_loop().call_soon(self.release)

    def release(self) -> None:
        for worker_id, calls in self.waiting.copy():
            self.waiting.clear()
            self._replica.worker_done(worker_id, answer(self._model, calls), 0.001)


class Place:
    """A server of one model with its listeners, and a client of each. `wrap` makes the backend before the replica."""

    def __init__(
        self,
        model: mark.Model | None = None,
        auth: Auth | None = None,
        tracer: Tracer | None = None,
        wrap: Callable[[Backend], Backend] = lambda replica: replica,
        routes: Sequence[ModelRoute] = (),
        **limits: Any,
    ) -> None:
        model = model or Twice()
        loop = asyncio.get_running_loop()
        self.metrics = ModelMetrics(model.name, "1")
        bouncer = Bouncer(FixedTimes([0.0] + [0.001] * 8, 8), rt_max_s=RT_MAX_S, workers=0)
        served = None if tracer is None else tracer.served
        self.replica = Replica(bouncer, None, self.metrics, loop, rt_max_s=RT_MAX_S, served=served)
        self.pool = Pool(self.replica, model)
        self.replica.attach(self.pool)
        version = ServedVersion("1", wrap(self.replica), json.dumps(metadata(model)).encode())
        self.told: list[tuple[Request, Answer]] = []
        self.server = Server(
            model.name,
            [version],
            version.backend,
            RT_MAX_S,
            Metrics(),
            observer=RequestObserver(lambda *what: self.told.append(what), tracer),
            routes=routes,
        )
        self.listener = GrpcListener(self.server, HttpLimits(**limits), auth)
        self.http = HttpServer(self.server.handle, HttpLimits(**limits))
        self.port = 0

    async def __aenter__(self) -> Place:
        self.port = await self.listener.start("127.0.0.1", 0, None)
        url = f"http://127.0.0.1:{await self.http.start('127.0.0.1', 0)}"
        self.client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60.0)
        self.replica.worker_ready(0)
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.client.aclose()
        await self.listener.close(0.0)
        await self.http.close(0.0)
        await self.replica.drain(0.0)
