"""The contract of the port Cloud, over the fake and the simulated cloud."""

from __future__ import annotations

import pytest

from mark.domain.offer import Market
from mark.simulation.world.simulated_cloud import SimulatedCloud, SimulatedMarket
from mark.testing.cloud_contract import CloudContract, CloudUnderTest
from mark.testing.fakes import FakeCloud, ManualClock
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, offer

OTHER_SPOT = offer("m5.large", Market.SPOT, 0.034, zone="a")
NAMES = (ON_DEMAND.name, SPOT_A.name, BURSTABLE.name, OTHER_SPOT.name)


class IdlePlane:
    """Instances without any work."""

    def add(self, number: int, offer_index: int, at_s: float) -> None: ...
    def drain(self, number: int, at_s: float) -> None: ...
    def remove(self, number: int, at_s: float) -> None: ...
    def set_speed(self, number: int, factor: float, at_s: float) -> None: ...

    def idle_at(self, number: int) -> float:
        return 0.0

    def busy_s(self, number: int) -> float:
        return 0.0


class TestFakeCloud(CloudContract):
    @pytest.fixture
    def trial(self) -> CloudUnderTest:
        cloud = FakeCloud(ManualClock())
        cloud.left = {SPOT_A.name: 2}
        return CloudUnderTest(cloud, cloud.boot, *NAMES, schedule=cloud.schedule)


class TestSimulatedCloud(CloudContract):
    @pytest.fixture
    def trial(self) -> CloudUnderTest:
        offers, capacity = [ON_DEMAND, SPOT_A, BURSTABLE, OTHER_SPOT], {SPOT_A.name: 2}
        cloud = SimulatedCloud(offers, IdlePlane(), seed=1, end_s=1e6, market=SimulatedMarket(capacity=capacity))
        return CloudUnderTest(cloud, lambda: cloud.advance(cloud.now_s() + 5000.0), *NAMES)
