"""How many more instances the limits of a service allow."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mark.control.views import Limits
from mark.domain.offer import Market, Offer


def headroom(
    limits: Limits, offer: Offer, running: Mapping[str, int], usd_per_hour: Mapping[str, float]
) -> tuple[int, str]:
    """How many more of the offer the limits allow beside what is `running`, and which limit that is."""
    spent = sum(usd_per_hour[name] * count for name, count in running.items())
    # 1e-9: a budget of exactly ten instances must hold ten.
    by_price = max(0, math.floor((limits.max_usd_per_hour - spent) / offer.usd_per_hour + 1e-9))
    by_number = max(0, limits.max_instances - sum(running.values()))
    # max_instances bounds instances; a SageMaker endpoint is none.
    if offer.market is not Market.SAGEMAKER and by_number <= by_price:
        return by_number, f"max_instances {limits.max_instances} is reached"
    return by_price, f"max_usd_per_hour {limits.max_usd_per_hour:g} is reached"
