"""The history for regressions: logarithms without gaps, in which surges and seasons are additive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.time import HOUR_S
from mark_predictors.load_history import ObservedHistory, within

WEEK = 7  # days
_LEAST_FLOOR = 0.02  # of the mean rate: below, differences of logarithms are noise


class LogLoad:
    """log(rate + floor) of a `ObservedHistory`'s mean; NaN is replaced by the day before, else the last value.

    `hour` and `day` count steps. The floor (half a request per step, or more) keeps empty steps finite; `measure` sets
    it from all observations.
    """

    def __init__(self, history: ObservedHistory) -> None:
        self.history = history
        self.hour = max(1, round(HOUR_S / history.step_s))
        self.day = history.season
        self._logs = np.empty(1024)
        self._sums = np.zeros(1025)  # so that means over windows cost two look-ups
        self._length = 0
        self.floor_rps = 0.0
        self.measure()

    def __len__(self) -> int:
        return self._length

    @property
    def logs(self) -> FloatArray:
        return self._logs[: self._length]

    @property
    def sums(self) -> FloatArray:
        """The sum of the logs before each step, and of all."""
        return self._sums[: self._length + 1]

    def steps(self, minutes: float) -> int:
        """Return `minutes` in steps, at least one."""
        return max(1, round(minutes * 60.0 / self.history.step_s))

    def measure(self) -> None:
        """Choose the floor by the mean rate of all observations, and compute the logarithms again."""
        observed = self.history.observed[0]
        known = observed[~np.isnan(observed)]
        mean = float(known.mean()) if len(known) else 0.0
        self.floor_rps = max(0.5 / self.history.step_s, _LEAST_FLOOR * mean)
        self._length = 0
        self.extend()

    def extend(self) -> None:
        """Add the steps that the history has gained."""
        begin, end = self._length, len(self.history)
        if end > len(self._logs):
            size = end + end // 8
            logs, sums = np.empty(size), np.zeros(size + 1)
            logs[:begin], sums[: begin + 1] = self._logs[:begin], self._sums[: begin + 1]
            self._logs, self._sums = logs, sums
        filled = self.history.filled[0, begin:end]
        rates = np.where(np.isnan(filled), self.history.last[0, begin:end], filled)
        self._logs[begin:end] = np.log(rates + self.floor_rps)
        self._sums[begin + 1 : end + 1] = self._sums[begin] + np.cumsum(self._logs[begin:end])
        self._length = end

    def rates(self, logs: FloatArray) -> FloatArray:
        """Convert back to requests/s, not below zero."""
        return np.asarray(np.maximum(0.0, np.exp(np.minimum(logs, 60.0)) - self.floor_rps), dtype=np.float64)

    def before(self, origins: IntArray, width: int) -> FloatArray:
        """Return the `width` steps before each origin, newest first: (K, width).

        The first step stands for earlier ones.
        """
        return np.asarray(self.logs[np.maximum(origins[:, None] - 1 - np.arange(width), 0)])

    def means(self, begin: IntArray, end: IntArray) -> FloatArray:
        """Return the mean over each [begin, end), cut to the known range."""
        begin, end = within(begin, 0, self._length - 1), within(end, 1, self._length)
        return np.asarray((self._sums[end] - self._sums[begin]) / (end - begin))

    def known(self, origins: IntArray, steps: int) -> NDArray[np.bool_]:
        """Return whether the step before each origin and all `steps` after it were observed."""
        missing = np.concatenate([[0], np.cumsum(np.isnan(self.history.observed[0]))])
        return np.asarray(missing[origins + steps] == missing[origins - 1])
