"""A conductor with real replicas whose models are in this process: each query is answered correctly and once.

Nearly all tests run twice: with each stage as a replica here, and as a server elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mark
from mark.domain.pipeline import ALL, FIRST, Join, Pipeline, PipelineStage
from mark.models.answer import INSTANCE, NOBODY
from mark.models.call import Call
from mark.models.driver import PipelineDriver, StageFailed
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.request import Request
from mark.serving.conductor.conductor import ConductedStage, Conductor, ConductorLimits
from mark.serving.conductor.graph import StageGraph
from mark.serving.overflow.functions import FunctionsFailed
from tests.serving.conductor.cast import RT_MAX_S, Cast, CastOf, plus, raises, run
from tests.serving.fakes import ModelFunctions


@pytest.fixture(params=[False, True], ids=["here", "elsewhere"])
def cast_of(request: pytest.FixtureRequest) -> CastOf:
    """Return a factory of conductors whose stages are replicas here, or servers behind addresses.

    Both must behave alike.
    """
    return partial(Cast, elsewhere=request.param)


@mark.pipeline
async def _next_of_half(query: int, models: mark.StageModels) -> Any:
    return await models.next(await models.halves(query))


@mark.pipeline
async def cascade(query: dict[str, Any], models: mark.StageModels) -> Any:
    low = await models.low(query["x"])
    return low if low < 10 else await models.high(low)


def test_a_driver_takes_queries_through_its_stages(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"low": plus(1), "high": plus(100)}, driver=cascade)
        assert await cast.ask({"x": 1}) == (200, 2, INSTANCE)
        assert await cast.ask({"x": 20}) == (200, 121, INSTANCE)
        assert (cast.said("r1"), cast.said("r2")) == ({"low": ""}, {"low": "", "high": ""})

    run(main)


def test_a_driver_sees_an_open_inference_querys_parts_by_name(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"low": plus(1), "high": plus(100)}, driver=cascade)
        tensor = {"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 20]}
        status, body, _ = await cast.ask({"inputs": [tensor]}, protocol="oip")
        assert (status, body["model_name"], body["outputs"][0]["data"]) == (200, "p", [2, 121])

    run(main)


def test_calls_begun_together_share_a_batch_and_keep_their_types(cast_of: CastOf) -> None:
    @mark.pipeline
    async def gathered(query: Any, models: mark.StageModels) -> Any:
        got = await asyncio.gather(*(models.twice(np.array(each, dtype=np.float32)) for each in query["many"]))
        assert all(isinstance(each, np.ndarray) and each.dtype == np.float32 for each in got)
        return [each.tolist() for each in got]

    async def main() -> None:
        batches: list[int] = []

        def twice(batch: list[Any]) -> Any:
            batches.append(len(batch))
            return [2 * item for item in batch]

        cast = cast_of({"twice": twice}, driver=gathered)
        assert await cast.ask({"many": [[1.0], [2.0, 3.0]]}) == (200, [[2.0], [4.0, 6.0]], INSTANCE)
        assert batches == [2]

    run(main)


def graph(**stages: tuple[tuple[str, ...], Join]) -> Pipeline:
    return Pipeline(tuple(PipelineStage(name, "m", after, join) for name, (after, join) in stages.items()))


ALL_OF = Join()


def test_a_stage_gets_the_answer_before_it_several_by_name(cast_of: CastOf) -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=(("a",), ALL_OF), c=(("a",), ALL_OF), d=(("b", "c"), ALL_OF))
        asked: list[Any] = []

        def last(batch: list[Any]) -> Any:
            asked.extend(batch)
            return [item["b"] + item["c"] for item in batch]

        cast = cast_of({"a": plus(1), "b": plus(10), "c": plus(100), "d": last}, pipeline=pipeline)
        assert await cast.ask(0) == (200, 112, INSTANCE)
        assert asked == [{"b": 11, "c": 101}]
        # Several queries in one request.
        assert await cast.ask({"instances": [0, 1]}) == (200, {"predictions": [112, 114]}, INSTANCE)

    run(main)


def test_what_several_last_stages_say_is_by_name(cast_of: CastOf) -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=((), ALL_OF))
        assert await cast_of({"a": plus(1), "b": plus(2)}, pipeline=pipeline).ask(0) == (
            200,
            {"a": 1, "b": 2},
            INSTANCE,
        )

    run(main)


def test_a_join_goes_on_with_the_first_the_other_unused(cast_of: CastOf) -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=((), ALL_OF), c=(("a", "b"), FIRST))
        cast = cast_of({"a": plus(1), "b": plus(2), "c": lambda batch: batch}, pipeline=pipeline)
        cast.pools["a"].held = True
        assert await cast.ask(0) == (200, {"b": 2}, INSTANCE)
        assert cast.said("r1") == {"a": "unused", "b": "", "c": ""}
        cast.pools["a"].release()
        # Any single branch that fails is skipped.
        cast = cast_of({"a": raises, "b": plus(2), "c": lambda batch: batch}, pipeline=pipeline)
        assert await cast.ask(0) == (200, {"b": 2}, INSTANCE)

    run(main)


def test_a_join_waits_for_its_time_after_enough_have_answered(cast_of: CastOf) -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=((), ALL_OF), c=(("a", "b"), Join(1, 0.02)))
        cast = cast_of({"a": plus(1), "b": plus(2), "c": lambda batch: batch}, pipeline=pipeline)
        cast.pools["a"].held = True
        began_s = cast.conductor.now()
        assert await cast.ask(0) == (200, {"b": 2}, INSTANCE)
        assert cast.conductor.now() - began_s >= 0.018
        cast.pools["a"].held = False
        cast.pools["a"].release()
        assert (await cast.ask(0))[1] == {"a": 1, "b": 2}

    run(main)


def echo(batch: list[Any]) -> Any:
    return batch


@pytest.mark.parametrize("join", [FIRST, Join(1, 0.5)])
def test_what_comes_for_a_finished_item_changes_nothing(cast_of: CastOf, join: Join) -> None:
    """This covers an answer that its join did not wait for, and a timer that is set for the item."""

    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=((), ALL_OF), c=(("a", "b"), join))
        cast = cast_of({"a": plus(1), "b": plus(2), "c": echo}, pipeline=pipeline, most_batch=1)
        late, last = cast.pools["b"], cast.pools["c"]
        late.held, last.held = join == FIRST, True
        identity = cast.send({"instances": [0, 10]})
        await cast.has("c")
        last.release()  # of the first item
        await cast.has("c")
        if join == FIRST:
            late.held = False
            late.release()
        await asyncio.sleep(1.5 * join.deadline_s)
        assert identity not in cast.answers
        last.held = False
        last.release()
        wanted = [{"a": 1}, {"a": 11}] if join == FIRST else [{"a": 1, "b": 2}, {"a": 11, "b": 12}]
        assert await cast.answer(identity) == (200, {"predictions": wanted}, INSTANCE)

    run(main)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_too_deep_nesting_is_the_clients_fault_and_leaves_nothing(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"a": plus(1)}, pipeline=graph(a=((), ALL_OF)), limits=ConductorLimits(queries=1))
        wanted = (400, {"error": "an item is nested too deeply, or no plain value"}, INSTANCE)
        assert await cast.ask(nested(600)) == wanted
        assert await cast.ask(0) == (200, 1, INSTANCE)

    run(main)


@pytest.mark.untraced
def test_a_value_that_cannot_be_passed_on_is_an_error(cast_of: CastOf) -> None:
    """This includes a depth of nesting at which the stage's own server could still send the value."""

    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=((), ALL_OF), c=(("a", "b"), ALL_OF))
        models: dict[str, Any] = {"a": lambda batch: [nested(each) for each in batch], "b": echo}
        cast = cast_of(models | {"c": lambda batch: [0] * len(batch)}, pipeline=pipeline)
        answers = [await cast.ask(depth) for depth in range(400, 500, 2)]
        assert {status for status, *_ in answers} == {200, 500}
        said = {body["error"] for status, body, _ in answers if status == 500}
        assert "stage c: the call to it cannot be encoded: RecursionError" in said

    run(main)


