"""A replica between fakes of workers and functions, in a time that the test sets: each request ends exactly once."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mark.domain import backoff
from mark.domain.rules.admission import NEVER_S
from mark.models.answer import FUNCTION, INSTANCE, NOBODY, Answer
from mark.serving.backend.bouncer import Bouncer, FixedTimes, Overflow
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.refusals import REASONS, error_reply, refusal, retry_after
from mark.serving.backend.replica import Replica, ReplicaLimits
from mark.serving.backend.request import Request
from mark.serving.overflow.breaker import MOST_FAILURES
from mark.serving.overflow.functions import FunctionsFailed, Throttled, Unsuitable
from tests.serving.fakes import Answers, FakeFunctions, FakeWorkers

FIRST_S = backoff.FUNCTION.first_s
RT_MAX_S = 1.0
SERVICE_S = 0.4  # of any batch: two in a row fit, three do not


class Bench:
    """A replica with its fakes and a clock."""

    def __init__(
        self,
        *,
        workers: int = 1,
        functions: bool = True,
        n_batch: int = 1,
        service_s: float = SERVICE_S,
        **options: Any,
    ) -> None:
        self.now_s = 0.0
        self.functions = FakeFunctions() if functions else None
        self.workers, self.answers = FakeWorkers(), Answers()
        self.metrics = ModelMetrics("m", "1")
        bouncer = Bouncer(
            FixedTimes([0.0] + [service_s] * n_batch),
            rt_max_s=RT_MAX_S,
            workers=0,
            overflow=Overflow(0.2 if functions else NEVER_S),
        )
        self.replica = Replica(
            bouncer,
            self.functions,
            self.metrics,
            asyncio.get_running_loop(),
            rt_max_s=RT_MAX_S,
            **options,
            now=lambda: self.now_s,
        )
        self.replica.attach(self.workers)
        for worker in range(workers):
            self.replica.worker_ready(worker)

    def offer(self, *identities: str, deadline_s: float | None = None) -> None:
        for identity in identities:
            self.replica.offer(self.answers.request(identity, self.now_s, RT_MAX_S, deadline_s))

    def done(self, worker: int = 0) -> None:
        self.replica.worker_done(worker, self.workers.replies(worker), SERVICE_S)

    @property
    def made_by(self) -> dict[str, str]:
        return {identity: made_by for identity, (_, _, made_by) in self.answers.by_id.items()}


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def turns(count: int = 5) -> None:
    """Let the loop run the callbacks that are due."""
    for _ in range(count):
        await asyncio.sleep(0)


async def failing(bench: Bench, error: Exception) -> FakeFunctions:
    """Return its functions, which have failed with this error until the replica stopped calling them."""
    assert bench.functions is not None
    bench.functions.error = error
    for number in range(MOST_FAILURES):
        bench.offer(f"failed {number}")
        await turns()
    return bench.functions


@on_a_loop
async def test_what_arrives_together_shares_a_batch() -> None:
    bench = Bench(n_batch=4)
    bench.offer("a", "b", "c")
    await turns()
    assert [bytes(call.body) for call in bench.workers.sent[0]] == [b"a", b"b", b"c"]
    bench.now_s = 0.4
    bench.done()
    assert bench.answers.by_id == {i: (200, i.encode(), INSTANCE) for i in "abc"}
    assert bench.metrics.batch_items.total == 3.0
    assert bench.metrics.deadline_misses == 0


@on_a_loop
async def test_what_a_batch_takes_is_counted_against_its_profile() -> None:
    """Times are compared by batch size. A batch larger than every profiled one is not compared."""
    bench = Bench(n_batch=4, profiled_s=(0.0, SERVICE_S, SERVICE_S / 2.0))
    for requests in ("a", "bc", "def"):
        bench.offer(*requests)
        await turns()
        bench.done()
    assert bench.metrics.service_ratio.total == 3.0
    assert sum(bench.metrics.service_ratio.counts) == 2


@on_a_loop
async def test_a_request_that_would_be_late_goes_to_a_function() -> None:
    """Two batches fit into RT_max; the third request goes to the function, and does not wait for a worker."""
    bench = Bench()
    bench.offer("a", "b", "c")
    await turns()
    assert bench.made_by == {"c": FUNCTION}
    assert bench.metrics.overflow["overloaded"] == 1
    bench.done()
    await turns()
    bench.done()
    assert bench.made_by == {"a": INSTANCE, "b": INSTANCE, "c": FUNCTION}


@on_a_loop
async def test_without_functions_overload_is_refused_with_a_retry_after() -> None:
    bench = Bench(functions=False)
    bench.offer("a", "b", "c")
    assert bench.answers.by_id["c"][::2] == (429, NOBODY)
    assert bench.metrics.refused == {"overloaded": 1}
    assert 0.0 < bench.replica.retry_after_s() <= 2 * SERVICE_S


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Throttled(), 429, "throttled"),
        (FunctionsFailed("broken"), 503, "functions"),
        (ZeroDivisionError("a fault of the adapter"), 503, "functions"),
    ],
)
def test_a_failing_function_is_a_refusal_and_not_silence(error: Exception, status: int, reason: str) -> None:
    @on_a_loop
    async def check() -> None:
        bench = Bench(workers=0)
        assert bench.functions is not None
        bench.functions.error = error
        bench.offer("a")
        await turns()
        assert bench.answers.by_id["a"][::2] == (status, NOBODY)
        assert bench.metrics.refused == {reason: 1}

    check()


@on_a_loop
async def test_a_clients_deadline_bounds_the_function_call() -> None:
    """Its own deadline bounds the call; RT_max alone does not, since a late answer is still an answer."""
    bench = Bench(workers=0)
    assert bench.functions is not None
    bench.offer("a")
    bench.offer("b", deadline_s=0.5)
    await turns()
    assert bench.functions.timeouts_s == [30.0, 0.5]


@on_a_loop
async def test_no_more_calls_at_once_than_allowed() -> None:
    bench = Bench(workers=0, limits=ReplicaLimits(calls=2))
    assert bench.functions is not None
    bench.functions.held = asyncio.Event()
    bench.offer("a", "b", "c")
    await turns()
    assert bench.made_by == {"c": NOBODY}
    bench.functions.held.set()
    await turns()
    assert bench.made_by == {"a": FUNCTION, "b": FUNCTION, "c": NOBODY}


@on_a_loop
async def test_a_late_answer_changes_no_promise() -> None:
    """By the profile two batches just fit into RT_max, even after a late one, because means decide."""
    bench = Bench(functions=False, service_s=0.495)
    bench.offer("a", "b")
    await turns()
    bench.now_s = 0.4
    bench.done()
    await turns()
    bench.now_s = 1.3  # predicted for 0.8
    bench.done()
    bench.offer("c", "d", "e")
    assert bench.answers.by_id["e"][::2] == (429, NOBODY)
    assert "d" not in bench.answers.by_id


@on_a_loop
async def test_bodies_held_are_bounded_and_given_back() -> None:
    """The limit is three bytes. Each answered request makes room, whether it succeeded or not."""
    bench = Bench(functions=False, n_batch=4, limits=ReplicaLimits(held_bytes=3))
    bench.offer("a", "b", "c", "d")
    assert bench.answers.by_id["d"][::2] == (429, NOBODY)
    assert bench.metrics.refused == {"queue_full": 1}
    await turns()
    bench.done()
    bench.offer("e", "f", "g", "h")
    assert set(bench.answers.by_id) == {"a", "b", "c", "d", "h"}


@on_a_loop
async def test_a_lost_worker_loses_no_request() -> None:
    """Another worker serves its requests if there is time, otherwise a function does."""
    bench = Bench(workers=2)
    bench.offer("a", "b")
    await turns()
    lost = next(worker for worker, calls in bench.workers.sent.items() if bytes(calls[0].body) == b"a")
    del bench.workers.sent[lost]
    bench.replica.worker_lost(lost, "killed", NEVER_S)
    await turns()
    assert bench.made_by == {}
    other = 1 - lost
    bench.now_s = 0.4
    bench.done(other)  # b; then it takes a
    await turns()
    bench.now_s = 0.8
    bench.done(other)
    assert bench.made_by == {"a": INSTANCE, "b": INSTANCE}
    assert (bench.metrics.retries, bench.metrics.worker_losses, bench.metrics.workers_ready) == (1, 1, 1)


@on_a_loop
async def test_requests_behind_a_hanging_worker_are_answered_once_by_another() -> None:
    bench = Bench(workers=2, service_s=0.2)
    bench.offer("hangs", "b", "c")
    await turns()
    stuck = next(worker for worker, calls in bench.workers.ahead.items() if bytes(calls[0].body) == b"c")
    bench.now_s = 0.2
    bench.done(1 - stuck)
    bench.now_s = 0.7  # c takes 0.2 s and is promised for 1
    bench.offer("d")
    await turns()
    assert bytes(bench.workers.sent[1 - stuck][0].body) == b"c"
    bench.done(1 - stuck)
    bench.done(stuck)  # after all
    bench.done(stuck)  # c once more, dropped
    bench.done(1 - stuck)
    assert set(bench.answers.by_id) == {"hangs", "b", "c", "d"}
    assert bench.replica.bouncer.in_flight == bench.replica.bouncer.queued == 0
    await bench.replica.drain(1.0)


@on_a_loop
async def test_a_request_that_fails_a_batch_fails_only_itself() -> None:
    bench = Bench(functions=False, n_batch=4, service_s=0.2)
    bench.workers.poison = {b"bad"}
    bench.offer("a", "bad", "c")
    await turns()
    bench.now_s = 0.2
    bench.done()
    assert bench.answers.by_id == {}
    assert bench.replica.bouncer.queued == 2
    for bench.now_s in (0.4, 0.6, 0.8):
        assert len(bench.workers.sent[0]) == 1
        bench.done()
    assert bench.answers.by_id == {
        "a": (200, b"a", INSTANCE),
        "bad": (500, b"failed", INSTANCE),
        "c": (200, b"c", INSTANCE),
    }
    assert bench.metrics.retries == 3
    assert bench.workers.sent == {}
    await bench.replica.drain(1.0)


@on_a_loop
async def test_a_failed_batch_without_time_is_answered_at_once() -> None:
    """All but the request that can still be tried alone get the model's error."""
    bench = Bench(functions=False, n_batch=4)
    bench.workers.poison = {b"bad"}
    bench.offer("a", "bad", "c")
    await turns()
    bench.now_s = 0.5
    bench.done()
    assert bench.answers.by_id == {"bad": (500, b"failed", INSTANCE), "c": (500, b"failed", INSTANCE)}
    bench.done()
    assert bench.answers.by_id["a"] == (200, b"a", INSTANCE)
    assert bench.metrics.requests == {(INSTANCE, 500): 2, (INSTANCE, 200): 1}


