"""The kernel against the plain reference, request by request, on small random cases.

Times are multiples of a power of two, so that all sums are exact: ties are true ties, and every comparison can be
for the same server, not for a similar latency. A coarse grid makes ties the rule, a fine one makes them rare.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.faults import Faults
from mark.domain.profile import Candidate
from mark.domain.rules.admission import FUNCTION, REJECT
from mark.kernel.accounting import Accounting
from mark.kernel.stage import ROUTING, Admission, StageSimulation
from tests.kernel.reference import Case, Change, World, candidate, function
from tests.samples import sampled

END_S = 1e4


def empty_stage(case: Case) -> StageSimulation:
    """Return the stage before the case's first change."""
    return StageSimulation(
        case.candidates,
        accounts=Accounting(rt_max_s=case.rt_max_s, end_s=END_S),
        admission=Admission(
            bouncers=case.bouncers, late=case.late, least_in_time=case.least, late_share=case.late_share
        ),
        function=case.function,
        routing=case.routing,
        seed=case.seed,
        classes=case.classes or None,
        faults=case.faults,
        keep=True,
    )


def by_kernel(case: Case, stage: StageSimulation | None = None) -> tuple[StageSimulation, list[int]]:
    """Run the case as the simulated cloud would drive it: advance to each change, make it, go on."""
    stage = empty_stage(case) if stage is None else stage
    arrivals = np.array(case.arrivals_s)
    limits = np.array(case.limits_s) if case.limits_s else None
    position = 0
    pings = []
    for change in case.changes:
        position = stage.advance(arrivals, position, change.at_s, limits)
        if change.what == "add":
            stage.add(change.number, change.candidate, change.at_s)
            for crash in case.changes:
                if crash.what == "crash" and crash.number == change.number:
                    stage.doom(change.number, crash.at_s)
        elif change.what == "drain":
            stage.drain(change.number, change.at_s)
        elif change.what == "speed":
            stage.set_speed(change.number, change.speed, change.at_s)
        elif change.what == "crash":
            stage.crash(change.number, change.at_s)
        else:
            pings.append(stage.warm(change.at_s, change.environments))
    assert stage.advance(arrivals, position, np.inf, limits) == len(arrivals)
    stage.finish()
    return stage, pings


def check(case: Case) -> None:
    stage, pings = by_kernel(case)
    recording = stage.recording()
    expected = World(case).run()
    np.testing.assert_array_equal(recording.slot, expected.slot)
    np.testing.assert_allclose(recording.start_s, expected.start_s, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(recording.finish_s, expected.finish_s, rtol=0.0, atol=1e-9)
    assert stage.function_calls().cold == expected.cold_starts
    assert pings == expected.pings


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    windows: bool,
    routing: str = "least-completion",
    limits: bool = False,
    faulty: bool = False,
    varies: bool = False,
) -> Case:
    # `unit` ticks make one step of the coarse grid: 1 makes nearly everything tie, 1009 nearly nothing
    unit = draw(st.sampled_from([1, 4, 1009]))
    tick = draw(st.sampled_from([2.0**-3, 2.0**-6])) / (1 if unit < 1009 else 1024)

    def ticks(low: int, high: int) -> float:
        return tick * draw(st.integers(low * unit, high * unit))

    def some_candidate() -> Candidate:
        if draw(st.booleans()):  # batching pays: a fixed part and a part for each request
            fixed, each = ticks(1, 8), ticks(0, 3)
            table = [fixed + each * b for b in range(1, draw(st.integers(1, 8)) + 1)]
        else:
            table = [max(tick, ticks(0, 10)) for _ in range(draw(st.integers(1, 4)))]
        return candidate(
            table,
            window_s=ticks(0, 12) if windows else 0.0,
            workers=draw(st.integers(1, 3)),
            overhead_s=draw(st.sampled_from([0.0, 2 * tick])),
            sigma=draw(st.sampled_from([0.0, 0.2, 0.5, 1.2])) if varies else 0.0,
        )

    candidates = tuple(some_candidate() for _ in range(draw(st.integers(1, 3))))
    overflow = None
    if draw(st.booleans()):
        overflow = function(
            max(tick, ticks(1, 60)),
            ticks(0, 20),
            concurrency=draw(st.integers(1, 6)),
            ramp_per_10s=10.0 * draw(st.sampled_from([0.125, 1.0, 64.0])),
            burst=draw(st.sampled_from([0.0, 2.0, 5.0])),
            keep_alive_s=ticks(0, 60),
        )
    largest_gap = draw(st.sampled_from([0, 1, 3, 10, 60]))
    now = 0.0
    arrivals = []
    for _ in range(draw(st.integers(1, 60))):
        now += 0.0 if draw(st.booleans()) else ticks(0, largest_gap)
        arrivals.append(now)
    return Case(
        candidates,
        tuple(draw(changes(len(candidates), sorted({0.0, *arrivals}), overflow is not None, faulty))),
        tuple(arrivals),
        ticks(2, 40),
        overflow,
        draw(st.booleans()),
        routing,
        draw(st.integers(0, 2**40)),
        tuple(ticks(2, 40) for _ in arrivals) if limits else (),
        draw(st.sampled_from([FUNCTION, REJECT])),
        tuple(draw(st.integers(0, 3)) for _ in candidates) if draw(st.booleans()) else (),
        draw(faults(tick * unit)) if faulty else Faults(),
        draw(st.sampled_from([0.0, 0.85, 0.95, 0.99])),
        draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


@st.composite
def faults(draw: st.DrawFn, step_s: float) -> Faults:
    """Draw slow periods and hangs as frequent as batches; crashes are among the changes of the fleet."""
    return Faults(
        slow_share=draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])),
        slow_s=step_s * draw(st.integers(1, 40)),
        slow_factor=draw(st.sampled_from([1.0, 1.5, 3.0])),
        slow_add_s=step_s * draw(st.integers(0, 4)),
        host_group=draw(st.integers(1, 3)),
        hangs_per_hour=draw(st.sampled_from([0.0, 1.0, 0.1])) * 3600.0 / (20.0 * step_s),
        hang_s=step_s * draw(st.integers(1, 30)),
        crashes_per_hour=1.0,
        slow_answer_s=step_s * draw(st.sampled_from([0, 0, 3, 30])),
    )


