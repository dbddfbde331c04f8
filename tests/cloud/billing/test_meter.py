"""The meter counts the cost of an instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.billing.meter import DISK_GIB, Meter, disks_of
from mark.domain.offer import Delay, Market, Offer

OD = Offer("c5.large", Market.ON_DEMAND, 0.36, Delay(0.0, 0.0))  # 0.0001 $/s
SPOT = Offer("c5.large", Market.SPOT, 0.036, Delay(0.0, 0.0), zone="a")


def meter(**more: Any) -> Meter:
    return Meter([OD, SPOT], [lambda t: t * 1e-4, lambda t: t * t * 1e-6], end_s=1000.0, **more)


@pytest.mark.parametrize(
    ("began_s", "ended_s", "seconds"),
    [
        (0.0, 100.0, 100.0),
        (0.0, 100.2, 101.0),  # a started second counts in full
        (0.0, 10.0, 60.0),  # the minimum
        (0.1, 100.1, 100.0),  # rounding of the times adds no second
        (970.0, 980.0, 30.0),  # the end of the run cuts the minimum
    ],
)
def test_whole_seconds_and_at_least_sixty(began_s: float, ended_s: float, seconds: float) -> None:
    """EC2's rule, cut at the end of the run."""
    m = meter()
    m.open(0, began_s)
    m.close(0, began_s, ended_s)
    assert m.bill(1000.0).on_demand == pytest.approx(seconds * 1e-4)
    assert m.instance_hours(1000.0) == {OD.name: pytest.approx(seconds / 3600.0)}


def test_what_still_runs_is_cut_at_the_end_without_minimum() -> None:
    """A later question gives the same."""
    m = meter()
    m.open(0, 990.0)
    assert m.bill(1000.0).total == pytest.approx(10e-4)
    assert m.bill(2000.0) == m.bill(1000.0)


def test_a_price_that_changes_is_integrated() -> None:
    """The second offer's price rises linearly."""
    m = meter()
    m.open(1, 100.0)
    assert m.spent_usd(300.0)["spot"] == pytest.approx((300.0**2 - 100.0**2) * 1e-6)


def test_an_interrupted_first_hour_is_free_if_asked() -> None:
    """An instance that we end ourselves is paid. The option is --spot-first-hour-free."""
    for free, taken, paid in [(True, True, False), (True, False, True), (False, True, True)]:
        m = meter(first_hour_free=free)
        m.open(1, 0.0)
        m.close(1, 0.0, 500.0, taken=taken)
        assert (m.bill(1000.0).spot > 0.0) is paid


def test_disks_are_paid_only_where_the_catalogue_bills_extras() -> None:
    """8 GiB at 0.08 $ a month, prorated."""
    m = Meter([OD], [lambda t: 0.0], end_s=730 * 3600.0, bills_disks=True)
    m.disks(2, 0.0)
    m.disks(-1, 365 * 3600.0)
    assert m.bill(730 * 3600.0).other == pytest.approx(0.64 * 1.5)
    quiet = meter()
    quiet.disks(1, 0.0)
    assert quiet.bill(1000.0).other == 0.0


def test_a_gpu_image_needs_a_larger_disk() -> None:
    gpu = replace(OD, instance="g5.xlarge", gpus=1)
    assert [disks_of(offer) * DISK_GIB for offer in (OD, gpu)] == [8.0, 100.0]
    assert disks_of(replace(gpu, instance="ml.g5.xlarge", market=Market.SAGEMAKER)) == 1.0


def test_committed_instances_are_paid_whether_they_run() -> None:
    """Two committed ones cost 0.36 $/h together. If three run, one is billed; at most two are free at any moment."""
    m = meter(committed={OD.name: 2}, committed_usd_per_hour=0.36)
    assert m.spent_usd(100.0)["on_demand"] == pytest.approx(0.01)
    for _ in range(3):
        m.open(0, 100.0)
    assert m.spent_usd(200.0)["on_demand"] == pytest.approx(0.02 + 0.01)
    m.close(0, 100.0, 200.0)
    m.close(0, 100.0, 300.0)
    assert m.bill(1000.0).on_demand == pytest.approx(0.1 + 0.01)
    assert m.instance_hours(1000.0) == {OD.name: pytest.approx((100.0 + 200.0 + 900.0) / 3600.0)}


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(60, 500)), max_size=12),
    st.integers(0, 4),
)
def test_a_commitment_saves_what_it_covers_minute_by_minute(spans: list[tuple[int, int]], committed: int) -> None:
    """A plain count of the running instances in every second agrees."""
    with_it, without = meter(committed={OD.name: committed}), meter()
    running = np.zeros(1000, dtype=int)
    changes = [(began, True, began) for began, _ in spans]
    changes += [(min(began + length, 1000), False, began) for began, length in spans]
    for at_s, opens, began in sorted(changes):
        for m in (with_it, without):
            if opens:
                m.open(0, at_s)
            else:
                m.close(0, began, at_s)
        running[at_s:] += 1 if opens else -1
    saved = without.bill(1000.0).total - with_it.bill(1000.0).total
    assert saved == pytest.approx(np.minimum(running, committed).sum() * 1e-4, abs=1e-9)


def test_boots_cost_apart_unless_they_are_committed() -> None:
    for committed, usd in ((0, 0.01), (1, 0.0)):
        m = meter(committed={OD.name: committed})
        m.open(0, 100.0)
        m.booted(0, 100.0, 200.0)
        assert m.boot_usd() == pytest.approx(usd)