@on_a_loop
async def test_functions_answer_failed_requests_that_workers_cannot() -> None:
    bench = Bench(n_batch=4)
    bench.workers.poison = {b"bad"}
    bench.offer("a", "bad", "c")
    await turns()
    bench.now_s = 0.5
    bench.done()
    bench.done()
    await turns()
    assert bench.made_by == {"a": INSTANCE, "bad": FUNCTION, "c": FUNCTION}
    assert bench.metrics.overflow == {"failed": 2}


@on_a_loop
async def test_a_failed_request_is_refused_once_a_drain_has_ended() -> None:
    """Functions were its last chance, and it has one answer."""
    bench = Bench(functions=False, n_batch=4)
    bench.workers.poison = {b"bad"}
    bench.offer("a", "bad")
    await turns()
    draining = asyncio.ensure_future(bench.replica.drain(0.05))
    await turns()
    bench.now_s = 0.04
    bench.done()
    assert {status for status, _, _ in bench.answers.by_id.values()} == {500}
    await draining


@on_a_loop
async def test_with_no_worker_left_functions_take_over() -> None:
    bench = Bench()
    bench.offer("a", "b")
    await turns()
    bench.workers.sent.clear()
    bench.replica.worker_lost(0, "killed", NEVER_S)
    await turns()
    assert bench.made_by == {"a": FUNCTION, "b": FUNCTION}
    assert not bench.replica.ready


