"""The quality of forecasts: pinball loss, CRPS, coverage of intervals, MASE, accumulated forecast by forecast."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS

ENOUGH = 20  # pairs of steps, before a mean error of the naive forecast is trusted
_MEDIAN = 9  # places in LEVELS: 0.50
_HALF = (4, 14)  # 0.25 and 0.75
_NINE_TENTHS = (0, 18)  # 0.05 and 0.95


def pinball(levels: FloatArray, quantiles: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the loss max(q (y - x), (q - 1) (y - x)) of quantile x at level q for truth y; NaN if y is missing.

    `levels` (Q,), `quantiles` (Q, H), `truth` (H,): (Q, H), in the unit of the truth. Its expectation is least at the
    true quantile (Koenker and Bassett 1978).
    """
    error = truth - quantiles
    return np.asarray(np.maximum(levels[:, None] * error, (levels[:, None] - 1.0) * error), dtype=np.float64)


def crps(quantiles: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the continuous ranked probability score per step, (H,), of `quantiles` (19, H) at LEVELS.

    It is NaN if the truth is missing. It is twice the mean pinball loss: the CRPS is the integral of 2 L_q over q
    (Gneiting and Ranjan 2011), here its mean over the 19 levels. A single value at every level gives the absolute
    error.
    """
    return np.asarray(2.0 * pinball(LEVELS, quantiles, truth).mean(axis=0), dtype=np.float64)


def naive_error(rates: FloatArray, lag: int) -> float:
    """Return the mean of |y_t - y_(t - lag)| over pairs that are both observed; NaN below ENOUGH pairs."""
    errors = np.abs(rates[lag:] - rates[:-lag])
    errors = errors[np.isfinite(errors)]
    return float(errors.mean()) if len(errors) >= ENOUGH else math.nan


class Tally:
    """Scores of one predictor's forecasts of `steps` steps; memory does not grow with the number of forecasts.

    Only steps with a known truth count. Rates and scores in requests/s; undefined means are NaN.
    """

    def __init__(self, steps: int) -> None:
        # Sums per step ahead; the properties below name the rows.
        self._sums = np.zeros((6, steps))

    def add(
        self, mean_rps: FloatArray, truth_rps: FloatArray, peak_rps: FloatArray, peak_truth_rps: FloatArray
    ) -> None:
        """Add one forecast: quantiles of mean and 5 s peak, (19, H) at LEVELS, and the truth, (H,), NaN if unknown."""
        known = np.isfinite(truth_rps)
        rows = (
            known,
            crps(mean_rps, truth_rps),
            np.abs(truth_rps - mean_rps[_MEDIAN]),
            _inside(mean_rps, truth_rps, _HALF),
            _inside(mean_rps, truth_rps, _NINE_TENTHS),
            crps(peak_rps, peak_truth_rps),
        )
        self._sums += np.where(known, np.stack(rows), 0.0)

    @property
    def crps(self) -> float:
        return self._mean(1)

    @property
    def median_error(self) -> float:
        """Mean absolute error of the median."""
        return self._mean(2)

    @property
    def coverage_50(self) -> float:
        """Share of steps between the quantiles 0.25 and 0.75."""
        return self._mean(3)

    @property
    def coverage_90(self) -> float:
        """Share of steps between the quantiles 0.05 and 0.95."""
        return self._mean(4)

    @property
    def peak_crps(self) -> float:
        """CRPS of the highest 5 s rate within each step."""
        return self._mean(5)

    def by_step(self) -> list[dict[str, float]]:
        """Return CRPS, mean absolute error of the median, and coverage of each step ahead."""
        with np.errstate(invalid="ignore"):
            means = self._sums / self._sums[0]
        rows = {"crps": 1, "median_error": 2, "coverage_50": 3, "coverage_90": 4}
        return [{key: float(column[row]) for key, row in rows.items()} for column in means.T]

    def _mean(self, row: int) -> float:
        scored = float(self._sums[0].sum())
        return float(self._sums[row].sum()) / scored if scored else math.nan


def _inside(quantiles: FloatArray, truth: FloatArray, between: tuple[int, int]) -> FloatArray:
    low, high = between
    return np.asarray((quantiles[low] <= truth) & (truth <= quantiles[high]), dtype=np.float64)
