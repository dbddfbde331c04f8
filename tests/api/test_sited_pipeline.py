"""What is shown of stages that are bought together: to each its part of what is seen of all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.api import schema
from mark.api.sited_pipeline import SitedPipeline
from mark.domain.fleet import Instance, Phase
from mark.domain.price_list import PriceList
from tests.api.fake_manager import FakeManager
from tests.pipelines.test_sited_group import pair

OFFER = "c7i.large/on-demand"


def test_stages_together_sum_to_what_is_seen_of_both(tmp_path: Path) -> None:
    """Half of the queries call the first one; each has one of two workers, which take alike."""
    manager = FakeManager(1)
    view = replace(
        manager.views["inception"],
        service="p-a-b",
        rps=30.0,
        capacity_rps=50.0,
        usd_per_hour=0.2,
        instances=tuple(Instance(n, OFFER, Phase.READY, 0.0, ready_s=0.0) for n in (1, 2)),
        prices={OFFER: 0.1},
        price_list=PriceList(usd_per_request=3e-6),
    )
    manager.views["p-a-b"], manager.days["p-a-b"] = view, manager.days["inception"]
    found = SitedPipeline(pair(tmp_path)).view(manager)
    first, second = found.stages
    assert {one.view.service for one in found.stages} == {"p-a-b"}
    assert [one.view.rps for one in found.stages] == [15.0, 30.0]
    assert [one.view.capacity_rps for one in found.stages] == [25.0, 50.0]
    assert [one.view.slo.rt_max_ms for one in found.stages] == pytest.approx([100.0, 200.0])
    assert first.used == second.used == pytest.approx(0.6)
    assert (found.queries_per_s, found.longest_path_ms) == (30.0, pytest.approx(300.0))
    assert [one.dollar_share for one in found.stages] == pytest.approx([0.5, 0.5])
    assert found.usd_per_hour == pytest.approx(0.2)
    assert found.usd_so_far == pytest.approx(view.bill.total)
    assert found.usd_per_query == pytest.approx(3e-6)
    summary = schema.pipeline_summary(found)
    assert (summary.services, summary.instances) == (["p-a-b"], 2)


def test_without_instances_stages_together_pay_alike(tmp_path: Path) -> None:
    manager = FakeManager(1)
    manager.views["p-a-b"] = replace(manager.views["inception"], service="p-a-b", instances=(), prices={})
    manager.days["p-a-b"] = manager.days["inception"]
    found = SitedPipeline(pair(tmp_path)).view(manager)
    assert [one.view.bill.total for one in found.stages] == pytest.approx([found.usd_so_far / 2] * 2)