@on_a_loop
async def test_expired_work_is_dropped_before_it_costs_anything() -> None:
    """A worker that overran its time leaves a client's own deadline unmet: 504, and no batch."""
    bench = Bench()
    bench.offer("a")
    await turns()
    bench.offer("b", deadline_s=0.9)
    bench.now_s = 0.6  # a was predicted to end at 0.4
    bench.done()
    await turns()
    assert bench.answers.by_id["b"][::2] == (504, NOBODY)
    assert bench.metrics.expired == 1
    assert bench.workers.sent == {}


@pytest.mark.parametrize(("deadline_s", "left"), [(5.0, "bde"), (None, "deg")])
def test_what_no_client_waits_for_is_not_computed(deadline_s: float | None, left: str) -> None:
    """A request whose client left while it waited reaches no worker.

    Without a client's deadline a worker has a batch ahead.
    """

    @on_a_loop
    async def test() -> None:
        bench = Bench(n_batch=2, service_s=0.1, functions=False)
        for identity in "abcdefg":
            request = bench.answers.request(identity, 0.0, RT_MAX_S, deadline_s)
            request.gone = lambda identity=identity: bench.now_s > 0.0 and identity in left  # type: ignore[misc]
            bench.replica.offer(request)
            if identity == "a":
                await turns()
        await turns()
        batches = 0
        while bench.workers.sent:
            bench.now_s += 0.1
            bench.done()
            batches += 1
            await turns()
        statuses = {identity: status for identity, (status, *_) in bench.answers.by_id.items()}
        assert statuses == {identity: 503 if identity in left else 200 for identity in "abcdefg"}
        assert batches == 3
        assert bench.metrics.refused == {"gone": 3}
        assert bench.metrics.deadline_misses == 0
        assert bench.replica.bouncer.queued == bench.replica.bouncer.in_flight == 0

    test()


