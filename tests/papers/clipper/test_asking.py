"""Queries given to a selection: when it decides, and its learning."""

from __future__ import annotations

import pytest
from mark_papers.clipper.asking import AskedLearner

from mark.selection.settings import SelectionSettings


def test_answer_comes_when_the_awaited_replies_cannot_change_it_or_at_the_deadline() -> None:
    times_s: list[float] = []
    learner = AskedLearner(("a", "b", "c"), SelectionSettings("exp4", deadline_s=0.020))
    agreed = learner.ask([7, 7, 3], 7, latencies_s=[0.004, 0.006, 9.0], told=times_s.append)
    split = learner.ask([1, 2, 3], 1, latencies_s=[0.005, 0.025, 0.030], told=times_s.append)
    nobody = learner.ask([1, 1, 1], 1, latencies_s=[0.030, 0.040, 0.050], told=times_s.append)
    assert [agreed.choice.label, split.choice.label, nobody.choice.label] == [7, 1, 1]
    assert times_s == pytest.approx([0.006, 0.020, 0.030])


def test_late_replies_are_judged_too() -> None:
    learner = AskedLearner(("a", "b"), SelectionSettings("exp4", deadline_s=0.020))
    learner.ask([1, 2], 2, latencies_s=[0.001, 5.0])
    assert (learner.state.answers, learner.state.errors) == ([1.0, 1.0], [1.0, 0.0])


def test_nothing_is_learned_without_a_label() -> None:
    learner = AskedLearner(("a", "b"), SelectionSettings("exp4"))
    learner.ask([1, 2], None)
    assert learner.state.facts == 0
