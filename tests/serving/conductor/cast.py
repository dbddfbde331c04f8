"""A conductor with real replicas whose models are in this process, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import pytest
import uvloop

import mark
from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import NEVER_S, REJECT
from mark.insurance.insurance_settings import InsuranceSettings
from mark.models.answer import Answer
from mark.models.call import Call
from mark.models.items import items_in
from mark.serving.backend.bouncer import Bouncer, FixedTimes, Overflow
from mark.serving.backend.cache import Cache, KeptAnswers
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.replica import Replica
from mark.serving.backend.request import Request
from mark.serving.backend.sieve import Sieve
from mark.serving.conductor.coded_service import CodedService
from mark.serving.conductor.conductor import ConductedStage, Conductor, ConductorLimits
from mark.serving.conductor.graph import StageGraph
from mark.serving.conductor.remote_stage import RemoteStage, StageAddress
from mark.serving.frontend.server import ServedVersion, Server
from mark.serving.overflow.functions import FunctionClient
from mark.serving.overflow.http_client import Address
from tests.serving.direct_line import DirectLine
from tests.serving.place import Pool

RT_MAX_S = 5.0
Predict = Callable[[list[Any]], Any]
CastOf = Callable[..., "Cast"]


class Cast:
    """A conductor, a stage for each function (or model), and the conductor's answers by request id."""

    def __init__(
        self,
        models: Mapping[str, Predict | mark.Model],
        *,
        driver: Any = None,
        pipeline: Pipeline | None = None,
        takes_s: Mapping[str, float] | None = None,
        most_batch: int = 8,
        elsewhere: bool = False,
        functions: Mapping[str, FunctionClient] | None = None,
        cached: bool = False,
        insurance: InsuranceSettings | None = None,
        limits: ConductorLimits | None = None,
        **options: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.pools: dict[str, Pool] = {}
        self.replicas: dict[str, Replica] = {}
        store: KeptAnswers = Sieve(1_000_000)
        stages = []
        for name, predict in models.items():
            model = predict if isinstance(predict, mark.Model) else mark.model(predict)
            times = FixedTimes([0.0] + [(takes_s or {}).get(name, 1e-3)] * most_batch, most_batch)
            function = (functions or {}).get(name)
            function_s = NEVER_S if function is None else 1e-3
            overflow = Overflow(function_s, REJECT)
            bouncer = Bouncer(times, rt_max_s=RT_MAX_S, workers=0, overflow=overflow, probe_every_s=0.01)
            replica = Replica(bouncer, function, ModelMetrics("p", "1", name), loop, rt_max_s=RT_MAX_S)
            self.replicas[name] = replica
            self.pools[name] = Pool(replica, model)
            replica.attach(self.pools[name])
            replica.worker_ready(0)
            backend: StageBackend = _far(name, replica) if elsewhere else replica
            if cached:
                backend = Cache(backend, store, loop, model=name, rt_max_s=RT_MAX_S)
            stages.append(ConductedStage(name, backend, RT_MAX_S))
        self.coded: CodedService | None = None
        if insurance is not None:
            self.coded = CodedService(insurance, RT_MAX_S, stages[1:], loop)
        routers = driver, None if pipeline is None else StageGraph(pipeline), self.coded
        self.conductor = Conductor(
            stages,
            ModelMetrics("p", "1", ""),
            loop,
            name="p",
            router=next(router for router in routers if router is not None),
            limits=limits or ConductorLimits(),
            **options,
        )
        self.answers: dict[str, tuple[int, Any, str]] = {}
        self.stages: dict[str, str] = {}
        self.how: dict[str, Answer] = {}
        self._came = asyncio.Event()
        self._number = 0

    def send(
        self, value: Any, allowed_s: float = RT_MAX_S, protocol: str = "sagemaker", key: str = "", accepts: str = ""
    ) -> str:
        """Send a request whose body is this value in JSON, and return its id."""
        self._number += 1
        now_s = self.conductor.now()
        call = Call(protocol, "application/json", json.dumps(value).encode())
        request = Request(call, items_in(call), now_s, now_s + allowed_s, self._answered, f"r{self._number}")
        request.key, request.accepts = key, accepts
        self.conductor.offer(request)
        return request.id

    def _answered(self, request: Request, answer: Answer) -> None:
        if request.id in self.answers:
            pytest.fail(f"{request.id} is answered twice")
        self.answers[request.id] = answer.reply.status, json.loads(bytes(answer.reply.body)), answer.made_by
        self.stages[request.id] = answer.stages
        self.how[request.id] = answer
        self._came.set()

    async def ask(self, value: Any, allowed_s: float = RT_MAX_S, protocol: str = "sagemaker") -> tuple[int, Any, str]:
        return await self.answer(self.send(value, allowed_s, protocol))

    async def answer(self, identity: str) -> tuple[int, Any, str]:
        while identity not in self.answers:
            self._came.clear()
            await self._came.wait()
        return self.answers[identity]

    async def has(self, stage: str) -> None:
        """Wait until the stage's worker holds a batch."""
        while not self.pools[stage].waiting:
            await asyncio.sleep(0)

    def lose(self, stage: str) -> None:
        """Remove the stage's worker for longer than any query waits."""
        self.replicas[stage].worker_lost(0, "crash", 10 * RT_MAX_S)

    async def is_ready(self) -> None:
        while not self.conductor.ready:
            await asyncio.sleep(0)

    def said(self, identity: str) -> dict[str, str]:
        """Return the outcome of each stage."""
        parts = [part.partition("=") for part in self.stages[identity].split(";") if part]
        return {name: what.partition("/")[2] for name, _, what in parts}


def _far(name: str, replica: Replica) -> RemoteStage:
    """Return a remote stage whose server has the replica as its backend."""
    server = Server(name, [ServedVersion("1", replica)], replica, RT_MAX_S, Metrics(), stage=True)
    at = StageAddress(Address.of("http://stage:1"), RT_MAX_S)
    loop = asyncio.get_running_loop()
    stage = RemoteStage(name, at, ModelMetrics("p", "1", name), loop, line=partial(DirectLine, server))
    stage.look()
    return stage


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


def plus(number: int) -> Predict:
    return lambda batch: [item + number for item in batch]


def raises(batch: list[Any]) -> Any:
    raise ValueError("no")
