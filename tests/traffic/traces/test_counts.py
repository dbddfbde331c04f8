"""Count files: reading, gaps, and drawn arrivals."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.counts import PoissonBins
from mark.traffic.traces.series import Series
from mark.traffic.traces.trace import Trace
from tests.traffic.traces.files import arrivals, counts_file, written


def of(counts: list[float], bin_s: float, starts: list[float] | None = None) -> Trace:
    begins = np.array([k * bin_s for k in range(len(counts))] if starts is None else starts, dtype=np.float64)
    series = Series.of(begins, np.array(counts, dtype=np.float64), bin_s, silent=False)
    return Trace("test", "counts", bin_s, float(begins[-1]) + bin_s, len(counts), series, PoissonBins(series))


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz", "without-a-suffix"])
def test_a_count_file_is_read_plain_and_packed(tmp_path: Path, name: str) -> None:
    trace = open_trace(counts_file(tmp_path, [(100, 3), (110, 0), (120, 7.5)], name))
    assert (trace.kind, trace.bin_s, trace.first_s, trace.duration_s, trace.rows) == ("counts", 10.0, 0.0, 30.0, 3)
    assert (trace.name, trace.gaps, trace.notes) == (name, (), ())
    assert trace.total_counts(0.0, 30.0) == 10.5
    assert trace.total_counts(5.0, 22.0, scale=2.0) == pytest.approx(2.0 * (1.5 + 1.5))


def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbft_seconds,count\r\n0,1\r\n60,2\r\n\r\n"
    assert open_trace(written(tmp_path, text)).total_counts(0.0, 120.0) == 3.0


def test_one_row_is_a_bin_of_a_minute(tmp_path: Path) -> None:
    trace = open_trace(counts_file(tmp_path, [(7, 5)]))
    assert (trace.bin_s, trace.duration_s) == (60.0, 60.0)


def test_each_way_with_gaps(tmp_path: Path) -> None:
    path = counts_file(tmp_path, [(0, 60), (60, 120), (240, 300), (300, 60)])
    bridged = open_trace(path)
    assert bridged.gaps == ((120.0, 240.0),)
    assert bridged.notes == ("1 gap bridged, 120 s in all, the longest 120 s from second 120",)
    np.testing.assert_array_equal(bridged.load(0, 360).mean_rps, [1, 2, np.nan, np.nan, 5, 1])
    np.testing.assert_array_equal(open_trace(path, gaps="zero").load(0, 360).mean_rps, [1, 2, 0, 0, 5, 1])
    filled = open_trace(path, gaps="interpolate")
    np.testing.assert_allclose(filled.load(0, 360).mean_rps, [1, 2, 3, 4, 5, 1])
    assert filled.gaps == ()
    with pytest.raises(BadInput, match="`gaps` is fail"):
        open_trace(path, gaps="fail")
    for gaps in ("bridge", "zero"):
        times = arrivals(open_trace(path, gaps=gaps), 0.0, 360.0)
        assert not np.any((times >= 120.0) & (times < 240.0))
    # The file's bins draw the same arrivals however the gap is handled.
    filled_times = arrivals(filled, 0.0, 360.0)
    np.testing.assert_array_equal(filled_times[(filled_times < 120) | (filled_times >= 240)], times)


def test_jittered_stamps_leave_no_gaps(tmp_path: Path) -> None:
    """A bin reaches to the next one's start unless half a bin or more is absent."""
    trace = open_trace(counts_file(tmp_path, [(0, 60), (60, 64), (124, 56), (180, 60), (240, 60)]))
    assert (trace.bin_s, trace.gaps) == (56.0, ())
    np.testing.assert_allclose(trace.load(0, 240).mean_rps, 1.0)


def test_a_huge_gap_needs_no_memory(tmp_path: Path) -> None:
    trace = open_trace(counts_file(tmp_path, [(0, 1), (0.01, 1), (3e8, 1)]))
    assert trace.gaps == ((0.01 + 0.01, 3e8),)
    assert trace.total_counts(0.0, trace.duration_s) == 3.0
    with pytest.raises(BadInput, match="too many bins"):
        open_trace(counts_file(tmp_path, [(0, 1), (0.01, 1), (3e8, 1)]), gaps="interpolate")
    with pytest.raises(BadInput, match="ten years"):
        open_trace(counts_file(tmp_path, [(0, 1), (1, 1), (1.7e9, 1)]))


@settings(max_examples=40)
@given(
    counts=st.lists(st.floats(0.0, 9000.0), min_size=1, max_size=12),
    bin_s=st.sampled_from([0.25, 1.0, 7.0, 60.0, 1800.0]),
    cuts=st.lists(st.floats(0.0, 1.0), max_size=3),
    seed=st.integers(0, 2**63),
)
def test_a_part_holds_what_the_whole_holds_there(
    counts: list[float], bin_s: float, cuts: list[float], seed: int
) -> None:
    """The place of a cut does not change the arrivals (docs/semantics.md, 1)."""
    trace = of(counts, bin_s)
    whole = arrivals(trace, 0.0, trace.duration_s, 1.3, seed)
    edges = [0.0, *sorted({cut * trace.duration_s for cut in cuts} - {0.0, trace.duration_s}), trace.duration_s]
    parts = [arrivals(trace, a, b, 1.3, seed) for a, b in pairwise(edges)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0.0, atol=1e-9 * trace.duration_s)


def test_the_number_drawn_is_poisson_about_count_times_scale() -> None:
    trace = of([40.0] * 4000, 1.0)
    per_bin = np.bincount(arrivals(trace, 0.0, 4000.0, 2.5, 4).astype(int), minlength=4000)
    assert abs(per_bin.mean() - 100.0) < 5.0 * math.sqrt(100.0 / 4000)
    assert abs(per_bin.var() / 100.0 - 1.0) < 5.0 * math.sqrt(2.0 / 4000)


def test_same_seed_same_arrivals_other_seed_others() -> None:
    trace = of([500.0, 20.0], 10.0)
    first = arrivals(trace, 0.0, 20.0, seed=1)
    np.testing.assert_array_equal(first, arrivals(trace, 0.0, 20.0, seed=1))
    assert not np.array_equal(first[:10], arrivals(trace, 0.0, 20.0, seed=2)[:10])
    assert len(arrivals(trace, 0.0, 20.0, seed=-1))


def test_a_chunk_is_never_large_however_dense_the_trace() -> None:
    trace = of([3e9], 60.0)
    sizes = []
    for times, until_s in trace.chunks(0.0, 0.2, 1.0, 0):
        sizes.append(len(times))
        assert until_s <= 0.2
    assert max(sizes) <= 4_000_000
    assert sum(sizes) == pytest.approx(1e7, rel=0.002)


def test_a_last_count_that_lost_digits_is_left_out(tmp_path: Path) -> None:
    text = "t_seconds,count\n0,1000\n60,1001\n120,1002\n180,10"
    trace = open_trace(written(tmp_path, text))
    assert (trace.duration_s, trace.total_counts(0.0, 180.0)) == (180.0, 3003.0)
    assert trace.notes == ("the last line may be cut within its number and is left out: 10",)
    assert open_trace(written(tmp_path, text + "\n")).total_counts(0.0, 240.0) == 3013.0
    assert open_trace(written(tmp_path, text + "03")).total_counts(0.0, 240.0) == 4006.0
