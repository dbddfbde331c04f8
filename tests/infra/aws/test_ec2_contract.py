"""The contract of the port Cloud, over EC2 as moto emulates it."""

from __future__ import annotations

import pytest

from mark.testing.cloud_contract import CloudContract, CloudUnderTest
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import OTHER_SPOT, Bench, Place


class TestEc2Cloud(CloudContract):
    @pytest.fixture
    def trial(self, place: Place) -> CloudUnderTest:
        place.market.left = {(SPOT_A.instance, "spot"): 2}
        bench = Bench(place)
        names = (ON_DEMAND.name, SPOT_A.name, BURSTABLE.name, OTHER_SPOT.name)
        return CloudUnderTest(bench.cloud, bench.boot, *names, schedule=bench.schedule)
