from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Load
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.traces import open_trace
from tests.late_imports import bring

if TYPE_CHECKING:
    from mark_predictors.lstm_quantile import LstmQuantile


DAY = 1440
DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    bring(
        globals(),
        "mark_predictors.lstm_quantile:LstmQuantile",
    )


def load(rates: FloatArray, first_step: int = 0) -> Load:
    return Load(first_step * 60.0, 60.0, rates, 1.5 * rates)


def crps(predictor: Predictor, rates: FloatArray, begin: int, every: int = 20) -> float:
    """Return twice the mean pinball loss of the mean rate over an hour ahead, while the predictor learns."""
    predictor.fit(load(rates[:begin]))
    losses = []
    for origin in range(begin, len(rates) - 60, every):
        error = rates[origin : origin + 60] - predictor.predict(60).mean_rps
        losses.append(2.0 * np.nanmean(np.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1.0) * error)))
        predictor.update(load(rates[origin : origin + every], origin))
    return float(np.nanmean(losses))


@pytest.mark.slow
def test_it_knows_the_minute_and_probability_of_a_burst() -> None:
    """Bursts come at minutes 10 to 14 of every hour, and at random at 30 to 39; it is asked at any time of the hour."""
    rng = np.random.default_rng(2)
    at = np.arange(2520)
    sure, maybe = at % 60 // 5 == 2, at % 60 // 10 == 3
    comes = np.repeat(rng.random(42) < 0.5, 60)
    rates = np.where(sure | (maybe & comes), 90.0, 30.0) * rng.gamma(2000.0, 0.0005, 2520)
    predictor = LstmQuantile(epochs=10)
    predictor.fit(load(rates[:2400]))
    for origin in range(2400, 2460, 15):
        forecast = predictor.predict(60)
        hour = slice(origin, origin + 60)
        certain = ~maybe[hour]
        np.testing.assert_array_equal(forecast.mean_at(0.5)[certain] > 55.0, sure[hour][certain])
        # Within such a burst it can know that it came; before one it cannot.
        if not maybe[origin - 1]:
            widths = forecast.mean_at(0.9) - forecast.mean_at(0.1)
            quiet = ~(maybe | sure)[hour]
            assert widths[maybe[hour]].mean() > 3.0 * widths[quiet].mean()
        predictor.update(load(rates[origin : origin + 15], origin))


@pytest.mark.slow
def test_it_beats_the_baseline_on_real_traffic() -> None:
    """On two days of a public stream it is a sixth better, after a short training on five."""
    path = DATA / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path.name}: set MARK_DATA to the data folder")
    rates = open_trace(str(path)).load(0.0, 7 * 86400.0).mean_rps
    ours, theirs = (crps(one, rates, 5 * DAY) for one in (LstmQuantile(epochs=6), SeasonalNaive()))
    assert ours < 0.83 * theirs
