"""The query machine: every order of replies, failures and wakes ends in exactly one decision, or in none at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mark.selection.cascade import Cascade
from mark.selection.outcome import notes_from_json, notes_to_json
from mark.selection.policy import CandidateReply, Choice, Query
from mark.selection.query import Selection
from mark.selection.settings import POLICIES, SelectionSettings
from tests.selection.selections import NAMES, HalfRight, answer_all, opened, selection_of


def test_query_wants_what_it_would_ask_at_planned_prices() -> None:
    """The second candidate is right where the first is wrong, in every second case: it is worth half a dollar."""
    settings = SelectionSettings("cascade", correct_usd=1.0, explore=0.0)
    selection = Selection(Cascade(correct_usd=1.0), HalfRight(NAMES[:2], settings), settings, lambda: 0.5)
    for now_usd, planned_usd, wanted in ((0.6, 0.4, {0, 1}), (0.6, 0.6, {0}), (0.8, 0.7, {0}), (0.3, 0.3, {0, 1})):
        query = selection.open("", [0.0, now_usd], math.inf, 0.0, [0.0, planned_usd])
        assert query.start(0.0) == [0]
        assert set(query.wanted()) == {0}, "while a reply is awaited nothing else is known"
        assert list(query.answered(0, CandidateReply("x", "x", 0.5), 0.0)) == ([1] if now_usd < 0.5 else [])
        assert set(query.wanted()) == wanted


class Machine(RuleBasedStateMachine):
    """Replies, failures and wakes of any candidate at any time, also of candidates that were never asked."""

    candidates = st.integers(0, 3)

    @initialize(
        policy=st.sampled_from(POLICIES),
        n=st.integers(2, 4),
        has_default=st.booleans(),
        min_confidence=st.sampled_from([None, 0.6]),
        explore=st.sampled_from([None, 1.0]),
        deadline_s=st.sampled_from([math.inf, 3.0]),
        champion=st.sampled_from([None, "a@00"]),
    )
    def begin(self, policy: str, n: int, **others: Any) -> None:
        others |= {"threshold": 0.5} if policy == "cascade" else {}
        self.selection: Selection = selection_of(policy, n, default="none", **others)
        self.now_s, self.n = 0.0, n
        self.query = opened(self.selection, now_s=0.0)
        self.asked: list[int] = []
        self.failed: set[int] = set()
        self.replied: dict[int, CandidateReply] = {}  # the first reply of each
        self.decided: tuple[object, bool] | None = None
        self.take(self.query.start(self.now_s))

    def take(self, asked: Sequence[int]) -> None:
        assert not (self.decided and asked), "a candidate was asked after the decision"
        self.asked += asked
        assert len(set(self.asked)) == len(self.asked), "a candidate was asked twice"
        if self.query.over and self.decided is None:
            self.decided = self.query.decision, self.query.lost

    @rule(candidate=candidates, label=st.integers(0, 2), score=st.sampled_from([0.2, 0.9, None]))
    def answer(self, candidate: int, label: int, score: float | None) -> None:
        reply = CandidateReply(label, label, score)
        if candidate in self.asked and candidate not in self.failed:
            self.replied.setdefault(candidate, reply)
        self.take(self.query.answered(candidate, reply, self.now_s))

    @rule(candidate=candidates)
    def miss(self, candidate: int) -> None:
        if candidate in self.asked and candidate not in self.replied and not self.decided:
            self.failed.add(candidate)
        self.take(self.query.missed(candidate, self.now_s))

    @rule(later_s=st.sampled_from([0.0, 1.0, 2.0]))
    def wake(self, later_s: float) -> None:
        self.now_s += later_s
        self.take(self.query.woken(self.now_s))
        if self.now_s >= self.query.due_s and self.replied:
            assert self.query.over

    @precondition(lambda self: not self.decided)
    @rule(gives_up=st.sampled_from([False, False, False, True]))
    def give_up(self, gives_up: bool) -> None:
        if gives_up:
            self.query.give_up()
            self.take(())
            assert self.query.over

    @invariant()
    def decision_stands(self) -> None:
        assert self.decided == ((self.query.decision, self.query.lost) if self.query.over else None)
        assert not (self.query.lost and self.query.decision)

    @invariant()
    def query_goes_on_while_a_candidate_is_awaited(self) -> None:
        awaited = set(self.asked) - set(self.replied) - self.failed
        assert set(self.query.awaited()) == awaited
        assert self.query.over or awaited

    @invariant()
    def lost_only_without_any_reply(self) -> None:
        if self.query.lost:
            assert not self.selection.settings.has_default
        if self.decided and self.query.decision and not self.query.decision.by_default:
            assert self.query.decision.choice.candidate in self.replied

    @invariant()
    def note_is_complete(self) -> None:
        note = self.query.note()
        assert [one.candidate for one in note.asked] == [NAMES[one] for one in self.asked]
        answered = {one.candidate: (one.label, one.score) for one in note.asked if one.answered}
        assert answered == {NAMES[at]: (reply.label, reply.score) for at, reply in self.replied.items()}
        assert notes_from_json(notes_to_json([note])) == [note]
        if self.query.decision is not None:
            assert note.by_default == self.query.decision.by_default


Machine.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=15)
TestMachine = Machine.TestCase


class Stubborn:
    """A user's policy that always asks the same candidate."""

    def __init__(self, asks: Sequence[tuple[int, float]]) -> None:
        self._asks = asks

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        return self._asks

    def combine(self, query: Query) -> Choice:
        raise AssertionError

    def settled(self, query: Query) -> bool:
        return False


