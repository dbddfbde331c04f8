"""The bound of a pipeline: never above a fleet that keeps the promise, and exact where that is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.pipeline import FIRST, Pipeline, PipelineStage
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.bounds.lower_bound import build_problem, fluid_bound
from mark.planning.bounds.pipeline_bound import PipelineBound, pipeline_bound
from mark.planning.graphs.estimate import PipelineEstimator, QuerySample, StageChoice, usd_per_hour
from mark.planning.graphs.tuned_run import FIXED, run_tuned
from tests.planning.bounds.staged import anything_sold, even, problem_of, sample_of, sharing, stage_of
from tests.planning.graphs.planned import chain, cheapest, option, traffic

# How far the search for prices may stay below the best, relative.
CLOSE = 2e-3


def usd(bound: PipelineBound) -> float:
    assert bound.usd is not None
    return bound.usd


# -- against fleets that keep the promise ------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(70))
def test_the_cheapest_fleet_that_keeps_the_promise_costs_no_less(seed: int) -> None:
    """All hardware, batches and numbers of replicas are simulated, with joins, fan-out and stages that few visit."""
    pipeline, sample, options, slo = anything_sold(seed)
    problem = problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo)
    bound = pipeline_bound(problem, (1.0 - slo.attainment) * len(sample.arrivals_s))
    least = cheapest(pipeline, sample, options, slo, 4) * problem.end_s / 3600.0
    assert usd(bound) <= least * (1.0 + 1e-12)
    assert sum(stage.usd for stage in bound.stages) == pytest.approx(usd(bound), rel=1e-6, abs=1e-15)


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_fleet_of_shared_instances_costs_no_less(seed: int) -> None:
    """Fleets have whole instances with workers of both stages; the bound prices the stages' parts of them."""
    problem, by_worker, slo = sharing(seed)
    bound = pipeline_bound(problem, (1.0 - slo.attainment) * len(problem.arrivals_s))
    least = cheapest(problem.pipeline, sample_of(problem), by_worker, slo, 6) * problem.end_s / 3600.0
    assert 0.0 < usd(bound) <= least * (1.0 + 1e-12)


def test_where_times_vary_nothing_is_said_of_the_quickest() -> None:
    """A call may then take all of RT_max, and an instance's capacity follows from its mean times."""
    pipeline, sample, slo = chain("a", "b"), even(400, 20.0, 1, 1), Slo(0.2, 0.99)
    stages = [stage_of([option("x", 1.0, 0.0, 0.05, 2)], slo) for _ in "ab"]
    steady = pipeline_bound(problem_of(pipeline, sample, stages, slo))

    def varying(stage: ResolvedService) -> ResolvedService:
        (one,) = stage.candidates
        rows = tuple(replace(row, p99_ms=2.0 * row.latency_ms) for row in one.profile.rows)
        return replace(stage, candidates=(replace(one, profile=replace(one.profile, rows=rows), sigma=0.3),))

    loose = pipeline_bound(problem_of(pipeline, sample, [varying(stage) for stage in stages], slo))
    assert [stage.window_s for stage in steady.stages] == pytest.approx([0.15, 0.15])
    assert [stage.window_s for stage in loose.stages] == pytest.approx([0.2, 0.2])
    assert usd(loose) <= usd(steady)


