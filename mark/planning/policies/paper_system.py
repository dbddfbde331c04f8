"""The common part of `mark-paper` and `mark-optimal`: the MArk paper's system around its instance provisioning.

Demand F is the median of the highest 5 s rate per step, from step tau on; P_i is the price of a minute, O_i the price
of a boot, which running instances do not pay. An instance is terminated only if all plans of the cool-down left it out.
tau, the steps, O_i and the cool-down are `ControlSettings`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import Infeasible
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.planner import PlanningContext
from mark.planning.resolve import buyable, with_batching

STANDBY_SHARE = 0.2  # "a few stopped burstable instances" (section 4.5): per spot instance

Memory = tuple[Mapping[str, int], ...]  # the counts of each of the last plans, by offer; the newest last


@dataclass(frozen=True, slots=True)
class Choices:
    """The candidates; arrays of shape (offers,), in name order, which breaks ties."""

    capacity_rps: FloatArray  # of an instance
    usd_per_step: FloatArray  # P_i
    launch_usd: FloatArray  # O_i of an instance that does not run yet
    running: IntArray


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The wanted instances of each offer from the first step on, and their dollars in words, by offer."""

    counts: IntArray
    reasons: tuple[str, ...]
    limited: bool  # a limit of the service left demand uncovered
    solver: str = ""


def cooled(wanted: Mapping[str, int], live: Mapping[str, int], memory: Memory) -> dict[str, int]:
    """Return `wanted`, and live instances that any of the last plans wanted: all others are terminated."""
    return {
        offer: max(wanted.get(offer, 0), min(live.get(offer, 0), max(plan.get(offer, 0) for plan in (*memory, wanted))))
        for offer in sorted({*wanted, *live})
    }


def standbys(resolved: ResolvedService, spot_instances: int) -> tuple[Target, ...]:
    """Return stopped burstables that stand in for interrupted spot instances: of the cheapest type per request/s."""
    count = math.ceil(STANDBY_SHARE * spot_instances)
    burstable = [i for i, offer in enumerate(resolved.offers) if offer.market is Market.BURSTABLE]
    if count == 0 or not burstable:
        return ()
    _, _, name, capacity_rps = min(
        (
            resolved.offers[i].usd_per_hour / resolved.candidates[i].capacity_rps,
            resolved.offers[i].usd_per_hour,
            resolved.offers[i].name,
            resolved.candidates[i].capacity_rps,
        )
        for i in burstable
    )
    each = resolved.service.unit.per_s(capacity_rps, ".1f")
    reason = f"stands by, stopped, for {spot_instances} spot instances; {each} each when resumed"
    return (Target(name, count, reason),)


def paper_admission(resolved: ResolvedService) -> ResolvedService:
    """Return the paper's bouncers (4.1, 4.3): a request that would be late goes to a function; batches wait for W."""
    shedding = replace(resolved, service=replace(resolved.service, late="function"))
    return with_batching(shedding, "paper")


class PaperSystem(ABC):
    """The paper's provisioning behind the port `Planner`; its memory has the plans of the cool-down."""

    name: str
    needs_forecast = True
    monitors_slo = True
    replans = False

    def __init__(self, resolved: ResolvedService) -> None:
        offers = buyable(resolved)
        steady = tuple(i for i in offers if resolved.offers[i].market is not Market.BURSTABLE) or offers
        capacity_rps = {i: rate for i, rate in self.capacities(resolved, steady).items() if rate > 0.0}
        self._offers = tuple(resolved.offers[i] for i in capacity_rps)
        self._names = tuple(offer.name for offer in self._offers)
        self._capacity_rps = np.array(list(capacity_rps.values()), dtype=np.float64)
        self._usd_per_step = np.array([offer.usd_per_s * STEP_S for offer in self._offers])
        control = resolved.service.control
        self._launch_usd = np.array([offer.usd_per_s * control.launch_overhead_s for offer in self._offers])
        self._tau_steps, self._steps = round(control.tau_s / STEP_S), control.horizon_steps
        self._cool_down_plans = max(1, math.ceil(control.cool_down_s / STEP_S))
        self._resolved = resolved

    @abstractmethod
    def capacities(self, resolved: ResolvedService, offers: tuple[int, ...]) -> Mapping[int, float]:
        """Return the requests/s that an instance of each offer, by its place, is planned to serve; 0: it misses the
        SLO.
        """

    @abstractmethod
    def provision(self, choices: Choices, peak_rps: FloatArray, first: bool) -> Provisioned:
        """Cover the demand of steps tau, tau + 1, ... (`peak_rps`, requests/s); `first`: launches are free."""

    def begin(self) -> Memory:
        return ()

    def plan(self, context: PlanningContext, memory: Memory) -> tuple[Plan, Memory]:
        if not self._offers and self._resolved.function is None:
            raise Infeasible(f"{self._resolved.service.name}: no instance can meet the SLO, and there is no function")
        live = context.fleet.live()
        if context.forecast is None:
            held = {name: count for name, count in live.items() if count > 0}
            targets = tuple(Target(name, count, "kept: there is no forecast") for name, count in sorted(held.items()))
            return Plan(context.now_s, targets, notes=("no forecast: the fleet stays as it is",)), memory
        first = 0 if context.first else min(self._tau_steps, context.forecast.steps - 1)
        peak_rps = context.forecast.peak_at(0.5)[first : first + self._steps]
        choices = Choices(
            self._capacity_rps,
            self._usd_per_step,
            np.zeros_like(self._launch_usd) if context.first else self._launch_usd,
            np.array([live.get(name, 0) for name in self._names], dtype=np.int64),
        )
        found = self.provision(choices, peak_rps, context.first)
        wanted = {name: int(n) for name, n in zip(self._names, found.counts, strict=True) if n > 0}
        memory = (*memory, wanted)[-self._cool_down_plans :]
        kept = cooled(wanted, {name: live[name] for name in self._names if name in live}, memory)
        unit = self._resolved.service.unit
        load = (
            f"forecast p50 of 5 s peak {unit.per_s(float(peak_rps[0]), '.0f')} at +{first * STEP_S:.0f} s "
            f"with capacity {self._capacity_of(live) * unit.size:.0f} there or coming"
        )
        targets = tuple(
            Target(name, kept[name], f"{load}, {reason if name in wanted else 'cooling down'}")
            for name, reason in zip(self._names, found.reasons, strict=True)
            if kept.get(name, 0) > 0
        )
        plan = Plan(
            at_s=context.now_s,
            targets=targets,
            predictor=context.forecast.predictor,
            standbys=self._standbys(kept),
            notes=("stopped at the service's limit of instances or $/h",) if found.limited else (),
            capacity_rps=self._capacity_of(kept),
            solver=found.solver,
        )
        return plan, memory

    @property
    def max_usd_per_step(self) -> float:
        return self._resolved.service.max_usd_per_hour * STEP_S / 3600.0

    def _capacity_of(self, counts: Mapping[str, int]) -> float:
        return sum(counts.get(name, 0) * float(c) for name, c in zip(self._names, self._capacity_rps, strict=True))

    def _standbys(self, kept: Mapping[str, int]) -> tuple[Target, ...]:
        spot = sum(kept.get(offer.name, 0) for offer in self._offers if offer.market is Market.SPOT)
        return standbys(self._resolved, spot)
