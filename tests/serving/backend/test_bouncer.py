"""The bouncer: the same decisions as the kernel's reference, and invariants under any workers and clients."""

from __future__ import annotations

import copy
import heapq
import random
from collections import deque
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from mark.domain.errors import BadInput
from mark.domain.profile import Candidate
from mark.domain.rules.admission import TOLERANCE_S
from mark.kernel.random import factor_of
from mark.models.call import Call
from mark.serving.backend import bouncer as bouncer_module
from mark.serving.backend.bouncer import (
    FUNCTION,
    INSTANCE,
    NEVER_S,
    REJECT,
    Batch,
    Bouncer,
    FixedTimes,
    IllegalTransition,
    Overflow,
    QueueLimits,
)
from mark.serving.backend.request import Request
from tests.kernel.reference import BY_FUNCTION, REFUSED, Case, Change, Outcome, World, candidate, function
from tests.kernel.test_reference import by_kernel


# Drawing a case takes milliseconds, more on a busy machine, which must not fail the test.
def request(
    arrived_s: float = 0.0, deadline_s: float = NEVER_S, items: int = 1, size: int = 0, id: str = "", tries: int = 0
) -> Request:
    return Request(Call("oip", "application/json", bytes(size)), items, arrived_s, deadline_s, print, id, tries)  # type: ignore[arg-type]


SLIGHT = 1e-12  # variation that changes no decision but that late requests may queue
_OVERFLOW = ("function_s", "late", "least_in_time", "late_share")
_LIMITS = {"max_queued": "requests", "max_batch_bytes": "batch_bytes"}


def a_bouncer(fixed_s: float = 1.0, each_s: float = 1.0, n_batch: int = 4, **options: float) -> Bouncer:
    """Return a bouncer whose batch of b takes fixed + b x each seconds; RT_max is 10 s by default."""
    times = FixedTimes([0.0, *(fixed_s + each_s * b for b in range(1, n_batch + 1))])
    overflow = Overflow(**{name: options.pop(name) for name in _OVERFLOW if name in options})  # type: ignore[arg-type]
    limits = QueueLimits(**{to: options.pop(name) for name, to in _LIMITS.items() if name in options})  # type: ignore[arg-type]
    return Bouncer(times, **{"rt_max_s": 10.0, **options}, overflow=overflow, limits=limits)  # type: ignore[arg-type]


def ids(requests: list[Request]) -> list[str]:
    return [r.id for r in requests]


def started(bouncer: Bouncer, now_s: float) -> Batch:
    batch = bouncer.next_batch(now_s)
    assert batch is not None
    return batch


# The same decisions as the kernel


def played(case: Case, *, ahead: bool = False) -> Outcome:
    """Play a bouncer in virtual time, whose workers take the kernel's drawn times and may have the next batch."""
    kind = case.candidates[0]
    bouncer = Bouncer(
        FixedTimes(kind.service_s.tolist(), kind.policy.n_batch),
        rt_max_s=case.rt_max_s,
        variation=kind.variation,
        overhead_s=kind.overhead_s,
        window_s=kind.policy.w_batch_s,
        workers=kind.workers,
        overflow=Overflow(case.function.warm_s if case.function else NEVER_S, case.late, case.least, case.late_share),
    )
    n = len(case.arrivals_s)
    outcome = Outcome(np.full(n, -3), np.full(n, np.inf), np.full(n, np.inf))
    ends: list[tuple[float, int, Batch]] = []
    order = count(1)  # of batches that end at the same time, in the order of their starts

    def start_what_is_due(now_s: float) -> None:
        while (batch := bouncer.next_batch(now_s)) is not None:
            runs(batch, now_s)
        while ahead and bouncer.next_ahead(now_s) is not None:
            pass

    def runs(batch: Batch, now_s: float) -> None:
        nth = next(order)
        factor = factor_of(case.seed, 0, nth, 0, kind.sigma) if kind.sigma else 1.0
        heapq.heappush(ends, (now_s + float(kind.service_s[batch.items]) * factor, nth, batch))
        for r in batch.requests:
            outcome.slot[int(r.id)] = 0
            outcome.start_s[int(r.id)] = now_s

    def until(now_s: float) -> None:
        """Run all events before the arrivals of this moment, in order."""
        while True:
            end_s = ends[0][0] if ends else NEVER_S
            due_s = bouncer.due_s()
            if min(end_s, due_s) > now_s or min(end_s, due_s) == NEVER_S:
                return
            if end_s <= due_s:
                batch = heapq.heappop(ends)[2]
                bouncer.finished(batch, end_s)
                for r in batch.requests:
                    outcome.finish_s[int(r.id)] = end_s + kind.overhead_s
                if batch.behind is not None:
                    runs(batch.behind, end_s)
            start_what_is_due(min(end_s, due_s))

    for number, arrived_s in enumerate(case.arrivals_s):
        until(arrived_s)
        where = bouncer.offer(request(arrived_s, arrived_s + case.rt_max_s, id=str(number)), arrived_s)
        if where == INSTANCE:
            start_what_is_due(arrived_s)
        elif where == FUNCTION:
            assert case.function is not None
            outcome.slot[number], outcome.start_s[number] = BY_FUNCTION, arrived_s
            outcome.finish_s[number] = arrived_s + case.function.warm_s
        else:
            outcome.slot[number], outcome.start_s[number] = REFUSED, arrived_s
    until(NEVER_S)
    assert bouncer.queued == bouncer.in_flight == 0
    return outcome


@st.composite
def cases(draw: st.DrawFn, sigmas: tuple[float, ...] = (0.0,)) -> Case:
    # Times are multiples of a power of two, so that all sums are exact and ties are ties: with `unit` 1 nearly
    # everything ties, with 1009 nearly nothing.
    unit = draw(st.sampled_from([1, 4, 1009]))
    tick = draw(st.sampled_from([2.0**-3, 2.0**-6])) / (1 if unit < 1009 else 1024)

    def ticks(low: int, high: int) -> float:
        return tick * draw(st.integers(low * unit, high * unit))

    if draw(st.booleans()):  # batching pays: a fixed part and a part for each request
        fixed, each = ticks(1, 8), ticks(0, 3)
        table = [max(tick, fixed + each * b) for b in range(1, draw(st.integers(1, 16)) + 1)]
    else:
        table = [max(tick, ticks(0, 10)) for _ in range(draw(st.integers(1, 4)))]
    kind: Candidate = candidate(
        table,
        window_s=draw(st.sampled_from([0.0, 1.0])) * ticks(0, 12),
        workers=draw(st.integers(1, 3)),
        overhead_s=draw(st.sampled_from([0.0, 1.0])) * ticks(0, 2),
        sigma=draw(st.sampled_from(sigmas)),
    )
    gaps = draw(st.lists(st.integers(0, 3 * unit), min_size=1, max_size=60))
    arrivals = tuple(float(t) * tick for t in np.cumsum(gaps))
    rt_max_s = max(tick, ticks(1, 40))
    # A bouncer assumes functions without a cold start; a function may be slower than RT_max.
    overflow = draw(st.none() | st.integers(1, 80 * unit).map(lambda n: function(n * tick, 0.0)))
    late = draw(st.sampled_from([FUNCTION, REJECT]))
    seed = draw(st.integers(0, 2**40))
    least, late_share = draw(st.sampled_from([0.0, 0.85, 0.95])), draw(st.sampled_from([0.0, 0.5, 1.0]))
    fleet = (Change(0.0, "add"),)
    return Case((kind,), fleet, arrivals, rt_max_s, overflow, late=late, seed=seed, least=least, late_share=late_share)


