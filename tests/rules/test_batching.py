"""Batch closing: when a batch starts, and who may still join."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.rules.batching import joins, start_s

times = st.floats(0.0, 100.0)


@pytest.mark.parametrize(
    ("free_s", "oldest_s", "window_s", "start"),
    [(5.0, 3.0, 0.0, 5.0), (1.0, 3.0, 0.0, 3.0), (1.0, 3.0, 0.5, 3.5), (5.0, 3.0, 0.5, 5.0)],
)
def test_a_batch_waits_for_worker_and_window(free_s: float, oldest_s: float, window_s: float, start: float) -> None:
    """The later of both; without a window an idle worker takes what is there."""
    assert start_s(free_s, oldest_s, window_s) == start


def test_who_would_break_a_promise_does_not_join() -> None:
    """The oldest request came at 0 and may take 0.6 s; the batch starts at 0.2 s."""
    assert joins(0.2, 0.3, 0.4, 0.3, 0.0, 0.0, 0.6)
    assert not joins(0.2, 0.3, 0.4, 0.3, 0.0, 0.05, 0.6)  # the overhead counts
    assert not joins(0.2, 0.3, 0.45, 0.3, 0.0, 0.0, 0.6)


def test_who_is_faster_in_a_batch_of_its_own_does_not_join() -> None:
    """No gain in batching: 0.3 s for one and 0.7 s for two."""
    assert not joins(0.0, 0.3, 0.7, 0.3, 0.0, 0.0, 10.0)
    assert joins(0.0, 0.3, 0.6, 0.3, 0.0, 0.0, 10.0)  # equal: better to join, the worker is free sooner


@given(times, times, times, times, times, times, st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_a_longer_horizon_lets_no_fewer_join(
    start: float,
    now_s: float,
    joined_s: float,
    alone_s: float,
    oldest_s: float,
    overhead_s: float,
    horizon_s: float,
    more_s: float,
) -> None:
    """Monotone in the promise."""
    if joins(start, now_s, joined_s, alone_s, oldest_s, overhead_s, horizon_s):
        assert joins(start, now_s, joined_s, alone_s, oldest_s, overhead_s, horizon_s + more_s)
