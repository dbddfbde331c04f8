"""A cache before a backend that answers when the test says so, in a time that the test sets."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.pipeline import ALL, Pipeline, PipelineStage
from mark.domain.service import CacheSettings
from mark.models.answer import CACHE, DEFAULT, FUNCTION, INSTANCE, NOBODY, RECONSTRUCTION, Answer, Provenance
from mark.models.call import RESULTS, Call, Reply
from mark.models.results import call_with
from mark.models.versions import Versions
from mark.serving.backend.cache import Cache, KeptAnswers
from mark.serving.backend.hot_calls import HotCalls
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.refusals import refusal
from mark.serving.backend.request import Request
from mark.serving.backend.sieve import ENTRY_BYTES, Sieve
from mark.serving.conductor.conductor import Conductor
from mark.serving.conductor.remote_stage import StageAddress
from mark.serving.overflow.http_client import Address
from mark.serving.process_settings import ListenerConfig, PipelineServing, Serving
from mark.serving.server_process import ModelServer
from tests.serving.frontend.test_grpc import infer_request
from tests.serving.place import Place
from tests.serving.test_server_process import INFER, body, served, write_service
from tests.serving.test_server_process import folder as folder

RT_MAX_S = 1.0
JSON = "application/json"
OK = Reply(200, JSON, b"right")
BUDGET = 100 * (ENTRY_BYTES + len(OK.body))


class Timers:
    """The part of a loop that the cache uses: timers that are due when the test says so."""

    def __init__(self) -> None:
        self.handles: list[asyncio.TimerHandle] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        self.handles.append(asyncio.TimerHandle(delay, callback, args, self.loop))
        return self.handles[-1]

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Accept the cancellation of a timer, as a loop does."""

    @property
    def due(self) -> list[asyncio.TimerHandle]:
        return [handle for handle in self.handles if not handle.cancelled()]

    def ring(self) -> None:
        handles, self.handles = self.due, []
        for handle in handles:
            handle._run()


class Behind:
    """A backend that keeps requests until the test answers them, or refuses each if `refuses` gives a reason."""

    least_s = 0.25

    def __init__(self, *labels: str) -> None:
        self.metrics = ModelMetrics(*labels or ("m", "1"))
        self.ready = True
        self.refuses = ""
        self.offered: list[Request] = []
        self.has: list[Request] = []
        self.drained_s: list[float] = []

    def offer(self, request: Request) -> None:
        self.offered.append(request)
        self.has.append(request)
        if self.refuses:
            self.refuse(self.refuses)

    def reply(self, reply: Reply = OK, made_by: str = INSTANCE, provenance: Provenance | None = None) -> None:
        """Answer the request that came last."""
        request = self.has.pop()
        self.metrics.answered(made_by, reply.status, 0.0, RT_MAX_S)
        request.answer(request, Answer(reply, made_by, request.version, provenance=provenance))

    def refuse(self, reason: str) -> None:
        self.reply(refusal(reason), NOBODY)

    def retry_after_s(self) -> float:
        return 7.0

    async def drain(self, until_s: float) -> None:
        self.drained_s.append(until_s)
        self.refuses = "draining"
        while self.has:
            self.refuse("draining")


class Bench:
    """A cache with its fakes and a clock, and every answer by the number of its request."""

    def __init__(self, behind: Behind | None = None, store: KeptAnswers | None = None, **options: Any) -> None:
        self.now_s = 0.0
        self.timers = Timers()
        self.behind = behind or Behind()
        self.store = Sieve(BUDGET) if store is None else store
        self.cache = Cache(
            self.behind,
            self.store,
            self.timers.loop,
            model=options.pop("model", "m:M"),
            rt_max_s=RT_MAX_S,
            now=lambda: self.now_s,
            **options,
        )
        self.counts = self.cache._counts
        self.answers: dict[int, Answer] = {}
        self.order: list[int] = []
        self.fails: set[int] = set()  # answers that cannot be sent
        self._numbers = itertools.count()

    def ask(self, what: bytes | Call = b"question", allowed_s: float = RT_MAX_S) -> int:
        """Offer a request with this body, or this call, and return its number."""
        number = next(self._numbers)

        def answered(request: Request, answer: Answer) -> None:
            assert request.id == f"r{number}"
            if number in self.answers:
                pytest.fail(f"{number} is answered twice")
            if number in self.fails:
                self.fails.remove(number)
                raise OSError("the client's socket")
            self.answers[number] = answer
            self.order.append(number)

        call = Call("oip", JSON, what) if isinstance(what, bytes) else what
        request = Request(call, 1, self.now_s, self.now_s + allowed_s, answered, f"r{number}")
        request.version = "1"
        self.cache.offer(request)
        return number

    def said(self, number: int) -> tuple[int, str, bytes]:
        answer = self.answers[number]
        assert answer.version == "1"
        return answer.reply.status, answer.made_by, bytes(answer.reply.body)

    @property
    def counted(self) -> tuple[int, int, int]:
        return self.counts.hits, self.counts.misses, self.counts.coalesced