@settings(max_examples=250)
@given(cases(), st.booleans())
def test_decides_request_by_request_as_the_reference_of_the_kernel(case: Case, ahead: bool) -> None:
    expected, got = World(case).run(), played(case, ahead=ahead)
    np.testing.assert_array_equal(got.slot, expected.slot)
    np.testing.assert_array_equal(got.start_s[got.slot == 0], expected.start_s[expected.slot == 0])
    np.testing.assert_array_equal(got.finish_s, expected.finish_s)


@settings(max_examples=250)
@given(cases(sigmas=(0.1, 0.4, 1.2)), st.booleans())
def test_decides_as_the_kernel_where_service_times_vary(case: Case, ahead: bool) -> None:
    """Neither knows the end of a batch in advance. A single worker may have the next batch already."""
    ahead &= case.candidates[0].workers == 1  # another of several workers may have to take it back
    expected, got = by_kernel(case)[0].recording(), played(case, ahead=ahead)
    np.testing.assert_array_equal(got.slot, expected.slot)
    here = got.slot == 0
    np.testing.assert_allclose(got.start_s[here], expected.start_s[here], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(got.finish_s, expected.finish_s, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("sigma", [0.1, 0.4])
def test_late_shares_equal_the_kernels_where_functions_are_late(sigma: float) -> None:
    """Half of the late requests, and no more, queue: those of an instance at 75 % of its throughput."""
    kind = candidate([0.02 + 0.002 * b for b in range(1, 9)], sigma=sigma)
    gaps_s = np.random.default_rng(1).exponential(1.0 / (0.75 * kind.capacity_rps), 20_000)
    late = function(0.15, 0.0, concurrency=1000)
    case = Case((kind,), (Change(0.0, "add"),), tuple(np.cumsum(gaps_s)), 0.1, late, seed=1, late_share=0.01)
    expected, got = by_kernel(case)[0].recording(), played(case)
    np.testing.assert_array_equal(got.slot, expected.slot)
    plain = by_kernel(replace(case, late_share=0.0))[0].recording()
    queued = (plain.slot < 0).sum() - (got.slot < 0).sum()
    assert 20 < queued <= 200


@pytest.mark.parametrize("function_s", [None, 0.25, 2.5], ids=["no function", "fast", "slower than RT_max"])
def test_decides_as_the_reference_when_saturated(function_s: float | None) -> None:
    kind = candidate([0.5 + 0.0625 * b for b in range(1, 17)], workers=2, overhead_s=0.0625)
    use = None if function_s is None else function(function_s, 0.0)
    case = Case((kind,), (Change(0.0, "add"),), tuple(i / 64 for i in range(1000)), 2.0, use)
    expected, got = World(case).run(), played(case)
    np.testing.assert_array_equal(got.slot, expected.slot)
    np.testing.assert_array_equal(got.finish_s, expected.finish_s)
    here = got.slot == 0
    late = got.finish_s[here] - np.array(case.arrivals_s)[here] > case.rt_max_s + TOLERANCE_S
    assert not late.any()  # an admitted request is in time, however slow functions are
    assert 0.2 < here.mean() < 0.99


# One behaviour each


def test_an_idle_worker_takes_what_is_there_at_once() -> None:
    bouncer = a_bouncer()
    assert bouncer.offer(request(id="a"), 0.0) == INSTANCE
    assert ids(started(bouncer, 0.0).requests) == ["a"]
    assert bouncer.next_batch(0.0) is None
    assert (bouncer.queued, bouncer.in_flight) == (0, 1)


def test_requests_that_are_offered_together_share_a_batch() -> None:
    bouncer = a_bouncer()
    for name in "abcde":
        bouncer.offer(request(id=name), 0.0)
    assert ids(started(bouncer, 0.0).requests) == ["a", "b", "c", "d"]
    assert bouncer.queued == 1


def test_a_window_holds_a_batch_until_it_is_full() -> None:
    bouncer = a_bouncer(window_s=1.0, n_batch=2, workers=2)
    bouncer.offer(request(id="a"), 0.0)
    assert bouncer.next_batch(0.5) is None
    assert bouncer.due_s() == 1.0
    bouncer.offer(request(0.5, id="b"), 0.5)
    assert ids(started(bouncer, 0.5).requests) == ["a", "b"]
    bouncer.offer(request(0.5, id="c"), 0.5)
    assert ids(started(bouncer, 1.5).requests) == ["c"]
    assert bouncer.due_s() == NEVER_S


def test_late_requests_are_refused_with_a_retry_after() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=2.5)
    assert bouncer.offer(request(), 0.0) == INSTANCE
    started(bouncer, 0.0)
    assert bouncer.offer(request(), 0.0) == INSTANCE
    assert bouncer.offer(request(), 0.0) == REJECT
    assert bouncer.reason == bouncer_module.OVERLOADED
    assert bouncer.retry_after_s(0.0) == 0.5
    assert bouncer.offer(request(0.5), 0.5) == INSTANCE


def test_functions_take_what_would_be_late_until_they_refuse() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=1.5, function_s=1.0)
    bouncer.offer(request(), 0.0)
    assert bouncer.offer(request(), 0.0) == FUNCTION
    assert bouncer.reason == bouncer_module.OVERLOADED
    bouncer.function_s = NEVER_S
    assert bouncer.offer(request(), 0.0) == REJECT


def test_functions_take_what_may_well_be_late_until_they_refuse() -> None:
    """A request is in time with a probability of 0.91 on the instance, and of nearly 1 on a function."""
    bouncer = a_bouncer(fixed_s=0.0, n_batch=1, rt_max_s=2.8, function_s=1.0, variation=0.16, least_in_time=0.95)
    assert bouncer.offer(request(), 0.0) == INSTANCE
    started(bouncer, 0.0)
    assert bouncer.offer(request(), 0.0) == FUNCTION
    assert bouncer.reason == bouncer_module.OVERLOADED
    bouncer.function_s = NEVER_S
    assert bouncer.offer(request(), 0.0) == INSTANCE


