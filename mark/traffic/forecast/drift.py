"""Drift: whether a predictor is still better than the simple fallback, by the CRPS of both over the last hours."""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.scores import crps

AHEAD = np.array([1, 5, 15, 30])  # steps ahead that are scored: the boots of all offers lie within
_MEMORY = 90.0  # steps: the mean age of a score
_ENOUGH = 30  # scored steps, before they are trusted
# Multiples of the fallback's score at which drift begins and ends. Traffic that is merely hard to forecast makes a
# predictor like seasonal-naive five times worse than the last value for hours; a wrong level makes it tens of times
# worse.
_BEGINS, _ENDS = 10.0, 4.0
_RING = int(AHEAD[-1]) + 1


class Drift:
    """Scores two predictors' forecasts of the mean rate as the truth arrives; `found` while the first has drifted.

    Scores are means over the past whose weights decay, the same for both. A difference of less than one request a step
    is no drift.
    """

    def __init__(self) -> None:
        self.found = False
        self.scores = np.zeros(2)  # of predictor and fallback: CRPS in requests/s, both from 0 up
        self._scored = 0
        self._step = 0  # steps seen
        # Forecasts by their target step: (ring, levels, 2 predictors x horizons).
        self._pending: FloatArray = np.full((_RING, len(LEVELS), 2 * len(AHEAD)), np.nan)

    def forecast(self, predictor: Forecast, fallback_rps: FloatArray) -> None:
        """Remember both forecasts of the mean rate; step 0 of the forecast is the next that `observe` sees.

        `fallback_rps` (19, K) are the fallback's quantiles at LEVELS, AHEAD steps ahead.
        """
        for k, h in enumerate(AHEAD.tolist()):
            if h <= predictor.steps:
                pending = self._pending[(self._step + h - 1) % _RING]
                pending[:, k] = np.interp(LEVELS, predictor.levels, predictor.mean_rps[:, h - 1])
                pending[:, len(AHEAD) + k] = fallback_rps[:, k]

    def observe(self, observed: Load) -> None:
        """Score the forecasts of these steps; missing steps are skipped."""
        for rate in observed.mean_rps.tolist():
            believed = self._pending[self._step % _RING]
            self._step += 1
            scores = crps(believed, np.full(believed.shape[1], rate))
            believed[:] = np.nan
            known = ~np.isnan(scores)
            if not known.any():
                continue
            self._scored += 1
            both = np.where(known, scores, 0.0).reshape(2, -1).sum(axis=1) / (known.sum() / 2)
            self.scores += (both - self.scores) / _MEMORY
            if self._scored >= _ENOUGH:
                own, simple = self.scores
                self.found = bool(own > (_ENDS if self.found else _BEGINS) * simple + 1.0 / observed.step_s)
