"""The cost of instances over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mark.cloud.ec2.spot_series import SpotSeries
from mark.domain.errors import BadInput
from mark.domain.offer import Offer
from mark.domain.time import HOUR_S


def cost(
    offer: Offer, series: SpotSeries | None, on_demand_usd_per_hour: Mapping[str, float]
) -> Callable[[float], float]:
    """Return a function for the dollars of one instance from time 0 to t, by the offer's price or by the series.

    A series is relative to the on-demand price, which is known by instance type. Raises BadInput if it lacks the
    offer's type.
    """
    if series is None:
        fixed_usd_per_s = offer.usd_per_s
        return lambda t_s: fixed_usd_per_s * t_s
    on_demand = on_demand_usd_per_hour.get(offer.instance)
    if on_demand is None:
        raise BadInput("a price series needs the on-demand price of the type", series.name, offer.instance)
    usd_per_s, integral = on_demand / HOUR_S, series.integral
    return lambda t_s: usd_per_s * integral(t_s)
