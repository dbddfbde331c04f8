"""The run of `mark` with spot, for a service that buys on demand only."""

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


def _sells_spot(resolved: ResolvedService) -> bool:
    able = {offer.instance for offer in resolved.offers}
    return any(
        offer.market is Market.SPOT and offer.instance in able and not offer.retired
        for offer in resolved.catalog.offers
    )
