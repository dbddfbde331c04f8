"""Measure a model: in worker processes as in production, or on a server that already runs.

For a model that mark loads, a batch holds requests of one item each, and its time is a worker's, from send to done;
then the time that a whole bouncer adds to a single HTTP request is measured. For a running server, the times are those
that a client sees for one request that holds the whole batch.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import uvloop

from mark.domain.errors import BadInput, MarkError
from mark.domain.service import ServiceConfig
from mark.models import oip, results, sagemaker
from mark.models.call import Call, Reply
from mark.models.loading import find
from mark.models.registry_place import pinned
from mark.models.sample import sample_call
from mark.models.tensors import BadCall
from mark.models.versions import Versions
from mark.profiling.machine import Room, cpu_s, peak_bytes, this_room
from mark.profiling.measure import SIZES, Measured, Sampling, check_sizes, sizes_of
from mark.serving.backend.metrics import Histogram
from mark.serving.frontend.limits import HttpLimits
from mark.serving.process_settings import ListenerConfig, Serving
from mark.serving.server_process import ModelServer
from mark.serving.worker.loaders import SAMPLE
from mark.serving.worker.workers import WorkerEvents, WorkerLimits, WorkerModel, Workers

Progress = Callable[[float], None]

_HANG_S = 600.0  # a batch that takes longer hangs
# To see how much one worker uses: at most this number of batches of each size, or this share of its time.
_PROBES, _PROBE_SHARE = 50, 0.1
_SINGLE, _SINGLE_S = 300, 5.0  # single requests through a bouncer: this number, or as many as fit into this time
RT_MAX_S = 3000.0  # limit of the measured bouncer, so high that it refuses nothing
_INPUTS = "declares neither inputs nor warmup: give a request (--input FILE), or the class a `warmup`"
OF_A_CLIENT = "times of a client: they include its own server's overhead"
# The process ends with its parent, because the parent's end of the pipe closes.
_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True: pass
"""


@dataclass(frozen=True, slots=True)
class Profiling:
    """The options of a measurement.

    `model` is a reference as in a service file, relative to the folder `search`; `named` is its name in the profile (by
    default the reference). `calls` are requests of one item each, which batches take in turn; without any, one is made
    from the model's `warmup` or `inputs`. Each size is measured until the 95 % interval of its mean is within
    `precision` and its p99 is known, or for `seconds`. `workers` processes have a batch each at the same time; None: as
    many as keep `room` busy, by the use of one of them. `background` processes compute during the measurement.
    `headers` go with every request to a running server.
    """

    model: str
    search: Path = Path()
    named: str = ""
    instance: str = "local"
    calls: tuple[Call, ...] = ()
    batches: tuple[int, ...] = SIZES
    precision: float = 0.02
    seconds: float = 10.0
    seed: int = 0
    workers: int | None = None
    room: Room | None = None  # by default this machine's
    threads: int | None = None
    background: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sizes(self.batches, "batches")
        if not 0.0 < self.precision < 1.0:
            raise BadInput("must lie between 0 and 1", "precision", self.precision)
        if not self.seconds > 0.0:
            raise BadInput("must be above zero", "seconds", self.seconds)
        if (self.workers is not None and self.workers < 1) or self.background < 0:
            raise BadInput("must be a number of processes", "workers and background")


def of_service(service: ServiceConfig) -> Profiling:
    """Return the options for a service's code, or for its version with the largest share of requests.

    Raises BadInput if the service names no code.
    """
    service = pinned(service)
    reference = service.model
    if service.versions:
        reference = max(service.versions, key=lambda version: version.weight).model
    elif ":" not in reference:
        raise BadInput("has no code that could be measured: neither module:Class nor a file", service.name, reference)
    return Profiling(reference, Path(service.source).resolve().parent, named=service.model)


def profile(what: Profiling, progress: Progress | None = None) -> Measured:
    """Measure a model. This takes up to `seconds` for each size, plus start and end. `progress` gets the share done.

    Runs its own event loop. Raises BadInput if the model cannot be loaded or no size can be run.
    """
    tell = progress if progress is not None else (lambda share: None)
    with _busy(what.background):
        if what.model.startswith(("http://", "https://")):
            return _server(what, tell)
        return uvloop.run(_workers(what, tell))


