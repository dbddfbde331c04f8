"""InferLine's planner, step by step where its steps can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.errors import Infeasible
from mark.domain.pipeline import FIRST, Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import PipelineEstimator, QuerySample
from mark.planning.graphs.inferline import inferline_plan
from tests.planning.graphs.planned import chain, option, traffic


def told(sample: QuerySample, *options: object, slo: Slo) -> list[tuple[str, int, int]]:
    names = "abc"[: len(options)]
    choices, _ = inferline_plan(chain(*names), sample, options, slo)  # type: ignore[arg-type]
    return [(one.option.hardware, one.batch, one.replicas) for one in choices]


def test_one_query_gets_the_next_cheaper_hardware_until_none_is() -> None:
    sample = QuerySample(np.array([0.0]), np.array([[1]]))
    offered = [
        option("fast", 3.0, 0.0, 0.01, 1),
        option("middle", 2.0, 0.0, 0.02, 1),
        option("slow", 1.0, 0.0, 0.03, 1),
    ]
    assert told(sample, offered, slo=Slo(0.1, 0.99)) == [("slow", 1, 1)]
    assert told(sample, offered, slo=Slo(0.025, 0.99)) == [("middle", 1, 1)]


def test_the_stage_of_least_throughput_gets_the_replicas() -> None:
    """Queries come every 10 ms: a stage of 25 ms needs three replicas, a stage of 5 ms one."""
    sample = QuerySample(np.arange(400) / 100.0, np.ones((400, 2), dtype=np.int64))
    offered = [[option("x", 1.0, 0.0, 0.005, 1)], [option("x", 1.0, 0.0, 0.025, 1)]]
    assert told(sample, *offered, slo=Slo(0.031, 0.99)) == [("x", 1, 1), ("x", 1, 3)]


def test_a_larger_batch_is_taken_for_the_replicas_it_saves() -> None:
    """A batch of four hardly takes longer than a batch of one, so one replica replaces three."""
    sample = QuerySample(np.arange(400) / 100.0, np.ones((400, 1), dtype=np.int64))
    assert told(sample, [option("x", 1.0, 0.024, 0.001, 4)], slo=Slo(0.1, 0.99)) == [("x", 4, 1)]


def test_it_keeps_the_promise_and_no_single_replica_could_go() -> None:
    sample, slo = traffic(2000, 60.0, 2.0, (1.0, 0.6), seed=3), Slo(0.15, 0.98)
    pipeline = chain("a", "b")
    offered = [
        [option("cpu", 0.1, 0.0, 0.02, 1), option("gpu", 0.7, 0.004, 0.003)],
        [option("cpu", 0.1, 0.0, 0.05, 1), option("gpu", 0.7, 0.004, 0.003)],
    ]
    choices, calls = inferline_plan(pipeline, sample, offered, slo)
    estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
    assert estimator.feasible(choices, slo.attainment)
    assert calls > 0
    for stage, choice in enumerate(choices):
        if choice.replicas > 1:
            less = list(choices)
            less[stage] = type(choice)(choice.option, choice.batch, choice.replicas - 1)
            assert not estimator.feasible(less, slo.attainment)


def test_a_path_longer_than_the_promise_is_infeasible() -> None:
    sample = QuerySample(np.array([0.0]), np.array([[1, 1]]))
    with pytest.raises(Infeasible, match="the longest path takes 60 ms on the fastest hardware, RT_max is 50 ms"):
        told(sample, [option("x", 1.0, 0.0, 0.03, 1)], [option("x", 1.0, 0.0, 0.03, 1)], slo=Slo(0.05, 0.9))


def test_whole_instances_are_bought() -> None:
    """Queries of 25 ms come every 10 ms: two instances of two workers, while three of one would be enough."""
    sample = QuerySample(np.arange(400) / 100.0, np.ones((400, 1), dtype=np.int64))
    assert told(sample, [option("x", 1.0, 0.0, 0.025, 1, workers=2)], slo=Slo(0.026, 0.99)) == [("x", 1, 2)]


def test_a_burst_gets_the_replicas_of_adding_one_by_one() -> None:
    sample = QuerySample(np.zeros(1000), np.ones((1000, 2), dtype=np.int64))
    one = option("cpu", 0.1, 0.0, 0.05, 1)
    choices, calls = inferline_plan(chain("a", "b"), sample, [[one], [one]], Slo(0.1, 0.99))
    assert [choice.replicas for choice in choices] == [990, 990]
    assert calls < 100_000  # one at a time: about two million


def test_hardware_that_is_free_and_slow_ends() -> None:
    sample = QuerySample(np.arange(50.0), np.ones((50, 1), dtype=np.int64))
    options = [[option("gpu", 0.7, 0.0, 0.05, 1), option("free", 0.0, 0.0, 0.5, 1)]]
    choices, _ = inferline_plan(chain("a"), sample, options, Slo(0.1, 0.99))
    assert choices[0].option.hardware == "gpu"


def test_a_join_quick_for_few_queries_only_is_infeasible() -> None:
    """The path of a query that visits all stages is quick: the first answer is."""
    stages = (PipelineStage("a", "a"), PipelineStage("b", "b"), PipelineStage("c", "c", ("a", "b"), FIRST))
    calls = np.array([[1, 1, 1]] + [[0, 1, 1]] * 9)
    options = [
        [option("gpu", 0.7, 0.0, 0.01, 1)],
        [option("cpu", 0.1, 0.0, 0.5, 1)],
        [option("gpu", 0.7, 0.0, 0.01, 1)],
    ]
    with pytest.raises(Infeasible, match=r"90.00 % of the queries are late on the fastest hardware, if nothing waits"):
        inferline_plan(Pipeline(stages), QuerySample(np.arange(10.0), calls), options, Slo(0.1, 0.9))
