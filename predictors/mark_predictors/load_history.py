"""The memory of predictors: the load on its grid, gaps, days before, and quantiles of past errors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.load import LEVELS, Load
from mark.domain.time import DAY_S

# Errors are collected at these horizons (steps ahead, from 1) and interpolated between them.
HORIZONS = np.array([1, 2, 4, 8, 15, 30, 60])
# Errors and forecasts of this many last steps count; with coarse steps at most a week.
WINDOW = 1440
_FIRST_STEPS = 64  # initial room, which then grows by an eighth


class ObservedHistory:
    """All observations so far; arrays have two rows, the mean and the 5 s peak, and a column for each step.

    `highest_rps` (2,) is the highest observation. `observed` holds NaN in gaps; `filled` has there the value one day
    before (or two, or three ...) if there is one; `last` has the newest observation at or before the step, 0 before the
    first.
    """

    def __init__(self, start: Load) -> None:
        self.step_s = start.step_s
        self.season = max(1, round(DAY_S / start.step_s))
        self.window = min(WINDOW, 7 * self.season)
        self.start_s = start.start_s
        self.highest_rps = np.zeros(2)
        self._length = 0
        self._rows = np.empty((6, _FIRST_STEPS))
        self.append(start)

    def __len__(self) -> int:
        return self._length

    @property
    def end_s(self) -> float:
        return self.start_s + self._length * self.step_s

    @property
    def observed(self) -> FloatArray:
        return self._rows[0:2, : self._length]

    @property
    def filled(self) -> FloatArray:
        return self._rows[2:4, : self._length]

    @property
    def last(self) -> FloatArray:
        return self._rows[4:6, : self._length]

    def append(self, load: Load) -> None:
        begin, end = self._length, self._length + len(load)
        if end > self._rows.shape[1]:
            grown = np.empty((6, max(end, begin + begin // 8 + _FIRST_STEPS)))
            grown[:, :begin] = self._rows[:, :begin]
            self._rows = grown
        new = self._rows[0:2, begin:end]
        new[0], new[1] = load.mean_rps, load.peak_rps
        new[:, ~np.isfinite(new).all(axis=0)] = np.nan
        self.highest_rps = np.fmax.reduce(new, axis=1, initial=0.0).clip(self.highest_rps)
        self._length = end
        # A day at a time, so that a gap takes the filled values of the day before.
        for at in range(begin, end, self.season):
            day = slice(at, min(at + self.season, end))
            before = self.days_before(np.arange(day.start, day.stop), 1)
            self.filled[:, day] = np.where(np.isnan(self.observed[:, day]), before, self.observed[:, day])
        known = np.where(np.isnan(new[0]), -1, np.arange(begin, end))
        newest = np.maximum.accumulate(known)
        older = self._rows[4:6, begin - 1 : begin] if begin else np.zeros((2, 1))
        self._rows[4:6, begin:end] = np.where(newest >= 0, self._rows[0:2, np.maximum(newest, 0)], older)

    def newest(self) -> FloatArray:
        """Return the last observation (2,); 0 before the first."""
        return self.last[:, -1] if self._length else np.zeros(2)

    def days_before(self, steps: np.ndarray[tuple[int], np.dtype[np.int64]], days: int) -> FloatArray:
        """Return `filled` `days` before `steps` (K,): (2, K), NaN before the beginning."""
        at = steps - days * self.season
        return np.where(at >= 0, self._rows[2:4, np.maximum(at, 0)], np.nan)


def error_quantiles(errors: FloatArray, levels: FloatArray = LEVELS) -> FloatArray:
    """Return quantiles of each row of `errors` (..., N) without NaN: (..., levels); 0 for a row of NaN only."""
    ordered = np.sort(errors, axis=-1)  # NaN goes last
    count = ordered.shape[-1]
    if count and not np.isnan(ordered[..., -1]).any():
        place = levels * (count - 1)
        low = place.astype(np.int64)
        below, above = np.take(ordered, low, axis=-1), np.take(ordered, np.minimum(low + 1, count - 1), axis=-1)
        return np.asarray(below + (above - below) * (place - low))
    known = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    place = levels * np.maximum(known - 1, 0)
    low = place.astype(np.int64)
    high = np.minimum(low + 1, np.maximum(known - 1, 0))
    if ordered.shape[-1] == 0:
        return np.zeros((*errors.shape[:-1], len(levels)))
    below, above = np.take_along_axis(ordered, low, axis=-1), np.take_along_axis(ordered, high, axis=-1)
    return np.where(known > 0, below + (above - below) * (place - low), 0.0)


def within(values: IntArray, least: int, most: int) -> IntArray:
    """np.clip of integers at a quarter of its time: it looks up their limits at every call."""
    return np.minimum(np.maximum(values, least), most)


def by_step(at_horizons: FloatArray, steps: int) -> FloatArray:
    """Interpolate values at HORIZONS (..., 7) linearly: (..., steps), constant beyond the last."""
    left, right, weight = _between(steps)
    return np.asarray(at_horizons[..., left] * (1.0 - weight) + at_horizons[..., right] * weight, dtype=np.float64)


@lru_cache(maxsize=16)
def _between(steps: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the places in HORIZONS below and above each step, and the weight of the latter."""
    ahead = within(np.arange(1, steps + 1), int(HORIZONS[0]), int(HORIZONS[-1]))
    right = within(np.searchsorted(HORIZONS, ahead), 1, len(HORIZONS) - 1)
    return right - 1, right, (ahead - HORIZONS[right - 1]) / (HORIZONS[right] - HORIZONS[right - 1])
