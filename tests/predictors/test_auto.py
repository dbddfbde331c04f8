from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_predictors.auto import Auto
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.load import FloatArray, Load
from mark.forecasting.port import Predictor

DAY = 1440
NAN = float("nan")
DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3] / "shared" / "data"))


def load(rates: FloatArray, first_step: int = 0) -> Load:
    rates = np.asarray(rates, dtype=np.float64)
    return Load(first_step * 60.0, 60.0, rates, 1.5 * rates)


def fitted(rates: FloatArray) -> Auto:
    predictor = Auto()
    predictor.fit(load(rates))
    return predictor


def pinball(predictor: Predictor, rates: FloatArray, begin: int, horizon: int = 30, every: int = 7) -> float:
    """Mean quantile loss of the mean rate over origins `begin`, `begin + every`, ...; learns as it goes."""
    predictor.fit(load(rates[:begin]))
    losses = []
    for origin in range(begin, len(rates) - horizon, every):
        forecast = predictor.predict(horizon)
        error = rates[origin : origin + horizon] - forecast.mean_rps
        levels = forecast.levels[:, None]
        losses.append(np.nanmean(np.maximum(levels * error, (levels - 1.0) * error)))
        predictor.update(load(rates[origin : origin + every], origin))
    return float(np.nanmean(losses))


def test_a_daily_pattern_is_learned_without_a_shift() -> None:
    """The same day for four days: the forecast is that day, step by step."""
    day = 100.0 + 50.0 * np.sin(np.arange(DAY) * 2.0 * np.pi / DAY) + 20.0 * (np.arange(DAY) % 37 == 0)
    forecast = fitted(np.tile(day, 4)).predict(60)
    assert forecast.origin_s == 4 * DAY * 60.0
    np.testing.assert_allclose(forecast.mean_at(0.5), day[:60], rtol=1e-6)
    np.testing.assert_allclose(forecast.peak_at(0.5), 1.5 * day[:60], rtol=1e-6)


def test_a_new_level_is_followed_at_short_horizons() -> None:
    """On a random walk yesterday says nothing: it forecasts the last value, and less surely the further ahead."""
    walk = 1000.0 + np.cumsum(np.random.default_rng(2).normal(0.0, 3.0, 4 * DAY))
    forecast = fitted(walk).predict(60)
    assert forecast.mean_at(0.5)[0] == pytest.approx(walk[-1], abs=6.0)
    width = forecast.mean_at(0.95) - forecast.mean_at(0.05)
    assert width[59] > 2.0 * width[0]


@pytest.mark.parametrize("rates", [[], [NAN, NAN], [5.0], [5.0, NAN, 5.0], [0.0] * 50])
def test_a_short_or_empty_history_is_no_error(rates: list[float]) -> None:
    """It answers from the first minute on."""
    forecast = fitted(np.array(rates)).predict(60)
    assert np.ptp(forecast.mean_rps) == 0.0


def test_the_level_before_a_gap_is_kept() -> None:
    """A gap is no zero."""
    rates = np.full(300, 80.0)
    rates[-30:] = NAN
    assert fitted(rates).predict(60).mean_at(0.5) == pytest.approx(np.full(60, 80.0))


@settings(max_examples=30, deadline=None)
@given(rates=st.lists(st.one_of(st.floats(0.0, 1e4), st.just(NAN)), max_size=90), steps=st.integers(1, 90))
def test_whatever_was_seen_the_answer_is_a_forecast(rates: list[float], steps: int) -> None:
    """Finite, not negative and not crossing (building a Forecast checks that); the same data give the same answer."""
    one, other = fitted(np.array(rates)).predict(steps), fitted(np.array(rates)).predict(steps)
    assert one.steps == steps
    np.testing.assert_array_equal(one.mean_rps, other.mean_rps)


def test_it_beats_the_baseline_on_real_traffic() -> None:
    """On two days of a public stream its quantile loss is at least a tenth below seasonal-naive's."""
    path = DATA / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path.name}: set MARK_DATA to the data folder")
    with gzip.open(path, "rt") as file:
        t_s, count = np.loadtxt(file, delimiter=",", skiprows=1).T
    rates = np.full(int(t_s[-1] // 60) + 1, np.nan)
    rates[(t_s // 60).astype(np.int64)] = count / 60.0
    part = rates[: 7 * DAY]
    ours, theirs = (pinball(predictor, part, 5 * DAY) for predictor in (Auto(), SeasonalNaive()))
    assert ours < 0.9 * theirs