RIGHT = (200, INSTANCE, b"right")
AGAIN = (200, CACHE, b"right")


# Answers from memory


def test_calls_answered_from_memory_are_counted() -> None:
    bench = Bench()
    bench.cache.hot = hot = HotCalls()
    often, once = call_with("often"), call_with("once")
    for call in (often, once):
        bench.ask(call)
        bench.behind.reply()
    assert hot.most_used(0.0) == []
    bench.ask(often)
    assert hot.most_used(0.0) == [often]


def test_a_repeated_call_is_answered_from_memory() -> None:
    bench = Bench()
    first = bench.ask()
    bench.behind.reply()
    second = bench.ask()
    assert (bench.said(first), bench.said(second)) == (RIGHT, AGAIN)
    assert len(bench.behind.offered) == 1
    assert bench.counted == (1, 1, 0)


CALLS = [
    Call("oip", JSON, b"a"),
    Call("oip", JSON, b"b"),
    Call("sagemaker", JSON, b"a"),
    Call("oip", "text/csv", b"a"),
    Call("oip", JSON, b"a", accept="text/csv"),
    Call("oip", JSON, b"a", accept=RESULTS),
    Call("oip", JSON, b"a", json_bytes=1),
    Call("oip", JSON, b"a", json_bytes=0),
    Call("oip", JSON, b"1;a"),
    Call("oip", JSON, b"", json_bytes=1),
    Call("oip" + JSON, "", b"a"),
]


def test_calls_that_differ_in_anything_have_answers_of_their_own() -> None:
    bench = Bench()
    for call in CALLS:
        bench.ask(call)
        bench.behind.reply(Reply(200, JSON, repr(call).encode()))
    for call in CALLS:
        assert bench.said(bench.ask(call)) == (200, CACHE, repr(call).encode())


def test_a_body_in_pieces_of_memory_is_the_same_call_and_its_answer_is_copied() -> None:
    bench, memory = Bench(), bytearray(b"xquestionx")
    bench.ask(Call("oip", JSON, memoryview(memory)[1:-1]))
    reply = bytearray(b"right")
    bench.behind.reply(Reply(200, JSON, memoryview(reply)))
    reply[:] = b"wrong"
    assert bench.said(bench.ask()) == AGAIN


def test_more_forms_of_calls_than_are_remembered_are_still_found() -> None:
    bench = Bench()
    calls = [Call("oip", f"text/{number}", b"a") for number in range(90)]
    for call in calls:
        bench.ask(call)
        bench.behind.reply()
    assert {bench.said(bench.ask(call)) for call in calls} == {AGAIN}


@pytest.mark.parametrize(
    ("labels", "model"),
    [(("m", "2"), "m:M"), (("m", "1", "small"), "m:M"), (("m", "1"), "m:M?kind=2")],
    ids=["version", "stage", "reference"],
)
def test_no_other_version_stage_or_model_finds_an_answer(labels: tuple[str, ...], model: str) -> None:
    store: KeptAnswers = Sieve(BUDGET)
    bench, other = Bench(store=store), Bench(Behind(*labels), store, model=model)
    bench.ask()
    bench.behind.reply()
    other.ask()
    assert len(other.behind.offered) == 1
    other.behind.reply(Reply(200, JSON, b"other"))
    assert bench.said(bench.ask()) == AGAIN
    assert other.said(other.ask())[2] == b"other"


