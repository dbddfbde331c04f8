"""Central queues against the plain reference, request by request, against queueing theory, and the laws that hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.pipeline import ALL, FIRST, Join
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation, StageFunction, StageOutcome
from mark.kernel.random import factor_of
from tests.kernel.pipeline_reference import PipelineCase, PipelineWorld, PulledBy
from tests.kernel.reference import function
from tests.kernel.test_queueing import SERVICE_S, WITHIN, number_in_system
from tests.samples import sampled

Floats = NDArray[np.float64]


def simulation(case: PipelineCase, *, chunk: int = 4, replicas: bool = True) -> PipelineSimulation:
    """Return a simulation ready to be advanced, each replica with a separate kind."""
    queries = PipelineQueries.of(
        np.array(case.arrivals_s),
        np.array(case.calls, dtype=np.int64).reshape(-1, len(case.after)),
        np.array(case.deadlines_s) if case.deadlines_s else None,
    )
    kinds = [np.array([0.0, *replica.service_s]) for replica in case.replicas]
    joins = [case.join(stage) for stage in range(len(case.after))]
    sigmas = [case.sigma] * len(kinds)
    result = PipelineSimulation(
        queries,
        case.after,
        joins,
        kinds,
        sigmas=sigmas,
        seed=case.seed,
        functions={stage: one for stage, one in enumerate(case.functions) if one is not None},
        chunk=chunk,
    )
    for kind, replica in enumerate(case.replicas if replicas else ()):
        result.add(replica.stage, kind, replica.ready_s, replica.leave_s)
    return result


def times(simulated: PipelineSimulation, stages: int) -> tuple[Floats, Floats]:
    """Return the times of ready and answered by query as given and stage; infinite stands for never."""
    outcomes = [simulated.outcome(stage) for stage in range(stages)]
    given = simulated.queries.as_given

    def by_query(columns: Sequence[Floats]) -> Floats:
        return np.stack([given(column) for column in columns], axis=1)

    return by_query([outcome.ready_s for outcome in outcomes]), by_query([outcome.answer_s for outcome in outcomes])


def check(case: PipelineCase, simulated: PipelineSimulation) -> None:
    stages = len(case.after)
    expected = PipelineWorld(case)
    ready_s, answer_s = times(simulated, stages)
    np.testing.assert_array_equal(ready_s, expected.ready_s)
    np.testing.assert_array_equal(answer_s, expected.answer_s)
    for stage in range(stages):
        outcome = simulated.outcome(stage)
        sizes = expected.batches[stage]
        np.testing.assert_array_equal(outcome.batches, np.bincount(sizes, minlength=len(outcome.batches)))
        assert outcome.wait_s == (pytest.approx(expected.wait_s[stage]) if case.sigma else expected.wait_s[stage])
        called, environments = outcome.by_function, expected.queues[stage].environments
        assert (called.calls, called.throttled) == (expected.by_function[stage], expected.throttled[stage])
        assert called.cold == environments.cold_starts


def outcome_of(case: PipelineCase) -> tuple[PipelineSimulation, list[StageOutcome]]:
    simulated = simulation(case)
    simulated.advance()
    return simulated, [simulated.outcome(stage) for stage in range(len(case.after))]


# -- small cases, by hand ------------------------------------------------------------------------------------------


def one_stage(*service_s: float, replicas: int = 1) -> tuple[PulledBy, ...]:
    return tuple(PulledBy(0, service_s) for _ in range(replicas))


def test_one_query_takes_its_service_time() -> None:
    simulated, [outcome] = outcome_of(PipelineCase(((),), one_stage(0.5), (2.0,), ((1,),)))
    assert outcome.ready_s == [2.0]
    assert outcome.answer_s == [2.5]
    assert simulated.end_s() == [2.5]
    assert (outcome.busy_s, outcome.wait_s) == (0.5, 0.0)


def test_simultaneous_calls_share_a_batch_of_the_lowest_numbered_replica() -> None:
    """Five calls come before two replicas with batches of three: replica 0 takes three and the other two."""
    replicas = (PulledBy(0, (1.0, 2.0, 3.0)), PulledBy(0, (5.0, 6.0, 7.0)))
    _, [outcome] = outcome_of(PipelineCase(((),), replicas, (0.0,) * 5, ((1,),) * 5))
    assert outcome.answer_s.tolist() == [3.0, 3.0, 3.0, 6.0, 6.0]


def test_the_earliest_deadline_goes_first() -> None:
    """The second to arrive has the earlier deadline, and only waits for the running batch."""
    case = PipelineCase(((),), one_stage(1.0), (0.0, 0.25, 0.5), ((1,),) * 3, deadlines_s=(9.0, 8.0, 7.0))
    simulated, _ = outcome_of(case)
    assert simulated.queries.as_given(simulated.end_s()).tolist() == [1.0, 3.0, 2.0]


def test_a_visit_is_over_with_the_last_of_its_calls() -> None:
    """Three calls of one query in batches of two: one batch after the other."""
    _, [outcome] = outcome_of(PipelineCase(((),), one_stage(1.0, 1.5), (0.0,), ((3,),)))
    assert outcome.batches.tolist() == [0, 1, 1]
    assert outcome.answer_s == [2.5]


def test_an_uncalled_stage_is_no_answer_but_all_of_waits() -> None:
    """Stages 0 (2 s), 1 after 0 (not called), 2 (1 s), then 3 after 1 and 2 (1 s), by join of 3."""
    after = ((), (0,), (), (1, 2))
    replicas = (PulledBy(0, (2.0,)), PulledBy(1, (1.0,)), PulledBy(2, (1.0,)), PulledBy(3, (1.0,)))

    def ends_s(join: Join, calls: tuple[int, ...] = (1, 0, 1, 1)) -> float:
        simulated, _ = outcome_of(PipelineCase(after, replicas, (0.0,), (calls,), (ALL, ALL, ALL, join)))
        return float(simulated.end_s()[0])

    assert ends_s(ALL) == 3.0  # goes on when stage 1 was skipped, which is when stage 0 has answered
    assert ends_s(FIRST) == 2.0  # with the answer of stage 2
    assert ends_s(Join(1, 0.5)) == 2.5
    assert ends_s(Join(2, 0.0)) == 3.0  # only one answer will come
    assert ends_s(FIRST, (1, 0, 0, 1)) == 3.0  # no answer will come


def test_replicas_join_and_leave() -> None:
    """One replica leaves at 1 s with its batch running; the next one comes at 3 s, and waiting calls wait for it."""
    replicas = (PulledBy(0, (2.0,), 0.0, 1.0), PulledBy(0, (0.5,), 3.0))
    _, [outcome] = outcome_of(PipelineCase(((),), replicas, (0.0, 0.5, 9.0), ((1,),) * 3))
    assert outcome.answer_s.tolist() == [2.0, 3.5, 9.5]


def test_a_stage_may_grow_while_it_runs() -> None:
    """It grows from one replica to seventy, one a second, some of them busy.

    The result is as if the growth had been known before.
    """
    rng = np.random.default_rng(1)
    arrivals = tuple(np.cumsum(rng.exponential(1 / 20, 1400)))
    replicas = tuple(PulledBy(0, (2.0 + n / 70, 2.5 + n / 70), float(n)) for n in range(70))
    case = PipelineCase(((),), replicas, arrivals, ((1,),) * 1400)
    grown = simulation(case, replicas=False)
    for n in range(70):
        grown.advance(float(n))
        grown.add(0, n, float(n))
    grown.advance()
    _, [expected] = outcome_of(case)
    np.testing.assert_array_equal(grown.outcome(0).answer_s, expected.answer_s)
    assert grown.outcome(0).batches.tolist() == expected.batches.tolist()


def test_without_replicas_queries_wait_for_ever() -> None:
    simulated, [outcome] = outcome_of(PipelineCase(((),), one_stage(1.0)[:0], (0.0,), ((1,),)))
    assert simulated.end_s() == [np.inf]
    assert outcome.batches.sum() == 0


# -- functions, by hand --------------------------------------------------------------------------------------------

WARM_S = 0.5


def bridged(
    arrivals_s: tuple[float, ...],
    deadlines_s: tuple[float, ...],
    *,
    behind_s: float = 0.0,
    cold_s: float = 0.0,
    service_s: tuple[float, ...] = (1.0,),
    concurrency: int = 1000,
    calls: int = 1,
) -> tuple[PipelineSimulation, StageOutcome]:
    """Simulate one stage with one replica, and a function of half a second."""
    one = StageFunction(function(WARM_S, cold_s, concurrency=concurrency), behind_s, service_s[-1])
    case = PipelineCase(
        ((),),
        one_stage(*service_s),
        arrivals_s,
        ((calls,),) * len(arrivals_s),
        deadlines_s=deadlines_s,
        functions=(one,),
    )
    simulated, [outcome] = outcome_of(case)
    check(case, simulated)
    return simulated, outcome


def test_a_call_waits_for_a_replica_until_its_last_moment() -> None:
    """Three may begin until 1 s, when the replica is free again: it takes one of the two that wait, and one leaves."""
    simulated, outcome = bridged((0.0, 0.0, 0.0), (2.0, 2.0, 2.0))
    assert simulated.end_s().tolist() == [1.0, 2.0, 1.5]
    assert (outcome.by_function.calls, outcome.started) == (1, 2)
    assert simulated.missed == 0


def test_what_comes_behind_is_left_its_time() -> None:
    """The stage behind needs 0.5 s, so both waiting calls must leave that much earlier."""
    simulated, outcome = bridged((0.0, 0.0, 0.0), (2.0, 2.25, 2.25), behind_s=0.5)
    assert simulated.end_s().tolist() == [1.0, 1.25, 1.25]
    assert outcome.by_function.calls == 2


def test_a_replica_that_is_free_goes_before_the_function() -> None:
    """It takes longer than the function, but is in time."""
    simulated, outcome = bridged((0.0,), (1.0,))
    assert simulated.end_s() == [1.0]
    assert outcome.by_function.calls == 0


def test_a_free_but_late_replica_leaves_calls_to_the_function() -> None:
    simulated, outcome = bridged((0.0,), (0.75,))
    assert simulated.end_s() == [WARM_S]
    assert (outcome.by_function.calls, outcome.started) == (1, 0)


def test_calls_late_on_functions_too_are_served_late() -> None:
    simulated, outcome = bridged((0.0,), (0.25,))
    assert simulated.end_s() == [1.0]
    assert outcome.by_function.calls == 0


def test_a_cold_start_is_not_foreseen_and_warms_the_environment() -> None:
    """Three calls come a second apart, which no replica could answer in time: the first is late, the others are not."""
    simulated, outcome = bridged((0.0, 3.0, 6.0), (0.75, 3.75, 6.75), cold_s=2.0)
    assert (simulated.end_s() - simulated.queries.arrival_s).tolist() == [2.5, 0.5, 0.5]
    assert (outcome.by_function.calls, outcome.by_function.cold) == (3, 1)
    offer = function(WARM_S, 2.0).offer  # initialisation is not billed
    assert outcome.function_usd == pytest.approx(3 * offer.usd_per_request(WARM_S))


def test_without_an_environment_a_call_waits_on_for_the_replica() -> None:
    """The replica begins one of five calls of one query. At 0.5 s, their last moment, one of four finds an environment.

    At 1 s the replica would be late, so one more goes, and the next one finds none; the replica takes it, and the last.
    """
    simulated, outcome = bridged((0.0,), (1.5,), concurrency=1, calls=5)
    assert (outcome.by_function.calls, outcome.by_function.throttled, outcome.started) == (2, 4, 3)
    assert simulated.end_s() == [3.0]


def test_functions_that_make_no_sense_are_refused() -> None:
    for use, behind_s in ((function(0.0, 1.0), 0.0), (function(1.0, 0.0), -1.0), (function(1.0, 0.0), np.nan)):
        with pytest.raises(BadInput, match="lambda:3008"):
            StageFunction(use, behind_s, 0.0)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_where_every_stage_has_a_function_no_query_is_late(seed: int) -> None:
    """Every path has time for a full batch or the function, and the environments are warm."""
    rng = np.random.default_rng(seed)
    after = ((), (0,), (0,), (1, 2))
    replicas = tuple(PulledBy(s, tuple(rng.integers(1, 9) + np.arange(1.0, 4.0))) for s in range(4))
    uses = [function(float(rng.integers(1, 9)), 0.0) for _ in after]
    functions: list[StageFunction] = []
    for stage in reversed(range(4)):
        behind = [functions[3 - later].needed_s for later in range(stage + 1, 4) if stage in after[later]]
        functions.append(StageFunction(uses[stage], max(behind, default=0.0), replicas[stage].service_s[-1]))
    arrivals = tuple(np.sort(rng.integers(0, 40, 60)).astype(float))
    deadlines = tuple(a + functions[-1].needed_s + rng.integers(0, 9) for a in arrivals)
    calls = tuple(map(tuple, rng.integers(0, 3, (60, 4)).tolist()))
    case = PipelineCase(after, replicas, arrivals, calls, (), deadlines, functions=tuple(reversed(functions)))
    simulated, outcomes = outcome_of(case)
    assert simulated.missed == 0
    assert sum(outcome.by_function.calls for outcome in outcomes) > 0
    assert sum(outcome.started for outcome in outcomes) > 0


# -- random cases --------------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn, with_functions: bool = False) -> PipelineCase:
    # multiples of a power of two: all sums are exact, so ties are true ties; a coarse grid makes them the rule
    tick = draw(st.sampled_from([2.0**-2, 2.0**-16]))
    unit = 1 if tick > 1e-3 else 9973

    def ticks(low: int, high: int) -> float:
        return tick * draw(st.integers(low * unit, high * unit))

    stages = draw(st.integers(1, 5))
    after = tuple(
        tuple(before for before in range(stage) if draw(st.integers(0, 2)) or before == stage - 1)
        for stage in range(stages)
    )
    joins = tuple(
        draw(st.sampled_from([ALL, FIRST, Join(2, 0.0), Join(1, ticks(0, 8)), Join(2, ticks(0, 8))]))
        for _ in range(stages)
    )
    replicas = []
    for stage in range(stages):
        for _ in range(draw(st.integers(1, 3))):
            fixed, each = ticks(1, 6), ticks(0, 3)
            table = tuple(fixed + each * b for b in range(1, draw(st.integers(1, 4)) + 1))
            ready_s = ticks(0, 20) if draw(st.booleans()) else 0.0
            leave_s = ready_s + ticks(0, 60) if draw(st.integers(0, 3)) == 0 else np.inf
            replicas.append(PulledBy(stage, table, ready_s, leave_s))
    gap = draw(st.sampled_from([0, 1, 2, 6]))
    now, arrivals = 0.0, []
    for _ in range(draw(st.integers(1, 30))):
        now += ticks(0, gap)
        arrivals.append(now)
    several = draw(st.sampled_from([1, 3]))
    calls = tuple(tuple(draw(st.integers(0, several)) for _ in range(stages)) for _ in arrivals)
    kind = draw(st.sampled_from(["none", "one SLO", "each"]))
    slo_s = ticks(4, 40)
    deadlines = tuple(a + (slo_s if kind == "one SLO" else ticks(1, 40)) for a in arrivals) if kind != "none" else ()
    by_join = tuple(sorted(replicas, key=lambda replica: replica.ready_s))  # numbers go up as they join
    sigma = 0.0 if with_functions else draw(st.sampled_from([0.0, 0.0, 0.7]))
    seed = draw(st.integers(0, 3)) if sigma else 0

    def stage_function() -> StageFunction:
        use = function(
            ticks(1, 8),
            ticks(0, 12) if draw(st.booleans()) else 0.0,
            concurrency=draw(st.sampled_from([1, 2, 3, 1000])),
            ramp_per_10s=draw(st.sampled_from([5.0, 10.0, 10_000.0])),
            burst=float(draw(st.integers(0, 3))),
            keep_alive_s=ticks(4, 80),
        )
        return StageFunction(use, ticks(0, 10), ticks(0, 10))

    functions = tuple(stage_function() if with_functions and draw(st.integers(0, 3)) else None for _ in range(stages))
    return PipelineCase(after, by_join, tuple(arrivals), calls, joins, deadlines, sigma, seed, functions)


@sampled(400)
@given(cases())
def test_reference(case: PipelineCase) -> None:
    """Each query at each stage is ready and answered as in the plain model, in the same batches."""
    simulated = simulation(case)
    simulated.advance()
    check(case, simulated)


@sampled(150)
@given(cases(with_functions=True))
def test_reference_with_functions(case: PipelineCase) -> None:
    """With functions at some stages, the calls to functions and their refusals agree as well."""
    simulated = simulation(case)
    simulated.advance()
    check(case, simulated)


@pytest.mark.acceptance
@given(cases(with_functions=True))
@settings(max_examples=1_000, deadline=None)
def test_reference_with_functions_at_length(case: PipelineCase) -> None:
    simulated = simulation(case)
    simulated.advance()
    check(case, simulated)


@sampled(150)
@given(cases() | cases(with_functions=True), st.lists(st.integers(0, 80), max_size=8), st.integers(1, 40))
def test_windows_change_nothing(case: PipelineCase, cuts: list[int], chunk: int) -> None:
    """Windows of any length, with replicas added and drained as the clock goes, or all known from the start."""
    whole = simulation(case, chunk=1024)
    whole.advance()
    cut = simulation(case, chunk=chunk, replicas=False)
    numbers: dict[int, tuple[int, int]] = {}
    changes = [(replica.ready_s, 0, kind) for kind, replica in enumerate(case.replicas)]
    changes += [(r.leave_s, 1, kind) for kind, r in enumerate(case.replicas) if r.leave_s < np.inf]
    changes += [(float(at), 2, 0) for at in cuts]
    for at_s, what, kind in sorted(changes):
        cut.advance(at_s)
        stage = case.replicas[kind].stage
        if what == 0:
            numbers[kind] = stage, cut.add(stage, kind, at_s)
        elif what == 1:
            cut.drain(*numbers[kind], at_s)
    cut.advance()
    for ours, theirs in zip(times(cut, len(case.after)), times(whole, len(case.after)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for stage in range(len(case.after)):
        one, other = cut.outcome(stage), whole.outcome(stage)
        np.testing.assert_array_equal(one.batches, other.batches)
        assert (one.busy_s, one.wait_s) == (other.busy_s, other.wait_s)
        assert (one.by_function, one.function_usd) == (other.by_function, other.function_usd)
    assert cut.missed == whole.missed


@sampled(150)
@given(cases() | cases(with_functions=True))
def test_every_call_departs_once(case: PipelineCase) -> None:
    """Each ready call is in one batch or on a function, unless the replicas are gone."""
    simulated = simulation(case)
    simulated.advance()
    ready_s, answer_s = times(simulated, len(case.after))
    calls = np.array(case.calls).reshape(-1, len(case.after))
    for stage in range(len(case.after)):
        outcome = simulated.outcome(stage)
        started = outcome.started + outcome.by_function.calls
        came = calls[ready_s[:, stage] < np.inf, stage].sum()
        assert started <= came
        if any(r.stage == stage and r.leave_s == np.inf for r in case.replicas):
            assert started == came
    assert (answer_s >= ready_s).all()


@sampled(100)
@given(cases() | cases(with_functions=True))
def test_misses_are_counted_as_they_become_sure(case: PipelineCase) -> None:
    """The count equals that of the latencies, whether or not it stops at the first miss, and is never too high."""
    simulated = simulation(case, chunk=1)
    counted: list[int] = []
    while simulated.clock_s < np.inf:
        simulated.advance(most_missed=counted[-1] if counted else 0)
        counted.append(simulated.missed)
    deadline_s = np.array(case.deadlines_s or [np.inf] * len(case.arrivals_s))
    end_s = simulated.queries.as_given(simulated.end_s())
    assert counted == sorted(counted)
    assert counted[-1] == np.count_nonzero((end_s > deadline_s + 1e-6) & (deadline_s < np.inf))


# -- times that vary ----------------------------------------------------------------------------------------------


def test_varying_times_have_their_mean_and_their_spread() -> None:
    """20,000 queries come one at a time; the same seed gives the same times, another seed others."""
    queries = PipelineQueries.of(np.linspace(0.0, 2e6, 20_000), np.ones((20_000, 1), dtype=np.int64))

    def served_s(seed: int) -> Floats:
        simulated = PipelineSimulation(queries, [()], [ALL], [np.array([0.0, 2.0])], sigmas=[0.5], seed=seed)
        simulated.add(0, 0, 0.0)
        simulated.advance()
        outcome = simulated.outcome(0)
        return outcome.answer_s - outcome.ready_s

    of_one = served_s(1)
    assert of_one.mean() == pytest.approx(2.0, rel=0.01)
    assert np.log(of_one).std() == pytest.approx(0.5, rel=0.02)
    assert abs(np.corrcoef(of_one[1:], of_one[:-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(of_one, served_s(2))[0, 1]) < 0.03
    np.testing.assert_array_equal(of_one, served_s(1))


def test_every_call_has_a_factor_of_its_own() -> None:
    asked = list(itertools.product(range(3), repeat=4))
    found = [factor_of(seed, stage, query, call, 0.5) for seed, stage, query, call in asked]
    assert len(set(found)) == len(asked)
    assert found == [factor_of(seed, stage, query, call, 0.5) for seed, stage, query, call in asked]


# -- queueing theory -----------------------------------------------------------------------------------------------


def mean_wait_s(arrivals_s: Floats, replicas: int) -> float:
    """Return the mean wait at one stage that takes SERVICE_S for each call, one by one."""
    queries = PipelineQueries.of(arrivals_s, np.ones((len(arrivals_s), 1), dtype=np.int64))
    simulated = PipelineSimulation(queries, [()], [ALL], [np.array([0.0, SERVICE_S])])
    for _ in range(replicas):
        simulated.add(0, 0, 0.0)
    simulated.advance()
    return simulated.outcome(0).wait_s / len(arrivals_s)


@pytest.mark.parametrize(("replicas", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (20, 0.8)])
def test_mean_wait_is_that_of_mdc(replicas: int, load: float) -> None:
    """M/D/c: Little's law on the stationary number of waiting requests (Crommelin 1932); M/D/1: rho D / 2 (1 - rho)."""
    rate = load * replicas / SERVICE_S
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, 2_000_000))
    law = number_in_system(replicas, load)
    expected = law @ np.maximum(np.arange(len(law)) - replicas, 0) / rate
    if replicas == 1:
        assert expected == pytest.approx(load * SERVICE_S / (2.0 * (1.0 - load)), rel=1e-6)
    assert mean_wait_s(arrivals, replicas) == pytest.approx(expected, rel=WITHIN)


