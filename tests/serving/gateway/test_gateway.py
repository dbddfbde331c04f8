"""The gateway's decisions: time is an argument, and after any events the counts return to zero."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mark.domain.errors import BadInput
from mark.serving.backend.bouncer import IllegalTransition
from mark.serving.gateway.gateway import (
    FULL,
    GIVE_UP,
    HOLD,
    NOBODY_READY,
    PASS_ON,
    WAIT,
    Gateway,
    GatewayPolicy,
    InFlightRequest,
    ReplicaAttempt,
    ReplicaState,
)

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def a_gateway(weights: dict[str, float] | None = None, **policy: float | str) -> Gateway[InFlightRequest]:
    """Return a gateway whose replicas are ready at time 0."""
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(**policy))  # type: ignore[arg-type]
    gateway.put({A: 1.0, B: 1.0} if weights is None else weights, 0.0)
    say_ready(gateway, 0.0)
    return gateway


def say_ready(gateway: Gateway[InFlightRequest], now_s: float) -> list[str]:
    asked = gateway.tick(now_s)
    for replica in asked:
        gateway.probed(replica, True, now_s)
    return [replica.url for replica in asked]


def begun(
    gateway: Gateway[InFlightRequest], now_s: float = 0.0, deadline_s: float = 30.0, size: int = 0
) -> ReplicaAttempt[InFlightRequest]:
    attempt = gateway.begin(InFlightRequest(deadline_s, size), now_s)
    assert isinstance(attempt, ReplicaAttempt)
    return attempt


def waiting(size: int = 0) -> InFlightRequest:
    return InFlightRequest(30.0, size, may_wait=True)


def again(what: ReplicaAttempt[InFlightRequest] | str | None) -> ReplicaAttempt[InFlightRequest]:
    assert isinstance(what, ReplicaAttempt)
    return what


def teach(gateway: Gateway[InFlightRequest], url: str, response_s: float, now_s: float = 0.0) -> None:
    """Give so many answers after `response_s` that earlier ones no longer count."""
    weights = {one.url: one.weight for one in gateway.replicas.values()}
    gateway.put({other: weight if other == url else 0.0 for other, weight in weights.items()}, now_s)
    for _ in range(200):
        assert gateway.answered(begun(gateway, now_s - response_s), 200, now_s) is PASS_ON
    gateway.put(weights, now_s)


# --- which replica gets it


def test_the_replica_expected_to_answer_first_is_chosen() -> None:
    gateway = a_gateway({A: 1.0, B: 1.0, C: 2.0})
    chosen = [begun(gateway).replica.url for _ in range(8)]
    # (in flight + 1) / weight: C 1/2, then 1 each, in the order they came.
    assert chosen == [C, A, B, C, C, A, B, C]


def test_a_slower_replica_gets_as_much_less() -> None:
    gateway = a_gateway()
    teach(gateway, A, 0.031)
    teach(gateway, B, 0.010)
    chosen = [begun(gateway).replica.url for _ in range(8)]
    assert (chosen.count(A), chosen.count(B)) == (2, 6)


@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.floats(0.1, 10.0), st.integers(0, 5)), min_size=1, max_size=6))
def test_no_other_choice_would_finish_earlier(replicas: list[tuple[float, float, int]]) -> None:
    """The choice is compared with the formula."""
    urls = [f"http://r:{n + 1}" for n in range(len(replicas))]
    gateway = a_gateway({url: weight for url, (_, weight, _) in zip(urls, replicas, strict=True)})
    for url, (response_s, _, _) in zip(urls, replicas, strict=True):
        teach(gateway, url, response_s)
    for url, (_, _, in_flight) in zip(urls, replicas, strict=True):
        weights = {one.url: one.weight for one in gateway.replicas.values()}
        gateway.put({other: weight if other == url else 0.0 for other, weight in weights.items()}, 0.0)
        for _ in range(in_flight):
            begun(gateway)
        gateway.put(weights, 0.0)
    states = gateway.replicas.values()
    expected = min(states, key=lambda one: (one.response_s / one.weight * (one.in_flight + 1), one.number))
    assert begun(gateway).replica is expected


def test_weight_0_gets_nothing_new_and_keeps_what_it_has() -> None:
    gateway = a_gateway()
    attempt = begun(gateway)
    assert attempt.replica.url == A
    gateway.put({A: 0.0, B: 1.0}, 1.0)
    assert {begun(gateway, 1.0).replica.url for _ in range(5)} == {B}
    assert gateway.answered(attempt, 200, 2.0) is PASS_ON
    gateway.put({A: 0.0, B: 0.0}, 3.0)
    assert not gateway.ready
    assert gateway.begin(InFlightRequest(30.0, 0), 3.0) == NOBODY_READY


def test_request_without_a_ready_replica_waits_for_polls_of_all_that_are_out() -> None:
    """A poll for it ends the back-off of an ejected replica, and a replica with weight 0 is not polled for it."""
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(eject_after=1, backoff_s=30.0))
    gateway.put({A: 1.0, B: 1.0, C: 0.0}, 0.0)
    for replica in gateway.tick(0.0):
        gateway.probed(replica, replica.url != C, 0.0)
    for _ in range(2):
        gateway.failed(begun(gateway), 0.0, began=True)
    assert gateway.tick(0.5) == []
    requests = [waiting(7) for _ in range(3)]
    assert [gateway.begin(one, 0.5) for one in requests] == [HOLD] * 3
    assert (gateway.in_flight, gateway.bytes) == (3, 21)
    gateway.abandoned(requests[2])
    assert gateway.hedge(requests[1], 0.5) is None
    a, b = gateway.tick(0.5)
    assert (a.url, b.url) == (A, B)
    gateway.probed(a, None, 0.6)
    assert gateway.resumed(0.6) == []
    gateway.probed(b, True, 0.7)
    assert [(one, again(step).replica.url) for one, step in gateway.resumed(0.7)] == [(one, B) for one in requests[:2]]
    assert gateway.in_flight == 2


def test_request_is_refused_once_all_polls_for_it_were_in_vain() -> None:
    gateway: Gateway[InFlightRequest] = Gateway()
    gateway.put({A: 1.0}, 0.0)
    request = waiting(7)
    assert gateway.begin(request, 0.0) is HOLD
    for replica in gateway.tick(0.0):
        gateway.probed(replica, False, 0.0)
    assert gateway.resumed(0.0) == [(request, NOBODY_READY)]
    assert (gateway.in_flight, gateway.bytes, request.under_way) == (0, 0, False)


def test_request_that_lost_its_replica_waits_for_one_that_was_ejected() -> None:
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(eject_after=1, backoff_s=30.0))
    gateway.put({A: 1.0, B: 1.0}, 0.0)
    say_ready(gateway, 0.0)
    gateway.failed(begun(gateway), 0.0, began=True)
    lost, broken = (again(gateway.begin(waiting(), 0.0)) for _ in range(2))
    assert lost.replica.url == B
    assert gateway.failed(broken, 1.0, began=True) is GIVE_UP
    assert gateway.failed(lost, 1.0, began=False) is HOLD
    asked = {replica.url: replica for replica in gateway.tick(1.0)}
    gateway.probed(asked[B], True, 1.0)
    assert gateway.resumed(1.0) == [], "it goes to a replica once"
    gateway.probed(asked[A], True, 1.0)
    ((request, second),) = gateway.resumed(1.0)
    assert (request, again(second).replica.url, gateway.retries) == (lost.request, A, 1)


def test_request_waits_for_one_poll_of_each_replica() -> None:
    """Two replicas drop packets, so one of them is always being polled; a later request starts their polls again."""
    gateway: Gateway[InFlightRequest] = Gateway()
    gateway.put({A: 1.0, B: 1.0}, 0.0)
    a, b = gateway.tick(0.0)
    gateway.probed(a, None, 0.5)
    request, later = waiting(), waiting()
    assert gateway.begin(request, 0.6) is HOLD
    assert gateway.tick(0.6) == [a]
    gateway.probed(b, None, 1.0)
    assert gateway.begin(later, 1.2) is HOLD
    assert gateway.tick(1.2) == [b]
    gateway.probed(a, None, 1.6)
    assert gateway.resumed(1.6) == [(request, NOBODY_READY)]
    assert gateway.tick(1.6) == [], "the later request is content with the poll that ended after it came"
    gateway.probed(b, None, 2.2)
    assert gateway.resumed(2.2) == [(later, NOBODY_READY)]


def test_poll_during_which_a_replica_was_ejected_does_not_count_for_a_request() -> None:
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(eject_after=1, backoff_s=30.0))
    gateway.put({A: 1.0}, 0.0)
    say_ready(gateway, 0.0)
    (a,) = gateway.tick(1.0)
    assert gateway.failed(begun(gateway), 1.0, began=True) is GIVE_UP
    assert gateway.begin(waiting(), 1.0) is HOLD
    gateway.probed(a, True, 1.1)
    assert gateway.resumed(1.1) == []
    assert gateway.tick(1.1) == [a]
    gateway.probed(a, True, 1.2)
    ((_, step),) = gateway.resumed(1.2)
    assert again(step).replica is a


def test_request_does_not_wait_for_the_replica_that_it_has_tried() -> None:
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(eject_after=1))
    gateway.put({A: 1.0, B: 0.0}, 0.0)
    say_ready(gateway, 0.0)
    assert gateway.failed(again(gateway.begin(waiting(), 0.0)), 0.0, began=False) is GIVE_UP


def test_held_request_ends_with_the_reason() -> None:
    """B is ready, but has as many requests as it may have; or the list of replicas becomes empty."""
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(eject_after=1, most_per_replica=1))
    gateway.put({A: 1.0, B: 1.0, C: 1.0}, 0.0)
    asked = {replica.url: replica for replica in gateway.tick(0.0)}
    gateway.probed(asked[A], True, 0.0)
    lost = again(gateway.begin(waiting(7), 0.0))
    gateway.probed(asked[B], True, 0.0)
    begun(gateway)
    assert gateway.failed(lost, 1.0, began=False) is HOLD
    for replica in [asked[C], *gateway.tick(1.0)]:
        gateway.probed(replica, False, 1.0)
    assert gateway.resumed(1.0) == [(lost.request, GIVE_UP)]
    gateway.put({C: 1.0}, 2.0)
    request = waiting(7)
    assert gateway.begin(request, 2.0) is HOLD
    assert gateway.resumed(2.0) == []
    gateway.put({}, 2.0)
    assert gateway.resumed(2.0) == [(request, NOBODY_READY)]
    assert gateway.bytes == 0


def test_requests_are_held_only_within_the_limits_of_requests_in_flight() -> None:
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(most_in_flight=1))
    gateway.put({A: 1.0}, 0.0)
    assert [gateway.begin(waiting(), 0.0) for _ in range(2)] == [HOLD, FULL]


def test_a_new_replica_gets_nothing_before_it_is_ready() -> None:
    gateway: Gateway[InFlightRequest] = Gateway()
    gateway.put({A: 1.0}, 0.0)
    assert gateway.begin(InFlightRequest(30.0, 0), 0.0) == NOBODY_READY
    (asked,) = gateway.tick(0.0)
    assert gateway.tick(0.5) == []  # one question at a time
    gateway.probed(asked, False, 0.5)
    assert not gateway.ready
    assert gateway.tick(1.4) == []
    assert say_ready(gateway, 1.5) == [A]
    assert begun(gateway, 1.5).replica.url == A


def test_an_unready_replica_gets_nothing_new() -> None:
    gateway = a_gateway()
    a, b = gateway.tick(1.0)
    gateway.probed(a, False, 1.0)
    gateway.probed(b, True, 1.0)
    assert {begun(gateway, 1.0).replica.url for _ in range(3)} == {B}


def test_a_new_replica_is_assumed_as_fast_as_the_fastest() -> None:
    gateway = a_gateway()
    teach(gateway, A, 0.2)
    teach(gateway, B, 0.4)
    gateway.put({A: 1.0, B: 1.0, C: 1.0}, 0.0)
    assert gateway.replicas[C].response_s == pytest.approx(0.2)


def test_one_slow_first_answer_does_not_exclude_a_replica() -> None:
    """The first replica had to make connections and warm a cache; the other replica answered without delay."""
    gateway = a_gateway()
    first, other = begun(gateway), begun(gateway)
    gateway.answered(first, 200, 0.1)
    gateway.answered(other, 200, 0.004)
    in_flight = Counter(begun(gateway, 0.1).replica.url for _ in range(16))
    assert in_flight[A] >= 1


def test_a_replica_once_slow_is_tried_again_after_a_while() -> None:
    """Two requests come at a time: A gets the second as soon as it is believed to be less than twice as slow as B."""
    gateway = a_gateway()
    teach(gateway, A, 2.0)
    teach(gateway, B, 0.1)
    for second in range(1, 100):
        now_s = float(second)
        first, other = begun(gateway, now_s), begun(gateway, now_s)
        if other.replica.url == A:
            break
        for attempt in (first, other):
            gateway.answered(attempt, 200, now_s + 0.1)
        say_ready(gateway, now_s + 0.5)
    assert 30 <= second <= 32  # 1.9 s more have become 0.1 s after 10 s x ln 19 = 29.4 s


# --- second attempts


def test_a_failure_is_retried_once_and_at_another_replica() -> None:
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0})
    first = begun(gateway)
    second = again(gateway.failed(first, 0.1, began=False))
    assert second.replica is not first.replica
    assert gateway.failed(second, 0.2, began=False) is GIVE_UP
    assert (gateway.in_flight, gateway.retries) == (0, 1)


def test_half_an_answer_is_not_retried() -> None:
    gateway = a_gateway()
    assert gateway.failed(begun(gateway), 0.1, began=True) is GIVE_UP
    assert gateway.in_flight == 0


def test_without_another_replica_there_is_no_retry() -> None:
    gateway = a_gateway({A: 1.0})
    assert gateway.failed(begun(gateway), 0.1, began=False) is GIVE_UP


@pytest.mark.parametrize(("deadline_s", "retried"), [(0.29, False), (0.31, True)])
def test_a_retry_needs_time_until_the_deadline(deadline_s: float, retried: bool) -> None:
    gateway = a_gateway()
    teach(gateway, A, 0.1)
    teach(gateway, B, 0.2)
    first = begun(gateway, 0.0, deadline_s)
    assert first.replica.url == A
    assert isinstance(gateway.failed(first, 0.1, began=False), ReplicaAttempt) == retried


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_is_retried_elsewhere_unless_all_refuse(status: int) -> None:
    gateway = a_gateway()
    second = again(gateway.answered(begun(gateway, 1.0), status, 1.001))
    assert second.replica.url == B
    assert gateway.answered(second, status, 1.002) is PASS_ON
    # Both have just refused: another refusal is passed on unchanged.
    assert gateway.answered(begun(gateway, 1.003), status, 1.004) is PASS_ON
    assert gateway.retries == 1
    # A while later it is worth a try again.
    again(gateway.answered(begun(gateway, 1.2), status, 1.201))


def test_a_replica_that_refuses_fast_attracts_no_requests() -> None:
    gateway = a_gateway()
    teach(gateway, A, 0.05, 1.0)
    teach(gateway, B, 0.05, 1.0)
    second = again(gateway.answered(begun(gateway, 1.0), 429, 1.001))
    assert second.replica.url == B
    assert [begun(gateway, 1.01).replica.url for _ in range(2)] == [B, A]  # 2 x 50 ms there, 91 + 50 ms here; 3 x 50 ms


def test_errors_of_the_model_are_passed_on() -> None:
    gateway = a_gateway()
    for status in (200, 400, 404, 413, 500, 504):
        assert gateway.answered(begun(gateway), status, 0.1) is PASS_ON
    assert (gateway.in_flight, gateway.retries) == (0, 0)


def test_retries_have_a_budget() -> None:
    """The budget is a fifth of the requests in the long run, after a burst."""
    gateway = a_gateway(retry_burst=5.0, eject_after=10**9)
    retried = 0
    for n in range(1000):
        now_s = n * 1.0
        what = gateway.failed(begun(gateway, now_s, now_s + 30.0), now_s + 0.1, began=False)
        if isinstance(what, ReplicaAttempt):
            retried += 1
            gateway.answered(what, 200, now_s + 0.2)
    assert 200 <= retried <= 206


def test_the_first_answer_ends_both_copies_of_a_hedge() -> None:
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0})
    first = begun(gateway)
    second = again(gateway.hedge(first.request, 0.5))
    assert second.replica is not first.replica
    assert gateway.hedge(first.request, 0.6) is None  # there are never three
    assert gateway.answered(second, 200, 0.7) is PASS_ON
    assert not first.open
    assert sum(one.in_flight for one in gateway.replicas.values()) == gateway.in_flight == 0
    with pytest.raises(IllegalTransition):
        gateway.answered(first, 200, 0.8)


def test_attempts_are_listed_until_the_end() -> None:
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0})
    first = begun(gateway)
    second = again(gateway.hedge(first.request, 0.5))
    assert first.request.attempts == [first, second]
    assert gateway.answered(second, 200, 0.7) is PASS_ON
    assert first.request.attempts == []


def test_an_outrun_replica_is_known_to_be_slow() -> None:
    """Its attempt is cancelled and counts as if it took as long again; until then the replica works and is avoided."""
    gateway = a_gateway()
    for url in (A, B):
        teach(gateway, url, 0.01)
    first = begun(gateway)
    assert first.replica.url == A
    second = again(gateway.hedge(first.request, 0.5))
    assert gateway.answered(second, 200, 0.51) is PASS_ON
    assert first.replica.response_s == pytest.approx(0.9 * 0.01 + 0.1 * 1.02)
    assert first.replica.avoid_until_s == pytest.approx(1.02)
    for now_s in (0.51, 1.0):
        assert begun(gateway, now_s).replica.url == B


def test_a_cancelled_attempt_keeps_its_replica_busy_for_one_response_time() -> None:
    """The replica had less than half of its usual time. Nothing is learned, but it works on: others are chosen."""
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0})
    for url in (A, B, C):
        teach(gateway, url, 0.1)
    first = begun(gateway)
    second = again(gateway.hedge(first.request, 0.11))
    before_s = second.replica.response_s
    assert gateway.answered(first, 200, 0.15) is PASS_ON
    assert second.replica.response_s == before_s
    assert second.replica.avoid_until_s == pytest.approx(0.11 + before_s)
    assert {begun(gateway, 0.15).replica.url for _ in range(2)} == {A, C}


def test_second_attempt_that_would_come_later_is_not_sent() -> None:
    """After 0.15 s the first replica is assumed to need as long again; the other one needs 0.1 s for each request."""
    gateway = a_gateway()
    for url in (A, B):
        teach(gateway, url, 0.1)
    first, other = begun(gateway), begun(gateway)
    assert (first.replica.url, other.replica.url) == (A, B)
    assert gateway.hedge(first.request, 0.15) is None
    assert gateway.hedges == 0
    gateway.answered(other, 200, 0.15)
    assert again(gateway.hedge(first.request, 0.16)).replica.url == B
    assert gateway.hedges == 1


def test_a_replica_outrun_by_a_moment_is_not_slow() -> None:
    """The first replica answers just after the hedge, so the other one had no time to."""
    gateway = a_gateway()
    for url in (A, B):
        teach(gateway, url, 0.01)
    first = begun(gateway)
    second = again(gateway.hedge(first.request, 0.5))
    before_s = second.replica.response_s
    assert gateway.answered(first, 200, 0.501) is PASS_ON
    assert second.replica.response_s == before_s
    assert begun(gateway, 0.502).replica is second.replica


@pytest.mark.parametrize("status", [429, 503, None])
def test_a_failed_copy_waits_for_its_hedge(status: int | None) -> None:
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0})
    first = begun(gateway)
    second = again(gateway.hedge(first.request, 0.5))
    what = gateway.failed(first, 0.6, began=False) if status is None else gateway.answered(first, status, 0.6)
    assert what is WAIT
    assert gateway.failed(second, 0.7, began=False) is GIVE_UP


# --- ejection


def fail(
    gateway: Gateway[InFlightRequest], replica: ReplicaState, times: int, now_s: float, status: int | None = None
) -> None:
    attempts: list[Any] = []
    while sum(t.replica is replica for t in attempts) < times:
        attempts.append(begun(gateway, now_s, now_s))  # no time for a retry
    for attempt in attempts:
        if attempt.replica is not replica:
            gateway.answered(attempt, 200, now_s + 0.01)
        elif status is None:
            gateway.failed(attempt, now_s, began=False)
        else:
            gateway.answered(attempt, status, now_s)


def test_consecutive_failures_eject_a_replica_with_a_doubling_back_off() -> None:
    gateway = a_gateway()
    a = gateway.replicas[A]
    fail(gateway, a, 2, 1.0)
    assert a.ready
    attempt = begun(gateway, 2.0)
    assert attempt.replica is a
    gateway.answered(attempt, 200, 2.0)
    fail(gateway, a, 2, 3.0)
    assert a.ready  # not in a row
    fail(gateway, a, 1, 4.0)
    assert not a.ready
    assert {begun(gateway, 4.0).replica.url for _ in range(5)} == {B}
    assert A not in say_ready(gateway, 4.9)
    assert A in say_ready(gateway, 5.0)
    assert a.ready
    fail(gateway, a, 3, 6.0)
    assert A not in say_ready(gateway, 7.9)
    assert A in say_ready(gateway, 8.0)
    # It stays well for longer than the longest back-off: that is forgotten.
    for second in range(9, 50):
        say_ready(gateway, float(second))
    fail(gateway, a, 3, 50.0)
    assert A in say_ready(gateway, 51.0)
    assert gateway.ejections == 3


def test_a_probe_under_way_does_not_end_the_back_off() -> None:
    gateway = a_gateway()
    (a, _) = gateway.tick(1.0)
    fail(gateway, a, 3, 1.1)
    gateway.probed(a, True, 1.2)
    assert not a.ready
    assert A not in [one.url for one in gateway.tick(2.0)]
    assert A in [one.url for one in gateway.tick(2.1)]


def test_a_replica_that_does_not_answer_questions_is_put_out() -> None:
    gateway = a_gateway({A: 1.0})
    for now_s in (1.0, 2.0, 3.0):
        (a,) = gateway.tick(now_s)
        assert a.ready
        gateway.probed(a, None, now_s)
    assert not a.ready
    (a,) = gateway.tick(4.0)
    gateway.probed(a, None, 4.0)
    assert [one.url for one in gateway.tick(5.0)] == [A]  # it continues to probe
    with pytest.raises(IllegalTransition):
        gateway.probed(gateway.replicas[A], True, 5.0) or gateway.probed(gateway.replicas[A], True, 5.0)


def test_answers_500_put_out_at_most_half_of_the_replicas() -> None:
    """A client that sends requests which break the model must not end the service for all."""
    urls = [f"http://r:{n}" for n in range(1, 6)]
    gateway = a_gateway(dict.fromkeys(urls, 1.0))
    for _ in range(100):
        gateway.answered(begun(gateway, 1.0), 500, 1.0)
    assert sum(one.ready for one in gateway.replicas.values()) == 3


def test_a_hang_counts_as_failure_a_clients_deadline_does_not() -> None:
    gateway = a_gateway({A: 1.0}, eject_after=1)
    gateway.expired(begun(gateway, 0.0, 0.001).request, 0.1, hung=False)
    assert gateway.ready
    gateway.expired(begun(gateway, 1.0).request, 31.0, hung=True)
    assert not gateway.ready
    assert gateway.in_flight == 0


# --- limits


def test_requests_bytes_and_copies_per_replica_are_bounded() -> None:
    gateway = a_gateway(most_in_flight=3)
    attempts = [begun(gateway) for _ in range(3)]
    assert gateway.begin(InFlightRequest(30.0, 0), 0.0) == FULL
    gateway.answered(attempts[0], 200, 0.1)
    begun(gateway, 0.1)

    gateway = a_gateway(most_bytes=100)
    attempt = begun(gateway, size=60)
    assert gateway.begin(InFlightRequest(30.0, 41), 0.0) == FULL
    begun(gateway, size=40)
    gateway.abandoned(attempt.request)
    assert gateway.bytes == 40

    gateway = a_gateway(most_per_replica=2)
    assert sorted(begun(gateway).replica.url for _ in range(4)) == [A, A, B, B]
    assert gateway.begin(InFlightRequest(30.0, 0), 0.0) == FULL


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_changes_nothing(weight: float) -> None:
    gateway = a_gateway()
    with pytest.raises(BadInput, match="a weight is a number of zero or more"):
        gateway.put({C: 1.0, A: weight}, 1.0)
    assert list(gateway.replicas) == [A, B]


@pytest.mark.parametrize("limit", ["most_in_flight", "eject_after", "backoff_s", "hedge_after_s"])
def test_a_policy_without_sense_is_refused(limit: str) -> None:
    with pytest.raises(BadInput, match=f"policy.{limit}: must be above zero"):
        GatewayPolicy(**{limit: 0})  # type: ignore[arg-type]


def test_what_cannot_have_happened_is_refused_and_changes_nothing() -> None:
    gateway = a_gateway()
    attempt = begun(gateway)
    with pytest.raises(IllegalTransition):
        gateway.begin(attempt.request, 0.0)
    assert gateway.answered(attempt, 200, 0.1) is PASS_ON
    for action in (
        lambda: gateway.answered(attempt, 200, 0.2),
        lambda: gateway.failed(attempt, 0.2, began=False),
        lambda: gateway.abandoned(attempt.request),
        lambda: gateway.expired(attempt.request, 0.2, hung=True),
        lambda: gateway.hedge(attempt.request, 0.2),
    ):
        with pytest.raises(IllegalTransition):
            action()
    assert (gateway.in_flight, attempt.replica.in_flight, attempt.replica.answers) == (0, 0, 1)


# --- any order of events


class Anything(RuleBasedStateMachine):
    """Requests, answers, failures, time-outs, clients that leave, replicas that come and go, in any order."""

    @initialize(most=st.integers(1, 12), each=st.integers(1, 6), after=st.integers(1, 3))
    def begin(self, most: int, each: int, after: int) -> None:
        self.gateway: Gateway[InFlightRequest] = Gateway(
            GatewayPolicy(most_in_flight=most, most_per_replica=each, eject_after=after, retry_burst=8.0)
        )
        self.held: set[InFlightRequest] = set()
        self.now_s = 0.0
        self.open_requests: dict[
            InFlightRequest, list[ReplicaAttempt[InFlightRequest]]
        ] = {}  # under way, and all attempts that were made
        self.asked: list[ReplicaState] = []
        self.gateway.put({A: 1.0, B: 2.0, C: 1.0}, 0.0)
        say_ready(self.gateway, 0.0)

    def attempts(self) -> list[ReplicaAttempt[InFlightRequest]]:
        return [attempt for attempts in self.open_requests.values() for attempt in attempts if attempt.open]

    def took(self, attempt: ReplicaAttempt[InFlightRequest]) -> None:
        assert attempt.open
        assert attempt.replica.ready
        assert attempt.replica.weight > 0.0
        assert self.gateway.replicas[attempt.replica.url] is attempt.replica
        attempts = self.open_requests.setdefault(attempt.request, [])
        assert attempt.replica not in [other.replica for other in attempts], "twice to the same replica"
        attempts.append(attempt)
        assert len(attempts) <= 2

    def became(self, attempt: ReplicaAttempt[InFlightRequest], what: ReplicaAttempt[InFlightRequest] | str) -> None:
        if isinstance(what, ReplicaAttempt):
            self.took(what)
        elif what is HOLD:
            self.held.add(attempt.request)
        elif what is WAIT:
            assert any(other.open for other in self.open_requests[attempt.request])
        else:
            assert not any(other.open for other in self.open_requests.pop(attempt.request))

    @rule(seconds=st.floats(0.0, 5.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(weights=st.dictionaries(st.sampled_from([A, B, C, "http://d:1"]), st.sampled_from([0.0, 0.5, 1.0, 3.0])))
    def put(self, weights: dict[str, float]) -> None:
        self.gateway.put(weights, self.now_s)
        self.resume()

    def resume(self) -> None:
        for request, step in self.gateway.resumed(self.now_s):
            self.held.remove(request)
            if isinstance(step, ReplicaAttempt):
                self.took(step)
            else:
                assert step in (NOBODY_READY, FULL, GIVE_UP)
                del self.open_requests[request]
        out = [one for one in self.gateway.replicas.values() if one.weight and not one.ready]
        for request in self.held:
            assert any(one.polled_s < request.held_s for one in out), "it waits for nothing"

    @rule(seconds=st.floats(0.0, 20.0), size=st.integers(0, 1000), count=st.integers(1, 3), may_wait=st.booleans())
    def requests(self, seconds: float, size: int, count: int, may_wait: bool) -> None:
        for _ in range(count):
            request = InFlightRequest(self.now_s + seconds, size, may_wait=may_wait)
            attempt = self.gateway.begin(request, self.now_s)
            if isinstance(attempt, ReplicaAttempt):
                self.took(attempt)
            elif attempt is HOLD:
                self.held.add(request)
                self.open_requests[request] = []

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), status=st.sampled_from([200, 200, 200, 400, 429, 500, 503, 504]))
    def answer(self, data: st.DataObject, status: int) -> None:
        attempt = data.draw(st.sampled_from(self.attempts()))
        self.became(attempt, self.gateway.answered(attempt, status, self.now_s))

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), began=st.booleans())
    def failure(self, data: st.DataObject, began: bool) -> None:
        attempt = data.draw(st.sampled_from(self.attempts()))
        self.became(attempt, self.gateway.failed(attempt, self.now_s, began=began))

    @precondition(lambda self: self.open_requests)
    @rule(data=st.data())
    def hedge(self, data: st.DataObject) -> None:
        attempt = self.gateway.hedge(data.draw(st.sampled_from(list(self.open_requests))), self.now_s)
        if attempt is not None:
            self.held.discard(attempt.request)
            self.took(attempt)

    @precondition(lambda self: self.open_requests)
    @rule(data=st.data(), hung=st.sampled_from([None, False, True]))
    def ends_without_an_answer(self, data: st.DataObject, hung: bool | None) -> None:
        request = data.draw(st.sampled_from(list(self.open_requests)))
        if hung is None:
            self.gateway.abandoned(request)
        else:
            self.gateway.expired(request, self.now_s, hung=hung)
        assert not any(attempt.open for attempt in self.open_requests.pop(request))
        self.held.discard(request)

    @rule()
    def all_are_well(self) -> None:
        say_ready(self.gateway, self.now_s)

    @rule()
    def tick(self) -> None:
        self.asked += self.gateway.tick(self.now_s)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), ready=st.sampled_from([True, True, True, False, None]))
    def probed(self, data: st.DataObject, ready: bool | None) -> None:
        replica = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self.gateway.probed(replica, ready, self.now_s)
        self.resume()

    @invariant()
    def counts_are_what_is_there(self) -> None:
        if not hasattr(self, "gateway"):
            return
        gateway, open_attempts = self.gateway, self.attempts()
        states = [*gateway.replicas.values(), *gateway.leaving.values()]
        assert gateway.in_flight == len(self.open_requests) <= gateway.policy.most_in_flight
        assert gateway.bytes == sum(request.size for request in self.open_requests)
        for one in states:
            assert one.in_flight == sum(attempt.replica is one for attempt in open_attempts)
            assert one.in_flight <= gateway.policy.most_per_replica
        assert sum(one.in_flight for one in states) == len(open_attempts)
        assert all(one.in_flight for one in gateway.leaving.values())
        assert gateway.ready == any(one.ready and one.weight for one in gateway.replicas.values())

    def teardown(self) -> None:
        if not hasattr(self, "gateway"):
            return
        gateway = self.gateway
        touched = {attempt.replica for attempts in self.open_requests.values() for attempt in attempts}
        for request in list(self.open_requests):
            gateway.abandoned(request)
        gateway.put({}, self.now_s)
        assert (gateway.in_flight, gateway.bytes, gateway.leaving) == (0, 0, {})
        assert all(one.in_flight == 0 for one in touched)


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=100, stateful_step_count=40)


# --- as an AWS Application Load Balancer


def test_alb_counts_requests_whatever_a_replica_can_do() -> None:
    """Weights apply to groups, and response times do not matter; ties are broken in turn, not by order."""
    gateway = a_gateway({A: 1.0, B: 1.0, C: 1.0}, routing="alb")
    gateway.replicas[A].each_s = gateway.replicas[A].response_s = 9.0
    assert [begun(gateway).replica.url for _ in range(6)] == [A, B, C, A, B, C]
    attempts = [begun(gateway) for _ in range(3)]
    assert gateway.answered(attempts[1], 200, 1.0) is PASS_ON
    assert [begun(gateway).replica.url for _ in range(2)] == [B, A]
    for _ in range(4):
        assert gateway.answered(begun(gateway), 200, 1.0) is PASS_ON


def test_alb_takes_turns_among_idle_replicas() -> None:
    gateway = a_gateway({A: 1.0, B: 1.0}, routing="alb")
    chosen = []
    for _ in range(4):
        attempt = begun(gateway)
        chosen.append(attempt.replica.url)
        assert gateway.answered(attempt, 200, 0.0) is PASS_ON
    assert chosen == [A, B, A, B]


def test_alb_draws_groups_by_weight() -> None:
    """A group without a ready replica is drawn too: its requests find none."""
    gateway: Gateway[InFlightRequest] = Gateway(GatewayPolicy(routing="alb", most_per_replica=10_000))
    weights, groups = {A: 900.0, B: 100.0, C: 100.0}, {A: "large", B: "small", C: "small"}
    gateway.put(weights, 0.0, groups)
    for replica in gateway.tick(0.0):
        gateway.probed(replica, True, 0.0)
    found = Counter(begun(gateway).replica.url for _ in range(2000))
    assert found[B] == pytest.approx(found[C], abs=1)
    assert found[B] + found[C] == pytest.approx(200, abs=60)
    gateway.tick(2.0)
    gateway.probed(gateway.replicas[A], False, 2.0)
    unserved = sum(gateway.begin(InFlightRequest(30.0, 0), 2.0) == NOBODY_READY for _ in range(500))
    assert unserved == pytest.approx(450, abs=40)
    gateway.put(weights | {A: 0.0}, 3.0, groups)
    assert {begun(gateway, 3.0).replica.url for _ in range(50)} == {B, C}


def test_alb_asks_no_second_replica() -> None:
    gateway = a_gateway(routing="alb")
    refused, broken, slow = begun(gateway), begun(gateway), begun(gateway)
    assert gateway.answered(refused, 503, 0.0) is PASS_ON
    assert gateway.failed(broken, 0.0, began=False) is GIVE_UP
    assert gateway.hedge(slow.request, 0.0) is None
    assert gateway.retries == gateway.hedges == 0


def test_a_group_of_alb_has_one_weight() -> None:
    gateway = a_gateway(routing="alb")
    with pytest.raises(BadInput, match="one weight"):
        gateway.put({A: 1.0, B: 2.0}, 0.0)
    gateway.put({A: 1.0, B: 2.0}, 0.0, {B: "other"})
    with pytest.raises(BadInput, match="least-completion, alb"):
        GatewayPolicy(routing="random")
