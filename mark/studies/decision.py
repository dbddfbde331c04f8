"""One decision of a policy, without a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mark.domain.errors import BadInput, Infeasible
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.price_list import SLO_SHIFT, SloPrice
from mark.domain.service import ResolvedService
from mark.domain.slo import LONGEST_RT_MAX_S, Slo
from mark.planning.planner import PlanningContext
from mark.planning.policies.alternatives import weigh
from mark.planning.policies.fixed import counted
from mark.planning.policies.policy_registry import make_policy, predictor_of, wants_perfect_forecast
from mark.simulation.inputs import Inputs, open_inputs, open_service, trace_named_in
from mark.simulation.request import RunRequest
from mark.traffic.forecast.perfect import PerfectPredictor
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.supervised import Supervised


@dataclass(frozen=True, slots=True)
class PlannedService:
    """A policy's plan, the situation that it saw, and the inputs of both."""

    plan: Plan
    context: PlanningContext
    inputs: Inputs


def plan_service_once(request: RunRequest, at_s: float, running: str | None = None) -> PlannedService:
    """Return the plan of a policy at `at_s` of the trace, and the situation that it saw.

    `running` is the serving fleet, `INSTANCE=COUNT[,...]`. Without it nothing serves, and the plan is the first fleet
    of a part that starts there. Raises BadInput also for instances that the policy may not buy.
    """
    request = replace(request, start_s=at_s)
    trace = trace_named_in(request, sized=True)
    if at_s >= trace.duration_s:
        raise BadInput(f"beyond the end of {trace.name} at {trace.duration_s:g} s", "at_s", at_s)
    return planned_for(open_inputs(request, trace), running)


def planned_for(inputs: Inputs, running: str | None = None) -> PlannedService:
    """Return the plan at the start of the inputs' part, as `plan_service_once` does."""
    request = inputs.request
    policy = make_policy(request.policy, inputs.resolved, inputs.evaluated)
    forecast: Forecast | None = None
    notes: tuple[str, ...] = ()
    if policy.planner.needs_forecast:
        if wants_perfect_forecast(request.policy):
            supervised = Supervised(PerfectPredictor(inputs.drawn()), most_times=math.inf)
        else:
            predictor, note = predictor_of(request.policy, request.predictor)
            notes += (note,) if note else ()
            supervised = Supervised(make_predictor(predictor, request.seed, inputs.history.step_s))
        supervised.fit(inputs.known)
        forecast = supervised.predict(60).by_minute()
        if why := supervised.stands_in:
            notes += (f"{forecast.predictor} instead of {supervised.name}: {why} ({supervised.causes[why]})",)
    fleet = Fleet(()) if running is None else _fleet(running, policy.resolved)
    context = PlanningContext(
        now_s=0.0,
        resolved=policy.resolved,
        fleet=fleet,
        forecast=forecast,
        first=running is None,
        last_minute_rps=None if running is None else inputs.before_rps,
    )
    plan, _ = policy.planner.plan(context, policy.planner.begin())
    return PlannedService(replace(plan, notes=plan.notes + notes), context, inputs)


def slo_prices(planned: PlannedService) -> tuple[SloPrice, ...]:
    """Return the cost of the same decision for an RT_max shorter by the share `SLO_SHIFT`, and for one longer by it.

    Costs are expected dollars an hour, as alternatives are weighed. A plan that keeps a promise keeps every looser one,
    but the planner is not exact: if it finds a looser promise dearer, that promise gets the cost of the tighter one.
    The result is empty for a policy without a forecast, and leaves out a longer RT_max from LONGEST_RT_MAX_S on.
    """
    weighed = weigh(planned.plan, planned.context)
    if weighed is None:
        return ()
    slo, own_usd = planned.context.resolved.slo, weighed.chosen.usd_per_hour
    shorter_s, longer_s = ((1.0 + shift) * slo.rt_max_s for shift in (-SLO_SHIFT, SLO_SHIFT))
    shorter_usd = _usd_per_hour(planned, replace(slo, rt_max_s=shorter_s))
    found = [SloPrice(shorter_s, None if shorter_usd is None else max(own_usd, shorter_usd))]
    if longer_s < LONGEST_RT_MAX_S:
        longer_usd = _usd_per_hour(planned, replace(slo, rt_max_s=longer_s))
        found.append(SloPrice(longer_s, own_usd if longer_usd is None else min(own_usd, longer_usd)))
    return tuple(found)


def _usd_per_hour(planned: PlannedService, slo: Slo) -> float | None:
    """Return the expected cost of a plan for another promise and the same forecast; None if no offer can keep it."""
    request = planned.inputs.request
    try:
        policy = make_policy(request.policy, open_service(replace(request, slo=slo)), planned.inputs.evaluated)
    except Infeasible:
        return None
    context = replace(planned.context, resolved=policy.resolved)
    plan, _ = policy.planner.plan(context, policy.planner.begin())
    weighed = weigh(plan, context)
    return None if weighed is None else weighed.chosen.usd_per_hour


def _fleet(running: str, resolved: ResolvedService) -> Fleet:
    """Return ready instances; a type's name means its first offer by market and zone."""
    known: dict[str, str] = {}
    for offer in sorted(resolved.offers, key=lambda o: (str(o.market), o.name)):
        known.setdefault(offer.instance, offer.name)
        known[offer.name] = offer.name
    numbers = []
    for wanted, count in counted(running, "running").items():
        if wanted not in known:
            raise BadInput(f"not among the offers that may be bought ({', '.join(sorted(known))})", "running", wanted)
        numbers += [known[wanted]] * count
    return Fleet(tuple(Instance(i + 1, offer, Phase.READY, 0.0, 0.0) for i, offer in enumerate(numbers)))
