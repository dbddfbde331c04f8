"""The highest 5 s rate of a step, from past steps with a similar mean.

A burst of seconds raises the mean of its minute too. So a minute's mean shows which past minutes it resembles, quiet
ones or those with a burst, and their peaks show the peak within it.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark_predictors.load_history import ObservedHistory
from mark_predictors.trees import compiled

# These were set by hand on synthetic bursts and on real traces of seconds; no command refits them.
_DAYS = 3
_ALIKE = 15  # neighbouring steps by mean, whose ratios of peak to mean share one median
_EVERY = 7  # steps from one median to the next
_NEAR = 0.2  # in the logarithm of a mean; a mean farther from all medians gets NaN


def likely_peaks(history: ObservedHistory, mean_rps: FloatArray) -> FloatArray:
    """Return the peaks of steps with these means, for an array of any shape; NaN if few past steps are similar.

    The peak is the mean times the median of peak / mean over past steps with a similar mean. One more request per step,
    in both, keeps zeros harmless.
    """
    one_rps = 1.0 / history.step_s
    past = history.observed[:, -_DAYS * history.season :] + one_rps
    past = past[:, np.isfinite(past[0])]
    steps = past.shape[1]
    if steps < _ALIKE:
        return np.full(mean_rps.shape, np.nan)
    means, peaks = past[:, np.argsort(past[0], kind="stable")]
    # From the highest mean down, because bursts are there.
    first = np.arange(steps - _ALIKE, -1, -_EVERY)[::-1]
    middle = _ALIKE // 2
    # A copy, because compiled code for rows of an array would differ from that for a whole one.
    ratios = np.sort((peaks / means)[first[:, None] + np.arange(_ALIKE)], axis=1)[:, middle].copy()
    known, wanted_rps = np.log(means[first + middle]), mean_rps + one_rps
    found = np.empty(mean_rps.shape)
    _fill_peaks(known, ratios, wanted_rps.ravel(), np.log(wanted_rps).ravel(), one_rps, found.ravel())
    return found


@compiled
def _fill_peaks(
    known: FloatArray, ratios: FloatArray, wanted_rps: FloatArray, wanted: FloatArray, one_rps: float, found: FloatArray
) -> None:
    """Fill the peaks of rates, `wanted` in logarithms, from the medians of `ratios` at the logarithms `known`."""
    last = len(known) - 1
    for i in range(len(wanted)):
        above, end = 0, len(known)
        while above < end:  # numba loads np.searchsorted for longer than a day of searches takes
            middle = (above + end) // 2
            if known[middle] < wanted[i]:
                above = middle + 1
            else:
                end = middle
        low, high = max(above - 1, 0), min(above, last)
        below, beyond = abs(known[low] - wanted[i]), abs(known[high] - wanted[i])
        share = below / max(below + beyond, 1e-300)
        # Quiet steps and bursts must not be mixed, so beyond this distance only the nearer median counts.
        if below + beyond > _NEAR:
            share = 1.0 if share > 0.5 else 0.0
        ratio = ratios[low] + share * (ratios[high] - ratios[low])
        found[i] = wanted_rps[i] * ratio - one_rps if min(below, beyond) < _NEAR else np.nan
