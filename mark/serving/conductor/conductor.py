"""Several models behind one endpoint: a backend that takes each query through the stages of a pipeline.

`mark.serving.conductor.query` decides which calls may begin, which are dropped, and that each query gets one answer.
This module has the I/O: a backend for each stage, timers, and the driver, if there is one. Everything runs on one event
loop. A call of a stage is a request to a replica, in this process or behind an address
(`mark.serving.conductor.remote_stage`). The replica batches it, retries it after the loss of a worker, and refuses it
if it cannot be in time, as for any model.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from mark.domain.errors import BadInput
from mark.domain.rules.stage_horizon import stage_horizon_s
from mark.models.answer import CACHE, DEFAULT, FUNCTION, INSTANCE, NOBODY, RECONSTRUCTION, Answer, Provenance
from mark.models.answering import Opened, decode, encode
from mark.models.call import Call, Reply
from mark.models.driver import PipelineDriver, StageCall, StageFailed
from mark.models.model import Model, TensorSpec
from mark.models.results import call_with, results_of
from mark.serving.backend.bouncer import DRAINING, QUEUE_FULL, TOO_LARGE
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.port import Backend, StageBackend
from mark.serving.backend.refusals import error_reply, refusal
from mark.serving.backend.request import Request
from mark.serving.conductor.coded_service import CodedItem, CodedService
from mark.serving.conductor.graph import StageGraph
from mark.serving.conductor.query import (
    ANSWERED,
    BY_CACHE,
    BY_FUNCTION,
    FAILED,
    LATE,
    REFUSED,
    UNUSED,
    GraphProgress,
    QueryProgress,
)
from mark.serving.conductor.selected import SelectedItem, SelectedNotes, ServedSelection

_LOG = logging.getLogger("mark.serving")
_BY = {FUNCTION: BY_FUNCTION, CACHE: BY_CACHE}
_STATES = {429: REFUSED, 503: REFUSED, 504: LATE}
# These statuses do not come from a model.
_REFUSED = frozenset((413, 429, 502, 503, 504))
_WAITS_FOR_ALL_S = 60.0  # a starting service waits this long for stages it can do without
_NOT_PLAIN = "an item is nested too deeply, or no plain value"


@dataclass(frozen=True, slots=True)
class ConductedStage:
    """A stage and the backend that answers its calls. `rt_max_s` is its part of the pipeline's RT_max.

    A stage with `has_workers` False runs in the conductor's own process.
    """

    name: str
    backend: StageBackend
    rt_max_s: float
    has_workers: bool = True


# Called when a call has ended, with the stage and either the result or the error that its query could end with.
_Told = Callable[[int, Any, Reply | None], None]


class Run:
    """A request in progress. Its items are queries that go through the stages concurrently."""

    __slots__ = (
        "coded", "degraded", "futures", "left", "notes", "opened", "progress", "request", "rest", "results", "selected",
        "stage_notes", "tasks", "timer",
    )  # fmt: skip

    def __init__(self, request: Request, opened: Opened, progress: QueryProgress) -> None:
        self.request, self.opened, self.progress = request, opened, progress
        self.left = len(opened.batch)
        self.rest: list[tuple[int, Any]] = []  # items that begin after the first one has its result
        self.results: list[Any] = [None] * self.left
        self.futures: list[asyncio.Future[Any]] = []  # given to a driver
        self.tasks: dict[int, asyncio.Task[None]] = {}  # of drivers, by item
        self.timer: asyncio.TimerHandle | None = None
        self.notes: SelectedNotes | None = None  # of a selection
        self.selected: list[SelectedItem] = []
        self.coded: list[CodedItem] = []
        self.degraded = False  # whether an item has a reconstruction
        self.stage_notes: list[bytes] = []  # notes of stages that learn from feedback

    def provenance(self) -> Provenance | None:
        """Return how the answer came about; None if the answer needs no note."""
        if self.notes is not None:
            return self.notes.provenance()
        return Provenance(note=b"[%b]" % b",".join(self.stage_notes)) if self.stage_notes else None

    def forget(self) -> None:
        """Release the request's data, because unfinished calls and errors of stages still refer to the run."""
        for item in self.coded:
            item.over()
        for kept in (self.opened.batch, self.rest, self.results, self.futures, self.tasks, self.selected, self.coded):
            kept.clear()


