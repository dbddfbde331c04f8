"""The run of `mark` with spot, for a service that buys none, and without spot, for one that does."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest


def spot_request(request: RunRequest) -> RunRequest | None:
    """Return the run of `mark` on the same arrivals with spot among its markets.

    None if the service has spot already or its types are not sold as spot. Raises BadInput.
    """
    resolved = open_service(request)
    if Market.SPOT in resolved.service.markets or not _sells_spot(resolved):
        return None
    markets = (*map(str, resolved.service.markets), str(Market.SPOT))
    return replace(request, policy="mark", markets=markets, with_bound=False, explain=False)


def no_spot_request(request: RunRequest) -> RunRequest | None:
    """Return the run of `mark` on the same arrivals without spot among its markets.

    None if the service has no spot, or buys instances nowhere else. Raises BadInput.
    """
    resolved = open_service(request)
    markets = tuple(str(market) for market in resolved.service.markets if market is not Market.SPOT)
    if len(markets) in (0, len(resolved.service.markets)) or not any(
        offer.market is not Market.SPOT for offer in resolved.offers
    ):
        return None
    return replace(request, policy="mark", markets=markets, with_bound=False, explain=False)


def _sells_spot(resolved: ResolvedService) -> bool:
    able = {offer.instance for offer in resolved.offers}
    return any(
        offer.market is Market.SPOT and offer.instance in able and not offer.retired
        for offer in resolved.catalog.offers
    )
