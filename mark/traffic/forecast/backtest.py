"""The backtest: replay a trace in arrival order (predict, wait for the truth, learn) and score the forecasts.

A predictor gets only copies of load from before the origin, so it cannot find the future. A forecast that does not
begin at the origin is refused, because its predictor has seen more or less than it should.
"""

from __future__ import annotations

import gzip
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.scores import Tally, naive_error
from mark.traffic.traces.trace import Trace

ORIGIN_EVERY_S = 300.0
MOST_STEPS = 10_080  # ahead: a week of minutes
FANS = 4  # origins whose forecasts are kept for inspection
COLUMNS = "predictor,origin_s,target_s,quantile,rate_rps"


@dataclass(frozen=True, slots=True)
class Split:
    """The training and the judged part of a trace: `load` without a break, whose first `train` steps are the history.

    Forecasts of `steps` steps are made at `origins` (places in `load`, ascending from `train`). Unknown load, in a gap
    or beyond the trace's end, is NaN; `load` reaches to the last target.
    """

    trace: str
    load: Load
    train: int
    origins: range
    steps: int
    notes: tuple[str, ...] = ()
    read: str = ""  # the whole trace that was read, in words

    @property
    def start_s(self) -> float:
        """The first origin, in seconds from the trace's first row."""
        return self.at_s(self.train)

    @property
    def train_s(self) -> float:
        return self.train * self.load.step_s

    def at_s(self, step: int) -> float:
        return self.load.start_s + step * self.load.step_s

    def seen(self, begin: int, end: int) -> Load:
        """Return copies of steps [begin, end) for a predictor, which give no access to other steps."""
        load = self.load
        mean, peak = (rates[begin:end].copy() for rates in (load.mean_rps, load.peak_rps))
        return Load(self.at_s(begin), load.step_s, mean, peak, load.fine)


def split(
    trace: Trace,
    *,
    start_s: float | None = None,
    duration_s: float | None = None,
    train_s: float | None = None,
    horizon_s: float = 3600.0,
    scale: float = 1.0,
) -> Split:
    """Cut a trace: learn from [start - train, start), judge the forecasts made in [start, start + duration).

    Seconds count from the trace's first row. Without `start_s` the history is the first `train_s` seconds, and without
    either the first half of the trace. Steps are a minute, or a bin if that is longer, and cover the horizon; an origin
    comes every 300 s, or every step if steps are longer. Raises BadInput for a part or horizon outside the trace.
    """
    step_s = trace.step_s
    if start_s is None:
        if train_s is not None and train_s >= trace.duration_s:
            raise BadInput(f"leaves nothing of {trace.name} to judge", "train_s", train_s)
        start_s = math.floor(trace.duration_s / 2.0 / step_s) * step_s if train_s is None else train_s
    part = trace.part(start_s, duration_s, scale)
    if horizon_s <= 0.0:
        raise BadInput("must be above zero", "horizon_s", horizon_s)
    steps = math.ceil(horizon_s / step_s - 1e-9)
    if steps > MOST_STEPS:
        raise BadInput(f"more than {MOST_STEPS:,} steps of {step_s:g} s ahead", "horizon_s", horizon_s)
    train = int((start_s if train_s is None else min(train_s, start_s)) / step_s + 1e-9)
    # A step that the trace's end cuts never completes.
    known = int((trace.duration_s - start_s) / step_s + 1e-9)
    judged = min(math.ceil(part.duration_s / step_s - 1e-9), known)
    if judged == 0:
        raise BadInput(f"less than one step of {step_s:g} s to judge", trace.name, f"{part.duration_s:g} s")
    origins = range(train, train + judged, max(1, int(ORIGIN_EVERY_S / step_s + 1e-9)))
    until = origins[-1] + steps
    load = trace.load(start_s - train * step_s, start_s + min(known, until - train) * step_s, scale)
    missing = np.full(until - len(load), np.nan)
    mean, peak = (np.concatenate([rates, missing]) for rates in (load.mean_rps, load.peak_rps))
    return Split(
        trace.name, Load(load.start_s, step_s, mean, peak, load.fine), train, origins, steps, trace.notes, trace.read
    )


