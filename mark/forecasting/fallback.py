"""The forecast of last resort, for when a predictor fails: the last value stays, and says so by its name."""

from __future__ import annotations

import numpy as np

from mark.domain.load import Forecast

NAME = "last-value"
LEVELS = np.arange(1, 20) / 20.0
# Standard normal quantiles at LEVELS: 0.50, 0.55, ..., 0.95, mirrored.
_UPPER = np.array([0.0, 0.1257, 0.2533, 0.3853, 0.5244, 0.6745, 0.8416, 1.0364, 1.2816, 1.6449])
_NORMAL = np.concatenate([-_UPPER[:0:-1], _UPPER])
_PEAK_WINDOW_S = 5.0


def last_value_forecast(origin_s: float, step_s: float, steps: int, rate_rps: float) -> Forecast:
    """`rate_rps` in every step, spread as Poisson counts would be (normal approximation).

    The peak of a step is the highest of its n windows of 5 s: sqrt(2 ln n) deviations of a window above the mean.
    """
    mean = np.maximum(0.0, rate_rps + _NORMAL * np.sqrt(rate_rps / step_s))
    window_sd = np.sqrt(rate_rps / _PEAK_WINDOW_S)
    peak = np.maximum(mean, mean + window_sd * np.sqrt(2.0 * np.log(step_s / _PEAK_WINDOW_S)))
    spread = np.ones((1, steps))
    return Forecast(origin_s, step_s, LEVELS, mean[:, None] * spread, peak[:, None] * spread, NAME)
