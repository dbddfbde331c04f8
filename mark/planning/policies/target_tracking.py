"""Target tracking, as AWS's autoscalers do it: `target-tracking` and `target-tracking-best` on SageMaker.

One-minute points of a metric per in-service instance drive two alarms: out after 3 points above the target, in after 15
below 0.9 x target; then desired = ceil(n x metric / target), with a cool-down of 300 s after each. The SageMaker metric
is requests per instance and minute, its target half of the rate that one instance can serve (over-provision factor 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.offer import Market, Offer
from mark.domain.plan import Plan, Target
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext, Policy
from mark.planning.resolve import profile_of
from mark.profiling.policy import candidate, unbatched

HIGH_POINTS = 3
LOW_POINTS = 15
LOW_SHARE = 0.9
COOL_DOWN_S = 300.0
OVER_PROVISION = 2.0
NO_LIMIT = 10**6  # instances; the service's limits do not bind a SageMaker endpoint
NO_LIMIT_USD_PER_HOUR = 1e9

# The paper names no type; its bills fit these (docs/semantics.md, 14).
PAPER_TYPES = {
    "inception-v3": "ml.p2.xlarge",
    "nasnet": "ml.c5.xlarge",
    "lstm-ptb": "ml.c5.xlarge",
    "opennmt-ende": "ml.c5.xlarge",
}


@dataclass(frozen=True, slots=True)
class TrackerState:
    """The autoscaler's memory between its one-minute points."""

    desired: int
    points_above: int = 0
    points_below: int = 0
    scaled_out_s: float = -math.inf
    scaled_in_s: float = -math.inf


Metric = Callable[[PlanningContext, str, int], float | None]
"""(context, offer, instances in service) -> the metric per instance; None: no point this minute."""


def requests_per_instance(context: PlanningContext, offer: str, in_service: int) -> float | None:
    """Return SageMaker's metric: requests per instance in service and minute."""
    if context.last_minute_rps is None or in_service == 0:
        return None
    return 60.0 * context.last_minute_rps / in_service


@dataclass
class TargetTracker:
    """A target-tracking autoscaler on one type, behind the port `Planner`.

    `first_rps` is the rate of the first fleet if there is neither a forecast nor an observation; `target_rps` is the
    rate that brings one instance to the target.
    """

    name: str
    offer: str
    metric: Metric
    unit: str
    target: float  # of the metric
    target_rps: float
    capacity_rps: float
    first_rps: float
    min_instances: int = 1
    max_instances: int = NO_LIMIT
    scale_out_cooldown_s: float = COOL_DOWN_S
    scale_in_cooldown_s: float = COOL_DOWN_S
    notes: tuple[str, ...] = ()
    needs_forecast: bool = False
    monitors_slo: bool = False
    replans: bool = False

    def begin(self) -> TrackerState:
        return TrackerState(self.min_instances)

    def plan(self, context: PlanningContext, memory: TrackerState) -> tuple[Plan, TrackerState]:
        if context.first:
            rate_rps = first_minute_rps(context, self.first_rps)
            state = replace(memory, desired=self._within(_ceil(rate_rps / self.target_rps)))
            at_start = context.resolved.service.unit.per_s(rate_rps, ".1f")
            return self._plan(context, state, f"{at_start} at the start"), state
        in_service = context.fleet.ready().get(self.offer, 0)
        value = self.metric(context, self.offer, in_service)
        if value is None:
            return self._plan(context, memory, "no point of the metric this minute"), memory
        state = self._step(context.now_s, memory, in_service, value)
        return self._plan(context, state, f"{value:.4g} {self.unit} against a target of {self.target:.4g}"), state

    def _step(self, now_s: float, state: TrackerState, in_service: int, value: float) -> TrackerState:
        """Count one point of the metric, and scale if an alarm stands and its cool-down is over."""
        state = replace(
            state,
            points_above=state.points_above + 1 if value > self.target else 0,
            points_below=state.points_below + 1 if value < LOW_SHARE * self.target else 0,
        )
        desired = self._within(_ceil(in_service * value / self.target))
        # `desired` includes pending instances, so an alarm that still stands does not launch them a second time.
        if (
            state.points_above >= HIGH_POINTS
            and desired > state.desired
            and now_s - state.scaled_out_s >= self.scale_out_cooldown_s
        ):
            return replace(state, desired=desired, scaled_out_s=now_s)
        if (
            state.points_below >= LOW_POINTS
            and desired < state.desired
            and now_s - state.scaled_in_s >= self.scale_in_cooldown_s
        ):
            return replace(state, desired=desired, scaled_in_s=now_s)
        return state

    def _within(self, count: int) -> int:
        return max(self.min_instances, min(self.max_instances, count))

    def _plan(self, context: PlanningContext, state: TrackerState, reason: str) -> Plan:
        return Plan(
            context.now_s,
            (Target(self.offer, state.desired, reason),),
            notes=self.notes,
            capacity_rps=state.desired * self.capacity_rps,
        )


