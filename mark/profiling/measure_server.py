"""Measure a model: in worker processes as they serve, or on a server that already runs.

Of a model that we load: how long a worker takes, from send to done, for batches of requests of one item each; then
what a whole bouncer adds to a single request over HTTP. Of a server that already runs: what a client sees of one
request that holds the whole batch.
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
from mark.serving.server_process import ListenerConfig, ModelServer, Serving
from mark.serving.worker.loaders import SAMPLE
from mark.serving.worker.workers import Workers

Progress = Callable[[float], None]

_HANG_S = 600.0  # of one batch
# Of each size, to see what one worker uses: this number of batches at most, or this share of its seconds.
_PROBES, _PROBE_SHARE = 50, 0.1
_SINGLE, _SINGLE_S = 300, 5.0  # requests through the whole bouncer: this number, or as many as fit into this time
RT_MAX_S = 3000.0  # of the bouncer that is measured: it refuses nothing
_INPUTS = "declares neither inputs nor warmup: give a request"
OF_A_CLIENT = "times of a client: they include its own server's overhead"
# Ends with the process that started it, whose end of the pipe closes.
_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True: pass
"""


@dataclass(frozen=True, slots=True)
class Profiling:
    """What to measure, and how well.

    `model` is a reference as in a service file, looked for from the folder `search`; `named` is what the profile calls
    it (the reference unless said). `calls` are requests of one item each, of which batches take the next ones in turn;
    none: one made of the model's own `warmup` or `inputs`. Each size is measured until the 95 % interval of its mean is
    within `precision` of it and its p99 is known, or for `seconds`. `workers` processes have a batch each at the same
    time; None: as many as keep `room` busy, by what one of them uses. `background` is how many processes compute
    meanwhile. `headers` go with every request to a server that already runs.
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
    room: Room | None = None  # of this machine unless said
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
    """The code of a service, or of its version with most requests. BadInput where there is none to measure."""
    service = pinned(service)
    reference = service.model
    if service.versions:
        reference = max(service.versions, key=lambda version: version.weight).model
    elif ":" not in reference:
        raise BadInput("has no code that could be measured: neither module:Class nor a file", service.name, reference)
    return Profiling(reference, Path(service.source).resolve().parent, named=service.model)


def profile(what: Profiling, progress: Progress | None = None) -> Measured:
    """Measure; takes up to `seconds` for each size, and some for what is around them. `progress` takes the share done.

    Runs an event loop of its own. Raises BadInput where the model cannot be loaded or no size can be run.
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
    smallest = measured_of(what, sampling).sizes[0].batch  # BadInput where there is none
    hops = zip(sampling.times_s[smallest], sampling.service_s[smallest], strict=True)
    overhead_s: float | None = None
    notes: tuple[str, ...] = ()
    if calls[0].protocol == results.PROTOCOL:  # which no client may send: what a stage is given costs no bouncer's HTTP
        return replace(measured_of(what, sampling, overhead_s, cold_s, notes), memory_bytes=memory_bytes)
    try:
        around_s = await _around_service_s(what, calls[0])
    except _BatchFailed as failed:
        notes = (f"the bouncer's overhead is not known and taken as 0: {failed}",)
    else:
        # From send to done is in the times of batches already.
        overhead_s = max(0.0, around_s - median(turn_s - own_s for turn_s, own_s in hops))
    return replace(measured_of(what, sampling, overhead_s, cold_s, notes), memory_bytes=memory_bytes)


async def _carried(pool: _Pool, what: Profiling, turns: Iterator[Call]) -> int:
    """Workers that keep the machine busy, by what the pool's only one uses: every size for a tenth of its seconds."""
    used = 0.0
    for size in what.batches:
        spent_s = used_s = 0.0
        for turn in range(_PROBES):
            try:
                (time_s,), _, turn_s = await pool.run(list(islice(turns, size)))
            except _BatchFailed:
                break  # the measurement finds that as well, and says why
            if turn == 0:  # it compiles, allocates and fills caches, which later ones do not
                continue
            spent_s, used_s = spent_s + time_s, used_s + turn_s
            if spent_s > _PROBE_SHARE * what.seconds:
                break
        if spent_s > 0.0:
            used = max(used, used_s / spent_s)
    room = what.room or this_room()
    return replace(room, vcpus=room.vcpus - what.background).workers(used, pool.memory_bytes)


def _server(what: Profiling, tell: Progress) -> Measured:
    from mark.models.from_server import ServerModel  # brings an HTTP client that no other measurement needs

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
    """What was sampled, of the model and instance of `what`. Raises BadInput where no batch could be run."""
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
    """The model, or its process, does not answer this; one line says why."""


class _Pool:
    """All workers, each with a batch at a time, all of them at the same time."""

    def __init__(self, what: Profiling) -> None:
        self._loop = asyncio.get_running_loop()
        count = what.workers or 1
        self._ready: list[asyncio.Future[float]] = [self._loop.create_future() for _ in range(count)]
        self._done: list[asyncio.Future[tuple[float, Sequence[Reply], float]]] = []
        self.memory_bytes = 0.0  # the most that one worker has held after a batch
        self._what = what
        self._workers = Workers(
            what.model,
            what.search,
            count,
            on_ready=lambda worker, load_s, said: self._ready[worker].set_result(load_s),
            on_done=self._on_done,
            on_lost=self._on_lost,
            on_failed=self._on_failed,
            threads=what.threads,
            hang_s=_HANG_S,
            loader="mark.serving.worker.loaders:load_measured",
        )

    async def start(self) -> float:
        """Seconds until the first worker was ready. Raises BadInput where the model cannot be loaded."""
        self._workers.start()
        return (await asyncio.gather(*self._ready))[0]

    async def stop(self) -> None:
        await self._workers.stop(5.0)

    async def sample(self) -> Call:
        """A request of one item that the model says it takes."""
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
        """Of all workers and of this process, which sends and receives for them as a server does."""
        return process_time() + sum(cpu_s(pid) for pid in self._workers.pids().values())

    async def run(self, calls: Sequence[Call]) -> tuple[list[float], list[float], float]:
        """A batch for each worker: seconds from send to done, within the worker, and of processors in all.

        Raises _BatchFailed, BadInput.
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
    """Every value, in order."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        super().__init__(())
        self.values: list[float] = []

    def observe(self, value: float) -> None:
        self.values.append(value)


async def _around_service_s(what: Profiling, call: Call) -> float:
    """The median, over single requests through a whole bouncer on loopback, of latency less time within the worker.

    Request by request, so that a model that takes long and not always as long does not hide it. Raises _BatchFailed.
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
        gc.unfreeze()  # a bouncer that starts keeps what is there for good; this may be a notebook
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
    """`count` processes compute without end."""
    # A group of their own: what ends us from the terminal is ours to tell them.
    busy = [sys.executable, "-c", _BUSY]
    processes = [subprocess.Popen(busy, stdin=subprocess.PIPE, process_group=0) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()
