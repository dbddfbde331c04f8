"""Departures of one stage can be the arrivals of the next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.kernel.accounting import Accounting
from mark.kernel.departures import REFUSED, Departures, by_request, joined
from mark.kernel.stage import ROUTING, StageSimulation
from tests.kernel.reference import Case, Outcome, World
from tests.kernel.test_reference import cases, empty_stage
from tests.samples import sampled

Floats = NDArray[np.float64]


def stage_of(case: Case) -> StageSimulation:
    stage = empty_stage(case)
    for change in case.changes:
        stage.add(change.number, change.candidate, 0.0)
    return stage


@st.composite
def steady(draw: st.DrawFn) -> Case:
    """Return a case whose fleet stays as it was at the start."""
    case = draw(cases(windows=True, routing=draw(st.sampled_from(sorted(ROUTING)))))
    return replace(case, changes=tuple(c for c in case.changes if c.what == "add" and c.at_s == 0.0))


def onward(departed: Departures, arrivals_s: Floats, within_s: float) -> tuple[Floats, Floats]:
    """Return the arrivals at the next stage, and what remains of `within_s` since the first arrival."""
    answered = departed.slot != REFUSED
    order = np.lexsort((departed.request[answered], departed.answer_s[answered]))
    at_s = departed.answer_s[answered][order]
    return at_s, arrivals_s[departed.request[answered][order]] + within_s - at_s


def in_series(first: Case, second: Case, windows_s: list[float]) -> tuple[Departures, Departures]:
    """Return departures of both stages, the second one window behind the first, as far as completions are known."""
    stages = stage_of(first), stage_of(second)
    arrivals = np.array(first.arrivals_s)
    position, sent = 0, 0
    departed: list[Departures] = []
    for until in [*np.cumsum(windows_s).tolist(), np.inf]:
        position = stages[0].advance(arrivals, position, until)
        stages[0].settle(until)
        departed.append(stages[0].departures())
        at_s, limit_s = onward(joined(departed), arrivals, second.rt_max_s)
        sent += stages[1].advance(at_s[sent:], 0, until, limit_s[sent:])
    stages[1].finish()
    assert sent == len(at_s)
    return joined(departed), stages[1].departures()


def assert_equal(departed: Departures, expected: Outcome) -> None:
    recording = by_request(departed, len(expected.slot))
    np.testing.assert_array_equal(recording.slot, expected.slot)
    np.testing.assert_allclose(recording.start_s, expected.start_s, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(recording.finish_s, expected.finish_s, rtol=0.0, atol=1e-9)


@sampled(80)
@given(steady(), steady(), st.lists(st.sampled_from([0.0, 0.125, 0.5, 3.0, 20.0]), max_size=20))
def test_two_stages_in_series_agree_with_the_reference(first: Case, second: Case, windows_s: list[float]) -> None:
    """Window by window each request meets the same server at the same time as stage by stage in SimPy."""
    departed, done = in_series(first, second, windows_s)
    expected = World(first).run()
    assert_equal(departed, expected)
    answered = np.flatnonzero(expected.slot != REFUSED)
    order = answered[np.lexsort((answered, expected.finish_s[answered]))]
    at_s = expected.finish_s[order]
    limits_s = np.array(first.arrivals_s)[order] + second.rt_max_s - at_s
    if len(order):
        assert_equal(done, World(replace(second, arrivals_s=tuple(at_s), limits_s=tuple(limits_s))).run())


@sampled(50)
@given(steady(), steady(), st.lists(st.floats(0.0, 10.0), max_size=20))
def test_every_request_departs_once_from_each_stage(first: Case, second: Case, windows_s: list[float]) -> None:
    """Every arrival departs, refused ones included; the first stage's answers arrive at the second."""
    departed, done = in_series(first, second, windows_s)
    assert sorted(departed.request) == list(range(len(first.arrivals_s)))
    assert sorted(done.request) == list(range(int((departed.slot != REFUSED).sum())))
    assert departed.rows[0] == len(departed.slot)


@sampled(100)
@given(steady(), st.floats(0.0, 10.0))
def test_what_completes_before_a_settled_time_has_departed(case: Case, until: float) -> None:
    stage = stage_of(case)
    position = stage.advance(np.array(case.arrivals_s), 0, until)
    stage.settle(until)
    before = stage.departures()
    stage.advance(np.array(case.arrivals_s), position, np.inf)
    stage.finish()
    assert (stage.departures().answer_s >= until).all()
    assert (before.latency_s[before.slot >= 0] == (before.answer_s - before.arrival_s)[before.slot >= 0]).all()


def test_a_stage_that_does_not_keep_reuses_its_buffer() -> None:
    """Hundreds of chunks leave neither rows nor memory, and all are counted."""
    stage = StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=60.0))
    stage.advance(np.linspace(0.0, 59.0, 200_000), 0, np.inf)
    assert stage.accounts.rejected == stage.arrived == 200_000
    assert stage._out.rows[0] == 0
    assert len(stage._out.arrival_s) < 2_000
