"""Run the real code of a service with parity models in virtual time: six instances, and two of the parity model.

Conductor, coding groups, balancers and bouncers are the classes that serve. Only the network and the workers are
missing: a batch ends when the faults of its instance say so, and the clock jumps to the next timer. So the result
depends on no machine, and an hour takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import math
import selectors
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.faults import Faults
from mark.domain.rules.admission import TOLERANCE_S
from mark.insurance.insurance_settings import BEFORE_DEADLINE_S, DEGRADED, InsuranceSettings, ParitySettings
from mark.models.answer import RECONSTRUCTION, Answer
from mark.models.answering import answer
from mark.models.call import Call
from mark.models.model import FunctionModel
from mark.profiling.measure import mean_and_half_s
from mark.profiling.played_faults import FaultStream, PlayedFaults
from mark.serving.backend.bouncer import Bouncer, FixedTimes
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.replica import Replica
from mark.serving.backend.request import Request
from mark.serving.conductor.coded_service import CodedService
from mark.serving.conductor.conductor import ConductedStage, Conductor
from mark.serving.gateway.gateway import ALB, Gateway, GatewayPolicy, InFlightRequest
from mark.simulation.coded_flow import CodedFlow, coded_answers
from mark.simulation.fixed_run import fixed_run
from mark.simulation.request import RunRequest
from mark.studies.insure import _opened

SERVICE = Path(__file__).parents[1] / "examples" / "insurance" / "noisy.toml"
REQUEST_S, RT_MAX_S, RATE_RPS = 0.1, 0.25, 36.0
MODEL, PARITY, K = 6, 2, 3  # instances of the model and of the parity model, queries of a group
FAULTS = Faults(slow_share=0.05, slow_s=20.0, slow_factor=3.0)
NO_LIMIT_S = 1e6  # the fleets of `mark insure` refuse nothing
WEIGHTS = np.array([[1, -2, 0], [0, 1, 3]], np.float32)


class _NoSockets(selectors.SelectSelector):
    """A selector that adds the waiting time to `passed_s` instead of waiting."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        super().select(0)
        assert timeout is not None, "there is nothing left to wait for"
        self.passed_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._no_sockets = _NoSockets()
        super().__init__(self._no_sockets)
        self._clock_resolution = 1e-12

    def time(self) -> float:
        return self._no_sockets.passed_s


def linear(batch: list[Any]) -> Any:
    return np.asarray(batch, np.float32) @ WEIGHTS


class Worker:
    """The only worker of an instance. A batch takes as long as the faults of the instance say."""

    def __init__(self, replica: Replica, loop: VirtualLoop, faults: PlayedFaults) -> None:
        self._replica, self._loop, self._faults = replica, loop, faults
        self._model = FunctionModel(linear)
        self._free_s, self.batches = 0.0, 0

    def send(self, worker_id: int, calls: Sequence[Call]) -> None:
        start_s = max(self._loop.time(), self._free_s)
        self._free_s = self._faults.end_s(start_s, REQUEST_S)
        self.batches += 1
        replies = answer(self._model, calls)
        self._loop.call_at(self._free_s, self._replica.worker_done, worker_id, replies, self._free_s - start_s)


class Balanced:
    """A stage of several instances behind mark's gateway, which routes as an ALB does."""

    def __init__(self, name: str, count: int, seed: int, loop: VirtualLoop) -> None:
        self.metrics = ModelMetrics("p", "1", name)
        self.least_s = REQUEST_S
        self._loop = loop
        self._gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(routing=ALB))
        self._gateway.put({str(one): 1.0 for one in range(count)}, 0.0)
        for one in self._gateway.tick(0.0):
            self._gateway.probed(one, True, 0.0)
        self._replicas, self.workers = [], []
        for number in range(1, count + 1):  # as the simulator numbers launches, for the same slow periods
            bouncer = Bouncer(FixedTimes([0.0, REQUEST_S], 1), rt_max_s=NO_LIMIT_S, workers=0)
            replica = Replica(bouncer, None, self.metrics, loop, rt_max_s=NO_LIMIT_S, now=loop.time)
            self.workers.append(Worker(replica, loop, PlayedFaults(FAULTS, FaultStream(0.0, seed, number))))
            replica.attach(self.workers[-1])
            replica.worker_ready(0)
            self._replicas.append(replica)

    @property
    def ready(self) -> bool:
        return True

    def retry_after_s(self) -> float:
        return 1.0

    async def drain(self, until_s: float) -> None:
        for replica in self._replicas:
            await replica.drain(until_s)

    def offer(self, request: Request) -> None:
        begun = self._gateway.begin(InFlightRequest(math.inf, 0), self._loop.time())
        assert not isinstance(begun, str), begun
        told = partial(self._answered, request, begun)
        attempt = Request(request.call, 1, self._loop.time(), math.inf, told, request.id)
        self._replicas[begun.replica.number].offer(attempt)

    def _answered(self, request: Request, attempt: Any, _: Request, answer: Answer) -> None:
        self._gateway.answered(attempt, answer.reply.status, self._loop.time())
        request.answer(request, answer)


