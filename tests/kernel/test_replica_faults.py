"""Slow periods, hangs and crashes: closed forms, separate random streams, and the fate of requests in a crash."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.domain.faults import Faults
from mark.domain.rules import second_attempts
from mark.kernel.accounting import Accounting
from mark.kernel.stage import LEARNING, ROUTING, Admission, StageSimulation
from tests.kernel.reference import Case, candidate, function
from tests.kernel.test_reference import by_kernel, cases
from tests.kernel.test_stage import poisson, seen

Floats = NDArray[np.float64]

SERVICE_S = 0.1
END_S = 1e6


def stage_of(
    faults: Faults, *, replicas: int = 1, batch: int = 1, rt_max_s: float | None = None, **more: Any
) -> StageSimulation:
    """Return replicas that take SERVICE_S for a batch of any size; bouncers exist only if an RT_max is given."""
    options: dict[str, Any] = {"seed": 1, "keep": True, **more}
    stage = StageSimulation(
        [candidate([SERVICE_S] * batch)],
        accounts=Accounting(rt_max_s=10.0 if rt_max_s is None else rt_max_s, end_s=END_S),
        admission=Admission(bouncers=rt_max_s is not None),
        faults=faults,
        **options,
    )
    for number in range(replicas):
        stage.add(number, 0, 0.0)
    return stage


def mean_wait(stage: StageSimulation, arrivals: Floats) -> float:
    stage.advance(arrivals, 0, np.inf)
    stage.finish()
    return float((stage.recording().start_s - arrivals).mean())


def pollaczek(rate: float, mean_s: float, square_s2: float) -> float:
    """Return the mean wait in M/G/1 (Pollaczek-Khinchine)."""
    return rate * square_s2 / (2.0 * (1.0 - rate * mean_s))


# -- closed forms ------------------------------------------------------------------------------------------------------


def test_short_slow_periods_make_an_mg1_queue() -> None:
    """Periods are far shorter than a service, so each batch is slow with the share of time as probability."""
    share, factor, add_s, rate = 0.2, 2.0, 0.05, 4.0
    stage = stage_of(Faults(slow_share=share, slow_s=2e-3, slow_factor=factor, slow_add_s=add_s))
    slow_s = factor * SERVICE_S + add_s
    mean_s = (1.0 - share) * SERVICE_S + share * slow_s
    expected = pollaczek(rate, mean_s, (1.0 - share) * SERVICE_S**2 + share * slow_s**2)
    arrivals = poisson(rate, 60_000.0)
    assert mean_wait(stage, arrivals) == pytest.approx(expected, rel=0.03)
    assert stage.busy_s(0) / len(arrivals) == pytest.approx(mean_s, rel=0.01)


def test_long_slow_periods_make_two_queues() -> None:
    """Periods are far longer than a busy time: M/D/1 at one pace, then at the other, by their shares of the time."""
    share, factor, rate = 0.3, 1.5, 4.0
    stage = stage_of(Faults(slow_share=share, slow_s=200.0, slow_factor=factor))
    calm, slow = (pollaczek(rate, d, d * d) for d in (SERVICE_S, factor * SERVICE_S))
    arrivals = poisson(rate, 400_000.0)
    assert mean_wait(stage, arrivals) == pytest.approx((1.0 - share) * calm + share * slow, rel=0.04)


def test_hangs_take_their_share_of_the_time() -> None:
    """A worker that is never without work ends 1 / (1 + rate x length) of the batches that it would end."""
    stage = stage_of(Faults(hangs_per_hour=3600.0 / 20.0, hang_s=5.0))
    batches = 200_000
    stage.advance(np.zeros(batches), 0, np.inf)
    stage.finish()
    assert stage.recording().finish_s[-1] == pytest.approx(batches * SERVICE_S * (1.0 + 5.0 / 20.0), rel=0.01)


def test_replicas_of_a_host_group_are_slow_together() -> None:
    """Four replicas form groups of two, and each group has different periods."""
    stage = stage_of(Faults(slow_share=0.5, slow_s=50.0, slow_factor=2.0, host_group=2), replicas=4)
    arrivals = np.repeat(np.arange(1.0, 5000.0), 4)  # one for each
    stage.advance(arrivals, 0, np.inf)
    stage.finish()
    recording = stage.recording()
    slow = (recording.finish_s - recording.start_s > 1.5 * SERVICE_S).reshape(-1, 4)
    by_replica = np.take_along_axis(slow, np.argsort(recording.slot.reshape(-1, 4), axis=1), axis=1)
    a, b, c, d = by_replica.T
    assert (a == b).all()
    assert (c == d).all()
    assert 0.4 < (a == c).mean() < 0.6
    assert 0.4 < a.mean() < 0.6


# -- streams -----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.one_of(*(cases(windows=True, routing=routing) for routing in ROUTING)), st.sampled_from([0.0, 0.3]))
def test_faults_that_do_not_come_change_no_byte(case: Case, sigma: float) -> None:
    """In a world where replicas could crash and hang but never do, all draws are as without faults.

    A gateway whose replicas can hang learns from their answers, and does not see their queues.
    """
    case = replace(case, candidates=tuple(replace(one, sigma=sigma) for one in case.candidates))
    could = Faults(hangs_per_hour=0.0 if case.routing in LEARNING else 1e-12, crashes_per_hour=1e-12)
    assert seen(by_kernel(replace(case, faults=could))[0]) == seen(by_kernel(case)[0])


@pytest.mark.parametrize("routing", ROUTING)
def test_with_faults_cuts_of_time_change_no_byte(routing: str) -> None:
    """The run is made in one go or in pieces, with a crash in the middle; another seed has other faults."""
    faults = Faults(slow_share=0.3, slow_s=5.0, slow_factor=2.0, hangs_per_hour=60.0, hang_s=2.0, crashes_per_hour=1.0)
    arrivals = poisson(30.0, 300.0)

    def run(cuts: Floats, seed: int = 1) -> tuple[object, ...]:
        stage = stage_of(faults, replicas=4, rt_max_s=0.6, routing=routing, seed=seed, function=function(0.38, 2.86))
        stage.doom(1, 100.0)
        position = 0
        for _, until_s in pairwise([0.0, *np.unique([*cuts.tolist(), 100.0])]):
            position = stage.advance(arrivals, position, until_s)
            if until_s == 100.0:
                stage.crash(1, 100.0)
        stage.advance(arrivals, position, np.inf)
        stage.finish()
        return seen(stage)

    whole = run(np.zeros(0))
    assert run(np.arange(5.0, 300.0, 5.0)) == whole
    assert run(np.random.default_rng(2).uniform(0.0, 300.0, 500)) == whole
    assert run(np.zeros(0), seed=2) != whole


# -- requests in a crash
# ------------------------------------------------------------------------------------------------

CRASHES = Faults(crashes_per_hour=1.0)


def test_a_crash_takes_what_is_not_answered() -> None:
    """Running, queued and open requests all ask another replica at that moment, in their order of arrival."""
    stage = stage_of(CRASHES, batch=2)
    stage.doom(0, 0.15)
    arrivals = np.array([0.0, 0.01, 0.02, 0.03])
    assert stage.advance(arrivals, 0, 0.15) == 4
    stage.add(1, 0, 0.15)
    stage.crash(0, 0.15)
    stage.finish()
    recording = stage.recording()
    assert recording.slot.tolist() == [0, 1, 1, 1]
    assert recording.finish_s == pytest.approx([0.1, 0.25, 0.35, 0.35])
    assert stage.lost == (3, 3)
    assert stage.accounts.latency_max_s() == pytest.approx(0.33)  # from when it first came
    assert stage.busy_s(0) == pytest.approx(0.15)
    assert stage.idle_at(0) == 0.15


def test_behind_an_alb_the_client_hears_of_it() -> None:
    """A request gets no second attempt and no function, so it is never answered."""
    stage = stage_of(CRASHES, replicas=2, routing="alb", function=function(0.1, 0.1))
    stage.doom(0, 0.05)
    stage.advance(np.zeros(2), 0, 0.05)
    stage.crash(0, 0.05)
    stage.finish()
    assert sorted(stage.recording().slot.tolist()) == [-2, 1]
    assert (stage.accounts.rejected, stage.lost) == (1, (1, 0))


@pytest.mark.parametrize(("has_function", "slot"), [(True, -1), (False, -2)])
def test_what_is_lost_twice_is_not_asked_again(has_function: bool, slot: int) -> None:
    """If there is a function it answers, immediately and in its usual time."""
    stage = stage_of(CRASHES, function=function(0.2, 0.0) if has_function else None)
    stage.doom(0, 0.05)
    stage.advance(np.zeros(1), 0, 0.05)
    stage.add(1, 0, 0.05)
    stage.doom(1, 0.1)
    stage.crash(0, 0.05)
    stage.crash(1, 0.1)
    stage.finish()
    recording = stage.recording()
    assert recording.slot.tolist() == [slot]
    assert recording.finish_s.tolist() == [pytest.approx(0.3) if has_function else np.inf]
    assert stage.lost == (2, 1)


def test_second_attempts_have_a_budget() -> None:
    """The budget is a burst, then a share of all requests; requests beyond it are refused without a function."""
    waiting = 800
    stage = stage_of(CRASHES, replicas=2)
    stage.doom(0, 1.0)
    stage.doom(1, 2.0)
    stage.advance(np.zeros(2 * waiting), 0, 1.0)  # ten are answered
    stage.crash(0, 1.0)
    assert stage.lost == (waiting - 10, second_attempts.BURST)
    stage.add(2, 0, 2.0)
    stage.crash(1, 2.0)
    assert stage.lost[1] == second_attempts.BURST  # no request came in between
    stage.add(3, 0, 2.0)
    stage.doom(3, 3.0)
    stage.advance(np.full(50, 2.0), 0, 3.0)
    stage.crash(3, 3.0)
    assert stage.lost[1] == second_attempts.BURST + 50 * second_attempts.SHARE
    stage.finish()
    assert stage.arrived == stage.by_instances + stage.accounts.rejected == stage.accounts.departed


def test_what_leaves_before_its_crash_answers() -> None:
    """Even if it is removed with a batch under way, accepted requests are answered, as without crashes."""
    stage = stage_of(CRASHES)
    stage.doom(0, 0.05)
    stage.advance(np.zeros(2), 0, 0.01)
    stage.remove(0, 0.01)
    stage.finish()
    assert stage.recording().finish_s.tolist() == [0.1, 0.2]
    stage.add(0, 0, 1.0)  # resumed: the crash is void
    stage.advance(np.array([1.0]), 0, np.inf)
    stage.finish()
    assert stage.recording().finish_s[2] == pytest.approx(1.1)


def test_a_second_attempt_has_what_is_left_of_its_limit() -> None:
    """For calls of a pipeline's queries, a call that cannot be in time any more is refused."""
    stage = stage_of(CRASHES, rt_max_s=1.0)
    stage.doom(0, 0.05)
    stage.advance(np.zeros(2), 0, 0.05, np.array([0.2, 0.1 + SERVICE_S]))
    stage.add(1, 0, 0.05)
    stage.crash(0, 0.05)
    stage.finish()
    recording = stage.recording()
    assert recording.slot.tolist() == [1, -2]
    assert recording.finish_s.tolist() == [pytest.approx(0.15), np.inf]
    assert recording.start_s[1] == 0.05, "it is refused when its instance crashed"


