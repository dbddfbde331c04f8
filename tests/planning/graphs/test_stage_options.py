"""The options of a stage: whole on-demand instances with their workers, and batches that fit in RT_max."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.profile import Basis, Profile, ProfileRow
from mark.domain.service import ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.graphs.stage_options import InstanceOption, instance_options, shared_options, shared_stages
from mark.planning.resolve import resolve
from mark.profiling.policy import sigma_of

pytestmark = pytest.mark.usefixtures("coarse_late_shares")

BOOT = Delay(60.0, 120.0)
CATALOG = Catalog(
    "test",
    (
        Offer("c.large", Market.ON_DEMAND, 0.2, BOOT, zone="b"),
        Offer("c.large", Market.ON_DEMAND, 0.1, BOOT, zone="z"),
        Offer("c.large", Market.SPOT, 0.03, BOOT, zone="b"),
        Offer("a.slow", Market.ON_DEMAND, 0.01, BOOT),
        Offer("b.gpu", Market.ON_DEMAND, 0.7, BOOT),
        Offer("d.large", Market.ON_DEMAND, 0.1, BOOT, vcpu=2.0),
        Offer("e.gpu", Market.ON_DEMAND, 0.7, BOOT, vcpu=4.0, gpus=1),
        Offer("t.large", Market.BURSTABLE, 0.06, BOOT, vcpu=2.0, credits=BurstCredits(0.2, 24.0, 576.0, 0.0)),
    ),
    (),
)


def found(rt_max_s: float = 0.1, **rows: tuple[ProfileRow, ...]) -> list[InstanceOption]:
    return instance_options(resolved(rt_max_s, **rows))


def resolved(rt_max_s: float = 0.1, **rows: tuple[ProfileRow, ...]) -> ResolvedService:
    profiles = {name.replace("_", "."): Profile("m", name.replace("_", "."), of) for name, of in rows.items()}
    service = ServiceConfig(
        name="s", model="m", slo=Slo(rt_max_s, 0.99), catalog="test",
        markets=(Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE),
        instances=("*",), max_instances=10, max_usd_per_hour=10.0, functions=(),
    )  # fmt: skip
    return resolve(service, CATALOG, {"m": profiles})


def test_on_demand_instances_of_the_cheapest_zone_with_their_workers() -> None:
    options = found(
        c_large=(ProfileRow(1, 10.0, workers=4), ProfileRow(3, 30.0, workers=4)),
        b_gpu=(ProfileRow(1, 4.0),),
        a_slow=(ProfileRow(1, 101.0),),
    )
    told = [(one.option.hardware, one.option.usd_per_hour, one.option.workers) for one in options]
    assert told == [("b.gpu", 0.7, 1), ("c.large", 0.1, 4)]
    np.testing.assert_allclose(options[1].option.service_s[1:], [0.01, 0.02, 0.03])


def test_one_batch_must_end_within_rt_max_not_two() -> None:
    """A service must end two batches within RT_max; for a stage, the estimator accounts for waiting."""
    (only,) = found(rt_max_s=0.05, c_large=(ProfileRow(1, 10.0), ProfileRow(6, 60.0)))
    assert only.option.largest_batch == 5


def test_overhead_is_time_and_the_weakest_row_the_basis() -> None:
    rows = (ProfileRow(1, 10.0, overhead_ms=2.0), ProfileRow(2, 12.0, p99_ms=15.0, basis=Basis.ASSUMED))
    (only,) = found(c_large=rows)
    np.testing.assert_allclose(only.option.service_s[1:], [0.012, 0.014])
    assert only.basis is Basis.ASSUMED
    assert only.option.sigma == pytest.approx(sigma_of(rows[1])) == pytest.approx(0.098, abs=0.001)


def test_the_spread_is_the_widest_of_the_batches_in_use() -> None:
    rows = (ProfileRow(1, 10.0, p99_ms=11.0), ProfileRow(2, 12.0, p99_ms=15.0), ProfileRow(8, 90.0, p99_ms=500.0))
    (only,) = found(c_large=rows, rt_max_s=0.03)
    assert only.option.largest_batch == 3
    assert only.option.sigma == pytest.approx(sigma_of(rows[1]))


def test_by_the_worker_with_shares_of_vcpus_and_gpus() -> None:
    rows = (ProfileRow(1, 10.0, workers=2),)
    options = found(d_large=rows, e_gpu=rows, c_large=rows)
    on_gpu, on_processor = shared_options([options, options], [False, True])
    unknown, large, gpu = on_gpu
    assert unknown is options[0]  # the catalogue does not give its vCPUs
    assert large.option.placement is not None
    assert gpu.option.placement is not None
    assert (large.option.placement.vcpus, large.option.placement.gpus) == (1.0, 0.0)
    assert (gpu.option.placement.vcpus, gpu.option.placement.gpus) == (1.0, 0.5)
    assert (large.option.workers, large.option.usd_per_hour) == (1, pytest.approx(0.05))
    assert gpu.option.usd_per_hour == pytest.approx(0.05 + 0.5 * (0.7 - 4 * 0.05))
    assert gpu.basis is Basis.MEASURED
    beside = on_processor[2].option.placement
    assert beside is not None
    assert (beside.vcpus, beside.gpus) == (2.0, 0.0)
    assert on_processor[2].option.usd_per_hour == pytest.approx(0.1)


def test_a_gpu_worker_takes_one_vcpu_or_its_share() -> None:
    options = found(e_gpu=(ProfileRow(1, 10.0, workers=8),))
    ((shared,),) = shared_options([options], [False])
    assert shared.option.placement is not None
    assert (shared.option.placement.vcpus, shared.option.placement.gpus) == (0.5, 0.125)


def test_stages_at_the_prices_of_their_parts() -> None:
    """Stages that fill an instance together pay its price; without known vCPUs each stage pays the whole price."""
    rows = (ProfileRow(1, 10.0, workers=1),)
    stage = resolved(e_gpu=rows, d_large=rows, c_large=(ProfileRow(1, 10.0),))
    on_gpu, beside = shared_stages([stage, stage], [False, True])
    prices = [
        {offer.name: offer.usd_per_hour for offer in one.offers if offer.market is Market.ON_DEMAND}
        for one in (on_gpu, beside)
    ]
    assert prices[0]["e.gpu/on-demand"] == pytest.approx(0.5 + 0.05)  # the GPU and one vCPU
    assert prices[1]["e.gpu/on-demand"] == pytest.approx(4 * 0.05)
    assert prices[0]["d.large/on-demand"] == prices[1]["d.large/on-demand"] == pytest.approx(0.1)
    assert prices[0]["c.large/on-demand/z"] == 0.1


def test_of_shared_instances_neither_boots_nor_credits_are_paid_twice() -> None:
    """Stages that follow each other on an instance share its boot, and at the same time its credits: both are free."""
    rows = (ProfileRow(1, 10.0, workers=2),)
    (stage,) = shared_stages([resolved(t_large=rows, d_large=rows)], [False])
    assert [(offer.instance, offer.market, offer.credits, offer.boot) for offer in stage.offers] == [
        ("d.large", Market.ON_DEMAND, None, Delay(0.0, 0.0)),
        ("t.large", Market.ON_DEMAND, None, Delay(0.0, 0.0)),
    ]
    assert [offer.usd_per_hour for offer in stage.offers] == pytest.approx([0.1, 0.06])