async def _passes_on(query: Any, models: mark.StageModels) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(_awaited(models.bad(query)))


async def _passes_an_answer_on(query: Any, models: mark.StageModels) -> Any:
    return await models.bad([await models.bad(0), nested(600)])


@pytest.mark.parametrize(("respond", "status"), [(_passes_on, 400), (_passes_an_answer_on, 500)])
def test_a_drivers_nesting_is_the_clients_fault_until_stages_answer(
    cast_of: CastOf, respond: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cast = cast_of({"bad": plus(1)}, driver=PipelineDriver(respond), limits=ConductorLimits(queries=1))
        said = {"error": "stage bad: an item is nested too deeply, or no plain value"}
        assert await cast.ask(nested(600)) == (status, said, INSTANCE)
        assert cast.said("r1") == {"bad": "failed"}
        assert (await cast.ask(nested(600)))[0] == status  # the first call has left nothing
        assert not caplog.records

    run(main)


class Pair(mark.Model):
    inputs = (mark.TensorSpec("pair", "FP32", (2,)),)

    def predict(self, batch: list[Any]) -> Any:
        return [item.tolist() for item in batch]


def test_an_error_names_its_stage_and_whose_fault_it_is(cast_of: CastOf) -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=(("a",), ALL_OF))
        cast = cast_of({"a": plus(1), "b": raises}, pipeline=pipeline)
        status, body, made_by = await cast.ask(0)
        assert (status, body, made_by) == (500, {"error": "stage b: the model failed: ValueError"}, INSTANCE)
        assert cast.said("r1") == {"a": "", "b": "failed"}
        # A bad value from the client is the client's error; a bad value made by a stage is not.
        status, body, _ = await cast_of({"a": Pair(), "b": plus(1)}, pipeline=pipeline).ask([1.0])
        assert status == 400
        assert body["error"].startswith("stage a: ")
        status, body, _ = await cast_of({"a": plus(1), "b": Pair()}, pipeline=pipeline).ask(1)
        assert status == 500
        assert body["error"].startswith("stage b: ")
        assert (await cast.ask({"instances": []}))[0] == 400

    run(main)


