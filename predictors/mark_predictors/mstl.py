"""`mstl`: exponential smoothing with several seasons: short periods found from the data, the day, the week.

On the log scale a rate is season + remainder. Every season is a profile whose entries are averaged exponentially (the
error correction form of Holt and Winters: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed.,
8.3), the shortest season first, the next one on its remainder. The remainder is averaged over minutes to days; its
forecast is a mix of these averages, by least squares for each horizon. The profiles are learned in arrival order, so
that the kept errors are those of the seasons as known at the time; stretches of them are the sample paths.

(statsmodels' MSTL decomposes a whole history without gaps, uses later steps for every step, and cannot be updated, so
such averages would be needed anyway.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.predictor import State
from mark_predictors import futures
from mark_predictors.load_history import HORIZONS, by_step
from mark_predictors.periods import short_periods

SPANS_S: FloatArray = np.array([60.0, 300.0, 1800.0, 7200.0, 28800.0, DAY_S, 4 * DAY_S])  # of the averages
_USUAL = 5  # the average from which seasons are measured: a shorter one would take a day for a change of level
# How fast a profile follows, per visit of a phase, after many visits.
_SHORT_GAIN, _DAY_GAIN, _WEEK_GAIN = 0.02, 0.08, 0.2
_WEEK_DOUBT = 1  # weeks before the first that count as if they had been like all days
_WIDTH_S = (
    1800.0  # an error counts for phases of day and week nearer than this: minutes are too many to learn one by one
)
_CLIP = 3.0  # mean absolute errors; a larger one is an outlier, which a profile learns only up to here
_ENOUGH = 50  # errors at a horizon before a mix is estimated
_RIDGE = 0.01


@dataclass(slots=True)
class _Season:
    """A profile on the log scale and its gain; `visits` counts the observations by phase."""

    length: int
    gain: float
    width: int
    doubt: int
    profile: FloatArray = field(init=False)
    visits: NDArray[np.uint32] = field(init=False)
    _near: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    _weights: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.profile, self.visits = np.zeros(self.length), np.zeros(self.length, dtype=np.uint32)
        width = min(self.width, (self.length - 1) // 2)
        self._near = np.arange(-width, width + 1)
        weights = 1.0 - np.abs(self._near) / (width + 1.0)
        self._weights = weights / weights.sum()

    def learn(self, step: int, error: float) -> float:
        """Move the profile towards `error`, seen in `step`, and return the remaining error."""
        phase = step % self.length
        self.visits[phase] += 1
        part = error * max(self.gain, 1.0 / (float(self.visits[phase]) + self.doubt))
        self.profile[(phase + self._near) % self.length] += part * self._weights
        return error - part


class Mstl:
    """Implements `Predictor` and `Savable`."""

    name = "mstl"
    version = 1

    def __init__(self, seed: int = 0) -> None:
        # Unused, because nothing is random here, but every predictor is made with a `seed`.
        self._periods: tuple[int, ...] | None = None
        self._mix = _first_mix()
        self._restored = False
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)), ())

    def fit(self, history: Load) -> None:
        if self._periods is None or not self._restored:
            newest = round(futures.KEPT_S / history.step_s)
            logs, _ = futures.LogScale(history).to_log(history)
            self._periods = short_periods(logs[-newest:], history.step_s)
            self._mix = _first_mix()
        self._begin(history, self._periods)
        self.update(history)
        if not self._restored:
            self._learn_mix()

    def update(self, observed: Load) -> None:
        logs, peaks_above = self._scale.to_log(observed)
        for log, above in zip(logs.tolist(), peaks_above.tolist(), strict=True):
            self._step(log, above)
        self._end_s += len(observed) * self._step_s

    def predict(self, steps: int) -> Forecast:
        mix = by_step(self._mix, steps)
        averages = self._averages if self._seen else np.zeros(len(SPANS_S))
        expected = self._season(np.arange(self._at, self._at + steps)) + averages @ mix
        past = self._tape.values
        known = past.shape[1]
        if known < 2:
            errors = above = np.zeros((futures.PATHS, steps))
        else:
            # A place's forecast is made from the step before it. The first day's errors are left out, because little
            # was known then.
            first = max(1, min(self._day, known // 2))
            places = futures.blocks(known, steps, self._periods[0] if self._periods else 1, first)
            places = futures.observed(places, np.isfinite(past[0]))
            above = futures.filled(past[1][places])
            errors = futures.filled(past[0][places] - past[2:, places[:, 0] - 1].T @ mix)
        return futures.forecast(self._end_s, self._step_s, self._scale, expected + errors, above, self.name)

    def state(self) -> State:
        if self._periods is None:
            raise ValueError("nothing was learned yet")
        return {"periods": np.array(self._periods, dtype=np.int64), "mix": self._mix}

    def restore(self, state: State) -> None:
        if set(state) != {"periods", "mix"} or state["mix"].shape != self._mix.shape:
            raise ValueError(f"not a state of {self.name}")
        self._periods = tuple(int(period) for period in state["periods"])
        self._mix = np.array(state["mix"], dtype=np.float64)
        self._restored = True

    def _begin(self, history: Load, periods: tuple[int, ...]) -> None:
        self._step_s = history.step_s
        self._end_s = history.start_s
        self._at = round(history.start_s / history.step_s)  # steps from time 0
        self._day = max(1, round(DAY_S / history.step_s))
        self._scale = futures.LogScale(history)
        width = round(_WIDTH_S / history.step_s)
        self._seasons = [
            *(_Season(period, _SHORT_GAIN, 0, 0) for period in sorted(periods)),
            _Season(self._day, _DAY_GAIN, width, 0),
            _Season(7 * self._day, _WEEK_GAIN, width, _WEEK_DOUBT),
        ]
        self._gains = 1.0 - np.exp(-history.step_s / SPANS_S)
        self._averages = np.full(len(SPANS_S), np.nan)  # before the first observation
        self._seen = 0
        self._mean_error = 0.0
        # Rows: the remainder under the season known before the step, the peak above the mean, the averages after the
        # step.
        self._tape = futures.Tape(2 + len(SPANS_S), round(futures.KEPT_S / history.step_s))

    def _season(self, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
        total = np.zeros(len(steps))
        for season in self._seasons:
            total += season.profile[steps % season.length]
        return total

    def _step(self, log: float, peak_above: float) -> None:
        rest = log - sum(float(season.profile[self._at % season.length]) for season in self._seasons)
        if rest == rest:
            self._seen += 1
            if self._seen == 1:
                self._averages = np.full(len(SPANS_S), rest)
            error = rest - float(self._averages[_USUAL])
            self._mean_error += (abs(error) - self._mean_error) * max(1.0 / self._day, 1.0 / self._seen)
            most = _CLIP * self._mean_error
            error = min(max(error, -most), most)
            self._averages = self._averages + np.maximum(self._gains, 1.0 / self._seen) * (rest - self._averages)
            for season in self._seasons:
                error = season.learn(self._at, error)
        if self._seen:
            self._tape.append((rest, peak_above, *self._averages))
        self._at += 1

    def _learn_mix(self) -> None:
        """Fit for each horizon the weights, with sum 1, of the averages with the least errors (ridge regression)."""
        past = self._tape.values
        rest, averages = past[0], past[2:]
        first = min(self._day, past.shape[1] // 3)
        slowest = averages[-1]
        for k, ahead in enumerate(HORIZONS):
            made = slice(first, max(first, past.shape[1] - ahead))
            truth = rest[first + ahead :] - slowest[made]
            known = np.isfinite(truth)  # so are the averages that the truth is compared with
            if np.count_nonzero(known) < _ENOUGH:
                if k:
                    self._mix[:, k] = self._mix[:, k - 1]
                continue
            inputs = (averages[:-1, made] - slowest[made])[:, known]
            squares = inputs @ inputs.T
            squares += (_RIDGE * np.trace(squares) / len(squares) + 1e-9) * np.eye(len(squares))
            weights = np.linalg.solve(squares, inputs @ truth[known])
            self._mix[:, k] = [*weights, 1.0 - weights.sum()]


def _first_mix() -> FloatArray:
    """Return the mix before any errors were seen: the average over five minutes at every horizon, (spans, horizons)."""
    mix = np.zeros((len(SPANS_S), len(HORIZONS)))
    mix[1] = 1.0
    return mix
