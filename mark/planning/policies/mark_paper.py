"""`mark-paper`: the greedy provisioning of the MArk paper (Zhang et al., section 4.3, Algorithm 1), as printed.

One pick at a time takes the candidate whose cost per request over the unfulfilled steps [tau, e] is lowest,

    cost_i = (O_i + (e - tau + 1) P_i) / N_i,    N_i = sum over t in [tau, e] of 60 s x min(C_i, F_t - planned capacity)

until the demand of step tau is covered; e is the last step up to which demand exceeds the capacity throughout.
Instances that run are candidates without O_i, each usable once. F, O_i and the cool-down are the paper's system's
(`paper_system`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.policies.paper_system import Choices, PaperSystem, Provisioned

# Costs that differ by less than this share are equal: rounding must not decide between equal prices per request.
TIE = 1e-9
NO_DEMAND_RPS = 1e-9
_BLOCK = 64  # limit of the repeated picks of one candidate that one array operation evaluates


@dataclass(frozen=True, slots=True)
class Picked:
    counts: NDArray[np.int64]
    capacity_rps: float
    usd_per_request: FloatArray  # cost of each candidate's last pick; NaN: never picked
    limited: bool  # a limit of the service stopped the filling


def greedy(choices: Choices, peak_rps: FloatArray, max_instances: int, max_usd_per_step: float) -> Picked:
    """Fill the demand of steps tau, tau + 1, ... (`peak_rps`, requests/s), cheapest request first.

    Successive picks of the same candidate are taken in blocks, each pick evaluated at its own planned capacity: the
    result is the same as with one pick at a time.
    """
    offers = len(choices.capacity_rps)
    counts = np.zeros(offers, dtype=np.int64)
    paid = np.full(offers, np.nan)
    left = choices.running.copy()
    # Demand near zero counts as zero, because a price per request would overflow.
    peak_rps = np.where(peak_rps < NO_DEMAND_RPS, 0.0, peak_rps)
    # Demand exceeds a capacity throughout [tau, t] exactly if floor[t] does.
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
        # While every unfulfilled step can fill the largest candidate, all costs stay the same.
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
    """Return planned capacity after 0, 1, ..., `times` more; summed one by one, to round as single picks do."""
    steps = np.full(times + 1, each_rps)
    steps[0] = planned_rps
    return np.cumsum(steps)


def _usd_per_request(
    planned_rps: FloatArray, choices: Choices, launch_usd: FloatArray, peak_rps: FloatArray, floor: FloatArray
) -> FloatArray:
    """Return the cost of Algorithm 1 for every planned capacity (K,) and candidate (M,): shape (K, M)."""
    open_steps = floor > planned_rps[:, None]
    unfulfilled = np.where(open_steps, peak_rps - planned_rps[:, None], 0.0)
    served = STEP_S * np.minimum(unfulfilled[:, None, :], choices.capacity_rps[:, None]).sum(axis=2)
    steps = open_steps.sum(axis=1)[:, None]
    return np.asarray((launch_usd + steps * choices.usd_per_step) / served, dtype=np.float64)


def _cheapest(cost: FloatArray) -> int:
    return int(np.argmax(cost <= cost.min() * (1.0 + TIE)))


class MarkPaperPolicy(PaperSystem):
    """Algorithm 1 in the paper's system."""

    name = "mark-paper"

    def capacities(self, resolved: ResolvedService, offers: tuple[int, ...]) -> Mapping[int, float]:
        return {i: resolved.candidates[i].capacity_rps for i in offers}

    def provision(self, choices: Choices, peak_rps: FloatArray, first: bool) -> Provisioned:
        picked = greedy(choices, peak_rps, self._resolved.service.max_instances, self.max_usd_per_step)
        reasons = tuple(f"{usd * 1e3:.4f} $ per thousand" for usd in picked.usd_per_request)
        return Provisioned(picked.counts, reasons, picked.limited)