def test_a_driver_may_do_without_a_stage_that_failed(cast_of: CastOf) -> None:
    @mark.pipeline
    async def degrades(query: Any, models: mark.StageModels) -> Any:
        unread = models.bad(query)
        try:
            return await models.bad(query)
        except StageFailed as failed:
            return [failed.stage, failed.reply.status, unread.done()]

    async def main() -> None:
        cast = cast_of({"bad": raises}, driver=degrades)
        assert await cast.ask(0) == (200, ["bad", 500, True], INSTANCE)

    run(main)


async def _grouped(query: Any, models: mark.StageModels) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(_awaited(models.bad(query)))


async def _awaited(future: Any) -> Any:
    return await future


async def _unknown(query: Any, models: mark.StageModels) -> Any:
    return await models.nothing(query)


async def _set(query: Any, models: mark.StageModels) -> Any:
    return await models.bad({1, 2})


async def _exits(query: Any, models: mark.StageModels) -> Any:
    raise SystemExit(3)


async def _odd(query: Any, models: mark.StageModels) -> Any:
    return 1j


@pytest.mark.parametrize(
    ("respond", "error"),
    [
        (_grouped, "stage bad: the model failed: ValueError"),
        (_unknown, "the driver failed: BadInput"),
        (_set, "the driver failed: TypeError"),
        (_exits, "the driver failed: SystemExit"),
        (_odd, "the model's results cannot be encoded: TypeError: results is 1j (complex)"),
    ],
)
def test_a_driver_that_fails_costs_its_own_query_only(cast_of: CastOf, respond: Any, error: str) -> None:
    async def main() -> None:
        cast = cast_of({"bad": raises}, driver=PipelineDriver(respond))
        assert await cast.ask(0) == (500, {"error": error}, INSTANCE)

    run(main)


def test_the_deadline_answers_a_query_and_cancels_its_driver(cast_of: CastOf) -> None:
    ended: list[BaseException] = []

    @mark.pipeline
    async def waits(query: Any, models: mark.StageModels) -> Any:
        try:
            return await models.b(await models.a(query))
        except BaseException as error:
            ended.append(error)
            raise

    async def main() -> None:
        cast = cast_of({"a": plus(1), "b": plus(2)}, driver=waits)
        cast.pools["b"].held = True
        status, body, made_by = await cast.ask(0, allowed_s=0.5)
        assert (status, made_by) == (504, NOBODY)
        assert body == {"error": "stage b: the deadline passed before it was answered"}
        assert cast.said("r1") == {"a": "", "b": "late"}
        cast.pools["b"].held = False
        cast.pools["b"].release()  # which is not waited for
        assert await cast.ask(0) == (200, 3, INSTANCE)
        assert [type(error) for error in ended] == [asyncio.CancelledError]
        assert cast.conductor.metrics.expired == 1

    run(main)


