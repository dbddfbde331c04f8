"""Wall time of planner and predictor; the simulation reads the clock only to report its own speed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mark.domain.load import Forecast, Load
from mark.domain.plan import Plan
from mark.planning.planner import Planner, PlanningContext
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.supervised import MOST_TIMES, Supervised


class Stopwatch:
    """Adds up wall time."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.spent_s += time.perf_counter() - began

        return call


class TimedPlanner:
    """A planner whose time is measured."""

    def __init__(self, planner: Planner, watch: Stopwatch) -> None:
        self.name, self.needs_forecast, self.monitors_slo = planner.name, planner.needs_forecast, planner.monitors_slo
        self.replans = planner.replans
        self.begin = planner.begin
        self._plan = watch.timed(planner.plan)
        self._seen: PlanningContext | None = None
        # Time and value of the confidence that plans stated: of the first plan, and the lowest.
        self.first_stated: tuple[float, float] | None = None
        self.least_stated: tuple[float, float] | None = None

    def seen(self) -> PlanningContext | None:
        """Return the context of the last plan since the previous call; None without a plan."""
        seen, self._seen = self._seen, None
        return seen

    def plan(self, context: PlanningContext, memory: Any) -> tuple[Plan, Any]:
        self._seen = context
        result: tuple[Plan, Any] = self._plan(context, memory)
        if (confidence := result[0].confidence) is not None:
            self.first_stated = self.first_stated or (context.now_s, confidence)
            if self.least_stated is None or confidence < self.least_stated[1]:
                self.least_stated = context.now_s, confidence
        return result


class TimedPredictor(Supervised):
    """A supervised predictor whose time is measured, including supervision.

    It has no time budget, because a run's result must not depend on a clock.
    """

    def __init__(self, predictor: Predictor, watch: Stopwatch, *, most_times: float) -> None:
        super().__init__(predictor, most_times=most_times)
        self._timed_fit, self._timed_update = watch.timed(super().fit), watch.timed(super().update)
        self._timed_predict = watch.timed(super().predict)

    def fit(self, history: Load) -> None:
        self._timed_fit(history)

    def update(self, observed: Load) -> None:
        self._timed_update(observed)

    def predict(self, steps: int, recent_rps: float | None = None) -> Forecast:
        result: Forecast = self._timed_predict(steps, recent_rps)
        return result


MadeForecasts = dict[bytes, tuple[Forecast, str, dict[str, str]]]
"""Forecasts of earlier runs, each with `stands_in` and `causes`, by a digest of the predictor and all calls before."""


class SharingPredictor(TimedPredictor):
    """A timed predictor that takes a forecast from `made` if an equal predictor made it after the same calls.

    `identity` tells predictors apart. The predictor itself is called, for all calls that it has missed, as soon as
    `made` lacks a forecast.
    """

    def __init__(self, predictor: Predictor, watch: Stopwatch, made: MadeForecasts, *, identity: object) -> None:
        super().__init__(predictor, watch, most_times=MOST_TIMES)
        self._made, self._calls = made, hashlib.sha256(repr(identity).encode())
        self._missed_calls: list[Callable[[], Any]] = []

    def fit(self, history: Load) -> None:
        self._miss(partial(super().fit, history), history)

    def update(self, observed: Load) -> None:
        self._miss(partial(super().update, observed), observed)

    def predict(self, steps: int, recent_rps: float | None = None) -> Forecast:
        self._missed_calls.append(partial(super().predict, steps, recent_rps))
        self._calls.update(repr((steps, recent_rps)).encode())
        called = self._calls.digest()
        if called not in self._made:
            *_, forecast = [call() for call in self._missed_calls]
            self._missed_calls.clear()
            self._made[called] = forecast, self.stands_in, dict(self.causes)
        forecast, self.stands_in, causes = self._made[called]
        self.causes = dict(causes)
        return forecast

    def _miss(self, call: Callable[[], Any], load: Load) -> None:
        self._missed_calls.append(call)
        self._calls.update(repr((load.start_s, load.step_s, load.fine, len(load))).encode())
        self._calls.update(load.mean_rps.tobytes() + load.peak_rps.tobytes())
