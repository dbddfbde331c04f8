"""The busiest window: against a loop over all of them, longer where it holds too little, whole where it is too long."""

from __future__ import annotations

import numpy as np
import pytest

from mark.traffic.traces.busiest import busiest_window
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.trace import Part, Trace


def trace(*counts: float) -> Trace:
    return trace_of_bins("t", np.arange(0.0, 10.0 * len(counts), 10.0), np.array(counts, dtype=np.float64), 10.0)


def test_no_window_holds_more() -> None:
    rng = np.random.default_rng(2)
    counted = trace(*rng.integers(0, 50, size=100).tolist())
    part = counted.part(200.0, 700.0)
    found = busiest_window(counted, part, 120.0)
    assert found.duration_s == 120.0
    assert part.start_s <= found.start_s <= part.end_s - 120.0
    most = max(counted.total_counts(start_s, start_s + 120.0) for start_s in np.arange(200.0, 781.0, 10.0))
    assert found.requests == pytest.approx(most) == pytest.approx(counted.total_counts(found.start_s, found.end_s))


def test_of_equals_the_first() -> None:
    steady = trace(*[3.0] * 60)
    assert busiest_window(steady, steady.part(60.0), 120.0) == Part(60.0, 180.0, 36.0)


def test_a_window_of_few_requests_is_made_longer() -> None:
    steady = trace(*[3.0] * 60)
    assert busiest_window(steady, steady.part(), 60.0, fewest=30.0).duration_s == 120.0
    assert busiest_window(steady, steady.part(), 60.0, fewest=30.0, scale=2.0).duration_s == 60.0


def test_a_short_part_is_its_own_busiest_window() -> None:
    steady = trace(*[3.0] * 60)
    part = steady.part(0.0, 100.0)
    assert busiest_window(steady, part, 120.0) == part
    assert busiest_window(steady, steady.part(), 120.0, fewest=1e6) == steady.part()
