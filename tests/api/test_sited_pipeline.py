"""A pipeline as the API shows it: whole queries, and what its promise costs for the load of now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.api.sited_pipeline import HELD_S, MOVED, SitedPipeline
from mark.domain.price_list import PromiseEstimate
from mark.planning.promise_cost import PromiseCost
from tests.api.fake_manager import FakeManager, FakeQueries, digits, social


class Counting(FakeManager):
    """Counts how often the cost of a load is asked for."""

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
    assert isinstance(found, PromiseEstimate)
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
        (5.0, 1.05, True),  # more than a tenth together
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
    """Their rate, too: with a driver nothing else says it."""
    counted = FakeQueries(manager.days["inception"])
    found = SitedPipeline(digits(), counted).view(manager)
    assert (found.queries, found.queries_per_s) == (counted.now, 148.3)
    counted.now = replace(counted.now, per_s=None)
    assert SitedPipeline(digits(), counted).view(manager).queries_per_s is None
    assert SitedPipeline(social(), counted).view(manager).queries_per_s == 151.0