@pytest.mark.parametrize("ask", [(0, 0.0), (0, 1.5), (0, math.nan), (9, 1.0)])
def test_policy_that_asks_in_vain_is_named(ask: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="Stubborn"):
        opened(selection_of(Stubborn([ask]))).start(0.0)


def test_candidate_is_never_asked_twice() -> None:
    query = opened(selection_of(Stubborn([(0, 1.0)])))
    assert query.start(0.0) == [0]
    with pytest.raises(ValueError, match="candidate 0"):
        query.answered(0, CandidateReply(1, 1), 0.0)


def test_vote_is_decided_once_the_rest_cannot_change_it() -> None:
    query = opened(selection_of("exp4", 3))
    query.start(0.0)
    query.answered(0, CandidateReply("x", "x"), 0.0)
    assert not query.over
    query.answered(1, CandidateReply("x", "x"), 0.0)
    assert query.decision is not None
    assert query.decision.choice.agreement == pytest.approx(2 / 3)


def test_reply_after_the_decision_stands_in_the_note() -> None:
    query = opened(selection_of("exp4", 3))
    answer_all(query, {0: "x", 1: "x", 2: "y"})
    note = query.note()
    assert [one.label for one in note.asked] == ["x", "x", "y"]
    assert (note.label, note.chosen) == ("x", "a@00")


def test_vote_below_the_least_confidence_waits_for_all_and_gives_the_default() -> None:
    selection = selection_of("exp4", 3, min_confidence=0.9, default="unsure", has_default=True)
    query = opened(selection)
    query.start(0.0)
    query.answered(0, CandidateReply("x", "x"), 0.0)
    query.answered(1, CandidateReply("x", "x"), 0.0)
    assert not query.over  # the third may still agree
    query.answered(2, CandidateReply("y", "y"), 0.0)
    assert query.decision is not None
    assert query.decision.by_default
    assert query.decision.choice.label == "unsure"
    assert query.decision.confidence == pytest.approx(2 / 3)
    note = query.note()
    assert (note.label, note.chosen, note.by_default) == ("x", "a@00", True)


