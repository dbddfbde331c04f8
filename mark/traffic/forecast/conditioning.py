"""A forecast updated by the current rate: its sample paths, filtered by the rate seen just now.

A minute is long when a surge has begun. The paths of the last forecast already include futures with the surge and its
duration; the paths nearest to the current rate are kept (rejection sampling).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast

_KEPT = 20  # paths
_FADE_STEPS = 15  # steps over which load that no path foresaw fades
_MOST_TIMES = 100.0  # beyond this factor a path near zero is raised by a sum, because the factor says nothing


def condition_on_rate(forecast: Forecast, rate_rps: float) -> Forecast:
    """Return `forecast` given that the rate is `rate_rps` now, within its first step.

    A path is compared by its first two steps, because a surge that begins within a step fills only part of it. Without
    paths each quantile serves as a path. The remaining difference to the nearest paths is a factor that fades; for a
    path that is near zero now it is a sum, because its factor is unbounded.
    """
    paths = forecast.mean_rps if forecast.paths_rps is None else forecast.paths_rps
    now = paths[:, :2].max(axis=1)
    order = np.argsort(np.abs(np.log((now + 1e-9) / (rate_rps + 1e-9))), kind="stable")[:_KEPT]
    fade = np.maximum(0.0, 1.0 - np.arange(forecast.steps) / _FADE_STEPS)
    now = now[order, None]
    factor = _ratio(rate_rps, now)
    nearest = paths[order]
    raised = nearest + (rate_rps - now) * fade
    kept = np.where(factor > _MOST_TIMES, raised, nearest * (1.0 + (factor - 1.0) * fade))
    kept[:, 0] = rate_rps
    mean = np.quantile(kept, forecast.levels, axis=0)
    after, before = np.median(kept, axis=0), forecast.mean_at(0.5)
    ratio = _ratio(after, before)
    peak = np.where(ratio > _MOST_TIMES, forecast.peak_rps + after - before, forecast.peak_rps * ratio)
    peak = np.maximum(mean, peak)
    return replace(forecast, mean_rps=mean, peak_rps=np.maximum.accumulate(peak, axis=0), paths_rps=kept)


def _ratio(after: FloatArray | float, before: FloatArray) -> FloatArray:
    return np.asarray((after + 1e-9) / (before + 1e-9))
