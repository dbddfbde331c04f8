"""The warm pool of the benchmark: what ends is kept, a launch takes it, and its disk is counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mark.domain.offer import Delay, Market, Offer
from mark.planning.market.spot import DISK_USD_PER_HOUR
from tests.simulation.world.test_cloud import FakePlane

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from warm_pool import KEPT_S, Pool, PooledCloud

RESUMED = Offer("c5.large", Market.ON_DEMAND, 0.36, Delay(90.0, 90.0))


def test_a_launch_resumes_what_ended_before() -> None:
    pool = Pool()
    boots = {RESUMED.name: Delay(180.0, 180.0)}
    cloud = PooledCloud((RESUMED,), FakePlane(), seed=0, end_s=86_400.0, pool=pool, boots=boots)
    waited_s = []
    for at_s in (0.0, 600.0, 1200.0):
        cloud.advance(at_s)
        (number,) = cloud.launch(RESUMED.name, 1, str(at_s))
        cloud.advance(at_s + 500.0)
        (instance,) = cloud.fleet().instances
        assert instance.ready_s is not None
        waited_s.append(instance.ready_s - at_s)
        cloud.terminate(number)
    assert waited_s == [180.0, 90.0, 90.0]
    assert (pool.booted, pool.resumed) == (1, 2)


def test_a_stopping_instance_cannot_be_resumed() -> None:
    pool = Pool()
    pool.put("a", 0.0)
    assert not pool.take("a", 59.0)
    assert not pool.take("b", 61.0)
    assert pool.take("a", 61.0)
    assert not pool.take("a", 62.0)


def test_disks_are_paid_until_taken_or_given_up() -> None:
    pool = Pool()
    for at_s in (0.0, 100.0, 200.0):
        pool.put("a", at_s)
    assert pool.take("a", 3800.0)  # the last: an hour
    paid_h = 1.0 + 2.0 * KEPT_S / 3600.0
    assert pool.disk_usd(2.0 * KEPT_S) == pytest.approx(paid_h * DISK_USD_PER_HOUR)
    assert not pool.take("a", 2.0 * KEPT_S)
