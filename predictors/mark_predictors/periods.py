"""Find short periods in load, such as jobs that start every half hour or every two hours and send bursts."""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.time import DAY_S

LONGEST_S = 4 * 3600.0  # a longer rhythm belongs to the shape of the day
_MOST = 3  # periods
_CYCLES = 8  # of a period that must have been seen
_SIGNIFICANT = 8.0  # standard deviations under white noise
_SHARE = 0.02  # share of the changes' variance that a period must explain to be worth a profile
# of the share that the profile of a day explains: a single sharp hour a day explains a sixth of it at most
_OF_DAY = 0.25
_AS_GOOD = 0.9  # of the best period's share, for a shorter one to be preferred


def short_periods(series: FloatArray, step_s: float) -> tuple[int, ...]:
    """Return repeating periods in `series` (N,), in steps of `step_s` seconds, the strongest first.

    Periods are at most four hours long. `series` is on the scale on which the model adds (log rates); NaN are gaps.
    Among periods that explain alike the shortest is taken; its profile is then removed and the next one sought.

    Differences are used, because a wandering level is flat in them. They are folded at every period, once with the even
    and once with the odd cycles. The mean product of the two profiles estimates the variance of the true one without
    bias, because noise does not repeat.
    """
    change = np.diff(series)
    known = np.isfinite(change)
    longest = int(min(LONGEST_S / step_s, len(change) / _CYCLES))
    if longest < 2 or not known.any():
        return ()
    change = change - change[known].mean()
    # Clip, because one giant step is not a rhythm but would dominate the variance.
    bound = np.quantile(np.abs(change[known]), 0.999)
    change = np.clip(change, -bound, bound)
    day = round(DAY_S / step_s)
    found: list[int] = []
    candidates = np.arange(2, longest + 1)
    while len(found) < _MOST:
        variance = float(np.nanvar(change))
        if variance <= 1e-12:
            break
        explained = np.array([_repeated(change, int(period)) for period in candidates]) / variance
        noise = 2.0 * np.sqrt(candidates) / np.count_nonzero(known)
        of_day = _repeated(change, day) / variance if len(change) >= 2 * day else 0.0
        real = explained > np.maximum(_SIGNIFICANT * noise, max(_SHARE, _OF_DAY * of_day))
        if not real.any():
            break
        period = int(candidates[np.argmax(real & (explained >= _AS_GOOD * explained[real].max()))])
        found.append(period)
        change = change - profile(change, period)[np.arange(len(change)) % period]
    return tuple(found)


def _repeated(change: FloatArray, period: int) -> float:
    """Return the variance that the profiles of even and odd cycles over `period` have in common."""
    even, odd = profile(change, 2 * period).reshape(2, period)
    return float(np.mean(even * odd))


def profile(values: FloatArray, period: int, first: int = 0) -> FloatArray:
    """Return the mean of `values` (N,), steps `first`, `first + 1`, ..., by step modulo `period`: (period,).

    0 without any.
    """
    known = np.flatnonzero(np.isfinite(values))
    phase = (known + first) % period
    count = np.bincount(phase, minlength=period)
    return np.bincount(phase, values[known], minlength=period) / np.maximum(1, count)
