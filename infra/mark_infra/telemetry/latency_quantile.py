"""Quantiles of latencies that are known by how many were at most each bound of a histogram."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mark.serving.backend.metrics import SECONDS


def latency_quantile_s(within: Sequence[float], quantile: float) -> float | None:
    """The latency, in seconds, that a share `quantile` (0 to 1) of the answers had at most; None where there are none.

    `within` counts the answers of at most each of bouncers' bounds (`mark.serving.backend.metrics.SECONDS`), and then
    all. Between two bounds, a factor of 1.6 apart above 10 ms, answers are taken as spread evenly, as Prometheus does
    it (`histogram_quantile`); those above the last one count as that.
    """
    if len(within) != len(SECONDS) + 1 or within[-1] <= 0.0:
        return None
    count = quantile * within[-1]
    place = bisect_left(within, count, hi=len(SECONDS))
    if place == len(SECONDS):
        return SECONDS[-1]
    low_s, below = (SECONDS[place - 1], within[place - 1]) if place else (0.0, 0.0)
    inside = within[place] - below
    return low_s + (SECONDS[place] - low_s) * ((count - below) / inside if inside > 0.0 else 1.0)
