"""The traffic envelope: detect within seconds that more arrives than planned, so that a new plan need not wait.

Arrivals are counted over windows of 10, 20 and 40 s, as in InferLine (2020, section 5), and compared with the planned
rate.
"""

from __future__ import annotations

import math

import numpy as np

from mark.control.ports import WINDOW_S
from mark.domain.arrays import FloatArray
from mark.domain.copying import replace
from mark.domain.load import Forecast
from mark.domain.time import STEP_S

_LENGTHS = (2, 4, 8)  # in windows
_MOST_TIMES = 100.0  # beyond this factor a forecast near zero says nothing about peaks
_DEVIATIONS = 5.0  # standard deviations of a Poisson count; many, because real traffic varies a little more


def surprise_rps(
    recent_rps: FloatArray, expected_rps: float, *, mean_rps: float = 0.0, peak_rps: float = 0.0
) -> float | None:
    """Return the observed rate if it exceeds the expected one beyond chance, else None.

    The expectation is `expected_rps` at all times, or a burst at `peak_rps` that ends once it has brought the requests
    of a minute at `mean_rps`. `recent_rps` are the rates of the last 5 s windows, newest last; NaN without
    observations. The result is the rate of the shortest surprising window, because longer ones began before the surge.
    """
    # Nearly always no window exceeds the expected rate, so no sum of windows does.
    if not np.fmax.reduce(recent_rps, initial=0.0) > expected_rps:
        return None
    for length in _LENGTHS:
        window = recent_rps[-length:]
        if len(window) < length:
            continue
        burst = min(peak_rps * length * WINDOW_S, mean_rps * STEP_S)
        expected = max(expected_rps * length * WINDOW_S, burst)
        counted = float(window.sum()) * WINDOW_S
        # The comparison is false for NaN, so a window with missing observations never surprises.
        if counted > expected + _DEVIATIONS * math.sqrt(expected + 1.0):
            return counted / (length * WINDOW_S)
    return None


def with_usual_peaks(raised: Forecast, usual: Forecast) -> Forecast:
    """Return a forecast that was raised to a surge with its peaks as far above each rate as `usual` has them there.

    Beyond the highest rate of `usual` the distance grows in proportion, up to `_MOST_TIMES` that rate.
    """
    above = np.empty_like(raised.mean_rps)
    for step in range(raised.steps):
        rates_rps, excess_rps = usual.mean_rps[:, step], usual.peak_rps[:, step] - usual.mean_rps[:, step]
        above[:, step] = np.interp(raised.mean_rps[:, step], rates_rps, excess_rps)
    times = raised.mean_rps / np.maximum(usual.mean_rps[-1], 1e-9)
    above *= np.where(times > _MOST_TIMES, 1.0, np.maximum(1.0, times))
    return replace(raised, peak_rps=np.maximum.accumulate(raised.mean_rps + above, axis=0))
