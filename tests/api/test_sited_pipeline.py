"""A pipeline in the API: whole queries, the cost of its promise, and stages that are bought together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.api.schema import PromiseSchema
from mark.api.sited_pipeline import HELD_S, MOVED, SitedPipeline
from mark.domain.fleet import Instance, Phase
from mark.domain.price_list import PriceList
from mark.planning.promise_cost import PromiseCost
from tests.api.fake_manager import FakeManager, FakeQueries, digits, social
from tests.planning.graphs.test_sited_group import pair

OFFER = "c7i.large/on-demand"


class Counting(FakeManager):
    """Counts how often the cost of a load is requested."""

    def __init__(self, whole: FakeManager) -> None:
        self.__dict__.update(whole.__dict__)
        self.views, self.asked = dict(whole.views), list[float]()

    def promise_cost(self, service: str) -> PromiseCost:
        cost, asked = super().promise_cost(service), self.asked

        class Told(PromiseCost):
            def __init__(self) -> None: ...

            def steps(self, rps: float):  # type: ignore[no-untyped-def]
                asked.append(rps)
                return cost.steps(rps)

        return Told()

    def later(self, passed_s: float, times: float = 1.0) -> None:
        for name, view in self.views.items():
            rps = None if view.rps is None else view.rps * times
            self.views[name] = replace(view, at_unix_s=view.at_unix_s + passed_s, rps=rps)


def test_the_promise_is_estimated_for_what_queries_call(manager: FakeManager) -> None:
    counting = Counting(manager)
    found = SitedPipeline(social()).view(counting).promise
    assert counting.asked == pytest.approx([151.0, 0.6 * 151.0, 0.4 * 151.0, 151.0])
    assert isinstance(found, PromiseSchema)
    assert (found.rps, len(found.other_slos)) == (151.0, 2)
    assert found.other_slos[0].usd_per_hour is not None
    assert found.usd_per_hour is not None
    assert found.other_slos[0].usd_per_hour >= found.usd_per_hour


def test_it_is_estimated_anew_once_load_or_time_moved(manager: FakeManager) -> None:
    counting, sited = Counting(manager), SitedPipeline(social())
    asked = 0
    for passed_s, times, anew in (
        (0.0, 1.0, True),
        (5.0, 1.0 + 0.9 * MOVED, False),
        (5.0, 1.05, True),  # more than a tenth in all
        (5.0, 1.0 - 1.1 * MOVED, True),
        (HELD_S - 1.0, 1.0, False),
        (1.0, 1.0, True),
        (-3600.0, 1.0, True),  # the clock was set
    ):
        counting.later(passed_s, times)
        sited.view(counting)
        assert (len(counting.asked) > asked) == anew
        asked = len(counting.asked)


def test_an_unknown_load_has_no_estimate(manager: FakeManager) -> None:
    view = manager.views["digits-small"]
    sited = SitedPipeline(digits())
    assert sited.view(manager).promise is not None
    manager.views["digits-small"] = replace(view, rps=None)
    assert sited.view(manager).promise is None


def test_whole_queries_are_what_conductors_count(manager: FakeManager) -> None:
    """Their rate is theirs, too: with a driver there is no other source."""
    counted = FakeQueries(manager.days["inception"])
    found = SitedPipeline(digits(), counted).view(manager)
    assert (found.queries, found.queries_per_s) == (counted.now, 148.3)
    counted.now = replace(counted.now, per_s=None)
    assert SitedPipeline(digits(), counted).view(manager).queries_per_s is None
    assert SitedPipeline(social(), counted).view(manager).queries_per_s == 151.0


def test_stages_together_sum_to_what_is_seen_of_both(tmp_path: Path) -> None:
    """Half of the queries call the first one; each has one of two workers, and both take the same time."""
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
    assert {one.service for one in found.stages} == {"p-a-b"}
    assert [one.rps for one in found.stages] == [15.0, 30.0]
    assert [one.capacity_rps for one in found.stages] == [25.0, 50.0]
    assert [one.slo.rt_max_ms for one in found.stages] == pytest.approx([100.0, 200.0])
    assert first.used == second.used == pytest.approx(0.6)
    assert (found.queries_per_s, found.longest_path_ms) == (30.0, pytest.approx(300.0))
    assert [one.dollar_share for one in found.stages] == pytest.approx([0.5, 0.5])
    assert found.usd_per_hour == pytest.approx(0.2)
    assert found.usd_so_far == pytest.approx(view.bill.total)
    assert found.usd_per_query == pytest.approx(3e-6)
    assert (found.services, found.instances) == (["p-a-b"], 2)


def test_without_instances_stages_together_pay_alike(tmp_path: Path) -> None:
    manager = FakeManager(1)
    manager.views["p-a-b"] = replace(manager.views["inception"], service="p-a-b", instances=(), prices={})
    manager.days["p-a-b"] = manager.days["inception"]
    found = SitedPipeline(pair(tmp_path)).view(manager)
    assert [one.usd_per_hour for one in found.stages] == pytest.approx([found.usd_per_hour / 2] * 2)
    assert found.usd_so_far == pytest.approx(manager.views["p-a-b"].bill.total)
