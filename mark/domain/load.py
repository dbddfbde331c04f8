"""Observed load and its forecast, on a regular grid of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput

LEVELS: FloatArray = np.arange(1, 20) / 20.0  # the quantiles that mark's own predictors give


@dataclass(frozen=True, slots=True)
class Load:
    """The arrivals by step: `mean_rps` over the step and `peak_rps`, the highest 5 s rate within it.

    Step k covers [start_s + k step_s, start_s + (k+1) step_s); seconds count from the trace's first row. Missing steps
    are NaN in both. If bins are coarser than 5 s, peak_rps is the highest rate of a bin (or of a minute), and `fine` is
    False.
    """

    start_s: float
    step_s: float
    mean_rps: FloatArray
    peak_rps: FloatArray
    fine: bool = True

    def __post_init__(self) -> None:
        if self.mean_rps.shape != self.peak_rps.shape or self.mean_rps.ndim != 1:
            raise BadInput("mean and peak differ in length", "load", (self.mean_rps.shape, self.peak_rps.shape))

    @property
    def end_s(self) -> float:
        return self.start_s + self.step_s * len(self.mean_rps)

    def __len__(self) -> int:
        return len(self.mean_rps)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted load of the next steps.

    Step h covers [origin_s + h step_s, origin_s + (h+1) step_s). `levels` (Q,) ascend in (0, 1); `mean_rps` and
    `peak_rps` have shape (Q, H), are not negative and do not cross. `paths_rps` (P, H) are equally likely futures of
    the mean rate, from which the quantiles are computed; None if the predictor draws none. `predictor` is the
    predictor's name.
    """

    origin_s: float
    step_s: float
    levels: FloatArray
    mean_rps: FloatArray
    peak_rps: FloatArray
    predictor: str
    paths_rps: FloatArray | None = None

    def __post_init__(self) -> None:
        shape = (len(self.levels), self.mean_rps.shape[1])
        if self.mean_rps.shape != shape or self.peak_rps.shape != shape:
            raise BadInput("forecast shapes differ", self.predictor, (shape, self.mean_rps.shape, self.peak_rps.shape))
        for rates in (self.mean_rps,) if self.peak_rps is self.mean_rps else (self.mean_rps, self.peak_rps):
            rising = (rates[1:] >= rates[:-1] - 1e-9).all()  # False for NaN, like the next checks
            if rates.size and not (rising and rates.min() >= 0.0 and rates.max() < np.inf):
                raise BadInput("quantiles must be finite, not negative, and must not cross", self.predictor)

    @property
    def steps(self) -> int:
        return int(self.mean_rps.shape[1])

    def peak_at(self, level: float) -> FloatArray:
        """Return quantile `level` of the highest 5 s rate per step, shape (H,); linear between levels."""
        return _quantile(self.levels, self.peak_rps, level)

    def mean_at(self, level: float) -> FloatArray:
        """Return quantile `level` of the mean rate per step, shape (H,)."""
        return _quantile(self.levels, self.mean_rps, level)

    def means_at(self, levels: Sequence[float]) -> FloatArray:
        """Return `mean_at` of each level, shape (levels, H)."""
        held = np.asarray(self.levels, dtype=np.float64).tobytes()
        places = [_place(held, level) for level in levels]
        low = np.array([place for place, _ in places])
        weight = np.array([[weight] for _, weight in places])
        high = np.minimum(low + 1, len(self.levels) - 1)
        return np.asarray(self.mean_rps[low] * (1.0 - weight) + self.mean_rps[high] * weight, dtype=np.float64)

    def by_minute(self) -> Forecast:
        """Return the same forecast on 60 s steps, each longer step repeated (a step is never shorter than 60 s)."""
        times = round(self.step_s / 60.0)
        if times == 1:
            return self
        return Forecast(
            self.origin_s,
            60.0,
            self.levels,
            np.repeat(self.mean_rps, times, axis=1),
            np.repeat(self.peak_rps, times, axis=1),
            self.predictor,
            None if self.paths_rps is None else np.repeat(self.paths_rps, times, axis=1),
        )


def _quantile(levels: FloatArray, rates: FloatArray, level: float) -> FloatArray:
    low, weight = _place(np.asarray(levels, dtype=np.float64).tobytes(), level)
    if low == len(levels) - 1:
        return np.asarray(rates[low])
    return np.asarray(rates[low] * (1.0 - weight) + rates[low + 1] * weight, dtype=np.float64)


@lru_cache(maxsize=1024)
def _place(levels: bytes, level: float) -> tuple[int, float]:
    """Return the index of the level below, and the distance from it.

    Cached, because nearly all forecasts have equal levels.
    """
    ascending = np.frombuffer(levels)
    place = float(np.interp(level, ascending, np.arange(len(ascending), dtype=np.float64)))
    return int(place), place - int(place)
