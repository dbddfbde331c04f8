"""`mark-paper`: the greedy provisioning of the MArk paper (Zhang et al., section 4.3, Algorithm 1), as printed.

One pick at a time: take the candidate whose cost per request over the unfulfilled steps [tau, e] is lowest,

    cost_i = (O_i + (e - tau + 1) P_i) / N_i,    N_i = sum over t in [tau, e] of 60 s x min(C_i, F_t - planned capacity)

until the demand of step tau is covered. F is the median of the highest 5 s rate per step, P_i the price of a minute,
O_i = 180 s of the price, e the last step up to which demand exceeds the capacity throughout. Instances that run are
candidates without O_i, each usable once. Destroyed is only what the last six plans all left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import Infeasible
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.port import PlanningContext
from mark.planning.resolve import buyable

TAU_STEPS = 5  # the boot delay the paper plans with, in one-minute steps
LAUNCH_OVERHEAD_S = 180.0  # O_i: this long an instance is paid before it serves
COOL_DOWN_PLANS = 6
STANDBY_SHARE = 0.2  # "a few stopped burstable instances" (section 4.5): per spot instance
# Costs that differ by less than this share are equal: rounding must not decide between equal prices per request.
TIE = 1e-9
NO_DEMAND_RPS = 1e-9
_BLOCK = 64  # repeated picks of one candidate that are evaluated in one array operation

Memory = tuple[Mapping[str, int], ...]  # what each of the last plans wanted, by offer; the newest last


@dataclass(frozen=True, slots=True)
class Choices:
    """What Algorithm 1 chooses from; arrays of shape (offers,), in name order, which is the tie order."""

    capacity_rps: FloatArray  # C_i
    usd_per_step: FloatArray  # P_i
    launch_usd: FloatArray  # O_i of an instance that does not run yet
    running: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Picked:
    counts: NDArray[np.int64]
    capacity_rps: float
    usd_per_request: FloatArray  # cost of each candidate's last pick; NaN: never picked
    limited: bool  # a limit of the service stopped the filling


def greedy(choices: Choices, peak_rps: FloatArray, max_instances: int, max_usd_per_step: float) -> Picked:
    """Fill the demand of steps tau, tau + 1, ... (`peak_rps`, requests/s), cheapest request first.

    Picks of the same candidate in a row are taken in blocks, each pick evaluated at its own planned capacity: the
    result is that of one pick at a time.
    """
    offers = len(choices.capacity_rps)
    counts = np.zeros(offers, dtype=np.int64)
    paid = np.full(offers, np.nan)
    left = choices.running.copy()
    # Next to no demand is none: a price per request would overflow.
    peak_rps = np.where(peak_rps < NO_DEMAND_RPS, 0.0, peak_rps)
    # Demand exceeds a capacity throughout [tau, t] just when floor[t] does.
    floor = np.minimum.accumulate(peak_rps)
    largest_rps = float(choices.capacity_rps.max(initial=0.0))
    planned_rps, usd, instances = 0.0, 0.0, 0
    while offers and planned_rps < peak_rps[0]:
        launch_usd = np.where(left > 0, 0.0, choices.launch_usd)
        cost = _usd_per_request(np.array([planned_rps]), choices, launch_usd, peak_rps, floor)[0]
        pick = _cheapest(cost)
        paid[pick] = cost[pick]
        each_rps, each_usd = float(choices.capacity_rps[pick]), float(choices.usd_per_step[pick])
        room = min(max_instances - instances, math.floor(min(1e9, (max_usd_per_step - usd) / each_usd) + TIE))
        if room < 1:
            return Picked(counts, planned_rps, paid, limited=True)
        if left[pick] > 0:
            room = min(room, int(left[pick]))
        room = min(room, math.ceil((float(peak_rps[0]) - planned_rps) / each_rps))
        # While every unfulfilled step can fill the largest candidate, all costs stay as they are.
        lowest_rps = float(floor[np.count_nonzero(floor > planned_rps) - 1])
        sure = min(room, 1 + max(0, math.floor((lowest_rps - planned_rps - largest_rps) / each_rps)))
        times = sure
        capacities = _fill(planned_rps, each_rps, room if sure == room else min(room, sure + _BLOCK))
        if sure < room:
            ahead = capacities[sure:-1]  # planned capacity before each further pick of the same candidate
            ahead = ahead[ahead < peak_rps[0]]
            costs = _usd_per_request(ahead, choices, launch_usd, peak_rps, floor)
            same = [_cheapest(row) == pick for row in costs] if len(ahead) else []
            times += same.index(False) if False in same else len(same)
        planned_rps = float(capacities[times])
        counts[pick] += times
        left[pick] -= min(times, left[pick])
        instances += times
        usd += times * each_usd
    return Picked(counts, planned_rps, paid, limited=False)


def _fill(planned_rps: float, each_rps: float, times: int) -> FloatArray:
    """Planned capacity after 0, 1, ..., `times` more; summed one by one, as a single pick at a time rounds."""
    steps = np.full(times + 1, each_rps)
    steps[0] = planned_rps
    return np.cumsum(steps)


def _usd_per_request(
    planned_rps: FloatArray, choices: Choices, launch_usd: FloatArray, peak_rps: FloatArray, floor: FloatArray
) -> FloatArray:
    """The cost of Algorithm 1 for every planned capacity (K,) and candidate (M,): shape (K, M)."""
    open_steps = floor > planned_rps[:, None]
    unfulfilled = np.where(open_steps, peak_rps - planned_rps[:, None], 0.0)
    served = STEP_S * np.minimum(unfulfilled[:, None, :], choices.capacity_rps[:, None]).sum(axis=2)
    steps = open_steps.sum(axis=1)[:, None]
    return np.asarray((launch_usd + steps * choices.usd_per_step) / served, dtype=np.float64)


def _cheapest(cost: FloatArray) -> int:
    return int(np.argmax(cost <= cost.min() * (1.0 + TIE)))


def cooled(wanted: Mapping[str, int], live: Mapping[str, int], memory: Memory) -> dict[str, int]:
    """`wanted`, and of what lives also what any of the last plans wanted: nothing else is destroyed."""
    return {
        offer: max(wanted.get(offer, 0), min(live.get(offer, 0), max(plan.get(offer, 0) for plan in (*memory, wanted))))
        for offer in sorted({*wanted, *live})
    }


def standbys(resolved: ResolvedService, spot_instances: int) -> tuple[Target, ...]:
    """Stopped burstables that stand in for interrupted spot instances: of the cheapest type per request/s."""
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
    reason = f"stands by, stopped, for {spot_instances} spot instances; {capacity_rps:.1f} requests/s each when resumed"
    return (Target(name, count, reason),)


class MarkPaperPolicy:
    """Algorithm 1 behind the port `Planner`; its memory are the last six plans."""

    name = "mark-paper"
    needs_forecast = True
    monitors_slo = True
    replans = False

    def __init__(self, resolved: ResolvedService) -> None:
        self._offers = tuple(resolved.offers[i] for i in buyable(resolved))
        self._names = tuple(offer.name for offer in self._offers)
        self._capacity_rps = np.array([resolved.candidates[i].capacity_rps for i in buyable(resolved)])
        self._usd_per_step = np.array([offer.usd_per_s * STEP_S for offer in self._offers])
        self._launch_usd = np.array([offer.usd_per_s * LAUNCH_OVERHEAD_S for offer in self._offers])
        self._resolved = resolved

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
        service = self._resolved.service
        first = 0 if context.first else min(TAU_STEPS, context.forecast.steps - 1)
        peak_rps = context.forecast.peak_at(0.5)[first : first + 60]
        choices = Choices(
            self._capacity_rps,
            self._usd_per_step,
            np.zeros_like(self._launch_usd) if context.first else self._launch_usd,
            np.array([live.get(name, 0) for name in self._names], dtype=np.int64),
        )
        picked = greedy(choices, peak_rps, service.max_instances, service.max_usd_per_hour * STEP_S / 3600.0)
        wanted = {name: int(n) for name, n in zip(self._names, picked.counts, strict=True) if n > 0}
        memory = (*memory[-(COOL_DOWN_PLANS - 1) :], wanted)
        kept = cooled(wanted, {name: live[name] for name in self._names if name in live}, memory)
        plan = Plan(
            at_s=context.now_s,
            targets=self._targets(kept, wanted, context, picked, float(peak_rps[0]), first),
            predictor=context.forecast.predictor,
            standbys=self._standbys(kept),
            notes=("stopped at the service's limit of instances or $/h",) if picked.limited else (),
            capacity_rps=self._capacity_of(kept),
        )
        return plan, memory

    def _targets(
        self,
        kept: Mapping[str, int],
        wanted: Mapping[str, int],
        context: PlanningContext,
        picked: Picked,
        peak_rps: float,
        first: int,
    ) -> tuple[Target, ...]:
        live = context.fleet.live()
        load = (
            f"forecast p50 of 5 s peak {peak_rps:.0f} requests/s at +{first * STEP_S:.0f} s "
            f"against capacity {self._capacity_of(live):.0f}"
        )
        targets = []
        for name, usd in zip(self._names, picked.usd_per_request, strict=True):
            if kept.get(name, 0) == 0:
                continue
            why = f"{load}, {usd * 1e3:.4f} $ per thousand" if name in wanted else f"{load}, cooling down"
            targets.append(Target(name, kept[name], why))
        return tuple(targets)

    def _capacity_of(self, counts: Mapping[str, int]) -> float:
        return sum(counts.get(name, 0) * float(c) for name, c in zip(self._names, self._capacity_rps, strict=True))

    def _standbys(self, kept: Mapping[str, int]) -> tuple[Target, ...]:
        spot = sum(kept.get(offer.name, 0) for offer in self._offers if offer.market is Market.SPOT)
        return standbys(self._resolved, spot)