def test_a_call_with_another_deadline_has_the_same_answer() -> None:
    bench = Bench()
    bench.ask(allowed_s=0.1)
    bench.behind.reply()
    assert bench.said(bench.ask(allowed_s=3.0)) == AGAIN


DEGRADED = Provenance(degraded="two of three")


@pytest.mark.parametrize(
    ("reply", "made_by", "how"),
    [
        (Reply(400, JSON, b"bad"), INSTANCE, None),
        (Reply(500, JSON, b"failed"), INSTANCE, None),
        (refusal("overloaded"), NOBODY, None),
        (refusal("expired"), NOBODY, None),
        (OK, INSTANCE, DEGRADED),
        (OK, DEFAULT, None),
        (OK, RECONSTRUCTION, None),
    ],
    ids=["bad", "failed", "refused", "late", "degraded", "default", "reconstruction"],
)
def test_errors_and_degraded_answers_are_neither_kept_nor_shared(
    reply: Reply, made_by: str, how: Provenance | None
) -> None:
    bench = Bench()
    first, second = bench.ask(), bench.ask()
    bench.behind.reply(reply, made_by, how)
    assert bench.answers[first].provenance is how
    assert second not in bench.answers
    assert [request.id for request in bench.behind.has] == ["r1"]
    bench.behind.reply()
    assert bench.said(second) == RIGHT
    assert bench.said(bench.ask()) == AGAIN
    assert bench.counted == (1, 2, 0)


@pytest.mark.parametrize("keeps", [True, False])
def test_answers_of_a_function_are_kept_where_it_has_the_only_version(keeps: bool) -> None:
    bench = Bench(keeps_functions=keeps)
    bench.ask()
    shared = bench.ask()
    bench.behind.reply(made_by=FUNCTION)
    assert bench.said(shared) == AGAIN
    again = bench.ask()
    assert (again in bench.answers) is keeps


def test_an_answer_larger_than_an_eighth_of_the_memory_is_shared_and_not_kept() -> None:
    bench = Bench()
    largest = BUDGET // 8 - ENTRY_BYTES
    for size, kept in ((largest + 1, False), (largest, True)):
        number, shared = bench.ask(), bench.ask()
        bench.behind.reply(Reply(200, JSON, b"x" * size))
        assert bench.said(number)[2] == bench.said(shared)[2] == b"x" * size
        assert (bench.store.size > 0) is kept
    assert bench.said(bench.ask())[1] == CACHE


def test_an_answer_is_given_until_its_time_has_passed_and_then_replaced() -> None:
    bench = Bench(ttl_s=5.0)
    bench.ask()
    bench.behind.reply()
    bench.now_s = 4.9
    assert bench.said(bench.ask()) == AGAIN
    bench.now_s = 5.0
    assert bench.ask() not in bench.answers
    bench.behind.reply(Reply(200, JSON, b"newer answer"))
    assert bench.counts.kept.bytes == bench.store.size == ENTRY_BYTES + len(b"newer answer")
    bench.now_s = 9.9
    assert bench.said(bench.ask())[2] == b"newer answer"
    assert bench.counts.kept.evictions == 0


def test_while_no_call_is_repeated_only_every_eighth_is_looked_up() -> None:
    """A looked-up call that repeats an earlier one ends this mode."""
    bench = Bench(store=Sieve(100_000_000))

    def kept(first: int, count: int) -> list[int]:
        for number in range(first, first + count):
            bench.ask(b"%d" % number)
            bench.behind.reply()
        return [
            number for number in range(first, first + count) if bench.store.get(bench.cache._key(call(number)), 0.0)
        ]

    def call(number: int) -> Call:
        return Call("oip", JSON, b"%d" % number)

    assert kept(0, 10_000) == list(range(10_000))
    assert kept(10_000, 80) == list(range(10_007, 10_080, 8))
    for _ in range(7):  # they are not looked up, so their answers do not come from memory
        bench.ask(b"10015")
        assert bench.behind.has
        bench.behind.reply()
    assert bench.said(bench.ask(b"10015")) == AGAIN
    assert kept(20_000, 10) == list(range(20_000, 20_010)), "a repeated call makes the cache useful again"


