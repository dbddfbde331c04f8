"""The level of the last minutes continues: the member of `auto` that follows a change that the history never showed.

The other members compare with hours and days. After a load has tripled for good they expect its fall for hours.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark_predictors.load_history import HORIZONS, error_quantiles, within
from mark_predictors.logload import LogLoad
from mark_predictors.trees import compiled

_MINUTES = 5  # whose mean is the level
_HOURS = 2  # of errors that count
_ENOUGH = 20  # errors at a horizon before their quantiles are taken


class Level:
    """Forecasts of a `LogLoad` that grows: its level, spread by the errors of earlier levels about their median.

    Only observed steps make levels and show errors, because filled ones repeat the last value or a day.
    """

    def __init__(self, load: LogLoad, levels: FloatArray) -> None:
        self._load, self._levels = load, levels
        self._width = load.steps(_MINUTES)
        self._window = max(3 * _ENOUGH, _HOURS * load.hour)
        self._known, self._looked = np.empty(0, dtype=np.int64), 0

    @property
    def ready(self) -> bool:
        return len(self._observed()) > _ENOUGH and self._missing() < int(HORIZONS[-1])

    def quantiles(self, steps: int) -> FloatArray:
        """Return (levels, steps) of the mean rate in requests/s.

        Beyond the last horizon with enough errors the spread grows as that of a random walk.
        """
        load, observed = self._load, self._observed()
        known = HORIZONS[len(observed) - HORIZONS >= _ENOUGH]
        recent = observed[-(self._window + int(HORIZONS[-1]) + self._width) :]
        errors = np.empty((len(known), min(self._window, len(observed))))
        level = _fill_errors(load.logs, load.sums, recent, known, self._width, np.empty(len(recent)), errors)
        spread = error_quantiles(errors, self._levels).T
        spread = spread - spread[len(spread) // 2]
        ahead_steps = self._missing() + np.arange(1, steps + 1)
        place = np.interp(ahead_steps, known, np.arange(len(known)))
        low = place.astype(np.int64)
        high = within(low + 1, 0, len(known) - 1)
        by_step = spread[:, low] * (1.0 - place + low) + spread[:, high] * (place - low)
        growth = np.sqrt(np.maximum(1.0, ahead_steps / known[-1]))
        return load.rates(level + by_step * growth)

    def _missing(self) -> int:
        """Return the number of steps since the last observed one."""
        return len(self._load) - 1 - int(self._observed()[-1])

    def _observed(self) -> IntArray:
        """Return the observed steps; only new ones are looked at, because the history only grows."""
        mean_rps = self._load.history.observed[0]
        if self._looked < len(mean_rps):
            new = self._looked + np.flatnonzero(~np.isnan(mean_rps[self._looked :]))
            self._known, self._looked = np.concatenate([self._known, new]), len(mean_rps)
        return self._known


@compiled
def _fill_errors(
    logs: FloatArray,
    sums: FloatArray,
    observed: IntArray,
    known: IntArray,
    width: int,
    between: FloatArray,
    errors: FloatArray,
) -> float:
    """Fill the errors (horizons, targets) of the newest observed steps; NaN if no level was known. Return the level.

    The level before a step is the mean of the last `width` observed steps. `observed` (N,) are enough for all targets.
    `sums` are those of the logs before each step. `between` (N,) is scratch: the sum of the logs in gaps.
    """
    count, targets = len(observed), errors.shape[1]
    between[0] = 0.0
    for i in range(1, count):
        between[i] = between[i - 1] + (sums[observed[i]] - sums[observed[i - 1] + 1])
    for k in range(len(known)):
        end = 0
        for i in range(targets):
            target = observed[count - targets + i]
            while observed[end] <= target - known[k]:
                end += 1
            errors[k, i] = logs[target] - _level(sums, observed, between, end, width) if end > 0 else np.nan
    return _level(sums, observed, between, count, width)


@compiled
def _level(sums: FloatArray, observed: IntArray, between: FloatArray, end: int, width: int) -> float:
    begin, last = max(end - width, 0), end - 1
    total = sums[observed[last] + 1] - sums[observed[begin]] - (between[last] - between[begin])
    return float(total / (end - begin))
