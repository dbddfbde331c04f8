"""Spot in the zones of a site, for any zones in the catalogue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Catalog, Delay, Market, Offer

BOOT = Delay(60.0, 120.0)
FIXED = Offer("c7i.large", Market.ON_DEMAND, 0.09, BOOT)
A = Offer("c7i.large", Market.SPOT, 0.03, BOOT, zone="us-east-1a", interruptions_per_hour=0.02)
B = Offer("c7i.large", Market.SPOT, 0.04, BOOT, zone="us-east-1b", interruptions_per_hour=0.01)
CATALOG = Catalog("c", (FIXED, A, B), ())


def spot(zones: Sequence[str]) -> list[Offer]:
    found = CATALOG.in_zones(zones).offers
    assert found[0] is FIXED
    return list(found[1:])


def test_known_zones_keep_their_prices_and_others_go() -> None:
    assert spot(["us-east-1b"]) == [B]
    assert spot(["us-east-1b", "us-east-1a"]) == [B, A]


def test_a_new_zone_is_as_dear_as_the_dearest() -> None:
    (found,) = spot(["eu-west-1c"])
    assert (found.name, found.usd_per_hour) == ("c7i.large/spot/eu-west-1c", 0.04)
    assert found.interruptions_per_hour == 0.02


@pytest.mark.parametrize("region", ["eu-west-1", "us-west-2", "ap-southeast-2", "sa-east-1", "us-east-1"])
def test_spot_is_sold_in_every_zone_of_every_region(region: str) -> None:
    zones = [f"{region}{letter}" for letter in "abc"]
    offers = load_catalog("aws-2026").in_zones(zones).offers
    sold = {(offer.instance, offer.zone) for offer in offers if offer.market is Market.SPOT}
    types = {offer.instance for offer in load_catalog("aws-2026").offers if offer.market is Market.SPOT}
    assert sold == {(name, zone) for name in types for zone in zones}


@given(st.lists(st.sampled_from(["us-east-1a", "us-east-1b", "eu-west-1a", "x"]), unique=True))
def test_the_cross_product_is_whole(zones: list[str]) -> None:
    assert [offer.zone for offer in spot(zones)] == zones