def test_evictions_and_bytes_are_counted_where_the_answer_was_kept() -> None:
    store: KeptAnswers = Sieve(BUDGET)
    bench, other = Bench(store=store), Bench(Behind("m", "2"), store)
    for number in range(100):
        bench.ask(b"%d" % number)
        bench.behind.reply()
    assert (bench.counts.kept.bytes, bench.counts.kept.evictions) == (BUDGET, 0)
    for number in range(30):
        other.ask(b"%d" % number)
        other.behind.reply()
    assert (bench.counts.kept.evictions, other.counts.kept.evictions) == (30, 0)
    assert (bench.counts.kept.bytes, other.counts.kept.bytes) == (BUDGET * 7 // 10, BUDGET * 3 // 10)


# Equal calls on their way


def test_equal_calls_on_their_way_share_one_answer() -> None:
    bench = Bench()
    numbers = [bench.ask() for _ in range(5)]
    assert len(bench.behind.offered) == 1
    bench.behind.reply()
    assert [bench.said(number) for number in numbers] == [RIGHT] + [AGAIN] * 4
    assert bench.counted == (0, 1, 4)
    assert not bench.cache._under_way


@pytest.mark.parametrize("reason", ["overloaded", "expired", "gone", "lost"])
def test_a_call_that_fails_is_made_again_for_the_requests_that_wait(reason: str) -> None:
    """One of the waiting requests repeats it, even if the first had a short deadline or its client left."""
    bench = Bench()
    first = bench.ask(allowed_s=0.1)
    others = [bench.ask() for _ in range(3)]
    bench.behind.refuse(reason)
    assert bench.answers[first].reply.status >= 429
    assert [request.id for request in bench.behind.has] == ["r1"]
    bench.behind.reply()
    assert [bench.said(number) for number in others] == [RIGHT, AGAIN, AGAIN]
    assert bench.counted == (0, 2, 2)


def test_a_backend_that_refuses_at_once_refuses_each_request_that_waits_once() -> None:
    """Any number may wait: none is lost, and the stack does not grow with their number."""
    bench = Bench()
    numbers = [bench.ask() for _ in range(5_000)]
    bench.behind.refuses = "queue_full"
    bench.behind.refuse("queue_full")
    assert {bench.said(number)[:2] for number in numbers} == {(429, NOBODY)}
    assert bench.order == [*numbers[1:], 0]
    assert bench.counted == (0, 5_000, 0)
    assert (bench.cache._under_way, bench.cache._waiting) == ({}, 0)


def test_a_request_that_waits_gets_504_at_its_own_deadline() -> None:
    bench = Bench()
    first, hasty, patient = bench.ask(), bench.ask(allowed_s=0.25), bench.ask()
    (timer,) = bench.timers.due
    assert timer.when() == 0.25
    bench.now_s = 0.249
    bench.timers.ring()  # timers tick in milliseconds
    assert not bench.answers
    bench.now_s = 0.25
    bench.timers.ring()
    assert bench.said(hasty)[:2] == (504, NOBODY)
    assert set(bench.answers) == {hasty}
    bench.now_s = 3.0
    bench.behind.reply()
    assert (bench.said(first), bench.said(patient)) == (RIGHT, AGAIN)
    assert bench.counted == (0, 1, 2)
    metrics = bench.cache.metrics
    assert (metrics.expired, metrics.refused["expired"], metrics.requests[NOBODY, 504]) == (1, 1, 1)
    assert metrics.deadline_misses == 2  # and the patient one, which is answered late


def test_an_answer_in_time_ends_the_timer_of_a_request_that_waits() -> None:
    bench = Bench()
    numbers = [bench.ask(allowed_s=0.25) for _ in range(3)]
    assert len(bench.timers.due) == 2
    bench.behind.refuse("lost")
    assert len(bench.timers.due) == 1
    bench.behind.reply()
    assert not bench.timers.due
    assert set(bench.answers) == set(numbers)


def test_beyond_the_most_that_wait_requests_go_to_the_backend_themselves() -> None:
    bench = Bench(most_waiting=2)
    numbers = [bench.ask() for _ in range(5)]
    assert [request.id for request in bench.behind.offered] == ["r0", "r3", "r4"]
    bench.behind.refuse("lost")
    bench.behind.reply()
    bench.behind.reply()
    assert [bench.said(number)[1] for number in numbers] == [INSTANCE, CACHE, CACHE, INSTANCE, NOBODY]
    assert bench.counted == (0, 3, 2)
    assert bench.cache._waiting == 0


def test_the_bodies_of_equal_calls_are_in_memory_once() -> None:
    bench = Bench()
    calls = [Call("oip", JSON, bytes(bytearray(b"question"))) for _ in range(4)]
    for call in calls:
        bench.ask(call)
    (waiting,) = bench.cache._under_way.values()
    assert waiting is not None
    assert {id(request.call) for request in waiting.requests} == {id(calls[1])}


def test_an_answer_that_cannot_be_said_costs_no_other_request_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    numbers = [bench.ask() for _ in range(3)]
    bench.fails = {0, 1}
    (had,) = bench.behind.has
    with pytest.raises(OSError, match="socket"):  # the backend's to handle, as without a cache
        bench.behind.reply()
    had.answer(had, Answer(refusal("lost"), NOBODY, had.version))
    assert [bench.said(number)[0] for number in numbers] == [503, 500, 200]
    assert "an answer failed" in caplog.text
    assert bench.said(bench.ask()) == AGAIN


# The port


def test_readiness_least_time_and_retry_after_are_the_backends() -> None:
    bench = Bench()
    assert (bench.cache.ready, bench.cache.least_s, bench.cache.retry_after_s()) == (True, 0.25, 7.0)
    bench.behind.ready = False
    assert not bench.cache.ready


def test_a_drain_ends_every_request_and_takes_nothing_new() -> None:
    bench = Bench()
    bench.ask(b"kept")
    bench.behind.reply()
    numbers = [bench.ask() for _ in range(4)]
    asyncio.run(bench.cache.drain(12.0))
    assert bench.behind.drained_s == [12.0]
    assert {bench.said(number)[:2] for number in numbers} == {(503, NOBODY)}
    assert bench.said(bench.ask(b"kept"))[:2] == (503, NOBODY)
    assert not bench.cache._under_way


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 3), st.sampled_from([0.3, RT_MAX_S, 5.0])),
            st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from([200, 400, 429, 504])),
            st.tuples(st.just("pass"), st.integers(1, 9), st.just(0)),
            st.tuples(st.just("refuses"), st.booleans(), st.just(0)),
        ),
        max_size=60,
    )
)
def test_every_request_has_one_answer_and_one_count_whatever_happens(steps: list[tuple[str, Any, Any]]) -> None:
    """The hits and the requests that waited add up to those that never reached a backend."""
    bench = Bench(store=Sieve(3 * (ENTRY_BYTES + 8) * 8), ttl_s=2.0, most_waiting=4)
    asked = []
    for what, first, second in steps:
        if what == "ask":
            asked.append(bench.ask(b"%d" % first, second))
        elif what == "answer" and bench.behind.has:
            request = bench.behind.has.pop(first % len(bench.behind.has))
            bench.behind.has.append(request)
            right = Reply(200, JSON, b"answer %b" % bytes(request.call.body))
            bench.behind.reply(right if second == 200 else Reply(second, JSON, b"no"), INSTANCE)
        elif what == "pass":
            bench.now_s += first / 10.0
            bench.timers.ring()
        elif what == "refuses":
            bench.behind.refuses = "overloaded" if first else ""
    asyncio.run(bench.cache.drain(bench.now_s))
    assert sorted(bench.answers) == asked
    assert sum(bench.counted) == len(asked)
    assert bench.counts.misses == len(bench.behind.offered)
    assert not bench.timers.due
    assert bench.counts.kept.bytes == bench.store.size <= bench.store.budget
    made_by = Counter(answer.made_by for answer in bench.answers.values() if answer.reply.status == 200)
    assert made_by[CACHE] == bench.counts.hits + bench.counts.coalesced - bench.cache.metrics.expired
    assert sum(bench.cache.metrics.requests.values()) == len(asked)


