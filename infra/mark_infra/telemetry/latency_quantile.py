"""Quantiles of latencies from a histogram's cumulative counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mark.serving.backend.metrics import SECONDS


def latency_quantile_s(
    within: Sequence[float], quantile: float, known: tuple[float, float] | None = None
) -> float | None:
    """Return the latency, in seconds, that a share `quantile` (0 to 1) of the answers had at most.

    None without answers. `within` counts the answers within each of the bouncers' bounds
    (`mark.serving.backend.metrics.SECONDS`), and then all answers. Bounds are a factor of 1.6 apart above 10 ms.
    Answers are assumed to be spread evenly between two bounds, like in Prometheus' `histogram_quantile`; answers above
    the last bound count as that bound. `known` adds a bound, in seconds, with its number of answers. With RT_max as
    this bound, a quantile exceeds RT_max exactly if too many answers do.
    """
    if len(within) != len(SECONDS) + 1 or within[-1] <= 0.0:
        return None
    count = quantile * within[-1]
    bounds_s, counts = list(SECONDS), list(within)
    if known is not None:
        at = bisect_left(bounds_s, known[0])
        bounds_s.insert(at, known[0])
        counts.insert(at, min(max(known[1], counts[at - 1] if at else 0.0), counts[at]))
    place = bisect_left(counts, count, hi=len(bounds_s))
    if place == len(bounds_s):
        return bounds_s[-1]
    low_s, below = (bounds_s[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    return low_s + (bounds_s[place] - low_s) * ((count - below) / inside if inside > 0.0 else 1.0)
