"""The forecast of last resort, for a failing predictor: the last value continues. Its name shows that it was used."""

from __future__ import annotations

from array import array
from statistics import NormalDist

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.time import DAY_S

NAME = "last-value"
_PEAK_WINDOW_S = 5.0
# Its errors are collected at these horizons (steps ahead) and interpolated between them.
_HORIZONS = np.array([1, 2, 4, 8, 15, 30, 60])
_ENOUGH = 20  # errors at a horizon, before their quantiles are trusted
_REFRESH = 30  # steps between two updates of the errors
_WINDOW = 1440  # steps whose errors count; at most a week of coarse steps
_WEEK_S = 7 * DAY_S


class LastValue:
    """Implements `Predictor`: the last observed step in every future step; 0 before the first observation.

    The spread comes from the errors of this rule at each horizon over the last 1440 steps. It is at least the spread of
    Poisson counts and never narrows with the horizon; beyond the horizons with known errors it grows with the square
    root of the horizon, as the errors of a random walk do. The median is the last value itself.
    """

    name = NAME

    def __init__(self, seed: int = 0) -> None:
        # Nothing here is random; every predictor is created with a `seed`.
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    def _begin(self, history: Load) -> None:
        self._window = int(min(_WINDOW, max(1.0, _WEEK_S / history.step_s)))
        self._seen = array("d")  # mean and peak in turn, of the newest steps
        self._last = (0.0, 0.0)
        self._since = _REFRESH  # steps since the last update of the errors
        self._errors = np.empty((2, len(LEVELS), 0))  # quantiles of errors, at the first of _HORIZONS
        self._weights: dict[bytes, FloatArray] = {}
        self.update(history)

    def fit(self, history: Load) -> None:
        self._begin(history)

    def update(self, observed: Load) -> None:
        self._origin_s, self._step_s = observed.end_s, observed.step_s
        self._since += len(observed)
        for pair in zip(observed.mean_rps.tolist(), observed.peak_rps.tolist(), strict=True):
            known = 0.0 <= pair[0] < np.inf and 0.0 <= pair[1] < np.inf  # False for NaN
            self._seen.extend(pair if known else (np.nan, np.nan))
            if known:
                self._last = pair
        if len(self._seen) > 4 * self._window:
            del self._seen[: -2 * self._window]

    def predict(self, steps: int, recent_rps: float | None = None) -> Forecast:
        """Return the forecast. A given `recent_rps` replaces the last step, which may be coarse or incomplete."""
        mean, peak = self.quantiles(np.arange(1, steps + 1), recent_rps)
        return Forecast(self._origin_s, self._step_s, LEVELS, mean, np.maximum(mean, peak), self.name)

    def quantiles(self, ahead: IntArray, recent_rps: float | None = None) -> FloatArray:
        """Return quantiles of mean and peak by steps `ahead` (from 1, ascending): (2, 19, K)."""
        if self._since >= _REFRESH:
            self._look()
        last, last_peak = self._last
        rate = last if recent_rps is None else recent_rps
        windows = max(1.0, self._step_s / _PEAK_WINDOW_S)
        # The highest of n windows stays below its quantile q if all do, so that is the quantile q^(1/n) of one window.
        counts = np.stack([_Z, _normal_to_the(1.0 / windows)])
        counts *= np.sqrt(rate / np.array([[self._step_s], [_PEAK_WINDOW_S]]))
        usual_peak = counts[1, _MEDIAN]
        counts[1] -= usual_peak
        spread = np.concatenate([counts[:, :, None], self._errors], axis=2)
        # Below the median the lowest so far, above it the highest, so that no horizon is narrower than a shorter one.
        np.minimum.accumulate(spread[:, :_MEDIAN], axis=2, out=spread[:, :_MEDIAN])
        np.maximum.accumulate(spread[:, _MEDIAN + 1 :], axis=2, out=spread[:, _MEDIAN + 1 :])
        spread[:, _MEDIAN] = 0.0
        level = np.array([rate, rate + max(last_peak - last, usual_peak)])
        return np.asarray(np.maximum(0.0, level[:, None, None] + spread @ self._weights_of(ahead)))

    def _look(self) -> None:
        self._since = 0
        seen = np.array(self._seen[-2 * self._window :]).reshape(-1, 2).T
        found = []
        for h in _HORIZONS:
            errors = seen[:, h:] - seen[:, :-h]
            errors = np.sort(errors[:, ~np.isnan(errors[0])])
            count = errors.shape[1]
            if count < _ENOUGH:
                break
            found.append(errors[:, np.rint(LEVELS * (count - 1)).astype(np.int64)])
        self._errors = np.stack(found, axis=2) if found else np.empty((2, len(LEVELS), 0))
        self._weights.clear()

    def _weights_of(self, ahead: IntArray) -> FloatArray:
        """Return the weights of the counts' spread and each known horizon at each step: (1 + horizons, K)."""
        key = ahead.tobytes()
        if key not in self._weights:
            known = self._errors.shape[2]
            at = _HORIZONS[:known] if known else np.ones(1)
            parts = np.stack([np.interp(ahead, at, one) for one in np.eye(len(at))])
            growth = np.sqrt(np.maximum(1.0, ahead / at[-1]))
            # Known errors already contain the counts' spread.
            self._weights[key] = (np.concatenate([np.zeros((1, len(ahead))), parts]) if known else parts) * growth
        return self._weights[key]


def _normal_to_the(power: float) -> FloatArray:
    """Return standard normal quantiles at LEVELS^power."""
    if power not in _NORMAL:
        _NORMAL[power] = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS**power])
    return _NORMAL[power]


_NORMAL: dict[float, FloatArray] = {}
_Z = _normal_to_the(1.0)
_MEDIAN = len(LEVELS) // 2
