"""An explained plan: its parts add up, and its numbers for other plans match those plans."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import QuerySample, estimate
from mark.planning.graphs.explained_plan import MOST_HEADROOM, PipelinePlan, plan_pipeline
from mark.planning.graphs.packing import Host
from tests.planning.graphs.planned import chain, option, traffic, worker_on

CPU, GPU = option("cpu", 0.1, 0.0, 0.020, 1, workers=2), option("gpu", 0.7, 0.004, 0.003)
PIPELINE = Pipeline((PipelineStage("a", "a"), PipelineStage("b", "b", ("a",)), PipelineStage("c", "c", ("a",))))
DURATION_S = 1500 / 80.0
OPTIONS = [[CPU, GPU], [option("cpu", 0.1, 0.0, 0.05, 1, workers=2), GPU], [CPU, GPU]]


@pytest.fixture(scope="module")
def plan() -> PipelinePlan:
    sample = traffic(1500, 80.0, 1.5, (1.0, 0.7, 0.4), seed=2)
    return plan_pipeline(PIPELINE, sample, OPTIONS, Slo(0.12, 0.98), duration_s=DURATION_S, seed=1)


def test_it_is_what_configure_finds(plan: PipelinePlan) -> None:
    found = configure(PIPELINE, plan.sample, OPTIONS, plan.slo, seed=1)
    assert plan.found.usd_per_hour <= found.usd_per_hour
    assert plan.found.miss_limit <= 0.02
    assert plan.complete


@pytest.mark.parametrize(
    ("most_calls", "own", "all_of_them"), [(10_000, False, False), (25_000, True, False), (100_000, True, True)]
)
def test_a_plan_is_complete_if_its_other_promises_searches_are(most_calls: int, own: bool, all_of_them: bool) -> None:
    """They take 16,000 calls for the promise, 27,000 for 10 ms less and 43,000 for 10 ms more."""
    sample, duration_s = traffic(300, 40.0, 1.5, (1.0, 0.7), seed=2), 7.5
    found = plan_pipeline(
        chain("a", "b"), sample, OPTIONS[:2], Slo(0.06, 0.98), duration_s=duration_s, most_calls=most_calls
    )
    assert (found.found.complete, found.complete) == (own, all_of_them)


def test_stage_times_sum_to_the_queries_times(plan: PipelinePlan) -> None:
    latency_s = plan.seen.latency_s
    assert plan.path_s.sum() == pytest.approx(latency_s.mean())
    slowest = np.sort(latency_s)[-15:]
    assert plan.slow_path_s.sum() == pytest.approx(slowest.mean(), rel=0.02)


def test_a_shorter_promise_is_never_cheaper(plan: PipelinePlan) -> None:
    shorter, longer = plan.other_slos
    assert (shorter.rt_max_s, longer.rt_max_s) == (pytest.approx(0.11), pytest.approx(0.13))
    assert shorter.usd_per_hour is not None
    assert longer.usd_per_hour is not None
    assert shorter.usd_per_hour >= plan.found.usd_per_hour >= longer.usd_per_hour


def test_one_replica_less_is_late_and_one_more_makes_room(plan: PipelinePlan) -> None:
    for stage, choice in enumerate(plan.found.choices):
        less = plan.one_less[stage]
        assert (less is None) == (choice.replicas == 1)
        assert less is None or less > 0.02
        assert plan.one_more[stage] >= plan.headroom
    assert plan.one_more[plan.bottleneck] == max(plan.one_more)


def test_headroom_is_where_the_promise_ends(plan: PipelinePlan) -> None:
    def missed(times: float) -> float:
        faster = QuerySample(plan.sample.arrivals_s / times, plan.sample.calls)
        return estimate(PIPELINE, faster, plan.found.choices).miss_share(plan.slo.rt_max_s)

    assert 1.0 <= plan.headroom < MOST_HEADROOM
    assert missed(plan.headroom) <= 0.02 < missed(plan.headroom + 0.01)


def test_the_limit_of_single_moves_stands_beside_them(plan: PipelinePlan) -> None:
    assert plan.inferline is not None
    assert plan.inferline.usd_per_hour >= plan.found.usd_per_hour or plan.inferline.miss_limit > 0.02


def test_it_is_deterministic_and_tells_how_far_it_is(plan: PipelinePlan) -> None:
    told: list[float] = []
    again = plan_pipeline(PIPELINE, plan.sample, OPTIONS, plan.slo, duration_s=DURATION_S, seed=1, progress=told.append)
    assert (again.found, again.inferline, again.one_more) == (plan.found, plan.inferline, plan.one_more)
    assert told == sorted(told)
    assert 0.0 < told[0] < told[-1] <= 1.0


def test_a_promise_below_ten_ms_has_no_shorter_one() -> None:
    sample = QuerySample(np.arange(50) / 10.0, np.ones((50, 1), dtype=np.int64))
    quick = plan_pipeline(chain("a"), sample, [[option("x", 1.0, 0.0, 0.004, 1)]], Slo(0.009, 0.9), duration_s=5.0)
    assert [one.rt_max_s for one in quick.other_slos] == [pytest.approx(0.019)]
    assert quick.one_less == (None,)


def test_ten_ms_less_may_be_impossible_and_the_promise_itself() -> None:
    sample, only = QuerySample(np.array([0.0]), np.array([[1]])), [[option("x", 1.0, 0.0, 0.015, 1)]]
    assert plan_pipeline(chain("a"), sample, only, Slo(0.02, 0.9), duration_s=1.0).other_slos[0].usd_per_hour is None
    with pytest.raises(Infeasible, match="a has 10 of 10 ms"):
        plan_pipeline(chain("a"), sample, only, Slo(0.01, 0.9), duration_s=1.0)


def test_a_lasting_load_needs_more_than_a_moment_of_it() -> None:
    """100 queries within one second are all answered in 2 s by fewer replicas than 100 queries in every second need."""
    sample = QuerySample(np.arange(100) / 100.0, np.ones((100, 1), dtype=np.int64))
    only, slo = [[option("x", 1.0, 0.0, 0.1, 1)]], Slo(1.0, 0.99)
    moment = configure(chain("a"), sample, only, slo, resamples=0).choices[0].replicas
    lasting = plan_pipeline(chain("a"), sample, only, slo, duration_s=1.0)
    assert moment < lasting.found.choices[0].replicas == 10
    assert (lasting.headroom, lasting.one_less) == (1.0, (1.0,))


def test_shared_instances_stand_beside_separate_ones() -> None:
    """Three stages use three vCPUs together, and the smallest instance has two, so they share two instances."""
    host = Host("small", 0.1, 2.0, 0.0)
    sample = QuerySample(np.arange(300) / 10.0, np.ones((300, 3), dtype=np.int64))
    separate = [[option("small", 0.1, 0.0, 0.02, workers=2)]] * 3
    found = plan_pipeline(
        chain("a", "b", "c"),
        sample,
        separate,
        Slo(0.2, 0.9),
        duration_s=30.0,
        shared=[[worker_on(host, 0.0, 0.02)]] * 3,
    )
    assert (found.found.usd_per_hour, found.separate_usd_per_hour) == (pytest.approx(0.2), pytest.approx(0.3))
    assert sum(pack.count for pack in found.packs) == 2
    assert sum(found.stage_usd_per_hour) == pytest.approx(0.2)
    assert found.inferline is not None
    assert found.inferline.usd_per_hour == pytest.approx(0.3)
    assert [other.usd_per_hour for other in found.other_slos] == [pytest.approx(0.2)] * 2