def test_dd1_waits_grow_by_what_is_missing() -> None:
    """Arrivals every 0.075 s before a service of 0.1 s: the n-th waits n x 0.025 s; every 0.1 s none waits."""
    n = 1000
    assert mean_wait_s(0.075 * np.arange(n, dtype=np.float64), 1) == pytest.approx(0.025 * (n - 1) / 2)
    assert mean_wait_s(SERVICE_S * np.arange(n, dtype=np.float64), 1) == pytest.approx(0.0, abs=1e-9)


def test_batches_make_a_stage_that_keeps_up() -> None:
    """Four every 0.4 s, together: singles would take 1.2 s, a batch of four takes 0.375 s, so no query ever waits."""
    arrivals = tuple(np.repeat(np.arange(50) * 0.4, 4))
    case = PipelineCase(((),), one_stage(0.3, 0.325, 0.35, 0.375), arrivals, ((1,),) * 200)
    simulated, [outcome] = outcome_of(case)
    assert outcome.batches.tolist() == [0, 0, 0, 0, 50]
    assert outcome.wait_s == 0.0
    np.testing.assert_allclose(simulated.end_s() - np.array(arrivals), 0.375)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=30)
def test_one_more_replica_delays_no_query_without_batches(replicas: int, seed: int, late: bool) -> None:
    """First come, first served, equal services: the n-th departure of G/D/c is no later with c + 1 (Kiefer, Wolfowitz).

    This fails with batches (a free replica takes a small batch immediately, and the next calls wait for it), and behind
    a second stage (an earlier call may delay a more urgent one, because no service is interrupted).
    """
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / replicas, 200))
    ready_s = 50.0 if late else 0.0

    def answers_s(more: tuple[PulledBy, ...]) -> Floats:
        case = PipelineCase(((),), (*one_stage(1.0, replicas=replicas), *more), tuple(arrivals), ((1,),) * 200)
        return outcome_of(case)[1][0].answer_s

    assert (answers_s((PulledBy(0, (1.0,), ready_s),)) <= answers_s(()) + 1e-9).all()


