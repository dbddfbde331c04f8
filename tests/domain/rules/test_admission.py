"""Admission: who answers a request."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.admission import (
    FUNCTION,
    INSTANCE,
    NEVER_S,
    REJECT,
    TOLERANCE_S,
    destination,
    doubtful,
    in_time,
    in_time_probability,
    late_budget,
    late_share,
    least_probability,
    margin_s,
    queues_late,
)

latencies = st.one_of(st.just(NEVER_S), st.floats(0.0, 100.0))


@pytest.mark.parametrize(
    ("instance_s", "function_s", "where"),
    [
        (0.5, 0.1, INSTANCE),  # in time on an instance, however fast the function
        (0.6, NEVER_S, INSTANCE),  # exactly RT_max is in time
        (0.7, 0.6, FUNCTION),
        (NEVER_S, 0.6, FUNCTION),
        (0.7, NEVER_S, REJECT),  # without a function no request waits for a sure miss
        (NEVER_S, NEVER_S, REJECT),
    ],
)
@pytest.mark.parametrize("late", [FUNCTION, REJECT])
def test_what_is_in_time_somewhere_goes_there(instance_s: float, function_s: float, where: int, late: int) -> None:
    """Each case of docs/semantics.md, 7, for RT_max = 0.6 s."""
    assert destination(instance_s, function_s, 0.6, late) == where


@pytest.mark.parametrize("late", [FUNCTION, REJECT])
@pytest.mark.parametrize(("instance_s", "function_s"), [(0.7, 0.65), (0.7, 0.9), (0.7, 0.7), (NEVER_S, 9.0)])
def test_what_is_late_wherever_goes_where_is_said(instance_s: float, function_s: float, late: int) -> None:
    """Whichever would be sooner: a late request that queued would make those behind it late."""
    assert destination(instance_s, function_s, 0.6, late) == late


@given(latencies, latencies, st.floats(0.001, 100.0), st.sampled_from([FUNCTION, REJECT]))
def test_a_request_that_can_be_in_time_is(instance_s: float, function_s: float, rt_max_s: float, late: int) -> None:
    """If one of the two answers in time, the request goes to one that does; otherwise never to an instance."""
    where = destination(instance_s, function_s, rt_max_s, late)
    chosen = {INSTANCE: instance_s, FUNCTION: function_s, REJECT: NEVER_S}[where]
    if min(instance_s, function_s) <= rt_max_s + TOLERANCE_S:
        assert in_time(chosen, rt_max_s)
    else:
        assert where == (late if function_s < NEVER_S else REJECT)


def test_rounding_makes_no_request_late() -> None:
    """Times near a month's 2.6e6 s carry rounding errors, but a latency of RT_max is still in time."""
    now = 2.6e6 + 1.0 / 3.0
    latency = (now + 0.6) - now
    assert latency != 0.6
    assert in_time(latency, 0.6)
    assert not in_time(0.6 + 2 * TOLERANCE_S, 0.6)
    assert not in_time(math.inf, 0.6)


def test_a_margin_is_kept_behind_a_waiting_batch_only() -> None:
    """Half a standard deviation: two batches of 3 s and 4 s with a variation of 0.04 scatter by 1 s."""
    assert margin_s(True, 3.0**2 + 4.0**2, 0.04) == pytest.approx(0.5)
    assert margin_s(False, 25.0, 0.04) == 0.0


@given(st.floats(0.0, 100.0))
def test_certain_times_need_no_margin(squares_s2: float) -> None:
    assert margin_s(True, squares_s2, 0.0) == 0.0


@pytest.mark.parametrize(
    ("before_s", "left_s"), [([], 0.08), ([0.024], 0.08), ([0.024, 0.03], 0.12), ([0.02] * 3, 0.2)]
)
def test_the_probability_is_that_of_lognormal_batches(before_s: list[float], left_s: float) -> None:
    """It is within a point of random draws: consecutive batches whose p99 is three times the mean."""
    sigma, means_s = 0.55, [*before_s, 0.024]
    draws = np.random.default_rng(1).lognormal(-0.5 * sigma**2, sigma, (200_000, len(means_s))) @ np.array(means_s)
    expected = in_time_probability(sum(means_s), sum(s * s for s in means_s), math.expm1(sigma**2), left_s)
    assert expected == pytest.approx((draws <= left_s).mean(), abs=0.01)


def test_certain_times_are_in_time_or_not() -> None:
    assert in_time_probability(0.6, 1.0, 0.0, 0.6) == 1.0
    assert in_time_probability(0.7, 1.0, 0.0, 0.6) == 0.0
    assert in_time_probability(0.1, 1.0, 0.5, 0.0) == 0.0


def test_a_stricter_promise_passes_on_more() -> None:
    assert least_probability(0.98) == pytest.approx(0.95)
    assert least_probability(0.99) == pytest.approx(0.975)
    assert least_probability(1.0) == 1.0
    assert least_probability(0.5) == 0.85


def test_a_request_is_doubtful_compared_with_an_idle_instance() -> None:
    assert doubtful(0.9, 0.99, 0.95)
    assert not doubtful(0.95, 0.99, 0.95)
    assert not doubtful(0.8, 0.8, 0.95)  # no instance can do better: it does not stand idle
    assert not doubtful(0.0, 1.0, 0.0)


def test_half_of_the_allowed_late_requests_may_queue() -> None:
    assert late_share(0.98) == pytest.approx(0.01)
    assert late_share(0.999) == pytest.approx(0.0005)


def test_a_late_budget_is_never_negative_and_is_bounded() -> None:
    """Overload leaves no debt that would last after it, and calm hours save only 20 requests for a surge."""
    left = 0.0
    for _ in range(150):
        left = late_budget(left, 0.01)
    assert late_budget(left, -1.0) == pytest.approx(0.5)
    assert late_budget(0.5, -1.0) == 0.0
    for _ in range(10_000):
        left = late_budget(left, 0.01)
    assert left == 20.0


@pytest.mark.parametrize(
    ("left", "instance_s", "function_s", "queues"),
    [
        (1.0, 1.25, 1.5, True),
        (0.99, 1.1, 1.5, False),
        (20.0, 1.26, 1.5, False),
        (20.0, 1.2, 1.1, False),  # the client would wait longer than for the function
    ],
)
def test_a_late_request_queues_within_budget_and_time(
    left: float, instance_s: float, function_s: float, queues: bool
) -> None:
    assert queues_late(left, instance_s, function_s, 1.0) == queues
