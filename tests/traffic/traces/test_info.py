"""The numbers of `mark trace info` equal a naive count of the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.traffic.traces import open_trace, trace_info
from tests.traffic.traces.files import counts_file, written


def arrivals_of(folder: Path, times_s: list[float]) -> str:
    return written(folder, "t_seconds\n" + "".join(f"{t:.3f}\n" for t in times_s))


def test_arrivals_are_described_by_whole_minutes_and_their_waits(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    times = np.round(np.cumsum(rng.exponential(0.5, 1400)), 3)
    times -= times[0]
    info = trace_info(open_trace(arrivals_of(tmp_path, times.tolist())))
    length_s = np.floor(times[-1]) + 1
    per_minute = [np.sum((times >= 60 * k) & (times < 60 * k + 60)) for k in range(int(length_s // 60))]
    waits = np.diff(times)
    assert (info["requests"], info["duration_s"], info["mean_rps"]) == (1400, length_s, 1400 / length_s)
    assert info["idc"] == pytest.approx(np.var(per_minute) / np.mean(per_minute))
    assert info["cv"] == pytest.approx(np.std(waits) / np.mean(waits), rel=1e-3)


def test_the_peak_of_arrivals_may_be_in_the_last_cut_minute(tmp_path: Path) -> None:
    times = [10.0 * k for k in range(6)] + [60.0 + 0.05 * k for k in range(590)]
    info = trace_info(open_trace(arrivals_of(tmp_path, times)))
    assert info["duration_s"] == 90.0
    assert info["peak_rps"] == pytest.approx(593 / 60)


@pytest.mark.parametrize("gaps", ["bridge", "zero"])
def test_absent_bins_are_empty_or_unknown(tmp_path: Path, gaps: str) -> None:
    counts = [100 + 37 * k % 51 for k in range(30)]
    rows = [(60.0 * k, float(n)) for k, n in enumerate(counts) if k not in (5, 6, 20)]
    info = trace_info(open_trace(counts_file(tmp_path, rows), gaps=gaps))
    known = [n for _, n in rows] + [0.0] * (3 if gaps == "zero" else 0)
    assert info["requests"] == sum(known)
    assert info["mean_rps"] == pytest.approx(np.mean(known) / 60)
    assert info["cv"] == pytest.approx(np.std(known) / np.mean(known))
    assert info["idc"] == pytest.approx(np.var(known) / np.mean(known))