@pytest.mark.parametrize("late", [FUNCTION, REJECT])
def test_what_is_late_wherever_never_queues(late: int) -> None:
    """Such a request goes where the setting says, and past the client's own deadline it is refused."""
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=1.5, function_s=5.0, late=late)
    assert bouncer.offer(request(), 0.0) == INSTANCE
    assert bouncer.offer(request(deadline_s=1.5), 0.0) == late
    assert bouncer.offer(request(deadline_s=1.4), 0.0) == REJECT
    assert bouncer.reason == bouncer_module.OVERLOADED
    assert bouncer.offer(request(deadline_s=0.5), 0.0) == REJECT
    assert bouncer.reason == bouncer_module.DEADLINE


def test_a_late_request_queues_within_the_budget_of_its_instance() -> None:
    """Each request earns half of a late one; one that queues is answered after 3 s, by the function after 4 s."""
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=2.5, function_s=4.0, late_share=0.5, variation=SLIGHT)
    places = [bouncer.offer(request(), 0.0)]
    started(bouncer, 0.0)
    places += [bouncer.offer(request(id=str(n)), 0.0) for n in range(5)]
    # The third would be answered after 3 s; behind it one would take 4 s, which is over 1.25 RT_max.
    assert places == [INSTANCE, INSTANCE, INSTANCE, FUNCTION, FUNCTION, FUNCTION]


def test_a_late_request_does_not_keep_its_batch_small() -> None:
    """A request that is late behind a full batch opens one, which fills although that delays the late one."""
    for late_share, filled in ((1.0, 4), (0.0, 3)):
        bouncer = a_bouncer(rt_max_s=9.5, function_s=60.0, late_share=late_share, variation=SLIGHT)
        bouncer.offer(request(), 0.0)
        running = started(bouncer, 0.0)  # until 2
        for _ in range(4):
            bouncer.offer(request(), 0.0)  # until 7
        assert bouncer.offer(request(0.5, id="late"), 0.5) == (INSTANCE if late_share else FUNCTION)  # until 12 if full
        bouncer.finished(running, 2.0)
        running = started(bouncer, 2.0)
        for _ in range(3):
            bouncer.offer(request(4.0), 4.0)  # in time until 13.5
        bouncer.finished(running, 7.0)
        assert started(bouncer, 7.0).items == filled


def test_a_late_request_whose_worker_ends_goes_to_the_function() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=2.5, function_s=4.0, late_share=1.0, variation=SLIGHT)
    bouncer.offer(request(id="a"), 0.0)
    running = started(bouncer, 0.0)
    for name in ("b", "late"):
        assert bouncer.offer(request(id=name), 0.0) == INSTANCE
    stranded = bouncer.worker_down(0.5, 1.0, running)
    assert ids(stranded.overflow) == ["b", "late"]


def test_late_requests_are_served_but_not_past_the_clients_deadline() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=2, rt_max_s=4.0)
    bouncer.offer(request(id="runs"), 0.0)
    first = started(bouncer, 0.0)
    for name, deadline_s in (("default", 4.0), ("own", 2.5), ("own later", 3.5)):
        assert bouncer.offer(request(0.0, deadline_s, id=name), 0.0) == INSTANCE
    bouncer.finished(first, 1.6)  # it overran: `own` can't be met any more though its deadline is still to come
    second = started(bouncer, 1.6)
    assert ids(second.requests) == ["default"]
    assert ids(bouncer.take_expired()) == ["own"]
    assert bouncer.take_expired() == []
    bouncer.finished(second, 9.0)
    assert bouncer.next_batch(9.0) is None  # no request is left in the batch
    assert ids(bouncer.take_expired()) == ["own later"]
    assert bouncer.queued == bouncer.in_flight == 0


def test_a_later_deadline_of_the_client_replaces_rt_max() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=2.5)  # every request takes 1 s
    assert bouncer.offer(request(), 0.0) == INSTANCE
    started(bouncer, 0.0)
    assert bouncer.offer(request(), 0.0) == INSTANCE
    assert bouncer.offer(request(), 0.0) == REJECT
    assert bouncer.offer(request(deadline_s=3.0), 0.0) == INSTANCE
    assert bouncer.offer(request(deadline_s=3.9), 0.0) == REJECT
    assert bouncer.offer(request(deadline_s=4.0, id="late"), 0.0) == INSTANCE
    for now_s in (1.0, 2.0, 3.75):  # the third overruns: the fourth cannot be met any more
        bouncer.finished(bouncer.running[0], now_s)
        if now_s < 3.0:
            started(bouncer, now_s)
    assert bouncer.next_batch(3.75) is None
    assert [one.id for one in bouncer.take_expired()] == ["late"]


def test_a_clients_own_deadline_bounds_its_batch() -> None:
    bouncer = a_bouncer()
    bouncer.offer(request(), 0.0)
    running = started(bouncer, 0.0)  # until 2
    # In a batch of two the client has its answer at 5, in one of three at 6.
    for name, deadline_s in (("a", NEVER_S), ("tight", 5.5), ("b", NEVER_S)):
        assert bouncer.offer(request(0.0, deadline_s, id=name), 0.0) == INSTANCE
    bouncer.finished(running, 2.0)
    assert ids(started(bouncer, 2.0).requests) == ["a", "tight"]


def test_a_request_of_several_items_keeps_the_batchs_promises() -> None:
    bouncer = a_bouncer()
    bouncer.offer(request(), 0.0)
    running = started(bouncer, 0.0)  # until 2
    # In a batch of three items the client has its answer at 6, in one of four at 7.
    for name, deadline_s, items in (("a", NEVER_S, 1), ("tight", 6.5, 1), ("two", NEVER_S, 2)):
        assert bouncer.offer(request(0.0, deadline_s, items, id=name), 0.0) == INSTANCE
    bouncer.finished(running, 2.0)
    assert ids(started(bouncer, 2.0).requests) == ["a", "tight"]


def test_an_overrun_closes_the_batch_to_further_requests() -> None:
    bouncer = a_bouncer()
    bouncer.offer(request(), 0.0)
    running = started(bouncer, 0.0)  # until 2, it seems
    for name, deadline_s in (("a", NEVER_S), ("tight", 6.5)):
        assert bouncer.offer(request(0.0, deadline_s, id=name), 0.0) == INSTANCE
    # Three would have ended at 6. From 2.8 on they end at 6.8, two at 5.8.
    assert bouncer.offer(request(2.8, id="b"), 2.8) == INSTANCE
    bouncer.finished(running, 2.8)
    assert ids(started(bouncer, 2.8).requests) == ["a", "tight"]


def test_items_and_bytes_limit_a_batch_and_order_is_kept() -> None:
    bouncer = a_bouncer(n_batch=4, max_batch_bytes=100, rt_max_s=60.0, workers=0)
    bouncer.worker_up(0.0)
    for name, items, size in (("a", 2, 10), ("b", 3, 10), ("c", 1, 80), ("d", 1, 20)):
        assert bouncer.offer(request(items=items, size=size, id=name), 0.0) == INSTANCE
    batches = []
    while bouncer.queued:
        batches.append(started(bouncer, 0.0))
        bouncer.finished(batches[-1], 0.0)
    assert [ids(b.requests) for b in batches] == [["a"], ["b", "c"], ["d"]]
    assert [(b.items, b.bytes) for b in batches] == [(2, 10), (4, 90), (1, 20)]


