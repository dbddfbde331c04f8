"""The level of the last minutes continues: the member of `auto` that follows a change that the history never showed.

The other members compare with hours and days. After a load has tripled for good they expect its fall for hours.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark_predictors.load_history import HORIZONS, error_quantiles, within
from mark_predictors.logload import LogLoad

_MINUTES = 5  # whose mean is the level
_HOURS = 2  # of errors that count
_ENOUGH = 20  # errors at a horizon before their quantiles are taken


class Level:
    """Forecasts of a `LogLoad` that grows: its level, spread by the errors of earlier levels about their median.

    Only observed steps show errors, because filled ones repeat the last value or a day.
    """

    def __init__(self, load: LogLoad, levels: FloatArray) -> None:
        self._load, self._levels = load, levels
        self._width = load.steps(_MINUTES)
        self._window = max(3 * _ENOUGH, _HOURS * load.hour)
        self._known, self._looked = np.empty(0, dtype=np.int64), 0

    @property
    def ready(self) -> bool:
        return len(self._observed()) > _ENOUGH

    def quantiles(self, steps: int) -> FloatArray:
        """Return (levels, steps) of the mean rate in requests/s.

        Beyond the last horizon with enough errors the spread grows as that of a random walk.
        """
        load, now, observed = self._load, len(self._load), self._observed()
        known = HORIZONS[len(observed) - HORIZONS >= _ENOUGH]
        targets = observed[-self._window :]
        origins = targets - known[:, None] + 1
        errors = load.logs[targets] - load.means(origins - self._width, origins)
        spread = error_quantiles(np.where(origins > observed[0], errors, np.nan), self._levels).T
        spread = spread - spread[len(spread) // 2]
        ahead_steps = np.arange(1, steps + 1)
        place = np.interp(ahead_steps, known, np.arange(len(known)))
        low = place.astype(np.int64)
        high = within(low + 1, 0, len(known) - 1)
        by_step = spread[:, low] * (1.0 - place + low) + spread[:, high] * (place - low)
        growth = np.sqrt(np.maximum(1.0, ahead_steps / known[-1]))
        level = load.means(np.array([now - self._width]), np.array([now]))
        return load.rates(level + by_step * growth)

    def _observed(self) -> IntArray:
        """Return the observed steps; only new ones are looked at, because the history only grows."""
        mean_rps = self._load.history.observed[0]
        if self._looked < len(mean_rps):
            new = self._looked + np.flatnonzero(~np.isnan(mean_rps[self._looked :]))
            self._known, self._looked = np.concatenate([self._known, new]), len(mean_rps)
        return self._known
