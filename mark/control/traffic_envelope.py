"""The traffic envelope: detect within seconds that more arrives than planned, so that a new plan need not wait.

Arrivals are counted over windows of 10, 20 and 40 s, as in InferLine (2020, section 5), and compared with the planned
rate.
"""

from __future__ import annotations

import math

import numpy as np

from mark.control.ports import WINDOW_S
from mark.domain.arrays import FloatArray
from mark.domain.time import STEP_S

_LENGTHS = (2, 4, 8)  # in windows
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
