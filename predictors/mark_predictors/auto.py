"""`auto`, the default: several forecasters weighted by their recent losses, with calibrated quantiles.

The members (`forest`, `ridge`, `mstl`, `level`) each give quantiles; `auto` averages them level by level, with weights
that fall with the recent pinball loss of each, per horizon. The average is then calibrated online: if the load fell
below the quantile tau more often than tau, a lower one is taken from then on (adaptive conformal inference, Gibbs and
Candes 2021, eq. 2, per level and horizon), which keeps the coverage even if the members are overconfident.

A step's peak is its mean times a ratio, either that of `mstl`, whose peaks keep the time of day, or that of past steps
with a similar mean (`likely_peaks`); the two are weighted by their loss like the members.

Paths are the forest's, moved step by step to the calibrated quantiles in the same order (the Schaake shuffle, Clark et
al. 2004), so that a surge in a path begins and ends as surges do.

Learning happens only in `update`, at fixed steps, so that calls of `predict` change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.time import DAY_S
from mark_predictors.forest import Analogs
from mark_predictors.futures import HIGHEST
from mark_predictors.level import Level
from mark_predictors.load_history import ObservedHistory
from mark_predictors.logload import LogLoad
from mark_predictors.mstl import Mstl
from mark_predictors.peaks import likely_peaks
from mark_predictors.ridge import Ridge
from mark_predictors.trees import compiled

MEMBERS = ("forest", "ridge", "mstl", "level")
_TAILS = 2  # levels beyond ours on each side, as room for a correction
_FINE: FloatArray = np.concatenate([[0.005, 0.02], LEVELS, [0.98, 0.995]])
_INNER = slice(_TAILS, len(_FINE) - _TAILS)
_MINUTES_AHEAD = (1, 2, 4, 8, 15, 30, 60)  # where forecasts are scored; linear between
# Between two forecasts that are scored. They do not divide an hour or a day, so that every minute has its turn.
_RECORD_MINUTES, _RECORD_STEPS = 7, 5  # the larger of both
# The next constants were set by hand; no command refits them. `benchmarks/planner/forecasts.py` shows the effect of a
# change.
_FORGET = 0.997  # decay of a loss with each new one: about a day and a half counts
_SHARPNESS = 20.0  # weights fall with this power of the loss
_LEARNING_RATE = 0.01  # of the correction of levels
_LEVELS_WITHIN = (-0.2, 1.2)  # limits of a correction
_TAIL_STRETCH = 10.0
_LEAST_LOSS = 1e-12
_SAME = 1e-9  # a quantile this close was met exactly: the difference is rounding
_WARM_DAYS = 2
_WARM_STEPS = 336
# A piece of fitting takes this number of steps, half a second; learning from eleven steps takes as long as living one.
_PIECE_STEPS, _LEARNED_AS_LIVED = 600, 11


@dataclass(frozen=True, slots=True)
class _Record:
    """A forecast to be scored.

    Members' quantiles (members, fine levels, horizons), ours (levels, horizons), and peaks (2, levels, horizons).
    """

    members: FloatArray
    ours: FloatArray
    peaks: FloatArray


class Auto:
    """Implements `Predictor` and `Deferrable`."""

    name = "auto"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._waits = False  # whether learning waits for `learn`
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    def fit(self, history: Load) -> None:
        """Learn from all but the last days, process these as if they came now, then learn from everything."""
        for _ in self.fitting(history):
            pass
        self._waits = False

    def fitting(self, history: Load) -> Iterator[None]:
        self._waits = True
        day = max(1, round(DAY_S / history.step_s))
        warm = min(max(_WARM_DAYS * day, _WARM_STEPS), len(history) // 3)
        cut = len(history) - warm
        self._begin(_part(history, 0, cut))
        self._learned = len(history)  # no learning in between
        worked = cut // _LEARNED_AS_LIVED
        for at in range(cut, len(history), self._load.hour):
            if worked >= _PIECE_STEPS:
                yield
                worked = 0
            self._live(_part(history, at, min(at + self._load.hour, len(history))))
            worked += self._load.hour
        if worked + len(history) // _LEARNED_AS_LIVED >= _PIECE_STEPS:
            yield
        self._learn()

    def learn(self) -> None:
        if self._due:
            self._learn()

    def update(self, observed: Load) -> None:
        self._live(observed)

    def predict(self, steps: int) -> Forecast:
        members, paths, peaks = self._members(steps)
        by_step = self._to_steps(steps)
        fine = np.einsum("ms,mqs->qs", by_step(self._weights()), members)
        mean = _at_levels(fine, by_step(self._levels))
        seen = self._load.history
        usual, alike = self._peaks(mean, peaks.mean_rps, peaks.peak_rps)
        # By the difference, so that peaks on which both agree stay exactly the same.
        peak = usual + by_step(_shares(self._peak_loss)[1]) * (alike - usual)
        paths = _in_order(paths, mean, fine)
        most_mean, most_peak = HIGHEST * seen.highest_rps
        mean, paths = np.minimum(mean, most_mean), np.minimum(paths, most_mean)
        peak = np.maximum(mean, np.minimum(peak, most_peak))
        return Forecast(seen.end_s, seen.step_s, LEVELS, mean, peak, self.name, paths)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _begin(self, history: Load) -> None:
        self._load = LogLoad(ObservedHistory(history))
        self._forest = Analogs(self._load, self._seed)
        self._ridge = Ridge(self._load, _FINE)
        self._mstl = Mstl(self._seed)
        self._level = Level(self._load, _FINE)
        self._record_steps = max(_RECORD_STEPS, self._load.steps(_RECORD_MINUTES))
        self._ahead = np.array(sorted({self._load.steps(m) for m in _MINUTES_AHEAD}), dtype=np.int64)
        self._loss = np.zeros((len(MEMBERS), len(self._ahead)))
        self._scored = np.zeros((len(MEMBERS), len(self._ahead)))
        self._peak_loss = np.zeros((2, len(self._ahead)))
        self._peaks_scored = np.zeros(len(self._ahead))
        self._levels = np.repeat(LEVELS[:, None], len(self._ahead), axis=1)
        self._records: dict[int, _Record] = {}  # by origin
        self._fitted: int | None = None  # number of steps that mstl has been fitted on
        self._said: tuple[FloatArray, FloatArray, Forecast] | None = None  # by the members since the last observation
        self._learn()

    def _learn(self) -> None:
        self._said = None
        self._load.measure()
        self._learned = len(self._load)
        fitted, load = self._fitted, self._load
        if fitted is None or self._learned >= fitted + min(7 * load.day, max(2 * load.hour, fitted // 2)):
            self._fitted = self._learned
            seen = self._load.history
            everything = Load(seen.start_s, seen.step_s, *seen.observed.copy())
            self._mstl.fit(everything)
        self._forest.learn()
        self._ridge.learn()

    @property
    def _due(self) -> bool:
        """Whether a day of load has come since the last learning; for a short history, half of its length."""
        load = self._load
        return len(load) - self._learned >= min(load.day, max(2 * load.hour, self._learned // 2))

    def _live(self, observed: Load) -> None:
        load = self._load
        for at in range(len(observed)):
            one = _part(observed, at, at + 1)
            self._said = None
            load.history.append(one)
            load.extend()
            self._mstl.update(one)
            self._score()
            if self._due and not self._waits:
                self._learn()
            if len(load) % self._record_steps == 0:
                self._record()

    def _record(self) -> None:
        members, _, peaks = self._members(int(self._ahead[-1]))
        steps = self._ahead - 1
        at = members[:, :, steps]
        fine = np.einsum("mk,mqk->qk", self._weights(), at)
        at[~self._ready()] = np.nan
        mean = _at_levels(fine, self._levels)
        both = self._peaks(mean, peaks.mean_rps[:, steps], peaks.peak_rps[:, steps])
        self._records[len(self._load)] = _Record(at, mean, both)

    def _score(self) -> None:
        """Compare earlier forecasts of the newest step with its load."""
        truth, peak = self._load.history.observed[:, -1].tolist()
        for k, ahead in enumerate(self._ahead):
            origin = len(self._load) - int(ahead)
            record = self._records.get(origin)
            if record is None:
                continue
            if k == len(self._ahead) - 1:
                del self._records[origin]
            if np.isnan(truth):
                continue
            loss = _pinball(truth - record.members[:, _INNER, k])
            said = ~np.isnan(loss)
            self._scored[said, k] += 1.0
            gain = np.maximum(1.0 - _FORGET, 1.0 / np.maximum(self._scored[:, k], 1.0))
            self._loss[:, k] += np.where(said, gain * (loss - self._loss[:, k]), 0.0)
            self._peaks_scored[k] += 1.0
            of_peaks = _pinball(peak - record.peaks[:, :, k])
            part = max(1.0 - _FORGET, 1.0 / float(self._peaks_scored[k]))
            self._peak_loss[:, k] += part * (of_peaks - self._peak_loss[:, k])
            # A quantile that was met exactly (with few requests, or none) was neither too high nor too low.
            ours = record.ours[:, k]
            below = np.where(np.abs(truth - ours) <= _SAME * (1.0 + truth), LEVELS, truth < ours)
            self._levels[:, k] = np.clip(self._levels[:, k] + _LEARNING_RATE * (LEVELS - below), *_LEVELS_WITHIN)

    # -- forecasting ---------------------------------------------------------------------------------------------------

    def _members(self, steps: int) -> tuple[FloatArray, FloatArray, Forecast]:
        """Return the members' quantiles, the paths that determine the order, and the forecast with peaks.

        The quantiles are (members, fine levels, steps), 0 for members that are not ready.
        """
        if self._said is not None and self._said[0].shape[-1] == steps:
            return self._said
        every = np.zeros((len(MEMBERS), len(_FINE), steps))
        mstl = self._mstl.predict(steps)
        assert mstl.paths_rps is not None
        every[2] = _fine(mstl.paths_rps)
        if self._level.ready:
            every[3] = self._level.quantiles(steps)
        if self._ridge.ready:
            every[1] = self._ridge.quantiles(steps)
        paths = mstl.paths_rps
        if self._forest.ready:
            paths = self._forest.paths(steps)
            every[0] = _fine(paths)
        self._said = every, paths, mstl
        return self._said

    def _peaks(self, mean: FloatArray, usual_mean: FloatArray, usual_peak: FloatArray) -> FloatArray:
        """Return peaks (2, levels, K) for the quantiles `mean` (levels, K), by mstl's ratio and by similar steps."""
        one_rps = 1.0 / self._load.history.step_s  # one more request per step keeps zeros harmless
        usual = (mean + one_rps) * np.maximum(1.0, (usual_peak + one_rps) / (usual_mean + one_rps)) - one_rps
        alike = likely_peaks(self._load.history, mean)
        both = np.stack([usual, np.where(np.isnan(alike), usual, alike)])
        return np.asarray(np.maximum.accumulate(np.maximum(mean, both), axis=1))

    def _ready(self) -> NDArray[np.bool_]:
        return np.array([self._forest.ready, self._ridge.ready, True, self._level.ready])

    def _weights(self) -> FloatArray:
        """Return the weights of the members by horizon: (members, horizons), adding up to 1."""
        ready = self._ready()[:, None]
        scored = ready & (self._scored > 0)
        loss = np.where(scored, np.maximum(self._loss, _LEAST_LOSS), np.inf)
        best = loss.min(axis=0)
        # A member that was never scored counts like the best.
        share = np.divide(best, loss, out=np.ones_like(loss), where=scored)
        weight = np.where(ready, share**_SHARPNESS, 0.0)
        return np.asarray(weight / weight.sum(axis=0))

    def _to_steps(self, steps: int) -> Callable[[FloatArray], FloatArray]:
        """Return a function that interpolates values at the scored horizons (..., horizons) linearly to every step:
        (..., steps).
        """
        place = np.interp(np.arange(1.0, steps + 1.0), self._ahead, np.arange(len(self._ahead)))
        low = place.astype(np.int64)
        high, of_low, of_high = np.minimum(low + 1, len(self._ahead) - 1), 1.0 - place + low, place - low
        return lambda values: values[..., low] * of_low + values[..., high] * of_high


