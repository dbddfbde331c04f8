from __future__ import annotations

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.traffic.forecast.perfect import PerfectPredictor

NAN = float("nan")


def count_up(begin: int, end: int) -> Load:
    """Step k has the rate k and the peak 2 k."""
    steps = np.arange(begin, end, dtype=np.float64)
    return Load(60.0 * begin, 60.0, steps, 2.0 * steps)


def test_the_kth_answer_is_k() -> None:
    """The truth of step k is k, so a shift would show: step 0 of a forecast begins where observation ends."""
    predictor = PerfectPredictor(count_up(0, 100))
    predictor.fit(count_up(-5, 0))
    assert predictor.predict(3).mean_at(0.5).tolist() == [0.0, 1.0, 2.0]
    for k in range(50):
        predictor.update(count_up(k, k + 1))
        forecast = predictor.predict(4)
        assert forecast.origin_s == 60.0 * (k + 1)
        for level in (0.05, 0.5, 0.95):
            assert forecast.mean_at(level).tolist() == [k + 1, k + 2, k + 3, k + 4]
            assert forecast.peak_at(level).tolist() == [2 * k + 2, 2 * k + 4, 2 * k + 6, 2 * k + 8]


def test_beyond_the_end_the_last_value_stays() -> None:
    """The horizon reaches over the end of the trace."""
    predictor = PerfectPredictor(count_up(0, 3))
    predictor.fit(count_up(0, 2))
    assert predictor.predict(4).mean_at(0.5).tolist() == [2.0, 2.0, 2.0, 2.0]


def test_gaps_are_bridged_by_the_value_before() -> None:
    """A missing step does not count as zero."""
    truth = Load(0.0, 60.0, np.array([NAN, 3.0, NAN, 5.0]), np.array([NAN, 4.0, NAN, 6.0]))
    predictor = PerfectPredictor(truth)
    predictor.fit(Load(0.0, 60.0, np.empty(0), np.empty(0)))
    assert predictor.predict(4).mean_at(0.5).tolist() == [0.0, 3.0, 3.0, 5.0]


def test_an_origin_off_the_grid_is_an_error() -> None:
    """Half a step of shift would make the truth wrong."""
    predictor = PerfectPredictor(count_up(0, 3))
    predictor.fit(Load(0.0, 30.0, np.ones(1), np.ones(1)))
    with pytest.raises(BadInput, match="grid"):
        predictor.predict(1)