def test_a_request_larger_than_a_batch_is_served_alone() -> None:
    bouncer = Bouncer(FixedTimes([0.0, 1.0, 1.5, 2.0, 2.5], n_batch=2), rt_max_s=60.0)
    for name, items in (("a", 1), ("large", 4), ("b", 1)):
        assert bouncer.offer(request(items=items, id=name), 0.0) == INSTANCE
    assert bouncer.offer(request(items=5), 0.0) == REJECT
    assert bouncer.reason == bouncer_module.TOO_LARGE
    with pytest.raises(ValueError, match="0 items"):
        bouncer.offer(request(items=0), 0.0)
    first = started(bouncer, 0.0)
    bouncer.finished(first, 1.0)
    assert ids(started(bouncer, 1.0).requests) == ["large"]


def test_the_queue_is_bounded() -> None:
    bouncer = a_bouncer(max_queued=2, n_batch=1, rt_max_s=1e6, function_s=2e6)
    assert [bouncer.offer(request(), 0.0) for _ in range(3)] == [INSTANCE, INSTANCE, FUNCTION]
    bouncer.function_s = NEVER_S
    assert bouncer.offer(request(), 0.0) == REJECT
    assert bouncer.reason == bouncer_module.QUEUE_FULL


def test_an_overrunning_worker_is_free_now_at_the_earliest() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=2.0)
    bouncer.offer(request(), 0.0)
    batch = started(bouncer, 0.0)
    bouncer.offer(request(1.0), 1.0)  # ends at 2 by prediction
    assert bouncer.offer(request(5.0), 5.0) == INSTANCE  # two batches of 1 s from now on
    assert bouncer.offer(request(5.0), 5.0) == REJECT
    bouncer.finished(batch, 5.0)


def test_a_deep_queue_is_predicted_within_one_batch() -> None:
    bouncer = a_bouncer(fixed_s=1.0, each_s=0.0, n_batch=1, rt_max_s=1000.0, workers=3)
    admitted = 0
    while bouncer.offer(request(), 0.0) == INSTANCE:
        admitted += 1
        bouncer.next_batch(0.0)
    assert 3 * 999 <= admitted <= 3 * 1000


def test_a_lost_batch_is_retried_first_and_one_by_one() -> None:
    """One of its requests may end workers; the others must not fail with it."""
    bouncer = a_bouncer(n_batch=2, workers=2, rt_max_s=60.0)
    for name in "abcdef":
        bouncer.offer(request(id=name), 0.0)
    lost, other = started(bouncer, 0.0), started(bouncer, 0.0)
    assert bouncer.worker_down(1.0, 5.0, lost) == ([], [])
    assert (bouncer.workers, bouncer.queued, bouncer.in_flight) == (1, 4, 2)
    bouncer.finished(other, 3.0)
    again = started(bouncer, 3.0)
    assert ids(again.requests) == ["a"]
    overflow, failed = bouncer.worker_down(4.0, NEVER_S, again)
    # No function: a request that two workers were lost with fails.
    assert (overflow, ids(failed)) == ([], ["a"])
    assert bouncer.queued == 3  # the first worker is back at 5
    bouncer.worker_up(5.0)
    alone = started(bouncer, 5.0)
    assert ids(alone.requests) == ["b"]
    bouncer.finished(alone, 7.0)
    assert ids(started(bouncer, 7.0).requests) == ["e", "f"]


def test_lost_requests_share_batches_only_when_time_is_short() -> None:
    """They never share one with requests that come before or after them."""
    # Eight take 5 s together, 6 s in fours, 8 s in twos, 12 s alone, by the one worker left, from 3 s on.
    for rt_max_s, together in ((8.0, 8), (9.0, 4), (11.0, 2), (60.0, 1)):
        bouncer = a_bouncer(fixed_s=1.0, each_s=0.5, n_batch=8, workers=2, rt_max_s=rt_max_s)
        for number in range(8):
            bouncer.offer(request(id=str(number)), 0.0)
        lost = started(bouncer, 0.0)
        bouncer.offer(request(id="untried"), 0.0)
        assert bouncer.worker_down(3.0, 60.0, lost) == ([], [])
        sizes: list[int] = []
        now_s = 3.0
        while sum(sizes) < 8:
            batch = started(bouncer, now_s)
            now_s = batch.end_s
            assert all(r.tries == 1 for r in batch.requests)
            sizes.append(len(batch.requests))
            bouncer.finished(batch, now_s)
        assert sizes == [together] * (8 // together)
        assert ids(started(bouncer, now_s).requests) == ["untried"]


def test_requests_that_failed_together_are_tried_alone_behind_the_queue() -> None:
    bouncer = a_bouncer(n_batch=4, rt_max_s=60.0)
    for name in "abcde":
        bouncer.offer(request(id=name), 0.0)
    failed = started(bouncer, 0.0)
    bouncer.finished(failed, 5.0, failed=True)
    assert bouncer.try_apart(failed.requests, 5.0) == [INSTANCE] * 4
    now_s, order = 5.0, []
    while (batch := bouncer.next_batch(now_s)) is not None:
        order.append(ids(batch.requests))
        now_s = batch.end_s
        bouncer.finished(batch, now_s, failed=True)
    assert order == [["e"], ["a"], ["b"], ["c"], ["d"]]
    assert bouncer.try_apart(failed.requests, now_s) == [REJECT] * 4  # once, not again and again
    assert bouncer.queued == 0


def test_a_failed_request_is_alone_even_beside_lost_ones() -> None:
    """Lost requests may share a batch if time is short; failed ones may not, because their error must be their own."""
    bouncer = a_bouncer(fixed_s=1.0, each_s=0.5, n_batch=3, workers=2, rt_max_s=7.0)
    for name in "abcde":
        bouncer.offer(request(id=name), 0.0)
    lost, failed = started(bouncer, 0.0), started(bouncer, 0.0)
    bouncer.worker_down(3.0, NEVER_S, lost)
    bouncer.finished(failed, 3.0, failed=True)
    assert bouncer.try_apart(failed.requests, 3.0) == [INSTANCE, INSTANCE]
    order = []
    while (batch := bouncer.next_batch(3.0)) is not None:
        order.append(ids(batch.requests))
        bouncer.finished(batch, 3.0)
    assert order == [["a", "b"], ["c"], ["d"], ["e"]]


@pytest.mark.parametrize(("function_s", "instead"), [(NEVER_S, REJECT), (3.0, FUNCTION), (4.0, REJECT)])
def test_failed_requests_are_tried_again_only_in_time(function_s: float, instead: int) -> None:
    """A request takes 2 s alone: of four with 3.5 s left only one is in time. Another client waits for 60 s."""
    bouncer = a_bouncer(n_batch=5, rt_max_s=9.5, function_s=function_s)
    for deadline_s in (NEVER_S, NEVER_S, NEVER_S, 7.9, 60.0):
        bouncer.offer(request(deadline_s=min(deadline_s, 9.5) if deadline_s < 60.0 else deadline_s), 0.0)
    failed = started(bouncer, 0.0)
    for each in failed.requests[:3]:
        each.deadline_s = 9.5
    bouncer.finished(failed, 6.0)
    assert bouncer.try_apart(failed.requests, 6.0) == [INSTANCE, instead, instead, REJECT, INSTANCE]


def test_a_quick_failure_teaches_nothing_a_slow_one_does() -> None:
    observed: list[float] = []

    class Learning:
        n_batch, service_s = 1, [0.0, 1.0]

        def observe(self, items: int, seconds: float) -> bool:
            observed.append(seconds)
            return False

    bouncer = Bouncer(Learning(), rt_max_s=60.0)
    for began_s, took_s, failed in ((0.0, 0.25, True), (10.0, 0.5, False), (20.0, 1.5, True)):
        bouncer.offer(request(began_s), began_s)
        bouncer.finished(started(bouncer, began_s), began_s + took_s, failed=failed)
    assert observed == [0.5, 1.5]


def test_functions_take_over_while_no_worker_is_left() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=3.0, function_s=1.0)
    for name in "abc":
        assert bouncer.offer(request(id=name), 0.0) == INSTANCE
    batch = started(bouncer, 0.0)
    overflow, failed = bouncer.worker_down(0.5, 1.5, batch)
    # Back at 1.5, one second each: the lost one is first and makes it by 2.5; the others would need 3.5 and 4.5.
    assert (ids(overflow), failed) == (["b", "c"], [])
    assert bouncer.offer(request(0.5), 0.5) == INSTANCE
    assert bouncer.offer(request(2.0), 2.0) == FUNCTION  # late by 0.5 s: two requests from 2.5 on, and then this one
    assert bouncer.reason == bouncer_module.OVERLOADED
    assert bouncer.retry_after_s(2.0) == pytest.approx(0.5)
    assert bouncer.retry_after_s(40.0) == pytest.approx(38.5 + 2.0 + 1.0 - 3.0)
    bouncer.worker_up(2.5)
    assert ids(started(bouncer, 2.5).requests) == ["a"]
    with pytest.raises(IllegalTransition):
        bouncer.worker_down(2.5)