def _pinball(error: FloatArray) -> FloatArray:
    """Return the mean loss over LEVELS, the last axis of `error`, which is the truth less the quantiles."""
    return np.asarray(np.maximum(LEVELS * error, (LEVELS - 1.0) * error).mean(axis=-1))


def _shares(loss: FloatArray) -> FloatArray:
    """Return weights for the rows of `loss` by column, higher for lower losses, adding up to 1."""
    loss = np.maximum(loss, _LEAST_LOSS)
    share = (loss.min(axis=0) / loss) ** _SHARPNESS
    return np.asarray(share / share.sum(axis=0))


def _fine(paths: FloatArray) -> FloatArray:
    """Return quantiles at the fine levels of equally likely paths (..., PATHS, steps)."""
    low, high, share = _fine_ranks(paths.shape[-2])
    ordered = np.sort(paths, axis=-2)
    return np.asarray(ordered[..., low, :] * (1.0 - share) + ordered[..., high, :] * share)


@lru_cache(maxsize=8)
def _fine_ranks(count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the ranks of `count` paths below and above the fine levels, and the weight of the latter, (fine, 1)."""
    place = np.clip(_FINE * count - 0.5, 0.0, count - 1.0)
    low = place.astype(np.int64)
    return low, np.minimum(low + 1, count - 1), (place - low)[:, None]


@lru_cache(maxsize=8)
def _ranks_in_fine(count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the fine levels below and above the ranks of `count` paths, and the weight of the latter, (count, 1)."""
    place = np.interp((np.arange(count) + 0.5) / count, _FINE, np.arange(len(_FINE)))
    low = place.astype(np.int64)
    return low, np.minimum(low + 1, len(_FINE) - 1), (place - low)[:, None]


def _at_levels(fine: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles at `levels` (Q, K) of distributions given at the fine levels (fine, K): (Q, K), ascending.

    Beyond the finest level the distance to the median is stretched in proportion to the excess of the level.
    """
    found = np.empty(levels.shape)
    # Contiguous, so that one compiled form serves all.
    _fill_at_levels(np.ascontiguousarray(fine), np.ascontiguousarray(levels), _FINE, found)
    return found


@compiled
def _fill_at_levels(fine: FloatArray, levels: FloatArray, own: FloatArray, found: FloatArray) -> None:
    last = len(own) - 1
    for k in range(levels.shape[1]):
        middle, highest = fine[len(own) // 2, k], 0.0
        for q in range(len(levels)):
            level = min(max(levels[q, k], own[0]), own[last])
            low = 0
            while low < last - 1 and own[low + 1] <= level:
                low += 1
            place = 1.0 / (own[low + 1] - own[low]) * (level - own[low]) + low
            low = int(place)
            value = fine[low, k] * (1.0 - place + low) + fine[min(low + 1, last), k] * (place - low)
            beyond = max(own[0] - levels[q, k], 0.0) + max(levels[q, k] - own[last], 0.0)
            highest = max(highest, middle + (value - middle) * (1.0 + _TAIL_STRETCH * beyond))
            found[q, k] = highest


def _in_order(paths: FloatArray, mean: FloatArray, fine: FloatArray) -> FloatArray:
    """Return paths with the quantiles `mean` at each step, in the order of `paths`, with the tails of `fine`."""
    below = mean[0] + np.minimum(0.0, fine[:_TAILS] - fine[_TAILS])
    above = mean[-1] + np.maximum(0.0, fine[-_TAILS:] - fine[-_TAILS - 1])
    every = np.maximum(0.0, np.concatenate([below, mean, above]))
    low, high, share = _ranks_in_fine(len(paths))
    result = np.empty(paths.shape)
    result[_order(paths), np.arange(paths.shape[1])] = every[low] * (1.0 - share) + every[high] * share
    return result


def _order(paths: FloatArray) -> IntArray:
    """Return the stable `np.argsort` of rates >= 0 over the paths, (P, H), in half of its time."""
    last = (1 << len(paths).bit_length()) - 1
    # Floats >= 0 are ordered like their bits; the last bits hold the path.
    keys = (np.ascontiguousarray(paths).view(np.int64) & ~last) | np.arange(len(paths))[:, None]
    order = np.sort(keys, axis=0) & last
    ordered = paths[order, np.arange(paths.shape[1])]
    # Rates may differ in their last bits only.
    return order if (ordered[1:] >= ordered[:-1]).all() else np.argsort(paths, axis=0, kind="stable")


def _part(load: Load, begin: int, end: int) -> Load:
    span = slice(begin, end)
    return Load(load.start_s + begin * load.step_s, load.step_s, load.mean_rps[span], load.peak_rps[span], load.fine)
