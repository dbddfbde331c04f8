"""The sample traces are small, and their recipe reproduces them."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from mark.traffic.traces import open_trace
from tests.traffic.traces.files import arrivals

SAMPLES = Path(__file__).parents[3] / "traces"


@pytest.mark.slow
def test_the_recipe_makes_the_sample_traces_again(tmp_path: Path) -> None:
    runpy.run_path(str(SAMPLES / "make_samples.py"))["main"](tmp_path)
    for name in ("diurnal_day_5s.csv.gz", "alb_sample.log.gz"):
        shipped, made = open_trace(str(SAMPLES / name)), open_trace(str(tmp_path / name))
        assert shipped.duration_s == made.duration_s
        np.testing.assert_allclose(made.series.counts, shipped.series.counts)
        assert (SAMPLES / name).stat().st_size < 200_000


def test_the_day_is_of_160_requests_a_second_without_gaps() -> None:
    day = open_trace(str(SAMPLES / "diurnal_day_5s.csv.gz"))
    assert (day.bin_s, day.duration_s, day.gaps) == (5.0, 86400.0, ())
    assert day.total_counts(0.0, 86400.0) / 86400.0 == pytest.approx(160.0, rel=0.05)


def test_the_log_sample_is_an_alb_log() -> None:
    log = open_trace(str(SAMPLES / "alb_sample.log.gz"))
    assert log.notes == ("ALB access log",)
    assert len(arrivals(log, 0.0, log.duration_s)) == 500
