"""Second copies: the kernel against the plain reference, laws, and cases that can be computed by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.domain.faults import Faults
from mark.domain.rules import second_attempts
from mark.kernel.accounting import Accounting
from mark.kernel.hedged_stage import HedgedStage
from mark.kernel.stage import ROUTING, Admission
from tests.kernel.hedged_reference import HedgedWorld
from tests.kernel.reference import Case, candidate, function
from tests.kernel.test_reference import END_S, by_kernel, cases
from tests.kernel.test_stage import poisson, seen
from tests.samples import sampled

Floats = NDArray[np.float64]

ROUTINGS = [name for name in ROUTING if name != "alb"]
# On the grid of `cases`: second copies are due when requests arrive, and when batches start and end.
AFTER_S = st.sampled_from([2.0**-16, 2.0**-6, 2.0**-4, 2.0**-2, 1.0])
HEDGED = st.tuples(
    st.one_of(
        *(
            cases(windows=True, routing=one, faulty=faulty, varies=varies)
            for one in ROUTINGS
            for faulty in (False, True)
            for varies in (False, True)
        )
    ),
    AFTER_S,
)


def hedged(case: Case, after_s: float, keep: bool = True) -> HedgedStage:
    return HedgedStage(
        case.candidates,
        hedge_after_s=after_s,
        accounts=Accounting(rt_max_s=case.rt_max_s, end_s=END_S),
        admission=Admission(
            bouncers=case.bouncers, late=case.late, least_in_time=case.least, late_share=case.late_share
        ),
        function=case.function,
        routing=case.routing,
        seed=case.seed,
        faults=case.faults,
        keep=keep,
    )


def check(case: Case, after_s: float) -> None:
    stage, pings = by_kernel(case, hedged(case, after_s))
    recording = stage.recording()
    world = HedgedWorld(case, after_s)
    expected = world.run()
    np.testing.assert_array_equal(recording.slot, expected.slot)
    np.testing.assert_allclose(recording.start_s, expected.start_s, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(recording.finish_s, expected.finish_s, rtol=0.0, atol=1e-9)
    assert stage.hedges == (len(world.hedged), world.won, pytest.approx(world.wasted_s, abs=1e-9))
    assert stage.lost == (world.lost, world.again)
    assert stage.function_calls().cold == expected.cold_starts
    assert pings == expected.pings


@sampled(100)
@given(HEDGED)
def test_second_copies_agree_with_the_reference(hedged_case: tuple[Case, float]) -> None:
    """The answering copy, its place and time, and the waste agree for any fleet, history, function and fault."""
    check(*hedged_case)


@pytest.mark.acceptance
@settings(max_examples=500)
@given(HEDGED)
def test_hundreds_of_cases_agree_with_the_reference(hedged_case: tuple[Case, float]) -> None:
    check(*hedged_case)


@settings(max_examples=30)
@given(st.one_of(*(cases(windows=True, routing=one, varies=varies) for one in ROUTINGS for varies in (False, True))))
def test_copies_that_are_never_due_change_nothing(case: Case) -> None:
    """Places and times equal those of the loop that settles batches as they close."""
    plain, with_copies = by_kernel(case)[0], by_kernel(case, hedged(case, 1e12))[0]
    one, other = plain.recording(), with_copies.recording()
    np.testing.assert_array_equal(one.slot, other.slot)
    np.testing.assert_array_equal(one.start_s, other.start_s)
    np.testing.assert_array_equal(one.finish_s, other.finish_s)
    assert with_copies.hedges == (0, 0, 0.0)
    assert with_copies.function_calls() == plain.function_calls()
    assert with_copies.all_busy_s() == pytest.approx(plain.all_busy_s())


@settings(max_examples=40)
@given(HEDGED)
def test_each_request_ends_once_and_waste_is_work(hedged_case: tuple[Case, float]) -> None:
    case, after_s = hedged_case
    stage, _ = by_kernel(case, hedged(case, after_s))
    assert sorted(stage.departures().request) == list(range(len(case.arrivals_s)))
    assert stage.arrived == stage.accounts.departed
    sent, won, wasted_s = stage.hedges
    assert 0 <= won <= sent <= len(case.arrivals_s)
    assert 0.0 <= wasted_s <= stage.all_busy_s() + 1e-9
    if not sent:
        assert wasted_s == 0.0


@pytest.mark.parametrize("routing", ROUTINGS)
def test_cuts_of_time_and_room_change_no_byte(routing: str) -> None:
    """Runs in one go or in pieces, kept or not, with a crash in the middle; hundreds of requests are open together."""
    faults = Faults(slow_share=0.3, slow_s=5.0, slow_factor=2.0, hangs_per_hour=60.0, hang_s=4.0, crashes_per_hour=1.0)
    arrivals = poisson(60.0, 120.0)

    def run(cuts: Floats) -> tuple[object, ...]:
        stage = HedgedStage(
            [candidate([0.05, 0.08, 0.1, 0.12])],
            hedge_after_s=0.2,
            accounts=Accounting(rt_max_s=10.0, end_s=END_S),
            admission=Admission(bouncers=False),
            function=function(0.38, 2.86),
            routing=routing,
            seed=1,
            faults=faults,
            keep=True,
        )
        for number in range(4):
            stage.add(number, 0, 0.0)
        stage.doom(1, 40.0)
        position = 0
        for _, until_s in pairwise([0.0, *np.unique([*cuts.tolist(), 40.0])]):
            position = stage.advance(arrivals, position, until_s)
            if until_s == 40.0:
                stage.crash(1, 40.0)
        stage.advance(arrivals, position, np.inf)
        stage.finish()
        return (*seen(stage), stage.hedges, stage.lost)

    whole = run(np.zeros(0))
    assert run(np.arange(1.0, 120.0, 0.5)) == whole
    assert run(np.random.default_rng(2).uniform(0.0, 120.0, 300)) == whole


# -- by hand -----------------------------------------------------------------------------------------------------------

SERVICE_S, SLOW = 0.1, 10.0
ONE = candidate([SERVICE_S])


def pair(after_s: float, *, seed: int, routing: str = "least-completion") -> HedgedStage:
    """Return two replicas, each always slow or never, by the seed."""
    stage = HedgedStage(
        [ONE],
        hedge_after_s=after_s,
        accounts=Accounting(rt_max_s=100.0, end_s=END_S),
        admission=Admission(bouncers=False),
        routing=routing,
        seed=seed,
        faults=Faults(slow_share=0.5, slow_s=1e12, slow_factor=SLOW),
        keep=True,
    )
    stage.add(0, 0, 0.0)
    stage.add(1, 0, 0.0)
    return stage


def latencies_of(stage: HedgedStage, arrivals: Floats) -> Floats:
    stage.advance(arrivals, 0, np.inf)
    stage.finish()
    return stage.recording().finish_s - arrivals


def seed_with(*slow: bool) -> int:
    """Return a seed with which exactly these of the two replicas are slow."""
    for seed in range(100):
        stage = pair(1e12, seed=seed)
        if tuple(latencies_of(stage, np.zeros(2)) > 2.0 * SERVICE_S) == slow:
            return seed
    raise AssertionError("no such seed")


def test_the_second_copy_answers_for_a_slow_replica() -> None:
    """The first request goes to replica 0, which is slow: it is answered after the delay and one service."""
    seed, first = seed_with(True, False), np.zeros(1)
    np.testing.assert_allclose(latencies_of(pair(1e12, seed=seed), first), SLOW * SERVICE_S)
    stage = pair(0.25, seed=seed)
    np.testing.assert_allclose(latencies_of(stage, first), 0.25 + SERVICE_S)
    assert stage.hedges == (1, 1, pytest.approx(SLOW * SERVICE_S))  # a begun batch is completed
    late = pair(2.0 * SLOW * SERVICE_S, seed=seed)
    np.testing.assert_allclose(latencies_of(late, first), SLOW * SERVICE_S)
    assert late.hedges == (0, 0, 0.0)


def test_the_99th_percentile_of_stragglers_falls() -> None:
    """A random quarter of the requests meets the slow replica: 1 s without copies, the delay and 0.1 s with them."""
    seed = seed_with(False, True)
    arrivals = np.arange(0.0, 4000.0, 2.0)
    plain, with_copies = (
        latencies_of(pair(after_s, seed=seed, routing="power-of-two-choices"), arrivals) for after_s in (1e12, 0.15)
    )
    assert np.quantile(plain, 0.99) == pytest.approx(SLOW * SERVICE_S)
    assert np.quantile(with_copies, 0.99) == pytest.approx(0.15 + SERVICE_S)
    assert set(np.round(with_copies, 9)) == {SERVICE_S, 0.15 + SERVICE_S}


def two_of_one_second() -> HedgedStage:
    stage = HedgedStage(
        [candidate([1.0])],
        hedge_after_s=0.5,
        accounts=Accounting(rt_max_s=100.0, end_s=END_S),
        admission=Admission(bouncers=False),
        keep=True,
    )
    stage.add(0, 0, 0.0)
    stage.add(1, 0, 0.0)
    return stage


def test_requests_that_ended_give_their_places_back() -> None:
    """Three requests come at a time, whose copies wait and leave their queues: memory does not grow with them."""
    stage = two_of_one_second()
    latencies_of(stage, np.repeat(np.arange(100) * 10.0, 3))
    assert stage.hedges[0] > 100
    assert len(stage._copies.arrival_s) == 64


def test_a_copy_that_waits_leaves_its_queue() -> None:
    """Batches of one that take 1 s: at 1 s the copies of the first two leave, and both replicas begin the third."""
    stage = two_of_one_second()
    latencies_of(stage, np.array([0.0, 0.0, 0.0, 1.5]))
    recording = stage.recording()
    assert recording.slot.tolist() == [0, 1, 0, 0]
    assert recording.finish_s.tolist() == [1.0, 1.0, 2.0, 3.0]
    # Both copies of the third and fourth ran, and ended at the same time.
    assert stage.hedges == (4, 0, 2.0)


def test_second_copies_have_the_budget_of_second_attempts() -> None:
    """The budget is a burst, then a fifth of all requests."""
    count, expected, budget = 4000, 0, second_attempts.BURST
    for _ in range(count):
        budget = min(second_attempts.BURST, budget + second_attempts.SHARE)
        if budget >= 1.0:
            budget -= 1.0
            expected += 1
    stage = pair(0.05, seed=seed_with(False, False), routing="power-of-two-choices")
    latencies_of(stage, np.arange(count, dtype=np.float64))
    assert stage.hedges[0] == expected < 0.35 * count


def test_a_balancer_sends_no_second_copies() -> None:
    with pytest.raises(ValueError, match="second copies"):
        pair(1.0, seed=0, routing="alb")


def test_limits_by_request_and_second_copies_do_not_mix() -> None:
    with pytest.raises(ValueError, match="one limit"):
        pair(1.0, seed=0).advance(np.zeros(1), 0, np.inf, np.ones(1))


def test_a_replica_that_is_resumed_has_answered_before() -> None:
    """This holds even if its batch takes longer than stopping and booting."""
    stage = pair(1e12, seed=seed_with(True, False))
    stage.advance(np.zeros(1), 0, 0.1)
    stage.remove(0, 0.1)
    stage.add(0, 0, 0.2)
    stage.advance(np.array([0.2]), 0, np.inf)
    stage.finish()
    assert stage.recording().finish_s.tolist() == pytest.approx([1.0, 1.2])


def test_a_crash_leaves_what_another_copy_answers() -> None:
    """The first copy runs on the crashing replica, the second waits elsewhere: no request is lost or repeated."""
    stage = HedgedStage(
        [candidate([1.0])],
        hedge_after_s=0.25,
        accounts=Accounting(rt_max_s=100.0, end_s=END_S),
        admission=Admission(bouncers=False),
        faults=Faults(crashes_per_hour=1.0),
        keep=True,
    )
    stage.add(0, 0, 0.0)
    stage.add(1, 0, 0.0)
    stage.doom(0, 0.5)
    stage.advance(np.zeros(2), 0, 0.5)
    stage.crash(0, 0.5)
    stage.finish()
    recording = stage.recording()
    assert recording.slot.tolist() == [1, 1]
    assert recording.finish_s.tolist() == [2.0, 1.0]
    assert (stage.lost, stage.hedges) == ((0, 0), (2, 1, 0.0))
