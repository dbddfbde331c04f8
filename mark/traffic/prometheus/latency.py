"""The share of answers within a bound, from the cumulative buckets of a histogram."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.arrays import FloatArray
from mark.traffic.prometheus.answers import PromAnswer

_NEAR_S = 0.5  # a point this close to a time is of that time


def in_time_share(answer: PromAnswer, bound: float, times_s: FloatArray) -> FloatArray:
    """The share at each time, NaN where the histogram had no answers.

    `answer` holds one series for each `le`. Between two bounds of buckets answers are taken to be spread evenly; beyond
    the last finite bound none is within `bound`.
    """
    rows = []
    for series in answer.series:
        try:
            le = float(series.labels.get("le", ""))
        except ValueError:
            continue
        counts = np.full(len(times_s), math.nan)
        place = np.searchsorted(times_s, series.times_s - _NEAR_S).clip(0, len(times_s) - 1)
        near = np.abs(times_s[place] - series.times_s) <= _NEAR_S
        counts[place[near]] = series.values[near]
        rows.append((le, counts))
    rows.sort(key=lambda row: row[0])
    if not rows or not math.isinf(rows[-1][0]):
        return np.full(len(times_s), math.nan)
    # Rates of two buckets may differ by rounding in the wrong direction.
    counts = np.maximum.accumulate(np.array([[0.0] * len(times_s), *(row for _, row in rows)]), axis=0)
    bounds = np.array([0.0, *(le for le, _ in rows)])
    high = int(np.searchsorted(bounds, bound, side="left"))
    below = high - 1
    within = counts[below].copy()
    if math.isfinite(bounds[high]):
        within += (counts[high] - counts[below]) * (bound - bounds[below]) / (bounds[high] - bounds[below])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts[-1] > 0.0, within / counts[-1], math.nan)