@on_a_loop
async def test_what_no_client_waits_for_goes_to_no_function() -> None:
    """It goes to no function either when its worker is lost."""
    bench = Bench()
    request = bench.answers.request("a", 0.0, RT_MAX_S, None)
    request.gone = lambda: bench.now_s > 0.0
    bench.replica.offer(request)
    await turns()
    bench.now_s = 0.3
    bench.replica.worker_lost(0, "exit code 3", math.inf)
    await turns()
    assert bench.functions is not None
    assert bench.functions.calls == []
    assert bench.metrics.refused == {"gone": 1}


@on_a_loop
async def test_functions_that_fail_again_and_again_are_left_alone() -> None:
    """Then their requests are refused immediately, and one request tries whether functions answer again."""
    bench = Bench(workers=0)
    functions = await failing(bench, FunctionsFailed("broken"))
    bench.offer("refused")
    assert bench.answers.by_id["refused"][::2] == (503, NOBODY)
    assert len(functions.calls) == MOST_FAILURES
    bench.now_s = FIRST_S
    bench.offer("probe", "meanwhile")
    await turns()
    assert functions.calls[MOST_FAILURES:] == [b"probe"]
    functions.error = None
    bench.now_s = FIRST_S + 2.0 * FIRST_S
    bench.offer("second probe", "too early")
    await turns()
    bench.offer("back", "to normal")
    await turns()
    served = {identity for identity, made_by in bench.made_by.items() if made_by == FUNCTION}
    assert served == {"second probe", "back", "to normal"}
    assert len(bench.answers.by_id) == MOST_FAILURES + 7


