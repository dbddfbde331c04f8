"""Stages bought together: the workers of an instance are the best there are, and the maths of the whole is theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.errors import Infeasible
from mark.domain.offer import Catalog, Delay, Market, Offer
from mark.domain.profile import Basis, Profile, ProfileRow
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.planning.demand.served_load import load_for, longest_wait_s, overflow_rps
from mark.planning.graphs.stage_group import (
    GroupedStage,
    StageGroup,
    lead_of,
    shared_types,
    shared_usd_per_hour,
    stage_group,
)
from mark.planning.resolve import resolve

BOOT = Delay(60.0, 120.0)
CATALOG = Catalog(
    "test",
    (
        Offer("cpu", Market.ON_DEMAND, 0.1, BOOT, vcpu=2.0),
        Offer("cpu", Market.SPOT, 0.03, BOOT, zone="a", vcpu=2.0),
        Offer("gpu", Market.ON_DEMAND, 0.8, BOOT, vcpu=4.0, gpus=1),
        Offer("big", Market.ON_DEMAND, 0.4, BOOT, vcpu=8.0),
        Offer("bare", Market.ON_DEMAND, 0.05, BOOT),
    ),
    (),
)
SERVICE = ServiceConfig(
    name="p-a", model="a", slo=Slo(0.1, 0.99), catalog="test", markets=(Market.ON_DEMAND, Market.SPOT),
    instances=("*",), max_instances=10, max_usd_per_hour=10.0, functions=(), stage="a",
)  # fmt: skip


def grouped(
    model: str, calls: float = 1.0, rt_max_s: float = 0.1, without_gpu: bool = False, **rows: Sequence[ProfileRow]
) -> GroupedStage:
    profiles = {instance: Profile(model, instance, tuple(of)) for instance, of in rows.items()}
    service = replace(SERVICE, name=f"p-{model}", model=model, stage=model, slo=Slo(rt_max_s, 0.99))
    return GroupedStage(resolve(service, CATALOG, {model: profiles}), calls, without_gpu)


def as_group(*stages: GroupedStage, lead: int = 0) -> StageGroup:
    longest_s = max(stage.resolved.slo.rt_max_s for stage in stages)
    names = tuple(stage.resolved.service.stage for stage in stages)
    return stage_group(replace(SERVICE, slo=Slo(longest_s, 0.98), stage="", together=names), stages, lead)


FAST = (ProfileRow(1, 10.0, workers=2), ProfileRow(4, 20.0, workers=2))  # 200/s of a worker within 100 ms
SLOW = (ProfileRow(1, 40.0, workers=2),)  # 25/s


def test_an_instance_does_what_the_stage_allows_that_limits_it() -> None:
    """Two vCPUs have one worker of each: 200/s of the first, 25/s of the second, which half of the queries call."""
    group = as_group(grouped("a", cpu=FAST), grouped("b", 0.5, 0.2, cpu=SLOW))
    assert [offer.name for offer in group.resolved.offers] == ["cpu/on-demand", "cpu/spot/a"]
    whole = group.resolved.candidates[0]
    assert whole.capacity_rps == pytest.approx(50.0)
    assert whole.workers == 2
    first, second = (stage.candidates[0] for stage in group.stages)
    assert [one.workers for one in (first, second)] == [1, 1]
    assert [one.capacity_rps for one in (first, second)] == pytest.approx([200.0, 25.0])
    assert first.service_s.tolist() == pytest.approx([0.0, 0.01, 0.01 + 0.01 / 3, 0.01 + 0.02 / 3, 0.02])


def test_its_queue_is_that_of_the_stage_that_limits_it() -> None:
    """160 ms at 25/s are four calls; at the 50/s of the lead they are 80 ms."""
    group = as_group(grouped("a", cpu=FAST), grouped("b", 0.5, 0.2, cpu=SLOW))
    assert longest_wait_s(group.resolved, [0]) == pytest.approx(0.080)
    other = as_group(grouped("a", cpu=FAST), grouped("b", 0.5, 0.2, cpu=SLOW), lead=1)
    assert other.resolved.candidates[0].capacity_rps == pytest.approx(25.0)
    assert longest_wait_s(other.resolved, [0]) == pytest.approx(0.160)


@pytest.mark.parametrize("calls", [0.2, 1.0])
def test_a_planner_finds_what_the_stages_of_one_instance_serve(calls: float) -> None:
    """The capacity is that of one stage, while another stage has the least time to wait."""
    quick, slow = grouped("a", 1.0, 0.008, cpu=(ProfileRow(1, 6.0, workers=2),)), grouped("b", calls, 0.2, cpu=SLOW)
    group = as_group(quick, slow)
    found_rps = load_for(group.resolved.candidates[0].capacity_rps, 0.01, longest_wait_s(group.resolved, [0]))
    assert found_rps == pytest.approx(min(load_for(1 / 0.006, 0.01, 0.002), load_for(25.0, 0.01, 0.16) / calls))


def test_where_a_stage_may_hardly_wait_capacity_is_less() -> None:
    """One instance serves the load that its stages serve in time, by the planner's formula."""
    slow, hasty = (ProfileRow(1, 40.0, workers=8),), (ProfileRow(1, 9.6, workers=8),)
    quick = (ProfileRow(1, 1.0, workers=2),)
    group = as_group(grouped("a", cpu=SLOW, big=slow), grouped("b", 1.0, 0.01, cpu=quick, big=hasty))
    big, cpu, _ = group.resolved.candidates
    assert [stage.candidates[0].workers for stage in group.stages] == [6, 2]
    assert cpu.capacity_rps == pytest.approx(25.0)
    assert longest_wait_s(group.resolved, [1]) == pytest.approx(0.060)
    assert big.capacity_rps < 150.0 < min(stage.candidates[0].capacity_rps for stage in group.stages) + 1e-6
    bears_rps = load_for(big.capacity_rps, 0.01, 0.060)
    found = overflow_rps(np.array(bears_rps), np.array(2 / 0.0096), 0.0004)
    assert float(found) == pytest.approx(0.01 * bears_rps)


