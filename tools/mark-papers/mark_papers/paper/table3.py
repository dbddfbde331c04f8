"""The paper's Table 3: dollars per million requests on burstable instances while they burst, and afterwards.

The paper measures t2 types with credits and notes that these do not last. Their duration, and the price of a million
requests afterwards, follow from the catalogue's credits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market
from mark.domain.profile import Profile
from mark_papers.paper.table2 import MODELS

INSTANCES = ("t2.micro", "t2.small", "t2.medium", "t2.large")


class Table3Row(NamedTuple):
    """One model on one type, busy with single requests; `burst_min`: minutes that the credits of a launch last."""

    model: str
    instance: str
    latency_ms: float
    usd_per_million: float
    burst_min: float
    usd_per_million_after: float  # at the baseline


def table3_rows(catalog: Catalog, profiles: Mapping[str, Mapping[str, Profile]]) -> list[Table3Row]:
    """Return every model of the table on every type. Raises BadInput if catalogue or profiles lack one."""
    offers = {offer.instance: offer for offer in catalog.offers if offer.market is Market.BURSTABLE}
    rows = []
    for model in MODELS:
        for instance in INSTANCES:
            offer, profile = offers.get(instance), profiles.get(model, {}).get(instance)
            if offer is None or offer.credits is None:
                raise BadInput("the catalogue has no such burstable", catalog.name, instance)
            if profile is None:
                raise BadInput("the profile has no row for Table 3", model, instance)
            request_s, baseline = profile.latency_s(1), offer.credits.baseline
            usd = offer.usd_per_s * request_s * 1e6
            # Full speed uses one credit per vCPU and minute, less the baseline, which is earned at the same time.
            burst_min = offer.credits.launch_credits / (offer.vcpu * (1.0 - baseline))
            rows.append(Table3Row(model, instance, request_s * 1e3, usd, burst_min, usd / baseline))
    return rows
