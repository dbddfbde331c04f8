"""`auto`: the best we have, until a choice among more predictors is made: the recent level and the same time of day.

The point forecast is w x recent + (1 - w) x usual. `usual` is the median of the same step on the last three days,
`recent` the last value or its exponential average, and both choices, w and which, are made per horizon by the mean
absolute error they would have had over the last day. The quantiles are those very errors' quantiles.
"""

from __future__ import annotations

import numpy as np

from mark.domain.load import LEVELS, FloatArray, Forecast, Load
from mark_predictors.history import HORIZONS, History, by_step, error_quantiles

_WEIGHTS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
_SMOOTHING: FloatArray = 0.3 * 0.7 ** np.arange(12.0)  # newest first, as a convolution takes them
_REFRESH = 15  # steps between two looks at the errors


class Auto:
    """Implements `Predictor`."""

    name = "auto"

    def __init__(self, seed: int = 0) -> None:
        # Nothing here is random: `seed` is what every predictor is made with.
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    def fit(self, history: Load) -> None:
        self._begin(history)

    def update(self, observed: Load) -> None:
        self._history.append(observed)

    def predict(self, steps: int) -> Forecast:
        seen = self._history
        if self._looked is None or len(seen) - self._looked >= _REFRESH:
            self._look()
        first = len(seen)
        usual = self._usual(np.arange(first, first + steps))
        level = self._recent(first - 1, first) if first else np.zeros((2, 2, 1))
        weights = by_step(self._weights, steps)  # (2 kinds of recent, 2 rows, steps)
        known = ~np.isnan(usual)
        total = weights.sum(axis=0)
        recent = (weights * level).sum(axis=0)
        # Without a usual value the recent ones share its weight; they have some once errors were seen.
        alone = np.where(total > 0.0, recent / np.where(total > 0.0, total, 1.0), level[0])
        point = np.where(known, recent + (1.0 - total) * np.where(known, usual, 0.0), alone)
        mean, peak = np.maximum(0.0, point[:, None, :] + by_step(self._offsets, steps))
        return Forecast(seen.end_s, seen.step_s, LEVELS, mean, np.maximum(mean, peak), self.name)

    def _begin(self, history: Load) -> None:
        self._history = History(history)
        self._looked: int | None = None  # how much had been seen when errors were last looked at
        self._weights = np.zeros((2, 2, len(HORIZONS)))
        self._offsets = np.zeros((2, len(LEVELS), len(HORIZONS)))

    def _usual(self, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
        """Median of the same step on up to three days before, the nearest observed ones: (2, K), NaN without any."""
        seen = self._history
        # Steps beyond tomorrow's same time look back from the day that is known.
        beyond = np.maximum(0, (steps - len(seen)) // seen.season)
        steps = steps - beyond * seen.season
        one, two, three = (seen.days_before(steps, days) for days in (1, 2, 3))
        both = np.where(np.isnan(two), one, 0.5 * (one + two))
        middle = np.maximum(np.minimum(one, two), np.minimum(np.maximum(one, two), three))
        return np.where(np.isnan(middle), both, middle)

    def _recent(self, begin: int, end: int) -> FloatArray:
        """As known at the end of each step from `begin` to `end`: the last value and its average, (2 kinds, 2, K)."""
        seen = self._history
        size = len(_SMOOTHING)
        start = max(0, begin - size + 1)
        observed = seen.observed[:, start:end]
        present = np.where(np.isnan(observed), 0.0, 1.0)
        values = np.where(np.isnan(observed), 0.0, observed)
        short = start - (begin - size + 1)  # the average reaches back beyond the beginning by so much
        last = seen.last[:, begin:end]
        average = np.empty_like(last)
        for row in range(2):
            weight, total = (
                np.convolve(np.concatenate([np.zeros(short), series[row]]), _SMOOTHING, "valid")
                for series in (present, values)
            )
            average[row] = np.where(weight > 0.0, total / np.where(weight > 0.0, weight, 1.0), last[row])
        return np.stack([last, average])

    def _look(self) -> None:
        """Choose weights per horizon by the errors they would have had, and keep these errors' quantiles."""
        seen = self._history
        self._looked = len(seen)
        first = max(0, len(seen) - seen.window)
        targets = np.arange(first, len(seen))
        if len(targets) == 0:
            return
        usual = self._usual(targets)
        past = max(0, first - int(HORIZONS[-1]))
        recent = self._recent(past, len(seen))
        for k, ahead in enumerate(HORIZONS):
            begin = max(first, past + int(ahead))
            if begin >= len(seen):
                # Too short a history for this horizon: as at the one before.
                if k:
                    self._weights[:, :, k] = self._weights[:, :, k - 1]
                    self._offsets[:, :, k] = self._offsets[:, :, k - 1]
                continue
            truth = seen.observed[:, begin:]
            levels = recent[:, :, begin - ahead - past : len(seen) - ahead - past]
            ordinary = usual[:, begin - first :]
            for row in range(2):
                self._weights[:, row, k], errors = _choose(truth[row], levels[:, row], ordinary[row])
                self._offsets[row, :, k] = error_quantiles(errors)


def _choose(truth: FloatArray, recent: FloatArray, usual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weights of the two kinds of recent (2,) with the least mean absolute error, and these errors (N,)."""
    known = ~np.isnan(truth)
    with_usual = known & ~np.isnan(usual)
    # Where there is no usual value yet only the recent ones can be compared.
    some = with_usual if np.count_nonzero(with_usual) >= 20 else known
    grid = _WEIGHTS if some is with_usual else _WEIGHTS[-1:]
    if not some.any():
        return np.array([0.0, 1.0]), np.empty(0)
    truth, recent = truth[some], recent[:, some]
    ordinary = usual[some] if some is with_usual else np.zeros(len(truth))
    # |truth - (w recent + (1 - w) usual)| for every kind and weight: (2, weights, N)
    errors = (truth - ordinary) - grid[:, None] * (recent - ordinary)[:, None, :]
    kind, at = divmod(int(np.argmin(np.abs(errors).mean(axis=2))), len(grid))
    weights = np.zeros(2)
    weights[kind] = grid[at]
    return weights, errors[kind, at]