def test_without_functions_accepted_requests_wait_for_the_restart() -> None:
    bouncer = a_bouncer(each_s=0.0, n_batch=1, rt_max_s=3.0)
    for name in "abc":
        bouncer.offer(request(id=name), 0.0)
    batch = started(bouncer, 0.0)
    assert bouncer.worker_down(0.5, 30.0, batch) == ([], batch.requests)
    assert bouncer.queued == 2
    bouncer.worker_up(30.0)
    last = started(bouncer, 30.0)
    assert ids(last.requests) == ["b"]
    overflow, failed = bouncer.worker_down(31.0, NEVER_S, last)
    assert (overflow, ids(failed)) == ([], ["b", "c"])  # no worker will come: no request is left waiting
    assert bouncer.queued == 0


@pytest.mark.parametrize("seed", range(20))
def test_poison_costs_only_its_own_answer_in_any_order(seed: int) -> None:
    """16 clients ask 64 times, and request 50 ends its worker. Workers start again later than they are expected to."""
    draws = random.Random(seed)
    bouncer = Bouncer(FixedTimes([0.0, *(0.02 + 0.001 * n for n in range(16))]), rt_max_s=20.0, workers=2)
    unasked, answered = deque(range(64)), 0
    refused: list[str] = []
    busy: dict[int, deque[Batch]] = {}
    idle, down, now_s = [0, 1], set[int](), 0.0

    while answered + len(refused) < 64:
        while idle and (batch := bouncer.next_batch(now_s)) is not None:
            busy[idle.pop()] = deque([batch])
        while (ahead := bouncer.next_ahead(now_s)) is not None:
            next(has for has in busy.values() if has[0] is ahead[0]).append(ahead[1])
        now_s += draws.choice((0.001, 0.02, 0.06))
        asks = [-1] if unasked and 64 - len(unasked) - answered - len(refused) < 16 else []
        who = draws.choice([*asks * 4, *busy, *down])
        if who < 0:
            number = str(unasked.popleft())
            if bouncer.offer(request(now_s, now_s + 20.0, id=number), now_s) != INSTANCE:
                refused.append(number)
        elif who in down:
            down.remove(who)
            idle.append(who)
            bouncer.worker_up(now_s)
        elif "50" in ids(busy[who][0].requests):
            down.add(who)
            overflow, failed = bouncer.worker_down(now_s, now_s + 0.01, busy.pop(who)[0])
            assert not overflow
            refused += ids(failed)
        else:
            batch = busy[who].popleft()
            bouncer.finished(batch, now_s)
            answered += len(batch.requests)
            if not busy[who]:
                del busy[who]
                idle.append(who)
    assert refused == ["50"]


def test_a_batch_ahead_survives_the_loss_of_the_one_before() -> None:
    bouncer = a_bouncer(n_batch=2, rt_max_s=60.0)
    for name in "abcde":
        bouncer.offer(request(id=name), 0.0)
    assert bouncer.next_ahead(0.0) is None  # an idle worker takes the queued requests itself
    first = started(bouncer, 0.0)
    ahead = bouncer.next_ahead(0.0)
    assert ahead is not None
    assert (ahead[0], ids(ahead[1].requests)) == (first, ["c", "d"])
    assert bouncer.next_ahead(0.0) is None  # one at a time, and e may still get company
    assert (bouncer.queued, bouncer.in_flight) == (1, 4)
    assert bouncer.offer(request(deadline_s=8.99), 0.0) == REJECT  # three batches of 3 s
    assert bouncer.offer(request(id="f"), 0.0) == INSTANCE
    bouncer.finished(first, 2.5)
    assert bouncer.next_batch(2.5) is None
    assert bouncer.worker_down(3.0, 4.0, ahead[1]) == ([], [])
    bouncer.worker_up(4.0)
    again = started(bouncer, 4.0)
    assert ids(again.requests) == ["c"]
    alone = bouncer.next_ahead(4.0)
    assert alone is not None
    assert ids(alone[1].requests) == ["d"]
    bouncer.finished(again, 4.5)
    behind = bouncer.next_ahead(4.5)
    assert behind is not None
    assert ids(bouncer.worker_down(5.0, 6.0, alone[1]).failed) == ["d"]  # tried twice; e and f were not tried
    assert [(r.id, r.tries) for r in behind[1].requests] == [("e", 0), ("f", 0)]
    bouncer.worker_up(6.0)
    assert ids(started(bouncer, 6.0).requests) == ["e", "f"]
    bouncer.offer(request(6.0, deadline_s=30.0), 6.0)
    bouncer.offer(request(6.0), 6.0)
    assert bouncer.next_ahead(6.0) is None  # its client may give up first


