"""Latency without queues: by hand, and as the kernel gives it for a query alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.pipeline import FIRST, Join, Pipeline, PipelineStage
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation
from mark.planning.graphs.critical_paths import call_windows_s, critical_path_s, longest_path_s, pattern_path_s
from mark.planning.graphs.estimate import PipelineEstimator, QuerySample, StageChoice, StageOption, estimate
from tests.planning.graphs.planned import any_graph, anything_small, chain, traffic


def diamond(join: Join) -> Pipeline:
    return Pipeline((
        PipelineStage("a", "a"), PipelineStage("b", "b", ("a",)), PipelineStage("c", "c", ("a",)),
        PipelineStage("d", "d", ("b", "c"), join),
    ))  # fmt: skip


def test_a_chain_takes_the_sum_a_diamond_its_longer_side() -> None:
    assert longest_path_s(chain("a", "b", "c"), [1.0, 2.0, 3.0]) == 6.0
    assert longest_path_s(diamond(Join()), [1.0, 2.0, 5.0, 1.0]) == 7.0


@pytest.mark.parametrize(
    ("join", "expected_s"), [(FIRST, 4.0), (Join(1, 2.0), 6.0), (Join(1, 9.0), 7.0), (Join(2, 0.0), 7.0)]
)
def test_a_join_goes_on_earlier_where_it_says_so(join: Join, expected_s: float) -> None:
    assert longest_path_s(diamond(join), [1.0, 2.0, 5.0, 1.0]) == expected_s


def test_what_is_not_visited_takes_no_time() -> None:
    calls = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert pattern_path_s(diamond(Join()), calls, [1.0, 2.0, 5.0, 1.0]).tolist() == [4.0, 1.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_is_what_the_kernel_says_of_a_query_alone(data: st.DataObject) -> None:
    pipeline = any_graph(data)
    stages = pipeline.stages
    calls = np.array([data.draw(st.lists(st.integers(0, 2), min_size=len(stages), max_size=len(stages)))])
    service_s = [float(data.draw(st.integers(1, 9))) for _ in stages]
    choices = [StageChoice(StageOption("x", 1.0, np.array([0.0, time_s])), 1, 2) for time_s in service_s]
    seen = estimate(pipeline, QuerySample(np.array([0.0]), calls), choices)
    assert seen.latency_s.tolist() == pattern_path_s(pipeline, calls, service_s).tolist()


@pytest.mark.parametrize(
    ("join", "until_s"),
    [
        (Join(), [4.0, 9.0, 9.0, 10.0]),  # a leaves time for the longer side
        (FIRST, [7.0, np.inf, np.inf, 10.0]),  # either of b and c will do
        (Join(1, 2.0), [5.0, np.inf, np.inf, 10.0]),
        (Join(2, 0.0), [4.0, 9.0, 9.0, 10.0]),
    ],
)
def test_a_call_is_answered_in_time_for_later_stages(join: Join, until_s: list[float]) -> None:
    """a takes 1 s, b 2, c 5 and d 1; 10 s in all."""
    ready_s, latest_s = call_windows_s(diamond(join), np.array([[1, 1, 3, 1]]), [1.0, 2.0, 5.0, 1.0], 10.0)
    ready_d_s = {Join(): 6.0, FIRST: 3.0, Join(1, 2.0): 5.0}.get(join, 6.0)
    assert ready_s.tolist() == [[0.0, 1.0, 1.0, ready_d_s]]
    assert latest_s.tolist() == [until_s]


def test_uncalled_stages_and_hopeless_queries_have_no_window() -> None:
    calls = np.array([[1, 1, 0, 1], [1, 0, 1, 1]])
    _, until_s = call_windows_s(diamond(Join()), calls, [1.0, 2.0, 5.0, 1.0], 6.0)
    assert until_s.tolist() == [[3.0, 5.0, np.inf, 6.0], [np.inf] * 4]


def _times_of_calls(
    pipeline: Pipeline, sample: QuerySample, choices: list[StageChoice]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, by stage, when each query's calls could be made, and when they were answered, as simulated."""
    queries = PipelineQueries.of(sample.arrivals_s, sample.calls, None)
    simulated = PipelineSimulation(
        queries,
        pipeline.predecessors,
        [stage.join for stage in pipeline.stages],
        [choice.option.service_s[: choice.batch + 1] for choice in choices],
    )
    for stage, choice in enumerate(choices):
        for _ in range(choice.workers):
            simulated.add(stage, stage, -np.inf)
    simulated.advance()
    outcomes = [simulated.outcome(stage) for stage in range(len(choices))]
    return [(queries.as_given(one.ready_s), queries.as_given(one.answer_s)) for one in outcomes]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_queries_in_time_keep_to_the_windows_of_their_calls(seed: int, replicas: int) -> None:
    """No call is made before its window, and no needed call is answered after it, whatever waits."""
    pipeline, sample, options, slo = anything_small(seed)
    choices = [StageChoice(of[seed % len(of)], of[seed % len(of)].largest_batch, replicas) for of in options]
    least_s = [float(choice.option.service_s[1:].min()) for choice in choices]
    ready_s, until_s = call_windows_s(pipeline, sample.calls, least_s, slo.rt_max_s)
    in_time = estimate(pipeline, sample, choices).latency_s <= slo.rt_max_s
    for stage, (made_s, answered_s) in enumerate(_times_of_calls(pipeline, sample, choices)):
        called = in_time & (sample.calls[:, stage] > 0)
        assert np.all((made_s - sample.arrivals_s)[called] >= ready_s[called, stage] - 1e-9)
        assert np.all((answered_s - sample.arrivals_s)[called] <= until_s[called, stage] + 1e-9)


@pytest.mark.parametrize(
    ("join", "path_s"),
    [
        (Join(), [1.0, 0.0, 5.0, 1.5]),  # the longer side
        (FIRST, [1.0, 2.0, 0.0, 1.5]),
        (Join(1, 2.0), [1.0, 2.0, 0.0, 3.5]),  # the join's wait belongs to the stage
    ],
)
def test_the_critical_path_is_followed_back_from_the_answer(join: Join, path_s: list[float]) -> None:
    """b takes 2 s and c 5 s, both from 1 s on; d takes 1.5 s."""
    ready_d_s = {Join(): 6.0, FIRST: 3.0}.get(join, 5.0)
    ready_s, answer_s = np.array([[0.0, 1.0, 1.0, ready_d_s]]), np.array([[1.0, 3.0, 6.0, ready_d_s + 1.5]])
    np.testing.assert_allclose(critical_path_s(diamond(join), ready_s, answer_s), [path_s])


@pytest.mark.parametrize("join", [Join(), FIRST, Join(1, 0.02)])
def test_critical_paths_sum_to_the_latencies(join: Join) -> None:
    """There are queues, skipped stages and a join that need not wait; in the order of a sample that is not sorted."""
    drawn = traffic(400, 60.0, 2.0, (1.0, 0.6, 0.5, 1.0), seed=4)
    order = np.random.default_rng(1).permutation(400)
    sample = QuerySample(drawn.arrivals_s[order], drawn.calls[order])
    choices = [StageChoice(StageOption("x", 1.0, np.array([0.0, 0.01, 0.015])), 2, 1)] * 4
    estimator = PipelineEstimator(diamond(join), sample)
    path_s = estimator.path_s(choices)
    np.testing.assert_allclose(path_s.sum(axis=1), estimator.estimate(choices).latency_s, atol=1e-9)
    assert path_s.min() >= -1e-9
