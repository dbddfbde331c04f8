"""Admission: what answers a request."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.rules.admission import FUNCTION, INSTANCE, NEVER_S, REJECT, TOLERANCE_S, destination, in_time, promised_s

latencies = st.one_of(st.just(NEVER_S), st.floats(0.0, 100.0))


@pytest.mark.parametrize(
    ("instance_s", "function_s", "where"),
    [
        (0.5, 0.1, INSTANCE),  # in time on an instance, however fast the function
        (0.6, NEVER_S, INSTANCE),  # exactly RT_max is in time
        (0.7, 0.6, FUNCTION),
        (0.7, 0.65, FUNCTION),  # neither in time: the faster one
        (0.7, 0.9, INSTANCE),
        (0.7, 0.7, INSTANCE),  # equally late: the instance is paid anyway
        (NEVER_S, 9.0, FUNCTION),
        (0.7, NEVER_S, REJECT),  # without a function no request waits for a sure miss
        (NEVER_S, NEVER_S, REJECT),
    ],
)
def test_the_table_of_destinations(instance_s: float, function_s: float, where: int) -> None:
    """Each case of docs/semantics.md, 7, for RT_max = 0.6 s."""
    assert destination(instance_s, function_s, 0.6) == where


@given(latencies, latencies, st.floats(0.001, 100.0))
def test_a_request_that_can_be_in_time_is(instance_s: float, function_s: float, rt_max_s: float) -> None:
    """Whenever one of the two answers in time, the request goes to one that does."""
    where = destination(instance_s, function_s, rt_max_s)
    chosen = {INSTANCE: instance_s, FUNCTION: function_s, REJECT: NEVER_S}[where]
    if min(instance_s, function_s) <= rt_max_s:
        assert in_time(chosen, rt_max_s)
    if function_s < NEVER_S:
        assert chosen < NEVER_S


def test_rounding_makes_no_request_late() -> None:
    """Times near a month's 2.6e6 s carry rounding errors; a latency of RT_max is in time all the same."""
    now = 2.6e6 + 1.0 / 3.0
    latency = (now + 0.6) - now
    assert latency != 0.6
    assert in_time(latency, 0.6)
    assert not in_time(0.6 + 2 * TOLERANCE_S, 0.6)
    assert not in_time(math.inf, 0.6)


@pytest.mark.parametrize(
    ("function_s", "promised"),
    [
        (0.4, 0.6),
        (0.6, 0.6),  # as fast as promised
        (NEVER_S, 0.6),  # a request that may not join is refused, and delays no other
        (0.9, NEVER_S),  # a request that may not join waits behind
    ],
)
def test_batches_keep_their_promise_unless_functions_are_slow(function_s: float, promised: float) -> None:
    assert promised_s(0.6, function_s) == promised


def test_what_promises_nothing_has_nothing_to_keep() -> None:
    """Without bouncers the horizon is infinite, whatever functions do."""
    assert promised_s(NEVER_S, 0.4) == promised_s(NEVER_S, NEVER_S) == NEVER_S
