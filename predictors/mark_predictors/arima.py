"""`arima`: ARIMA errors around a seasonal profile of the log rate; past one-step errors make the sample paths.

A seasonal ARIMA with a season of 1440 steps has 1440 states and cannot be estimated, so the seasons are regressors
(dynamic harmonic regression: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., 10.5). The
remainder is an ARIMA process of small order, estimated by statsmodels and filtered here in some microseconds a step.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.predictor import State
from mark_predictors import futures
from mark_predictors.load_history import HORIZONS
from mark_predictors.periods import profile, short_periods

# By number of differences. The corrected Akaike criterion chooses within a row, errors several steps ahead between
# rows.
ORDERS = (((1, 0, 1), (2, 0, 1), (3, 0, 1)), ((0, 1, 1), (1, 1, 1), (2, 1, 1)))
_ESTIMATED = 3000  # newest steps, on which orders and parameters are estimated
_ENOUGH = 60  # observed steps before anything is estimated
_REGRESSED_S = 28 * DAY_S  # newest history for the seasonal profile
_DAY_HARMONICS = 12
_WEEK_HARMONICS = 28  # less the harmonics of a day
_LEVEL_S = 8 * 3600.0  # over which the level is averaged
_DIFFUSE = 1e4  # variance of a level that was never observed, in variances of an innovation


@dataclass(frozen=True, slots=True)
class Process:
    """An ARMA process, differenced `differences` times (0 or 1), as a state space; variances in an innovation's.

    The form is Harvey's, as in statsmodels: y = observe @ state, state' = move @ state + shock x innovation.
    """

    differences: int
    ar: FloatArray  # (p,): y_t = ar_1 y_t-1 + ...
    ma: FloatArray  # (q,): ... + e_t + ma_1 e_t-1 + ...

    def matrices(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return `observe` (K,), `move` (K, K), `shock` (K,) and the state's variance (K, K) before any observation."""
        size = max(len(self.ar), len(self.ma) + 1)
        move = np.eye(size, k=1)
        move[: len(self.ar), 0] = self.ar
        shock = np.concatenate([[1.0], self.ma, np.zeros(size - 1 - len(self.ma))])
        observe = np.eye(1, size)[0]
        # variance = move @ variance @ move.T + shock shock', solved as linear equations
        inflow = np.eye(size * size) - np.kron(move, move)
        variance = np.linalg.solve(inflow, np.kron(shock, shock)).reshape(size, size)
        if self.differences:
            # The level before this step joins the state, and ARMA describes its change.
            move = np.block([[np.ones((1, 1)), observe[None]], [np.zeros((size, 1)), move]])
            variance = np.block([[np.full((1, 1), _DIFFUSE), np.zeros((1, size))], [np.zeros((size, 1)), variance]])
            observe, shock = np.concatenate([[1.0], observe]), np.concatenate([[0.0], shock])
        return observe, move, shock, variance


class Filter:
    """The Kalman filter of a `Process`, one step at a time: mean and variance of the state before the next step."""

    def __init__(self, process: Process) -> None:
        self.observe, self.move, self.shock, self.variance = process.matrices()
        self.state = np.zeros(len(self.shock))
        self._shocks = np.outer(self.shock, self.shock)

    def step(self, value: float) -> float:
        """Process `value` and return the prediction error in units of an innovation.

        NaN means missing and returns NaN.
        """
        error = float("nan")
        if value == value:
            away = value - float(self.observe @ self.state)
            covariance = self.variance @ self.observe
            likely = float(self.observe @ covariance)
            self.state = self.state + covariance * (away / likely)
            self.variance = self.variance - np.outer(covariance, covariance) / likely
            error = away / likely**0.5
        self.state = self.move @ self.state
        self.variance = self.move @ self.variance @ self.move.T + self._shocks
        return error

    def ahead(self, steps: int) -> FloatArray:
        """Return the rows that map the state to the expected values: (steps, K)."""
        rows = np.empty((steps, len(self.state)))
        row = self.observe
        for h in range(steps):
            rows[h] = row
            row = row @ self.move
        return rows


class _AroundLevel:
    """A `Filter` of values above a level.

    The level is the mean so far, and an exponential average after enough steps, because a permanent mean would pull the
    forecast to the distant past. A differenced process has its own level, but hardly moves it if it was fitted on a
    time without change.
    """

    def __init__(self, process: Process, step_s: float) -> None:
        self.filter = Filter(process)
        self.level = 0.0
        self._gain = min(1.0, step_s / _LEVEL_S)
        self._seen = 0

    def step(self, value: float) -> float:
        """Process `value` and return the filter's error."""
        if value == value:
            self._seen += 1
            if self._seen == 1:
                self.level = value
        error = self.filter.step(value - self.level)
        if value == value:
            self.level += max(self._gain, 1.0 / self._seen) * (value - self.level)
        return error

    def expected(self, rows: FloatArray) -> FloatArray:
        """Return the expected values by `rows` of the filter's `ahead`: (steps,)."""
        return np.asarray(self.level + rows @ self.filter.state)


