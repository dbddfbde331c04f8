"""Whole runs in which spot is taken away and comes back: no request is lost, the SLO is kept, and spot returns."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from mark.cloud.ec2.spot_series import SpotSeries
from mark.domain.offer import Market
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from tests.samples import first
from tests.simulation.laws import check_laws

HOUR_S = 3600.0
STORM_S, BACK_S = 420.0, 1800.0


def inputs_of(service: str, rate_rps: float, *instances: str) -> Inputs:
    """Return a steady load for about twenty instances of the first of these types."""
    inputs = open_inputs(
        RunRequest(
            trace=f"synthetic:poisson?rate={rate_rps:g}",
            service=service,
            start_s=3.0 * HOUR_S,
            duration_s=HOUR_S,
            predictor="seasonal-naive",
            markets=("on-demand", "spot", "burstable"),
            with_bound=False,
        )
    )
    sold = inputs.resolved
    kept = [i for i, offer in enumerate(sold.offers) if offer.instance in instances]
    offers, candidates = tuple(sold.offers[i] for i in kept), tuple(sold.candidates[i] for i in kept)
    return replace(inputs, resolved=replace(sold, offers=offers, candidates=candidates))


@cache
def steady(service: str) -> Inputs:
    if service == "nasnet":
        return inputs_of("nasnet", 22.0, "c5.xlarge")
    return inputs_of("inception-v3", 80.0, "c5.large", "t2.medium")


CASES = [
    *(("inception-v3", 1.0), ("nasnet", 1.0), ("inception-v3", 0.4)),
    *(("inception-v3", 0.2), ("inception-v3", 0.8), ("nasnet", 0.2), ("nasnet", 0.4), ("nasnet", 0.8)),
]


def stormy(service: str, share: float) -> SimulationResult:
    """Return a storm: `share` of the fleet is taken at minute 7; the market is whole again at minute 30."""
    series = SpotSeries("storm", "availability", (0.0, STORM_S, BACK_S), (1.0, 1.0 - share, 1.0), 1e6)
    return simulate_inputs(replace(steady(service), spot=(series,)), "mark", "seasonal-naive")


@pytest.mark.parametrize(("service", "share"), first(3, CASES, slow=2))
def test_a_spot_storm_keeps_the_slo_and_spot_returns(service: str, share: float) -> None:
    """This holds with functions for lost capacity and without; afterwards spot replaces the stand-ins."""
    result = stormy(service, share)
    check_laws(result)
    assert result.fleet.interrupted > 0
    assert result.requests.rejected == 0
    assert result.slo_result.attainment is not None
    assert result.slo_result.attainment >= 0.98
    markets = {o.name: o.market for o in steady(service).resolved.offers}
    ready = {
        market: sum((n for name, n in result.timeline.instances.items() if markets[name] is market), np.zeros(60))
        for market in Market
    }
    # A boot may take five minutes, and replaced instances end within the next.
    swapped = int(BACK_S / 60.0) + 8
    # The last stand-in may stay while it is open whether the load needs it: then no launch replaces it.
    assert np.all(ready[Market.ON_DEMAND][swapped:] <= 1)
    assert ready[Market.ON_DEMAND][-1] == 0
    assert np.all(ready[Market.SPOT][swapped:] > 0)
    assert not np.any(ready[Market.BURSTABLE][swapped:])
    if share == 1.0:
        taken = int(STORM_S / 60.0) + 3
        assert not np.any(ready[Market.SPOT][taken : int(BACK_S / 60.0)])
        assert np.all(ready[Market.ON_DEMAND][taken + 4 : int(BACK_S / 60.0)] > 0)


def test_without_any_spot_the_cost_is_that_of_on_demand() -> None:
    """Asked again every minute or two, refused every time, it changes next to nothing."""
    inputs = steady("inception-v3")
    nothing = SpotSeries("nothing", "availability", (0.0, 1.0), (1.0, 0.0), 1e6)
    result = simulate_inputs(replace(inputs, spot=(nothing,)), "mark", "seasonal-naive")
    kept = [i for i, offer in enumerate(inputs.resolved.offers) if offer.market is Market.ON_DEMAND]
    sold = inputs.resolved
    offers, candidates = tuple(sold.offers[i] for i in kept), tuple(sold.candidates[i] for i in kept)
    without = replace(sold, offers=offers, candidates=candidates)
    alone = simulate_inputs(replace(inputs, resolved=without), "mark", "seasonal-naive")
    check_laws(result)
    assert result.bill.total <= 1.05 * alone.bill.total
    assert result.requests.rejected == 0
