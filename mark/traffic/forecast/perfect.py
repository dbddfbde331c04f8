"""Perfect foresight, for the policy `oracle` and for tests: the truth as a forecast."""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load import LEVELS, Forecast, Load


class PerfectPredictor:
    """Answers from `truth`, all quantiles equal; beyond its end the last value, in a gap the value before it.

    `fit` and `update` only move the origin: the next forecast begins at the end of the observed load.
    """

    name = "perfect"
    foresees = True  # arrivals cannot teach it anything

    def __init__(self, truth: Load) -> None:
        self._truth = truth
        self._mean = _bridged(truth.mean_rps)
        self._peak = _bridged(truth.peak_rps)
        self._origin_s = truth.start_s

    def fit(self, history: Load) -> None:
        self._origin_s = history.end_s

    def update(self, observed: Load) -> None:
        if len(observed):
            self._origin_s = observed.end_s

    def predict(self, steps: int) -> Forecast:
        """Return the truth from the origin on. Raises BadInput for an origin off the truth's grid."""
        step_s = self._truth.step_s
        place = (self._origin_s - self._truth.start_s) / step_s
        if abs(place - round(place)) > 1e-6:
            raise BadInput("the origin is not on the grid of the truth", self.name, self._origin_s)
        at = np.clip(np.arange(round(place), round(place) + steps), 0, len(self._mean) - 1)
        every = np.ones((len(LEVELS), 1))
        return Forecast(self._origin_s, step_s, LEVELS, every * self._mean[at], every * self._peak[at], self.name)


def _bridged(rates: FloatArray) -> FloatArray:
    """Fill missing steps with the last value before them, 0 before the first; the result has at least one step."""
    if len(rates) == 0:
        return np.zeros(1)
    last = np.maximum.accumulate(np.where(np.isfinite(rates), np.arange(len(rates)), -1))
    return np.where(last >= 0, np.where(np.isfinite(rates), rates, rates[np.maximum(last, 0)]), 0.0)
