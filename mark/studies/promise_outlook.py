"""The chance that a service keeps its promise on a trace: replays forecasts over a past for the planner to judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mark.domain.load import Forecast, Load
from mark.domain.promise_outlook import SAME_CONFIDENCE, PromiseOutlook
from mark.domain.time import STEP_S
from mark.planning.policies.names import split_policy
from mark.planning.policies.policy_registry import predictor_of, wants_perfect_forecast
from mark.planning.promise_help import MINUTES, PastMinute, promise_outlook
from mark.simulation.inputs import Inputs, history_of
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import open_named
from mark.studies.decision import PlannedService
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.supervised import Supervised

_STEPS = 20  # minutes ahead that are forecast: longer than boots
_WINDOW_S = 5.0
_REPLAYED = 0.8  # assumed share of the replay in the whole work

Progress = Callable[[float], None]


def outlook_of(planned: PlannedService, progress: Progress = lambda share: None) -> PromiseOutlook | None:
    """Return the outlook of a plan, by the day before it and its forecast. None if the policy prices no late request.

    The first half of a shorter history is left for learning.
    """
    inputs, coming = planned.inputs, planned.context.forecast
    if planned.plan.confidence is None or coming is None:
        return None
    # Functions in time cover forecast errors, so no past need be replayed if the plan is confident enough.
    sure = inputs.resolved.functions_in_time and planned.plan.confidence >= inputs.resolved.slo.confidence
    replayed = not (sure or wants_perfect_forecast(inputs.request.policy))
    known_s = inputs.history.step_s * len(inputs.history)
    from_s = inputs.start_s - (min(MINUTES * STEP_S, known_s / 2.0) if replayed else 0.0)
    return _outlook(inputs, from_s, inputs.start_s, coming, progress)


def outlook_of_run(
    request: RunRequest, results: Mapping[str, SimulationResult], progress: Progress = lambda share: None
) -> RunOutlook | None:
    """Return the outlook of the first policy that states a confidence, if that was too low or a window was missed.

    It uses the first day of the policy's worst window, with the real load and the forecasts made then. None if no
    window was missed and the confidence was high enough.
    """
    for named, result in results.items():
        policy, predictor = split_policy(named, request.predictor)
        run, slo = result.promise, result.slo
        if run.least_confidence is None or wants_perfect_forecast(policy):
            continue
        if run.least_confidence >= slo.confidence - SAME_CONFIDENCE and run.kept(slo) == len(run.windows):
            return None
        shares = [math.inf if share is None else share for share in run.windows]
        inputs = open_named(replace(request, policy=policy, predictor=predictor))
        from_s = inputs.start_s + slo.window_s * shares.index(min(shares))
        until_s = min(inputs.end_s, from_s + MINUTES * STEP_S)
        outlook = _outlook(inputs, from_s, until_s, None, progress)
        return None if outlook is None else RunOutlook(named, from_s - inputs.start_s, outlook)
    return None


@dataclass(frozen=True, slots=True)
class RunOutlook:
    """The outlook of the policy on the day that begins at `from_s` of the run's part."""

    policy: str
    from_s: float
    outlook: PromiseOutlook

    def as_json(self) -> dict[str, Any]:
        return {"policy": self.policy, "from_s": self.from_s, **self.outlook.as_json()}


def _outlook(
    inputs: Inputs, from_s: float, until_s: float, coming: Forecast | None, progress: Progress
) -> PromiseOutlook | None:
    past = _replayed(inputs, from_s, until_s, lambda share: progress(_REPLAYED * share))
    if coming is None:
        coming = past[0].forecast if past else None
    if coming is None:
        return None
    return promise_outlook(inputs.resolved, past, coming, lambda share: progress(_REPLAYED + (1.0 - _REPLAYED) * share))


def _replayed(inputs: Inputs, from_s: float, until_s: float, progress: Progress) -> list[PastMinute]:
    """Return the minutes of [from, until) of the trace, each with the forecast made when it began.

    Minutes before anything is known are left out, because the forecast of an empty history is 0.
    """
    request, trace = inputs.request, inputs.trace
    step_s = trace.step_s
    steps = int((until_s - from_s) / step_s + 1e-9)
    if steps == 0:
        return []
    train_s = inputs.history.step_s * len(inputs.history) if request.train_s is not None else from_s
    predictor, _ = predictor_of(request.policy, request.predictor)
    supervised = Supervised(make_predictor(predictor, request.seed, step_s))
    history = history_of(trace, max(0.0, from_s - train_s), from_s, request.scale)
    supervised.fit(history)
    load = trace.load(from_s, from_s + steps * step_s, request.scale)
    fine = trace.series.load(from_s, from_s + steps * step_s, _WINDOW_S, request.scale) if load.fine else None
    each = round(step_s / STEP_S)
    past: list[PastMinute] = []
    for k in range(steps):
        forecast = replace(supervised.predict(math.ceil(_STEPS / each) + 1).by_minute(), paths_rps=None)
        for minute in range(each if k or len(history) else 0):
            at = k * each + minute
            windows = np.empty(0) if fine is None else fine.mean_rps[12 * at : 12 * (at + 1)]
            past.append(PastMinute(float(load.mean_rps[k]), windows, _from(forecast, minute)))
        supervised.update(Load(k * step_s, step_s, load.mean_rps[k : k + 1], load.peak_rps[k : k + 1], load.fine))
        progress((k + 1) / steps)
    return past


def _from(forecast: Forecast, minute: int) -> Forecast:
    """Return the forecast from one of its minutes on."""
    if minute == 0:
        return forecast
    return replace(forecast, mean_rps=forecast.mean_rps[:, minute:], peak_rps=forecast.peak_rps[:, minute:])
