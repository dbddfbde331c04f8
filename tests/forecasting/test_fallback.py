from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.forecasting.fallback import last_value_forecast


@given(rate=st.floats(0.0, 1e6), steps=st.integers(1, 90), step_s=st.sampled_from([60.0, 300.0, 1800.0]))
def test_it_is_a_forecast_whatever_the_rate(rate: float, steps: int, step_s: float) -> None:
    """Quantiles are finite, do not cross and are not negative: building it checks that. Its name says what it is."""
    forecast = last_value_forecast(1200.0, step_s, steps, rate)
    assert (forecast.origin_s, forecast.step_s, forecast.steps) == (1200.0, step_s, steps)
    assert forecast.predictor == "last-value"
    assert forecast.mean_at(0.5) == pytest.approx(rate)
    assert (forecast.peak_rps >= forecast.mean_rps).all()


def test_it_spreads_as_counts_do() -> None:
    """100 requests/s over a minute are 6000 +- 77: the 95th percentile is 1.645 deviations up."""
    forecast = last_value_forecast(0.0, 60.0, 1, 100.0)
    assert forecast.mean_at(0.95)[0] == pytest.approx(100.0 + 1.6449 * 6000.0**0.5 / 60.0, rel=1e-4)


def test_its_peak_is_the_highest_of_twelve_windows() -> None:
    """Against drawing them: quantiles of the highest of twelve Poisson counts over 5 s."""
    forecast = last_value_forecast(0.0, 60.0, 1, 100.0)
    highest = np.random.default_rng(1).poisson(500.0, (40_000, 12)).max(axis=1) / 5.0
    for level in (0.1, 0.5, 0.9):
        assert forecast.peak_at(level)[0] == pytest.approx(np.quantile(highest, level), rel=0.01)
