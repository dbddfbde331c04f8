"""Estimates of whole pipelines: the plain model's numbers, the cache, and the end of hopeless estimates."""

from __future__ import annotations

import doctest
import math
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.pipeline import Join, Pipeline, PipelineStage
from mark.planning.graphs.estimate import (
    Estimate,
    PipelineEstimator,
    QuerySample,
    StageChoice,
    StageOption,
    estimate,
    with_one_less,
)
from tests.kernel.pipeline_reference import PipelineCase, PipelineWorld, PulledBy

SOCIAL = Pipeline(
    (
        PipelineStage("language", "lid"),
        PipelineStage("translate", "nmt", after=("language",)),
        PipelineStage("vision", "resnet152"),
        PipelineStage("categorise", "topics", after=("translate", "vision"), join=Join(1, 0.25)),
    )
)
SINGLE = Pipeline((PipelineStage("only", "m"),))


def option(fixed_s: float, each_s: float, largest: int = 8, usd_per_hour: float = 1.0) -> StageOption:
    return StageOption("c7i", usd_per_hour, np.array([0.0, *(fixed_s + each_s * b for b in range(1, largest + 1))]))


def sample(queries: int, rate: float, seed: int = 1) -> QuerySample:
    """Return a sample of SOCIAL, on a grid of 2^-16 s, where sums are exact; images come in threes."""
    rng = np.random.default_rng(seed)
    calls = rng.integers(0, 2, size=(queries, 4))
    calls[:, 0] = calls[:, 3] = 1
    calls[:, 2] *= 3
    return QuerySample(np.cumsum(np.round(rng.exponential(2.0**16 / rate, queries))) / 2.0**16, calls)


OPTIONS = (option(1 / 64, 1 / 256), option(1 / 128, 1 / 32), option(1 / 32, 1 / 64), option(1 / 64, 1 / 64))
CHOICES = tuple(StageChoice(of, 4, 3) for of in OPTIONS)
# Some of the replicas are on hardware that is half as fast, and takes batches of two at most.
SLOW = option(1 / 32, 1 / 32, largest=2)
BESIDE = (
    StageChoice(OPTIONS[0], 4, 2, ((SLOW, 1),)),
    CHOICES[1],
    StageChoice(OPTIONS[2], 4, 1, ((SLOW, 3),)),
    CHOICES[3],
)
SLO_S = 0.5


def same(one: Estimate, other: Estimate) -> None:
    np.testing.assert_array_equal(one.latency_s, other.latency_s)
    for ours, theirs in zip(one.stages, other.stages, strict=True):
        np.testing.assert_array_equal(ours.batches, theirs.batches)
        for name in ("stage", "calls", "wait_s", "service_s", "batch", "utilisation"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), nan_ok=True), name


# -- one query, one stage ------------------------------------------------------------------------------------------


def test_one_query() -> None:
    """It takes the time of a batch of one, and the replica is busy for that time."""
    seen = estimate(SINGLE, QuerySample(np.array([3.0]), np.array([[1]])), [StageChoice(option(0.5, 0.25), 4, 2)])
    assert seen.latency_s == [0.75]
    assert seen.usd_per_hour == 2.0
    [stage] = seen.stages
    assert (stage.stage, stage.calls, stage.wait_s, stage.service_s) == ("only", 1, 0.0, 0.75)
    assert (stage.batch, stage.utilisation, stage.batches.tolist()) == (1.0, 0.5, [0, 1, 0, 0, 0])


def test_a_query_that_visits_nothing_takes_no_time() -> None:
    seen = estimate(SINGLE, QuerySample(np.array([3.0]), np.array([[0]])), [StageChoice(option(0.5, 0.25), 4, 2)])
    assert seen.latency_s == [0.0]
    [stage] = seen.stages
    assert (stage.calls, stage.utilisation) == (0, 0.0)
    assert math.isnan(stage.wait_s)
    assert math.isnan(stage.service_s)
    assert math.isnan(stage.batch)


def test_latencies_are_in_the_order_of_the_sample() -> None:
    """Arrivals need not be sorted: the first row is the last to come, and the last to be served."""
    given_first = QuerySample(np.array([2.0, 0.0, 1.0]), np.ones((3, 1), dtype=np.int64))
    seen = estimate(SINGLE, given_first, [StageChoice(option(1.0, 1.0), 1, 1)])
    assert seen.latency_s.tolist() == [4.0, 2.0, 3.0]


