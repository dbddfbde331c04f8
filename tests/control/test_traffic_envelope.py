from __future__ import annotations

import numpy as np
import pytest

from mark.control.ports import WINDOW_S
from mark.control.traffic_envelope import surprise_rps, with_usual_peaks
from mark.domain.load import Forecast
from mark.traffic.forecast.conditioning import condition_on_rate


def poisson(rate_rps: float, windows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate_rps * WINDOW_S, windows) / WINDOW_S


@pytest.mark.parametrize("rate_rps", [0.5, 20.0, 400.0])
def test_poisson_arrivals_at_the_expected_rate_rarely_surprise(rate_rps: float) -> None:
    """Three windows of five deviations each: far below one look in a thousand, counted over a day of looks."""
    rates = poisson(rate_rps, 17_280)
    alarms = sum(surprise_rps(rates[max(0, i - 8) : i], rate_rps) is not None for i in range(len(rates)))
    assert alarms < 17


@pytest.mark.parametrize("times", [1.5, 2.0, 5.0])
def test_a_surge_is_seen_within_ten_seconds_and_measured(times: float) -> None:
    """At 100 requests/s half as much again is five deviations of a 10 s count."""
    for seed in range(50):
        seen = surprise_rps(np.concatenate([poisson(100.0, 6, seed), poisson(100.0 * times, 2, seed + 99)]), 100.0)
        assert seen == pytest.approx(100.0 * times, rel=0.15)


def test_a_small_rise_needs_a_longer_window_to_surprise() -> None:
    assert surprise_rps(np.full(2, 110.0), 100.0) is None
    assert surprise_rps(np.full(8, 110.0), 100.0) == 110.0
    assert surprise_rps(np.full(8, 10.0), 100.0) is None


def test_a_few_requests_at_zero_forecast_are_no_surprise() -> None:
    """Five deviations of almost zero are five requests."""
    assert surprise_rps(np.array([0.0, 1.0]), 0.0) is None
    assert surprise_rps(np.array([0.0, 1.2]), 0.0) == pytest.approx(0.6)


def test_foreseen_burst_surprises_only_beyond_the_minutes_requests() -> None:
    """A minute with 20 requests/s on average and a peak of 100 has a burst of 12 s; twice as high or long is more."""
    foreseen = {"mean_rps": 20.0, "peak_rps": 100.0}
    assert surprise_rps(np.full(2, 100.0), 20.0) == 100.0
    assert surprise_rps(np.full(2, 100.0), 20.0, **foreseen) is None
    assert surprise_rps(np.full(2, 200.0), 20.0, **foreseen) == 200.0
    assert surprise_rps(np.full(4, 100.0), 20.0, **foreseen) == 100.0


def test_missing_windows_are_never_a_surprise() -> None:
    assert surprise_rps(np.empty(0), 1.0) is None
    assert surprise_rps(np.array([500.0]), 1.0) is None
    assert surprise_rps(np.array([500.0, np.nan]), 1.0) is None
    assert surprise_rps(np.array([np.nan, 500.0, 500.0]), 1.0) == 500.0


def test_quantiles_that_foresaw_a_surge_keep_their_peaks() -> None:
    """The median rises fourfold; a minute of 120/s had peaks of 150, and has them still."""
    mean = np.repeat([[20.0], [30.0], [120.0]], 40, axis=1)
    usual = Forecast(0.0, 60.0, np.array([0.1, 0.5, 0.9]), mean, mean * 1.25, "stand-in", None)
    raised = condition_on_rate(usual, 120.0)
    assert raised.peak_at(0.9)[0] > 400.0
    assert with_usual_peaks(raised, usual).peak_at(0.9)[0] == pytest.approx(150.0)


@pytest.mark.parametrize(("rate_rps", "peak_rps"), [(100.0, 300.0), (2000.0, 2020.0)])
def test_unforeseen_surge_has_peaks_in_proportion(rate_rps: float, peak_rps: float) -> None:
    """A hundred times the rate that was expected says nothing about its peaks."""
    mean = np.full((2, 40), 10.0)
    usual = Forecast(0.0, 60.0, np.array([0.1, 0.9]), mean, mean + 20.0, "stand-in", None)
    found = with_usual_peaks(condition_on_rate(usual, rate_rps), usual)
    assert found.peak_at(0.5)[0] == pytest.approx(peak_rps)
