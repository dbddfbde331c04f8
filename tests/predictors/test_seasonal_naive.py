from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import Load

DAY = 1440
NAN = float("nan")


def load(rates: FloatArray, first_step: int = 0, step_s: float = 60.0) -> Load:
    rates = np.asarray(rates, dtype=np.float64)
    return Load(first_step * step_s, step_s, rates, 2.0 * rates)


def fitted(rates: FloatArray, step_s: float = 60.0) -> SeasonalNaive:
    predictor = SeasonalNaive()
    predictor.fit(load(rates, step_s=step_s))
    return predictor


def test_step_k_of_tomorrow_is_step_k_of_today() -> None:
    """On a day whose step k has the rate k any shift of the season would show."""
    days = np.tile(np.arange(DAY, dtype=np.float64), 2)
    predictor = fitted(days)
    for k in range(100):
        forecast = predictor.predict(60)
        assert forecast.origin_s == 60.0 * (2 * DAY + k)
        assert forecast.mean_at(0.5).tolist() == list(range(k, k + 60))
        assert forecast.peak_at(0.5).tolist() == list(range(2 * k, 2 * k + 120, 2))
        predictor.update(load(np.array([float(k)]), 2 * DAY + k))


def test_a_missing_day_is_replaced_by_the_one_before_it() -> None:
    """The nearest observed day back, also over two missing days."""
    days = np.tile(np.arange(DAY, dtype=np.float64), 4)
    days[2 * DAY + 10 : 2 * DAY + 20] = NAN
    days[3 * DAY + 5 : 3 * DAY + 30] = NAN
    assert fitted(days).predict(60).mean_at(0.5).tolist() == list(range(60))


def test_before_a_day_is_known_the_last_value_stays() -> None:
    """Its quantiles come from errors, which grow with the horizon on a random walk."""
    walk = 100.0 + np.cumsum(np.random.default_rng(1).normal(0.0, 1.0, 600))
    walk[-1] = NAN
    forecast = fitted(walk).predict(60)
    assert forecast.mean_at(0.5) == pytest.approx(np.full(60, walk[-2]), abs=8.0)
    width = forecast.mean_at(0.95) - forecast.mean_at(0.05)
    assert width[59] > 3.0 * width[0]


@pytest.mark.parametrize("rates", [[], [NAN, NAN], [5.0], [0.0] * 50])
def test_a_short_or_empty_history_is_no_error(rates: list[float]) -> None:
    """Nothing known is a forecast of nothing; one value stays."""
    forecast = fitted(np.array(rates)).predict(60)
    assert forecast.steps == 60
    assert np.ptp(forecast.mean_rps) == 0.0


def test_quantiles_are_those_of_its_own_errors() -> None:
    """Each day has the same noise: the 90 % band has 90 % of the next day."""
    rng = np.random.default_rng(3)
    noisy = 100.0 + rng.normal(0.0, 5.0, 6 * DAY)
    predictor = fitted(noisy[: 4 * DAY])
    forecast = predictor.predict(DAY)
    inside = (forecast.mean_rps[0] <= noisy[4 * DAY : 5 * DAY]) & (noisy[4 * DAY : 5 * DAY] <= forecast.mean_rps[-1])
    assert 0.87 <= inside.mean() <= 0.93


@pytest.mark.parametrize(("step_s", "season"), [(300.0, 288), (1800.0, 48)])
def test_coarser_steps_have_their_own_season(step_s: float, season: int) -> None:
    """A forecast that reaches beyond tomorrow's same time repeats the last known day."""
    forecast = fitted(np.tile(np.arange(season, dtype=np.float64), 3), step_s).predict(60)
    assert forecast.step_s == step_s
    assert forecast.mean_at(0.5).tolist() == [float(k % season) for k in range(60)]


@settings(max_examples=60)
@given(
    rates=st.lists(st.one_of(st.floats(0.0, 1e4), st.just(NAN)), max_size=150),
    cut=st.integers(0, 150),
    chunk=st.integers(1, 40),
)
def test_learning_in_pieces_is_learning_at_once(rates: list[float], cut: int, chunk: int) -> None:
    """However the steps come in, the forecast is the same. Half-hour steps: a season is 48 of them."""
    series = np.array(rates, dtype=np.float64)
    cut = min(cut, len(series))
    pieces = SeasonalNaive()
    pieces.fit(load(series[:cut], step_s=1800.0))
    for at in range(cut, len(series), chunk):
        pieces.update(load(series[at : min(at + chunk, len(series))], at, 1800.0))
    at_once = fitted(series, 1800.0).predict(60)
    forecast = pieces.predict(60)
    assert forecast.origin_s == at_once.origin_s
    np.testing.assert_allclose(forecast.mean_rps, at_once.mean_rps)
    np.testing.assert_allclose(forecast.peak_rps, at_once.peak_rps)