def test_quantiles_and_misses() -> None:
    """A quantile of latencies of 1 to 10 s is one of them; exactly the SLO is in time."""
    seen = Estimate(np.arange(10.0, 0.0, -1.0), (), 0.0)
    assert [seen.quantile_s(share) for share in (0.0, 0.1, 0.11, 0.9, 1.0)] == [1.0, 1.0, 2.0, 9.0, 10.0]
    assert [seen.miss_share(slo_s) for slo_s in (0.5, 1.0, 9.0, 10.0)] == [1.0, 0.9, 0.1, 0.0]


def test_the_example() -> None:
    assert doctest.testmod(sys.modules[PipelineEstimator.__module__]) == (0, 6)


# -- against the plain model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [CHOICES, BESIDE], ids=["one type", "beside"])
def test_reference(choices: Sequence[StageChoice]) -> None:
    """The pipeline has fan-out, skipped stages and a join that does not wait for long, at a load that queues."""
    queries = sample(500, 90.0)
    seen = estimate(SOCIAL, queries, choices)
    replicas = tuple(
        PulledBy(stage, tuple(option.service_s[1 : choice.batch + 1]))
        for stage, choice in enumerate(choices)
        for option, count in choice.parts
        for _ in range(count)
    )
    world = PipelineWorld(
        PipelineCase(
            SOCIAL.predecessors,
            replicas,
            tuple(queries.arrivals_s),
            tuple(map(tuple, queries.calls)),
            tuple(stage.join for stage in SOCIAL.stages),
            tuple(queries.arrivals_s + SLO_S),
        )
    )
    np.testing.assert_array_equal(seen.latency_s, world.answer_s[:, 3] - queries.arrivals_s)
    for stage, sizes in enumerate(world.batches):
        of = seen.stages[stage]
        assert of.calls == sum(sizes)
        assert of.wait_s == pytest.approx(world.wait_s[stage] / sum(sizes))
        if len(choices[stage].parts) == 1:
            assert of.service_s == pytest.approx(np.mean([choices[stage].option.service_s[size] for size in sizes]))
        assert 0.0 < of.utilisation <= 1.0


def test_a_replica_with_workers_counts_as_that_many_replicas() -> None:
    """Two instances of three workers equal six replicas of one worker, at the price of two."""
    queries, table = sample(400, 60.0), option(1 / 64, 1 / 32).service_s
    three = StageOption("c7i.xlarge", 0.5, table, workers=3)
    one = StageOption("c7i.xlarge", 0.5, table)
    instances = estimate(SOCIAL, queries, [StageChoice(three, 4, 2)] * 4)
    same(instances, estimate(SOCIAL, queries, [StageChoice(one, 4, 6)] * 4))
    assert instances.usd_per_hour == 4.0
    assert three.calls_per_s(4) == pytest.approx(3 * one.calls_per_s(4)) == pytest.approx(3 * 4 / table[4])


def test_beside_others_a_first_choices_only_replica_may_go() -> None:
    slow = option(1 / 32, 1 / 32, largest=2)
    alone, beside = StageChoice(OPTIONS[0], 4, 1), StageChoice(OPTIONS[0], 4, 1, ((slow, 3), (OPTIONS[1], 1)))
    assert with_one_less((alone,), 0) is None
    assert with_one_less((alone, StageChoice(OPTIONS[0], 4, 2)), 1) == (alone, alone)
    assert with_one_less((beside,), 0) == (StageChoice(slow, 2, 3, ((OPTIONS[1], 1),)),)


# -- the cache -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(1, 4)), min_size=1, max_size=12))
@settings(max_examples=25)
def test_what_is_remembered_changes_no_answer(moves: list[tuple[int, int, int]]) -> None:
    """A walk changes one stage at a time and mixes estimates and promises; a fresh estimate must agree each time."""
    queries = sample(300, 50.0)
    kept = PipelineEstimator(SOCIAL, queries, slo_s=SLO_S)
    few = PipelineEstimator(SOCIAL, queries, slo_s=SLO_S, memory_bytes=3 * 16 * 300)
    choices = list(CHOICES)
    for n, (stage, batch, replicas) in enumerate(moves):
        choices[stage] = StageChoice(OPTIONS[stage], batch, replicas)
        fresh = estimate(SOCIAL, queries, choices)
        misses = fresh.miss_share(SLO_S)
        assert kept.feasible(choices, 1.0 - misses)
        assert misses == 0.0 or not kept.feasible(choices, 1.0 - misses + 1e-6)
        same(kept.estimate(choices), fresh)
        if n % 2:
            same(few.estimate(choices), fresh)


