"""`static-peak` and `static-mean`: the cheapest type, enough of it for the highest minute or for the mean, all day."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.errors import Infeasible
from mark.domain.load import Load
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.port import PlanningContext


class Static:
    """The same targets for ever."""

    needs_forecast = False
    monitors_slo = False
    replans = False

    def __init__(
        self, name: str, targets: tuple[Target, ...], capacity_rps: float, notes: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self._targets, self._capacity_rps, self._notes = targets, capacity_rps, notes

    def begin(self) -> None:
        return None

    def plan(self, context: PlanningContext, memory: None) -> tuple[Plan, None]:
        return Plan(context.now_s, self._targets, notes=self._notes, capacity_rps=self._capacity_rps), None


def cheapest(resolved: ResolvedService) -> int:
    """The offer with the lowest price per request/s: on-demand, or spot or burstable where that is all there is.

    Raises Infeasible when the resolved service offers no instance at all.
    """
    for market in (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE):
        ranked = [
            (offer.usd_per_hour / candidate.capacity_rps, offer.name, i)
            for i, (offer, candidate) in enumerate(zip(resolved.offers, resolved.candidates, strict=True))
            if offer.market is market
        ]
        if ranked:
            return min(ranked)[2]
    raise Infeasible(f"{resolved.service.name}: there is no instance to buy")


def static(name: str, resolved: ResolvedService, evaluated: Load) -> Static:
    """`static-peak` or `static-mean` for the expected load of the evaluated part."""
    rates = evaluated.mean_rps[np.isfinite(evaluated.mean_rps)]
    peak = name == "static-peak"
    rate_rps = float(rates.max() if peak else rates.mean()) if len(rates) else 0.0
    if rate_rps == 0.0:
        return Static(name, (), 0.0, ("no load is expected, nothing is bought",))
    i = cheapest(resolved)
    offer, capacity_rps = resolved.offers[i], resolved.candidates[i].capacity_rps
    # 1e-9: a rate of exactly n instances must not become n + 1 by rounding.
    needed = max(1, math.ceil(rate_rps / capacity_rps - 1e-9))
    limit = resolved.service.max_instances
    limit = min(limit, math.floor(min(1e9, resolved.service.max_usd_per_hour / offer.usd_per_hour) + 1e-9))
    count = min(needed, limit)
    reason = (
        f"the {'highest minute' if peak else 'mean'} of the evaluated part is {rate_rps:.1f} requests/s, "
        f"{capacity_rps:.1f} each at {offer.usd_per_hour / capacity_rps / 3.6:.4f} $ per thousand"
    )
    notes = (f"{needed} instances are needed, the service's limits allow {count}",) if count < needed else ()
    return Static(name, (Target(offer.name, count, reason),), count * capacity_rps, notes)