def test_the_deadline_answers_for_a_driver_waiting_on_other_things(cast_of: CastOf) -> None:
    @mark.pipeline
    async def sleeps(query: Any, models: mark.StageModels) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        answer = await cast_of({"a": plus(1)}, driver=sleeps).ask(0, allowed_s=0.02)
        assert answer[:2] == (504, {"error": "the deadline passed before it was answered"})

    run(main)


def test_hopeless_queries_are_dropped_before_they_cost_a_stage() -> None:
    async def main() -> None:
        pipeline = graph(a=((), ALL_OF), b=(("a",), ALL_OF))
        cast = Cast({"a": plus(1), "b": plus(1)}, pipeline=pipeline, takes_s={"b": 1.0}, probe_every_s=1e9)
        assert await cast.ask(0, allowed_s=0.5) == (
            504,
            {"error": "stage a: less time is left than it takes"},
            NOBODY,
        )
        assert cast.said("r1") == {"a": "late"}
        assert [len(pool.calls) for pool in cast.pools.values()] == [0, 0]

    run(main)


@pytest.mark.parametrize("driven", [False, True])
def test_times_that_are_wrong_are_found_out(cast_of: CastOf, driven: bool) -> None:
    """A stage that seems too slow for every query serves a query now and then, and learns its real times."""

    @mark.pipeline
    async def chain(query: Any, models: mark.StageModels) -> Any:
        return await models.b(await models.a(query))

    async def main() -> None:
        pipeline = None if driven else graph(a=((), ALL_OF), b=(("a",), ALL_OF))
        cast = cast_of(
            {"a": plus(1), "b": plus(1)},
            pipeline=pipeline,
            driver=chain if driven else None,
            takes_s={"b": 10 * RT_MAX_S},
            probe_every_s=1e9,
        )
        assert [(await cast.ask(0))[0] for _ in range(3)] == [504, 200, 504]

    run(main)


