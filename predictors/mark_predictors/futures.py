"""Sample paths from past errors: a log scale for rates, blocks of errors, and their quantiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.time import DAY_S

PATHS = 100
KEPT_S = 14 * DAY_S  # older errors say little about today's
_OFFSET = 0.3  # of the mean rate; makes the logarithm of small counts as noisy as that of large ones, and of 0 finite
_FIRST_COLUMNS = 256  # of a tape, which grows by a quarter
# Forecasts are limited to this multiple of the highest mean and peak ever seen. On the log scale a jump from little to
# much, added to much, is a multiple of all experience: after a burst from 1 to 60 requests/s another was forecast to
# bring 560. Set by hand on five real traces, compared with 10 and 1.1: 1.25 changes no CRPS by more than 0.05 %, 1.1
# costs 0.9 % on growing load (World Cup).
HIGHEST = 1.25


class LogScale:
    """log(rate + offset); the offset is a share of the mean rate of a history, so that ten times the load is a shift.

    If the history has no rate above 0, the first one that comes sets the offset. Until then all rates are missing on
    the log scale, and values on it mean a rate of 0.
    """

    def __init__(self, history: Load) -> None:
        known = _known(history)
        self.offset_rps = _OFFSET * float(history.mean_rps[known].mean()) if known.any() else 0.0
        self._highest_mean_rps = self._highest_peak_rps = 0.0

    def to_log(self, load: Load) -> tuple[FloatArray, FloatArray]:
        """Return the log of the mean rates of `load`, which follows earlier loads, and the log ratio of peaks to them.

        Both are NaN for missing steps.
        """
        known = _known(load)
        if self.offset_rps == 0.0:
            some = np.flatnonzero(known & (load.mean_rps > 0.0))
            if not len(some):
                return np.full(len(load), np.nan), np.full(len(load), np.nan)
            known[: some[0]] = False
            self.offset_rps = _OFFSET * float(load.mean_rps[some[0]])
        mean = np.where(known, load.mean_rps, np.nan)
        peak = np.maximum(mean, np.where(known, load.peak_rps, np.nan))
        self._highest_mean_rps = float(np.max(mean, where=known, initial=self._highest_mean_rps))
        self._highest_peak_rps = float(np.max(peak, where=known, initial=self._highest_peak_rps))
        return np.log(mean + self.offset_rps), np.log(peak + self.offset_rps) - np.log(mean + self.offset_rps)

    def to_rps(self, logs: FloatArray, *, peaks: bool = False) -> FloatArray:
        """Return mean rates (or peaks) of any shape, not negative and limited by all experience."""
        if self.offset_rps == 0.0:
            return np.zeros(logs.shape)
        most = HIGHEST * (self._highest_peak_rps if peaks else self._highest_mean_rps)
        highest = np.log(most + self.offset_rps)
        return np.asarray(np.maximum(0.0, np.exp(np.minimum(logs, highest)) - self.offset_rps))


class Tape:
    """The newest `keep` columns of some rows of numbers, without reserving more memory than they need."""

    def __init__(self, rows: int, keep: int) -> None:
        self._keep = keep
        self._most = keep + keep // 8 + 1  # spare room, so that only few appends move the other columns
        self._cells = np.empty((rows, min(_FIRST_COLUMNS, self._most)))
        self._end = 0

    def append(self, column: FloatArray | tuple[float, ...]) -> None:
        size = self._cells.shape[1]
        if self._end == size and size < self._most:
            grown = np.empty((len(self._cells), min(size + size // 4, self._most)))
            grown[:, :size] = self._cells
            self._cells = grown
        elif self._end == size:
            self._cells[:, : self._keep] = self._cells[:, -self._keep :]
            self._end = self._keep
        self._cells[:, self._end] = column
        self._end += 1

    @property
    def values(self) -> FloatArray:
        return self._cells[:, max(0, self._end - self._keep) : self._end]


def _known(load: Load) -> NDArray[np.bool_]:
    return np.isfinite(load.mean_rps) & np.isfinite(load.peak_rps) & (load.mean_rps >= 0.0)


def blocks(known: int, steps: int, cycle: int, first: int = 0) -> NDArray[np.int64]:
    """Return places in `known` past steps that serve as futures of `steps` steps: (PATHS, steps).

    Each row is a stretch of the past in its order. Rows begin whole cycles ago, at the current phase, as far back as
    `first`; if there are too few such places they begin anywhere, evenly spread. In a past shorter than `steps` the
    rows repeat cyclically.
    """
    latest = known - steps
    if latest - first < PATHS:
        length = max(1, known - first)
        starts = np.linspace(0, length, PATHS, endpoint=False).astype(np.int64)
        return first + (starts[:, None] + np.arange(steps)) % length
    newest = known - cycle * (-(-steps // cycle))
    stride = cycle * max(1, (latest - first) // (cycle * PATHS))
    aligned = np.arange(newest, first - 1, -stride)[:PATHS]
    spread = np.linspace(first, latest, PATHS - len(aligned)).astype(np.int64)
    return np.concatenate([aligned, spread])[:, None] + np.arange(steps)


def observed(places: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return `places` without the stretches of which less than half is `known`, repeating others.

    Unchanged if none remains.
    """
    if known.all():
        return places
    kept = places[known[places].mean(axis=1) >= 0.5]
    return kept[np.arange(len(places)) * len(kept) // len(places)] if len(kept) else places


def forecast(
    origin_s: float, step_s: float, scale: LogScale, mean_logs: FloatArray, peaks_above: FloatArray, predictor: str
) -> Forecast:
    """Return the forecast of equally likely paths (PATHS, H) of log means, with log peaks `peaks_above` them."""
    paths = scale.to_rps(mean_logs)
    mean = _quantiles(paths)
    peak = _quantiles(scale.to_rps(mean_logs + peaks_above, peaks=True)) if peaks_above.any() else mean
    return Forecast(origin_s, step_s, LEVELS, mean, np.maximum(mean, peak), predictor, paths)


def _quantiles(paths: FloatArray) -> FloatArray:
    """Return the quantiles at LEVELS of paths (P, H): (levels, H), those of `error_quantiles`."""
    ordered = np.sort(paths, axis=0)
    place = LEVELS * (len(paths) - 1)
    low = place.astype(np.int64)
    below, above = ordered[low], ordered[np.minimum(low + 1, len(paths) - 1)]
    return np.asarray(below + (above - below) * (place - low)[:, None])


def filled(errors: FloatArray) -> FloatArray:
    """Fill NaN along the last axis with the value before, the first ones with the first known; 0 if all are NaN."""
    if not np.isnan(errors).any():
        return errors
    size = errors.shape[-1]
    known = np.where(np.isnan(errors), -1, np.arange(size))
    last = np.maximum.accumulate(known, axis=-1)
    first = np.argmax(known >= 0, axis=-1)[..., None]
    values = np.take_along_axis(errors, np.where(last >= 0, last, first), axis=-1)
    return np.where(np.isnan(values), 0.0, values)