def test_a_worker_lost_at_the_batch_ahead_blames_that_batch() -> None:
    """The batch before it had its results: its requests are served again as if untried."""
    bouncer = a_bouncer(n_batch=2, rt_max_s=60.0)
    for name in "abcd":
        bouncer.offer(request(id=name), 0.0)
    first = started(bouncer, 0.0)
    ahead = bouncer.next_ahead(0.0)
    assert ahead is not None
    assert bouncer.worker_down(3.0, 4.0, first, at_next=True) == ([], [])
    assert [(r.id, r.tries) for r in (*first.requests, *ahead[1].requests)] == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]
    assert (bouncer.queued, bouncer.in_flight) == (4, 0)
    bouncer.worker_up(4.0)
    served = []
    for at_s in (4.0, 7.0, 10.0):
        batch = started(bouncer, at_s)
        served.append(ids(batch.requests))
        bouncer.finished(batch, at_s + 3.0)
    assert served == [["c"], ["d"], ["a", "b"]]


def test_a_batch_ahead_moves_from_a_slow_worker_to_another() -> None:
    bouncer = a_bouncer(n_batch=1, workers=2)
    for name in "abc":
        assert bouncer.offer(request(id=name), 0.0) == INSTANCE
    hangs, other = started(bouncer, 0.0), started(bouncer, 0.0)  # until 2
    ahead = bouncer.next_ahead(0.0)
    assert ahead is not None
    assert ahead[0] is hangs
    bouncer.finished(other, 2.0)
    # c is promised for 10 and takes 2 s: of the 6 s after the expected end half may pass.
    assert bouncer.next_batch(4.99) is None
    assert bouncer.due_s() == 5.0
    again = started(bouncer, 5.0)
    assert (ids(again.requests), ids(ahead[1].requests)) == (["c"], [])
    assert (bouncer.queued, bouncer.in_flight) == (0, 2)
    bouncer.finished(again, 7.0)
    bouncer.finished(hangs, 9.0)
    assert bouncer.running == [ahead[1]]  # its answer is dropped; until then the worker is busy
    assert bouncer.offer(request(9.0, id="d"), 9.0) == INSTANCE
    assert bouncer.worker_down(9.5, NEVER_S, ahead[1]) == ([], [])
    assert ids(started(bouncer, 9.5).requests) == ["d"]


def test_a_drain_finishes_what_it_can_and_accepts_nothing() -> None:
    bouncer = a_bouncer(n_batch=2, rt_max_s=60.0, function_s=5.0)
    for name in "abcdef":
        bouncer.offer(request(id=name), 0.0)
    running = started(bouncer, 0.0)  # until 3
    assert ids(bouncer.drain(0.0, 8.5)) == ["f"]  # both in one batch would end at 9, one alone at 8
    assert bouncer.draining
    assert bouncer.offer(request(), 0.0) == FUNCTION
    assert bouncer.reason == bouncer_module.DRAINING
    for batch_of, now_s in ((["c", "d"], 3.0), (["e"], 6.0)):
        bouncer.finished(running, now_s)
        running = started(bouncer, now_s)
        assert ids(running.requests) == batch_of
    assert bouncer.drain(8.5, 8.5) == []
    assert bouncer.running == [running]


def test_a_drain_waits_for_no_window() -> None:
    bouncer = a_bouncer(window_s=5.0)
    bouncer.offer(request(), 0.0)
    assert bouncer.next_batch(0.0) is None
    assert bouncer.drain(0.0, 10.0) == []
    assert len(started(bouncer, 0.0).requests) == 1


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    bouncer = a_bouncer(workers=1)
    bouncer.offer(request(), 0.0)
    batch = started(bouncer, 0.0)
    bouncer.finished(batch, 1.0)
    bouncer.offer(request(1.0), 1.0)
    before = (bouncer.queued, bouncer.in_flight, bouncer.workers, bouncer.due_s(), bouncer.retry_after_s(1.0))
    for illegal in (
        lambda: bouncer.finished(batch, 2.0),
        lambda: bouncer.worker_down(2.0, 3.0, batch),
    ):
        with pytest.raises(IllegalTransition, match="not running"):
            illegal()
    assert batch.requests[0].tries == 0
    assert before == (bouncer.queued, bouncer.in_flight, bouncer.workers, bouncer.due_s(), bouncer.retry_after_s(1.0))
    running = started(bouncer, 1.0)
    with pytest.raises(IllegalTransition, match="idle"):
        bouncer.worker_down(1.0)
    assert bouncer.running == [running]


