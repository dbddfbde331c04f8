"""The user's own scaler with a floor: at least as many replicas as `mark` plans of their instance type.

The scaler reads the floor from `mark`, which may be silent or old: an `Outage`. Then the scaler is alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext, Policy
from mark.planning.policies.as_is import as_is
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.policies.pod_scaler import PodScaler, Scaled


@dataclass(frozen=True, slots=True)
class Outage:
    """No new floor is shown from `begin_s` until `end_s`; the last one is read for `kept_s` more."""

    begin_s: float
    end_s: float
    kept_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Floored:
    """The memory of both, the floor that was planned last, and the floor that was shown last."""

    scaler: Scaled
    planner: Any
    planned: int = 0
    shown: int = 0


@dataclass
class FlooredScaler:
    """A `PodScaler` with `planner`'s count of its offer as a floor, planned once a minute, behind the port
    `Planner`.
    """

    name: str
    scaler: PodScaler
    planner: ExpectedCostPolicy
    outages: tuple[Outage, ...] = ()
    needs_forecast: bool = field(default=True, init=False)
    monitors_slo: bool = field(default=False, init=False)
    replans: bool = field(default=False, init=False)

    def begin(self) -> Floored:
        return Floored(self.scaler.begin(), self.planner.begin())

    def plan(self, context: PlanningContext, memory: Floored) -> tuple[Plan, Floored]:
        planned, kept = memory.planned, memory.planner
        if context.forecast is not None:
            own, kept = self.planner.plan(context, kept)
            planned = own.counts.get(self.scaler.offer, 0)
        outage = next((o for o in self.outages if o.begin_s <= context.now_s < o.end_s), None)
        shown = planned if outage is None else memory.shown
        floor = shown if outage is None or context.now_s < outage.begin_s + outage.kept_s else 0
        plan, scaled = self.scaler.plan_above(context, memory.scaler, floor)
        return plan, Floored(scaled, kept, planned, shown)


def floored(resolved: ResolvedService, evaluated: Load, outages: tuple[Outage, ...] = ()) -> Policy:
    """Return the user's own scaler above the floor. Raises BadInput unless it is of Kubernetes, KEDA, Knative or
    Ray.
    """
    own = as_is(resolved, evaluated)
    if not isinstance(own.planner, PodScaler):
        where = resolved.service.source or resolved.service.name
        kind = None if resolved.service.as_is is None else resolved.service.as_is.kind
        raise BadInput("a floor is for hpa, keda, knative, ray or cron", f"{where} [policy] kind", kind)
    planner = ExpectedCostPolicy("mark", own.resolved)
    return Policy(
        FlooredScaler(f"{own.planner.name}+floor", own.planner, planner, outages), own.resolved, False, own.every_s
    )
