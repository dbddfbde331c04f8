"""The stage as a whole: no request is lost, numbers are exact, cuts of time and repetition change nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.kernel.accounting import Accounting
from mark.kernel.departures import by_request
from mark.kernel.stage import ROUTING, Admission, StageSimulation
from tests.kernel.reference import Case, World, candidate, function
from tests.kernel.test_reference import by_kernel, cases
from tests.samples import sampled

Floats = NDArray[np.float64]

GPU = candidate([0.0431 + 0.0145 * b for b in range(8)])  # Inception-v3 on p2.xlarge, roughly
CPU = candidate([0.2113], overhead_s=0.01)
RT_MAX_S = 0.6
MINUTES_S = 300.0


def poisson(rate_rps: float, end_s: float = MINUTES_S, seed: int = 1) -> Floats:
    times = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, int(2 * rate_rps * end_s) + 10))
    return times[times < end_s]


def stage_of(
    fleet: list[int],
    arrivals: Floats,
    *,
    sigma: float = 0.0,
    overflow: bool = True,
    bouncers: bool = True,
    routing: str = "least-completion",
    seed: int = 0,
    recent: int = 1000,
    least: float = 0.0,
) -> StageSimulation:
    """Return a stage that is ready from 0 on: replica i is of kind `fleet[i]`, 0 a GPU and 1 a CPU."""
    stage = StageSimulation(
        [replace(GPU, sigma=sigma), replace(CPU, sigma=sigma)],
        accounts=Accounting(rt_max_s=RT_MAX_S, end_s=MINUTES_S, recent=recent),
        admission=Admission(bouncers=bouncers, least_in_time=least),
        function=function(0.38, 2.86, concurrency=50, ramp_per_10s=20.0) if overflow else None,
        routing=routing,
        seed=seed,
        keep=True,
    )
    for number, kind in enumerate(fleet):
        stage.add(number, kind, 0.0)
    return stage


def seen(stage: StageSimulation) -> tuple[object, ...]:
    """Return all outputs of a stage, as bytes and numbers."""
    recording = stage.recording()
    arrays = (
        *(recording.slot, recording.start_s, recording.finish_s),
        *stage.accounts.minutes(),
        *stage.accounts.ccdf(),
        stage.accounts.fine_counts(),
    )
    accounts = stage.accounts
    numbers = (accounts.by_functions, accounts.rejected, accounts.late, stage.arrived, stage.function_calls())
    latencies = (accounts.latency_mean_s(), accounts.latency_max_s(), accounts.latency_quantile_s(0.98))
    return (*(a.tobytes() for a in arrays), *numbers, *latencies, stage.accounts.recent(), stage.function_usd())


@sampled(120)
@given(
    st.one_of(*(cases(windows=True, routing=routing, faulty=faulty) for routing in ROUTING for faulty in (False, True)))
)
def test_requests_are_conserved(case: Case) -> None:
    """Arrived = instances + functions + refused, in total, by minute and in the histogram; each is answered once.

    Also where replicas are slow, hang and crash.
    """
    stage, _ = by_kernel(case)
    departed = stage.departures()
    assert sorted(departed.request) == list(range(len(case.arrivals_s)))
    recording = by_request(departed, stage.arrived)
    slot, latencies = recording.slot, recording.finish_s - np.array(case.arrivals_s)
    assert (
        stage.arrived
        == len(case.arrivals_s)
        == stage.by_instances + stage.accounts.by_functions + stage.accounts.rejected
    )
    assert stage.by_instances == (slot >= 0).sum()
    assert stage.accounts.by_functions == (slot == -1).sum()
    assert stage.accounts.rejected == (slot == -2).sum()
    good = latencies <= case.rt_max_s + 1e-6
    assert stage.accounts.late == (np.isfinite(latencies) & ~good).sum()
    total, in_time, by_functions = stage.accounts.minutes()
    minute = (np.array(case.arrivals_s) // 60.0).astype(int)
    np.testing.assert_array_equal(total, np.bincount(minute, minlength=len(total)))
    np.testing.assert_array_equal(in_time, np.bincount(minute, weights=good, minlength=len(total)))
    np.testing.assert_array_equal(by_functions, np.bincount(minute, weights=slot == -1, minlength=len(total)))
    assert stage.accounts.fine_counts().sum() == stage.arrived
    assert stage.accounts.recent() == (len(good), good.sum())
    slower, share = stage.accounts.ccdf()
    if stage.by_instances + stage.accounts.by_functions:
        assert share[-1] == pytest.approx(0.0, abs=1e-12)
        assert latencies[np.isfinite(latencies)].max() <= slower[-1]
    busy = sum(stage.busy_s(n) for n in {c.number for c in case.changes if c.what == "add"})
    # A crashing replica may have worked on requests that it never answered.
    assert (busy > 0.0) == (stage.by_instances > 0) or stage.lost[0] > 0


@sampled(150)
@given(cases(windows=True))
def test_a_promise_is_kept(case: Case) -> None:
    """An admitted request is answered within RT_max, whatever joins later or drains, however slow functions are."""
    steady = tuple(c for c in case.changes if c.what != "speed")
    case = replace(case, bouncers=True, changes=steady)
    stage, _ = by_kernel(case)
    promised = World(case).run().promised
    latencies = stage.recording().finish_s - np.array(case.arrivals_s)
    assert (latencies[promised] <= case.rt_max_s + 2e-6).all()
    if case.function is None:
        assert stage.accounts.late == 0


@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_percentiles_are_exact_to_a_thousandth(sigma: float) -> None:
    """They are compared with the recorded latencies, at every reported share and many more."""
    arrivals = poisson(180.0)
    stage = stage_of([0, 0, 0, 1], arrivals, sigma=sigma, seed=3)
    stage.advance(arrivals, 0, np.inf)
    stage.finish()
    latencies = stage.recording().finish_s - arrivals
    answered = latencies[np.isfinite(latencies)]
    for share in (0.001, 0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0):
        true = np.quantile(answered, share, method="inverted_cdf")
        assert stage.accounts.latency_quantile_s(share) == pytest.approx(true, rel=1e-3)
    assert stage.accounts.latency_mean_s() == pytest.approx(answered.mean(), rel=1e-12)
    assert stage.accounts.latency_max_s() == pytest.approx(answered.max(), abs=1e-9)
    slower, share_slower = stage.accounts.ccdf()
    for latency, share in list(zip(slower, share_slower, strict=True))[:: len(slower) // 20]:
        assert share == pytest.approx((answered >= latency).mean(), abs=1e-12)


def test_without_answers_numbers_are_undefined() -> None:
    """They are None, which JSON shows as null."""
    stage = StageSimulation([GPU], accounts=Accounting(rt_max_s=RT_MAX_S, end_s=60.0))
    stage.advance(np.array([1.0]), 0, np.inf)
    stage.finish()
    assert (
        stage.accounts.latency_mean_s()
        is stage.accounts.latency_max_s()
        is stage.accounts.latency_quantile_s(0.5)
        is None
    )
    assert [len(a) for a in stage.accounts.ccdf()] == [0, 0]
    assert stage.accounts.rejected == 1


@pytest.mark.parametrize("routing", ROUTING)
def test_one_seed_same_bytes(routing: str) -> None:
    """Everything a stage tells is a function of arrivals, fleet and seed; another seed differs."""
    arrivals = poisson(150.0)

    def run(seed: int) -> tuple[object, ...]:
        stage = stage_of([0, 0, 1, 1], arrivals, sigma=0.3, routing=routing, seed=seed)
        stage.advance(arrivals, 0, np.inf)
        stage.finish()
        return seen(stage)

    assert run(5) == run(5)
    assert run(5) != run(6)


@pytest.mark.parametrize("bouncers", [True, False])
def test_cuts_of_time_change_nothing(bouncers: bool) -> None:
    """Runs in one go, every 5 s, every 60 s, at random times or with arrivals in pieces give the same bytes."""
    arrivals = poisson(150.0)

    def run(cuts: Floats, pieces: bool = False) -> tuple[object, ...]:
        stage = stage_of([0, 0, 1, 1], arrivals, sigma=0.3, bouncers=bouncers)
        position = 0
        for start, until in pairwise([0.0, *cuts.tolist(), np.inf]):
            if pieces:
                piece = arrivals[(arrivals >= start) & (arrivals < until)]
                assert stage.advance(piece, 0, until) == len(piece)
            else:
                position = stage.advance(arrivals, position, until)
                assert position == np.searchsorted(arrivals, until)
        stage.finish()
        return seen(stage)

    whole = run(np.zeros(0))
    random = np.sort(np.random.default_rng(2).uniform(0.0, MINUTES_S, 500))
    assert run(np.arange(5.0, MINUTES_S, 5.0)) == whole
    assert run(np.arange(60.0, MINUTES_S, 60.0)) == whole
    assert run(random) == whole
    assert run(random, pieces=True) == whole
    assert run(arrivals[::100]) == whole  # cuts at the very times of arrivals


def test_whole_seconds_and_slices_are_taken_like_others() -> None:
    """The types of the first call hold for all: an int counts as a float, a slice as an array."""
    arrivals = poisson(50.0)
    stage, other = stage_of([0, 1], arrivals), stage_of([0, 1], arrivals)
    position = stage.advance(arrivals, 0, 60)
    assert stage.advance(arrivals, position, 90.5) == np.searchsorted(arrivals, 90.5)
    twice = np.repeat(arrivals[arrivals < 90.5], 2)
    other.advance(twice[:2], 0, 0.0)
    other.advance(twice[::2], 0, 90.5)
    stage.finish()
    other.finish()
    assert seen(stage) == seen(other)


def test_draining_loses_nothing() -> None:
    """All replicas are drained with long queues: queued requests are answered, later ones are refused."""
    arrivals = poisson(400.0, 20.0)
    stage = stage_of([0, 0, 1], arrivals, overflow=False, bouncers=False)
    position = stage.advance(arrivals, 0, 10.0)
    for number in (0, 1, 2, 2):  # repeatable
        stage.drain(number, 10.0)
    stage.advance(arrivals, position, np.inf)
    stage.finish()
    recording = stage.recording()
    assert stage.by_instances == position
    assert np.isfinite(recording.finish_s[:position]).all()
    assert (recording.slot[position:] == -2).all()
    for number, overhead_s in ((0, 0.0), (1, 0.0), (2, 0.01)):
        last = recording.finish_s[recording.slot == number].max()
        assert last > 12.0
        assert stage.idle_at(number) == pytest.approx(last - overhead_s, abs=1e-9)


def test_a_drained_replica_gets_nothing_until_it_is_resumed() -> None:
    """Draining is for routing; `add` brings the same number back."""
    arrivals = np.arange(0.5, 30.0, 0.5)
    stage = stage_of([0, 1], arrivals)
    position = stage.advance(arrivals, 0, 10.0)
    stage.remove(0, 10.0)
    position = stage.advance(arrivals, position, 20.0)
    stage.add(0, 0, 20.0)
    stage.advance(arrivals, position, np.inf)
    stage.finish()
    slot = stage.recording().slot
    np.testing.assert_array_equal(slot, np.where((arrivals < 10.0) | (arrivals >= 20.0), 0, 1))


def test_a_replica_takes_nothing_before_it_is_ready() -> None:
    """Added at 0 for 5 s: nothing starts earlier, and a bouncer counts the wait."""
    stage = StageSimulation([CPU], accounts=Accounting(rt_max_s=RT_MAX_S, end_s=60.0), keep=True)
    stage.add(0, 0, 5.0)
    stage.advance(np.array([1.0, 4.9, 6.0]), 0, np.inf)
    stage.finish()
    assert stage.recording().slot.tolist() == [-2, 0, 0]
    assert stage.recording().start_s.tolist()[1:] == [5.0, 6.0]


def test_speed_holds_from_the_next_batch_on() -> None:
    """A batch under way or due keeps its pace; the next takes 1 / factor times as long, until speed is restored."""
    arrivals = np.array([0.0, 0.01, 1.0, 2.0])
    stage = stage_of([0], arrivals, overflow=False, bouncers=False)
    position = stage.advance(arrivals, 0, 0.5)  # the second batch was due at 0.0431, though not considered since
    stage.set_speed(0, 0.25, 0.5)
    position = stage.advance(arrivals, position, 1.5)
    stage.set_speed(0, 1.0, 1.5)
    stage.advance(arrivals, position, np.inf)
    stage.finish()
    recording = stage.recording()
    taken = recording.finish_s - recording.start_s
    assert taken == pytest.approx([0.0431, 0.0431, 4 * 0.0431, 0.0431])


def test_slowed_and_drained_in_one_tick_of_a_large_fleet() -> None:
    """Between two advances a replica may change its kind and drain: the trees of the new kind are not laid out yet."""
    arrivals = poisson(20_000.0, 2.0)
    stage = stage_of([0] * 500, arrivals, overflow=False, bouncers=False)
    stage.set_speed(0, 0.5, 0.0)
    position = stage.advance(arrivals, 0, 1.0)
    for number in range(0, 500, 7):
        stage.set_speed(number, 0.5, 1.0)
        stage.drain(number, 1.0)
    stage.advance(arrivals, position, np.inf)
    stage.finish()
    assert stage.by_instances == len(arrivals)
    assert np.isfinite(stage.recording().finish_s).all()


def test_a_shorter_horizon_is_a_shorter_promise() -> None:
    """Spot: no promise exceeds the time after a notice, here 0.3 s of an RT_max of 0.6 s."""
    arrivals = poisson(200.0, 60.0)
    stage = StageSimulation(
        [GPU], accounts=Accounting(rt_max_s=RT_MAX_S, end_s=60.0), admission=Admission(horizons_s=[0.3]), keep=True
    )
    stage.add(0, 0, 0.0)
    stage.advance(arrivals, 0, np.inf)
    stage.finish()
    latencies = stage.recording().finish_s - arrivals
    assert stage.accounts.rejected > 0
    assert 0.25 < latencies[np.isfinite(latencies)].max() <= 0.3 + 1e-6


def test_routing_that_knows_less_of_queues_waits_longer() -> None:
    """At load 0.9 on 20 replicas the mean wait is least by completion, then by counting, then by asking two.

    All are far below the wait of a random choice, which is that of M/D/1.
    """
    service_s, replicas, load = 0.1, 20, 0.9
    arrivals = poisson(load * replicas / service_s, 2000.0)

    def mean_wait(routing: str) -> tuple[float, Floats]:
        stage = StageSimulation(
            [candidate([service_s])],
            accounts=Accounting(rt_max_s=9.0, end_s=2000.0),
            admission=Admission(bouncers=False),
            routing=routing,
        )
        for number in range(replicas):
            stage.add(number, 0, 0.0)
        stage.advance(arrivals, 0, np.inf)
        stage.finish()
        mean_s = stage.accounts.latency_mean_s() or 0.0
        return mean_s - service_s, np.array([stage.busy_s(n) for n in range(replicas)])

    best, _ = mean_wait("least-completion")
    counted, _ = mean_wait("fewest-in-flight")
    two, busy = mean_wait("power-of-two-choices")
    chance = load * service_s / (2.0 * (1.0 - load))
    assert best < counted < two < 0.3 * chance
    np.testing.assert_allclose(busy, busy.mean(), rtol=0.02)


@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_a_function_in_time_gets_doubtful_requests(sigma: float) -> None:
    """Fewer requests are late because of it; with certain times nothing is doubtful, and nothing changes."""
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1.0 / 8.0, 2000))
    plain, valued = (stage_of([1, 1], arrivals, sigma=sigma, least=least) for least in (0.0, 0.95))
    for stage in (plain, valued):
        stage.advance(arrivals, 0, np.inf)
        stage.finish()
    if sigma == 0.0:
        assert seen(plain) == seen(valued)
    else:
        assert valued.accounts.by_functions > plain.accounts.by_functions
        assert valued.accounts.late < 0.7 * plain.accounts.late


@pytest.mark.parametrize("overflow", ["none", "late"])
def test_doubtful_requests_stay_without_a_function_in_time(overflow: str) -> None:
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1.0 / 8.0, 2000))
    use = function(0.7, 0.0) if overflow == "late" else None
    plain, valued = (
        StageSimulation(
            [replace(CPU, sigma=0.4)],
            accounts=Accounting(rt_max_s=RT_MAX_S, end_s=MINUTES_S),
            admission=Admission(least_in_time=least),
            function=use,
            keep=True,
        )
        for least in (0.0, 0.95)
    )
    for stage in (plain, valued):
        for number in range(2):
            stage.add(number, 0, 0.0)
        stage.advance(arrivals, 0, np.inf)
        stage.finish()
    assert seen(plain) == seen(valued)


def test_a_probability_lies_between_0_and_1() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInput):
            stage_of([1], np.zeros(0), least=wrong)
        with pytest.raises(BadInput):
            StageSimulation([CPU], accounts=Accounting(rt_max_s=0.5, end_s=1.0), admission=Admission(late_share=wrong))


@pytest.mark.parametrize("routing", ["alb", "fewest-in-flight"])
def test_requests_in_flight_are_those_that_arrived_and_are_not_answered(routing: str) -> None:
    """Counted request by request, also while queues are long, and of an instance that no longer takes requests."""
    stage = stage_of([0, 1], arrivals := poisson(48.0), overflow=False, bouncers=False, routing=routing)
    counted = []
    for at_s in (50.0, 120.0, 250.0, 299.0):
        stage.advance(arrivals, stage.arrived, at_s)
        counted.append(stage.in_flight(at_s))
        if at_s == 120.0:
            stage.drain(1, at_s)
    stage.advance(arrivals, stage.arrived, np.inf)
    stage.finish()
    rows = stage.departures()
    answered_s = rows.arrival_s + rows.latency_s
    expected = [int(((rows.arrival_s < t) & (answered_s > t)).sum()) for t in (50.0, 120.0, 250.0, 299.0)]
    assert counted == expected
    assert max(expected) > 5


def test_requests_in_flight_are_unknown_where_routing_counts_none() -> None:
    assert stage_of([0], poisson(1.0)).in_flight(1.0) is None