@dataclass(slots=True)
class BacktestReplay:
    """One predictor's replay of a split; iterating it yields its forecasts, all at LEVELS."""

    name: str
    predictor: Predictor
    split: Split
    fit_s: float = 0.0
    update_s: list[float] = field(default_factory=list)  # wall time of each call
    predict_s: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[Forecast]:
        """Yield forecasts in the order of the origins.

        Raises BadInput, naming the predictor, if it raises or its forecast does not fit the request.
        """
        split, predictor = self.split, self.predictor
        self.fit_s, _ = self._timed("fit", predictor.fit, split.seen(0, split.train), split.train)
        at = split.train
        for origin in split.origins:
            for step in range(at, origin):  # one by one, as they complete
                spent_s, _ = self._timed("update", predictor.update, split.seen(step, step + 1), step + 1)
                self.update_s.append(spent_s)
            at = origin
            spent_s, forecast = self._timed("predict", predictor.predict, split.steps, origin)
            self.predict_s.append(spent_s)
            self._check(forecast, origin)
            yield _at_levels(forecast)

    def _timed(self, doing: str, call: Callable[[Any], Any], given: Any, at: int) -> tuple[float, Any]:
        began = time.perf_counter()
        try:
            result = call(given)
        except Exception as error:
            what = f"failed to {doing} at second {self.split.at_s(at):.10g}"
            raise BadInput(what, f"predictor {self.name}", f"{type(error).__name__}: {error}") from error
        return time.perf_counter() - began, result

    def _check(self, forecast: Forecast, origin: int) -> None:
        asked = {"origin_s": self.split.at_s(origin), "step_s": self.split.load.step_s, "steps": self.split.steps}
        for what, value in asked.items():
            given = getattr(forecast, what, None)
            if given is None or abs(given - value) > 1e-6:
                raise BadInput(f"its forecast's {what} must be {value:.10g}", f"predictor {self.name}", given)


@dataclass(frozen=True, slots=True)
class Score:
    """A predictor's scores in a backtest. Rates in requests/s; NaN if undefined.

    `mase` is the median's mean absolute error over the error of a naive forecast in the training part
    (`Backtest.mase_lag`). `peak_crps` is for the highest 5 s rate per step, NaN if bins are coarser. `by_horizon` has a
    row a step, its `horizon_s` reaching from the origin to the step's end. `update_ms` and `predict_ms` are medians of
    wall time. `made_by` counts the forecasts by their predictors' names, which shows fallbacks. `predictor` is the
    predictor's own name, which differs from a requested file name.
    """

    predictor: str
    mase: float
    crps: float
    peak_crps: float
    coverage_50: float
    coverage_90: float
    by_horizon: tuple[dict[str, float], ...]  # horizon_s, crps, median_error, coverage_50, coverage_90
    fit_s: float
    update_ms: float
    predict_ms: float
    made_by: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the stable object of one predictor; NaN becomes null when it is written."""
        return {
            "mase": self.mase,
            "crps": self.crps,
            "peak_crps": self.peak_crps,
            "coverage": {"0.5": self.coverage_50, "0.9": self.coverage_90},
            "by_horizon": list(self.by_horizon),
            "fit_s": self.fit_s,
            "update_ms": self.update_ms,
            "predict_ms": self.predict_ms,
            "made_by": self.made_by,
        }


@dataclass(frozen=True, slots=True)
class Backtest:
    """The scores by predictor, in the requested order, and the forecasts of some origins for inspection.

    `mase_lag` is the scale of MASE: the naive error over a "day", or over a "step" if the history is too short.
    """

    split: Split
    scores: dict[str, Score]
    fans: dict[str, list[Forecast]]
    mase_lag: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the stable object of `forecast backtest --json`."""
        split = self.split
        return {
            "schema": 1,
            "trace": split.trace,
            "read": split.read,
            "start_s": split.start_s,
            "train_s": split.train_s,
            "step_s": split.load.step_s,
            "steps": split.steps,
            "origins": len(split.origins),
            "mase_lag": self.mase_lag,
            "predictors": {name: score.as_json() for name, score in self.scores.items()},
            "notes": list(split.notes),
        }