# Numbers and memory


def test_the_page_has_the_counts_with_the_labels_of_the_others() -> None:
    bench = Bench()
    bench.ask()
    bench.ask()
    bench.behind.reply()
    bench.now_s = 0.5
    bench.ask()
    metrics = Metrics()
    metrics.models = [bench.cache.metrics, ModelMetrics("m", "2")]
    page = metrics.page().decode().splitlines()
    of = '{model="m",version="1"}'
    counts = {"hits_total": 1, "misses_total": 1, "coalesced_total": 1, "evictions_total": 0, "bytes": ENTRY_BYTES + 5}
    for name, count in counts.items():
        assert f"mark_cache_{name}{of} {count}.0" in page
    assert not [line for line in page if line.startswith("mark_cache") and 'version="2"' in line]
    assert f'mark_requests_total{{answered_by="cache",code="200",{of[1:-1]}}} 2.0' in page
    assert f"mark_latency_seconds_count{of} 3.0" in page


def test_a_service_without_a_cache_has_no_counts_of_one() -> None:
    metrics = Metrics()
    metrics.models = [ModelMetrics("m", "1")]
    assert b"mark_cache" not in metrics.page()


@pytest.mark.untraced
def test_an_entry_takes_no_more_memory_than_is_counted() -> None:
    """Measured right after the table of entries has grown, where it has most room to spare."""
    entries = 22_000
    bench = Bench(store=Sieve(1 << 40))
    replies = (Reply(200, JSON, b"%030d" % number) for number in range(entries))
    bench.answers = Forgetful()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(entries):
            bench.ask(b"%d" % number)
            bench.behind.reply(next(replies))
            bench.behind.offered.clear()
            bench.order.clear()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= bench.store.size