def test_a_backlog_of_thousands_is_simulated_like_any_other() -> None:
    """Half of the queries wait at an overloaded stage and the others skip it, so the order behind it differs much."""
    n = 20_000
    arrivals = np.arange(n) / 128.0
    calls = np.ones((n, 2), dtype=np.int64)
    calls[::2, 0] = 0
    queries = PipelineQueries.of(arrivals, calls)
    simulated = PipelineSimulation(queries, [(), (0,)], [ALL, ALL], [np.array([0.0, 0.0625]), np.array([0.0, 2.0**-9])])
    simulated.add(0, 0, 0.0)
    simulated.add(1, 1, 0.0)
    simulated.advance()
    queued = arrivals[0::2].size
    last_s = simulated.outcome(0).answer_s[1::2]
    np.testing.assert_array_equal(last_s, arrivals[1] + 0.0625 * (1 + np.arange(queued)))
    assert (simulated.end_s() - simulated.outcome(1).ready_s <= 2.0**-8 + 1e-12).all()


def test_answers_in_any_order_are_sorted() -> None:
    """Hundreds of answers come from replicas with different service times: too far out of order for insertion alone."""
    n = 600
    service_s = np.random.default_rng(1).integers(1, 1 << 20, size=n) / 2.0**16
    replicas = (*(PulledBy(0, (float(s),)) for s in service_s), PulledBy(1, (2.0**-5, 2.0**-4)))
    case = PipelineCase(((), (0,)), replicas, (0.0,) * n, ((1, 1),) * n)
    check(case, outcome_of(case)[0])


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "calls", "deadlines", "says"),
    [
        ([0.0, 1.0], [[1]], None, "one row for each arrival"),
        ([np.nan], [[1]], None, "must be finite"),
        ([0.0], [[-1]], None, "must be counts"),
        ([0.0], [[1]], [np.nan], "one time for each arrival"),
    ],
)
def test_queries_that_make_no_sense_are_refused(
    arrivals: list[float], calls: list[list[int]], deadlines: list[float] | None, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        PipelineQueries.of(np.array(arrivals), np.array(calls), None if deadlines is None else np.array(deadlines))


@pytest.mark.parametrize("table", [[0.0], [0.0, 0.0], [0.0, np.inf]])
def test_service_times_that_make_no_sense_are_refused(table: list[float]) -> None:
    queries = PipelineQueries.of(np.zeros(1), np.ones((1, 1), dtype=np.int64))
    with pytest.raises(BadInput, match=r"batch holds|above zero"):
        PipelineSimulation(queries, [()], [ALL], [np.array(table)])


def test_the_past_is_settled() -> None:
    simulated = simulation(PipelineCase(((),), one_stage(1.0), (0.0,), ((1,),)))
    simulated.advance(5.0)
    with pytest.raises(BadInput, match="all before 5 s is settled"):
        simulated.add(0, 0, 4.0)
    with pytest.raises(BadInput, match="all before 5 s is settled"):
        simulated.drain(0, 0, 4.0)