@pytest.mark.parametrize(
    "options",
    [
        {"rt_max_s": 0.0},
        {"rt_max_s": float("nan")},
        {"window_s": -1.0},
        {"workers": -1},
        {"max_queued": 0},
        {"max_batch_bytes": 0},
        {"function_s": 0.0},
        {"least_in_time": 1.5},
        {"late_share": -0.1},
    ],
    ids=str,
)
def test_numbers_that_no_bouncer_can_have_are_bad_input(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        a_bouncer(**options)


@pytest.mark.parametrize(("table", "n_batch"), [([0.0], None), ([0.0, 1.0], 2), ([0.0, 0.0], None)])
def test_times_must_be_known_for_every_batch(table: list[float], n_batch: int | None) -> None:
    with pytest.raises(BadInput):
        FixedTimes(table, n_batch)


def test_times_that_learn_take_effect_at_the_next_decision() -> None:
    class Doubling:
        n_batch, service_s = 1, [0.0, 1.0, 1.0]

        def observe(self, items: int, seconds: float) -> bool:
            self.n_batch, self.service_s = 2, [0.0, seconds, seconds]
            return True

    bouncer = Bouncer(Doubling(), rt_max_s=3.5)
    bouncer.offer(request(), 0.0)
    bouncer.finished(started(bouncer, 0.0), 2.0)
    assert [bouncer.offer(request(2.0), 2.0) for _ in range(3)] == [INSTANCE, INSTANCE, REJECT]
    again = started(bouncer, 2.0)
    assert again.items == 2
    bouncer.finished(again, 3.0, took_s=3.4)  # as the worker reports, whatever else it did
    assert [bouncer.offer(request(4.0), 4.0) for _ in range(2)] == [INSTANCE, INSTANCE]
    bouncer.finished(started(bouncer, 4.0), 5.0, took_s=3.6)
    assert bouncer.offer(request(5.0), 5.0) == REJECT


# --- any order of workers' and clients' actions


def finish_s(bouncer: Bouncer, now_s: float, backs_s: list[float]) -> dict[str, float]:
    """Return when each request would be answered if no other came and workers kept to predictions, by playing it."""
    bouncer = copy.deepcopy(bouncer)
    backs_s = [s for s in backs_s if now_s <= s < NEVER_S]
    finish: dict[str, float] = {}
    while True:
        while (batch := bouncer.next_batch(now_s)) is not None:
            finish.update({r.id: now_s + batch.service_s + OVERHEAD_S for r in batch.requests})
        end_s = min((max(b.end_s, now_s) for b in bouncer.running), default=NEVER_S)
        next_s = min(end_s, bouncer.due_s(), *backs_s) if backs_s else min(end_s, bouncer.due_s())
        if next_s == NEVER_S:
            return finish
        now_s = max(next_s, now_s)
        for ended in [b for b in bouncer.running if b.end_s <= now_s]:
            bouncer.finished(ended, now_s)
        for _ in [s for s in backs_s if s <= now_s]:
            bouncer.worker_up(now_s)
        backs_s = [s for s in backs_s if s > now_s]


N_BATCH, KNOWN_ITEMS, BATCH_BYTES, MOST_QUEUED, OVERHEAD_S, RT_MAX_S = 4, 6, 8, 12, 0.25, 12.0


class Life(RuleBasedStateMachine):
    """A bouncer's days: requests with items, bytes and deadlines; workers that overrun, crash and return; a drain."""

    batches = Bundle("batches")

    @initialize(
        workers=st.integers(0, 3),
        window_s=st.sampled_from([0.0, 0.0, 1.5]),
        function_s=st.sampled_from([NEVER_S, 1.0, 14.0]),
    )
    def begin(self, workers: int, window_s: float, function_s: float) -> None:
        self.now_s = 0.0
        self.asked_function_s = function_s
        self.bouncer = Bouncer(
            FixedTimes([0.0, *(1.0 + 0.5 * b for b in range(1, KNOWN_ITEMS + 1))], N_BATCH),
            rt_max_s=RT_MAX_S,
            overhead_s=OVERHEAD_S,
            window_s=window_s,
            workers=workers,
            overflow=Overflow(function_s),
            limits=QueueLimits(MOST_QUEUED, BATCH_BYTES),
        )
        self.backs_s: list[float] = []
        self.queue: list[Request] = []  # in the order in which they are to start
        self.in_flight: list[Request] = []
        self.ended: list[Request] = []
        self.offered: list[Request] = []

    def end(self, requests: list[Request]) -> None:
        self.ended += requests

    def own(self, r: Request) -> bool:
        return r.deadline_s - r.arrived_s < RT_MAX_S - TOLERANCE_S

    @rule(
        items=st.sampled_from([1, 1, 1, 2, 3, 5, 6, 7]),
        size=st.sampled_from([0, 0, 1, 3, 8, 9]),
        patience_s=st.sampled_from([NEVER_S, NEVER_S, 12.0, 8.0, 4.0, 1.0]),
        late_s=st.sampled_from([0.0, 0.0, 0.125]),
    )
    def offer(self, items: int, size: int, patience_s: float, late_s: float) -> None:
        arrived_s = self.now_s - late_s
        r = request(arrived_s, arrived_s + patience_s, items, size, str(len(self.offered)))
        self.offered.append(r)
        before = finish_s(self.bouncer, self.now_s, self.backs_s)
        full, draining = self.bouncer.queued == MOST_QUEUED, self.bouncer.draining
        where = self.bouncer.offer(r, self.now_s)
        if where != INSTANCE:
            assert where == REJECT or self.bouncer.function_s < NEVER_S
            assert self.bouncer.reason
            self.end([r])
            return
        assert items <= KNOWN_ITEMS
        assert size <= BATCH_BYTES
        assert not full
        assert not draining
        self.queue.append(r)
        after = finish_s(self.bouncer, self.now_s, self.backs_s)
        answer_s = after.get(r.id, NEVER_S)  # never: dropped, because its client's deadline will pass
        deadline_s = min(r.deadline_s, arrived_s + RT_MAX_S)
        if answer_s > deadline_s + TOLERANCE_S:  # the last resort: neither is in time, the instance is first
            assert not self.own(r)
            assert deadline_s - self.now_s < self.bouncer.function_s < NEVER_S
            assert answer_s - self.now_s <= self.bouncer.function_s + TOLERANCE_S
        if self.asked_function_s in (NEVER_S, 1.0):  # otherwise batches fill, whatever was promised
            for other in self.queue[:-1]:
                limit_s = min(other.deadline_s, other.arrived_s + RT_MAX_S) + TOLERANCE_S
                if other.id in before and before[other.id] <= limit_s:
                    assert after.get(other.id, NEVER_S) <= limit_s

    @rule(target=batches)
    def next_batch(self) -> object:
        idle = self.bouncer.workers - len(self.bouncer.running)
        closed_before = self.bouncer.queued
        ahead = {id(b.behind.requests): b for b in self.bouncer.running if b.behind is not None}
        batch = self.bouncer.next_batch(self.now_s)
        if batch is not None and (first := ahead.get(id(batch.requests))) is not None:  # its worker takes too long
            assert idle > 0
            assert self.now_s >= first.end_s
            assert first.behind is not None
            assert first.behind.requests == []
            assert batch.end_s == self.now_s + 1.0 + 0.5 * batch.items
            return batch
        expired = self.bouncer.take_expired()
        for r in expired:
            assert self.own(r)
            assert self.now_s + 1.0 + 0.5 * r.items + OVERHEAD_S > r.deadline_s
            self.queue.remove(r)
        self.end(expired)
        if batch is None:
            assert idle == 0 or closed_before == len(expired) or self.bouncer.due_s() > self.now_s
            return multiple()
        assert idle > 0
        assert batch.requests == self.queue[: len(batch.requests)]  # no request overtakes
        assert batch.items == sum(r.items for r in batch.requests)
        assert batch.items <= N_BATCH or len(batch.requests) == 1
        assert len({r.tries for r in batch.requests}) == 1  # a lost request shares no batch with untried ones
        assert batch.bytes == sum(len(r.call.body) for r in batch.requests) <= BATCH_BYTES
        assert batch.end_s == self.now_s + 1.0 + 0.5 * batch.items
        del self.queue[: len(batch.requests)]
        self.in_flight += batch.requests
        return batch

    @rule()
    def next_ahead(self) -> None:
        without = [b for b in self.bouncer.running if b.behind is None]
        found = self.bouncer.next_ahead(self.now_s)
        if found is None:
            return
        first, batch = found
        assert first in without
        assert first.behind is batch
        assert len(self.bouncer.running) == self.bouncer.workers  # no worker idles
        assert all(first.end_s <= b.end_s or b.end_s <= self.now_s for b in without)
        assert batch.requests == self.queue[: len(batch.requests)]
        assert not any(self.own(r) for r in batch.requests)
        del self.queue[: len(batch.requests)]
        self.in_flight += batch.requests

    @rule(target=batches, batch=consumes(batches))
    def finish(self, batch: Batch) -> object:
        self.bouncer.finished(batch, self.now_s)
        self.leave(batch)
        self.end(batch.requests)
        if batch.behind is None:
            return multiple()
        assert batch.behind in self.bouncer.running
        assert (batch.behind.started_s, batch.behind.end_s) == (self.now_s, self.now_s + 1.0 + 0.5 * batch.behind.items)
        return batch.behind

    @rule(target=batches, batch=consumes(batches))
    def fail(self, batch: Batch) -> object:
        behind = self.finish(batch)
        del self.ended[len(self.ended) - len(batch.requests) :]
        before = finish_s(self.bouncer, self.now_s, self.backs_s)
        places = self.bouncer.try_apart(batch.requests, self.now_s)
        for r, where in zip(batch.requests, places, strict=True):
            (self.queue if where == INSTANCE else self.ended).append(r)
            assert where == REJECT or r.tries == 1
        after = finish_s(self.bouncer, self.now_s, self.backs_s)
        for r in self.queue:
            if r in batch.requests:
                assert after[r.id] <= r.deadline_s + TOLERANCE_S
            else:
                assert after.get(r.id) == before.get(r.id) or after[r.id] < before[r.id]
        return behind

    def leave(self, batch: Batch) -> None:
        self.in_flight = [r for r in self.in_flight if r not in batch.requests]

    @rule(batch=consumes(batches), back_in_s=st.sampled_from([0.5, 5.0, NEVER_S]), at_next=st.booleans())
    def crash(self, batch: Batch, back_in_s: float, at_next: bool) -> None:
        self.leave(batch)
        lost, other = batch.requests, list[Request]()
        if batch.behind is not None:  # one of the two was only handed over, or is done but for its answer
            self.leave(batch.behind)
            other = batch.behind.requests
            if at_next:
                lost, other = other, lost
        elif at_next:
            at_next = False
        self.queue = other + self.queue
        self.go_down(batch, back_in_s, lost, at_next)

    @precondition(lambda self: self.bouncer.workers > len(self.bouncer.running))
    @rule(back_in_s=st.sampled_from([0.5, 5.0, NEVER_S]))
    def idle_worker_ends(self, back_in_s: float) -> None:
        self.go_down(None, back_in_s, [])

    def go_down(self, batch: Batch | None, back_in_s: float, lost: list[Request], at_next: bool = False) -> None:
        tries = [r.tries for r in lost]
        overflow, failed = self.bouncer.worker_down(self.now_s, self.now_s + back_in_s, batch, at_next=at_next)
        self.backs_s.append(self.now_s + back_in_s)
        assert [r.tries for r in lost] == [t + 1 for t in tries]
        assert not overflow or self.bouncer.function_s < NEVER_S
        queue = lost + self.queue
        out = overflow + failed
        assert len(set(map(id, out))) == len(out)
        assert all(r in queue for r in out)
        assert all(r in out for r in lost if r.tries == 2)
        self.queue = [r for r in queue if r not in out]
        self.end(out)

    @precondition(lambda self: self.backs_s)
    @rule()
    def worker_returns(self) -> None:
        self.backs_s.remove(min(self.backs_s))
        self.bouncer.worker_up(self.now_s)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: self.asked_function_s < NEVER_S)
    @rule(refuse=st.booleans())
    def functions_refuse(self, refuse: bool) -> None:
        self.bouncer.function_s = NEVER_S if refuse else self.asked_function_s

    @precondition(lambda self: len(self.offered) > 10)
    @rule(in_s=st.sampled_from([0.0, 4.0, 30.0]))
    def drain(self, in_s: float) -> None:
        left = self.bouncer.drain(self.now_s, self.now_s + in_s)
        assert all(r in self.queue for r in left)
        self.queue = [r for r in self.queue if r not in left]
        self.end(left)
        finish = finish_s(self.bouncer, self.now_s, self.backs_s)
        for r in self.queue:
            assert self.own(r) or finish[r.id] <= self.now_s + in_s + TOLERANCE_S

    @precondition(lambda self: self.ended)
    @rule()
    def impossible_news(self) -> None:
        stranger = Batch(request(), 1, 0, 0.0, NEVER_S, NEVER_S)
        before = (self.bouncer.workers, self.bouncer.queued, self.bouncer.in_flight, self.bouncer.due_s())
        with pytest.raises(IllegalTransition):
            self.bouncer.finished(stranger, self.now_s)
        with pytest.raises(IllegalTransition):
            self.bouncer.worker_down(self.now_s, NEVER_S, stranger)
        assert before == (self.bouncer.workers, self.bouncer.queued, self.bouncer.in_flight, self.bouncer.due_s())

    @invariant()
    def every_request_is_in_exactly_one_place(self) -> None:
        if not hasattr(self, "bouncer"):
            return
        places = [*self.queue, *self.in_flight, *self.ended]
        assert sorted(map(id, places)) == sorted(map(id, self.offered))
        assert self.bouncer.queued == len(self.queue)
        assert self.bouncer.in_flight == len(self.in_flight)
        assert 0 <= len(self.bouncer.running) <= self.bouncer.workers

    def teardown(self) -> None:
        if not hasattr(self, "bouncer"):
            return
        while self.bouncer.running:
            self.finish(self.bouncer.running[0])
        left = self.bouncer.drain(self.now_s, self.now_s)
        assert sorted(map(id, left)) == sorted(map(id, self.queue))
        assert self.bouncer.queued == self.bouncer.in_flight == 0