@dataclass(frozen=True, slots=True)
class ConductorLimits:
    """Limits of the queries in progress, of a request's items, and of the bodies of all queries in progress.

    A request's items are limited because all of them begin in one turn of the loop.
    """

    queries: int = 10_000
    items: int = 1_000
    held_bytes: int = 512 << 20


class Conductor:
    """The backend of a pipeline: it calls the stages and answers every query exactly once.

    `router` decides the next stage of a query. With a `CodedService` the first stage is a model and the others are its
    parity models. With `keeps_parts` a stage leaves later stages their planned parts of RT_max, but always has its own
    part; with a driver, all stages after it in the list are later. Otherwise it leaves them only their least times.

    A query is answered at its deadline, and no further call begins for it. The stages' times are learned and can be
    wrong, so after queries were dropped because of them, one query every `probe_every_s` is served regardless.
    """

    def __init__(
        self,
        stages: Sequence[ConductedStage],
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        name: str,
        router: StageGraph | PipelineDriver | ServedSelection | CodedService,
        keeps_parts: bool = False,
        version: str = "1",
        probe_every_s: float = 1.0,
        limits: ConductorLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stages, self.metrics = stages, metrics
        metrics.refresh = self._refresh
        self._names = tuple(stage.name for stage in stages)
        self.backends = tuple(stage.backend for stage in stages)
        self.loop, self.now = loop, now
        self._graph = router if isinstance(router, StageGraph) else None
        self._driver = router if isinstance(router, PipelineDriver) else None
        self._selection = router if isinstance(router, ServedSelection) else None
        self._coded = router if isinstance(router, CodedService) else None
        # For each stage the parts of the stages after it; None: only their least times count.
        self._behind_s: list[float] | None = None
        if keeps_parts and isinstance(router, StageGraph | PipelineDriver):
            parts_s = tuple(stage.rt_max_s for stage in stages)
            # A driver's graph is unknown, so its stages are assumed to run one after the other.
            one_by_one_s = tuple(itertools.accumulate(reversed(parts_s)))[::-1]
            whole_s = one_by_one_s if self._graph is None else self._graph.needed_s(parts_s)
            self._behind_s = [all_s - own_s for all_s, own_s in zip(whole_s, parts_s, strict=True)]
        self._model = Model()
        self._model.name, self._model.version = name, version
        # A driver reads a query's parts by their names with every protocol.
        self._model.by_name = self._driver is not None
        self._runs: set[Run] = set()
        limits = limits or ConductorLimits()
        self._queries, self._most_queries, self._most_items = 0, limits.queries, min(limits.items, limits.queries)
        self._held_bytes, self._most_held_bytes = 0, limits.held_bytes
        self._probe_every_s, self._probe_s, self._dropped = probe_every_s, 0.0, False
        self._draining, self._begun, self._began_s = False, False, now()
        self._settled: asyncio.Future[None] | None = None

    def name_outputs(self, said: Sequence[dict[str, Any]]) -> None:
        """Answer with outputs of these names and types, from the model's metadata."""
        self._model.outputs = [TensorSpec(one["name"], one["datatype"], tuple(one["shape"][1:])) for one in said]

    # The port

    @property
    def ready(self) -> bool:
        """Return whether a query would be served.

        Every stage must be ready; with a selection one candidate, and with parity models the model. Such a service can
        continue without its other stages, but at its start it waits up to a minute for all of them.
        """
        ready = [backend.ready for backend in self.backends]
        if self._selection is not None or self._coded is not None:
            self._begun = self._begun or all(ready) or self.now() >= self._began_s + _WAITS_FOR_ALL_S
            enough = any(ready) if self._selection is not None else ready[0]
            return not self._draining and enough and self._begun
        return not self._draining and all(ready)

    def retry_after_s(self) -> float:
        """Return the seconds after which a refused query should be sent again."""
        needed = self.backends if self._coded is None else self.backends[:1]
        return max(backend.retry_after_s() for backend in needed)

    def offer(self, request: Request) -> None:
        """Begin the request's first stages, or refuse it."""
        size, items = len(request.call.body), request.items
        if items > self._most_items:
            self.metrics.refused[TOO_LARGE] += 1
            what = f"a request to a pipeline has {self._most_items} items at most, not {items}"
            self._answer(request, error_reply(413, what), NOBODY)
            return
        full = self._queries + items > self._most_queries or self._held_bytes + size > self._most_held_bytes
        if self._draining or full:
            reason = DRAINING if self._draining else QUEUE_FULL
            self.metrics.refused[reason] += 1
            self._answer(request, refusal(reason), NOBODY)
            return
        opened = decode(self._model, [request.call])
        if opened.replies[0] is not None:  # the request cannot be read
            self._answer(request, opened.replies[0], INSTANCE)
            return
        # A driver makes the calls of an item itself; on a graph all first stages get the same call.
        batch = opened.batch
        try:
            queries = list(enumerate(batch if self._driver is not None else [call_with(item) for item in batch]))
        except (RecursionError, TypeError):
            self._answer(request, error_reply(400, _NOT_PLAIN), INSTANCE)
            return
        now_s = self.now()
        probes = self._dropped and now_s >= self._probe_s
        if probes:
            self._dropped, self._probe_s = False, now_s + self._probe_every_s
        run = Run(request, opened, QueryProgress(self._names, request.deadline_s))
        if self._selection is not None:
            run.notes = SelectedNotes(self._selection, items, self.loop)
        self._held_bytes += size
        self._queries += items
        self._runs.add(run)
        self._wait(run, now_s)
        if probes:  # one item alone: others may be dropped and would end the request
            queries, run.rest = queries[:1], queries[1:]
        self._start(run, queries, now_s, probes)

    def _start(self, run: Run, items: Sequence[tuple[int, Any]], now_s: float, probes: bool) -> None:
        """Begin the items. On a graph, `items` holds the calls of their first stages."""
        for index, item in items:
            if self._graph is not None:
                _GraphItem(self, self._graph, run, index, item, probes).start(now_s)
            elif self._selection is not None:
                run.selected.append(SelectedItem(self, self._selection, run, index, item, probes=probes))
                run.selected[-1].start(now_s)
            elif self._coded is not None:
                value = run.opened.batch[index]
                run.coded.append(CodedItem(self, self._coded, run, index, value, item, probes=probes))
                run.coded[-1].start(now_s)
            else:
                run.tasks[index] = self.loop.create_task(self._drive(run, index, item, probes))
            if run.progress.over:
                return

    async def drain(self, until_s: float) -> None:
        """Refuse new requests and wait for those in progress, until `until_s` at the latest."""
        self._draining = True
        if self._runs:
            self._settled = self.loop.create_future()
            await asyncio.wait([self._settled], timeout=max(0.0, until_s - self.now()))
        for run in tuple(self._runs):
            self.end(run, refusal(DRAINING), NOBODY)
        if self._coded is not None:
            self._coded.close()
        # Calls that stages still have belong to no query any more.
        now_s = self.now()
        await asyncio.gather(*(backend.drain(now_s) for backend in self.backends))

    # Calls of stages

    def needed_s(self) -> Sequence[float]:
        """Return for each stage the least time from its call to the query's answer, without a driver's later calls."""
        least_s = tuple([backend.least_s for backend in self.backends])
        return least_s if self._graph is None else self._graph.needed_s(least_s)

    def call(
        self,
        run: Run,
        stage: int,
        call: Call,
        now_s: float,
        needed_s: float,
        told: _Told,
        probes: bool,
        due_s: float = math.inf,
    ) -> None:
        """Offer a call that has begun to the stage's backend.

        The call's deadline leaves the later stages at least their least times before the query's deadline. It is never
        after `due_s`.
        """
        backend = self.backends[stage]
        if probes:  # a probe gets the stage's own RT_max, so that the stage is measured even if its time seems too long
            deadline_s = now_s + self.stages[stage].rt_max_s
        else:
            least_behind_s, left_s = needed_s - backend.least_s, run.progress.deadline_s - now_s
            if self._behind_s is None:
                deadline_s = now_s + left_s - least_behind_s
            else:
                own_s, behind_s = self.stages[stage].rt_max_s, self._behind_s[stage]
                deadline_s = now_s + stage_horizon_s(left_s, own_s, behind_s, least_behind_s)
        deadline_s = min(deadline_s, due_s)
        answer = partial(self._replied, run, stage, told, run.progress.answers == 0)
        backend.offer(run.request.part(answer, call, now_s, deadline_s))

    def too_late(self, stage: int) -> Reply:
        """Return the error of a query whose call of the stage was dropped."""
        return error_reply(504, f"stage {self._names[stage]}: less time is left than it takes")

    def _replied(self, run: Run, stage: int, told: _Told, first: bool, attempt: Request, answer: Answer) -> None:
        now_s, reply = self.now(), answer.reply
        if reply.status == 200:
            try:
                (result,) = results_of(reply)
            except ValueError as error:
                _LOG.error("stage %s: %s", self._names[stage], error, extra={"request_id": attempt.id})
                reply = error_reply(500, "its answer cannot be read")
            else:
                if answer.made_by == CACHE and run.notes is not None:
                    run.notes.from_cache(stage)
                if answer.provenance is not None and not run.progress.over:
                    run.stage_notes.append(answer.provenance.note)
                settled = run.progress.settle(stage, now_s, _BY.get(answer.made_by, ANSWERED))
                # A selection learns from late replies, and other members of a coding group use them.
                if settled or run.notes is not None or self._coded is not None:
                    told(stage, result, None)
                return
        state = _STATES.get(reply.status, FAILED)
        self._dropped = self._dropped or state == LATE
        settled = run.progress.settle(stage, now_s, state)
        if self._coded is not None:
            told(stage, None, reply)
        elif settled:
            told(stage, None, self._of_stage(stage, reply, first))

    def _of_stage(self, stage: int, reply: Reply, first: bool) -> Reply:
        """Return the error of a query that ends because of a stage's error.

        A request error (4xx) before any answer of a stage is the query's fault. Later it is the fault of a stage or of
        the driver, and becomes 500.
        """
        try:
            what = str(orjson.loads(reply.body)["error"])
        except (ValueError, KeyError, TypeError):  # the answer of a function's model may be no JSON
            what = f"status {reply.status}"
        status = reply.status
        if status < 500 and status != 429 and not first:
            status = 500
        return error_reply(status, f"stage {self._names[stage]}: {what}")

    # Ends

    def done(self, run: Run, index: int, result: Any) -> None:
        """Store an item's result; called once for each item."""
        if run.progress.over:
            return
        run.results[index] = result
        run.left -= 1
        if run.rest:
            rest, run.rest = run.rest, []
            self._start(run, rest, self.now(), probes=False)
        elif not run.left:
            run.opened.results = run.results
            (reply,) = encode(self._model, run.opened)
            by_default = run.notes is not None and run.notes.by_default
            made_by = DEFAULT if by_default else RECONSTRUCTION if run.degraded else INSTANCE
            self.end(run, reply, made_by)

    def fail(self, run: Run, reply: Reply) -> None:
        """End the request with an item's error."""
        self.end(run, reply, NOBODY if reply.status in _REFUSED else INSTANCE)

    def end(self, run: Run, reply: Reply, made_by: str, rest: str = UNUSED) -> None:
        """Answer the request unless it is answered. Calls still in progress are dropped, or their answers ignored."""
        if not run.progress.end(self.now(), rest):
            return
        self._runs.discard(run)
        self._held_bytes -= len(run.request.call.body)
        self._queries -= run.request.items
        self._dropped = self._dropped or run.progress.dropped
        if run.timer is not None:
            run.timer.cancel()
        for task in run.tasks.values():
            task.cancel()
        for future in run.futures:
            future.cancel()
        run.forget()
        if made_by == NOBODY:
            self.metrics.refused["expired" if reply.status == 504 else "stage"] += 1
        provenance = run.provenance() if reply.status == 200 else None
        if reply.status == 200 and run.degraded and self._coded is not None:
            provenance = self._coded.degraded()
        self._answer(run.request, reply, made_by, run.progress.said(), provenance)
        if self._settled is not None and not self._runs and not self._settled.done():
            self._settled.set_result(None)

    def _answer(
        self, request: Request, reply: Reply, made_by: str, stages: str = "", provenance: Provenance | None = None
    ) -> None:
        latency_s, allowed_s = self.now() - request.arrived_s, request.deadline_s - request.arrived_s
        self.metrics.answered(made_by, reply.status, latency_s, allowed_s)
        try:
            request.answer(request, Answer(reply, made_by, request.version, stages, provenance))
        except Exception:  # the answer could not be written, or an observer of answers failed
            _LOG.exception("an answer failed", extra={"request_id": request.id})
            with suppress(Exception):  # most likely the request has its answer
                request.answer(request, Answer(error_reply(500, "internal error"), NOBODY, request.version))

    def _wait(self, run: Run, now_s: float) -> None:
        run.timer = self.loop.call_later(max(0.0, run.progress.deadline_s - now_s), self._deadline, run)

    def _deadline(self, run: Run) -> None:
        now_s = self.now()
        if now_s < run.progress.deadline_s:  # timers have a resolution of milliseconds
            self._wait(run, now_s)
            return
        for item in tuple(run.selected):
            item.give_up()
        if self._coded is not None:
            self._coded.woken()
        if run.progress.over:
            return
        self.metrics.expired += 1
        running = run.progress.running
        what = "the deadline passed before it was answered"
        self.end(run, error_reply(504, f"stage {', '.join(running)}: {what}" if running else what), NOBODY, LATE)

    # Drivers

    async def _drive(self, run: Run, index: int, item: Any, probes: bool) -> None:
        assert self._driver is not None, "only a driver is driven"
        try:
            result = await self._driver(item, _DriverModels(self, run, probes))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if run.progress.over:  # the task was cancelled, or failed because of that
                return
            reply = _reply_in(error)
            if reply is None:
                _LOG.exception("driver %s failed", self._driver.name, extra={"request_id": run.request.id})
                reply = error_reply(500, f"the driver failed: {type(error).__name__}")
            del run.tasks[index]  # only the other items' tasks are cancelled
            self.fail(run, reply)
        else:
            run.tasks.pop(index, None)
            self.done(run, index, result)

    def begin(self, run: Run, stage: int, probes: bool, item: Any) -> asyncio.Future[Any]:
        """Begin a driver's call of a stage."""
        future: asyncio.Future[Any] = self.loop.create_future()
        if run.progress.over:  # the request has its answer
            future.cancel()
            return future
        run.futures.append(future)
        now_s, needed_s = self.now(), 0.0 if probes else self.needed_s()[stage]
        try:
            call = call_with(item)
        except RecursionError:  # the query or a stage is to blame; any other error is the driver's own
            first = run.progress.answers == 0
            run.progress.begin(stage, now_s)
            run.progress.settle(stage, now_s, FAILED)
            self._tell(future, stage, None, self._of_stage(stage, error_reply(400, _NOT_PLAIN), first))
            return future
        if run.progress.in_time(now_s, needed_s):
            run.progress.begin(stage, now_s)
            self.call(run, stage, call, now_s, needed_s, partial(self._tell, future), probes)
        else:
            run.progress.drop(stage, now_s)
            self._tell(future, stage, None, self.too_late(stage))
        return future

    def _tell(self, future: asyncio.Future[Any], stage: int, result: Any, reply: Reply | None) -> None:
        if future.done():  # the driver has cancelled it
            return
        if reply is None:
            future.set_result(result)
        else:
            future.set_exception(StageFailed(self._names[stage], reply))
            future.exception()  # avoids a warning, because a driver may leave it unread

    def stage_named(self, name: str) -> int:
        """Return a stage's position. Raises BadInput if no stage has this name."""
        try:
            return self._names.index(name)
        except ValueError:
            assert self._driver is not None, "only a driver names stages"
            raise BadInput("calls a name that is no stage", self._driver.name, name, known=self._names) from None

    def _refresh(self) -> None:
        self.metrics.running = len(self._runs)
        ready = (stage.backend.metrics.workers_ready for stage in self.stages if stage.has_workers)
        self.metrics.workers_ready = min(ready, default=0)


class _GraphItem:
    """An item on a graph. A stage gets the answer of its predecessor, or its predecessors' answers by name."""

    __slots__ = (
        "_call", "_conductor", "_due_s", "_errors", "_finished", "_graph", "_index", "_outputs", "_probes", "_progress",
        "_run",
    )  # fmt: skip

    def __init__(self, conductor: Conductor, graph: StageGraph, run: Run, index: int, call: Call, probes: bool) -> None:
        self._conductor, self._graph, self._run, self._index = conductor, graph, run, index
        self._call, self._probes = call, probes  # `call` is the call of the first stages
        self._progress = GraphProgress(graph, run.progress)
        self._outputs: dict[int, Any] = {}
        self._errors: dict[int, Reply] = {}
        self._due_s = -1.0  # due time of the timer that is set
        self._finished = False  # later events are ignored

    def start(self, now_s: float) -> None:
        needed_s = self._needed_s()
        self._go_on(self._progress.start(now_s, needed_s), now_s, needed_s)

    def _told(self, stage: int, result: Any, reply: Reply | None) -> None:
        if self._finished:
            return
        now_s, needed_s = self._conductor.now(), self._needed_s()
        if reply is None:
            self._outputs[stage] = result
            called = self._progress.answered(stage, now_s, needed_s)
        else:
            self._errors[stage] = reply
            called = self._progress.missed(stage, now_s, needed_s)
        self._go_on(called, now_s, needed_s)

    def _woken(self) -> None:
        if self._finished:
            return
        now_s, needed_s = self._conductor.now(), self._needed_s()
        self._due_s = -1.0
        self._go_on(self._progress.woken(now_s, needed_s), now_s, needed_s)

    def _needed_s(self) -> Sequence[float]:
        needed_s = self._conductor.needed_s()
        return [0.0] * len(needed_s) if self._probes else needed_s

    def _go_on(self, called: Sequence[int], now_s: float, needed_s: Sequence[float]) -> None:
        conductor, progress, run = self._conductor, self._progress, self._run
        for stage in called:
            try:
                call = self._call_of(stage)
            except (RecursionError, TypeError) as error:
                run.progress.settle(stage, now_s, FAILED)
                what = f"the call to it cannot be encoded: {type(error).__name__}"
                self._told(stage, None, error_reply(500, f"stage {conductor._names[stage]}: {what}"))
            else:
                conductor.call(run, stage, call, now_s, needed_s[stage], self._told, self._probes)
            if self._finished or run.progress.over:  # a call failed or was refused immediately
                return
        if progress.lost_by is not None:
            self._finished, lost_by = True, progress.lost_by
            conductor.fail(run, self._errors[lost_by] if lost_by in self._errors else conductor.too_late(lost_by))
        elif progress.done:
            self._finished = True
            conductor.done(run, self._index, self._together(self._graph.sinks, self._graph.sinks))
        elif now_s < (due_s := progress.due_s()) != self._due_s and due_s < run.progress.deadline_s:
            self._due_s = due_s
            conductor.loop.call_later(due_s - now_s, self._woken)

    def _call_of(self, stage: int) -> Call:
        above = self._graph.predecessors[stage]
        return call_with(self._together(above, self._progress.used[stage])) if above else self._call

    def _together(self, stages: Sequence[int], answered: Sequence[int]) -> Any:
        """Return the output of a single stage, or by name the outputs of those stages that have answered."""
        if len(stages) == 1:
            return self._outputs[stages[0]]
        return {self._conductor._names[stage]: self._outputs[stage] for stage in answered}


class _DriverModels:
    """The models that a driver gets beside the query: `NAME(item)` begins a call of that stage."""

    __slots__ = ("_conductor", "_probes", "_run")

    def __init__(self, conductor: Conductor, run: Run, probes: bool) -> None:
        self._conductor, self._run, self._probes = conductor, run, probes

    def __getattr__(self, name: str) -> StageCall:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._conductor.begin, self._run, self._conductor.stage_named(name), self._probes)


def _reply_in(error: BaseException) -> Reply | None:
    """Return the reply of a failed stage, also from among the errors of a task group.

    Only the reply is returned, because an exception keeps the frames alive that it passed.
    """
    if isinstance(error, BaseExceptionGroup):
        return next((reply for one in error.exceptions if (reply := _reply_in(one)) is not None), None)
    return error.reply if isinstance(error, StageFailed) else None


_: type[Backend] = Conductor
