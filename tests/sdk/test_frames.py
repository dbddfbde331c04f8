"""Traffic from a notebook: frames and series simulate as the same table in a file does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mark
from mark.domain.errors import BadInput
from mark.sdk.frames import write_frame
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.trace import Trace

MINUTES = pd.date_range("2026-11-20 10:00", periods=30, freq="min")
COUNTS = np.arange(60, 90)


def read(frame: object, folder: Path) -> Trace:
    return open_trace(str(write_frame(frame, folder)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(pd.Series(COUNTS, index=MINUTES), id="series"),
        pytest.param(pd.Series(COUNTS, index=MINUTES.tz_localize("UTC"), name="requests"), id="zone"),
        pytest.param(pd.DataFrame({"requests": COUNTS, "errors": 0}, index=MINUTES), id="index"),
        pytest.param(pd.DataFrame({"timestamp": MINUTES, "hits": COUNTS}), id="column"),
        pytest.param(pd.DataFrame({"ts": 1_795_300_020 + 60 * np.arange(30), "count": COUNTS}), id="epoch"),
        pytest.param(pd.DataFrame({"a, b": "x", "time": MINUTES, "count": COUNTS}), id="comma"),
    ],
)
def test_counts_are_the_frame_s(frame: object, tmp_path: Path) -> None:
    trace = read(frame, tmp_path)
    assert (trace.total_counts(0.0, trace.duration_s), trace.bin_s) == (COUNTS.sum(), 60.0)


def test_a_frame_of_times_alone_is_a_row_a_request(tmp_path: Path) -> None:
    at_any_time = MINUTES + pd.to_timedelta(np.arange(30) ** 2 % 53, unit="s")
    trace = read(pd.DataFrame({"timestamp": at_any_time}), tmp_path)
    assert (trace.kind, trace.total_counts(0.0, trace.duration_s)) == ("arrivals", 30)


def test_a_service_takes_a_frame_and_its_file_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"time": MINUTES, "count": 60 * COUNTS})
    frame.to_csv(tmp_path / "frame.csv", index=False)
    service = mark.Service("inception-v3-2026")
    ours = service.simulate(frame, "fixed:c8g.large=20", predictor="seasonal-naive", with_bound=False)
    theirs = service.simulate(
        tmp_path / "frame.csv", "fixed:c8g.large=20", predictor="seasonal-naive", with_bound=False
    )
    assert (ours.bill, ours.requests, ours.latency_ms) == (theirs.bill, theirs.requests, theirs.latency_ms)
    assert ours.trace.name == "DataFrame"


def test_two_frames_of_one_service_do_not_mix() -> None:
    service = mark.Service("inception-v3-2026")
    totals = [
        service.simulate(pd.Series(counts, index=MINUTES), "fixed:c8g.large=20", with_bound=False).requests.total
        for counts in (COUNTS, 4 * COUNTS)
    ]
    assert 3.5 < totals[1] / totals[0] < 4.5


@pytest.mark.parametrize("trace", [[1, 2, 3], None, 7])
def test_what_is_no_traffic_is_one_line(trace: object) -> None:
    with pytest.raises(BadInput, match="a DataFrame or a Series"):
        mark.Service("inception-v3-2026").simulate(trace)  # type: ignore[arg-type]
