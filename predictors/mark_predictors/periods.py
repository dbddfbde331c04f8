"""Short periods found from the data: jobs that start every half hour or every two hours and load servers in bursts."""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.time import DAY_S

LONGEST_S = 4 * 3600.0  # a longer rhythm is the shape of the day
_MOST = 3  # periods
_CYCLES = 8  # of a period that must have been seen
_SIGNIFICANT = 8.0  # standard deviations of what white noise would give
_SHARE = 0.02  # of the variance of the changes that a period must explain to be worth a profile
_OF_DAY = 0.25  # of what the profile of a day explains: a single sharp hour a day explains a sixth of it at most
_AS_GOOD = 0.9  # of what the best period explains, for a shorter one to be preferred


def short_periods(series: FloatArray, step_s: float) -> tuple[int, ...]:
    """Periods in steps of `step_s` seconds, at most four hours long, that repeat in `series` (N,), the strongest first.

    `series` is on the scale on which the model adds (log rates); NaN are gaps. Among periods that explain alike the
    shortest is taken; what it explains is then removed and the next one sought.

    The differences are folded at every period, as a wandering level is flat on them, once with the even and once with
    the odd cycles. The mean product of the two profiles estimates the variance of the true one, without bias: noise
    has no part in it, as it does not repeat.
    """
    change = np.diff(series)
    known = np.isfinite(change)
    longest = int(min(LONGEST_S / step_s, len(change) / _CYCLES))
    if longest < 2 or not known.any():
        return ()
    change = change - change[known].mean()
    # One giant step is no rhythm, yet it would be the whole variance.
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
    """The variance of the profile over `period` that even and odd cycles have in common."""
    even, odd = profile(change, 2 * period).reshape(2, period)
    return float(np.mean(even * odd))


def profile(values: FloatArray, period: int, first: int = 0) -> FloatArray:
    """The mean of `values` (N,), steps `first`, `first + 1`, ..., by step modulo `period`: (period,); 0 without any."""
    known = np.flatnonzero(np.isfinite(values))
    phase = (known + first) % period
    count = np.bincount(phase, minlength=period)
    return np.bincount(phase, values[known], minlength=period) / np.maximum(1, count)