@dataclass(frozen=True, slots=True)
class _Learned:
    process: Process
    profiles: tuple[FloatArray, ...]  # log scale; step k, counted from time 0, has the sum of the entries k mod length
    cycle: int  # steps; the strongest short period, 1 without one

    def season(self, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
        total = np.zeros(len(steps))
        for values in self.profiles:
            total += values[steps % len(values)]
        return total


# Simple exponential smoothing, before anything is learned.
_SMOOTHING = _Learned(Process(1, np.empty(0), np.array([-0.5])), (), 1)


class Arima:
    """Implements `Predictor` and `Savable`."""

    name = "arima"
    version = 1

    def __init__(self, seed: int = 0) -> None:
        # raise now, because a forecast that fails later is silently replaced by another predictor's
        if find_spec("statsmodels") is None:
            raise ModuleNotFoundError("No module named 'statsmodels'", name="statsmodels")
        self._seed = seed
        self._learned: _Learned | None = None
        self._restored = False
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)), _SMOOTHING)

    def fit(self, history: Load) -> None:
        if self._learned is None or not self._restored:
            self._learned = _learn(history)
        self._begin(history, self._learned)

    def update(self, observed: Load) -> None:
        logs, peaks_above = self._scale.to_log(observed)
        season = self._model.season(np.arange(self._at, self._at + len(observed)))
        for value, above in zip((logs - season).tolist(), peaks_above.tolist(), strict=True):
            error = self._rest.step(value)
            past = self._tape.values
            if error != error and not past.shape[1]:
                continue  # no step was observed yet: an unknown error is not an error of zero
            if error != error:
                # In a gap repeat the errors of a cycle before, so that no stretch of the past looks calmer than it was.
                error, above = past[:, -self._calm] if past.shape[1] >= self._calm else (0.0, 0.0)
            self._tape.append((error, above))
        self._at += len(observed)
        self._end_s += len(observed) * self._step_s

    def predict(self, steps: int) -> Forecast:
        past = self._tape.values
        rows = self._rest.filter.ahead(steps)
        season = self._model.season(np.arange(self._at, self._at + steps))
        expected = season + self._rest.expected(rows)
        if past.shape[1] == 0:
            paths = above = np.zeros((futures.PATHS, steps))
        else:
            errors, above = past[:, futures.blocks(past.shape[1], steps, self._model.cycle)]
            # psi weights: the remaining effect of an innovation after k steps
            weights = np.concatenate([[1.0], rows[1:] @ self._rest.filter.shock])
            lags = np.arange(steps)[None, :] - np.arange(steps)[:, None]
            paths = errors @ np.where(lags >= 0, weights[lags], 0.0)
            paths = paths + self._unsure() @ rows.T * float(past[0].std())
        return futures.forecast(self._end_s, self._step_s, self._scale, expected + paths, above, self.name)

    def state(self) -> State:
        if self._learned is None:
            raise ValueError("nothing was learned yet")
        learned = self._learned
        state: dict[str, FloatArray] = {
            "differences": np.array([float(learned.process.differences)]),
            "ar": learned.process.ar.copy(),
            "ma": learned.process.ma.copy(),
            "cycle": np.array([float(learned.cycle)]),
        }
        return state | {f"profile_{k}": values.copy() for k, values in enumerate(learned.profiles)}

    def restore(self, state: State) -> None:
        try:
            process = Process(int(state["differences"][0]), np.array(state["ar"]), np.array(state["ma"]))
            profiles = tuple(np.array(state[f"profile_{k}"]) for k in range(len(state) - 4))
            self._learned = _Learned(process, profiles, int(state["cycle"][0]))
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a state of {self.name}") from error
        self._restored = True

    def _begin(self, history: Load, model: _Learned) -> None:
        self._model = model
        self._step_s = history.step_s
        self._end_s = history.start_s
        self._at = round(history.start_s / history.step_s)  # steps from time 0
        self._scale = futures.LogScale(history)
        self._rest = _AroundLevel(model.process, history.step_s)
        self._tape = futures.Tape(2, round(futures.KEPT_S / history.step_s))
        self._calm = model.cycle if model.cycle > 1 else 60
        self.update(history)

    def _unsure(self) -> FloatArray:
        """Return draws of the state's uncertainty, as after a gap, (PATHS, K)."""
        kalman = self._rest.filter
        surplus = kalman.variance - np.outer(kalman.shock, kalman.shock)
        values, vectors = np.linalg.eigh(surplus)
        draws = np.random.default_rng(self._seed).standard_normal((futures.PATHS, len(values)))
        return np.asarray(draws * np.sqrt(np.maximum(0.0, values)) @ vectors.T)


