"""Batch closing: when a batch starts, and which requests may still join."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.rules.batching import joins, reserve_s, start_s

times = st.floats(0.0, 100.0)


@pytest.mark.parametrize(
    ("free_s", "oldest_s", "window_s", "start"),
    [(5.0, 3.0, 0.0, 5.0), (1.0, 3.0, 0.0, 3.0), (1.0, 3.0, 0.5, 3.5), (5.0, 3.0, 0.5, 5.0)],
)
def test_a_batch_waits_for_worker_and_window(free_s: float, oldest_s: float, window_s: float, start: float) -> None:
    """It starts at the later of both; without a window an idle worker takes the queued requests."""
    assert start_s(free_s, oldest_s, window_s) == start


def test_a_request_that_would_break_a_promise_does_not_join() -> None:
    """The oldest request came at 0 and may take 0.6 s; the batch starts at 0.2 s."""
    assert joins(0.2, 0.3, 0.4, 0.3, 0.0, 0.0, 0.6)
    assert not joins(0.2, 0.3, 0.4, 0.3, 0.0, 0.05, 0.6)  # the overhead counts
    assert not joins(0.2, 0.3, 0.45, 0.3, 0.0, 0.0, 0.6)


def test_a_request_faster_on_its_own_does_not_join() -> None:
    """No gain in batching: 0.3 s for one and 0.7 s for two."""
    assert not joins(0.0, 0.3, 0.7, 0.3, 0.0, 0.0, 10.0)
    assert joins(0.0, 0.3, 0.6, 0.3, 0.0, 0.0, 10.0)  # equal: better to join, the worker is free sooner


def test_a_broken_promise_keeps_no_request_out() -> None:
    """The oldest is late already: those behind it may as well be served together."""
    assert joins(0.7, 0.3, 0.4, 0.3, 0.0, 0.0, 0.6)


@given(times, times, times, times, times, times, times)
def test_joining_breaks_no_promise(
    start: float,
    now_s: float,
    joined_s: float,
    alone_s: float,
    oldest_s: float,
    overhead_s: float,
    horizon_s: float,
) -> None:
    """A request that was in time before another joined still is."""
    before, after = (start + service + overhead_s - oldest_s for service in (now_s, joined_s))
    if before <= horizon_s and joins(start, now_s, joined_s, alone_s, oldest_s, overhead_s, horizon_s):
        assert after <= horizon_s + 2 * TOLERANCE_S


def test_a_bouncer_reserves_time_for_requests_that_may_join() -> None:
    """A waiting batch is admitted as if it were full; a batch that starts immediately is admitted as it is."""
    assert reserve_s(True, 0.1, 0.4) == pytest.approx(0.3)
    assert reserve_s(False, 0.1, 0.4) == 0.0