def test_only_the_changed_stage_and_those_behind_it_are_simulated() -> None:
    queries = sample(300, 50.0)
    calls = queries.calls.sum(axis=0)
    estimator = PipelineEstimator(SOCIAL, queries)

    def work(choices: Sequence[StageChoice]) -> int:
        before = estimator.calls_simulated
        estimator.estimate(choices)
        return estimator.calls_simulated - before

    def other(stage: int) -> list[StageChoice]:
        return [StageChoice(of.option, of.batch, of.replicas + (n == stage)) for n, of in enumerate(CHOICES)]

    assert work(CHOICES) == calls.sum()
    assert work(CHOICES) == 0
    assert [work(other(stage)) for stage in range(4)] == [
        calls[0] + calls[1] + calls[3],
        calls[1] + calls[3],
        calls[2] + calls[3],
        calls[3],
    ]
    assert work(CHOICES) == 0


def test_a_promise_that_is_lost_is_given_up_early() -> None:
    """One replica instead of three is overloaded: a few windows of the sample show it."""
    queries = sample(40_000, 50.0)
    estimator = PipelineEstimator(SOCIAL, queries, slo_s=SLO_S)
    assert not estimator.feasible([StageChoice(of.option, 1, 1) for of in CHOICES], 0.99)
    assert estimator.calls_simulated < 0.1 * queries.calls.sum()
    assert estimator.feasible([StageChoice(of.option, 8, 8) for of in CHOICES], 0.99)


# -- bad input -----------------------------------------------------------------------------------------------------


def test_bad_input_says_what_is_wrong() -> None:
    queries = sample(3, 1.0)
    with pytest.raises(BadInput, match="batch of one"):
        StageOption("t4", 1.0, np.zeros(1))
    with pytest.raises(BadInput, match="above zero"):
        StageOption("t4", 1.0, np.array([0.0, 1.0, -1.0]))
    with pytest.raises(BadInput, match="not be negative"):
        option(1.0, 1.0, usd_per_hour=-1.0)
    with pytest.raises(BadInput, match="sigma of t4: must not be negative: -1"):
        StageOption("t4", 1.0, np.ones(2), sigma=-1.0)
    with pytest.raises(BadInput, match="workers of t4: must be at least 1: 0"):
        StageOption("t4", 1.0, np.ones(2), workers=0)
    with pytest.raises(BadInput, match="must be 1 to 8"):
        StageChoice(OPTIONS[0], 9, 1)
    with pytest.raises(BadInput, match="at least 1"):
        StageChoice(OPTIONS[0], 8, 0)
    with pytest.raises(BadInput, match="replicas on c7i: must be at least 1: 0"):
        StageChoice(OPTIONS[0], 8, 1, ((OPTIONS[1], 0),))
    with pytest.raises(BadInput, match="has no query"):
        QuerySample(np.zeros(0), np.zeros((0, 1), dtype=np.int64))
    with pytest.raises(BadInput, match="one row for each arrival"):
        QuerySample(np.zeros(2), np.zeros((1, 1), dtype=np.int64))
    with pytest.raises(BadInput, match="must have 1 columns"):
        PipelineEstimator(SINGLE, queries)
    with pytest.raises(BadInput, match="one for each of 4 stages"):
        estimate(SOCIAL, queries, CHOICES[:3])
    with pytest.raises(BadInput, match="above zero"):
        PipelineEstimator(SOCIAL, queries, slo_s=0.0)
    with pytest.raises(BadInput, match="a promise needs an SLO"):
        PipelineEstimator(SOCIAL, queries).feasible(CHOICES, 0.99)
    with pytest.raises(BadInput, match="0 to 1"):
        PipelineEstimator(SOCIAL, queries, slo_s=1.0).feasible(CHOICES, 99.0)


def test_a_miss_share_alone_is_that_of_the_estimate() -> None:
    estimator = PipelineEstimator(SOCIAL, sample(500, 150.0), slo_s=SLO_S)
    share = estimator.miss_share(CHOICES)
    assert 0.05 < share < 0.95
    assert share == estimator.estimate(CHOICES).miss_share(SLO_S)
    with pytest.raises(BadInput, match="a promise needs an SLO"):
        PipelineEstimator(SOCIAL, sample(5, 150.0)).miss_share(CHOICES)
