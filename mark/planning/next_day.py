"""The next day's bill as an interval, and the probability that the promise is kept, estimated from past days.

Three forecasts of a day are priced by `plan_usd`: yesterday, the day a week ago and the median of the last seven days.
The dollars are multiplied by the ratio of past bills to their plans, and the logarithms are averaged; a forecast with
small past errors counts more. The width of the interval is a quantile of this average's errors on past days. The level
of that quantile adapts to how often the interval missed (adaptive conformal prediction, Gibbs and Candes 2021). The
probability is a logistic function of how far the late share of past days stayed below the allowed share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray

HALF_HOUR_S = 1800.0
DAY = 48  # half hours
LEAST_WINDOWS = 9  # with fewer errors, even the largest is exceeded on more than one of ten days
_EVERY = DAY // 2  # half hours from one past day to the next one
_WEEK = 7
MOST_DAYS = 45  # days of the past that are examined
_KEPT_WINDOWS = 60
_MISS = 0.1  # the bill may lie outside on this share of the days
_LEARNT = 0.02  # learning rate of the level
_MOST_MISS = 0.3
_BEYOND = 1.3  # factor on the largest past error, if the level asks for a wider interval
_LEAST_USD = 1e-9
_LEAST_LATE = 1e-4
# Bills of `mark` on the demo and on ten days of five families (docs/results.md) were 0.88 to 1.17 times their plans.
BILL_OF_PLAN = 1.0  # if no bill is known
BILL_SPREAD = 0.2  # then added to the half width, in logarithms
# Measured over the shared traces, each trace with one vote (benchmarks/planner/next_day.py).
UNREST_FACTOR = 2.3  # half width in logarithms, in units of the day's unrest, with too few past errors
LEAST_UNREST = 0.02
_PERIODS = (1, 2, 4, 6, 8, 12)  # half hours
PROMISE_MAP = (0.0, 1.5)  # intercept and slope from the margin to the log odds

PlanUsd = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class SeenHalfHours:
    """The past by half hours, the last of which ends now; NaN means unknown.

    `usd` is the billed amount (not a plan's), `late` the share of requests that were late or refused.
    """

    rates_rps: FloatArray
    usd: FloatArray
    late: FloatArray


@dataclass(frozen=True, slots=True)
class BillInterval:
    """The bill lies within [low, high] on nine of ten days, by `past_windows` past days.

    `calibrated`: these days were enough, and a bill is known.
    """

    low: float
    high: float
    expected: float
    calibrated: bool
    past_windows: int

    def as_json(self) -> dict[str, Any]:
        return {
            "interval_90": [self.low, self.high],
            "expected": self.expected,
            "calibrated": self.calibrated,
            "past_windows": self.past_windows,
        }


@dataclass(frozen=True, slots=True)
class KeptProbability:
    """The probability that the next day keeps the promise. `calibrated`: it was fitted on enough past days."""

    probability: float
    calibrated: bool

    def as_json(self) -> dict[str, Any]:
        return {"probability": self.probability, "calibrated": self.calibrated}


@dataclass(frozen=True, slots=True)
class NextDay:
    """The day after now. `promise` is None if neither late shares nor a planner's confidence are known."""

    usd: BillInterval
    promise: KeptProbability | None

    def as_json(self) -> dict[str, Any]:
        return {"usd": self.usd.as_json(), "promise_kept": None if self.promise is None else self.promise.as_json()}


def next_day(
    seen: SeenHalfHours, allowed: float, plan_usd: PlanUsd, *, stated_confidence: float | None = None
) -> NextDay | None:
    """Return the interval and the probability; None unless half of the last day's rates are known and some are above 0.

    `allowed` is the share of requests that may be late. `plan_usd` returns a plan's dollars for each half hour's rate,
    in an array of any shape. `stated_confidence` is the planner's own, used if no late shares were observed.
    """
    known = np.isfinite(seen.rates_rps)
    if len(known) < DAY or known[-DAY:].mean() < 0.5 or not np.nansum(seen.rates_rps[-DAY:]) > 0.0:
        return None
    places = np.arange(len(known))
    rates_rps = np.interp(places, places[known], seen.rates_rps[known])
    starts = np.arange(len(rates_rps) - DAY, DAY - 1, -_EVERY)[:_KEPT_WINDOWS][::-1]
    usable = np.array([known[at : at + DAY].mean() >= 0.5 for at in starts], dtype=np.bool_)
    usd = _interval(seen, rates_rps, starts[usable], plan_usd)
    return NextDay(usd, _promise(seen, rates_rps, allowed, stated_confidence))


def _interval(seen: SeenHalfHours, rates_rps: FloatArray, starts: IntArray, plan_usd: PlanUsd) -> BillInterval:
    planned = plan_usd(rates_rps)
    billed = np.isfinite(seen.usd)
    plan_of_billed = float(planned[billed].sum())
    ratio = float(seen.usd[billed].sum()) / plan_of_billed if plan_of_billed > 0.0 else BILL_OF_PLAN
    spent = np.where(billed, seen.usd, ratio * planned)
    now = len(rates_rps)
    days = np.array([_forecasts(rates_rps, at) for at in [*starts, now]])
    believed = np.log(np.maximum(_LEAST_USD, ratio * plan_usd(days).sum(axis=-1)))
    real = np.log(np.maximum(_LEAST_USD, np.array([spent[at : at + DAY].sum() for at in starts])))
    errors = real[:, None] - believed[:-1]
    weights, width = conformal_width(errors)
    calibrated = width is not None and plan_of_billed > 0.0
    if width is None:
        follows = np.ptp(planned) > 0.0  # a fleet that never changes costs the same under any load
        width = UNREST_FACTOR * unrest((rates_rps if follows else planned)[-DAY:])
    if plan_of_billed <= 0.0:
        width += BILL_SPREAD
    middle = float(believed[-1] @ weights)
    low, expected, high = np.exp([middle - width, middle, middle + width])
    return BillInterval(float(low), float(high), float(expected), calibrated, len(starts))


def _forecasts(rates_rps: FloatArray, at: int) -> FloatArray:
    """Return the three forecasts of the day at half hour `at`, (3, DAY).

    With less than a week of past, yesterday replaces the day a week ago.
    """
    past = np.array([rates_rps[at - DAY * p : at - DAY * (p - 1)] for p in range(1, _WEEK + 1) if at >= DAY * p])
    return np.array([past[0], past[_WEEK - 1] if len(past) == _WEEK else past[0], np.median(past, axis=0)])


def conformal_width(errors: FloatArray) -> tuple[FloatArray, float | None]:
    """Return weights of the forecasts (3,), and the half width of the next day's interval; None with too few errors.

    `errors` (days, 3) are logarithms of the bill over each forecast, oldest first. Days begin half a day apart, so a
    day is not over when the next one begins. The last of them is over now.
    """
    level = _MISS
    for at in range(LEAST_WINDOWS + 1, len(errors)):
        weights, width = _width(errors[: at - 1], level)
        missed = abs(float(errors[at] @ weights)) > width
        level = min(_MOST_MISS, max(0.0, level + _LEARNT * (_MISS - missed)))
    if len(errors) < LEAST_WINDOWS:
        return np.full(errors.shape[1], 1.0 / errors.shape[1]), None
    return _width(errors, level)


def _width(errors: FloatArray, level: float) -> tuple[FloatArray, float]:
    weights = 1.0 / (np.abs(errors).mean(axis=0) + 1e-9) ** 2
    weights /= weights.sum()
    ascending = np.sort(np.abs(errors @ weights))
    place = math.ceil((len(errors) + 1) * (1.0 - level))
    width = ascending[place - 1] if place <= len(errors) else _BEYOND * ascending[-1]
    return weights, float(width)


def unrest(rates_rps: FloatArray) -> float:
    """Return the standard deviation of the changes of the log load from one half hour to the next.

    A load that repeats every one to six hours is compared with the period before instead.
    """
    logs = np.log(rates_rps + 0.1 * rates_rps.mean())
    return max(LEAST_UNREST, min(float(np.std(logs[lag:] - logs[:-lag])) for lag in _PERIODS))


def _promise(
    seen: SeenHalfHours, rates_rps: FloatArray, allowed: float, stated: float | None
) -> KeptProbability | None:
    known = np.isfinite(seen.late)
    requests = np.where(known, rates_rps, 0.0)
    late = np.where(known, seen.late, 0.0) * requests
    shares: list[float] = []
    for at in range(len(rates_rps) - DAY, -1, -_EVERY):
        if known[at : at + DAY].mean() < 0.5 or len(shares) == _KEPT_WINDOWS:
            break
        shares.append(late[at : at + DAY].sum() / max(requests[at : at + DAY].sum(), _LEAST_USD))
    if not shares:
        return None if stated is None else KeptProbability(stated, False)
    probability, calibrated = kept_probability(np.array(shares[::-1]), allowed)
    return KeptProbability(probability, calibrated)


def kept_probability(late_shares: FloatArray, allowed: float) -> tuple[float, bool]:
    """Return the probability that the next day keeps the promise, from the late shares of past days, oldest first.

    Days begin half a day apart. The flag says whether there were enough of them to fit the logistic map.
    """
    logs = np.log(late_shares + _LEAST_LATE)
    limit = math.log(allowed + _LEAST_LATE)
    levels = np.cumsum(logs) / np.arange(1, len(logs) + 1)
    errors = logs[2:] - levels[:-2]  # a day is over when the next but one begins
    spreads = np.array([_spread(errors[: max(0, known - 2)]) for known in range(1, len(logs) + 1)])
    margins = (limit - levels) / spreads
    calibrated = len(errors) >= LEAST_WINDOWS
    kept: BoolArray = late_shares[2:] <= allowed
    a, b = _logistic(margins[: len(errors)], kept) if calibrated else PROMISE_MAP
    return float(1.0 / (1.0 + math.exp(-min(500.0, max(-500.0, a + b * float(margins[-1])))))), calibrated


def _spread(errors: FloatArray) -> float:
    """Return the root mean square of the errors so far and of `_PRIOR_ERRORS` assumed ones of `_PRIOR_SPREAD`."""
    return math.sqrt((float(errors @ errors) + _PRIOR_ERRORS * _PRIOR_SPREAD**2) / (len(errors) + _PRIOR_ERRORS))


_PRIOR_ERRORS, _PRIOR_SPREAD = 4, 0.5
_PRIOR_WEIGHT = 1.0  # of the penalty for a distance from PROMISE_MAP


def _logistic(margins: FloatArray, kept: BoolArray) -> tuple[float, float]:
    """Return the fitted intercept and slope, regularized towards PROMISE_MAP, by Newton's method."""
    found = np.array(PROMISE_MAP)
    design = np.column_stack([np.ones(len(margins)), np.clip(margins, -10.0, 10.0)])
    for _ in range(25):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ found, -30.0, 30.0)))
        slope = design.T @ (kept - p) - _PRIOR_WEIGHT * (found - PROMISE_MAP)
        curve = (design * (p * (1.0 - p))[:, None]).T @ design + _PRIOR_WEIGHT * np.eye(2)
        step = np.linalg.solve(curve, slope)
        found = found + step
        if np.abs(step).max() < 1e-9:
            break
    return float(found[0]), max(0.0, float(found[1]))
