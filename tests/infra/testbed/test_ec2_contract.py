"""The suite of the port Cloud, over EC2 as the testbed emulates it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mark.domain.offer import Catalog
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.control.test_cloud_contract import *  # noqa: F403
from tests.control.test_cloud_contract import World
from tests.infra.aws.bench import Bench, Place
from tests.infra.conftest import MotoServer
from tests.infra.testbed.conftest import Aws, serving

# The suite's zone `a` is the site's name for a subnet in us-east-1a.
SPOT = replace(SPOT_A, zone="us-east-1a")
CATALOG = Catalog("contract", (ON_DEMAND, SPOT, BURSTABLE), ())


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Aws, Place]]:
    with serving(catalog=CATALOG) as aws:
        yield aws, Place(MotoServer(aws.url), None)  # type: ignore[arg-type]  # the cloud has a market of its own


@pytest.fixture
def world(place: tuple[Aws, Place]) -> World:
    aws, there = place
    held = sum(life.active and life.offer.name == SPOT.name for life in aws.cloud.lifecycle.instances.values())
    aws.cloud.set_capacity(SPOT.name, held + 2)
    bench = Bench(there)

    def boot() -> None:
        aws.pass_s(20.0)
        bench.boot()
        aws.pass_s(10.0)  # what is stopped for standing by has stopped

    return World(bench.cloud, boot)
