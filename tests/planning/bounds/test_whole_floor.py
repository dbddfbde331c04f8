"""The floor of a whole instance: never above the cheapest schedule there is, near its bill where requests are dense."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.bounds.whole_floor import WholeFloor, whole_floor

BINS, STEPS = 5, 10  # of one second, of half a second


def cheapest_usd(
    arrivals_s: list[float], start_usd: float, function_usd: float, warm_start: bool, late_allowed: int
) -> float:
    """By every way to have an instance or none in steps of half a second; a bin costs a dollar.

    An instance answers any number of requests at once, in no time: what really serves them costs more.
    """
    least = math.inf
    for on in itertools.product((False, True), repeat=STEPS):
        starts = sum(now and not before for before, now in itertools.pairwise((warm_start and on[0], *on)))
        without = 0
        for arrival_s in arrivals_s:
            first, last = int(2 * arrival_s), min(STEPS - 1, int(2 * (arrival_s + 1.0)))
            without += not any(on[first : last + 1])
        to_functions = max(0, without - late_allowed)
        if to_functions and function_usd == math.inf:
            continue
        called = to_functions * function_usd if to_functions else 0.0
        least = min(least, 0.5 * sum(on) + starts * start_usd + called)
    return least


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    arrivals_s=st.lists(st.sampled_from([0.1 * k for k in range(10 * (BINS - 1))]), max_size=4),
    start_usd=st.sampled_from([0.0, 1.9, 2.0, 2.5, 4.0]),
    function_usd=st.sampled_from([0.05, 0.4, 2.0, math.inf]),
    warm_start=st.booleans(),
    late_allowed=st.integers(0, 3),
)
def test_floor_is_never_above_the_cheapest_schedule(
    arrivals_s: list[float], start_usd: float, function_usd: float, warm_start: bool, late_allowed: int
) -> None:
    counts = np.bincount([int(at) for at in arrivals_s], minlength=BINS - 1).astype(float)
    floor = whole_floor(
        counts,
        bin_usd=1.0,
        start_usd=start_usd,
        function_usd=function_usd,
        warm_start=warm_start,
        late_allowed=late_allowed,
    )
    assert floor.usd >= 0.0
    assert floor.usd <= cheapest_usd(arrivals_s, start_usd, function_usd, warm_start, late_allowed) + 1e-9


def floor_of(counts: np.ndarray, late_allowed: float = 0.0, function_usd: float = math.inf) -> WholeFloor:
    """An instance that costs a dollar a second and 40 of them to start."""
    return whole_floor(
        counts, bin_usd=1.0, start_usd=40.0, function_usd=function_usd, warm_start=True, late_allowed=late_allowed
    )


def test_dense_requests_keep_an_instance_for_all_of_their_time() -> None:
    counts = np.full(10_000, 10.0)
    assert floor_of(counts).usd == pytest.approx(10_000, rel=0.001)
    # A fiftieth may be late: all of the requests of one stretch, in which the instance is off.
    assert floor_of(counts, late_allowed=2000.0).usd == pytest.approx(9_800, rel=0.01)


def test_sparse_requests_let_an_instance_be_off_between_them() -> None:
    counts = np.zeros(10_000)
    counts[::1000] = 1.0
    # Each but the first, which the fleet of the beginning serves, costs a start less what a bin's width leaves open.
    assert floor_of(counts).usd == pytest.approx(9 * 40.0, rel=0.05)
    counts[::20] = 1.0  # a start costs more than twenty seconds
    assert floor_of(counts).usd == pytest.approx(10_000, rel=0.01)


def test_functions_take_what_is_too_little_for_an_instance() -> None:
    counts = np.full(10_000, 10.0)
    calls = floor_of(counts, function_usd=0.05)
    assert (calls.usd, calls.functions) == pytest.approx((5_000, 100_000), rel=0.001)
    calls = floor_of(counts, late_allowed=2000.0, function_usd=0.05)
    assert (calls.usd, calls.functions) == pytest.approx((4_900, 98_000), rel=0.001)
    assert floor_of(counts, function_usd=0.5).usd == pytest.approx(10_000, rel=0.001)


def test_starts_that_cost_nothing_need_no_instance() -> None:
    free = whole_floor(np.ones(100), bin_usd=1.0, start_usd=1.0, function_usd=math.inf, warm_start=False)
    assert free == WholeFloor(0.0)
