"""`static-peak` and `static-mean`: one type, with capacity for the highest minute or for the mean, all day."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.errors import Infeasible
from mark.domain.load import Load
from mark.domain.offer import Market, Offer
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext


class Static:
    """The same targets at all times."""

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
    """Return the offer with the lowest price per request/s: on-demand, or spot or burstable if nothing else is sold.

    Raises Infeasible if the resolved service offers no instance at all.
    """
    usd_per_rps = [o.usd_per_hour / c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)]
    return min(_in_first_market(resolved), key=lambda i: (usd_per_rps[i], resolved.offers[i].name))


def cheapest_fleet(resolved: ResolvedService, rate_rps: float) -> tuple[Offer, int]:
    """Return the offer whose instances carry `rate_rps` at the least cost, and how many, at least one.

    Markets as in `cheapest`. Raises Infeasible if the resolved service offers no instance at all.
    """
    # 1e-9: a rate of exactly n instances must not become n + 1 by rounding.
    needed = [max(1, math.ceil(rate_rps / candidate.capacity_rps - 1e-9)) for candidate in resolved.candidates]
    usd_per_hour = [count * offer.usd_per_hour for count, offer in zip(needed, resolved.offers, strict=True)]
    i = min(_in_first_market(resolved), key=lambda i: (usd_per_hour[i], resolved.offers[i].name))
    return resolved.offers[i], needed[i]


def _in_first_market(resolved: ResolvedService) -> list[int]:
    """Return the offers on demand, or else on spot, or else the burstable ones."""
    for market in (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE):
        if found := [i for i, offer in enumerate(resolved.offers) if offer.market is market]:
            return found
    raise Infeasible(f"{resolved.service.name}: there is no instance to buy")


def static(name: str, resolved: ResolvedService, evaluated: Load) -> Static:
    """Return `static-peak` or `static-mean` for the expected load of the evaluated part."""
    rates = evaluated.mean_rps[np.isfinite(evaluated.mean_rps)]
    peak = name == "static-peak"
    rate_rps = float(rates.max() if peak else rates.mean()) if len(rates) else 0.0
    if rate_rps == 0.0:
        return Static(name, (), 0.0, ("no load is expected, nothing is bought",))
    offer, needed = cheapest_fleet(resolved, rate_rps)
    capacity_rps = next(c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True) if o is offer)
    limit = resolved.service.max_instances
    limit = min(limit, math.floor(min(1e9, resolved.service.max_usd_per_hour / offer.usd_per_hour) + 1e-9))
    count = min(needed, limit)
    unit = resolved.service.unit
    reason = (
        f"the {'highest minute' if peak else 'mean'} of the evaluated part is {unit.per_s(rate_rps, '.1f')}, "
        f"{capacity_rps * unit.size:.1f} each, and {needed} of them cost {needed * offer.usd_per_hour:.3f} $/h"
    )
    notes = (f"{needed} instances are needed, the service's limits allow {count}",) if count < needed else ()
    return Static(name, (Target(offer.name, count, reason),), count * capacity_rps, notes)