def backtest(
    split: Split,
    predictors: Mapping[str, Predictor],
    *,
    out: str | None = None,
    fans_at: Collection[int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Backtest:
    """Replay fresh `predictors`, one after the other, and score them.

    `out` names a file (gzip if it ends in .gz) that gets every forecast, in the form of the stable interface. The
    forecasts of the origins `fans_at` are kept for inspection, by default of FANS evenly spread ones. `progress` takes
    the finished share. Raises BadInput, naming the predictor, if one raises or its forecast does not fit the request.
    """
    lag, scale = _mase_scale(split)
    if fans_at is None:
        fans_at = {split.origins[round(i)] for i in np.linspace(0, len(split.origins) - 1, FANS + 2)[1:-1]}
    scores, fans = {}, {}
    with _opened(out) as write:
        if write is not None:
            write(f"{COLUMNS}\n")
        for place, (name, predictor) in enumerate(predictors.items()):
            tally, made_by, kept = Tally(split.steps), Counter[str](), []
            replay = BacktestReplay(name, predictor, split)
            for k, (origin, forecast) in enumerate(zip(split.origins, replay, strict=True)):
                truth = slice(origin, origin + split.steps)
                tally.add(forecast.mean_rps, split.load.mean_rps[truth], forecast.peak_rps, split.load.peak_rps[truth])
                made_by[forecast.predictor] += 1
                if origin in fans_at:
                    kept.append(forecast)
                if write is not None:
                    write(_rows(name, forecast))
                if progress is not None:
                    progress((place + (k + 1) / len(split.origins)) / len(predictors))
            scores[name], fans[name] = _score(replay, tally, scale, made_by), kept
    return Backtest(split, scores, fans, lag)


def _score(replay: BacktestReplay, tally: Tally, scale: float, made_by: Mapping[str, int]) -> Score:
    step_s = replay.split.load.step_s
    return Score(
        predictor=replay.predictor.name,
        mase=tally.median_error / scale if scale > 0.0 else math.nan,
        crps=tally.crps,
        peak_crps=tally.peak_crps if replay.split.load.fine else math.nan,
        coverage_50=tally.coverage_50,
        coverage_90=tally.coverage_90,
        by_horizon=tuple({"horizon_s": step_s * (h + 1), **row} for h, row in enumerate(tally.by_step())),
        fit_s=replay.fit_s,
        update_ms=statistics.median(replay.update_s) * 1e3 if replay.update_s else math.nan,
        predict_ms=statistics.median(replay.predict_s) * 1e3,
        made_by=dict(made_by),
    )


def _mase_scale(split: Split) -> tuple[str | None, float]:
    """Return the naive error in the training part, by the longest possible lag, and that lag's name."""
    rates = split.load.mean_rps[: split.train]
    for name, lag in (("day", max(1, round(DAY_S / split.load.step_s))), ("step", 1)):
        error = naive_error(rates, lag)
        if math.isfinite(error):
            return name, error
    return None, math.nan


def _at_levels(forecast: Forecast) -> Forecast:
    """Return the forecast at LEVELS, linear between its own levels and constant beyond them."""
    if np.array_equal(forecast.levels, LEVELS):
        return forecast
    mean, peak = (np.stack([at(q) for q in LEVELS]) for at in (forecast.mean_at, forecast.peak_at))
    return Forecast(forecast.origin_s, forecast.step_s, LEVELS, mean, peak, forecast.predictor, forecast.paths_rps)


@contextmanager
def _opened(out: str | None) -> Iterator[Callable[[str], object] | None]:
    """Yield a function that writes text to the file, or None without a file.

    Equal text gives equal bytes, because the gzip omits the time stamp.
    """
    if out is None:
        yield None
        return
    try:
        with Path(out).open("wb") as raw:
            if not out.endswith(".gz"):
                yield lambda text: raw.write(text.encode())
                return
            with gzip.GzipFile("", "wb", compresslevel=4, fileobj=raw, mtime=0) as zipped:
                yield lambda text: zipped.write(text.encode())
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", "out", out) from None


# Rates as the shortest text that reads back as the same number, so that a truth equal to a quantile lies within.
_CELLS = tuple(f"{level:.2f},%r\n" for level in LEVELS)


def _rows(name: str, forecast: Forecast) -> str:
    """Return the lines of one forecast: target by target, quantiles ascending."""
    origin = f"{name},{forecast.origin_s:.12g}".replace("%", "%%")
    targets = (forecast.origin_s + forecast.step_s * np.arange(forecast.steps)).tolist()
    starts = [f"{origin},{target:.12g}," for target in targets]
    lines = "".join([start + cell for start in starts for cell in _CELLS])
    return lines % tuple(forecast.mean_rps.T.ravel().tolist())
