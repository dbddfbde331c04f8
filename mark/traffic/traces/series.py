"""Expected requests over time: bins of a fixed width, some of them absent, summed over any interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.domain.time import DAY_S, HOUR_S

FINE_S = 5.0  # the window of peak rates; coarser bins lack such a peak
REACH = 1.5  # a bin reaches to the next one's start if that is at most this many lengths away; otherwise a gap follows
_LEAST_MONTH_S = 28.0 * DAY_S - HOUR_S  # of clocks that are set forward
_STEPS_AT_ONCE = 20_000


def windows_per_step(step_s: float) -> int:
    """Return how many equal windows of at most 5 s (to rounding) tile a step."""
    return max(1, int(np.ceil(step_s / FINE_S - 1e-9)))


def load_of(
    counts: FloatArray, covered_s: FloatArray, whole_s: FloatArray, start_s: float, step_s: float, *, fine: bool
) -> Load:
    """Return rates from requests and observed seconds per window, each of shape (steps, windows).

    `whole_s` is the length of each window inside the part. A step observed for less than half of its length is missing
    (NaN); a window observed for less than half of the full window's length does not count for the peak.
    """
    seen_s = covered_s.sum(axis=1)
    missing = seen_s < 0.5 * whole_s.sum(axis=1) - 1e-9
    full_s = step_s / counts.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(missing | (seen_s <= 0.0), np.nan, counts.sum(axis=1) / seen_s)
        rates = np.where(covered_s < 0.5 * full_s - 1e-9, -1.0, counts / covered_s)
    return Load(start_s, step_s, mean, np.fmax(np.where(missing, np.nan, rates.max(axis=1)), mean), fine)


def lengths_of(starts_s: FloatArray, bin_s: float) -> FloatArray:
    """Return the length of each row, `bin_s` except for rows that all begin with a month, a quarter or a year.

    Such rows have the length of their own month. `starts_s` are Unix seconds, or from an unknown start.
    """
    months = months_of(starts_s)
    if bin_s < _LEAST_MONTH_S or months is None:
        return np.full(len(starts_s), bin_s)
    ends = months + np.diff(months.astype(np.int64)).min()
    return np.asarray(DAY_S * (ends.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.float64))


def months_of(starts_s: FloatArray) -> NDArray[np.datetime64] | None:
    """Return the months that these moments begin; None if one of them begins no month."""
    dates = (starts_s + DAY_S / 2.0).astype("datetime64[s]")  # a zone's midnight is half a day away at most
    months = dates.astype("datetime64[M]")
    return None if np.any(dates.astype("datetime64[D]") != months) else months


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """Bin i covers [starts_s[i], ends_s[i]) and expects counts[i] requests, evenly spread.

    Bins ascend and do not overlap; `bin_s` is the least distance of two starts. Time outside the bins is missing, or
    without requests if `silent`.
    """

    starts_s: FloatArray
    ends_s: FloatArray
    counts: FloatArray
    bin_s: float
    silent: bool
    _requests_before: FloatArray  # of each bin, and in all: shape (bins + 1,)
    _seen_before_s: FloatArray

    @classmethod
    def of(
        cls, starts_s: FloatArray, counts: FloatArray, bin_s: float, own_s: FloatArray | None = None, *, silent: bool
    ) -> Series:
        """Make bins from their starts: each ends at the start of the next one, but is at most REACH x `own_s` long.

        `own_s` is the length of each, `bin_s` unless given. A longer bin is cut to it and followed by a gap. So stamps
        that wander by a few seconds leave no holes and no wrong rates, and no bin overlaps the next by a rounding
        error.
        """
        own_s = np.full(len(starts_s), bin_s) if own_s is None else own_s
        ends_s = np.append(starts_s[1:], starts_s[-1] + own_s[-1])
        ends_s = np.where(ends_s - starts_s > REACH * own_s, starts_s + own_s, ends_s)
        sums = (np.concatenate(([0.0], np.cumsum(values))) for values in (counts, ends_s - starts_s))
        return cls(starts_s, ends_s, counts, bin_s, silent, *sums)

    def times(self, factor: float) -> Series:
        """Return the same bins with `factor` times the counts."""
        counts, before = self.counts * factor, self._requests_before * factor
        return Series(self.starts_s, self.ends_s, counts, self.bin_s, self.silent, before, self._seen_before_s)

    def until(self, at_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return requests expected and seconds observed in [0, at_s), for each time."""
        row = np.maximum(np.searchsorted(self.starts_s, at_s, side="right") - 1, 0)
        width_s = self.ends_s[row] - self.starts_s[row]
        inside_s = np.clip(at_s - self.starts_s[row], 0.0, width_s)
        requests = self._requests_before[row] + self.counts[row] * (inside_s / width_s)
        # Rounding must not make the sum fall from one bin to the next.
        requests = np.minimum(requests, self._requests_before[row + 1])
        return requests, at_s if self.silent else self._seen_before_s[row] + inside_s

    def load(self, start_s: float, end_s: float, step_s: float, scale: float) -> Load:
        """Return the load on steps of `step_s` from `start_s`; the last step is cut at `end_s`.

        If bins are 5 s or finer the peak is the highest 5 s rate within the step, otherwise the step's mean.
        """
        fine = self.bin_s <= FINE_S
        windows = windows_per_step(step_s) if fine else 1
        steps = steps_between(start_s, end_s, step_s)
        pieces = []
        # In pieces, so that a long and mostly absent trace needs little memory.
        for first in range(0, steps, _STEPS_AT_ONCE):
            last = min(first + _STEPS_AT_ONCE, steps)
            edges = start_s + np.arange(first * windows, last * windows + 1) * (step_s / windows)
            edges = np.minimum(edges, end_s)
            requests, seen_s = self.until(edges)
            shape = (last - first, windows)
            counts = (np.diff(requests) * scale).reshape(shape)
            covered = np.diff(seen_s).reshape(shape)
            pieces.append(load_of(counts, covered, np.diff(edges).reshape(shape), start_s, step_s, fine=fine))
        mean, peak = (np.concatenate([getattr(p, name) for p in pieces] or [np.empty(0)]) for name in _RATES)
        return Load(start_s, step_s, mean, peak, fine)


_RATES = ("mean_rps", "peak_rps")


def steps_between(start_s: float, end_s: float, step_s: float) -> int:
    """Return how many steps cover [start_s, end_s); the last one may be cut."""
    return max(0, int(np.ceil((end_s - start_s) / step_s - 1e-9)))
