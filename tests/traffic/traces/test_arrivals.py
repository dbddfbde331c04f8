"""Arrivals files: exact at scale 1, otherwise repeated and jittered; streamed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces import drawn_load, open_trace, trace_info
from mark.traffic.traces.arrivals import ArrivalReplay, trace_of
from mark.traffic.traces.table_files import TableColumns
from tests.traffic.traces.files import arrivals, arrivals_file, written


def test_an_arrivals_file_is_replayed_as_it_is(tmp_path: Path) -> None:
    text = "t_seconds,tokens,status\n100.5,17,ok\n100.5,4,\n101.25,0,late, very\n170,1,ok\n"
    trace = open_trace(written(tmp_path, text, "a.csv.gz"))
    assert (trace.kind, trace.bin_s, trace.duration_s, trace.rows) == ("arrivals", 1.0, 70.0, 4)
    assert trace.notes == ("request size columns kept aside: tokens, status",)
    np.testing.assert_array_equal(arrivals(trace, 0.0, 70.0, seed=9), [0.0, 0.0, 0.75, 69.5])
    np.testing.assert_array_equal(arrivals(trace, 0.5, 69.5), [0.75])
    load = trace.load(0.0, 70.0)
    np.testing.assert_allclose(load.mean_rps, [3 / 60, 1 / 10])
    np.testing.assert_allclose(load.peak_rps, [3 / 5, 1 / 5])
    np.testing.assert_allclose(drawn_load(trace, 0.0, 70.0).peak_rps, load.peak_rps)


@pytest.mark.parametrize(("first_s", "began_s"), [(1_777_629_600.25, 1_777_629_600.25), (5.0, None)])
def test_arrivals_with_unix_times_are_dated(tmp_path: Path, first_s: float, began_s: float | None) -> None:
    assert open_trace(arrivals_file(tmp_path, [first_s, first_s + 9.0])).began_s == began_s


def test_one_request_is_a_trace_of_a_minute(tmp_path: Path) -> None:
    trace = open_trace(arrivals_file(tmp_path, [5.0]))
    assert trace.duration_s == 60.0
    np.testing.assert_array_equal(arrivals(trace, 0.0, 60.0), [0.0])
    assert trace_info(trace)["cv"] is None


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.3, 2.0, 400.0]), min_size=1, max_size=40),
    scale=st.sampled_from([0.3, 1.0, 1.5, 2.0, 7.25]),
    cut=st.floats(0.01, 0.99),
    blocks=st.integers(1, 5),
)
def test_parts_and_blocks_change_nothing(gaps: list[float], scale: float, cut: float, blocks: int) -> None:
    """How the file is cut into blocks, and the trace into parts, does not show in the arrivals."""
    times = np.cumsum([0.0, *gaps])
    pieces = [piece for piece in np.array_split(times, blocks) if len(piece)]
    trace = trace_of("t", lambda: iter(pieces), notes=lambda: ())
    whole = arrivals(trace, 0.0, trace.duration_s, scale, 5)
    in_one = arrivals(trace_of("t", lambda: iter([times]), notes=lambda: ()), 0.0, trace.duration_s, scale, 5)
    np.testing.assert_array_equal(whole, in_one)
    middle = cut * trace.duration_s
    parts = [arrivals(trace, 0.0, middle, scale, 5), arrivals(trace, middle, trace.duration_s, scale, 5)]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-9)
    if scale == 1.0:
        np.testing.assert_array_equal(whole, times)
    else:
        # Each request occurs floor(scale) times or once more, and none is lost at the trace's ends.
        assert math.floor(scale) * len(times) <= len(whole) <= math.ceil(scale) * len(times)


def test_copies_stay_within_half_a_second() -> None:
    times = np.arange(0.0, 200_000.0, 10.0)
    trace = trace_of("t", lambda: iter([times]), notes=lambda: ())
    copies = arrivals(trace, 0.0, trace.duration_s, 1.4, 1)
    assert abs(len(copies) - 28_000) < 5.0 * math.sqrt(20_000 * 0.4 * 0.6)
    away = np.abs(copies - np.round(copies / 10.0) * 10.0)
    assert away.max() <= 0.5
    assert abs(away.mean() - 0.25) < 0.005


def test_many_requests_at_once_come_in_chunks_of_bounded_size() -> None:
    times = np.concatenate((np.zeros(1_000_000), np.linspace(0.0, 100.0, 4_500_000), np.full(10, 100.0)))
    sizes = [len(chunk) for chunk, _ in ArrivalReplay(lambda: iter([times]), 101.0, 2e6).chunks(0.0, 101.0, 1.0, 0)]
    assert sum(sizes) == len(times)
    assert max(sizes) <= 4_000_000
    assert len(sizes) >= 3


def test_a_scale_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    trace = open_trace(arrivals_file(tmp_path, [0.0, 1.0]))
    with pytest.raises(BadInput, match="scale: too large"):
        trace.chunks(0.0, 60.0, 1e9, 0)


def test_a_silent_time_is_no_gap(tmp_path: Path) -> None:
    trace = open_trace(arrivals_file(tmp_path, [0.0, 1.0, 400.0]))
    assert trace.gaps == ()
    np.testing.assert_allclose(trace.load(0.0, 360.0).mean_rps, [2 / 60, 0, 0, 0, 0, 0])
    assert trace.total_counts(60.0, 360.0) == 0.0


@pytest.mark.parametrize("name", ["checkout_requests", "mobile_requests"])
def test_requests_of_a_part_beside_times_are_asked_about(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"t_seconds,{name}\n" + "".join(f"{i * 2.3 + i * i % 3},{100 + i * 37 % 11}\n" for i in range(40)))
    with pytest.raises(BadInput, match=f"does {name} count the requests of each row\\? Say `count_column` {name}, or"):
        open_trace(str(path))


@pytest.mark.parametrize("name", ["value", "load", "tokens"])
@pytest.mark.parametrize("step_s", [1, 60])
def test_rows_at_a_fixed_step_beside_a_number_are_asked_about(tmp_path: Path, name: str, step_s: int) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"t_seconds,{name}\n" + "".join(f"{i * step_s},{100 + i * 37 % 11}\n" for i in range(40)))
    with pytest.raises(BadInput, match=f"does {name} count the requests of each row\\? Say `count_column` {name}, or"):
        open_trace(str(path))
    counted = open_trace(str(path), columns=TableColumns(count=name))
    assert counted.total_counts(0.0, counted.duration_s) == sum(100 + i * 37 % 11 for i in range(40))
    assert open_trace(str(path), columns=TableColumns(count="none")).rows == 40