def test_beside_a_gpu_processors_are_free() -> None:
    """Stages on processors pay their price elsewhere, and the stage on the GPU pays the remaining dollars."""
    seen = (ProfileRow(1, 10.0), ProfileRow(8, 40.0))
    small = grouped("b", without_gpu=True, cpu=FAST, gpu=(ProfileRow(1, 8.0, workers=4),))
    group = as_group(grouped("a", gpu=seen), small)
    assert [offer.name for offer in group.resolved.offers] == ["gpu/on-demand"]
    assert [stage.candidates[0].workers for stage in group.stages] == [1, 3]
    assert group.resolved.candidates[0].capacity_rps == pytest.approx(200.0)
    # A vCPU is 0.015 $/h: three of four are the second stage's.
    assert group.dollar_shares[0] == pytest.approx(((0.8 - 3 * 0.015) / 0.8, 3 * 0.015 / 0.8))
    assert dict(group.resolved.skipped)["cpu"] == "no profile of a"


def test_what_is_not_for_all_of_them_is_said() -> None:
    whole = (ProfileRow(1, 10.0, workers=1),)  # takes both vCPUs
    with pytest.raises(Infeasible, match="no instance type for all of a, b") as caught:
        as_group(grouped("a", cpu=whole, bare=whole), grouped("b", cpu=FAST, bare=whole))
    for said in ("bare: its vCPUs are not known", "cpu: no room for a worker of each", "gpu: no profile of b"):
        assert said in str(caught.value)


def test_the_weakest_rows_in_use_are_its_basis() -> None:
    assumed = (ProfileRow(1, 10.0, workers=2), ProfileRow(64, 200.0, workers=2, basis=Basis.ASSUMED))
    within = as_group(grouped("a", cpu=FAST), grouped("b", cpu=assumed))
    assert within.resolved.candidates[0].profile.rows[0].basis is Basis.MEASURED
    longer = as_group(grouped("a", cpu=FAST), grouped("b", rt_max_s=0.5, cpu=assumed))
    assert longer.resolved.candidates[0].profile.rows[0].basis is Basis.ASSUMED


def test_dollars_are_of_whole_instances_of_one_type() -> None:
    stages = [grouped("a", cpu=FAST, big=FAST), grouped("b", 0.5, 0.2, cpu=SLOW, big=SLOW)]
    assert shared_types(stages) == ["big", "cpu"]
    assert shared_usd_per_hour(stages, 5.0) == pytest.approx(0.03)
    # The load that the second stage, with four calls in its queue, carries on one instance, and a little more.
    bears_rps = 2.0 * load_for(25.0, 0.01, 0.160)
    assert bears_rps < 50.0
    assert shared_usd_per_hour(stages, 0.999 * bears_rps) == pytest.approx(0.03)
    assert shared_usd_per_hour(stages, 1.001 * bears_rps) == pytest.approx(0.06)
    assert shared_usd_per_hour([grouped("a", cpu=FAST), grouped("b", big=FAST)], 1.0) == math.inf


def test_stages_without_a_query_have_a_worker_each() -> None:
    group = as_group(grouped("a", 0.0, cpu=FAST), grouped("b", 0.0, cpu=SLOW))
    assert [stage.candidates[0].workers for stage in group.stages] == [1, 1]
    assert math.isfinite(group.resolved.candidates[0].capacity_rps)


def test_the_lead_is_called_by_all_or_the_most() -> None:
    assert lead_of([0.5, 1.0, 1.0], [False, True, True]) == 1
    assert lead_of([0.5, 0.6, 0.6], [False, False, False]) == 1