@st.composite
def changes(
    draw: st.DrawFn, candidates: int, times_s: list[float], has_function: bool, crashes: bool = False
) -> list[Change]:
    """Draw a first fleet of up to 6, then additions, drains, new speeds, crashes and warm-ups at times of arrivals."""
    fleet = draw(st.integers(2 * crashes, 6))
    ready = {n: draw(st.integers(0, candidates - 1)) for n in range(fleet)}
    history = [Change(0.0, "add", n, kind) for n, kind in ready.items()]
    gone: dict[int, int] = {}
    crashed: set[int] = set()
    for at_s in sorted(draw(st.lists(st.sampled_from(times_s), max_size=12 if crashes else 8))):
        what = draw(st.sampled_from(["add", "drain", "speed", "warm", *["crash"] * 6 * crashes]))
        if what == "add":
            number = len(ready) + len(gone)
            ready[number] = draw(st.integers(0, candidates - 1))
            history.append(Change(at_s, "add", number, ready[number]))
        elif what == "warm" and has_function:
            history.append(Change(at_s, "warm", environments=draw(st.integers(0, 8))))
        elif ready and what == "drain":
            number = draw(st.sampled_from(sorted(ready)))
            gone[number] = ready.pop(number)
            history.append(Change(at_s, "drain", number))
        elif ready and what == "speed":
            number = draw(st.sampled_from(sorted(ready)))
            history.append(Change(at_s, "speed", number, speed=draw(st.sampled_from([0.25, 0.5, 1.0]))))
        elif what == "crash" and (alive := sorted({*ready, *gone} - crashed)):
            number = draw(st.sampled_from(alive))
            crashed.add(number)
            gone[number] = ready.pop(number, gone.get(number, 0))
            history.append(Change(at_s, "crash", number))
    return history


@sampled(120)
@given(cases(windows=False))
def test_work_conserving_batches_agree_with_the_reference(case: Case) -> None:
    """Same server, same start, same answer for every request: any fleet, load, function and history."""
    check(case)


@sampled(120)
@given(cases(windows=True))
def test_batch_windows_agree_with_the_reference(case: Case) -> None:
    """The same when batches wait for company, ties between almost full ones included."""
    check(case)


@sampled(60)
@given(cases(windows=True, routing="power-of-two-choices"))
def test_two_choices_agree_with_the_reference(case: Case) -> None:
    """Routing by two random choices draws the same replicas and settles the same ones."""
    check(case)


@sampled(60)
@given(cases(windows=True, routing="fewest-in-flight"))
def test_the_fewest_in_flight_agree_with_the_reference(case: Case) -> None:
    """The same requests are counted, including those that went on to functions."""
    check(case)


@sampled(200)
@given(cases(windows=True, routing="alb"))
def test_an_alb_agrees_with_the_reference(case: Case) -> None:
    """The same target group is drawn for each request, and there the same replica, by raw counts and then in turn."""
    check(case)


@sampled(80)
@given(cases(windows=True, limits=True))
def test_limits_by_request_agree_with_the_reference(case: Case) -> None:
    """Each request is admitted against its own limit, and its batch keeps the earliest deadline among its members."""
    check(case)


@settings(max_examples=30)
@given(st.one_of(*(cases(windows=True, routing=routing, faulty=True) for routing in ROUTING)))
def test_faulty_replicas_agree_with_the_reference(case: Case) -> None:
    """Replicas may be slow, hang or crash, drained or not: each request ends at the same place at the same time."""
    check(case)


@settings(max_examples=30)
@given(cases(windows=True, faulty=True, limits=True))
def test_requests_that_a_crash_takes_keep_their_limits(case: Case) -> None:
    """They have the remaining time of their limits; slow periods and hangs change no limit."""
    check(case)


@sampled(150)
@given(st.one_of(*(cases(windows=True, routing=routing, varies=True) for routing in ROUTING)))
def test_lognormal_service_agrees_with_the_reference(case: Case) -> None:
    """Routing and admission go by expected ends, starts and answers by drawn ones."""
    check(case)


@sampled(60)
@given(cases(windows=True, varies=True, limits=True))
def test_lognormal_service_with_limits_by_request_agrees_with_the_reference(case: Case) -> None:
    """When a batch's start moves, it is checked again whether a request may join, by its earliest promise."""
    check(case)