def first_minute_rps(context: PlanningContext, otherwise_rps: float) -> float:
    """Return the rate of the first fleet: forecast for the first minute, else the last observed, else as given."""
    if context.forecast is not None:
        return float(context.forecast.mean_at(0.5)[0])
    return otherwise_rps if context.last_minute_rps is None else context.last_minute_rps


def first_step_rps(evaluated: Load) -> float:
    """Return the rate of the first step that is not missing; 0 for a load without any."""
    known = evaluated.mean_rps[np.isfinite(evaluated.mean_rps)]
    return float(known[0]) if len(known) else 0.0


def sagemaker_types(resolved: ResolvedService, *, batched: bool) -> tuple[tuple[Offer, Candidate], ...]:
    """Return every SageMaker type of the catalogue that can keep the SLO, cheapest per request/s first.

    Burstable types are left out: their capacity holds for minutes only, and SageMaker rows carry no credits.
    """
    burstable = {offer.instance for offer in resolved.catalog.offers if offer.market is Market.BURSTABLE}
    found = []
    for offer in resolved.catalog.offers:
        profile = profile_of(resolved.profiles, offer.instance)
        if offer.market is not Market.SAGEMAKER or offer.retired or profile is None:
            continue
        able = candidate(profile, resolved.slo, resolved.service.batching)
        if isinstance(able, str) or profile.instance in burstable:
            continue
        found.append((offer, able if batched else unbatched(profile, resolved.slo)))
    return tuple(sorted(found, key=lambda pair: (pair[0].usd_per_hour / pair[1].capacity_rps, pair[0].name)))


def sagemaker_policy(
    resolved: ResolvedService,
    instance: str,
    batched: bool,
    evaluated: Load | None = None,
    name: str = "target-tracking",
) -> Policy:
    """Return an endpoint on one ml.* type: first in, first out, without bouncer, functions or a limit on instances.

    A named type need not be able to keep the SLO. Raises BadInput if the catalogue does not sell it or the model lacks
    a profile on it.
    """
    offer = next((o for o in resolved.catalog.offers if o.market is Market.SAGEMAKER and o.instance == instance), None)
    profile = profile_of(resolved.profiles, instance)
    if offer is None or profile is None:
        what = "not among the SageMaker types of the catalogue" if offer is None else "the model has no profile on it"
        raise BadInput(what, resolved.catalog.name, instance)
    able = candidate(profile, resolved.slo, resolved.service.batching) if batched else ""
    serving = unbatched(profile, resolved.slo) if isinstance(able, str) else able
    altered = replace(
        resolved,
        service=replace(
            resolved.service,
            markets=(Market.SAGEMAKER,),
            instances=(instance,),
            functions=(),
            max_instances=NO_LIMIT,
            max_usd_per_hour=NO_LIMIT_USD_PER_HOUR,
        ),
        offers=(offer,),
        candidates=(serving,),
        function=None,
        skipped=(),
    )
    target_rps = serving.capacity_rps / OVER_PROVISION
    notes = [f"SageMaker endpoint on {instance}, {'batched' if serving.policy.n_batch > 1 else 'unbatched'}"]
    if name == "target-tracking" and PAPER_TYPES.get(resolved.service.model) == instance:
        notes.append("the paper names no type: inferred from its bills")
    tracker = TargetTracker(
        name=name,
        offer=offer.name,
        metric=requests_per_instance,
        unit="requests per instance and minute",
        target=60.0 * target_rps,
        target_rps=target_rps,
        capacity_rps=serving.capacity_rps,
        first_rps=0.0 if evaluated is None else first_step_rps(evaluated),
        notes=tuple(notes),
    )
    return Policy(tracker, altered, bouncers=False)


def target_tracking(name: str, resolved: ResolvedService, evaluated: Load) -> Policy:
    """Return `target-tracking`: unbatched, on the type that the paper's bills fit, else on the cheapest type.

    Or return `target-tracking-best`: batched, on the cheapest type. Raises BadInput if no SageMaker type of the
    catalogue can keep the SLO.
    """
    best = name == "target-tracking-best"
    return sagemaker_policy(resolved, tracked_type(name, resolved), best, evaluated, name)


def tracked_type(name: str, resolved: ResolvedService) -> str:
    """Return the SageMaker type of `target-tracking` or `-best`. Raises BadInput if none can keep the SLO."""
    best = name == "target-tracking-best"
    inferred = PAPER_TYPES.get(resolved.service.model)
    sold = {offer.instance for offer in resolved.catalog.offers if not offer.retired}
    if not best and inferred in sold and profile_of(resolved.profiles, inferred) is not None:
        return inferred
    ranked = sagemaker_types(resolved, batched=best)
    if not ranked:
        raise BadInput(
            "no SageMaker type of the catalogue has a profile that keeps the SLO", resolved.catalog.name, name
        )
    return ranked[0][0].instance


def _ceil(count: float) -> int:
    # 1e-9: n instances' worth of load must not become n + 1 by rounding.
    return math.ceil(count - 1e-9)
