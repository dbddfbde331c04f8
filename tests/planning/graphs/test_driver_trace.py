"""Drivers as users write them: the graph that a trace finds, and its refusals."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.models.driver import pipeline
from mark.planning.graphs import driver_trace
from mark.planning.graphs.driver_trace import MOST_CALLS, PipelineTrace, trace
from mark.planning.graphs.queries import SampleQuery
from mark.planning.graphs.stage_order import ancestors

Respond = Callable[[Any, Any], Any]
Models = Any


def traced(respond: Respond, stages: Sequence[str], *queries: Any) -> PipelineTrace:
    """Return the trace with models that answer with their item."""
    sample = [SampleQuery(n, json.dumps(query)) for n, query in enumerate(queries or (1,), 1)]
    return trace(pipeline(respond), dict.fromkeys(stages, lambda item: item), sample, "q.jsonl")


def after(found: PipelineTrace) -> dict[str, tuple[str, ...]]:
    return {stage.name: stage.after for stage in found.pipeline.stages}


def patterns(found: PipelineTrace) -> dict[tuple[int, ...], int]:
    return dict(zip(map(tuple, found.lineage.calls.tolist()), found.lineage.queries.tolist(), strict=True))


def refusal(respond: Respond, stages: Sequence[str], *queries: Any) -> str:
    with pytest.raises(BadInput) as caught:
        traced(respond, stages, *queries)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_chain() -> None:
    async def respond(query: Any, models: Models) -> Any:
        return await models.c(await models.b(await models.a(query)))

    found = traced(respond, "abc", 1, 2)
    assert after(found) == {"a": (), "b": ("a",), "c": ("b",)}
    assert patterns(found) == {(1, 1, 1): 2}
    assert (found.repeated, found.unvisited) == ({}, ())


async def _gathered(query: Any, models: Models) -> Any:
    first = await models.a(query)
    return await models.d(await asyncio.gather(models.b(first), models.c(first)))


async def _by_futures(query: Any, models: Models) -> Any:
    first = await models.a(query)
    b, c = models.b(first), models.c(first)
    return await models.d([await c, await b])


async def _by_tasks(query: Any, models: Models) -> Any:
    async def branch(call: Callable[[Any], Awaitable[Any]], item: Any) -> Any:
        await asyncio.sleep(0.5)
        return await call(item)

    first = await models.a(query)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch(call, first)) for call in (models.b, models.c)]
    return await models.d([task.result() for task in tasks])


async def _by_a_queue(query: Any, models: Models) -> Any:
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def branch(call: Callable[[Any], Awaitable[Any]], item: Any) -> None:
        queue.put_nowait(await call(item))

    first = await models.a(query)
    tasks = [asyncio.create_task(branch(call, first)) for call in (models.b, models.c)]
    found = [await queue.get() for _ in tasks]
    return await models.d(found)


async def _in_threads(query: Any, models: Models) -> Any:
    first = await asyncio.to_thread(str, await models.a(query))
    b, c = await asyncio.wait_for(asyncio.gather(models.b(first), models.c(first)), timeout=0.001)
    return await models.d([b, c])


async def _by_polling(query: Any, models: Models) -> Any:
    first = await models.a(query)
    calls = [models.b(first), models.c(first)]
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
    return await models.d([call.result() for call in calls])


@pytest.mark.untraced
@pytest.mark.parametrize("respond", [_gathered, _by_futures, _by_tasks, _by_a_queue, _in_threads, _by_polling])
def test_it_does_not_matter_how_a_driver_waits(respond: Respond) -> None:
    assert after(traced(respond, "abcd")) == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def test_branches_side_by_side_do_not_wait_for_each_other() -> None:
    """The order in which their calls are answered does not matter."""

    async def respond(query: Any, models: Models) -> Any:
        async def chain(first: Any, second: Any) -> Any:
            return await second(await first(query))

        return await models.e(await asyncio.gather(chain(models.a, models.b), chain(models.c, models.d)))

    found = traced(respond, "abcde")
    assert after(found) == {"a": (), "c": (), "b": ("a",), "d": ("c",), "e": ("b", "d")}


def test_calls_are_interleaved() -> None:
    """A call begun earlier and awaited after another chain does not delay that chain."""

    async def respond(query: Any, models: Models) -> Any:
        slow = asyncio.gather(models.a(query), models.b(query))
        d = models.d(await models.c(query))
        return await models.e([await slow, await d])

    assert after(traced(respond, "abcde")) == {"a": (), "b": (), "c": (), "d": ("c",), "e": ("a", "b", "d")}


def test_a_condition_keeps_what_the_short_way_waits_for() -> None:
    """If b is skipped, c waits for a: the edge that a plain transitive reduction drops."""

    async def respond(query: Any, models: Models) -> Any:
        text = await models.a(query)
        return await models.c(await models.b(text) if query else text)

    found = traced(respond, "abc", 1, 0, 0)
    assert after(found) == {"a": (), "b": ("a",), "c": ("a", "b")}
    assert patterns(found) == {(1, 0, 1): 2, (1, 1, 1): 1}
    assert after(traced(respond, "abc", 1)) == {"a": (), "b": ("a",), "c": ("b",)}


def test_an_early_return_counts_what_was_begun() -> None:
    async def respond(query: Any, models: Models) -> Any:
        if not query:
            return None
        models.a(query)
        return await models.b(query)

    found = traced(respond, "ab", 1, 0)
    assert after(found) == {"a": (), "b": ()}
    assert patterns(found) == {(0, 0): 1, (1, 1): 1}


def test_what_begins_after_the_answer_does_not_count() -> None:
    async def respond(query: Any, models: Models) -> Any:
        async def later() -> None:
            try:
                await models.a(query)
            finally:
                models.b(query)

        task = asyncio.create_task(later())
        await asyncio.sleep(0)
        return task.done()

    assert patterns(traced(respond, "ab")) == {(1, 0): 1}


def test_a_loop_of_calls_begun_together_is_fan_out() -> None:
    async def respond(query: Any, models: Models) -> Any:
        await models.a(query)
        return await models.c(await asyncio.gather(*(models.b(n) for n in range(query))))

    found = traced(respond, "abc", 0, 2, 5, 2)
    assert after(found)["b"] == ("a",)
    assert patterns(found) == {(1, 2, 1): 2, (1, 0, 1): 1, (1, 5, 1): 1}
    assert found.repeated == {}


def test_a_loop_over_its_answers_is_told_as_fan_out() -> None:
    async def in_turn(query: Any, models: Models) -> None:
        for _ in range(query):
            await models.a(query)

    async def two_at_a_time(query: Any, models: Models) -> None:
        places = asyncio.Semaphore(2)

        async def one(n: int) -> Any:
            async with places:
                return await models.a(n)

        await asyncio.gather(*map(one, range(query)))

    for respond, line in ((in_turn, 2), (two_at_a_time, 3)):
        found = traced(respond, "a", 1, 2, 3)
        assert patterns(found) == {(1,): 1, (2,): 1, (3,): 1}
        assert found.repeated == {"a": line}


def test_a_loop_over_two_stages_is_no_graph() -> None:
    async def respond(query: Any, models: Models) -> None:
        for _ in range(query):
            await models.b(await models.a(query))

    said = refusal(respond, "ab", 1, 2)
    assert said.startswith("q.jsonl:2: a is called before b and again behind it: begin the calls of a loop together")


def test_an_order_that_differs_between_queries_is_named_with_lines() -> None:
    async def respond(query: Any, models: Models) -> None:
        for name in query:
            await getattr(models, name)(1)

    said = refusal(respond, "abc", "c", "ab", "ab", "ba")
    waits = "b waits for a in line 2, and a waits for b in line 4"
    assert said == f"q.jsonl: no order of the stages suits all queries: {waits}"
    said = refusal(respond, "abc", "ab", "bc", "ca")
    for part in ("b waits for a in line 1", "c waits for b in line 2", "a waits for c in line 3"):
        assert part in said


def test_a_driver_that_draws_at_random_is_found() -> None:
    rng = random.Random(1)

    async def respond(query: Any, models: Models) -> None:
        if rng.random() < 0.5:
            await models.a(query)
        await models.b(query)

    assert "when it is run again: a driver's calls may depend on its query" in refusal(respond, "ab", *range(20))


def test_a_driver_that_takes_the_first_answer_declares_its_graph() -> None:
    async def respond(query: Any, models: Models) -> Any:
        done, _ = await asyncio.wait([models.a(1), models.b(1)], return_when=asyncio.FIRST_COMPLETED)
        return await models.c(done.pop().result())

    assert "c goes on with whichever of several answers comes first" in refusal(respond, "abc")

    async def racing(query: Any, models: Models) -> Any:
        done, _ = await asyncio.wait([models.a("a"), models.b("b")], return_when=asyncio.FIRST_COMPLETED)
        return await models.c(1) if done.pop().result() == "a" else None

    assert "calls c not at all instead of once when a is late" in refusal(racing, "abc")


def test_a_time_limit_never_runs_out() -> None:
    """No clock is read: an answer comes before any timer, and sleeping costs nothing."""

    async def respond(query: Any, models: Models) -> Any:
        await asyncio.sleep(3600.0)
        try:
            seen = await asyncio.wait_for(models.a(query), timeout=1e-6)
        except TimeoutError:
            seen = await models.b(query)
        return await models.c(seen)

    found = traced(respond, "abc")
    assert (after(found), found.unvisited) == ({"a": (), "b": (), "c": ("a",)}, ("b",))


def test_models_run_one_at_a_time_in_call_order() -> None:
    log: list[Any] = []

    async def respond(query: Any, models: Models) -> Any:
        b, a = models.b("first"), models.a("second")
        return await asyncio.gather(a, b, models.a("third"))

    answers = {name: lambda item, name=name: log.append((name, item)) for name in "ab"}
    trace(pipeline(respond), answers, [SampleQuery(1, "1")], "q.jsonl")
    # Each is called once, whatever the number of trials.
    assert log == [("b", "first"), ("a", "second"), ("a", "third")]


def test_a_model_need_not_answer_the_same_each_time() -> None:
    answers_given = iter(range(1000))

    async def respond(query: Any, models: Models) -> Any:
        if await models.a(query) % 2:
            await models.b(query)
        await models.c(query)

    answers = {"a": lambda item: next(answers_given), "b": lambda item: item, "c": lambda item: item}
    found = trace(pipeline(respond), answers, [SampleQuery(n, "1") for n in range(1, 5)], "q.jsonl")
    assert patterns(found) == {(1, 0, 1): 2, (1, 1, 1): 2}


def test_a_model_that_fails_once_fails_in_every_trial() -> None:
    tries = iter([True, False, False])

    def flaky(item: Any) -> Any:
        if next(tries):
            raise OSError("gone")
        return item

    async def respond(query: Any, models: Models) -> Any:
        try:
            return await models.a(query)
        except OSError:
            return await models.b(query)

    answers = {"a": flaky, "b": lambda item: item}
    found = trace(pipeline(respond), answers, [SampleQuery(1, "1"), SampleQuery(2, "2")], "q.jsonl")
    assert patterns(found) == {(1, 0): 1, (1, 1): 1}


def test_what_is_changed_afterwards_changes_no_call() -> None:
    """This covers a query that the driver takes apart, and an answer in memory that the model uses again."""
    memory = np.zeros(1)

    def model(item: Any) -> Any:
        memory[:] = item
        return memory

    async def respond(query: Any, models: Models) -> Any:
        a, b = await asyncio.gather(models.a(query.pop()), models.a(query.pop()))
        return await models.b(float(a[0] - b[0]))

    got: list[float] = []
    answers: dict[str, Callable[[Any], Any]] = {"a": model, "b": got.append}
    trace(pipeline(respond), answers, [SampleQuery(1, "[3, 5]")], "q.jsonl")
    assert got == [2.0]


def test_items_and_answers_that_cannot_be_copied_are_passed_on() -> None:
    async def respond(query: Any, models: Models) -> Any:
        made = await models.a(lambda: query)
        return await models.b(made())

    assert after(traced(respond, "ab")) == {"a": (), "b": ("a",)}


def test_the_driver_s_errors_are_told_with_line_and_kind() -> None:
    async def respond(query: Any, models: Models) -> Any:
        return await models.a(query["text"])

    assert refusal(respond, "a", {"text": 1}, {}) == "q.jsonl:2: the driver raised KeyError: 'text'"

    async def unknown(query: Any, models: Models) -> Any:
        return await models.vison(query)

    said = "q.jsonl:1: the driver calls a name that is no stage, did you mean vision?: vison"
    assert refusal(unknown, ["vision"]) == said

    async def cancels(query: Any, models: Models) -> Any:
        raise asyncio.CancelledError

    assert refusal(cancels, "a") == "q.jsonl:1: the driver raised CancelledError"


def test_a_models_error_is_told_and_may_be_caught() -> None:
    def broken(item: Any) -> Any:
        raise ValueError("too small")

    async def careless(query: Any, models: Models) -> Any:
        return await models.a(query)

    async def careful(query: Any, models: Models) -> Any:
        try:
            return await models.a(query)
        except ValueError:
            return await models.b(query)

    sample = [SampleQuery(7, "1")]
    answers = {"a": broken, "b": lambda item: item}
    with pytest.raises(BadInput, match=r"q\.jsonl:7: the model of a raised ValueError: too small"):
        trace(pipeline(careless), answers, sample, "q.jsonl")
    assert after(trace(pipeline(careful), answers, sample, "q.jsonl")) == {"a": (), "b": ("a",)}


def test_a_driver_that_never_ends_is_ended() -> None:
    async def waits(query: Any, models: Models) -> None:
        await asyncio.get_running_loop().create_future()

    async def sleeps(query: Any, models: Models) -> None:
        while True:
            await asyncio.sleep(600.0)

    async def calls(query: Any, models: Models) -> None:
        while True:
            models.a(query)

    for respond in (waits, sleeps):
        assert refusal(respond, "a") == "q.jsonl:1: the driver waits for something that is no model's answer"
    assert f"more than {MOST_CALLS} times" in refusal(calls, "a")


def test_a_driver_that_retries_forever_is_ended_whatever_it_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the limit: each call looks through all calls before it."""
    monkeypatch.setattr(driver_trace, "MOST_CALLS", MOST_CALLS // 10)

    async def patient(query: Any, models: Models) -> Any:
        while True:
            try:
                await models.a(query)
            except Exception:
                continue

    async def hasty(query: Any, models: Models) -> Any:
        while True:
            with suppress(Exception):
                models.a(query)

    for respond in (patient, hasty):
        assert f"more than {MOST_CALLS // 10} times" in refusal(respond, "a")


def test_a_driver_or_model_that_exits_does_not_end_mark() -> None:
    async def leaves(query: Any, models: Models) -> Any:
        await models.a(query)
        sys.exit(0)

    def exits(item: Any) -> Any:
        raise SystemExit(0)

    async def calls(query: Any, models: Models) -> Any:
        await models.a(query)

    assert refusal(leaves, "a") == "q.jsonl:1: the driver raised SystemExit"
    with pytest.raises(BadInput, match=r"q\.jsonl:1: the model of a raised SystemExit"):
        trace(pipeline(calls), {"a": exits}, [SampleQuery(1, "1")], "q.jsonl")


@pytest.mark.untraced
def test_correlated_branches_against_brute_force() -> None:
    """The joint law counts, not the shares: the queries with many detections are the translated ones."""
    rng = np.random.default_rng(3)
    queries = []
    for _ in range(300):
        busy = bool(rng.random() < 0.3)
        queries.append({"boxes": int(rng.integers(3, 6) if busy else rng.integers(0, 2)), "translate": busy})

    async def respond(query: Any, models: Models) -> Any:
        async def seen() -> Any:
            await models.detect(0)
            return await asyncio.gather(*(models.classify(n) for n in range(query["boxes"])))

        async def read() -> Any:
            language = await models.language(0)
            return await models.translate(language) if query["translate"] else language

        return await models.rank(await asyncio.gather(seen(), read()))

    stages = ("detect", "classify", "language", "translate", "rank")
    found = traced(respond, stages, *queries)
    law = Counter((1, query["boxes"], 1, int(query["translate"]), 1) for query in queries)
    order = [found.lineage.stages.index(name) for name in stages]
    assert {tuple(key[s] for s in order): n for key, n in patterns(found).items()} == law
    # Independent visits would leave joins of few boxes with a translation, which no query has.
    assert all(key[1] >= 3 for key in law if key[3])
    assert after(found)["rank"] == ("detect", "classify", "language", "translate")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_graph_is_found_again(data: st.DataObject) -> None:
    """Random graphs and visited sets: within each set the trace finds the graph's order, without an extra edge.

    Each stage is a task that awaits its predecessors, as far as the query visits them.
    """
    names = "abcdef"[: data.draw(st.integers(1, 6))]
    pairs = [(a, b) for n, b in enumerate(names) for a in names[:n]]
    edges = {pair for pair in pairs if data.draw(st.booleans())}
    queries = data.draw(st.lists(st.sets(st.sampled_from(names)).map(sorted), min_size=1, max_size=4))

    async def respond(query: Any, models: Models) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}

        async def run(name: str) -> None:
            await asyncio.gather(*(tasks[a] for a, b in edges if b == name and a in query))
            await getattr(models, name)(name)

        for name in query:
            tasks[name] = asyncio.create_task(run(name))
        await asyncio.gather(*tasks.values())

    found = {(a, stage) for stage, before in after(traced(respond, names, *queries)).items() for a in before}
    needed = set()
    for query in queries:
        within = {(a, b) for a, b in edges if a in query and b in query}
        above = ancestors(within)
        shown = {(a, b) for a, b in found if a in query and b in query}
        # The order within each query is the graph's, or more where another query's edges add to it.
        closed = ancestors(shown)
        assert all(above[b] <= closed[b] for b in above)
        needed |= {(a, b) for b in above for a in above[b]}
    every = ancestors(needed)
    assert all(a in every[b] for a, b in found)


def test_each_stages_first_items_are_kept_as_sent() -> None:
    async def respond(query: Any, models: Models) -> Any:
        item = [query]
        first = await models.a(item)
        item.append("changed later")
        return await models.b({"a": first}) if query > 1 else first

    answers = dict.fromkeys("ab", lambda item: item[0] if isinstance(item, list) else item)
    sample = [SampleQuery(n, str(n)) for n in (1, 2, 3)]
    found = trace(pipeline(respond), answers, sample, "q.jsonl", most_items=2)
    assert found.items == {"a": [[1], [2]], "b": [{"a": 2}, {"a": 3}]}
    assert trace(pipeline(respond), answers, sample, "q.jsonl").items == {"a": [], "b": []}
