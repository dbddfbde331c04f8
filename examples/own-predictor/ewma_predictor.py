"""`ewma`: the exponentially weighted mean of the load stays, with the spread of its own past errors."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from mark.domain.load import LEVELS, Forecast, Load

WEIGHT = 0.2  # of the newest step
Z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])


class Ewma:
    """Implements `mark.traffic.forecast.predictor.Predictor`.

    One-step errors have the variance s^2; h steps ahead it is s^2 (1 + (h - 1) w^2), as for the ARIMA(0,1,1) process
    that this mean is the best forecast of. So the quantiles widen with the horizon.
    """

    name = "ewma"

    def __init__(self, seed: int = 0) -> None:
        self.fit(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    def fit(self, history: Load) -> None:
        self._level, self._variance = np.zeros(2), np.zeros(2)  # of the mean rate and of the highest 5 s rate
        self._seen = 0
        self.update(history)

    def update(self, observed: Load) -> None:
        self._origin_s, self._step_s = observed.end_s, observed.step_s
        for rates in np.stack([observed.mean_rps, observed.peak_rps], axis=1):
            if np.isfinite(rates).all():  # a gap is no zero: it changes nothing
                error = rates - self._level
                self._level = self._level + (WEIGHT if self._seen else 1.0) * error
                if self._seen:
                    self._variance += WEIGHT * (error**2 - self._variance)
                self._seen += 1

    def predict(self, steps: int) -> Forecast:
        widths = np.sqrt(self._variance[:, None] * (1.0 + np.arange(steps) * WEIGHT**2))  # (2, steps)
        mean, peak = np.maximum(0.0, self._level[:, None, None] + Z[:, None] * widths[:, None, :])
        return Forecast(self._origin_s, self._step_s, LEVELS, mean, np.maximum(mean, peak), self.name)