def test_it_is_not_far_below_a_fleet_that_is_busy() -> None:
    """20 queries/s on instances of 10 and of 20 queries/s: three whole instances, all busy."""
    pipeline, sample = chain("a", "b"), even(400, 20.0, 1, 1)
    options = [[option("x", 1.0, 0.0, 0.1, 1)], [option("y", 2.0, 0.0, 0.05, 1)]]
    slo = Slo(0.2, 0.99)
    bound = pipeline_bound(problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo), 4.0)
    end_s = float(sample.arrivals_s.max()) + slo.rt_max_s
    assert 0.95 < usd(bound) * 3600.0 / end_s / cheapest(pipeline, sample, options, slo, 3) <= 1.0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_no_fleet_that_keeps_its_own_promise_costs_less(seed: int, data: st.DataObject) -> None:
    """The bound allows the number of late queries that the fleet has, instead of a share."""
    pipeline, sample, options, slo = anything_sold(seed)
    choices = []
    for of in options:
        one = data.draw(st.sampled_from(of))
        choices.append(StageChoice(one, data.draw(st.integers(1, one.largest_batch)), data.draw(st.integers(1, 3))))
    late = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s).miss_share(choices) * len(sample.arrivals_s)
    assume(late < len(sample.arrivals_s))
    problem = problem_of(pipeline, sample, [stage_of(of, slo) for of in options], slo)
    assert usd(pipeline_bound(problem, late)) <= usd_per_hour(tuple(choices)) * problem.end_s / 3600.0 * (1.0 + 1e-12)


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(60))
def test_no_fleet_with_functions_costs_less_than_its_bound(seed: int) -> None:
    """Replicas and functions are random; the bound allows the simulated late queries at the whole bill."""
    pipeline, sample, options, slo = anything_sold(seed)
    rng = np.random.default_rng(seed)
    stages: list[ResolvedService] = []
    choices: list[StageChoice] = []
    for of in options:
        function = float(10.0 ** rng.uniform(-7.0, -3.0)), float(rng.choice([0.01, 0.05, 0.2]))
        stages.append(stage_of(of, slo, function=function if rng.random() < 0.8 else None))
        one = of[rng.integers(len(of))]
        choices.append(StageChoice(one, int(rng.integers(1, one.largest_batch + 1)), int(rng.integers(1, 3))))
    problem = problem_of(pipeline, sample, stages, slo)
    run = run_tuned(
        pipeline, sample, tuple(choices), FIXED, begin_s=0.0, end_s=problem.end_s, slo_s=slo.rt_max_s,
        functions=[stage.function for stage in stages],
        alone=[stage.function is not None and rng.random() < 0.3 for stage in stages],
    )  # fmt: skip
    late = float(np.count_nonzero(run.missed(slo.rt_max_s)))
    assert usd(pipeline_bound(problem, late)) <= run.total_usd * (1.0 + 1e-12)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_even_traffic_pays_for_its_share_of_each_stages_instances() -> None:
    # 50 queries/s for 100 s. a: 2 calls each, 20 a second for 1 $/h; b: 10 a second for 2 $/h. So 5 and 10 $/h.
    pipeline, sample, slo = chain("a", "b"), even(5000, 50.0, 2, 1), Slo(0.5, 0.99)
    stages = [stage_of([option("x", 1.0, 0.0, 0.05, 1)], slo), stage_of([option("y", 2.0, 0.0, 0.1, 1)], slo)]
    problem = problem_of(pipeline, sample, stages, slo)
    bound = pipeline_bound(problem)
    expected = 5000 * (2 * 0.05 / 3600.0 + 0.1 * 2.0 / 3600.0)
    assert usd(bound) == pytest.approx(expected, rel=0.01)
    assert [stage.usd for stage in bound.stages] == pytest.approx([expected / 3.0, expected / 1.5], rel=0.01)
    assert [stage.calls for stage in bound.stages] == [10_000, 5_000]
    assert [stage.window_s for stage in bound.stages] == pytest.approx([0.4, 0.45], abs=1e-5)
    assert usd(pipeline_bound(problem, 500.0)) == pytest.approx(0.9 * expected, rel=0.01)


def test_late_queries_are_the_dearest_of_all_stages_together() -> None:
    """Every tenth query visits b as well, which costs ten times as much.

    If these are late, b costs nothing, and a only its rest. Stage by stage, a could drop another tenth of the queries.
    """
    slo = Slo(0.5, 0.9)
    calls = np.ones((4000, 2), dtype=np.int64)
    calls[:, 1] = np.arange(4000) % 10 == 0
    sample = QuerySample(np.arange(4000) / 40.0, calls)
    stages = [stage_of([option("x", 1.0, 0.0, 0.05, 1)], slo), stage_of([option("y", 1.0, 0.0, 0.4, 1)], slo)]
    bound = pipeline_bound(problem_of(chain("a", "b"), sample, stages, slo), 200.0)
    a, b = 0.05 / 3600.0, 0.4 / 3600.0
    assert [stage.usd for stage in bound.stages] == pytest.approx([3800 * a, 200 * b], rel=0.02)


