"""Queries through stages that never keep a call waiting, against the kernel of central queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.pipeline import FIRST, Pipeline, PipelineStage
from mark.planning.graphs.estimate import QuerySample, StageChoice, StageOption, estimate
from mark.simulation.query_flow import QueryFlow
from tests.planning.graphs.planned import any_graph, chain

FOREVER = float("inf")


def sent_through(
    pipeline: Pipeline, arrivals_s: np.ndarray, calls: np.ndarray, takes_s: list[float], window_s: float
) -> np.ndarray:
    """Return the latencies if each call of a stage takes the same time, in windows of this length."""
    flow = QueryFlow(pipeline, arrivals_s, calls)
    made = [0] * len(takes_s)
    windows = [window_s * n for n in range(1, 40)] if np.isfinite(window_s) else []
    for until_s in [*windows, FOREVER]:
        for stage, time_s in enumerate(takes_s):
            times_s, queries = flow.due(stage, until_s)
            assert np.all(np.diff(times_s) >= 0.0)
            assert np.all(times_s < until_s)
            numbers = made[stage] + np.arange(len(queries))
            made[stage] += len(queries)
            flow.answered(stage, numbers[::-1], times_s[::-1] + time_s)  # in any order
    assert made == calls.sum(axis=0).tolist()
    return flow.latency_s()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_it_is_what_the_kernel_says_whatever_the_window(data: st.DataObject) -> None:
    pipeline = any_graph(data)
    stages = pipeline.stages
    queries = data.draw(st.integers(1, 12))
    arrivals_s = np.sort(np.array([data.draw(st.integers(0, 20)) for _ in range(queries)], dtype=float))
    calls = np.array([[data.draw(st.integers(0, 2)) for _ in stages] for _ in range(queries)])
    takes_s = [float(data.draw(st.integers(1, 9))) for _ in stages]
    choices = [StageChoice(StageOption("x", 1.0, np.array([0.0, time_s])), 1, 64) for time_s in takes_s]
    expected = estimate(pipeline, QuerySample(arrivals_s, calls), choices).latency_s
    for window_s in (1.0, 3.0, FOREVER):
        assert sent_through(pipeline, arrivals_s, calls, takes_s, window_s).tolist() == expected.tolist()


def test_an_absent_answer_keeps_its_query_from_what_waits() -> None:
    flow = QueryFlow(chain("a", "b"), np.array([0.0, 1.0]), np.array([[1, 1], [1, 1]]))
    flow.due(0, 5.0)
    flow.answered(0, np.array([0, 1]), np.array([FOREVER, 2.0]))
    times_s, queries = flow.due(1, 5.0)
    assert (times_s.tolist(), queries.tolist()) == ([2.0], [1])
    flow.answered(1, np.array([0]), np.array([3.5]))
    assert flow.latency_s().tolist() == [FOREVER, 2.5]


def test_an_answer_that_comes_after_its_window_is_a_fault() -> None:
    flow = QueryFlow(chain("a", "b"), np.array([0.0]), np.array([[1, 1]]))
    flow.due(0, 5.0)
    flow.due(1, 5.0)
    flow.answered(0, np.array([0]), np.array([3.0]))
    with pytest.raises(AssertionError, match="an answer came late"):
        flow.due(1, 10.0)


def test_one_call_of_several_that_is_never_answered_is_enough() -> None:
    flow = QueryFlow(chain("a"), np.array([0.0]), np.array([[3]]))
    flow.due(0, 5.0)
    flow.answered(0, np.array([1]), np.array([FOREVER]))
    flow.answered(0, np.array([0, 2]), np.array([1.0, 2.0]))
    assert flow.latency_s().tolist() == [FOREVER]


@pytest.mark.parametrize("first", [0, 1])
def test_a_join_does_without_what_never_comes(first: int) -> None:
    """Whichever becomes known first, and though the other is only known in the next window."""
    stages = (PipelineStage("a", "a"), PipelineStage("b", "b"), PipelineStage("c", "c", ("a", "b"), FIRST))
    flow = QueryFlow(Pipeline(stages), np.array([0.0]), np.array([[1, 1, 1]]))
    for stage in (0, 1):
        flow.due(stage, 5.0)
    flow.answered(first, np.array([0]), np.array([FOREVER]))
    assert len(flow.due(2, 5.0)[0]) == 0
    flow.answered(1 - first, np.array([0]), np.array([7.0]))
    assert flow.due(2, 10.0)[0].tolist() == [7.0]


def test_a_missed_call_lets_its_query_go_on_without_an_answer() -> None:
    """The second query has no answer of `b`: it keeps that of `a`, and goes on immediately."""
    flow = QueryFlow(chain("a", "b", "c"), np.array([0.0, 1.0]), np.array([[1, 1, 1], [1, 1, 1]]))
    flow.due(0, 5.0)
    flow.answered(0, np.array([0, 1]), np.array([2.0, 3.0]))
    flow.due(1, 5.0)
    flow.answered(1, np.array([0]), np.array([4.0]))
    flow.missed(1, np.array([1]), np.array([3.0]))
    times_s, queries = flow.due(2, 5.0)
    assert (times_s.tolist(), queries.tolist()) == ([3.0, 4.0], [1, 0])
    flow.missed(2, np.array([0]), np.array([3.0]))
    flow.answered(2, np.array([1]), np.array([6.0]))
    latency_s, answered = flow.decided(FOREVER)
    assert latency_s.tolist() == [6.0, 2.0]
    assert answered.tolist() == [[True, True, True], [True, False, False]]


def test_a_query_is_decided_at_its_deadline_by_the_answers_that_it_has() -> None:
    """The first query has an answer at its deadline of 4 s, which decides it; the second one's first answer decides."""
    stages = (PipelineStage("a", "a"), PipelineStage("b", "b"))
    flow = QueryFlow(Pipeline(stages), np.array([0.0, 0.0, 0.0]), np.array([[1, 1], [1, 1], [1, 0]]))
    for stage in (0, 1):
        flow.due(stage, 5.0)
    flow.answered(0, np.array([0, 1]), np.array([1.0, 6.0]))
    flow.missed(0, np.array([2]), np.array([0.0]))
    flow.answered(1, np.array([0, 1]), np.array([9.0, 7.0]))
    latency_s, answered = flow.decided(4.0)
    assert latency_s.tolist() == [4.0, 6.0, FOREVER]
    assert answered.tolist() == [[True, False], [True, False], [False, False]]


def test_calls_are_chosen_before_their_queries_arrive() -> None:
    flow = QueryFlow(chain("a", "b"), np.array([0.0, 1.0, 6.0]), np.ones((3, 2), dtype=np.int64))
    asked = []

    def choose(first: int, last: int) -> np.ndarray:
        asked.append((first, last))
        return np.array([[1, 0]] * (last - first))

    assert flow.choose(0, 5.0, choose) == 2
    assert flow.choose(2, 5.0, choose) == 2
    assert asked == [(0, 2)]
    flow.due(0, 10.0)
    flow.answered(0, np.array([0, 1, 2]), np.array([0.5, 1.5, 6.5]))
    times_s, queries = flow.due(1, 10.0)
    assert (times_s.tolist(), queries.tolist()) == ([6.5], [2])
    assert flow.calls.tolist() == [[1, 0], [1, 0], [1, 1]]