def test_answers_are_late_where_workers_are_not() -> None:
    """The worker takes the next batch, and is not busy with answers on their way."""
    faults = Faults(slow_share=1.0 - 1e-9, slow_s=1e9, slow_answer_s=0.25)
    stage = stage_of(faults)
    stage.advance(np.zeros(3), 0, np.inf)
    stage.finish()
    recording = stage.recording()
    assert recording.start_s == pytest.approx([0.0, 0.1, 0.2])
    assert recording.finish_s == pytest.approx([0.35, 0.45, 0.55])
    assert stage.busy_s(0) == pytest.approx(0.3)


def test_replicas_on_one_instance_are_slow_at_the_same_times() -> None:
    """Stages that share instances have different seeds, and one seed of faults."""
    faults = Faults(slow_share=0.5, slow_s=20.0, slow_factor=2.0)
    arrivals = np.arange(0.0, 400.0)
    took_s = []
    for seed, fault_seed in ((1, 7), (2, 7), (2, None)):
        stage = stage_of(faults, seed=seed, fault_seed=fault_seed)
        stage.advance(arrivals, 0, np.inf)
        stage.finish()
        took_s.append(stage.recording().finish_s - arrivals)
    assert (took_s[0] == took_s[1]).all()
    assert (took_s[0] != took_s[2]).any()