def test_a_stage_a_join_can_spare_is_tried_again_too(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of(
            {"a": plus(1), "b": plus(2), "c": echo},
            pipeline=graph(a=((), ALL_OF), b=((), ALL_OF), c=(("a", "b"), FIRST)),
            takes_s={"b": 10 * RT_MAX_S},
            probe_every_s=1e9,
        )
        for calls in (0, 1, 1):  # the second finds out
            assert await cast.ask(0) == (200, {"a": 1}, INSTANCE)
            assert len(cast.pools["b"].calls) == calls

    run(main)


@pytest.mark.parametrize("driven", [False, True])
def test_of_several_items_one_finds_out_alone(cast_of: CastOf, driven: bool) -> None:
    """The item's fate does not depend on the others: a request whose other items are dropped would end too early."""

    @mark.pipeline
    async def chain(query: Any, models: mark.StageModels) -> Any:
        return await models.b(await models.a(query))

    async def main() -> None:
        pipeline = None if driven else graph(a=((), ALL_OF), b=(("a",), ALL_OF))
        cast = cast_of(
            {"a": plus(1), "b": plus(1)},
            pipeline=pipeline,
            driver=chain if driven else None,
            takes_s={"b": 10 * RT_MAX_S},
            probe_every_s=1e9,
        )
        asked = {"instances": [0, 1, 2]}
        assert [(await cast.ask(asked))[0] for _ in range(2)] == [504, 504]
        assert len(cast.pools["b"].calls) == 1
        # The others follow it if there is time.
        cast = cast_of({"a": plus(1), "b": plus(1)}, pipeline=pipeline, driver=chain if driven else None)
        await cast.ask(0, allowed_s=0.0015)
        assert await cast.ask(asked) == (200, {"predictions": [2, 3, 4]}, INSTANCE)

    run(main)


@pytest.mark.parametrize(
    ("keeps_parts", "part_s", "deadline_s", "by_driver"),
    [
        (False, 0.5, 1001.7, 1002.0),  # b takes 0.3 s at least, of which a driver says nothing
        (True, 0.5, 1001.5, 1001.5),  # b has its part
        (True, 0.9, 1001.4, 1001.4),  # which leaves less than a's own
        (True, 1.4, 1001.7, 1001.9),  # and b needs 0.3 s of it
    ],
)
@pytest.mark.parametrize("driven", [False, True])
def test_a_stage_gets_the_time_left_less_what_follows_needs(
    keeps_parts: bool, part_s: float, deadline_s: float, by_driver: float, driven: bool
) -> None:
    offered: list[Request] = []

    def stage(name: str, least_s: float) -> ConductedStage:
        backend: Any = SimpleNamespace(least_s=least_s, offer=offered.append)
        return ConductedStage(name, backend, part_s)

    async def respond(query: Any, models: Any) -> Any:
        return await models.b(await models.a(query))

    async def main() -> None:
        conductor = Conductor(
            [stage("a", 0.1), stage("b", 0.3)],
            ModelMetrics("p", "1", ""),
            asyncio.get_running_loop(),
            name="p",
            router=PipelineDriver(respond) if driven else StageGraph(graph(a=((), ALL_OF), b=(("a",), ALL_OF))),
            now=lambda: 1000.5,
            keeps_parts=keeps_parts,
        )
        call = Call("sagemaker", "application/json", b"0")
        conductor.offer(Request(call, 1, 1000.0, 1002.0, lambda request, answer: None, "q", key="user"))
        while not offered:
            await asyncio.sleep(0)
        (first,) = offered
        # From the call on it has 1.5 s.
        assert (first.arrived_s, first.deadline_s) == (1000.5, pytest.approx(by_driver if driven else deadline_s))
        assert (first.items, first.id, first.key) == (1, "q", "user")

    run(main)


def test_one_item_without_a_result_fails_its_request_once(cast_of: CastOf) -> None:
    async def main() -> None:
        def fails_on_two(batch: list[Any]) -> Any:
            if 2 in batch:
                raise ValueError
            return batch

        cast = cast_of({"a": fails_on_two}, pipeline=graph(a=((), ALL_OF)))
        status, body, _ = await cast.ask({"instances": [1, 2, 3]})
        assert (status, body) == (500, {"error": "stage a: the model failed: ValueError"})
        assert await cast.ask(7) == (200, 7, INSTANCE)

    run(main)


def test_a_drain_finishes_what_is_running_and_refuses_the_rest(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"low": plus(1), "high": plus(100)}, driver=cascade)
        cast.pools["low"].held = cast.pools["high"].held = True
        await cast.is_ready()
        first = cast.send({"x": 20})
        draining = asyncio.ensure_future(cast.conductor.drain(cast.conductor.now() + 30.0))
        await cast.has("low")
        assert not cast.conductor.ready
        refused = await cast.ask({"x": 1})
        assert (refused[0], refused[2]) == (503, NOBODY)
        cast.pools["low"].release()
        await cast.has("high")
        cast.pools["high"].release()
        assert await cast.answer(first) == (200, 121, INSTANCE)
        await draining

    run(main)


def test_a_finished_drain_leaves_no_query_without_an_answer(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"low": plus(1), "high": plus(100)}, driver=cascade)
        cast.pools["low"].held = True
        identity = cast.send({"x": 20})
        await cast.conductor.drain(cast.conductor.now() + 0.02)
        assert (await cast.answer(identity))[0] == 503
        assert cast.said(identity) == {"low": "unused"}

    run(main)


def test_more_than_it_may_have_under_way_is_refused(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"a": plus(1)}, pipeline=graph(a=((), ALL_OF)), limits=ConductorLimits(queries=1))
        cast.pools["a"].held = True
        first = cast.send(0)
        assert (await cast.ask(0))[0] == 429
        await cast.has("a")
        cast.pools["a"].release()
        assert await cast.answer(first) == (200, 1, INSTANCE)
        cast = cast_of({"a": plus(1)}, pipeline=graph(a=((), ALL_OF)), limits=ConductorLimits(held_bytes=4))
        assert (await cast.ask("long"))[0] == 429
        assert (await cast.ask(1))[0] == 200

    run(main)


def test_the_items_of_requests_are_limited(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"a": plus(1)}, pipeline=graph(a=((), ALL_OF)), limits=ConductorLimits(queries=3, items=2))
        wanted = (413, {"error": "a request to a pipeline has 2 items at most, not 3"}, NOBODY)
        assert await cast.ask({"instances": [1, 2, 3]}) == wanted
        cast.pools["a"].held = True
        first = cast.send({"instances": [1, 2]})
        assert (await cast.ask({"instances": [1, 2]}))[0] == 429
        await cast.has("a")
        cast.pools["a"].held = False
        cast.pools["a"].release()
        assert (await cast.answer(first))[0] == 200
        assert (await cast.ask({"instances": [1, 2]}))[0] == 200
        # A client must not repeat a request that never has room.
        cast = cast_of({"a": plus(1)}, pipeline=graph(a=((), ALL_OF)), limits=ConductorLimits(queries=2))
        assert (await cast.ask({"instances": [1, 2, 3]}))[0] == 413

    run(main)


