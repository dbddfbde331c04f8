"""The cost of an instance over time."""

from __future__ import annotations

import pytest

from mark.cloud.ec2.prices import cost
from mark.cloud.ec2.spot_series import SpotSeries
from mark.domain.errors import BadInput
from mark.domain.offer import Delay, Market, Offer

SPOT = Offer("c5.large", Market.SPOT, 0.036, Delay(60.0, 60.0), zone="a")
SERIES = SpotSeries("p", "price", (0.0, 100.0), (0.5, 0.25), 300.0)


def test_without_a_series_the_offers_price_holds() -> None:
    """0.036 $/h."""
    assert cost(SPOT, None, {})(100.0) == pytest.approx(0.001)


def test_a_series_is_of_the_on_demand_price() -> None:
    """0.36 $/h: half of it for 100 s, a quarter for 200 s."""
    assert cost(SPOT, SERIES, {"c5.large": 0.36})(300.0) == pytest.approx(1e-4 * (50.0 + 50.0))


def test_a_series_without_an_on_demand_price_is_bad_input() -> None:
    """There is no price to scale."""
    with pytest.raises(BadInput, match="on-demand price"):
        cost(SPOT, SERIES, {"c5.xlarge": 0.36})
