"""How many more instances the limits of a service allow."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from mark.control.views import Limits
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Market, Offer

_REACHED = re.compile(r"(max_instances|max_usd_per_hour) \S+ is reached")


def counted(fleet: Fleet) -> Counter[str]:
    """What counts for the limits, by offer: all but what is stopped, gone, or marked as unhealthy."""
    return Counter(
        i.offer
        for i in (*fleet.instances, *fleet.leaving)
        if i.phase is not Phase.STOPPED and i.interruption_at_s != math.inf
    )


def is_own_limit(text: str) -> bool:
    """Is it what `headroom` says of a limit?"""
    return _REACHED.fullmatch(text) is not None


def headroom(
    limits: Limits, offer: Offer, running: Mapping[str, int], usd_per_hour: Mapping[str, float]
) -> tuple[int, str]:
    """How many more of the offer the limits allow beside what is `running`, and which limit that is."""
    # What may not be bought any more is without a price here, and soon gone.
    spent = sum(usd_per_hour.get(name, 0.0) * count for name, count in running.items())
    # 1e-9: a budget of exactly ten instances must hold ten.
    by_price = max(0, math.floor((limits.max_usd_per_hour - spent) / offer.usd_per_hour + 1e-9))
    by_number = max(0, limits.max_instances - sum(running.values()))
    # max_instances bounds instances; a SageMaker endpoint is none.
    if offer.market is not Market.SAGEMAKER and by_number <= by_price:
        return by_number, f"max_instances {limits.max_instances} is reached"
    return by_price, f"max_usd_per_hour {limits.max_usd_per_hour:g} is reached"
