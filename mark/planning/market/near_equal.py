"""Offers that serve as well as a planned one, so that a cloud may choose among several pools in one launch."""

from __future__ import annotations

from collections.abc import Mapping

from mark.domain.service import ResolvedService

# A share of the planned offer's price. Choosing dearer offers is left to the planner.
DEARER = 0.05
# EC2 takes 300 pools a call; from about ten on a deeper choice changes little.
MOST = 10


def near_equal(resolved: ResolvedService) -> Mapping[str, tuple[str, ...]]:
    """Return for each offer the offers of its market, by name, that hold at least its load for at most `DEARER` more.

    At most `MOST` names, ordered by price for the load that they hold, then by name. Burstables get only the same type
    in other zones, because credits are not capacity.
    """
    pairs = list(zip(resolved.offers, resolved.candidates, strict=True))

    def alike(index: int) -> tuple[str, ...]:
        offer, candidate = pairs[index]
        found = [
            (other.usd_per_hour / one.capacity_rps, other.name)
            for other, one in pairs
            if other.name != offer.name
            and other.market is offer.market
            and one.capacity_rps >= candidate.capacity_rps
            and other.usd_per_hour <= (1.0 + DEARER) * offer.usd_per_hour
            and (offer.credits is other.credits is None or other.instance == offer.instance)
        ]
        return tuple(name for _, name in sorted(found)[:MOST])

    return {offer.name: alike(index) for index, (offer, _) in enumerate(pairs)}