def test_batches_end_within_what_the_other_stages_leave() -> None:
    """Four queries arrive together. b needs 150 ms, which leaves a 250 of 400 ms, and 170 of 320 ms."""
    sample = QuerySample(np.repeat(np.arange(500) / 5.0, 4), np.ones((2000, 2), dtype=np.int64))
    a = option("x", 1.0, 0.14, 0.01, 4)  # 150, 160, 170 and 180 ms
    b = option("y", 1.0, 0.0, 0.15, 1)
    for rt_max_s, batch in ((0.4, 4), (0.32, 3)):
        slo = Slo(rt_max_s, 0.99)
        bound = pipeline_bound(problem_of(chain("a", "b"), sample, [stage_of([a], slo), stage_of([b], slo)], slo))
        expected = 2000 * float(a.service_s[batch]) / batch / 3600.0
        assert bound.stages[0].usd == pytest.approx(expected, rel=0.02)


def test_batches_hold_no_more_than_comes_in_time() -> None:
    """A query every 50 ms: of 250 ms a batch of four, 180 ms, leaves 70, in which two come; a batch of two 160."""
    slo, sample = Slo(0.25, 0.99), even(2000, 20.0, 1)
    bound = pipeline_bound(problem_of(chain("a"), sample, [stage_of([option("x", 1.0, 0.14, 0.01, 4)], slo)], slo))
    assert bound.stages[0].usd == pytest.approx(2000 * 0.16 / 2 / 3600.0, rel=0.02)


def test_a_stage_whose_answer_is_not_waited_for_costs_nothing() -> None:
    pipeline = Pipeline((PipelineStage("a", "m"), PipelineStage("b", "m"), PipelineStage("c", "m", ("a", "b"), FIRST)))
    slo = Slo(0.5, 0.99)
    stages = [stage_of([option("x", 1.0, 0.0, time_s, 1)], slo) for time_s in (0.1, 0.1, 0.1)]
    bound = pipeline_bound(problem_of(pipeline, even(1000, 10.0, 1, 1, 1), stages, slo))
    assert [stage.calls for stage in bound.stages] == [0, 0, 1000]
    assert bound.stages[2].usd == pytest.approx(1000 * 0.1 / 3600.0, rel=0.02)


def test_calls_go_to_functions_that_are_cheaper_and_in_time() -> None:
    slo = Slo(0.5, 0.99)
    sample = even(1000, 10.0, 1, 1)
    plain = stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo)  # 28 $ a million calls
    bounds = [
        pipeline_bound(problem_of(chain("a", "b"), sample, [plain, stage_of(of, slo, function=function)], slo))
        for of, function in (
            ([option("y", 1.0, 0.0, 0.1, 1)], (1e-5, 0.3)),
            ([option("y", 1.0, 0.0, 0.1, 1)], (1e-5, 0.45)),  # a takes 100 ms at least
            ([], (1e-4, 0.3)),
        )
    ]
    assert [bound.stages[1].usd for bound in bounds] == pytest.approx([0.01, 0.1 / 3.6, 0.1], rel=0.02)
    assert [bound.stages[1].function_share for bound in bounds] == pytest.approx([1.0, 0.0, 1.0], abs=0.02)
    assert bounds[0].function_usd == pytest.approx(0.01, rel=0.02)
    assert bounds[0].function_share == pytest.approx(0.5, abs=0.01)


def test_more_impossible_queries_than_may_be_late_are_infeasible() -> None:
    """Queries that visit b take 550 ms even without a queue: 10 of 100 queries."""
    slo = Slo(0.5, 0.9)
    calls = np.ones((100, 2), dtype=np.int64)
    calls[:, 1] = np.arange(100) % 10 == 0
    sample = QuerySample(np.arange(100) / 10.0, calls)
    stages = [stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo), stage_of([option("y", 1.0, 0.0, 0.45, 1)], slo)]
    problem = problem_of(chain("a", "b"), sample, stages, slo)
    none = pipeline_bound(problem, 9.0)
    assert none.usd is None
    assert none.note == "10 queries take longer than 500 ms even if nothing waits, 9 may be late"
    rest = pipeline_bound(problem, 10.0)
    assert [stage.calls for stage in rest.stages] == [90, 0]
    assert usd(rest) == pytest.approx(90 * 0.1 / 3600.0, rel=0.1)


