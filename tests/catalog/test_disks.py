"""What instances boot from, and that plans and bills have one price of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.billing.meter import Meter
from mark.catalog.disks import DISK_GIB, disk_usd_per_hour, disks_of
from mark.catalog.tables import load_catalog
from mark.domain.offer import Delay, Market, Offer

CPU = Offer("c5.large", Market.ON_DEMAND, 0.36, Delay(0.0, 0.0))
GPU = replace(CPU, instance="g5.xlarge", gpus=1)


def test_a_gpu_image_needs_a_larger_disk() -> None:
    assert [disks_of(offer) * DISK_GIB for offer in (CPU, GPU)] == [8.0, 100.0]
    assert disks_of(replace(GPU, instance="ml.g5.xlarge", market=Market.SAGEMAKER)) == 1.0


def test_the_price_is_the_one_that_the_meter_bills() -> None:
    for offer in (CPU, GPU):
        meter = Meter([offer], [lambda t: 0.0], end_s=3600.0, bills_disks=True)
        meter.disks(disks_of(offer), 0.0)
        assert meter.bill(3600.0).other == pytest.approx(disk_usd_per_hour(offer))


@pytest.mark.parametrize("name", ["aws-2019", "aws-2026"])
def test_offers_have_it_where_the_catalogue_bills_extras(name: str) -> None:
    """Else their price to a planner is the listed one, to the last bit."""
    catalog = load_catalog(name)
    for offer in catalog.offers:
        assert offer.disk_usd_per_hour == (disk_usd_per_hour(offer) if catalog.bills_extras else 0.0)
        assert offer.held_usd_per_hour == offer.usd_per_hour + offer.disk_usd_per_hour
        assert catalog.bills_extras or offer.held_usd_per_s == offer.usd_per_s
    assert any(offer.gpus for offer in catalog.offers)
