"""Compiled parts of the forest: the features of an origin, and the past origins that share a leaf with it.

The compiled functions call none of another file, because numba's on-disk cache watches this file only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark_predictors.logload import WEEK
from mark_predictors.trees import compiled

SURGE = 0.4  # in logarithms: half as much again as usual
LAGS = np.array([0, 1, 2, 3, 5, 8])  # steps ago
_GAPS = (57, 23, 10, 4, 1)
_OF_A_DAY = 2  # features of a past day, in addition to one for each quarter


def width_of(window: int, quarters: int) -> int:
    """Return the number of features, for a window of steps and a number of quarters."""
    return 5 + int(np.count_nonzero(window > LAGS)) + 10 + 2 + 2 + 2 * quarters + 5 * (quarters + _OF_A_DAY)


@compiled
def _median(values: FloatArray, ordered: FloatArray) -> float:
    """Return the median; `ordered` is scratch of the same length."""
    count = len(values)
    for i in range(count):
        ordered[i] = values[i]
    for gap in _GAPS:  # Shell's method: numba loads np.sort for longer than all the sorting of a day takes
        for i in range(gap, count):
            value, at = ordered[i], i
            while at >= gap and ordered[at - gap] > value:
                ordered[at] = ordered[at - gap]
                at -= gap
            ordered[at] = value
    middle = count // 2
    return float(ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0)


@compiled
def _highest(values: FloatArray) -> float:
    highest = values[0]
    for value in values:
        highest = max(highest, value)
    return float(highest)


@compiled
def _mean(values: FloatArray) -> float:
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


@compiled
def fill_features(
    logs: FloatArray,
    origins: IntArray,
    hour: int,
    day: int,
    window: int,
    spans: IntArray,
    quarters: IntArray,
    lags: IntArray,
    features: NDArray[np.float32],
    base: FloatArray,
) -> None:
    """Fill the features of each origin (K, features), and its base (K,): the median of the `window` steps before it.

    `spans` are lengths of recent load in steps; `quarters` (Q, 2) are begins and ends of stretches of the next `hour`
    steps. Days before the beginning of the history count as zero.
    """
    horizon, parts = hour, len(quarters)
    recent, around, scratch = np.empty(window), np.empty(window + horizon), np.empty(window)
    days = np.zeros((WEEK, parts + 2))
    for k in range(len(origins)):
        origin, row = origins[k], features[k]
        for i in range(window):
            recent[i] = logs[max(origin - 1 - i, 0)]
        base[k] = _median(recent, scratch)
        for i in range(window):
            recent[i] -= base[k]
        row[0], row[1], row[2] = origin % hour, origin % (2 * hour), origin % day // hour
        row[3], row[4] = origin % day, origin // day % WEEK
        at = 5
        for lag in lags:
            if lag < window:
                row[at] = recent[lag]
                at += 1
        for span in spans:
            row[at], row[at + 1] = _mean(recent[:span]), _highest(recent[:span])
            at += 2
        middle, squares = _mean(recent[:hour]), 0.0
        for i in range(hour):
            squares += (recent[i] - middle) ** 2
        row[at], row[at + 1] = np.sqrt(squares / hour), _mean(recent[-hour:])
        at += 2
        # Steps since the last surge, and the length of the current one.
        for surging in (True, False):
            since = 0
            while since < window and (recent[since] > SURGE) != surging:
                since += 1
            row[at] = since
            at += 1
        for hours in (1, 2):  # the same minutes of the last hours
            for q in range(parts):
                begin, end = max(0, hours * hour - quarters[q, 1]), max(1, hours * hour - quarters[q, 0])
                row[at] = _mean(recent[begin:end])
                at += 1
        known = 0
        for d in range(WEEK):
            then = origin - day * (d + 1)
            days[d] = 0.0
            if then < window:
                continue
            known += 1
            for i in range(window + horizon):
                around[i] = logs[then - window + i]
            usual = _median(around[:window], scratch)
            for i in range(window + horizon):
                around[i] -= usual
            after = around[window:]
            for q in range(parts):
                days[d, q] = _mean(after[quarters[q, 0] : quarters[q, 1]])
            days[d, parts], days[d, parts + 1] = _highest(after), around[window - 1]
        for i in range(parts + 2):
            three = every = surges = 0.0
            for d in range(WEEK):
                three += days[d, i] if d < 3 else 0.0
                every += days[d, i]
                surges += days[d, i] > SURGE
            row[at], row[at + parts + 2] = days[0, i], days[WEEK - 1, i]
            row[at + 2 * (parts + 2)] = three / max(min(known, 3), 1)
            row[at + 3 * (parts + 2)] = every / max(known, 1)
            row[at + 4 * (parts + 2)] = surges / max(known, 1)
            at += 1


@compiled
def weigh(
    row: NDArray[np.float32],
    roots: IntArray,
    feature: NDArray[np.int16],
    threshold: FloatArray,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    begin: NDArray[np.int32],
    members: NDArray[np.int16],
    weights: FloatArray,
) -> None:
    """Add to `weights` (N,) how often each training origin shares a leaf with the features `row`, by leaf size."""
    for root in roots:
        node = root
        while feature[node] >= 0:
            node = left[node] if row[feature[node]] <= threshold[node] else right[node]
        share = 1.0 / (begin[node + 1] - begin[node])
        for m in range(begin[node], begin[node + 1]):
            weights[members[m]] += share
