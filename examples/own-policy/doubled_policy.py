"""`doubled`: twice the capacity for the last minute's requests, of the cheapest offer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.load import Load
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext, Policy
from mark.planning.policies.policy_registry import PolicyEntry
from mark.planning.policies.static import cheapest


@dataclass
class Doubled:
    """Implements `mark.planning.planner.Planner`. Its memory is the last rate that was observed, in requests/s."""

    offer: str
    capacity_rps: float  # of one instance
    name: str = "doubled"
    needs_forecast: bool = False
    monitors_slo: bool = False
    replans: bool = False

    def begin(self) -> float:
        return 0.0

    def plan(self, context: PlanningContext, memory: float) -> tuple[Plan, float]:
        rps = memory if context.last_minute_rps is None else context.last_minute_rps
        count = max(1, math.ceil(2 * rps / self.capacity_rps))
        target = Target(self.offer, count, f"twice {rps:.0f} requests/s")
        return Plan(context.now_s, (target,), capacity_rps=count * self.capacity_rps), rps


def doubled(name: str, resolved: ResolvedService, evaluated: Load) -> Policy:
    i = cheapest(resolved)
    planner = Doubled(resolved.offers[i].name, resolved.candidates[i].capacity_rps)
    return Policy(planner, resolved, bouncers=True)


DOUBLED = PolicyEntry(doubled, forecasts=False, live=True)
