"""The learned state of a selection goes from process to process, and from release to release."""

from __future__ import annotations

from collections import Counter

import pytest

from mark.selection.outcome import Loss, SelectionFact, facts_to_json
from mark.selection.settings import SelectionSettings
from mark.selection.state import ALL, SelectionState
from mark.serving.conductor.selected import SelectionCounts
from mark.serving.conductor.selection_learner import SelectionLearner
from mark.serving.learned.facts import Fact
from mark.serving.learned.shared import Shared

OLD, NEW = ("a@00", "b@00"), ("b@11", "a@00")  # the new release has another model as b, and asks it first


def process(candidates: tuple[str, ...]) -> tuple[Shared, SelectionState]:
    state = SelectionState(candidates, SelectionSettings("exp4", champion="a"))
    learner = SelectionLearner(state, SelectionCounts(Counter(), Counter(), Counter(), Counter()), "a@00")
    return Shared(learner, 1 << 20, 1 << 20), state


def facts(writer: str, other: str, count: int) -> list[Fact]:
    """Return facts of one writer, whose release has `other` beside candidate a."""
    found = []
    for number in range(1, count + 1):
        losses = (Loss("a@00", 0.0, 1.0, 0.9), Loss(other, 1.0, 1.0, 0.2))
        one = SelectionFact(ALL, number, number, losses, None, {f"a@00>{other}": 0.5})
        found.append(Fact(writer, number, float(number), f"r{number}", facts_to_json([one])))
    return found


def test_new_process_takes_facts_of_its_release_from_a_process_of_the_old_one() -> None:
    """This happens in a roll-out: a third process starts, and asks a process of the old release first."""
    (old, _), (new, learned), (third, state) = process(OLD), process(NEW), process(NEW)
    for shared in (old, new):
        shared.take(facts("old", "b@00", 60))
        shared.take(facts("new", "b@11", 60))
    assert third.adopt(old.snapshot())
    assert third.vector.lacks(new.vector) == 0
    for column, of_learned in zip(state.sums(ALL), learned.sums(ALL), strict=True):
        assert column == pytest.approx(of_learned)
    assert (state.answers, state.errors) == ([60.0, 120.0], [60.0, 0.0])
    assert state.correct(0, 0.2, 1) == learned.correct(0, 0.2, 1) == 1.0
    assert state.off == learned.off == {0}


def test_release_that_comes_back_finds_what_it_had_learned() -> None:
    (new, _), (back, state) = process(NEW), process(OLD)
    new.take(facts("old", "b@00", 60))
    new.take(facts("new", "b@11", 60))
    assert back.adopt(new.snapshot())
    assert state.answers == [120.0, 60.0]
    assert state.off == {1}


def test_candidate_of_another_release_is_dropped_long_after_the_last_fact_of_it() -> None:
    _, state = process(OLD)
    late = 60_000
    for stamp, key in ((1, "b@11"), (late, "b@00")):
        state.apply(SelectionFact(ALL, stamp, stamp, (Loss(key, 1.0),)))
    _, other = process(NEW)
    other.load(state.dump())
    assert other.answers == [1.0, 0.0], "its own candidate"
    _, third = process(OLD)
    third.load(state.dump())
    other.load(third.dump())
    assert other.answers == [0.0, 0.0]


def test_most_candidates_of_other_releases_are_bounded() -> None:
    """The newest stay."""
    _, state = process(OLD)
    for stamp in range(1, 41):
        state.apply(SelectionFact(ALL, stamp, stamp, (Loss(f"c@{stamp:02}", 1.0),)))
    _, other = process(tuple(f"c@{stamp:02}" for stamp in range(1, 41)))
    other.load(state.dump())
    assert other.answers == [0.0] * 24 + [1.0] * 16
