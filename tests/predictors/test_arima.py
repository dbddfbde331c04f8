from __future__ import annotations

import warnings

import numpy as np
import pytest
from mark_predictors.arima import ORDERS, Arima, Filter, Process
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.traffic.forecast.predictor import Predictor, Savable
from tests.predictors.real_traces import quantile_loss, real_rates
from tests.samples import first

DAY = 288  # steps of five minutes
STEP_S = 300.0
NAN = float("nan")
_FITS: tuple[Predictor, Savable] = (Arima(), Arima())  # for the type checker


def fitted(rates: FloatArray) -> Arima:
    predictor = Arima()
    predictor.fit(Load(0.0, STEP_S, rates, rates))
    return predictor


@pytest.mark.parametrize("order", [order for orders in ORDERS for order in orders])
@pytest.mark.parametrize("gap", [slice(0, 0), slice(150, 170), slice(390, 400)], ids=["whole", "gap", "gap-at-the-end"])
def test_the_filter_is_that_of_statsmodels(order: tuple[int, int, int], gap: slice) -> None:
    """The same forecasts with the same variances, also where steps are missing, after steps that were not fitted."""
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    p, d, q = order
    series = np.random.default_rng(p + 3 * q).normal(0.0, 1.0, 409)
    series = np.cumsum(series[:400]) if d else np.convolve(series, 0.8 ** np.arange(10.0), "valid")
    series[gap] = NAN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = SARIMAX(series[:300], order=order).fit(disp=0, maxiter=5, cov_type="none")
    expected = fit.append(series[300:], refit=False).get_forecast(30)

    kalman = Filter(Process(d, np.array(fit.params[:p]), np.array(fit.params[p : p + q])))
    for value in series.tolist():
        kalman.step(value)
    rows = kalman.ahead(30)
    np.testing.assert_allclose(rows @ kalman.state, expected.predicted_mean, rtol=1e-3, atol=1e-3)
    # The variance h steps ahead: of the present state, plus that of the innovations until then.
    weights = np.concatenate([[0.0], np.cumsum((rows[:-1] @ kalman.shock) ** 2)])
    variance = np.einsum("hi,ij,hj->h", rows, kalman.variance, rows) + weights
    np.testing.assert_allclose(variance * fit.params[-1], expected.var_pred_mean, rtol=1e-3)


@pytest.mark.parametrize("coefficient", first(0, [0.9, 0.5], slow=1))
def test_a_process_is_found_again(coefficient: float) -> None:
    """An autoregression around a daily wave: its coefficient is found, and intervals have their stated coverage."""
    rng = np.random.default_rng(11)
    rest = np.zeros(18 * DAY)
    for k, shock in enumerate(rng.normal(0.0, 0.05, len(rest))):
        rest[k] = coefficient * rest[k - 1] + shock
    rates = 50.0 * np.exp(np.sin(2.0 * np.pi * np.arange(len(rest)) / DAY) + rest)
    predictor = fitted(rates[: 10 * DAY])
    state = predictor.state()
    impulse = Filter(Process(int(state["differences"][0]), state["ar"], state["ma"]))
    left = impulse.ahead(4) @ impulse.shock  # the effect of an innovation: coefficient ** h
    np.testing.assert_allclose(left, coefficient ** np.arange(4.0), atol=0.12)
    inside, first_errors = [], []
    for origin in range(10 * DAY, 18 * DAY - 30, 6):
        truth = rates[origin : origin + 30]
        forecast = predictor.predict(30)
        inside.append((forecast.mean_rps[0] <= truth) & (truth <= forecast.mean_rps[-1]))
        first_errors.append(np.log(truth[0] / forecast.mean_at(0.5)[0]))
        predictor.update(Load(origin * STEP_S, STEP_S, truth[:6], truth[:6]))
    assert 0.84 <= np.mean(inside) <= 0.96
    assert np.std(first_errors) == pytest.approx(0.05, rel=0.15)


def test_doubt_grows_in_a_gap() -> None:
    """After hours without news the interval of the next step is wider than after the last observation."""
    walk = 100.0 * np.exp(np.cumsum(np.random.default_rng(5).normal(0.0, 0.02, 2 * DAY)))
    predictor = fitted(walk)
    before = predictor.predict(1)
    missing = np.full(60, NAN)
    predictor.update(Load(2 * DAY * STEP_S, STEP_S, missing, missing))
    after = predictor.predict(1)
    widths = [float((forecast.mean_rps[-1] - forecast.mean_rps[0])[0]) for forecast in (before, after)]
    assert widths[1] > 4.0 * widths[0]


def test_a_new_level_is_followed() -> None:
    """Three times the load from one step to the next, as never before: a day later it is the level."""
    rates = np.full(3 * DAY, 100.0) * np.exp(np.random.default_rng(3).normal(0.0, 0.03, 3 * DAY))
    predictor = fitted(rates)
    predictor.update(Load(3 * DAY * STEP_S, STEP_S, 3.0 * rates[:DAY], 3.0 * rates[:DAY]))
    assert predictor.predict(12).mean_at(0.5) == pytest.approx(np.full(12, 300.0), rel=0.1)


@pytest.mark.slow
def test_it_beats_the_baseline_on_real_traffic() -> None:
    """On two days of a public stream its quantile loss is at least a tenth below seasonal-naive's."""
    rates = real_rates("twitter_stream_2021_d00_14_60s", 60.0)[: 7 * 1440]
    ours, theirs = (quantile_loss(predictor, rates, 5 * 1440) for predictor in (Arima(), SeasonalNaive()))
    assert ours < 0.9 * theirs
