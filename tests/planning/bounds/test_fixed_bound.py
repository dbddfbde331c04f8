"""The lower bound of a fixed fleet: at most the cost of any fleet that keeps the promise, and exact in plain cases."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.slo import Slo
from mark.planning.bounds.fixed_bound import FixedFleetBound, fixed_fleet_bound, least_calls_per_s
from mark.planning.bounds.pipeline_bound import PipelineBoundProblem, stage_problems
from mark.planning.graphs.estimate import QuerySample
from mark.planning.graphs.stage_options import shared_stages
from tests.planning.bounds.staged import anything_sold, even, problem_of, sample_of, sharing, stage_of
from tests.planning.graphs.planned import chain, cheapest, option


def bounded(problem: PipelineBoundProblem, late: float = 0.0) -> FixedFleetBound:
    found = fixed_fleet_bound(problem, late)
    assert found is not None
    return found


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(70))
def test_the_cheapest_fleet_that_keeps_the_promise_costs_no_less(seed: int) -> None:
    pipeline, sample, options, slo = anything_sold(seed)
    problem = problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo)
    found = bounded(problem, (1.0 - slo.attainment) * len(sample.arrivals_s))
    assert found.usd_per_hour <= cheapest(pipeline, sample, options, slo, 4) * (1.0 + 1e-12)


@pytest.mark.untraced
def test_a_third_of_small_fleets_cost_just_that() -> None:
    """This shows that the bound is tight."""
    just = 0
    for seed in range(70):
        pipeline, sample, options, slo = anything_sold(seed)
        problem = problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo)
        found = bounded(problem, (1.0 - slo.attainment) * len(sample.arrivals_s))
        just += found.usd_per_hour >= cheapest(pipeline, sample, options, slo, 4) * (1.0 - 1e-6)
    assert just >= 70 / 3


def test_even_traffic_needs_whole_instances_that_keep_up_with_it() -> None:
    """25 queries/s; a does 10 a second for 1 $/h, or 28 for 2.5; b does 20 for 2 $/h."""
    slo, sample = Slo(0.5, 0.99), even(5000, 25.0, 1, 1)
    a = [option("x", 1.0, 0.0, 0.1, 1), option("z", 2.5, 0.0, 1.0 / 28.0, 1)]
    problem = problem_of(
        chain("a", "b"), sample, [stage_of(a, slo), stage_of([option("y", 2.0, 0.0, 0.05, 1)], slo)], slo
    )
    assert bounded(problem).stages == pytest.approx((2.5, 4.0))
    assert bounded(problem, 1100.0).stages == pytest.approx((2.0, 2.0))
    assert bounded(problem, 5000.0).stages == (0.0, 0.0)


def test_simultaneous_queries_need_instances_that_answer_them_at_once() -> None:
    """Ten queries come every 10 s, and within 0.25 s an instance answers two of them."""
    slo = Slo(0.25, 0.99)
    sample = QuerySample(np.repeat(np.arange(20) * 10.0, 10), np.ones((200, 1), dtype=np.int64))
    problem = problem_of(chain("a"), sample, [stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo)], slo)
    assert bounded(problem).usd_per_hour == pytest.approx(4.0)  # 40 calls/s: a queue of ten is empty after 0.25 s
    assert bounded(problem, 40.0).usd_per_hour == pytest.approx(4.0)  # eight each time
    assert bounded(problem, 100.0).usd_per_hour == pytest.approx(2.0)


def test_where_no_instance_is_quick_enough_there_is_none() -> None:
    slo, sample = Slo(0.5, 0.99), even(10, 1.0, 1)
    by_function = stage_of([], slo, function=(1e-6, 0.1))
    assert fixed_fleet_bound(problem_of(chain("a"), sample, [by_function], slo)) is None
    assert fixed_fleet_bound(problem_of(chain("a"), sample, [stage_of([], slo)], slo)) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=7).map(sorted), st.integers(0, 3))
def test_as_few_calls_are_left_out_as_can_be(at: list[int], late: int) -> None:
    """The reference tries every choice of calls to leave out, with just enough servers for the others."""
    slo = Slo(0.5, 0.99)
    sample = QuerySample(np.array(at) / 10.0, np.ones((len(at), 1), dtype=np.int64))
    problem = problem_of(chain("a"), sample, [stage_of([option("x", 1.0, 0.0, 0.001, 1)], slo)], slo)
    (stage,), _ = stage_problems(problem, 0.0)
    needs = []
    for kept in itertools.combinations(sample.arrivals_s.tolist(), max(0, len(at) - late)):
        # k calls from the first of them to a window behind the last
        spans = [(j - i + 1, kept[j] - kept[i] + stage.window_s) for i in range(len(kept)) for j in range(i, len(kept))]
        needs.append(max((calls / span_s for calls, span_s in spans), default=0.0))
    assert least_calls_per_s(stage, float(late)) == pytest.approx(min(needs), rel=1e-6)


def test_a_looser_promise_costs_no_more() -> None:
    for seed in range(20):
        pipeline, sample, options, slo = anything_sold(seed)
        by_time = [
            bounded(problem_of(pipeline, sample, [stage_of(of, longer) for of in options], longer)).usd_per_hour
            for longer in (replace(slo, rt_max_s=slo.rt_max_s * times) for times in (1.0, 1.3, 2.0))
        ]
        problem = problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo)
        by_late = [bounded(problem, late).usd_per_hour for late in (0.0, 1.0, 3.0, 9.0)]
        for values in (by_time, by_late):
            assert all(b <= a * (1.0 + 1e-6) for a, b in itertools.pairwise(values))


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(30))
def test_the_cheapest_fleet_of_shared_instances_costs_no_less(seed: int) -> None:
    problem, by_worker, slo = sharing(seed)
    found = bounded(problem, (1.0 - slo.attainment) * len(problem.arrivals_s))
    least = cheapest(problem.pipeline, sample_of(problem), by_worker, slo, 6)
    assert 0.2 * least <= found.usd_per_hour <= least * (1.0 + 1e-12)


def test_of_shared_instances_whole_workers_are_counted() -> None:
    """Three stages with one worker each fit on two instances of two workers: three instances would be too many."""
    slo, sample = Slo(0.5, 0.99), even(200, 10.0, 1, 1, 1)
    stages = [stage_of([option("small", 0.1, 0.0, 0.02, 1, workers=2)], slo) for _ in "abc"]
    pipeline = chain("a", "b", "c")
    separate = problem_of(pipeline, sample, stages, slo)
    assert bounded(separate).usd_per_hour == pytest.approx(0.3)
    shared = replace(separate, stages=shared_stages(stages, [False] * 3), shared=True)
    assert bounded(shared).usd_per_hour == pytest.approx(3 * 0.05)
