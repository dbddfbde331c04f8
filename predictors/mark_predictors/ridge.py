"""Direct linear regression for every horizon, on logarithms: from the current level, and the course of other days.

Each horizon has a separate regression, because repeated one-step forecasts would accumulate errors. It is
ridge-penalised, and unusual errors (Huber's weights by iterated least squares) and older days have less weight.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from mark.domain.arrays import FloatArray, IntArray
from mark_predictors.load_history import within
from mark_predictors.logload import WEEK, LogLoad
from mark_predictors.trees import compiled

_MINUTES = (1, 3, 6, 10, 15, 20, 30, 40, 50, 60)  # horizons with separate regressions; linear between
_DAYS = 10.0  # to learn from
_HALF_LIFE_DAYS = 5.0
_SPANS = (1, 2, 5, 15, 30, 60)  # minutes of recent load, for features
_RECENT_DAYS = 3.0  # whose errors make the quantiles
_LEAST = 100  # fewest origins for a forecast
_PENALTY = 1e-3
_ROUNDS = 4  # of reweighting
_HUBER = 1.5  # median absolute errors


class Ridge:
    """The regressions over a `LogLoad` that grows."""

    def __init__(self, load: LogLoad, levels: FloatArray) -> None:
        self._load, self._levels = load, levels
        ahead = [load.steps(minutes) for minutes in _MINUTES]
        self._ahead = np.array(sorted({h for h in ahead if h <= load.hour}), dtype=np.int64)
        # half width for smoothing the days before
        self._half = load.steps(10) // 2 if load.history.step_s < 300.0 else 0
        self._weights: FloatArray | None = None  # (horizons, features)
        self._errors = np.zeros((len(levels), len(self._ahead)))

    @property
    def ready(self) -> bool:
        return self._weights is not None

    def learn(self) -> None:
        """Fit on the current load. With too little load the weights stay unchanged."""
        load = self._load
        # With less than two days the features of other days are zero, and only the hours count.
        first = max(load.hour + 1, load.day + 1 if len(load) > 2 * load.day else 0, len(load) - round(_DAYS * load.day))
        every = np.arange(first, max(first, len(load) - int(self._ahead[-1]) + 1))
        observed = ~np.isnan(load.history.observed[0])
        every = every[observed[every - 1]]
        if len(every) < _LEAST:
            return
        age = (len(load) - every) / load.day
        recency = 0.5 ** (age / _HALF_LIFE_DAYS)
        weights = []
        quantiles = np.zeros_like(self._errors)
        # On such small matrices, threads that wait for one another take fifty times as long as one.
        with threadpool_limits(1, user_api="blas"):
            for k, ahead in enumerate(self._ahead):
                some = observed[every + ahead - 1]
                if np.count_nonzero(some) < _LEAST:
                    return
                # One horizon at a time, because the features of all would take 60 MB.
                (features,), base = self._features(every, self._ahead[k : k + 1])
                target = load.logs[every[some] + ahead - 1] - base[some]
                found, errors = _robust(features[some], target, recency[some])
                weights.append(found)
                recent = errors[age[some] < _RECENT_DAYS]
                quantiles[:, k] = np.quantile(recent if len(recent) >= _LEAST else errors, self._levels)
        self._weights, self._errors = np.array(weights), quantiles

    def quantiles(self, steps: int) -> FloatArray:
        """Return (levels, steps) of the mean rate in requests/s."""
        assert self._weights is not None
        features, base = self._features(np.array([len(self._load)]), self._ahead)
        point = base[0] + (self._weights * features[:, 0]).sum(axis=1)
        logs = point + self._errors
        ahead = within(np.arange(1, steps + 1), 1, int(self._ahead[-1]))
        right = within(np.searchsorted(self._ahead, ahead), min(1, len(self._ahead) - 1), len(self._ahead) - 1)
        left = np.maximum(right - 1, 0)
        width = np.maximum(self._ahead[right] - self._ahead[left], 1)
        share = np.clip((ahead - self._ahead[left]) / width, 0.0, 1.0)
        return self._load.rates(logs[:, left] * (1.0 - share) + logs[:, right] * share)

    def _features(self, origins: IntArray, horizons: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the inputs of each horizon's regression: (horizons, K, features), and the current level (K,)."""
        load = self._load
        spans = np.array([load.steps(minutes) for minutes in _SPANS])
        features = np.empty((len(horizons), len(origins), 1 + len(_SPANS) + 9))
        base = np.empty(len(origins))
        _fill_features(load.logs, load.sums, origins, horizons, load.hour, load.day, self._half, spans, features, base)
        return features, base


@compiled
def _mean(sums: FloatArray, begin: int, end: int) -> float:
    """Return `LogLoad.means` of one range."""
    begin, end = min(max(begin, 0), len(sums) - 2), min(max(end, 1), len(sums) - 1)
    return float((sums[end] - sums[begin]) / (end - begin))


@compiled
def _fill_features(
    logs: FloatArray,
    sums: FloatArray,
    origins: IntArray,
    horizons: IntArray,
    hour: int,
    day: int,
    half: int,
    spans: IntArray,
    features: FloatArray,
    base: FloatArray,
) -> None:
    """Fill the features (horizons, K, features): 1, recent means, changes and levels of the days before, and the load
    an hour before; all relative to the `base` (K,), the mean over the third of the `spans`.
    """
    for k in range(len(origins)):
        origin = origins[k]
        base[k] = _mean(sums, origin - spans[2], origin)
        for h in range(len(horizons)):
            row = features[h, k]
            row[0] = 1.0
            for i in range(len(spans)):
                row[1 + i] = _mean(sums, max(origin - spans[i], 0), origin) - base[k]
            of_days = row[1 + len(spans) : 9 + len(spans)]  # change and level in turns: yesterday, 3 days, week, last
            of_days[:] = 0.0
            known = 0
            for d in range(1, WEEK + 1):
                then = origin - d * day
                if then < 1:
                    continue
                known += 1
                level = _mean(sums, then - 1 - half, then + half)
                change = _mean(sums, then + horizons[h] - 1 - half, then + horizons[h] + half) - level
                level -= base[k]
                if d == 1:
                    of_days[0], of_days[1] = change, level
                if d <= 3:
                    of_days[2] += change
                    of_days[3] += level
                of_days[4] += change
                of_days[5] += level
                if d == WEEK:
                    of_days[6], of_days[7] = change, level
            for at in (2, 3):
                of_days[at] /= max(min(known, 3), 1)
            for at in (4, 5):
                of_days[at] /= max(known, 1)
            row[9 + len(spans)] = logs[max(origin + horizons[h] - 1 - hour, 0)] - base[k]


def _robust(features: FloatArray, target: FloatArray, recency: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weights (F,) and errors (N,) of Huber's regression with a ridge penalty."""
    weight = recency
    penalty = _PENALTY * recency.sum() * np.eye(features.shape[1])
    penalty[0, 0] = 0.0
    errors = target
    for _ in range(_ROUNDS):
        weighted = features * weight[:, None]
        found = np.linalg.solve(weighted.T @ features + penalty + 1e-9 * np.eye(len(penalty)), weighted.T @ target)
        errors = target - features @ found
        usual = _HUBER * float(np.median(np.abs(errors))) + 1e-6
        weight = recency * np.minimum(1.0, usual / np.maximum(np.abs(errors), 1e-9))
    return np.asarray(found, dtype=np.float64), np.asarray(errors, dtype=np.float64)
