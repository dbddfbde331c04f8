"""A driver under test: which stages its queries visit, how often, and which of them wait for which.

InferLine (SoCC '20, section 4.1) runs the driver on sample queries and takes the union of their traces. The order of
stages is found by trial: a query is run once as it is, and once for each stage with the answers of that stage held back
as long as anything else can go on. Calls that are made nevertheless do not wait for that stage. So it does not matter
how the driver waits (futures, gather, task groups, queues), nor how quick a model is: no clock is read, and models run
one at a time in the order of the calls.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage, Pipeline, PipelineStage
from mark.models.driver import PipelineDriver, StageCall
from mark.models.loading import in_one_line
from mark.planning.graphs.idle_loop import IdleLoop
from mark.planning.graphs.queries import SampleQuery
from mark.planning.graphs.stage_order import ancestors, check_order, reduced

# A driver that exceeds one of these limits counts as one that never ends.
MOST_CALLS = 10_000
MOST_VIRTUAL_S = 86_400.0

Answer = Callable[[Any], Any]  # from an item to the model's result


@dataclass(frozen=True)
class PipelineTrace:
    """The pipeline that a sample of queries shows of a driver. Each stage's model has the stage's name."""

    pipeline: Pipeline
    lineage: Lineage  # columns in the order of the pipeline's stages
    repeated: Mapping[str, int]  # called again for their own answer, with the first line that shows it
    items: Mapping[str, Sequence[Any]]  # by stage, the first items that it was called with

    @property
    def unvisited(self) -> tuple[str, ...]:
        """Stages without a call by any query."""
        return tuple(name for name, share in zip(self.lineage.stages, self.lineage.shares, strict=True) if not share)


def trace(
    driver: PipelineDriver,
    answers: Mapping[str, Answer],
    queries: Sequence[SampleQuery],
    file: str,
    progress: Callable[[float], None] | None = None,
    *,
    most_items: int = 0,
) -> PipelineTrace:
    """Run the driver on every query, with a function for the model of each stage; keep `most_items` items of each
    stage.

    `file` is the name of the queries' file in messages. A stage's model is asked once for equal items of a query,
    whatever the number of trials, so that it need not answer the same each time. Raises BadInput for a driver that
    raises, calls a name that is not a stage, waits for something other than a model, or calls stages in an order that
    is not a graph's.
    """
    edges: dict[tuple[str, str], int] = {}
    repeated: dict[str, int] = {}
    calls = np.zeros((len(queries), len(answers)), dtype=np.int64)
    items: dict[str, list[Any]] = {name: [] for name in answers}
    with _loop() as loop:
        for n, query in enumerate(queries):
            seen = _Trials(loop, driver, answers, query, f"{file}:{query.line}").observe()
            calls[n] = [seen.calls[name] for name in answers]
            for name, item in seen.items:
                if len(items[name]) < most_items:
                    items[name].append(item)
            for edge in seen.edges:
                edges.setdefault(edge, query.line)
            for name in seen.repeated:
                repeated.setdefault(name, query.line)
            if progress is not None:
                progress((n + 1) / len(queries))
    check_order(edges, file)
    names = list(answers)
    visited = {frozenset(name for name, count in zip(names, row, strict=True) if count) for row in calls.tolist()}
    kept = reduced(edges, visited)
    stages = [PipelineStage(name, name, tuple(first for first in names if (first, name) in kept)) for name in names]
    pipeline = Pipeline.ordered(stages)
    columns = [names.index(name) for name in pipeline.names]
    return PipelineTrace(pipeline, Lineage.of(pipeline.names, calls[:, columns]), repeated, items)


@dataclass(frozen=True, slots=True)
class _Observed:
    calls: Counter[str]
    edges: list[tuple[str, str]]
    repeated: list[str]
    items: list[tuple[str, Any]]  # stages and the items of their calls


@dataclass(frozen=True, slots=True)
class _Run:
    calls: Counter[str]
    early: Counter[str]  # the calls made before an answer that was held back had to be given
    items: list[tuple[str, Any]]


class _Trials:
    """The runs of one query."""

    def __init__(
        self, loop: IdleLoop, driver: PipelineDriver, answers: Mapping[str, Answer], query: SampleQuery, where: str
    ) -> None:
        self._loop, self._driver, self._answers, self._query, self._where = loop, driver, answers, query, where
        self._known: dict[tuple[str, bytes], bytes | Exception] = {}

    def observe(self) -> _Observed:
        first = self._run()
        calls = first.calls
        stages = [name for name in self._answers if calls[name]]
        edges, repeated = [], []
        if len(stages) > 1 or max(calls.values(), default=0) > 1:
            for held in stages:
                early = self._trial(calls, {held}).early
                edges += [(held, name) for name in stages if name != held and early[name] < calls[name]]
                if early[held] < calls[held]:
                    repeated.append(held)
        check_order(dict.fromkeys(edges, self._query.line), self._where.rpartition(":")[0])
        self._check_reasons(calls, stages, edges, repeated)
        return _Observed(calls, edges, repeated, first.items)

    def _check_reasons(
        self, calls: Counter[str], stages: list[str], edges: list[tuple[str, str]], repeated: list[str]
    ) -> None:
        """Check that each stage is called once all that it waits for have answered; raise BadInput if any of several
        will do.
        """
        above = ancestors(edges)
        for name in stages:
            needed = above.get(name, set()).union([name] if name in repeated else [])
            held = {other for other in stages if other not in needed}
            if held and held != {name} and self._trial(calls, held).early[name] < calls[name]:
                what = (
                    f"{name} goes on with whichever of several answers comes first, which a trace does not tell: say "
                    'the graph in [stage.*], with join = "first"'
                )
                raise BadInput(what, self._where)

    def _trial(self, calls: Counter[str], held: Collection[str]) -> _Run:
        """Run with the answers of these stages held back. Raises BadInput if the calls differ from the first run's."""
        run = self._run(held)
        if run.calls == calls:
            return run
        again = self._run().calls
        if again != calls:
            what = f"calls {_differences(calls, again)} when it is run again"
        else:
            what = f"calls {_differences(calls, run.calls)} when {' and '.join(sorted(held))} is late"
        raise BadInput(f"{what}: a driver's calls may depend on its query and on answers only", self._where)

    def _run(self, held: Collection[str] = ()) -> _Run:
        made: list[_Call] = []
        failed: dict[int, str] = {}
        models = _Models(self._loop, self._answers, made, self._where)
        began_s = self._loop.time()
        task = self._loop.create_task(self._driver(self._query.value(), models))
        early: int | None = None
        try:
            while True:
                self._until_idle()
                if models.endless:
                    raise BadInput(f"the driver calls models more than {MOST_CALLS} times", self._where)
                if task.done():
                    break
                waiting = [call for call in made if not call.future.done()]
                free = [call for call in waiting if early is not None or call.stage not in held]
                if free:
                    self._give(free[0], failed)
                elif waiting:
                    early = len(made)
                elif self._loop.time() - began_s > MOST_VIRTUAL_S or not self._loop.advance():
                    raise BadInput("the driver waits for something that is no model's answer", self._where)
            try:
                task.result()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a driver may raise anything
                if isinstance(error, BadInput) and id(error) not in failed:
                    raise
                source = failed.get(id(error), "the driver")
                raise BadInput(f"{source} raised {_said(error)}", self._where) from error
        finally:
            models.close()
            for left in asyncio.all_tasks(self._loop):
                left.cancel()
            self._until_idle()
        stages = [call.stage for call in made]
        # The items as they were when they were sent, if they could be pickled
        items = [call.item if call.packed is None else pickle.loads(call.packed) for call in made]
        return _Run(Counter(stages), Counter(stages[:early]), list(zip(stages, items, strict=True)))

    def _until_idle(self) -> None:
        """Run until idle.

        Raises BadInput for `sys.exit`, which a loop lets through and which would end our process as if it had finished.
        """
        try:
            self._loop.run_until_idle()
        except SystemExit as error:
            raise BadInput(f"the driver raised {_said(error)}", self._where) from error

    def _give(self, call: _Call, failed: dict[int, str]) -> None:
        try:
            call.future.set_result(self._answer(call))
        except SystemExit as error:
            raise BadInput(f"the model of {call.stage} raised {_said(error)}", self._where) from error
        except Exception as error:
            failed[id(error)] = f"the model of {call.stage}"
            call.future.set_exception(error)

    def _answer(self, call: _Call) -> Any:
        """Return the first answer to an equal item; a copy, because a model may use its memory again, and so may
        drivers.

        Items and answers that cannot be copied are neither kept nor protected. An error is kept, too: a model that
        fails now and then must not look like a driver that changes its mind.
        """
        if call.packed is None:
            return self._answers[call.stage](call.item)
        key = (call.stage, call.packed)
        if key not in self._known:
            try:
                result = self._answers[call.stage](pickle.loads(call.packed))
            except Exception as error:
                self._known[key] = error
                raise
            copied = _packed(result)
            if copied is None:
                return result
            self._known[key] = copied
        known = self._known[key]
        if isinstance(known, Exception):
            raise known
        return pickle.loads(known)


