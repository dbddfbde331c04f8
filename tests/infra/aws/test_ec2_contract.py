"""The suite of the port Cloud, over EC2 as moto emulates it."""

from __future__ import annotations

import pytest

from tests.control.control_fakes import SPOT_A
from tests.control.test_cloud_contract import *  # noqa: F403
from tests.control.test_cloud_contract import World
from tests.infra.aws.bench import Bench, Place


@pytest.fixture
def world(place: Place) -> World:
    place.market.left = {(SPOT_A.instance, "spot"): 2}
    bench = Bench(place)
    return World(bench.cloud, bench.boot)