def test_failed_candidate_is_replaced_until_none_is_left() -> None:
    for has_default in (False, True):
        query = opened(selection_of("thompson", 3, default=0, has_default=has_default))
        assert sorted(answer_all(query, {})) == [0, 1, 2]
        assert query.lost is not has_default
        assert (query.decision is not None) is has_default
        assert not any(one.answered for one in query.note().asked)


def test_deadline_decides_with_the_replies_that_there_are() -> None:
    query = opened(selection_of("exp4", 3, deadline_s=0.5), now_s=10.0)
    query.start(10.0)
    query.answered(2, CandidateReply("y", "y"), 10.1)
    assert query.woken(10.4) == ()
    assert not query.over
    query.woken(10.5)
    assert query.decision is not None
    assert query.decision.choice.candidate == 2
    assert query.decision.confidence == pytest.approx(1 / 3)


@pytest.mark.parametrize("policy", ["thompson", "exp3", "split", "cascade"])
def test_other_candidate_is_asked_in_place_of_an_overdue_one(policy: str) -> None:
    query = opened(selection_of(policy, 2, deadline_s=0.5, threshold=0.5 if policy == "cascade" else None), now_s=10.0)
    (first,) = query.start(10.0)
    assert query.woken(10.4) == ()
    (second,) = query.woken(10.5)
    assert {first, second} == {0, 1}
    assert set(query.awaited()) == {0, 1}
    query.answered(second, CandidateReply("y", "y", 1.0), 10.6)
    assert query.decision is not None
    assert query.decision.choice.candidate == second
    query.answered(first, CandidateReply("x", "x", 1.0), 10.7)
    assert [one.answered for one in query.note().asked] == [True, True]


def test_overdue_candidate_may_still_answer_if_the_other_one_fails() -> None:
    query = opened(selection_of("thompson", 2, deadline_s=0.5), now_s=10.0)
    (first,) = query.start(10.0)
    (second,) = query.woken(10.5)
    assert query.missed(second, 10.6) == ()
    assert not query.over
    query.answered(first, CandidateReply("x", "x"), 10.7)
    assert query.decision is not None

    query = opened(selection_of("thompson", 2, deadline_s=0.5), now_s=10.0)
    (first,) = query.start(10.0)
    (second,) = query.woken(10.5)
    query.missed(first, 10.6)
    assert not query.over
    query.missed(second, 10.7)
    assert query.lost


def test_first_reply_after_the_deadline_is_the_answer() -> None:
    query = opened(selection_of("exp4", 3), deadline_s=1.0)
    query.start(0.0)
    query.woken(1.0)
    assert not query.over
    query.answered(1, CandidateReply("y", "y"), 1.1)
    assert query.over


def test_candidate_that_is_switched_off_is_not_asked() -> None:
    selection = selection_of("exp4", 3, champion="a")
    selection.state.off = frozenset({1})
    assert opened(selection).start(0.0) == [0, 2]


def test_note_keeps_the_probabilities_of_the_first_draw_for_the_guard() -> None:
    query = opened(selection_of("split", 2, weights=(0.75, 0.25), champion="a"))
    answer_all(query, {})
    assert query.note().shares == {"a@00": 0.75, "b@00": 0.25}
    query = opened(selection_of("split", 2, weights=(0.75, 0.25)))
    answer_all(query, {0: 1, 1: 1})
    assert query.note().shares is None


def test_confidence_is_calibrated_once_there_are_labels() -> None:
    selection = selection_of("exp4", 2)
    query = opened(selection)
    answer_all(query, {0: "x", 1: "x"})
    assert query.decision is not None
    assert (query.decision.confidence, query.decision.calibrated) == (1.0, False)
    for stamp in range(1, 401):
        selection.state.votes.add(1.0, 0.9, stamp)
    query = opened(selection)
    answer_all(query, {0: "x", 1: "x"})
    assert query.decision is not None
    assert query.decision.confidence == pytest.approx(0.9)
    assert query.decision.calibrated