@on_a_loop
async def test_a_request_too_urgent_to_probe_functions_skips_them() -> None:
    """Its deadline is before a function's answer: it is not admitted as if functions answered."""
    bench = Bench(workers=0)
    functions = await failing(bench, FunctionsFailed("broken"))
    bench.now_s = FIRST_S
    bench.offer("in a hurry", deadline_s=bench.now_s + 1e-6)
    await turns()
    assert len(functions.calls) == MOST_FAILURES
    assert bench.replica.bouncer.function_s == math.inf
    bench.offer("probe")
    await turns()
    assert functions.calls[MOST_FAILURES:] == [b"probe"]


@on_a_loop
async def test_an_open_breaker_refuses_overload_and_the_instance_serves() -> None:
    bench = Bench()
    bench.offer("a", "b")  # all that fits
    functions = await failing(bench, FunctionsFailed("broken"))
    bench.offer("refused")
    assert bench.answers.by_id["refused"][::2] == (429, NOBODY)
    assert bench.metrics.refused["overloaded"] == 1
    functions.error = None
    bench.now_s = 0.4
    bench.done()
    bench.offer("c")
    await turns()
    bench.now_s = FIRST_S
    bench.done()
    bench.offer("d", "probe")
    await turns()
    bench.offer("after it")
    await turns()
    assert {i for i, made_by in bench.made_by.items() if made_by == FUNCTION} == {"probe", "after it"}
    assert bench.metrics.workers_ready == 1


@on_a_loop
async def test_throttled_functions_are_left_alone_until_their_retry_after() -> None:
    bench = Bench(workers=0)
    functions = await failing(bench, Throttled(7.0))
    functions.error = None
    bench.now_s = 6.9
    bench.offer("early")
    bench.now_s = 7.0
    bench.offer("probe")
    await turns()
    assert bench.made_by["early"] == NOBODY
    assert bench.made_by["probe"] == FUNCTION


@on_a_loop
async def test_calls_that_fail_by_themselves_say_nothing_of_functions() -> None:
    """Such calls have a body that is too large or a client in a hurry; the next request is served."""
    bench = Bench(workers=0)
    assert bench.functions is not None
    for number in range(2 * MOST_FAILURES):
        bench.functions.error = Unsuitable("too large") if number % 2 else FunctionsFailed("no answer in time")
        # All come within less than FIRST_S, so no request is admitted as a probe.
        bench.offer(f"own fault {number}", deadline_s=None if number % 2 else bench.now_s + 0.25)
        bench.now_s += 0.25 if number % 2 == 0 else 0.0
        await turns()
    assert bench.metrics.refused == {"overloaded": MOST_FAILURES, "late": MOST_FAILURES}
    bench.functions.error = None
    bench.offer("next")
    await turns()
    assert bench.made_by["next"] == FUNCTION


@on_a_loop
async def test_during_a_probe_other_overflow_is_refused() -> None:
    bench = Bench(workers=0)
    functions = await failing(bench, FunctionsFailed("broken"))
    bench.now_s = FIRST_S
    functions.held = asyncio.Event()
    bench.offer("probe")
    await turns()
    bench.offer("meanwhile")
    assert bench.metrics.refused == {"functions": MOST_FAILURES, "no_worker": 1}
    functions.held.set()
    await turns()


@on_a_loop
async def test_a_request_answered_after_rt_max_is_a_miss() -> None:
    """This holds for answers of workers and functions and for refusals, and none is counted twice."""
    bench = Bench()
    assert bench.functions is not None
    bench.functions.held = asyncio.Event()
    bench.offer("a", "b", "by function")
    await turns()
    bench.now_s = RT_MAX_S
    bench.done()  # just in time
    await turns()
    assert bench.metrics.deadline_misses == 0
    bench.now_s = RT_MAX_S + 0.1
    bench.done()
    assert bench.metrics.deadline_misses == 1
    bench.functions.held.set()
    await turns()
    assert bench.metrics.deadline_misses == 2
    bench.functions.error = FunctionsFailed("broken")
    await asyncio.wait_for(bench.replica.drain(until_s=5.0), 60.0)
    bench.offer("refused")
    assert bench.metrics.deadline_misses == 3
    assert (bench.metrics.wait_s.total, sum(bench.metrics.wait_s.counts)) == (RT_MAX_S, 2)  # of b, behind a
    assert sum(bench.metrics.latency_s.counts) == 3