def test_a_stage_that_nothing_can_run_is_infeasible() -> None:
    slo = Slo(0.5, 0.9)
    stages = [stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo), stage_of([], slo)]
    assert pipeline_bound(problem_of(chain("a", "b"), even(10, 1.0, 1, 1), stages, slo), 9.0).usd is None
    assert usd(pipeline_bound(problem_of(chain("a", "b"), even(10, 1.0, 1, 1), stages, slo), 10.0)) == 0.0
    assert usd(pipeline_bound(problem_of(chain("a", "b"), even(10, 1.0, 1, 0), stages, slo))) > 0.0


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("function", [None, (2e-4, 0.3)])
@pytest.mark.parametrize("late", [0.0, 12.0, 60.0])
def test_one_stage_alone_is_a_service(warm: bool, function: tuple[float, float] | None, late: float) -> None:
    """It equals the bound of a service on the same bins, or is a little above if late requests differ in worth."""
    slo = Slo(0.5, 0.99)
    sample = traffic(600, 10.0, 4.0, (1.0,), seed=3)
    stage = stage_of([option("x", 1.0, 0.05, 0.05, 4), option("y", 3.0, 0.02, 0.01, 4)], slo, function=function)
    problem = problem_of(chain("a"), sample, [stage], slo, warm_start=warm)
    found = pipeline_bound(problem, late)
    bin_s = found.stages[0].bin_s
    counts = np.bincount((sample.arrivals_s / bin_s).astype(int), minlength=round(problem.end_s / bin_s))
    made = build_problem(stage, counts, end_s=problem.end_s, bin_s=bin_s, warm_start=warm)
    service = fluid_bound(made, late).fluid_usd  # a pipeline does not know that an instance is whole
    assert service is not None
    assert service * (1.0 - 1e-9) <= usd(found) <= service * (1.0 + (CLOSE if late == 0.0 else 0.02))


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(12))
def test_a_looser_promise_does_not_cost_more(seed: int) -> None:
    """For RT_max this holds up to the effects of other bin widths and of the search for prices."""
    pipeline, sample, options, slo = anything_sold(seed)
    long = QuerySample(np.concatenate([sample.arrivals_s + n * (sample.arrivals_s[-1] + 0.05) for n in range(20)]),
                       np.tile(sample.calls, (20, 1)))  # fmt: skip
    end_s = float(long.arrivals_s.max()) + 2.0
    stages = [stage_of(of, slo) for of in options]
    by_time = []
    for times in (1.0, 2.0, 4.0):
        longer = replace(slo, rt_max_s=slo.rt_max_s * times)
        by_time.append(usd(pipeline_bound(problem_of(pipeline, long, stages, longer, end_s=end_s), 20.0)))
    problem = problem_of(pipeline, long, stages, slo, end_s=end_s)
    by_late = [usd(pipeline_bound(problem, late)) for late in (0.0, 10.0, 40.0, 200.0)]
    for values in (by_time, by_late):
        assert all(b <= a * 1.02 + 1e-12 for a, b in itertools.pairwise(values)), values


def test_every_query_late_costs_nothing() -> None:
    slo = Slo(0.5, 0.9)
    stages = [stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo)]
    assert usd(pipeline_bound(problem_of(chain("a"), even(50, 10.0, 1), stages, slo), 50.0)) == 0.0


def test_bad_input_is_refused() -> None:
    slo = Slo(0.5, 0.9)
    problem = problem_of(chain("a"), even(5, 1.0, 1), [stage_of([option("x", 1.0, 0.0, 0.1, 1)], slo)], slo)
    for late in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="late_allowed"):
            pipeline_bound(problem, late)
    for wrong in (
        {"stages": ()},
        {"arrivals_s": np.array([-1.0] * 5)},
        {"arrivals_s": np.array([math.nan] * 5)},
        {"pattern": np.zeros(4, dtype=np.int64)},
        {"end_s": math.nan},
    ):
        with pytest.raises(BadInput):
            replace(problem, **wrong)  # type: ignore[arg-type]