class Forgetful(dict[int, Answer]):
    """A test's record that does not keep the answers."""

    def __setitem__(self, number: int, answer: Answer) -> None:
        """Store nothing."""


# Behind the real server


def test_both_protocols_are_answered_from_memory_and_say_so() -> None:
    async def main() -> None:
        loop, infer = asyncio.get_running_loop(), "/v2/models/twice/infer"

        def wrap(replica: Any) -> Cache:
            return Cache(replica, Sieve(1_000_000), loop, model="twice", rt_max_s=10.0)

        async with Place(wrap=wrap) as place:
            asked = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}
            answers = [await place.client.post(infer, json=asked) for _ in range(2)]
            assert [answer.headers["mark-answered-by"] for answer in answers] == [INSTANCE, CACHE]
            assert answers[0].content == answers[1].content
            assert answers[0].headers["x-request-id"] != answers[1].headers["x-request-id"]
            for made_by in (INSTANCE, CACHE):
                call = place.stub.ModelInfer(infer_request())
                await call
                assert dict(await call.trailing_metadata())["mark-answered-by"] == made_by
            assert len(place.pool.calls) == 2
            place.pool.held = True
            other = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, 4.0]}]}
            together = [asyncio.ensure_future(place.client.post(infer, json=other)) for _ in range(8)]
            while sum(map(len, waiting(place))) < 7 or not place.pool.waiting:
                await asyncio.sleep(0)
            place.pool.release()
            answered_by = Counter([(await answer).headers["mark-answered-by"] for answer in together])
            assert answered_by == {INSTANCE: 1, CACHE: 7}
            assert len(place.pool.calls) == 3

    asyncio.run(asyncio.wait_for(main(), 60))


def waiting(place: Place) -> list[dict[Request, Any]]:
    """Return the requests that wait in the cache of the place."""
    cache = place.server.backend
    assert isinstance(cache, Cache)
    return [one.requests for one in cache._under_way.values() if one is not None]


