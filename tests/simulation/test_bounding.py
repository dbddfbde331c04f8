"""Extras, and the bound that includes those which every policy pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.cloud.billing.extras import ADDRESS_USD_PER_HOUR, BALANCER_USD_PER_HOUR, extras_usd
from mark.simulation.bounding import bound
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate


def test_extras_by_hand() -> None:
    """An hour of balancer with its three addresses, a million answers of 10 kB to the internet."""
    hour_usd = BALANCER_USD_PER_HOUR + 3.0 * ADDRESS_USD_PER_HOUR
    assert extras_usd(3600.0, 0, 0.0, 0.0) == pytest.approx(hour_usd)
    # 10 GB: ten capacity units at 0.008 $ and 0.09 $ a GB
    assert extras_usd(3600.0, 1_000_000, 0.0, 10.0) == pytest.approx(hour_usd + 10 * 0.008 + 10 * 0.09)


def test_the_bound_holds_the_balancer_where_the_catalogue_bills_it() -> None:
    """Otherwise regret would blame a policy for a cost that no policy can save."""
    request = RunRequest(
        trace="synthetic:poisson?rate=20",
        service="lstm-ptb",
        policy="fixed:c5.xlarge=1",
        start_s=3600.0,
        duration_s=3600.0,
    )
    found, with_extras = bound(request), bound(replace(request, catalog="aws-2026")).at_zero
    plain = found.at_zero
    assert (plain.late_allowed, found.within_slo.late_allowed) == (0.0, pytest.approx(0.02 * found.requests))
    assert plain.usd is not None
    assert with_extras.usd is not None
    assert "balancer" not in plain.note
    assert "balancer" in with_extras.note
    extras = with_extras.usd - with_extras.instance_usd - with_extras.function_usd
    assert extras == pytest.approx(extras_usd(3600.0, 20 * 3600, 0.0, 0.0), rel=0.01)
    result = simulate(replace(request, catalog="aws-2026"))
    assert result.bound_usd is not None
    assert result.bill.other > BALANCER_USD_PER_HOUR
    assert result.bill.total >= result.bound_usd >= BALANCER_USD_PER_HOUR