@on_a_loop
async def test_a_drain_ends_when_everything_is_answered() -> None:
    bench = Bench()
    bench.offer("a", "b", "c")
    await turns()
    drained = asyncio.ensure_future(bench.replica.drain(until_s=5.0))
    await turns()
    assert not drained.done()
    bench.offer("late")
    await turns()
    assert bench.answers.by_id["late"][::2] == (200, FUNCTION)
    bench.now_s = 0.4
    bench.done()
    await turns()
    bench.now_s = 0.8
    bench.done()
    await asyncio.wait_for(drained, 5.0)
    assert bench.made_by == {"a": INSTANCE, "b": INSTANCE, "c": FUNCTION, "late": FUNCTION}


@on_a_loop
async def test_what_a_drain_cannot_finish_goes_to_functions() -> None:
    """The queue goes to functions immediately, because its end is known; a hanging batch goes when the time is over."""
    bench = Bench()
    bench.offer("a", "b")
    await turns()
    await asyncio.wait_for(bench.replica.drain(until_s=0.1), 5.0)
    assert bench.made_by == {"a": FUNCTION, "b": FUNCTION}
    assert bench.metrics.overflow["drain"] == 2


@on_a_loop
async def test_a_drain_without_functions_refuses_what_it_cannot_finish() -> None:
    bench = Bench(functions=False)
    bench.offer("a", "b")
    await turns()
    await asyncio.wait_for(bench.replica.drain(until_s=0.1), 5.0)
    assert {i: a[::2] for i, a in bench.answers.by_id.items()} == {"a": (503, NOBODY), "b": (503, NOBODY)}


@on_a_loop
async def test_a_drain_does_not_wait_for_a_lost_worker() -> None:
    """Its last batch was refused, so nothing is left to wait for, however long the drain may take."""
    bench = Bench(functions=False)
    bench.offer("a")
    await turns()
    drained = asyncio.ensure_future(bench.replica.drain(until_s=1e3))
    await turns()
    bench.replica.worker_lost(0, "killed", NEVER_S)
    await asyncio.wait_for(drained, 5.0)
    assert bench.answers.by_id["a"][::2] == (503, NOBODY)


@on_a_loop
async def test_a_worker_lost_after_the_drain_is_only_counted() -> None:
    bench = Bench(functions=False)
    bench.offer("a")
    await turns()
    await asyncio.wait_for(bench.replica.drain(until_s=0.0), 5.0)
    bench.replica.worker_lost(0, "did not end in time", NEVER_S)
    assert (bench.metrics.worker_losses, bench.metrics.workers_ready, bench.metrics.retries) == (1, 0, 0)
    assert bench.made_by == {"a": NOBODY}


@on_a_loop
async def test_an_answer_after_its_batch_was_given_up_is_ignored() -> None:
    bench = Bench()
    bench.offer("a")
    await turns()
    await asyncio.wait_for(bench.replica.drain(until_s=0.0), 5.0)
    bench.done()
    assert bench.made_by == {"a": FUNCTION}
    assert bench.metrics.requests == {(FUNCTION, 200): 1}


@on_a_loop
async def test_a_function_call_may_finish_after_the_drains_time() -> None:
    bench = Bench()
    assert bench.functions is not None
    bench.functions.held = asyncio.Event()
    bench.offer("a")
    await turns()
    drained = asyncio.ensure_future(bench.replica.drain(until_s=0.0))
    await turns(50)
    bench.functions.held.set()
    await asyncio.wait_for(drained, 5.0)
    assert bench.made_by == {"a": FUNCTION}