@pytest.mark.parametrize(("ttl_s", "here_s", "elsewhere_s"), [(None, math.inf, 60.0), (300.0, 300.0, 300.0)])
def test_answers_of_a_stage_elsewhere_are_not_kept_for_ever(
    tmp_path: Path, ttl_s: float | None, here_s: float, elsewhere_s: float
) -> None:
    """Its server may get another model, and the caches of one process share the memory."""

    async def main() -> None:
        here = Serving(name="here", versions=Versions({"1": ("m:M", 1.0)}), search=tmp_path, rt_max_s=0.5)
        stages: dict[str, Serving | StageAddress] = {
            "here": here,
            "elsewhere": StageAddress(Address.of("http://127.0.0.1:1"), 0.5),
        }
        graph = Pipeline.ordered([PipelineStage(name, "m:M", (), ALL) for name in stages])
        whole = PipelineServing(stages, graph)
        serving = replace(here, name="p", pipeline=whole, cache=CacheSettings(3, ttl_s))
        server = ModelServer(serving, ListenerConfig())
        conductor = server.server.backend
        assert isinstance(conductor, Conductor)
        caches = {stage.name: cast(Cache, stage.backend) for stage in conductor.stages}
        assert {name: cache._ttl_s for name, cache in caches.items()} == {"here": here_s, "elsewhere": elsewhere_s}
        assert caches["here"]._store is caches["elsewhere"]._store
        assert caches["here"]._store.budget == 3_000_000
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize("versions", [1, 2])
def test_answers_of_functions_are_kept_by_a_server_of_one_version(tmp_path: Path, versions: int) -> None:
    async def main() -> None:
        side_by_side = Versions({str(one): ("m:M", 1.0 / versions) for one in range(versions)})
        serving = Serving("m", side_by_side, tmp_path, 0.5, cache=CacheSettings())
        server = ModelServer(serving, ListenerConfig())
        for one in server.server.served:
            assert isinstance(one.backend, Cache)
            assert one.backend._keeps_functions is (versions == 1)
        await server.close()

    asyncio.run(main())


STAGES = (
    '[service]\nname = "echo"\nslo_ms = 2000\nslo_attainment = 0.98\n[stage.one]\nmodel = "model:Echo"\n'
    '[stage.two]\nmodel = "model:Echo"\nafter = ["one"]\n'
)


@pytest.mark.parametrize("pipeline", [False, True])
def test_mark_serve_answers_from_memory_and_takes_feedback_on_that(folder: Path, pipeline: bool) -> None:
    """The versions of a service have separate answers, and a pipeline names the stages that answered from memory."""
    more = '[cache]\nmemory_mb = 8\n[feedback]\nlog = "feedback"\n'
    versions = "[service.versions]\n" + "".join(f'"{v}" = {{ model = "model:Echo", weight = 0.5 }}\n' for v in (1, 2))
    if pipeline:
        (folder / "echo.toml").write_text(STAGES + more)
    else:
        write_service(folder, more=versions + more)
    with served(folder) as (_, url), httpx.Client(base_url=url, trust_env=False, timeout=30.0) as client:
        if pipeline:
            answers = [client.post(INFER, content=body(1)) for _ in range(2)]
            assert answers[0].content == answers[1].content
            said = [[stage.partition("/")[2] for stage in a.headers["mark-stages"].split(";")] for a in answers]
            assert said == [["", ""], ["cache", "cache"]]
        else:
            paths = [f"/v2/models/echo/versions/{version}/infer" for version in (1, 2)]
            answers = [client.post(path, content=body(1)) for path in paths * 2]
            assert [a.headers["mark-answered-by"] for a in answers] == [INSTANCE, INSTANCE, CACHE, CACHE]
            assert [a.json()["model_version"] for a in answers] == ["1", "2"] * 2
        ids = [answer.headers["x-request-id"] for answer in answers]
        told = client.post("/v2/models/echo/feedback", json=[{"id": identity, "label": 1} for identity in ids])
        assert told.json() == {"results": [{"id": identity, "result": "applied"} for identity in ids]}
        page = client.get("/metrics").text
        of = 'model="echo",stage="two",version="1"' if pipeline else 'model="echo",version="2"'
        for name in ("hits", "misses"):
            assert f"mark_cache_{name}_total{{{of}}} 1.0" in page
    (log,) = folder.rglob("observations-*.jsonl")
    observed = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["id"] for one in observed] == ids


_: type[StageBackend] = Behind