def test_a_query_that_fails_needs_no_garbage_collection(cast_of: CastOf) -> None:
    queries: list[weakref.ref[Any]] = []

    @mark.pipeline
    async def fails(query: Any, models: mark.StageModels) -> Any:
        queries.append(weakref.ref(query["x"]))
        return await models.bad(query["x"])

    async def main() -> None:
        cast = cast_of({"bad": raises}, driver=fails)
        tensor = {"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, 20]}
        gc.disable()
        try:
            assert (await cast.ask({"inputs": [tensor]}, protocol="oip"))[0] == 500
            await asyncio.sleep(0)
            assert [query() for query in queries] == [None]
        finally:
            gc.enable()

    run(main)


def test_what_a_stage_cannot_do_in_time_its_function_does(cast_of: CastOf) -> None:
    """Only that call goes to a function. If the stage's function is too slow as well, the query is refused."""

    async def main() -> None:
        function = ModelFunctions(mark.model(plus(100)))
        slow = {"takes_s": {"high": 10.0}, "driver": cascade}
        cast = cast_of({"low": plus(1), "high": plus(100)}, functions={"high": function}, **slow)
        await cast.is_ready()
        identity = cast.send({"x": 50}, allowed_s=2.0)
        assert await cast.answer(identity) == (200, 151, INSTANCE)
        assert cast.said(identity) == {"low": "", "high": "function"}
        assert len(function.calls) == 1
        metrics = cast.conductor.stages[1].backend.metrics
        assert metrics.requests == {("function", 200): 1}

        function.error = FunctionsFailed("broken")
        broken = cast.send({"x": 50}, allowed_s=2.0)
        status, body, _ = await cast.answer(broken)
        assert (status, body["error"].partition(":")[0]) == (503, "stage high")
        assert cast.said(broken)["high"] == "refused"

        none = cast_of({"low": plus(1), "high": plus(100)}, **slow)
        await none.is_ready()
        assert (await none.ask({"x": 50}, allowed_s=2.0))[0] in (429, 504)

    run(main)


@pytest.mark.parametrize("driven", [False, True])
def test_a_stage_that_was_asked_the_same_before_is_not_called(cast_of: CastOf, driven: bool) -> None:
    """Each stage looks up its own input, so a new query may be new for some stages only.

    The answer names the others.
    """

    async def main() -> None:
        models = {"halves": lambda batch: [each // 2 for each in batch], "next": plus(1)}
        one_after_the_other = graph(halves=((), ALL), next=(("halves",), ALL))
        how = {"driver": _next_of_half} if driven else {"pipeline": one_after_the_other}
        cast = cast_of(models, cached=True, **how)
        await cast.is_ready()
        said = []
        for query in (8, 8, 9, 10):
            identity = cast.send(query)
            assert await cast.answer(identity) == (200, query // 2 + 1, INSTANCE)
            said.append(cast.said(identity))
        new, old = "", "cache"
        assert said == [
            {"halves": new, "next": new},
            {"halves": old, "next": old},
            {"halves": new, "next": old},
            {"halves": new, "next": new},
        ]
        assert [len(cast.pools[name].calls) for name in models] == [3, 2]
        counts = [stage.backend.metrics.cache for stage in cast.conductor.stages]
        assert [(one.hits, one.misses) for one in counts if one is not None] == [(1, 3), (2, 2)]

    run(main)


def test_numbers_are_of_the_whole_and_of_each_stage(cast_of: CastOf) -> None:
    async def main() -> None:
        cast = cast_of({"low": plus(1), "high": plus(100)}, driver=cascade)
        await cast.ask({"x": 1})
        metrics = Metrics()
        metrics.models = [cast.conductor.metrics, *(stage.backend.metrics for stage in cast.conductor.stages)]
        page = metrics.page().decode()
        for stage, count in (("", 1), ("low", 1)):
            labels = f'answered_by="instance",code="200",model="p",stage="{stage}",version="1"'
            assert f"mark_requests_total{{{labels}}} {count}.0" in page
        assert 'mark_requests_total{answered_by="instance",code="200",model="p",stage="high"' not in page

    run(main)