def _learn(history: Load) -> _Learned:
    newest = round(_REGRESSED_S / history.step_s)
    logs = futures.LogScale(history).to_log(history)[0][-newest:]
    if np.count_nonzero(np.isfinite(logs)) < _ENOUGH or np.nanstd(logs) < 1e-6:
        return _SMOOTHING
    at = round(history.end_s / history.step_s) - len(logs) + np.arange(len(logs))
    periods = short_periods(logs, history.step_s)
    learned = _Learned(_SMOOTHING.process, _profiles(logs, at, history.step_s, periods), periods[0] if periods else 1)
    rest = (logs - learned.season(at))[-_ESTIMATED:]
    best = [process for orders in ORDERS if (process := _estimated(rest, orders)) is not None]
    if not best:
        return learned
    return replace(learned, process=min(best, key=lambda process: _error_ahead(process, rest, history.step_s)))


def _profiles(
    logs: FloatArray, at: np.ndarray[tuple[int], np.dtype[np.int64]], step_s: float, periods: Sequence[int]
) -> tuple[FloatArray, ...]:
    """Return the seasonal profiles: day and week as Fourier series beside a trend, short periods as means by phase."""
    day = round(DAY_S / step_s)
    known = np.isfinite(logs)
    seasons: list[tuple[int, Sequence[int]]] = []
    if len(logs) >= 2 * day:
        seasons.append((day, range(1, min(_DAY_HARMONICS, day // 2 - 1) + 1)))
    if len(logs) >= 14 * day:
        seasons.append((7 * day, [k for k in range(1, min(_WEEK_HARMONICS, 7 * day // 2 - 1) + 1) if k % 7]))
    knots = at[0] + np.arange(0, len(logs) + seasons[-1][0], seasons[-1][0]) if seasons else at[:1]
    trend = np.array([np.interp(at[known], knots, one) for one in np.eye(len(knots))])
    rows = [trend, *(_waves(at[known], *season) for season in seasons)]
    design = np.concatenate(rows)
    squares = design @ design.T
    squares += 1e-4 * np.diag(1.0 + squares.diagonal())  # a gap may leave a wave undetermined, or a knot without a step
    shorts = [np.zeros(period) for period in periods]
    for _ in range(2):  # each in turn on the remainder of the others
        short = _Learned(_SMOOTHING.process, tuple(shorts), 1).season(at)
        weights = np.linalg.solve(squares, design @ (logs - short)[known])
        rest = logs.copy()
        rest[known] -= weights @ design
        for k, period in enumerate(periods):
            others = _Learned(_SMOOTHING.process, tuple(shorts[:k] + shorts[k + 1 :]), 1).season(at)
            shorts[k] = profile(rest - others, period, int(at[0]))
    found = list(shorts)
    begin = len(trend)
    for length, harmonics in seasons:
        size = 2 * len(harmonics)
        found.append(weights[begin : begin + size] @ _waves(np.arange(length), length, harmonics))
        begin += size
    return tuple(found)


def _waves(at: np.ndarray[tuple[int], np.dtype[np.int64]], season: int, harmonics: Sequence[int]) -> FloatArray:
    """Return cosines and sines at steps `at` (N,): (2 x harmonics, N)."""
    angle = 2.0 * np.pi * np.outer(harmonics, at % season) / season
    return np.concatenate([np.cos(angle), np.sin(angle)])


def _estimated(rest: FloatArray, orders: Sequence[tuple[int, int, int]]) -> Process | None:
    """Return the best of `orders` (of equal differences) by the corrected Akaike criterion, or None."""
    # Imported here because it takes 2 s, which a series that is too short for an estimate does not need.
    from statsmodels.tsa.statespace.sarimax import SARIMAX
    from threadpoolctl import threadpool_limits  # after the libraries whose threads it limits

    best: tuple[float, Process] | None = None
    for p, d, q in orders:
        series = np.diff(rest) if d else rest - np.nanmean(rest)
        # On shared cores, threads would spend most of the time waiting for each other on such small matrices.
        with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
            warnings.simplefilter("ignore")  # about starting values, and a search that ends early
            try:
                fit = SARIMAX(series, order=(p, 0, q)).fit(disp=0, maxiter=50, cov_type="none", low_memory=True)
            except (ValueError, np.linalg.LinAlgError):
                continue
        found = (float(fit.aicc), Process(d, np.array(fit.params[:p]), np.array(fit.params[p : p + q])))
        if np.isfinite(found[0]) and (best is None or found[0] < best[0]):
            best = found
    return None if best is None else best[1]


def _error_ahead(process: Process, rest: FloatArray, step_s: float) -> float:
    """Return the mean absolute error on `rest` over HORIZONS, because the likelihood covers only one step."""
    around = _AroundLevel(process, step_s)
    rows = around.filter.ahead(int(HORIZONS[-1]))[HORIZONS - 1]
    expected = np.empty((len(rest), len(HORIZONS)))
    for k, value in enumerate(rest.tolist()):
        expected[k] = around.expected(rows)
        around.step(value)
    begin = len(rest) // 10
    errors = [np.abs(rest[h + begin :] - expected[begin : len(rest) - h, k]) for k, h in enumerate(HORIZONS - 1)]
    return float(np.mean([error[np.isfinite(error)].mean() for error in errors if np.isfinite(error).any()]))
