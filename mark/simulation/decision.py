"""One decision of a policy, without a run."""

from __future__ import annotations

import math
from dataclasses import replace

from mark.domain.fleet import Fleet
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.service import Deployment
from mark.forecasting.perfect import PerfectPredictor
from mark.forecasting.registry import make_predictor
from mark.forecasting.supervised import Supervised
from mark.planning.policies import make_policy, wants_perfect_forecast
from mark.planning.port import Situation
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest


def plan_once(request: RunRequest, at_s: float) -> tuple[Plan, Forecast | None, Deployment]:
    """What a policy would buy at `at_s` of the trace, if nothing ran: the first fleet of a part that starts there."""
    inputs = open_inputs(replace(request, start_s=at_s))
    policy = make_policy(request.policy, inputs.deployment, inputs.evaluated)
    forecast: Forecast | None = None
    notes: tuple[str, ...] = ()
    if policy.planner.needs_forecast:
        if wants_perfect_forecast(request.policy):
            supervised = Supervised(PerfectPredictor(inputs.drawn()), most_times=math.inf)
        else:
            supervised = Supervised(make_predictor(request.predictor, request.seed, inputs.history.step_s))
        supervised.fit(inputs.history)
        forecast = supervised.predict(60).by_minute()
        if why := supervised.stands_in:
            notes += (f"{forecast.predictor} instead of {supervised.name}: {why} ({supervised.causes[why]})",)
    first = Situation(
        now_s=0.0, deployment=policy.deployment, fleet=Fleet(()), forecast=forecast, first=True, last_minute_rps=None
    )
    plan, _ = policy.planner.plan(first, policy.planner.begin())
    return replace(plan, notes=plan.notes + notes), forecast, policy.deployment
