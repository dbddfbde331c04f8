from __future__ import annotations

import numpy as np
import pytest
from mark_predictors.mstl import Mstl
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.traffic.forecast.predictor import Predictor, Savable
from tests.predictors.real_traces import quantile_loss, real_rates

HOUR, DAY = 12, 288  # steps of five minutes
STEP_S = 300.0
NAN = float("nan")
_FITS: tuple[Predictor, Savable] = (Mstl(), Mstl())  # for the type checker


def load(rates: FloatArray, first_step: int = 0) -> Load:
    return Load(first_step * STEP_S, STEP_S, rates, rates)


def fitted(rates: FloatArray, first_step: int = 0) -> Mstl:
    predictor = Mstl()
    predictor.fit(load(rates, first_step))
    return predictor


def noisy(logs: FloatArray, deviation: float = 0.02) -> FloatArray:
    return 50.0 * np.exp(logs + np.random.default_rng(9).normal(0.0, deviation, len(logs)))


def test_an_hourly_burst_is_expected_where_it_comes() -> None:
    """The load is threefold in the third step of every hour, with any first step of the history."""
    steps = 5 + np.arange(4 * DAY + 7)
    predictor = fitted(noisy(np.where(steps % HOUR == 2, np.log(3.0), 0.0)), first_step=5)
    assert predictor.state()["periods"].tolist() == [HOUR]
    ahead = 5 + 4 * DAY + 7 + np.arange(60)
    expected = np.where(ahead % HOUR == 2, 150.0, 50.0)
    assert predictor.predict(60).mean_at(0.5) == pytest.approx(expected, rel=0.15)


def test_days_of_rest_are_learned() -> None:
    """Every seventh day has a third of the load: after five weeks the evening before knows it."""
    steps = np.arange(40 * DAY)
    logs = np.where(steps // DAY % 7 == 5, -np.log(3.0), 0.0)
    # They begin in the course of four hours.
    rates = noisy(np.convolve(np.pad(logs, 24, "edge"), np.ones(49) / 49.0, "valid"), 0.2)
    for days, low in ((40, True), (39, False)):
        predictor = fitted(rates[: days * DAY - 40])
        last = predictor.predict(60).mean_at(0.5)[-1] / predictor.predict(60).mean_at(0.5)[0]
        assert (last < 0.75) == low, (days, last)


def test_the_profile_follows_when_the_day_moves() -> None:
    """The wave comes six hours later from some day on: a fortnight later it is forecast there."""
    steps = np.arange(24 * DAY)
    shift = np.where(steps < 10 * DAY, 0, DAY // 4)
    rates = noisy(0.5 * np.sin(2.0 * np.pi * (steps - shift) / DAY))
    predictor = fitted(rates[: 10 * DAY])
    predictor.update(load(rates[10 * DAY :], 10 * DAY))
    truth = 50.0 * np.exp(0.5 * np.sin(2.0 * np.pi * (np.arange(60) - DAY // 4) / DAY))
    assert predictor.predict(60).mean_at(0.5) == pytest.approx(truth, rel=0.2)


def test_quantiles_are_those_of_its_own_errors() -> None:
    """For noise of one size and a wave, the 90 % interval has about 90 % of the truth at every horizon."""
    rates = noisy(0.5 * np.sin(2.0 * np.pi * np.arange(12 * DAY) / DAY), 0.1)
    predictor = fitted(rates[: 9 * DAY])
    inside = []
    for origin in range(9 * DAY, 12 * DAY - 60, 5):
        forecast = predictor.predict(60)
        truth = rates[origin : origin + 60]
        inside.append((forecast.mean_rps[0] <= truth) & (truth <= forecast.mean_rps[-1]))
        predictor.update(load(rates[origin : origin + 5], origin))
    shares = np.mean(inside, axis=0)
    assert 0.85 <= shares.mean() <= 0.95
    assert shares.min() > 0.8


def test_one_accident_does_not_become_a_habit() -> None:
    """A hundredfold load for five minutes of one day: the next day's forecast there is hardly higher."""
    rates = noisy(np.zeros(6 * DAY))
    rates[5 * DAY + 10] *= 100.0
    assert fitted(rates).predict(20).mean_at(0.5)[10] < 60.0


def test_a_day_goes_by_unseen() -> None:
    """The time of day continues during a gap."""
    steps = np.arange(8 * DAY)
    wave = np.exp(np.sin(2.0 * np.pi * steps / DAY))
    rates = noisy(np.sin(2.0 * np.pi * steps / DAY))
    rates[7 * DAY - 100 :] = NAN
    assert fitted(rates).predict(60).mean_at(0.5) == pytest.approx(50.0 * wave[:60], rel=0.25)


def test_it_beats_the_baseline_on_real_traffic() -> None:
    """On two days of a public stream its quantile loss is at least a fifth below seasonal-naive's."""
    rates = real_rates("twitter_stream_2021_d00_14_60s", 60.0)[: 7 * 1440]
    ours, theirs = (quantile_loss(predictor, rates, 5 * 1440) for predictor in (Mstl(), SeasonalNaive()))
    assert ours < 0.8 * theirs
