"""The price list: the present cost of one more request and of one more miss, as the planner prices them.

The load that ready capacity x has no room for costs the planner usd x E[overflow(D, x)] a second (`OverflowPrice`,
mark/planning/demand/served_load.py), D being the believed load of the coming minute. So one more request costs

    usd_per_request = usd x E[d overflow(D, x) / dD],

which is 0 while there is room, because instances are paid whether they are busy or not, and `usd` where everything
overflows: a function's call, or a miss. In between it is the newsvendor's price, `usd` times the chance that this
request is one too many. And one more miss is worth

    usd_per_miss = usd,

because at that price the plan avoids it: by a function's call if functions answer in time. Otherwise it is the price
that keeps the promise at its confidence (mark/planning/demand/promise_price.py), plus the call that a late request also
makes.

The price of a millisecond of RT_max takes more plans: `mark.studies.decision`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList
from mark.domain.service import ResolvedService
from mark.planning.demand.promise_price import call_usd, overflow_price
from mark.planning.demand.served_load import (
    Lateness,
    believed_demand,
    cheapest_lasting,
    lateness_of,
    overflow_rps,
    overflow_slope,
)
from mark.planning.demand.slo_budget import OverflowPrice, neutral_usd, shed_usd
from mark.planning.demand.type_weights import TypeWeights
from mark.planning.planner import PlanningContext
from mark.planning.resolve import buyable

_MORE = 0.05  # share of the load that is added to find the price of one more request


def price_list(
    resolved: ResolvedService,
    ready: Mapping[str, int],
    forecast: Forecast | None,
    usd_per_miss: float | None = None,
) -> PriceList:
    """Return prices while `ready` instances serve, by offer; marginal ones are of the first step of `forecast`.

    `usd_per_miss` is the price of the plan in force, if it has one. Without a forecast only prices that do not depend
    on the load are known. Offers of other services count as without capacity.
    """
    marginal = _marginal(resolved, ready, forecast, usd_per_miss)
    served = resolved.offers or resolved.function is not None
    return replace(marginal, usd_per_planned_request=planned_usd(resolved, ready) if served else None)


def _marginal(
    resolved: ResolvedService, ready: Mapping[str, int], forecast: Forecast | None, usd_per_miss: float | None
) -> PriceList:
    if not resolved.offers:
        usd = resolved.function.usd_per_request if resolved.function is not None else None
        return PriceList(usd, usd)  # functions alone serve, and do so in time
    steady = buyable(resolved)
    lateness = lateness_of(resolved, steady)
    if forecast is None:
        capped = not math.isinf(resolved.service.max_function_usd_per_hour)
        known = resolved.functions_in_time and not capped
        return PriceList(None, shed_usd(resolved, 0.0) if known else None)
    miss_usd = neutral_usd(resolved, steady) if usd_per_miss is None else usd_per_miss
    price = OverflowPrice(miss_usd) if lateness.shares is not None else overflow_price(resolved, miss_usd)
    usable_rps = TypeWeights.of(resolved, steady, resolved.candidates).at(float(forecast.mean_at(0.5)[0]))
    capacity_rps = sum(ready.get(o.name, 0) * float(rps) for o, rps in zip(resolved.offers, usable_rps, strict=True))
    return _prices(price, forecast, capacity_rps, lateness, call_usd(resolved))


def prices_of(plan: Plan, context: PlanningContext) -> PriceList:
    """Return the price list of the moment when a plan was made; a first fleet is ready immediately."""
    ready = plan.counts if context.first else context.fleet.ready()
    return price_list(context.resolved, ready, context.forecast, plan.usd_per_miss)


def planned_usd(resolved: ResolvedService, held: Mapping[str, int]) -> float:
    """Return the price of a request on instances that carry their planned load; `held` counts them by offer.

    It does not use today's load, because one idle instance would then price its model out of every selection. Without
    instances the cheapest lasting offer counts, and without offers the function.
    """
    pairs = list(zip(resolved.offers, resolved.candidates, strict=True))
    capacity_rps = sum(held.get(offer.name, 0) * one.capacity_rps for offer, one in pairs)
    if capacity_rps > 0.0:
        return sum(held.get(offer.name, 0) * offer.usd_per_hour_at(1.0) for offer, _ in pairs) / 3600.0 / capacity_rps
    if pairs:
        at = cheapest_lasting(resolved, buyable(resolved))
        return resolved.offers[at].usd_per_hour_at(1.0) / 3600.0 / resolved.candidates[at].capacity_rps
    return 0.0 if resolved.function is None else resolved.function.usd_per_request


def _prices(
    price: OverflowPrice, forecast: Forecast, capacity_rps: float, lateness: Lateness, call_usd: float
) -> PriceList:
    demand_rps, weights = believed_demand(forecast, 1)
    demand_rps, capacity = demand_rps[0], np.array(capacity_rps)
    if lateness.shares is not None:
        instances = capacity_rps / lateness.unit_rps
        more_rps = demand_rps * (1.0 + _MORE)

        def of_one_more(share_at: Callable[[FloatArray, float], FloatArray]) -> float:
            left_rps = demand_rps * share_at(demand_rps, instances)
            more_left_rps = more_rps * share_at(more_rps, instances)
            return max(0.0, float(weights @ ((more_left_rps - left_rps) / (more_rps - demand_rps))))

        late, called = of_one_more(lateness.shares.late_at), of_one_more(lateness.shares.calls_at)
        return PriceList(price.usd * late + call_usd * called, price.usd)
    left_rps = float(np.dot(weights, overflow_rps(demand_rps, capacity, lateness.patience_s)))
    # Beyond the functions' limit one more request is refused.
    usd = price.usd if left_rps <= price.capped_rps else price.refused_usd
    return PriceList(usd * float(np.dot(weights, overflow_slope(demand_rps, capacity, lateness.patience_s))), usd)