async def _workers(what: Profiling, tell: Progress) -> Measured:
    sampling = _sampling(what)
    pool = _Pool(what)
    try:
        cold_s = await pool.start()
        calls = what.calls or (await pool.sample(),)
        turns = cycle(calls)
        if what.workers is None:
            what = replace(what, workers=await _carried(pool, what, turns))
            if what.workers != 1:
                await pool.stop()
                pool = _Pool(what)
                cold_s = await pool.start()
        while (size := sampling.next()) is not None:
            try:
                times_s, service_s, used_s = await pool.run(list(islice(turns, size)))
            except _BatchFailed as failed:
                sampling.fail(size, str(failed))
            else:
                sampling.record(size, times_s, service_s, used_s)
            tell(sampling.share_done())
        memory_bytes = pool.memory_bytes or None
    finally:
        await pool.stop()
    smallest = measured_of(what, sampling).sizes[0].batch  # raises BadInput if no size was measured
    hops = zip(sampling.times_s[smallest], sampling.service_s[smallest], strict=True)
    overhead_s: float | None = None
    notes: tuple[str, ...] = ()
    # an internal protocol of stages, which clients cannot send over the bouncer's HTTP
    if calls[0].protocol == results.PROTOCOL:
        return replace(measured_of(what, sampling, overhead_s, cold_s, notes), memory_bytes=memory_bytes)
    try:
        around_s = await _around_service_s(what, calls[0])
    except _BatchFailed as failed:
        notes = (f"the bouncer's overhead is not known and taken as 0: {failed}",)
    else:
        # Subtract the time between worker and bouncer, because the times of batches include it already.
        overhead_s = max(0.0, around_s - median(turn_s - own_s for turn_s, own_s in hops))
    return replace(measured_of(what, sampling, overhead_s, cold_s, notes), memory_bytes=memory_bytes)


async def _carried(pool: _Pool, what: Profiling, turns: Iterator[Call]) -> int:
    """Return how many workers keep the machine busy, by the use of one worker in a tenth of each size's time."""
    used = 0.0
    for size in what.batches:
        spent_s = used_s = 0.0
        for turn in range(_PROBES):
            try:
                (time_s,), _, turn_s = await pool.run(list(islice(turns, size)))
            except _BatchFailed:
                break  # the measurement fails as well and reports the reason
            if turn == 0:  # the first batch compiles, allocates and fills caches
                continue
            spent_s, used_s = spent_s + time_s, used_s + turn_s
            if spent_s > _PROBE_SHARE * what.seconds:
                break
        if spent_s > 0.0:
            used = max(used, used_s / spent_s)
    room = what.room or this_room()
    return replace(room, vcpus=room.vcpus - what.background).workers(used, pool.memory_bytes)


def _server(what: Profiling, tell: Progress) -> Measured:
    from mark.models.from_server import ServerModel  # imports an HTTP client that other measurements do not need

    model = find(what.model, what.search)
    if isinstance(model, ServerModel):
        model.headers = what.headers
    model.load()
    call = what.calls[0] if what.calls else sample_call(model)
    if call is None:
        raise BadInput(_INPUTS, what.model)
    try:
        items, _ = (oip if call.protocol == "oip" else sagemaker).decode(call, model)
    except BadCall as bad:
        raise BadInput(bad.text, what.model) from None
    sampling = _sampling(what)
    while (size := sampling.next()) is not None:
        began_s = perf_counter()
        try:
            model.predict(items * size)
        except MarkError as error:
            sampling.fail(size, str(error))
        else:
            sampling.record(size, [perf_counter() - began_s])
        tell(sampling.share_done())
    return measured_of(what, sampling, notes=(OF_A_CLIENT,))


def _sampling(what: Profiling) -> Sampling:
    return Sampling(what.batches, precision=what.precision, seconds=what.seconds, seed=what.seed)


def measured_of(
    what: Profiling,
    sampling: Sampling,
    overhead_s: float | None = None,
    cold_s: float | None = None,
    notes: tuple[str, ...] = (),
) -> Measured:
    """Return the results of the sampling. Raises BadInput if no batch could be run."""
    sizes = sizes_of(sampling)
    if not sizes:
        raise BadInput(f"no batch could be run: {next(iter(sampling.failed.values()))}", what.model)
    return Measured(
        model=what.named or what.model,
        instance=what.instance,
        sizes=sizes,
        workers=what.workers or 1,
        overhead_s=overhead_s,
        cold_s=cold_s,
        precision=what.precision,
        background=what.background,
        failed=dict(sampling.failed),
        notes=notes,
    )


class _BatchFailed(Exception):
    """The model or its process did not answer a batch; the message is one line."""


