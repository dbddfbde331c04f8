"""The scope of a refused launch: the offers that EC2 would refuse as well.

A launch is refused for one pool (a type, in a zone, in a market), for a type, for a family's quota of vCPUs, or for a
whole market: by a quota of spot requests, or a policy of the account that forbids spot. All offers in the scope are
postponed, so that the next plan buys another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mark.domain.errors import RefusalScope
from mark.domain.offer import Market, Offer

# "Amazon EC2 instance type quotas": these families share one quota of vCPUs, and those in _SHARED another one. Each
# other family has its own.
_STANDARD = frozenset("acdhimrtz")
_SHARED = dict.fromkeys(("g", "gr", "vt"), "g and vt")
_FAMILY = re.compile(r"[a-z]+")
_P5 = re.compile(r"p5[a-z]*\.")


def counts_as_p5(instance: str) -> bool:
    """Return whether the type is a P5, which has its own quota on spot, apart from P4, P3 and P2."""
    return _P5.match(instance) is not None


def quota_of(offer: Offer) -> tuple[str, bool]:
    """Return the quota of vCPUs that an instance counts against: the families' name, and whether it is for spot."""
    found = _FAMILY.match(offer.instance)
    family = found.group() if found is not None else offer.instance
    name = "standard" if family[0] in _STANDARD and family not in ("dl", "inf", "hpc", "mac", "trn") else family
    spot = offer.market is Market.SPOT
    if spot and counts_as_p5(offer.instance):
        name = "p5"
    return _SHARED.get(name, name), spot


def refused_with(offer: Offer, scope: RefusalScope, offers: Iterable[Offer]) -> tuple[str, ...]:
    """Return the names of all `offers` that are refused with this one, itself first."""
    spot = offer.market is Market.SPOT

    def alike(other: Offer) -> bool:
        if scope is RefusalScope.TYPE:
            return other.instance == offer.instance
        if scope is RefusalScope.QUOTA:
            return quota_of(other) == quota_of(offer)
        return scope is RefusalScope.MARKET and (other.market is Market.SPOT) == spot

    return (offer.name, *(other.name for other in offers if other.name != offer.name and alike(other)))
