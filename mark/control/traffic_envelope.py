"""The envelope: does more arrive, over the last seconds, than was planned for? Then planning need not wait.

Arrivals are counted over windows of 10, 20 and 40 s, as a traffic envelope does (InferLine 2020, section 5), and
compared with what was planned for.
"""

from __future__ import annotations

import math

from mark.control.ports import WINDOW_S
from mark.domain.arrays import FloatArray

_LENGTHS = (2, 4, 8)  # windows
_DEVIATIONS = 5.0  # of a Poisson count: real traffic is a little more unsteady than that


def surprise_rps(recent_rps: FloatArray, expected_rps: float) -> float | None:
    """The rate that is seen, when it is above `expected_rps` beyond chance; None when it is not.

    `recent_rps` are the rates of the last 5 s windows, the newest last, NaN where nothing was observed. The shortest
    window that is surprising says how much it is: the longer ones began before it.
    """
    for length in _LENGTHS:
        window = recent_rps[-length:]
        if len(window) < length:
            continue
        expected = expected_rps * length * WINDOW_S
        counted = float(window.sum()) * WINDOW_S
        # False for NaN: of what is missing nothing is said.
        if counted > expected + _DEVIATIONS * math.sqrt(expected + 1.0):
            return counted / (length * WINDOW_S)
    return None
