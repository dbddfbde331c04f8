"""One server process: a bouncer with its workers on this machine. It is built, run and drained here.

    readiness true after warm-up ─► serving ─► SIGTERM, SIGINT or an interruption notice ─► draining ─► exit

Draining turns readiness off and still takes requests for `linger_s`, so that a load balancer can notice. Then new
requests are refused, queued ones are answered here or by functions within `drain_s`, and the workers are ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import uvloop

from mark.domain.errors import BadInput, MarkError
from mark.domain.price_list import PriceList
from mark.domain.rules.admission import NEVER_S
from mark.domain.service import FeedbackSettings
from mark.insurance.insurance_settings import ParitySettings
from mark.models.answer import Answer
from mark.models.registry_place import open_objects
from mark.personal.settings import STAGE
from mark.selection.policies import policy_of
from mark.selection.query import Selection
from mark.selection.state import SelectionState
from mark.serving import freed_memory
from mark.serving import interruption_watch as notice
from mark.serving.backend import peer_header
from mark.serving.backend.bouncer import Bouncer, FixedTimes, Overflow, QueueLimits, ServiceTimes
from mark.serving.backend.cache import Cache, KeptAnswers
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.replica import Replica, ReplicaLimits
from mark.serving.backend.request import Request
from mark.serving.backend.sieve import Sieve
from mark.serving.backend.tuning import Corrected, SelfTuned
from mark.serving.backend.variants import Variants
from mark.serving.conductor.coded_service import CodedService
from mark.serving.conductor.conductor import ConductedStage, Conductor, ConductorLimits
from mark.serving.conductor.graph import StageGraph
from mark.serving.conductor.remote_stage import RemoteStage, StageAddress
from mark.serving.conductor.selected import CallPrices, ServedSelection
from mark.serving.conductor.selection_learner import SelectionLearner
from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.log import FeedbackLog
from mark.serving.frontend.auth import admit_own_machine
from mark.serving.frontend.feedback_door import FeedbackDoor, TakesFeedback, check_shares
from mark.serving.frontend.http import HttpServer
from mark.serving.frontend.insurance_page import insurance_route
from mark.serving.frontend.selection_page import selection_route
from mark.serving.frontend.server import Answered, RequestObserver, ServedVersion, Server
from mark.serving.layers.layer import LayerSite, layered
from mark.serving.learned.forwarding import FeedbackForwarding
from mark.serving.learned.learner_port import Learner
from mark.serving.learned.learning import Learning
from mark.serving.learned.peer_routes import routes_of
from mark.serving.learned.peers import Peers
from mark.serving.learned.sink import LearningSink
from mark.serving.learned.stored import LearnedStore
from mark.serving.observe import logs
from mark.serving.overflow.functions import FunctionClient
from mark.serving.process_settings import InsuredServing, ListenerConfig, PipelineServing, SelectionServing, Serving
from mark.serving.worker.child import KeptChild, OwnChild, Spawn
from mark.serving.worker.output import PrintedOutput
from mark.serving.worker.workers import WorkerEvents, WorkerLimits, WorkerModel, Workers

if TYPE_CHECKING:
    from mark.serving.frontend.grpc import GrpcListener
    from mark.serving.observe.tracing import Tracer
    from mark.serving.personal.assembly import Personal

log = logging.getLogger("mark.serving")

# No request is sent to an instance in the last seconds before its interruption, and its open requests end.
NOTICE_MARGIN_S = 10.0
_DESCRIPTORS = 8192
# Without `ttl_s` an answer of a remote stage is cached for this time, because a conductor is not told of its releases.
_STAGE_TTL_S = 60.0

_UNKNOWN = PriceList()


class ModelServer:
    """The whole process: replicas with workers, and the listener. Call `start`, then `drain` once `stop` is set."""

    def __init__(self, serving: Serving, listener: ListenerConfig) -> None:
        self._serving, self._listener = serving, listener
        self._loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.selection: ServedSelection | None = None
        self.insurance: CodedService | None = None
        self._printed = PrintedOutput()
        self._workers: list[Workers] = []
        self._remote: list[RemoteStage] = []
        self._first_ready = asyncio.Event()
        self._tls_context: ssl.SSLContext | None = None
        self._failure: str | None = None
        self.stop = asyncio.Event()
        tracer = _tracer(serving.name) if listener.trace_requests else None
        self._writer = os.urandom(6).hex()
        learner = None if serving.learner is None else serving.learner()
        if serving.pipeline is not None and serving.pipeline.selection is not None:
            self.selection, of_selection = self._select(tuple(serving.pipeline.stages), serving.pipeline.selection)
            learner = None if serving.feedback is None else of_selection  # learning needs feedback
        self._personal = _personal_of(serving, self._loop, self._see_ready)
        if self._personal is not None:
            learner = None if serving.feedback is None else self._personal.heads
        self._learning, self._feedback, self._forwarding = _feedback_of(serving, learner, self._writer, self._loop)
        self.metrics.feedback = self._feedback
        self._kept: KeptAnswers | None = None
        if serving.cache is not None:
            self._kept = Sieve(serving.cache.memory_mb * 1_000_000)
        self._served = None if tracer is None else tracer.served
        self._tracer, self._observer = tracer, _observer(listener, tracer, self._feedback)
        pipeline = serving.pipeline
        if pipeline is not None and pipeline.apart:
            first, *others = [(name, stage) for name, stage in pipeline.stages.items() if isinstance(stage, Serving)]
            self.server = self._apart(*first, [self._apart(*other) for other in others])
        elif pipeline is not None:
            versions = [self._conduct(pipeline, version) for version in serving.versions.references]
            self.server = self._server(serving.name, serving, versions)
        else:
            versions = [
                self._serve(serving, version, reference, ModelMetrics(serving.name, version))
                for version, reference in serving.versions.references.items()
            ]
            self.server = self._server(serving.name, serving, versions)
        admit = listener.auth.admit if listener.auth is not None else admit_own_machine
        if listener.auth is not None:
            self.server.may_tell_prices = listener.auth.may_tell_prices
        if self._learning is not None:
            self.metrics.more.append(self._learning.metrics)
            self.server.hear = partial(_hear_peers, self._learning)
            if listener.auth is not None:
                self._learning.may_teach = listener.auth.may_teach
        if self._personal is not None:
            self._personal.serve(self.server, listener.auth)
        self.http = HttpServer(self.server.handle, listener.limits, admit=admit)
        self.metrics.listener = self.http
        self._functions = _functions_of(serving)
        self.metrics.spent = [(labels, functions.spent) for labels, functions in self._functions]
        self.grpc = _grpc_listener(self.server, listener)
        self._background: set[asyncio.Task[None]] = set()

    def _server(
        self,
        name: str,
        serving: Serving,
        versions: Sequence[ServedVersion],
        *,
        stage: bool = False,
        beside: Sequence[Server] = (),
    ) -> Server:
        site = LayerSite(name, [one.version for one in versions], self._loop)
        backend = versions[0].backend
        if len(versions) > 1:
            backend = Variants(serving.versions, {one.version: one.backend for one in versions})
        backend = layered(backend, serving.layers, site)
        door: TakesFeedback | None = self._forwarding or self._feedback
        routes, personal = list(site.routes), self._personal
        check = check_shares if self._learning is not None else None
        if personal is not None:
            check = personal.check
            if door is not None and self._learning is not None and self._feedback is not None:
                door = personal.learn(self._learning, self._feedback, door)
            routes += personal.routes(self.metrics)
        if door is not None:
            routes.append((FeedbackDoor(door) if check is None else FeedbackDoor(door, check)).route())
        if self._learning is not None and self._forwarding is not None:
            routes += routes_of(self._learning, self._forwarding, self._loop)
        if self.selection is not None:
            selection = self.selection
            self.metrics.more.append(partial(selection.metrics, name, "1"))
            routes.append(selection_route(name, lambda: selection.said(self._loop.time())))
        if self.insurance is not None:
            routes.append(insurance_route(name, self.insurance.said))
        return Server(
            name,
            versions,
            backend,
            serving.rt_max_s,
            self.metrics,
            observer=RequestObserver(self._observer, self._tracer, self._writer),
            limits=self._listener.limits,
            routes=routes,
            stage=stage,
            beside=beside,
        )

    def _apart(self, name: str, stage: Serving, beside: Sequence[Server] = ()) -> Server:
        """Return the server of a stage that is a separate model, under the stage's name."""
        ((version, reference),) = stage.versions.references.items()
        served = self._serve(stage, version, reference, ModelMetrics(self._serving.name, version, name))
        return self._server(name, stage, [served], stage=True, beside=beside)

    def _serve(self, serving: Serving, version: str, reference: str, metrics: ModelMetrics) -> ServedVersion:
        def said(known: dict[str, Any]) -> None:
            served.metadata = orjson.dumps(known)

        replica = self._replica(serving, version, reference, metrics, said)
        served = ServedVersion(version, self._cached(replica, serving, reference))
        return served

    def _conduct(self, pipeline: PipelineServing, version: str) -> ServedVersion:
        """Return all stages behind one backend, whose inputs and outputs are those of the only first and last stage."""
        serving, known = self._serving, {"platform": "pipeline", "inputs": [], "outputs": []}
        graph = None if pipeline.graph is None else StageGraph(pipeline.graph)
        whole = ModelMetrics(serving.name, version, "")
        self.metrics.models.append(whole)

        selection, insurance = self.selection, pipeline.insurance

        def said(stage: int, of_stage: dict[str, Any]) -> None:
            if insurance is not None and (misfit := _misfit(insurance.settings.parity, of_stage)):
                self._fail(f"{'the model' if stage == 0 else 'a parity model'} does not fit, {misfit}")
            # All candidates have the same inputs and outputs, and clients do not see parity models.
            if stage == 0 and (selection is not None or insurance is not None):
                known.update({key: of_stage[key] for key in ("inputs", "outputs")})
            if stage == 0 and insurance is not None:
                conductor.name_outputs(of_stage["outputs"])
            for key, ends in (("inputs", graph.sources), ("outputs", graph.sinks)) if graph is not None else ():
                if ends == (stage,):
                    known[key] = of_stage[key]
            served.metadata = orjson.dumps(known)

        def described(body: bytes) -> None:
            """Note the inputs and outputs of an insured model that is served elsewhere."""
            try:
                of_model = orjson.loads(body)
                conductor.name_outputs(of_model["outputs"])
                known.update({key: of_model[key] for key in ("inputs", "outputs")})
            except (BadInput, KeyError, TypeError, ValueError):
                log.warning("the metadata of the model cannot be read: its output is called output")
            served.metadata = orjson.dumps(known)

        stages: dict[str, ConductedStage] = {}
        order = pipeline.stages if pipeline.graph is None else pipeline.graph.names
        for name, stage in pipeline.stages.items():
            metrics = ModelMetrics(serving.name, version, name)
            needed = insurance is None or not stages  # the answers of parity models are never repeated
            backend: StageBackend
            if isinstance(stage, StageAddress):
                self.metrics.models.append(metrics)
                remote = RemoteStage(
                    name,
                    stage,
                    metrics,
                    self._loop,
                    became_ready=self._see_ready,
                    described=described if insurance is not None and not stages else None,
                )
                self._remote.append(remote)
                backend = self._cached(remote, stage, stage.address.url) if needed else remote
            else:
                ((own_version, reference),) = stage.versions.references.items()
                replica = self._replica(
                    stage, own_version, reference, metrics, partial(said, list(order).index(name)), needed=needed
                )
                backend = self._cached(replica, stage, reference) if needed else replica
            stages[name] = ConductedStage(name, backend, stage.rt_max_s)
        if insurance is not None:
            self.insurance = self._insure(insurance, list(stages.values())[1:])
        if self._personal is not None:
            self._personal.ask(stages, serving.rt_max_s)
            stages[STAGE] = self._personal.stage(version, self.metrics, first=not stages)
        routers = graph, pipeline.driver, selection, self.insurance
        conductor = Conductor(
            [stages[name] for name in (stages if pipeline.graph is None else order)],
            whole,
            self._loop,
            name=serving.name,
            router=next(router for router in routers if router is not None),
            keeps_parts=pipeline.keeps_parts,
            version=version,
            probe_every_s=max(1.0, serving.rt_max_s),
            limits=ConductorLimits(queries=serving.max_queued),
        )
        served = ServedVersion(version, conductor, orjson.dumps(known))
        return served

    def _insure(self, asked: InsuredServing, parities: Sequence[ConductedStage]) -> CodedService:
        """Return the insurance by these parity models."""

        def told(now_s: float) -> PriceList:
            of_stages = self.server.told_prices.of_stages(now_s)
            found = [of_stages.get(parity.name, _UNKNOWN) for parity in parities]
            usd = [one.usd_per_hour for one in found if one.usd_per_hour is not None]
            rps = [one.ready_rps for one in found if one.ready_rps is not None]
            return PriceList(usd_per_hour=sum(usd) if usd else None, ready_rps=min(rps) if rps else None)

        found = CodedService(
            asked.settings,
            self._serving.rt_max_s,
            parities,
            self._loop,
            told=told,
            capacity_rps=asked.capacity_rps,
            share=asked.share,
            off=asked.off,
        )
        self.metrics.more.append(partial(found.metrics, self._serving.name))
        return found

    def _select(self, names: tuple[str, ...], asked: SelectionServing) -> tuple[ServedSelection, SelectionLearner]:
        """Return the selection among the stages of these names, and its learner."""
        settings, generator = asked.settings, np.random.default_rng()
        state = SelectionState(asked.keys, settings)
        policy = asked.own_policy or policy_of(settings, len(names), generator)

        def prices(now_s: float) -> CallPrices:
            return asked.prices(self.server.told_prices.of_stages(now_s))

        served = ServedSelection(names, Selection(policy, state, settings, generator.random), prices)
        champion = None if settings.champion is None else asked.keys[names.index(settings.champion)]
        return served, SelectionLearner(state, served.counts, champion)

    def _cached(self, backend: StageBackend, of: Serving | StageAddress, reference: str) -> StageBackend:
        """Return the backend behind a cache if the service file has `[cache]`, otherwise the backend itself."""
        settings = self._serving.cache
        if settings is None or self._kept is None:
            return backend
        ttl_s = settings.ttl_s or (_STAGE_TTL_S if isinstance(of, StageAddress) else math.inf)
        return Cache(
            backend,
            self._kept,
            self._loop,
            model=reference,
            rt_max_s=of.rt_max_s,
            ttl_s=ttl_s,
            keeps_functions=isinstance(of, StageAddress) or len(of.versions.references) == 1,
        )

    def _replica(
        self,
        serving: Serving,
        version: str,
        reference: str,
        metrics: ModelMetrics,
        said: Callable[[dict[str, Any]], None],
        *,
        needed: bool = True,
    ) -> Replica:
        """Return a replica with its workers, which calls `said` with a worker's description of the model.

        A running server continues without the workers if they are not `needed`.
        """
        candidate = serving.candidates.get(version, serving.candidate)
        times: ServiceTimes
        profiled_s = () if candidate is None else tuple(candidate.service_s.tolist())
        if candidate is None:
            # A request that just missed a batch waits until it ends, so two batches must fit into RT_max. The first
            # batch's time is unknown, and a tenth of RT_max admits few requests until it is known.
            times = SelfTuned(serving.rt_max_s / 2.0, most=serving.most_batch, first_s=serving.rt_max_s / 10.0)
            overhead_s, window_s, variation = 0.0, 0.0, 0.0
        else:
            times = Corrected(FixedTimes(profiled_s, candidate.policy.n_batch))
            overhead_s, window_s = candidate.overhead_s, candidate.policy.w_batch_s
            variation = candidate.variation
        bouncer = Bouncer(
            times,
            rt_max_s=serving.rt_max_s,
            variation=variation,
            overhead_s=overhead_s,
            window_s=window_s,
            workers=0,
            overflow=Overflow(
                function_s=serving.function_s if serving.functions is not None else NEVER_S,
                late=serving.late,
                least_in_time=serving.least_in_time,
                late_share=serving.late_share,
            ),
            limits=QueueLimits(serving.max_queued),
            probe_every_s=max(1.0, serving.rt_max_s),
        )
        self.metrics.models.append(metrics)
        replica = Replica(
            bouncer,
            serving.functions,
            metrics,
            self._loop,
            rt_max_s=serving.rt_max_s,
            limits=ReplicaLimits(function_timeout_s=serving.function_timeout_s),
            served=self._served,
            profiled_s=profiled_s,
            answers_later_s=serving.answers_later_s,
        )

        def ready(worker: int, seconds: float, about: bytes) -> None:
            known = orjson.loads(about)
            warm_up = known.pop("warm_up", None)
            if warm_up is not None and isinstance(times, SelfTuned):
                times.warmed_up(warm_up["items"], warm_up["s"])
            said(known)
            log.info("worker %d of %s, version %s, is ready after %.2f s", worker, serving.name, version, seconds)
            replica.worker_ready(worker)
            self._see_ready()

        def failed(reason: str) -> None:
            if needed or not self._first_ready.is_set():
                self._fail(reason)
            else:
                log.error("no worker of %s is left: %s", serving.name, reason)

        def replaced() -> None:
            metrics.worker_replacements += 1

        workers = Workers(
            WorkerModel(reference, serving.search, serving.name, version, serving.loader),
            serving.workers,
            WorkerEvents(ready, replica.worker_done, replica.worker_lost, failed, replaced),
            limits=WorkerLimits(hang_s=serving.hang_s, memory_bytes=serving.worker_memory_bytes),
            threads=serving.threads,
            spawn=self._spawn(serving),
        )
        replica.attach(workers)
        self._workers.append(workers)
        return replica

    def _fail(self, reason: str) -> None:
        """Stop the server, because it cannot serve."""
        self._failure = reason
        self._first_ready.set()
        self.stop.set()

    def _spawn(self, serving: Serving) -> Spawn:
        if serving.worker_socket is None:
            return partial(OwnChild, output=self._printed.fd)
        return KeptChild.through(serving.worker_socket, self._printed.fd)

    def _see_ready(self) -> None:
        if self._personal is not None:
            self._personal.see_ready()
        if self.server.ready:
            self._first_ready.set()

    async def start(self) -> int:
        """Listen, load the learned state, start the workers, wait until all are warm, and return the bound port.

        Liveness is true from the start, readiness once all workers are warm. Raises BadInput if the model cannot be
        loaded.
        """
        listener = self._listener
        if listener.keys is not None:
            listener.keys.start()
        for _, functions in self._functions:
            await functions.open()
        if listener.tls is not None:
            self._tls_context = listener.tls.context()
        bound = await self.http.start(listener.host, listener.port, self._tls_context)
        if self.grpc is not None and listener.grpc_port is not None:
            port = await self.grpc.start(listener.host, listener.grpc_port, listener.tls)
            log.info("gRPC listens on %s:%d", listener.host, port)
        if self._learning is not None:
            await self._until_stopped(self._learning.catch_up())
            self._learning.start()
            if self._personal is not None:
                self._personal.begin()
        for workers in self._workers:
            workers.start()
        for remote in self._remote:
            remote.start()
        self._see_ready()  # a service with only a head waits for no worker
        await self._until_stopped(self._first_ready.wait())
        if self._failure is not None:
            reason = self._failure
            await self.close()
            raise BadInput(reason, "model")
        # Objects that exist now live as long as the process. Without freezing them a collection would examine them all,
        # and its pause of tens of milliseconds makes requests late.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)  # requests create no reference cycles
        return bound

    async def _until_stopped(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait until the work is done or the process is told to stop."""
        working, stop = (asyncio.ensure_future(each) for each in (work, self.stop.wait()))
        await asyncio.wait((working, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if working.done():
            working.result()
        working.cancel()

    def reload(self) -> None:
        """Read certificates and keys again; if they cannot be used, keep the current ones."""
        if self._listener.keys is not None:
            self._listener.keys.wake()
        if self._listener.tls is None or self._tls_context is None:
            return
        try:
            self._listener.tls.reload(self._tls_context)
            log.info("certificates are read anew")
        except BadInput as error:
            log.error("certificates stay as they were: %s", error)

    def watch_notices(self, service: notice.MetadataService) -> None:
        """Drain in time when an interruption of this instance is announced."""
        task = self._loop.create_task(notice.watch(service, self._announced))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _announced(self, gone_unix_s: float) -> None:
        needed_s = self._serving.linger_s + self._serving.rt_max_s + NOTICE_MARGIN_S
        left_s = gone_unix_s - time.time() - needed_s
        log.warning("this instance is taken away in %.0f s", gone_unix_s - time.time())
        self._loop.call_later(max(0.0, left_s), self.stop.set)

    async def drain(self) -> str | None:
        """Drain as the module's docstring says. Return the failure that made the server stop, if any."""
        serving = self._serving
        servers = (self.server, *self.server.beside)
        for server in servers:
            server.draining = True
        if serving.linger_s > 0.0 and self._failure is None:
            await asyncio.sleep(serving.linger_s)
        await self.http.let_in()
        self.http.stop_listening()
        until_s = time.monotonic() + serving.drain_s
        await asyncio.gather(*(server.backend.drain(until_s) for server in servers))
        # A client that is just sending on a kept-alive connection must get a refusal instead of a reset.
        limits = self._listener.limits
        quiet_s = time.monotonic() + limits.drain_idle_s + 2.0 * limits.sweep_s
        while self.http.connections and time.monotonic() < quiet_s:
            await asyncio.sleep(0.02)
        await self.close()
        return self._failure

    async def close(self) -> None:
        """End the workers, the listener and background work after sending the answers that exist."""
        if self._listener.keys is not None:
            self._listener.keys.close()
        for task in self._background:
            task.cancel()
        for remote in self._remote:
            remote.close()
        await asyncio.gather(*(workers.stop(5.0) for workers in self._workers))
        await self._loop.run_in_executor(None, self._printed.close)
        if self.grpc is not None:
            await self.grpc.close(5.0)
        await self.http.close(5.0)
        if self._personal is not None:
            await self._personal.close()
        if self._forwarding is not None:
            await self._forwarding.close()
        if self._feedback is not None:
            await self._feedback.close()
        if self._learning is not None:
            await self._learning.close()
        if self._personal is not None:
            self._personal.end()
        for _, functions in self._functions:
            await functions.close()


def _misfit(parity: ParitySettings | None, of_model: dict[str, Any]) -> str:
    """Return why a model with this metadata cannot be in the parity models' coding groups, or "" if it can."""
    assert parity is not None, "only parity models insure a service"
    for key, shape in (("inputs", parity.input_shape), ("outputs", parity.output_shape)):
        said = of_model.get(key, ())
        if len(said) > 1:
            return f"{key}: parity models are for one tensor, not for {len(said)}"
        for tensor in said:
            own = tuple(tensor["shape"][1:])
            if key == "outputs" and not tensor["datatype"].startswith("FP"):
                return f"outputs: {tensor['datatype']} are labels, and parity models need scores (FP32)"
            if len(own) != len(shape) or any(one not in (-1, other) for one, other in zip(own, shape, strict=True)):
                return f"{key}: {list(own)} is not the shape {list(shape)} of parity.json"
    return ""


def _functions_of(serving: Serving) -> list[tuple[tuple[str, ...], FunctionClient]]:
    """Return the function clients of the served models, with the labels of their metrics."""
    if serving.pipeline is None:
        return [] if serving.functions is None else [((serving.name,), serving.functions)]
    return [
        ((serving.name, name), stage.functions)
        for name, stage in serving.pipeline.stages.items()
        if isinstance(stage, Serving) and stage.functions is not None
    ]


def _grpc_listener(server: Server, listener: ListenerConfig) -> GrpcListener | None:
    if listener.grpc_port is None:
        return None
    from mark.serving.frontend.grpc import GrpcListener  # imported here: it takes 0.15 s, for gRPC only

    return GrpcListener(server, listener.limits, listener.auth)


def _tracer(name: str) -> Tracer:
    from mark.serving.observe.tracing import from_environment  # imported here: it takes 0.15 s, for tracing only

    return from_environment(name)


def _personal_of(
    serving: Serving, loop: asyncio.AbstractEventLoop, became_ready: Callable[[], None]
) -> Personal | None:
    settings = None if serving.pipeline is None else serving.pipeline.personal
    if settings is None:
        return None
    from mark.serving.personal.assembly import Personal  # imported here: it imports scipy and is needed for heads only

    horizon_s = FeedbackSettings("").horizon_s if serving.feedback is None else serving.feedback.horizon_s
    return Personal(settings, serving.name, horizon_s, loop, became_ready)


def _feedback_of(
    serving: Serving, learner: Learner | None, writer: str, loop: asyncio.AbstractEventLoop
) -> tuple[Learning | None, FeedbackCollector | None, FeedbackForwarding | None]:
    """Return the parts of learning: the exchange of facts, the collector of feedback, and the forwarding to peers.

    Parts that are not configured are None. Raises BadInput if the service file has settings of a learner but nothing
    learns, or a learner but no feedback.
    """
    name, settings = serving.name, serving.feedback
    if learner is None and (serving.peers.addresses or (settings is not None and settings.store)):
        raise BadInput("nothing here learns from feedback", "peers" if serving.peers.addresses else "[feedback] store")
    if settings is None:
        if serving.learner is not None:
            raise BadInput("learns from feedback, and there is no section [feedback]", name)
        return None, None, None
    join = FeedbackJoin(settings.horizon_s, settings.memory_mb * 1_000_000)
    log = FeedbackLog(Path(settings.log), settings.log_mb * 1_000_000)
    if learner is None:
        return None, FeedbackCollector(name, join, log, settings.body_bytes, loop), None
    store = LearnedStore(open_objects(settings.store, "[feedback] store"), name) if settings.store else None
    peers = Peers(serving.peers, name, writer, loop)
    personal = None if serving.pipeline is None else serving.pipeline.personal
    first = "store" in (settings.durability, "" if personal is None else personal.settings.durability)
    learning = Learning(name, writer, learner, join, log.folder, peers, loop, store=store, store_first=first)
    collector = FeedbackCollector(name, join, LearningSink(log, learning), settings.body_bytes, loop)
    return learning, collector, FeedbackForwarding(collector, peers, writer, loop)


def _hear_peers(learning: Learning, headers: Mapping[bytes, bytes]) -> None:
    urls = peer_header.peers_in(headers)
    if urls is not None:
        learning.hear(urls)


def _observer(listener: ListenerConfig, tracer: Tracer | None, feedback: FeedbackCollector | None) -> Answered | None:
    """Return the function to call with every answer, for logs, traces and feedback; None if all are off."""
    observers: list[Answered] = []
    if listener.log_requests:
        observers.append(logs.answered(time.monotonic))
    if tracer is not None:
        observers.append(tracer.answered)
    if feedback is not None:
        observers.append(feedback.answered)
    if len(observers) < 2:
        return observers[0] if observers else None

    def all_of_them(request: Request, answer: Answer) -> None:
        for observe in observers:
            observe(request, answer)

    return all_of_them


async def serve(serving: Serving, listener: ListenerConfig, started: Callable[[int], None] = lambda port: None) -> None:
    """Serve until SIGTERM or SIGINT, then drain. `started` is called with the port once everything is ready.

    Raises BadInput if the model cannot be loaded or the port is taken, and MarkError if all workers are lost and none
    could be restarted.
    """
    loop = asyncio.get_running_loop()
    model_server = ModelServer(serving, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, model_server.stop.set)
    loop.add_signal_handler(signal.SIGHUP, model_server.reload)
    bound = await model_server.start()
    if listener.watch is not None:
        model_server.watch_notices(listener.watch)
    if not model_server.stop.is_set():
        started(bound)
    await model_server.stop.wait()
    failure = await model_server.drain()
    if failure is not None:
        raise MarkError(f"no worker has been ready for {serving.hang_s:g} s, the last one: {failure}")


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a coroutine function on uvloop."""
    freed_memory.keep()
    _allow_descriptors()
    uvloop.run(_beside_memory(main))


async def _beside_memory(main: Callable[[], Coroutine[None, None, None]]) -> None:
    looking = asyncio.create_task(freed_memory.give_back())
    try:
        await main()
    finally:
        looking.cancel()


def _allow_descriptors() -> None:
    """Raise the limit of file descriptors to the number that clients, TLS handshakes, functions and replicas need.

    The usual 1024 are too few. The limit is not raised further even if that is allowed, because an unfinished TLS
    handshake, which does not count as a connection yet, takes some 50 kB.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_DESCRIPTORS, hard)), hard))
