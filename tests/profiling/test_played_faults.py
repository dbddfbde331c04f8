"""A stand-in plays the simulator's faults: the same periods, hangs and ends of batches, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.kernel.replica_faults import answers_later_s, begins_s, fault_state, takes_s, with_slots
from mark.profiling.played_faults import (
    FaultStream,
    PlayedFaults,
    faults_of_text,
    faults_text,
    stream_of_text,
)

FAULTS = Faults(0.3, 7.0, 3.0, 0.25, 4, 60.0, 2.0)
STREAM = FaultStream(1.8e9, 5, 3)


def shares() -> st.SearchStrategy[float]:
    return st.sampled_from([0.0, 0.01, 0.3, 0.9])


@st.composite
def worlds(draw: st.DrawFn) -> Faults:
    return Faults(
        slow_share=draw(shares()),
        slow_s=draw(st.floats(0.1, 100.0)),
        slow_factor=draw(st.sampled_from([1.0, 2.5])),
        slow_add_s=draw(st.sampled_from([0.0, 0.3])),
        host_group=draw(st.integers(1, 5)),
        hangs_per_hour=draw(st.sampled_from([0.0, 1.0, 300.0])),
        hang_s=draw(st.floats(0.1, 60.0)),
        slow_answer_s=draw(st.sampled_from([0.0, 0.4])),
    )


@settings(max_examples=50, deadline=None)
@given(
    worlds(),
    st.integers(0, 2**63 - 1),
    st.integers(1, 500),
    st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(1e-3, 10.0)), min_size=1, max_size=30),
)
def test_batches_end_when_they_do_in_the_simulator(
    faults: Faults, seed: int, number: int, batches: list[tuple[float, float]]
) -> None:
    """Times are equal, not only close, for any gap between batches, any replica and any seed."""
    state = with_slots(fault_state(faults, seed), number + 1)
    played = PlayedFaults(faults, FaultStream(0.0, seed, number))
    at_s = 0.0
    for idle_s, service_s in batches:
        at_s += idle_s
        if faults.any:
            begin_s = begins_s(state, number, at_s)
            expected_s = begin_s + takes_s(state, number, begin_s, service_s)
            later_s = answers_later_s(state, number)
        else:
            begin_s, expected_s, later_s = at_s, at_s + service_s, 0.0
        assert played.end_s(at_s, service_s) == expected_s
        assert played.answers_later_s(begin_s) == later_s
        at_s = expected_s


def periods(played: PlayedFaults, end_s: float, step_s: float) -> list[bool]:
    return [played.is_slow(n * step_s) for n in range(round(end_s / step_s))]


def test_a_host_group_is_slow_at_the_same_times() -> None:
    """The group holds launches 4 to 7, and no others are slow then; hangs differ between instances."""
    of = {n: PlayedFaults(FAULTS, replace(STREAM, number=n)) for n in (3, 4, 7, 8)}
    slow = {n: periods(played, 2000.0, 0.5) for n, played in of.items()}
    assert slow[4] == slow[7]
    assert slow[3] != slow[4] != slow[8]
    assert 0.2 < sum(slow[4]) / len(slow[4]) < 0.4
    begins_s = {n: [played.begins_s(float(m)) for m in range(600)] for n, played in of.items()}
    assert begins_s[4] != begins_s[7]


def test_a_faster_clock_makes_no_batch_faster() -> None:
    one, ten = PlayedFaults(FAULTS, STREAM), PlayedFaults(FAULTS, replace(STREAM, time_scale=10.0))
    assert periods(one, 2000.0, 0.5) == periods(ten, 200.0, 0.05)
    only_slow = replace(FAULTS, hangs_per_hour=0.0)
    slow = PlayedFaults(only_slow, replace(STREAM, time_scale=10.0))
    at_s = next(n * 0.05 for n, is_slow in enumerate(periods(one, 2000.0, 0.5)) if is_slow)
    assert slow.end_s(at_s, 0.1) - at_s == pytest.approx(3.0 * 0.1 + 0.25)
    hanging = PlayedFaults(Faults(hangs_per_hour=1200.0, hang_s=2.0), replace(STREAM, time_scale=10.0))
    ends_s = [hanging.end_s(n * 1e-3, 0.0) for n in range(20_000)]
    lengths_s = [later - sooner for sooner, later in pairwise(ends_s) if later - sooner > 0.1]
    assert lengths_s
    assert max(lengths_s) == pytest.approx(0.2, abs=2e-3)


def test_what_passes_between_processes_is_read_as_it_was() -> None:
    assert stream_of_text(STREAM.as_text()) == STREAM
    played, same = faults_of_text(faults_text(FAULTS, STREAM)), PlayedFaults(FAULTS, STREAM)
    assert played.began_unix_s == STREAM.began_unix_s
    assert periods(played, 100.0, 1.0) == periods(same, 100.0, 1.0)
    for text in ("", "[]", '{"seed": 1}', '[{}, {"number": "x"}, 3]'):
        with pytest.raises(BadInput, match="MARK_FAULT_STREAM: is no stream of faults"):
            stream_of_text(text)
        with pytest.raises(BadInput, match="faults: says no faults"):
            faults_of_text(text)
