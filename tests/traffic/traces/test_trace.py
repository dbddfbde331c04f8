"""Load on steps, drawn load and parts, beside naive loops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces import drawn_load, open_trace
from tests.traffic.traces.files import arrivals, counts_file
from tests.traffic.traces.test_counts import of


@settings(max_examples=40)
@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=200),
    start_s=st.integers(0, 30),
    absent=st.sets(st.integers(0, 199), max_size=30),
)
def test_load_agrees_with_a_loop_over_seconds(counts: list[int], start_s: int, absent: set[int]) -> None:
    kept = [s for s in range(len(counts)) if s == 0 or s not in absent]
    trace = of([float(counts[s]) for s in kept], 1.0, [float(s) for s in kept])
    end_s = len(counts)
    if start_s >= end_s:
        return
    load = trace.load(start_s, end_s, scale=2.0)
    assert (load.start_s, load.step_s, load.fine) == (start_s, 60.0, True)
    for k in range(math.ceil((end_s - start_s) / 60)):
        step = range(start_s + 60 * k, min(start_s + 60 * (k + 1), end_s))
        seen = [s for s in step if s in kept]
        if len(seen) < 0.5 * len(step):
            assert np.isnan(load.mean_rps[k])
            assert np.isnan(load.peak_rps[k])
            continue
        mean = 2.0 * sum(counts[s] for s in seen) / len(seen)
        assert load.mean_rps[k] == pytest.approx(mean)
        rates = [mean]
        for begin in range(step.start, step.stop, 5):
            window = [s for s in seen if begin <= s < begin + 5]
            if len(window) >= 2.5:
                rates.append(2.0 * sum(counts[s] for s in window) / len(window))
        assert load.peak_rps[k] == pytest.approx(max(rates))


def test_coarse_bins_know_no_peak_and_make_longer_steps() -> None:
    for bin_s, step_s in ((10.0, 60.0), (60.0, 60.0), (300.0, 300.0)):
        load = of([bin_s * 4.0] * 60, bin_s).load(0.0, bin_s * 60.0)
        assert (load.step_s, load.fine, len(load)) == (step_s, False, round(bin_s * 60.0 / step_s))
        np.testing.assert_allclose(load.mean_rps, 4.0)
        np.testing.assert_allclose(load.peak_rps, 4.0)


def test_drawn_load_agrees_with_counting_the_arrivals() -> None:
    trace = of([400.0, 900.0, 0.0, 300.0, 100.0], 60.0, [0.0, 60.0, 120.0, 300.0, 360.0])
    start_s, end_s = 30.0, 405.0
    load = drawn_load(trace, start_s, end_s, 1.5, 3)
    expected = trace.load(start_s, end_s, 1.5)
    assert (len(load), load.step_s, load.fine) == (len(expected), 60.0, True)
    np.testing.assert_array_equal(np.isnan(load.mean_rps), np.isnan(expected.mean_rps))
    times = arrivals(trace, start_s, end_s, 1.5, 3) - start_s
    per_window = np.histogram(times, bins=np.arange(0.0, 376.0, 5.0))[0]
    assert load.mean_rps[0] == per_window[:12].sum() / 60.0
    assert load.peak_rps[0] == per_window[:12].max() / 5.0
    assert load.mean_rps[-1] == pytest.approx(per_window[72:].sum() / 15.0)
    assert load.peak_rps[-1] == per_window[72:].max() / 5.0


def test_drawn_load_of_an_odd_step_keeps_every_arrival() -> None:
    trace = of([90.0, 45.0, 10.0], 63.0)
    load = drawn_load(trace, 0.0, 189.0)
    assert load.mean_rps.sum() * 63.0 == pytest.approx(len(arrivals(trace, 0.0, 189.0)))


def test_a_part_is_cut_and_counts_its_requests() -> None:
    trace = of([10.0, 20.0, 30.0], 60.0)
    part = trace.part(60.0, 1e6, 2.0)
    assert (part.start_s, part.end_s, part.duration_s, part.requests) == (60.0, 180.0, 120.0, 100.0)
    assert trace.part().end_s == 180.0


@pytest.mark.parametrize(
    ("start_s", "duration_s", "scale", "message"),
    [
        (180.0, None, 1.0, "start_s: beyond the end of test at 180 s: 180"),
        (-1.0, None, 1.0, "start_s: must be zero or more"),
        (math.nan, None, 1.0, "start_s: must be zero or more"),
        (0.0, -5.0, 1.0, "duration_s: must be above zero"),
        (0.0, 0.0, 1.0, "duration_s: must be above zero"),
        (0.0, None, 0.0, "scale: must be a number above zero"),
        (0.0, None, math.inf, "scale: must be a number above zero"),
        (0.0, None, 1e12, "more than 1e11 requests"),
        (60.0, 60.0, 1.0, "no requests between 60 and 120 s"),
    ],
)
def test_impossible_parts_are_refused(start_s: float, duration_s: float | None, scale: float, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        of([10.0, 0.0, 30.0], 60.0).part(start_s, duration_s, scale)


def test_long_loads_are_summed_in_pieces_without_a_seam(tmp_path: Path) -> None:
    trace = open_trace(counts_file(tmp_path, [(0, 60), (60, 120), (3_000_000, 60)]))
    load = trace.load(0.0, trace.duration_s)
    assert len(load) == 50_001
    assert list(np.flatnonzero(np.isfinite(load.mean_rps))) == [0, 1, 50_000]