class _Pool:
    """All workers; each runs one batch at the same time as the others."""

    def __init__(self, what: Profiling) -> None:
        self._loop = asyncio.get_running_loop()
        count = what.workers or 1
        self._ready: list[asyncio.Future[float]] = [self._loop.create_future() for _ in range(count)]
        self._done: list[asyncio.Future[tuple[float, Sequence[Reply], float]]] = []
        self.memory_bytes = 0.0  # peak of any worker after a batch
        self._what = what
        self._workers = Workers(
            WorkerModel(what.model, what.search, loader="mark.serving.worker.loaders:load_measured"),
            count,
            WorkerEvents(
                ready=lambda worker, load_s, said: self._ready[worker].set_result(load_s),
                done=self._on_done,
                lost=self._on_lost,
                failed=self._on_failed,
            ),
            limits=WorkerLimits(hang_s=_HANG_S),
            threads=what.threads,
        )

    async def start(self) -> float:
        """Start the workers and return the seconds until the first one was ready.

        Raises BadInput if the model cannot be loaded.
        """
        self._workers.start()
        return (await asyncio.gather(*self._ready))[0]

    async def stop(self) -> None:
        await self._workers.stop(5.0)

    async def sample(self) -> Call:
        """Return a request of one item, made from the model's declarations. Raises BadInput without any."""
        self._done = [self._loop.create_future()]
        self._workers.send(0, [Call(SAMPLE, "", b"")])
        try:
            _, (reply,), _ = await self._done[0]
        except _BatchFailed as failed:
            raise BadInput(str(failed), self._what.model) from None
        if reply.status != 200:
            raise BadInput(_INPUTS, self._what.model)
        protocol = "oip" if reply.json_bytes is not None else "sagemaker"
        return Call(protocol, reply.content_type, reply.body, reply.json_bytes)

    def _cpu_s(self) -> float:
        """Return the processor seconds of the workers and of this process, which serves them like a server."""
        return process_time() + sum(cpu_s(pid) for pid in self._workers.pids().values())

    async def run(self, calls: Sequence[Call]) -> tuple[list[float], list[float], float]:
        """Run a batch on each worker.

        Return its seconds from send to done and in the worker, and the processor seconds of all. Raises _BatchFailed
        and BadInput.
        """
        await asyncio.gather(*self._ready)
        before_s = self._cpu_s()
        self._done = [self._loop.create_future() for _ in self._ready]
        sent_s = []
        for worker in range(len(self._ready)):
            sent_s.append(perf_counter())
            self._workers.send(worker, calls)
        answers = await asyncio.gather(*self._done, return_exceptions=True)
        used_s = self._cpu_s() - before_s
        times_s, service_s = [], []
        for began_s, answer in zip(sent_s, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            done_s, replies, own_s = answer
            for reply in replies:
                if reply.status != 200:
                    raise _BatchFailed(_error(reply))
            times_s.append(done_s - began_s)
            service_s.append(own_s)
        self.memory_bytes = max(self.memory_bytes, *(peak_bytes(pid) for pid in self._workers.pids().values()))
        return times_s, service_s, used_s

    def _on_done(self, worker: int, replies: list[Reply], service_s: float) -> None:
        if not self._done[worker].done():  # the caller cancelled it
            self._done[worker].set_result((perf_counter(), replies, service_s))

    def _on_lost(self, worker: int, reason: str, back_in_s: float, at_next: bool) -> None:
        self._ready[worker] = self._loop.create_future()
        if worker < len(self._done) and not self._done[worker].done():
            self._done[worker].set_exception(_BatchFailed(f"the worker was lost: {reason}"))

    def _on_failed(self, reason: str) -> None:
        for ready in self._ready:
            if not ready.done():
                ready.set_exception(BadInput(reason, "model"))


class _Kept(Histogram):
    """A histogram that keeps every value, in order."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        super().__init__(())
        self.values: list[float] = []

    def observe(self, value: float) -> None:
        self.values.append(value)


async def _around_service_s(what: Profiling, call: Call) -> float:
    """Return the median latency, less the worker's time, of single requests through a whole bouncer on loopback.

    The difference is taken for each request, so that a slow model with varying times does not hide it. Raises
    _BatchFailed.
    """
    serving = Serving(
        name="model",
        versions=Versions({"1": (what.model, 1.0)}),
        search=what.search,
        rt_max_s=RT_MAX_S,
        threads=what.threads,
    )
    server = ModelServer(serving, ListenerConfig(port=0, limits=HttpLimits(body_bytes=len(call.body) + 1)))
    (metrics,) = server.metrics.models
    metrics.service_s = kept = _Kept()
    try:
        port = await server.start()
        seconds = min(_SINGLE_S, what.seconds)
        client = [sys.executable, "-P", "-m", "mark.profiling.serial_client", str(port), str(_SINGLE), str(seconds)]
        ended = await asyncio.to_thread(
            subprocess.run, client, input=_http_request(call), capture_output=True, check=False
        )
    finally:
        await server.close()
        gc.unfreeze()  # a starting bouncer freezes all objects for good, but this process may be a notebook
    if ended.returncode != 0:
        raise _BatchFailed(" ".join(ended.stderr.decode(errors="replace").split()))
    pairs: list[tuple[float, float]] = list(zip(json.loads(ended.stdout), kept.values, strict=True))
    warm = pairs[len(pairs) // 10 :]
    return median(latency_s - own_s for latency_s, own_s in warm)


def _http_request(call: Call) -> bytes:
    path = "/v2/models/model/infer" if call.protocol == "oip" else "/invocations"
    length = "" if call.json_bytes is None else f"inference-header-content-length: {call.json_bytes}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {call.content_type}\r\n{length}"
        f"content-length: {len(call.body)}\r\n\r\n"
    )
    return head.encode() + bytes(call.body)


def _error(reply: Reply) -> str:
    try:
        return str(json.loads(bytes(reply.body))["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {reply.status}"


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep `count` processes computing during the block."""
    # A separate process group: a Ctrl-C in the terminal must not reach them, because we end them ourselves.
    busy = [sys.executable, "-c", _BUSY]
    processes = [subprocess.Popen(busy, stdin=subprocess.PIPE, process_group=0) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()