Life.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
test_life = Life.TestCase


def test_times_that_refuse_everything_are_tried_anew_now_and_then() -> None:
    """One request at a time, on an idle instance and without a deadline from its client, tries the times again.

    This happens only if the bouncer is told to.
    """
    slow = FixedTimes([0.0, 5.0])

    def asked(arrived_s: float, own_s: float = 1.0) -> Request:
        call = Call("oip", "", b"")
        return Request(call, 1, arrived_s, arrived_s + own_s, lambda *_: None)

    never, probing = Bouncer(slow, rt_max_s=1.0), Bouncer(slow, rt_max_s=1.0, probe_every_s=10.0)
    assert never.offer(asked(0.0), 0.0) == REJECT
    assert probing.offer(asked(0.0, 0.5), 0.0) == REJECT
    assert probing.offer(asked(0.0), 0.0) == INSTANCE
    assert probing.offer(asked(0.0), 0.0) == REJECT  # one waits
    batch = probing.next_batch(0.0)
    assert batch is not None
    assert probing.offer(asked(11.0), 11.0) == REJECT  # one runs
    probing.finished(batch, 12.0)
    assert probing.offer(asked(12.0), 12.0) == INSTANCE
    batch = probing.next_batch(12.0)
    assert batch is not None
    probing.finished(batch, 13.0)
    assert probing.offer(asked(21.9), 21.9) == REJECT
    assert probing.offer(asked(22.0), 22.0) == INSTANCE
