"""Headroom: how many more instances the limits of a service allow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mark.control.views import Limits
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the service that is reached, by its name in the service file."""

    name: str
    most: float

    def __str__(self) -> str:
        return f"{self.name} {self.most:g} is reached"


def counted(fleet: Fleet) -> Counter[str]:
    """Return the instances that count toward the limits, by offer: all but stopped, gone and unhealthy ones."""
    return Counter(
        i.offer
        for i in (*fleet.instances, *fleet.leaving)
        if i.phase is not Phase.STOPPED and i.interruption_at_s != math.inf
    )


def headroom(
    limits: Limits, offer: Offer, running: Mapping[str, int], usd_per_hour: Mapping[str, float]
) -> tuple[int, Limit]:
    """Return how many more of the offer the limits allow beside the `running` ones, and which limit binds."""
    # An offer that may not be bought any more lacks a price here; its instances are soon gone.
    spent = sum(usd_per_hour.get(name, 0.0) * count for name, count in running.items())
    # 1e-9: a budget of exactly ten instances must hold ten.
    by_price = max(0, math.floor((limits.max_usd_per_hour - spent) / offer.usd_per_hour + 1e-9))
    by_number = max(0, limits.max_instances - sum(running.values()))
    # A SageMaker endpoint is no instance, so max_instances does not bound it.
    if offer.market is not Market.SAGEMAKER and by_number <= by_price:
        return by_number, Limit("max_instances", limits.max_instances)
    return by_price, Limit("max_usd_per_hour", limits.max_usd_per_hour)


def limits_of(resolved: ResolvedService) -> Limits:
    return Limits(resolved.service.max_instances, resolved.service.max_usd_per_hour)
