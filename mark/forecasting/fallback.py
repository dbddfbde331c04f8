"""The forecast of last resort, for when a predictor fails: the last value stays, and says so by its name."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from mark.domain.load import LEVELS, FloatArray, Forecast

NAME = "last-value"
_PEAK_WINDOW_S = 5.0


def last_value_forecast(origin_s: float, step_s: float, steps: int, rate_rps: float) -> Forecast:
    """`rate_rps` in every step, spread as Poisson counts would be (normal approximation).

    The peak of a step is the highest of its n windows of 5 s: all of them stay below its quantile q, so that is the
    quantile q^(1/n) of one window.
    """
    windows = max(1.0, step_s / _PEAK_WINDOW_S)
    mean = np.maximum(0.0, rate_rps + _normal(LEVELS) * np.sqrt(rate_rps / step_s))
    peak = rate_rps + _normal(LEVELS ** (1.0 / windows)) * np.sqrt(rate_rps / _PEAK_WINDOW_S)
    spread = np.ones((1, steps))
    return Forecast(origin_s, step_s, LEVELS, mean[:, None] * spread, np.maximum(mean, peak)[:, None] * spread, NAME)


def _normal(levels: FloatArray) -> FloatArray:
    """Quantiles of the standard normal distribution."""
    return np.array([NormalDist().inv_cdf(float(level)) for level in levels])
