"""The bill of `mark` with spot, for a service that buys on demand only."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import run_all
from mark.studies.executor import HERE, StudyExecutor


def with_spot(request: RunRequest, *, executor: StudyExecutor = HERE) -> SimulationResult | None:
    """Simulate `mark` on the same arrivals with spot among its markets.

    None if the service has spot already or its types are not sold as spot. Raises the errors of a run.
    """
    resolved = open_service(request)
    if Market.SPOT in resolved.service.markets or not _sells_spot(resolved):
        return None
    markets = (*map(str, resolved.service.markets), str(Market.SPOT))
    asked = replace(request, policy="mark", markets=markets, with_bound=False, explain=False)
    return run_all([asked], executor=executor)[0]


def _sells_spot(resolved: ResolvedService) -> bool:
    able = {offer.instance for offer in resolved.offers}
    return any(
        offer.market is Market.SPOT and offer.instance in able and not offer.retired
        for offer in resolved.catalog.offers
    )
