"""`reactive`: Kubernetes' Horizontal Pod Autoscaler (v2 defaults) on the cheapest type, with bouncers and functions.

desired = ceil(n x utilisation / target) unless the ratio lies within 10 % of one; out immediately, at most doubling or
four more per decision; in to the highest desired count of the last five minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.load import Load
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext
from mark.planning.policies.static import cheapest
from mark.planning.policies.target_tracking import first_minute_rps, first_step_rps

TARGET = 0.5
TOLERANCE = 0.1
STABILISATION_S = 300.0
GROWTH = 2
MORE = 4  # growth that small fleets may always make in one decision

History = tuple[tuple[float, int], ...]  # (time, desired), oldest first, within the stabilisation window


@dataclass
class PodAutoscaler:
    """A Horizontal Pod Autoscaler on one type, behind the port `Planner`.

    Its utilisation is demand, with overflow, over capacity. The busy share would stop at one while functions take the
    rest, and a batching worker is busy with small batches long before it is full.
    """

    name: str
    offer: str
    capacity_rps: float  # of one instance
    first_rps: float
    target: float = TARGET
    min_instances: int = 1
    max_instances: int = 10**6
    needs_forecast: bool = False
    monitors_slo: bool = False
    replans: bool = False

    def begin(self) -> History:
        return ()

    def plan(self, context: PlanningContext, memory: History) -> tuple[Plan, History]:
        current = context.fleet.live().get(self.offer, 0)
        if context.first:
            rate_rps = first_minute_rps(context, self.first_rps)
            count = self._within(_ceil(rate_rps / (self.capacity_rps * self.target)))
            at_start = context.resolved.service.unit.per_s(rate_rps, ".1f")
            return self._plan(context, count, f"{at_start} at the start"), ((context.now_s, count),)
        if current == 0:
            return self._plan(context, self._within(1), "nothing runs"), memory
        if context.last_minute_rps is None:
            return self._plan(context, self._within(current), "nothing was observed"), memory
        used = context.last_minute_rps / (current * self.capacity_rps)
        ratio = used / self.target
        wanted = current if abs(ratio - 1.0) <= TOLERANCE else _ceil(current * ratio)
        wanted = self._within(min(wanted, max(GROWTH * current, current + MORE)))
        recent = ((at_s, n) for at_s, n in memory if at_s > context.now_s - STABILISATION_S)
        history = (*recent, (context.now_s, wanted))
        # Scale in only to the highest count wanted within the window; never scale out because of it.
        count = wanted if wanted >= current else min(current, max(n for _, n in history))
        reason = f"utilisation {used:.2f} of {current} against a target of {self.target:.2f}"
        return self._plan(context, self._within(count), reason), history

    def _within(self, count: int) -> int:
        return max(self.min_instances, min(self.max_instances, count))

    def _plan(self, context: PlanningContext, count: int, reason: str) -> Plan:
        return Plan(context.now_s, (Target(self.offer, count, reason),), capacity_rps=count * self.capacity_rps)


def reactive(resolved: ResolvedService, evaluated: Load) -> PodAutoscaler:
    """Return the autoscaler on the resolved service's cheapest type; raises Infeasible without a type."""
    i = cheapest(resolved)
    return PodAutoscaler(
        "reactive",
        resolved.offers[i].name,
        resolved.candidates[i].capacity_rps,
        first_step_rps(evaluated),
        max_instances=resolved.service.max_instances,
    )


def _ceil(count: float) -> int:
    return math.ceil(count - 1e-9)
