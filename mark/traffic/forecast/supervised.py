"""A predictor that cannot fail: it asks another one, and replaces unusable forecasts by the last value.

A predictor may be any user's code. Whichever way it fails, the controller gets a forecast, the name of the predictor
that made it, and the reason. Time here is the load's: nothing depends on a clock unless one is passed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mark.domain.load import Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.drift import AHEAD, Drift
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.predictor import Predictor, Savable, State
from mark.traffic.forecast.turns import InTurns

# The reasons why the fallback stands in. They are counted by name, so they are few and contain no message.
FIT_RAISED = "its fit raised"
UPDATE_RAISED = "its update raised"
PREDICT_RAISED = "its predict raised"
INVALID = "its forecast was invalid"
EXPLODED = "its forecast exploded"
SLOW = "it ran out of time"
SLOW_TO_FIT = "it is too slow to be fitted again"
DRIFTED = "it drifted"

MOST_TIMES = 100.0  # times the highest rate ever seen: a forecast of more has exploded
KEPT_S = 15 * DAY_S  # load that is kept to fit the predictor again
_PATIENCE = 3  # failures in a row, before the predictor rests
_REST_S, _LONGEST_REST_S = 300.0, DAY_S  # the first rest; every next one is twice as long
_GOOD_AGAIN = 60  # forecasts without a failure, after which the next rest is a first one again


class Supervised:
    """Implements `Predictor`: the forecasts of `predictor`, or the fallback's. No method raises an Exception.

    The fallback answers when fit, update or predict raises; when a forecast has another type, origin, step or length,
    or quantiles that are not finite, negative or cross; when its highest quantile is above `most_times` the
    highest rate ever seen; when update and predict together took longer than `budget_s` three times in a row; and while
    its recent CRPS is more than ten times the fallback's (see `Drift`).

    - One bad forecast costs one answer. After three in a row the predictor rests: 5 minutes of load, then twice as
      long each time, at most a day. One more bad or late forecast right after a rest begins the next one; 60 good
      ones in a row make the next rest 5 minutes again.
    - When fit or update raised, or forecasts were bad three times in a row, its state is suspect: after the rest it is
      fitted again on the last 15 days, from its learned state if it is `Savable`. If a fit takes longer than
      `fit_budget_s` and no state can be restored, it is not fitted again, because that would delay the controller.
    - After a rest for being slow it only catches up, in one update.
    - A call cannot be interrupted: a late forecast is used, and a call that never returns stops its caller.
    - Drift does not stop it: it continues to learn and forecast, so that it can be compared.

    `clock` returns the seconds that budgets are measured in; without one no call is too slow. `stands_in` is the
    reason why the fallback made the last forecast, or ""; `causes` holds the first message of each reason.
    An empty or constant history does not count as a failure.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        clock: Callable[[], float] | None = None,
        budget_s: float = 1.0,
        fit_budget_s: float = 20.0,
        most_times: float = MOST_TIMES,
    ) -> None:
        self._name = str(getattr(predictor, "name", type(predictor).__name__))
        # True if it knows the future, so that observations cannot correct it. Real predictors do not.
        self.foresees = bool(getattr(predictor, "foresees", False))
        self.stands_in = ""
        self.causes: dict[str, str] = {}
        self._predictor = predictor
        self._clock = clock or (lambda: 0.0)
        self._budget_s, self._fit_budget_s, self._most_times = budget_s, fit_budget_s, most_times
        self._begin(Load(0.0, 60.0, np.empty(0), np.empty(0)))

    @property
    def name(self) -> str:
        """Name of the predictor that forecasts unless the fallback stands in."""
        return self._predictor.name if isinstance(self._predictor, InTurns) else self._name

    def _begin(self, history: Load) -> None:
        self._kept = int(KEPT_S / history.step_s) + 1
        self._mean, self._peak = array("d"), array("d")  # the newest steps, at least as many as are needed
        self._highest_rps = -math.inf  # before the first observation
        self._remember(history)
        self._fallback, self._drift = LastValue(), Drift()
        self._fallback.fit(history)
        self._suspect = False  # whether its state is in doubt
        self._learned: State | None = None
        self._trouble = ""  # the reason of its last failure
        self._missed = 0  # steps not yet passed to it
        # Failed and slow answers in a row, and good ones since the last failure.
        self._failed, self._slow, self._good = 0, 0, 0
        self._rest_s = _REST_S
        self._rests_until_s = -math.inf
        self._spent_s = 0.0  # in the last update
        self._fit_s = 0.0  # the longest fit

    def fit(self, history: Load) -> None:
        self._begin(history)
        self._fit(history)

    def update(self, observed: Load) -> None:
        self._drift.observe(observed)
        self._fallback.update(observed)
        self._remember(observed)
        self._missed += len(observed)
        self._spent_s = 0.0
        if not self._missed or self._resting:
            return
        if self._suspect:
            if self._learned is None and self._fit_s > self._fit_budget_s:
                self._note(SLOW_TO_FIT, f"a fit took {self._fit_s:.3g} s, {self._fit_budget_s:g} s allowed")
            else:
                self._fit(self._last(self._kept))
            return
        began_s = self._clock()
        try:
            self._predictor.update(observed if self._missed == len(observed) else self._last(self._missed))
        except Exception as error:
            self._note(UPDATE_RAISED, error)
            self._suspect = True
            self._rest()
        else:
            self._missed = 0
        self._spent_s = self._clock() - began_s

    def predict(self, steps: int, recent_rps: float | None = None) -> Forecast:
        """Return a forecast, as the port says; the fallback takes the current rate `recent_rps` as last value."""
        own = self._own(steps)
        self.stands_in = self._trouble
        if own is not None:
            self._drift.forecast(own, self._fallback.quantiles(AHEAD, recent_rps)[0])
            self.stands_in = DRIFTED if self._drift.found else ""
        if own is None or self._drift.found:
            return self._fallback.predict(steps, recent_rps)
        return own if own.predictor == self.name else replace(own, predictor=self.name)

    def learn(self) -> None:
        """Do a piece of learning if the predictor learns in turns. Others learn when they are fitted and updated."""
        if not isinstance(self._predictor, InTurns) or self._suspect or self._resting:
            return
        try:
            self._predictor.learn()
        except Exception as error:
            self._note(FIT_RAISED, error)
            self._suspect = True
            self._rest()

    # -- asking the predictor ------------------------------------------------------------------------------------------

    def _own(self, steps: int) -> Forecast | None:
        if self._suspect or self._resting:
            return None
        doing, began_s = PREDICT_RAISED, self._clock()
        try:
            forecast = self._predictor.predict(steps)
            doing = INVALID
            self._check(forecast, steps)
            doing = EXPLODED
            self._check_size(forecast)
        except Exception as error:
            self._note(doing, error)
            self._failed += 1
            if self._failed >= _PATIENCE:
                self._suspect = True
                self._rest()
            return None
        self._failed = 0
        if self._too_slow(self._spent_s + self._clock() - began_s):
            return None
        self._good += 1
        if self._good >= _GOOD_AGAIN:
            self._rest_s = _REST_S
        return forecast

    def _check(self, forecast: Forecast, steps: int) -> None:
        if not isinstance(forecast, Forecast):
            raise TypeError(f"a {type(forecast).__name__} is no Forecast")
        for what, said, true in (
            ("origin_s", forecast.origin_s, self._origin_s),
            ("step_s", forecast.step_s, self._step_s),
            ("steps", forecast.steps, steps),
        ):
            if said != true and not (isinstance(true, float) and abs(said - true) < 1e-6):
                raise ValueError(f"{what} is {said}, not {true}")
        # Repeat the checks of Forecast's construction, because arrays can be modified later.
        for rates in (forecast.mean_rps, forecast.peak_rps):
            rising = (rates[1:] >= rates[:-1] - 1e-9).all()  # False for NaN
            if not (rising and rates[0].min() >= 0.0 and rates[-1].max() < np.inf):
                raise ValueError("quantiles must be finite, not negative, and must not cross")
        levels, paths = forecast.levels, forecast.paths_rps
        if len(levels) == 0 or levels[0] <= 0.0 or levels[-1] >= 1.0 or not np.all(np.diff(levels) > 0.0):
            raise ValueError("levels must ascend between 0 and 1")
        if paths is not None and not (
            paths.ndim == 2 and paths.shape[1] == steps and 0.0 <= paths.min() <= paths.max() < np.inf
        ):
            raise ValueError(f"paths must be finite, not negative, and have {steps} steps")

    def _check_size(self, forecast: Forecast) -> None:
        if self._highest_rps < 0.0:
            return
        # Any number is a multiple of zero requests, so one request a step counts as seen.
        most_rps = self._most_times * max(self._highest_rps, 1.0 / self._step_s)
        highest_rps = float(max(forecast.mean_rps[-1].max(), forecast.peak_rps[-1].max()))
        if highest_rps > most_rps:
            raise ValueError(f"{highest_rps:g} requests/s, {self._highest_rps:g} is the highest ever seen")

    def _fit(self, history: Load) -> None:
        began_s = self._clock()
        try:
            if self._learned is not None and isinstance(self._predictor, Savable):
                self._predictor.restore(self._learned)
            self._predictor.fit(history)
        except Exception as error:
            self._note(FIT_RAISED, error)
            self._learned, self._suspect = None, True  # its learned state may be the fault
            self._rest()
        else:
            self._suspect, self._missed = False, 0
        if self._learned is None:
            self._fit_s = max(self._fit_s, self._clock() - began_s)
            self._learned = None if self._suspect else self._state()

    def _state(self) -> State | None:
        try:
            return self._predictor.state() if isinstance(self._predictor, Savable) else None
        except Exception:  # it has learned nothing, or cannot return it; then it is fitted again
            return None

    def _too_slow(self, took_s: float) -> bool:
        self._slow = self._slow + 1 if took_s > self._budget_s else 0
        if self._slow < _PATIENCE:
            return False
        self._note(SLOW, f"{took_s:.3g} s, {self._budget_s:g} s allowed")
        self._rest()
        return True

    def _note(self, reason: str, cause: Exception | str) -> None:
        self._trouble, self._good = reason, 0
        if reason not in self.causes:
            self.causes[reason] = cause if isinstance(cause, str) else _message(cause)

    @property
    def _resting(self) -> bool:
        return self._origin_s < self._rests_until_s

    def _rest(self) -> None:
        self._rests_until_s = self._origin_s + self._rest_s
        self._rest_s = min(2.0 * self._rest_s, _LONGEST_REST_S)

    # -- observed load -------------------------------------------------------------------------------------------------

    def _remember(self, observed: Load) -> None:
        self._origin_s, self._step_s, self._fine = float(observed.end_s), float(observed.step_s), observed.fine
        for kept, rates in ((self._mean, observed.mean_rps), (self._peak, observed.peak_rps)):
            kept.frombytes(np.asarray(rates[-self._kept :], dtype=np.float64).tobytes())
            if len(kept) > self._kept + self._kept // 8:
                del kept[: -self._kept]
        for rates in (observed.mean_rps, observed.peak_rps):
            self._highest_rps = max(self._highest_rps, float(rates[np.isfinite(rates)].max(initial=-math.inf)))

    def _last(self, steps: int) -> Load:
        mean, peak = (np.array(rates)[-steps:] for rates in (self._mean, self._peak))
        return Load(self._origin_s - len(mean) * self._step_s, self._step_s, mean, peak, self._fine)


def _message(error: Exception) -> str:
    """Return one short line; an error may fail to print itself."""
    try:
        text = " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:
        text = type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