def served(arrivals_s: FloatArray, settings: InsuranceSettings, seed: int) -> tuple[FloatArray, int]:
    """Return the latency of each query, infinite without an answer, and the number of reconstructed answers."""
    loop = VirtualLoop()
    stages = [
        ConductedStage(name, Balanced(name, count, seed, loop), RT_MAX_S)
        for name, count, seed in (("model", MODEL, seed), ("parity", PARITY, seed + 1))
    ]
    coded = CodedService(
        settings, RT_MAX_S, stages[1:], loop, capacity_rps=PARITY / REQUEST_S, now=loop.time, unix_s=loop.time
    )
    conductor = Conductor(stages, ModelMetrics("p", "1", ""), loop, name="p", router=coded, now=loop.time)
    latency_s, degraded = np.full(len(arrivals_s), np.inf), 0

    def answered(query: int, request: Request, answer: Answer) -> None:
        nonlocal degraded
        if answer.reply.status == 200:
            latency_s[query] = loop.time() - arrivals_s[query]
            degraded += answer.made_by == RECONSTRUCTION
            (found,) = json.loads(bytes(answer.reply.body))["predictions"]
            assert np.allclose(found, linear([[query % 7, 1.0]])[0], atol=1e-4), (query, found)

    def arrive(query: int) -> None:
        body = json.dumps({"instances": [[query % 7, 1.0]]}).encode()
        call = Call("sagemaker", "application/json", body)
        now_s = loop.time()
        conductor.offer(Request(call, 1, now_s, now_s + RT_MAX_S, partial(answered, query), str(query)))
        if query + 1 < len(arrivals_s):
            loop.call_at(arrivals_s[query + 1], arrive, query + 1)

    async def run() -> None:
        loop.call_at(arrivals_s[0], arrive, 0)
        await asyncio.sleep(float(arrivals_s[-1]) + 60.0)
        await conductor.drain(loop.time() + 60.0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    claims, workers = coded.groups.claims, [one for stage in stages for one in stage.backend.workers]
    assert claims.members == len(arrivals_s)
    assert sum(one.batches for one in workers) == claims.members + claims.parity_calls
    return latency_s, degraded


def simulated(
    arrivals_s: FloatArray, settings: InsuranceSettings, seed: int, faults: Faults = FAULTS
) -> tuple[FloatArray, int]:
    """Return the same figures from the simulator, as `mark insure` uses it, with the same slow periods."""
    request = RunRequest(
        "synthetic:poisson?rate=36", str(SERVICE), duration_s=float(arrivals_s[-1]) + 1.0, seed=seed, with_bound=False
    )
    inputs = _opened(request, 1.0)
    service = replace(inputs.service, routing=ALB, faults=faults)
    inputs = replace(inputs, service=service, resolved=replace(inputs.resolved, service=service))
    flow = CodedFlow(settings, RT_MAX_S, arrivals_s, lambda at_s: PARITY / REQUEST_S)

    def serve(seed: int, count: int, times_s: FloatArray, limits_s: FloatArray) -> FloatArray:
        own = replace(inputs, request=replace(request, seed=seed))
        return fixed_run(own, "c7i.large/on-demand", count, times_s, limits_s).answer_s

    answers = coded_answers(flow, partial(serve, seed, MODEL), [partial(serve, seed + 1, PARITY)])
    return answers.latency_s, answers.reconstructed


def conductor(hours: float, seed: int) -> bool:
    """Print the late and the reconstructed shares both ways; True within 0.3 points and 10 %."""
    arrivals_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / RATE_RPS, int(3600 * RATE_RPS * hours)))
    settings = InsuranceSettings(
        ParitySettings("sum", K, input_shape=(2,), output_shape=(3,)),
        after_s=RT_MAX_S - BEFORE_DEADLINE_S,
        accept=DEGRADED,
    )
    late, share = {}, {}
    for name, run in (("served", served), ("simulated", simulated)):
        latency_s, reconstructed = run(arrivals_s, settings, seed)
        late[name] = latency_s > RT_MAX_S + TOLERANCE_S
        share[name] = reconstructed / len(arrivals_s)
        print(f"{name:<10} late {late[name].mean():.3%}  reconstructed {share[name]:.3%}", flush=True)
    difference, half = mean_and_half_s(late["served"].astype(float) - late["simulated"].astype(float))
    print(f"{len(arrivals_s):,} queries; late differs by {100 * difference:+.3f} +- {100 * half:.3f} points")
    return abs(difference) <= 0.003 and abs(share["served"] - share["simulated"]) <= 0.1 * share["simulated"]
