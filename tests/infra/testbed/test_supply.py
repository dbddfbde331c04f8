"""The market's supply over time: step functions, capacity, shares and prices, without a cloud around them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from mark_infra.testbed.supply import Supply, once

from mark.cloud.ec2.draws import service_seed
from mark.domain.errors import BadInput
from mark.domain.offer import Delay, Market, Offer
from mark.simulation.world.simulated_cloud import SimulatedCloud
from tests.infra.testbed.cloud_fakes import CATALOG, ON_DEMAND, SPOT_A, SPOT_B, IdlePlane

A = SPOT_A.zone


def test_steps_hold_from_their_time_on() -> None:
    """Both the values and the integral are right."""
    steps = once("x", [(0.0, 1.0), (10.0, 0.5), (30.0, 2.0)])
    assert [steps.share_at(t) for t in (0.0, 9.9, 10.0, 30.0, 1e9)] == [1.0, 1.0, 0.5, 2.0, 2.0]
    assert [steps.integral(t) for t in (0.0, 4.0, 10.0, 20.0, 40.0)] == [0.0, 4.0, 10.0, 15.0, 40.0]


@pytest.mark.parametrize(
    "steps",
    [[], [(1.0, 1.0)], [(0.0, 1.0), (0.0, 2.0)], [(0.0, 1.0), (math.inf, 2.0)], [(0.0, -1.0)], [(0.0, math.nan)]],
)
def test_impossible_steps_are_refused(steps: list[tuple[float, float]]) -> None:
    """The error names them."""
    with pytest.raises(BadInput, match="series"):
        once("series", steps)


def test_an_offer_is_found_by_type_market_and_zone() -> None:
    """An offer without a zone matches every zone."""
    supply = Supply(CATALOG.offers)
    assert supply.offers[supply.offer_index("c5.large", True, "us-east-1b") or -1] is SPOT_B
    assert supply.offers[supply.offer_index("c5.large", False, "us-east-1f") or 0] is ON_DEMAND
    assert supply.offer_index("c5.large", True, "us-east-1c") is None
    assert supply.offer_index("c9.large", False, "us-east-1a") is None
    assert supply.sells("c5.large")
    assert not supply.sells("c9.large")
    endpoint = Offer("ml.c5.large", Market.SAGEMAKER, 0.1, Delay(300.0, 300.0))
    assert not Supply((*CATALOG.offers, endpoint)).sells("ml.c5.large")


def test_capacity_is_what_is_left() -> None:
    """It is never below zero. The capacity of an offer that is not sold cannot be set."""
    supply = Supply(CATALOG.offers, capacity={ON_DEMAND.name: 3})
    index = supply.index[ON_DEMAND.name]
    assert supply.room(index, 5, of_offer=1, spot_in_zone=0) == 2
    assert supply.room(index, 5, of_offer=4, spot_in_zone=0) == 0
    assert supply.room(supply.index[SPOT_A.name], 5, of_offer=9, spot_in_zone=9) == 5
    for offer, count in (("c9.large/spot", 1), (ON_DEMAND.name, -1)):
        with pytest.raises(BadInput):
            supply.set_capacity(offer, count)


def test_spot_room_is_the_zones_share_and_the_offers_capacity() -> None:
    """The smaller of the two counts; in a zone without a series it is the offer's."""
    supply = Supply(CATALOG.offers, capacity={SPOT_A.name: 3}, shares={A: once("s", [(0.0, 0.5)])})
    index = supply.index[SPOT_A.name]
    assert supply.room(index, 4, of_offer=0, spot_in_zone=0) == 2
    assert supply.room(index, 20, of_offer=0, spot_in_zone=0) == 3
    assert supply.room(supply.index[SPOT_B.name], 20, of_offer=0, spot_in_zone=0) == 20


def test_spot_costs_what_its_series_says() -> None:
    """The series has shares of the on-demand price, for any time and for the meter's integral; without one the
    catalogue's price holds."""
    supply = Supply(CATALOG.offers, prices={A: once("p", [(0.0, 0.5), (100.0, 0.25)])})
    index, other = supply.index[SPOT_A.name], supply.index[SPOT_B.name]
    assert supply.usd_per_hour(index, 0.0) == pytest.approx(0.045)
    assert supply.usd_per_hour(index, 100.0) == pytest.approx(0.0225)
    assert supply.usd_per_hour(other, 100.0) == SPOT_B.usd_per_hour
    cost = supply.costs[index]
    assert cost(200.0) == pytest.approx((0.045 * 100.0 + 0.0225 * 100.0) / 3600.0)
    with pytest.raises(BadInput, match="on-demand price"):
        Supply([SPOT_A], prices={A: once("p", [(0.0, 0.5)])})


def test_a_series_replaces_the_hazard_rate() -> None:
    """It does so in its own zone; elsewhere interruptions are drawn."""
    risky = Offer("c5.large", Market.SPOT, 0.03, Delay(60.0, 120.0), zone=A, interruptions_per_hour=1.0)
    drawn, followed = Supply([risky]), Supply([risky], shares={A: once("s", [(0.0, 1.0)])})
    start = drawn.start("s", 1, 0)
    assert drawn.until_interruption_s(0, start) == start.until_interruption_s(risky) < math.inf
    assert followed.until_interruption_s(0, start) == math.inf


def test_boots_are_those_of_the_simulator() -> None:
    """So the two worlds do not differ by their draws."""
    slow = replace(ON_DEMAND, boot=Delay(100.0, 300.0))
    supply = Supply([slow], seed=5, services=["a", "b"])
    for service, seed in (("a", 5), ("b", service_seed(5, 1))):
        cloud = SimulatedCloud([slow], IdlePlane(), seed=seed, end_s=1e9)
        cloud.launch(slow.name, 3, "token")
        cloud.advance(1e6)
        ready_s = [i.ready_s for i in cloud.fleet().instances]
        assert ready_s == [supply.start(service, number, 0).boot_s(slow) for number in (1, 2, 3)]
