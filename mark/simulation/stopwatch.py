"""Wall time in planner and predictor: the simulation looks at a clock only to report its own speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.forecasting.port import Predictor
from mark.planning.port import Planner, Situation


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
    def __init__(self, planner: Planner, watch: Stopwatch) -> None:
        self.name, self.needs_forecast, self.monitors_slo = planner.name, planner.needs_forecast, planner.monitors_slo
        self.begin = planner.begin
        self._plan = watch.timed(planner.plan)

    def plan(self, situation: Situation, memory: Any) -> tuple[Plan, Any]:
        result: tuple[Plan, Any] = self._plan(situation, memory)
        return result


class TimedPredictor:
    def __init__(self, predictor: Predictor, watch: Stopwatch) -> None:
        self.name = predictor.name
        self.fit = watch.timed(predictor.fit)
        self.update = watch.timed(predictor.update)
        self._predict = watch.timed(predictor.predict)

    def predict(self, steps: int) -> Forecast:
        result: Forecast = self._predict(steps)
        return result