@dataclass(frozen=True, slots=True)
class _Call:
    stage: str
    item: Any
    packed: bytes | None  # the item as it was when it was sent
    future: asyncio.Future[Any]


class _Endless(BaseException):
    """Too many calls of models."""


class _Models:
    """The models as the driver sees them: each call is noted, and answered when nothing else can go on."""

    def __init__(self, loop: IdleLoop, stages: Collection[str], made: list[_Call], where: str) -> None:
        self._loop, self._stages, self._made, self._where = loop, stages, made, where
        self._closed, self._asked = False, 0
        self.endless = False  # more than MOST_CALLS were made

    def __getattr__(self, name: str) -> StageCall:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._stages:
            raise BadInput("the driver calls a name that is no stage", self._where, name, known=self._stages)

        def call(item: Any) -> asyncio.Future[Any]:
            # A driver that retries after every error is stopped by an answer that never comes. One that does not even
            # wait for answers is stopped by an exception that `except Exception` lets through.
            self._asked += 1
            if self._asked > 2 * MOST_CALLS:
                self.endless = True
                raise _Endless
            future: asyncio.Future[Any] = self._loop.create_future()
            if self._closed:
                if self._asked <= MOST_CALLS:
                    future.cancel()
                return future
            if len(self._made) == MOST_CALLS:
                self.endless = True
                return future
            self._made.append(_Call(name, item, _packed(item), future))
            return future

        return call

    def close(self) -> None:
        """End the query: later calls do not count."""
        self._closed = True
        for call in self._made:
            call.future.cancel()


@contextmanager
def _loop() -> Iterator[IdleLoop]:
    loop = IdleLoop()
    # An answer that the driver does not wait for may be an error: that is the driver's decision.
    loop.set_exception_handler(lambda *_: None)
    try:
        yield loop
    finally:
        loop.close()


def _packed(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # a value can be anything
        return None


def _said(error: BaseException) -> str:
    return in_one_line(error) if isinstance(error, Exception) else type(error).__name__


def _differences(before: Counter[str], after: Counter[str]) -> str:
    """Return the differences in words: `a 2 times instead of once, b not at all`."""
    times = {0: "not at all", 1: "once"}
    said = []
    for name in sorted(before.keys() | after.keys()):
        if before[name] != after[name]:
            was, now = (times.get(count, f"{count} times") for count in (before[name], after[name]))
            said.append(f"{name} {now} instead of {was}")
    return ", ".join(said)
