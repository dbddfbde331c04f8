"""`seasonal-naive`: the value one day before, with its past errors as quantiles. The baseline to beat.

If that day is missing, it uses the nearest observed day before; before a day is known, the last value.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast, Load
from mark_predictors.load_history import HORIZONS, ObservedHistory, by_step, error_quantiles

_ENOUGH = 20  # errors before their quantiles are used


class SeasonalNaive:
    """Implements `Predictor`. Errors are differences, which are the same at every horizon against the day before."""

    name = "seasonal-naive"

    def __init__(self, seed: int = 0) -> None:
        # Unused, because nothing is random here, but every predictor is made with a `seed`.
        self._history = ObservedHistory(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    def fit(self, history: Load) -> None:
        self._history = ObservedHistory(history)

    def update(self, observed: Load) -> None:
        self._history.append(observed)

    def predict(self, steps: int) -> Forecast:
        seen = self._history
        first = len(seen)
        targets = np.arange(first, first + steps)
        # A step beyond tomorrow's same time goes back as many days as needed to reach the observed ones.
        days = (targets - first) // seen.season + 1
        point = seen.days_before(targets + (1 - days) * seen.season, 1)
        errors = self._daily_errors()
        if np.count_nonzero(~np.isnan(errors[0])) >= _ENOUGH:
            offsets = error_quantiles(errors)[:, :, None]
        else:
            offsets = by_step(error_quantiles(self._errors_of_last()).transpose(0, 2, 1), steps)
        point = np.where(np.isnan(point), seen.newest()[:, None], point)
        mean, peak = np.maximum(0.0, point[:, None, :] + offsets)
        return Forecast(seen.end_s, seen.step_s, LEVELS, mean, np.maximum(mean, peak), self.name)

    def _daily_errors(self) -> FloatArray:
        """Return observed less the day before, over the window: (2, N)."""
        seen = self._history
        steps = np.arange(max(0, len(seen) - seen.window), len(seen))
        return seen.observed[:, steps[0] :] - seen.days_before(steps, 1) if len(steps) else np.empty((2, 0))

    def _errors_of_last(self) -> FloatArray:
        """Return observed less the last value a horizon before: (2, horizons, N)."""
        seen = self._history
        first = max(0, len(seen) - seen.window)
        errors = np.full((2, len(HORIZONS), len(seen) - first), np.nan)
        observed_yet = np.maximum.accumulate(~np.isnan(seen.observed), axis=1)
        known_last = np.where(observed_yet, seen.last, np.nan)
        for k, ahead in enumerate(HORIZONS):
            begin = max(first, ahead)
            if begin < len(seen):
                errors[:, k, begin - first :] = seen.observed[:, begin:] - known_last[:, begin - ahead : -ahead]
        return errors
