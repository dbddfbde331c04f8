"""The contract of the port Cloud, over EC2 as the testbed emulates it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mark.domain.offer import Catalog
from mark.testing.cloud_contract import CloudContract, CloudUnderTest
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import OTHER_SPOT, Bench, Place
from tests.infra.conftest import MotoServer
from tests.infra.testbed.conftest import Aws, serving

# The suite's zone `a` is the site's name for a subnet in us-east-1a.
SPOT = replace(SPOT_A, zone="us-east-1a")
CATALOG = Catalog("contract", (ON_DEMAND, SPOT, BURSTABLE, replace(OTHER_SPOT, zone="us-east-1a")), ())


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Aws, Place]]:
    with serving(catalog=CATALOG) as aws:
        yield aws, Place(MotoServer(aws.url), None)  # type: ignore[arg-type]  # the cloud has a market of its own


class TestTestbedCloud(CloudContract):
    @pytest.fixture
    def trial(self, place: tuple[Aws, Place]) -> CloudUnderTest:
        aws, there = place
        held = sum(life.active and life.offer.name == SPOT.name for life in aws.cloud.lifecycle.instances.values())
        aws.cloud.set_capacity(SPOT.name, held + 2)
        bench = Bench(there)

        def boot() -> None:
            aws.pass_s(20.0)
            bench.boot()
            aws.pass_s(10.0)  # until booted standbys have stopped

        return CloudUnderTest(bench.cloud, boot, ON_DEMAND.name, SPOT_A.name, BURSTABLE.name, OTHER_SPOT.name)