@on_a_loop
async def test_after_a_drain_no_function_call_begins() -> None:
    bench = Bench()
    await asyncio.wait_for(bench.replica.drain(until_s=5.0), 60.0)
    bench.offer("late")
    assert bench.answers.by_id["late"][::2] == (503, NOBODY)
    assert bench.metrics.refused == {"draining": 1}


@on_a_loop
async def test_a_call_cancelled_before_it_began_is_still_answered() -> None:
    bench = Bench(workers=0)
    bench.offer("a")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await turns()
    assert bench.answers.by_id["a"][::2] == (504, NOBODY)
    assert bench.functions is not None
    assert bench.functions.calls == []


@on_a_loop
async def test_a_probe_that_is_cancelled_makes_room_for_another() -> None:
    bench = Bench(workers=0)
    functions = await failing(bench, FunctionsFailed("broken"))
    functions.error = None
    bench.now_s = FIRST_S
    bench.offer("probe")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await turns()
    bench.offer("next")
    await turns()
    assert (bench.made_by["probe"], bench.made_by["next"]) == (NOBODY, FUNCTION)


@on_a_loop
async def test_a_function_that_answers_with_nothing_has_failed() -> None:
    bench = Bench(workers=0)
    assert bench.functions is not None
    bench.functions.silent = True
    bench.offer("a")
    await turns()
    assert bench.answers.by_id["a"][::2] == (503, NOBODY)


@on_a_loop
async def test_one_answer_that_fails_costs_only_itself() -> None:
    """Its client gets an error; every other request of the batch, and each refused one, is answered."""
    bench = Bench(functions=False, n_batch=4, limits=ReplicaLimits(held_bytes=3))
    broken = bench.answers.request("a", 0.0, RT_MAX_S)
    heard: list[int] = []

    def unsayable(request: Request, answer: Answer) -> None:
        heard.append(answer.reply.status)
        if len(heard) == 1:
            raise UnicodeEncodeError("utf-8", "", 0, 1, "surrogates")

    broken.answer = unsayable
    bench.replica.offer(broken)
    bench.offer("b", "c")
    await turns()
    bench.done()
    assert heard == [200, 500]
    assert bench.made_by == {"b": INSTANCE, "c": INSTANCE}
    heard.clear()
    bench.now_s = 10.0
    bench.replica.offer(broken)  # too late for anything
    assert heard == [429, 500]
    bench.offer("d", "e", "f")
    await turns()
    bench.done()
    assert set(bench.made_by.values()) == {INSTANCE}


@on_a_loop
async def test_a_slow_network_delays_answers_and_no_worker() -> None:
    """The worker gets its next batch immediately; a drain waits for answers that are still on their way."""
    began_s: list[float] = []

    def later_s(at_s: float) -> float:
        began_s.append(at_s)
        return 0.01 if len(began_s) == 1 else 0.0

    bench = Bench(functions=False, answers_later_s=later_s)
    bench.offer("a", "b")
    await turns()
    bench.done()
    assert bench.made_by == {}
    await turns()
    bench.done()
    assert bench.made_by == {"b": INSTANCE}
    await bench.replica.drain(10.0)
    assert bench.made_by == {"a": INSTANCE, "b": INSTANCE}
    assert began_s == pytest.approx([time.time()] * 2, abs=5.0), "Unix seconds"


def test_every_reason_has_a_status_and_a_text() -> None:
    for reason in REASONS:
        reply = refusal(reason)
        assert reply.status in (413, 429, 502, 503, 504)
        assert bytes(reply.body).startswith(b'{"error": "')
    with pytest.raises(KeyError):
        refusal("because")


def test_an_error_is_json_whatever_stands_in_it() -> None:
    assert json.loads(bytes(error_reply(404, 'nothing at /a"b\\c').body)) == {"error": "nothing at /a'b/c"}


def test_retry_after_is_at_least_one_second() -> None:
    assert retry_after(0.0) == b"retry-after: 1\r\n"
    assert retry_after(2.1) == b"retry-after: 3\r\n"
