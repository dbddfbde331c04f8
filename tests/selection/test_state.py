"""The learned state: a sum of facts; and the judge, which makes facts of feedback."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.outcome import AskedNote, Loss, QueryNote, SelectionFact, context_key
from mark.selection.settings import MOST_CANDIDATES, SelectionSettings
from mark.selection.state import ALL, Judge, SelectionState
from tests.selection.selections import NAMES, answer_all, close, opened, selection_of

ANN, BOB = context_key("ann"), context_key("bob")
SETTINGS = SelectionSettings("exp4", by_key=True)
LOSSES = st.lists(
    st.tuples(
        st.sampled_from([*NAMES[:4], "gone@00"]),
        st.floats(0.0, 1.0),
        st.floats(0.01, 1.0),
        st.none() | st.floats(0.0, 1.0),
        st.booleans(),
    ).map(lambda values: Loss(*values)),
    max_size=3,
    unique_by=lambda one: one.candidate,
).map(tuple)
FACTS = st.lists(
    st.tuples(
        st.sampled_from([ALL, ANN, BOB]),
        st.integers(1, 50),
        st.integers(1, 5_000),
        LOSSES,
        st.none() | st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
        st.none() | st.dictionaries(st.sampled_from(NAMES), st.floats(-5.0, 5.0)),
    ).map(lambda values: SelectionFact(*values)),
    max_size=12,
)


def state_of(facts: list[SelectionFact], candidates: tuple[str, ...] = NAMES[:3], **others: Any) -> SelectionState:
    state = SelectionState(candidates, SelectionSettings("exp4", **{"by_key": True, **others}))
    for fact in facts:
        state.apply(fact)
    return state


def numbers(state: SelectionState) -> list[float]:
    """Return all that a policy can read of the state, except the curves."""
    sums = [value for context in (ALL, ANN, BOB) for column in state.sums(context) for value in column]
    places = range(len(state.candidates))
    tables = [state._table(asked, at).total for asked in places for at in places]
    return [*sums, *tables, state.votes.total, *state.evidence, *state.answers, *state.errors, *state.stamps(ANN)]


@given(FACTS, st.randoms(use_true_random=False))
def test_order_of_facts_changes_nothing(facts: list[SelectionFact], chance: random.Random) -> None:
    shuffled = facts[:]
    chance.shuffle(shuffled)
    assert close(numbers(state_of(facts)), numbers(state_of(shuffled)))


@given(FACTS)
def test_sums_of_all_are_those_of_every_fact(facts: list[SelectionFact]) -> None:
    state, newest = state_of(facts, by_key=False), max((one.stamp_all for one in facts), default=0)
    for at, key in enumerate(NAMES[:3]):
        of = [(one.stamp_all, loss) for one in facts for loss in one.losses if loss.candidate == key]
        losses = math.fsum(loss.loss * 0.5 ** ((newest - stamp) / 140.0) for stamp, loss in of)
        assert state.sums(ALL).losses[at] == pytest.approx(losses, rel=1e-9, abs=1e-12)
        assert state.answers[at] == sum(loss.answered for _, loss in of)
        assert state.errors[at] == pytest.approx(sum(loss.loss for _, loss in of if loss.answered))
    assert state.facts == len(facts)


@given(FACTS, FACTS)
def test_state_returns_from_a_snapshot_and_learns_on(facts: list[SelectionFact], later: list[SelectionFact]) -> None:
    state, other = state_of(facts), SelectionState(NAMES[:3], SETTINGS)
    other.load(state.dump())
    assert close(numbers(other), numbers(state))
    for fact in later:
        state.apply(fact)
        other.apply(fact)
    assert close(numbers(other), numbers(state))


@given(FACTS, st.permutations(NAMES[:4]), st.integers(1, 4))
def test_release_takes_its_state_from_another_as_if_it_had_learned_itself(
    facts: list[SelectionFact], order: list[str], count: int
) -> None:
    """Facts of candidates that only the new release has arrive as well, by way of a process of the old one."""
    kept = tuple(order[:count])
    after = SelectionState(kept, SelectionSettings("exp4", by_key=True, champion="a"))
    after.load(state_of(facts, champion="b").dump())
    learned = state_of(facts, kept, champion="a")
    assert close(numbers(after), numbers(learned))
    assert after.off == learned.off


@pytest.mark.parametrize("others", [1, MOST_CANDIDATES])
def test_fact_of_a_known_and_a_new_candidate_of_another_release_counts(others: int) -> None:
    """The known one was last named long ago, or as many others are known as there are places for."""
    facts = [SelectionFact(ALL, n, n, (Loss(f"old{n}@00", 1.0),)) for n in range(1, others + 1)]
    state = state_of([*facts, SelectionFact(ALL, 99, 60_000, (Loss("a@00", 0.0),))])
    state.apply(SelectionFact(ALL, 100, 60_001, (Loss("old1@00", 1.0), Loss("new@00", 0.0))))
    assert state.facts == others + 2
    back = SelectionState(("old1@00", "new@00"), SelectionSettings("exp4", by_key=True))
    back.load(state.dump())
    assert back.answers[1] == 1.0


def test_snapshot_keeps_the_tables_where_the_policy_changes() -> None:
    state = state_of([SelectionFact(ALL, 1, stamp, (Loss("a@00", 0.0, 1.0, 0.9),)) for stamp in range(1, 3_001)])
    other = SelectionState(NAMES[:3], SelectionSettings("thompson", by_key=True))
    other.load(state.dump())
    assert other.correct(0, 0.9, 0) == 1.0
    assert other._table(0, 0).total == pytest.approx(state._table(0, 0).total)


@pytest.mark.parametrize(
    "damaged", [b"", b"{}", b"\x02" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"[]", bytes(8), b"\xff" * 8]
)
def test_damaged_snapshot_raises_value_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        SelectionState(NAMES[:3], SETTINGS).load(damaged)


@given(FACTS, st.integers(0, 10_000))
def test_snapshot_that_is_cut_short_raises_value_error(facts: list[SelectionFact], length: int) -> None:
    dumped = state_of(facts).dump()
    with pytest.raises(ValueError, match=r"."):
        SelectionState(NAMES[:3], SETTINGS).load(dumped[: length % len(dumped)])


def test_snapshot_of_another_format_is_named() -> None:
    dumped = state_of([]).dump().replace(b'"format":4', b'"format":1')
    state = state_of([SelectionFact(ALL, 1, 1, (Loss("a@00", 1.0),))])
    with pytest.raises(ValueError, match="format 1, and this is 4"):
        state.load(dumped)
    assert state.errors == [1.0, 0.0, 0.0], "a snapshot that is refused changes nothing"
    damaged = state_of([]).dump().replace(b'"facts":0', b'"facts":[')
    with pytest.raises(ValueError, match="unexpected"):
        state.load(damaged)
    assert state.errors == [1.0, 0.0, 0.0]


def test_new_context_begins_with_the_mean_of_all() -> None:
    state = state_of([SelectionFact(ANN, n, n, (Loss("a@00", 1.0), Loss("b@00", 0.0))) for n in range(1, 21)])
    assert state.sums(BOB).counts == pytest.approx([10.0, 10.0, 0.0])
    assert state.sums(BOB).losses == pytest.approx([10.0, 0.0, 0.0])
    assert state.sums(ANN).losses[0] > 20.0
    assert state.contexts == 1


def test_queries_without_a_key_share_the_context_of_all() -> None:
    assert state_of([]).context_of("") == ALL
    assert state_of([]).context_of("ann") == ANN
    assert state_of([], by_key=False).context_of("ann") == ALL


def test_too_few_labels_say_nothing() -> None:
    state = state_of([])
    for stamp in range(1, 60):
        state.apply(SelectionFact(ALL, 1, stamp, (Loss("a@00", 0.0, 1.0, 0.5), Loss("c@00", 1.0, 1.0))))
        total = state._table(0, 0).total
        assert state.correct(0, 0.5, 0) == (1.0 if total >= 50 else None)
        assert state.correct(0, 0.5, 2) == (0.0 if total >= 50 else None)
        assert state.correct(0, 0.5, 1) is None
        assert state.correct(1, 0.5, 0) is None


def test_explored_queries_alone_keep_a_table_of_a_cascade_believed() -> None:
    state = SelectionState(NAMES[:2], SelectionSettings("cascade", correct_usd=1.0))
    asked_both = 0
    for stamp in range(1, 20_001):
        losses = [Loss("a@00", 0.0, 1.0, 0.9)]
        if stamp % 50 == 0:  # `explore` is 2 %
            losses.append(Loss("b@00", 0.0))
        if state.correct(0, 0.9, 1) is None and stamp > 10_000:
            asked_both += 1
        state.apply(SelectionFact(ALL, 1, stamp, tuple(losses)))
    assert asked_both == 0


def test_thesis_rule_forgets_nothing() -> None:
    state = SelectionState(NAMES[:3], SelectionSettings("exp4:thesis"))
    for stamp in range(1, 5_001):
        state.apply(SelectionFact(ALL, stamp, stamp, (Loss("a@00", 1.0),)))
    assert state.sums(ALL).losses[0] == 5_000.0


def test_guard_switches_off_and_a_snapshot_keeps_it_off() -> None:
    guarded = SelectionSettings("exp4", champion="a")
    evidence = {"a@00>b@00": math.log(200.0) + 1e-9, "a@00>c@00": 5.0, "a@00>gone@00": 99.0, "b@00>c@00": 99.0}
    state = SelectionState(NAMES[:3], guarded)
    state.apply(SelectionFact(ALL, 1, 1, (), None, evidence))
    assert state.off == {1}
    after = SelectionState(("c@00", "b@00", "a@00"), guarded)
    after.load(state.dump())
    assert after.off == {1}
    for champion, off in (("b", {2}), ("c", set())):
        other = SelectionState(NAMES[:3], SelectionSettings("exp4", champion=champion))
        other.load(state.dump())
        assert other.off == off, "evidence against another champion does not count"


def test_facts_that_are_made_before_they_are_applied_follow_each_other() -> None:
    """A batch of a thousand labels weighs as if they had come one by one."""
    one_by_one, at_once = state_of([]), state_of([])
    judges = Judge(one_by_one, None), Judge(at_once, None)
    note = QueryNote(ANN, (AskedNote("a@00", 1.0, True, 3),), "a@00", 3)
    for _ in range(300):
        fact = judges[0].by_label(note, 7)
        assert fact is not None
        one_by_one.apply(fact)
    facts = [judges[1].by_label(note, 7) for _ in range(300)]
    for fact in facts:
        assert fact is not None
        at_once.apply(fact)
    assert at_once.sums(ANN).losses == pytest.approx(one_by_one.sums(ANN).losses)
    assert at_once.sums(ALL).losses == pytest.approx(one_by_one.sums(ALL).losses)


# The judge


def judge_of(policy: str = "exp4", candidates: int = 3, *, champion: str | None = None, **others: Any) -> Judge:
    return Judge(SelectionState(NAMES[:candidates], SelectionSettings(policy, **others)), champion)


def note_of(labels: dict[str, Any], chosen: str, **others: Any) -> QueryNote:
    """Return a note in which candidates gave these labels, with the probability 0.5; None stands for no answer."""
    asked = tuple(
        AskedNote(f"{name}@00", 0.5, said is not None, said, 0.9 if said is not None else None)
        for name, said in labels.items()
    )
    answer = others.pop("label", labels.get(chosen[:1]))
    return QueryNote(ALL, asked, chosen, answer, **others)


def losses_of(fact: SelectionFact | None) -> dict[str, float]:
    assert fact is not None
    return {one.candidate[:1]: one.loss for one in fact.losses}


def test_label_judges_all_that_answered() -> None:
    fact = judge_of().by_label(note_of({"a": 7, "b": 3, "c": None}, "a@00", agreement=0.6), 7)
    assert fact is not None
    assert fact.losses == (Loss("a@00", 0.0, 0.5, 0.9), Loss("b@00", 1.0, 0.5, 0.9))
    assert (fact.vote, fact.stamp, fact.stamp_all) == ((0.6, 1.0), 1, 1)


@pytest.mark.parametrize("label", [7.0, [7], [[7.0]], np.int64(7)])
def test_label_of_feedback_is_compared_as_a_label(label: Any) -> None:
    assert losses_of(judge_of().by_label(note_of({"a": 7, "b": 3}, "a@00"), label)) == {"a": 0.0, "b": 1.0}


@pytest.mark.parametrize("label", [math.nan, 2**70, object()])
def test_feedback_without_a_label_is_not_learned(label: Any) -> None:
    assert judge_of().by_label(note_of({"a": 7}, "a@00"), label) is None


def test_numeric_loss_judges_the_vote_by_degrees() -> None:
    judge = judge_of(loss="absolute", loss_scale=4.0)
    fact = judge.by_label(note_of({"a": 1, "b": 3}, "a@00", agreement=0.5), 2)
    assert losses_of(fact) == {"a": 0.25, "b": 0.25}
    assert fact is not None
    assert fact.vote == (0.5, 0.75)


def test_query_that_nobody_answered_teaches_nothing_of_a_vote() -> None:
    assert judge_of().by_label(note_of({"a": None, "b": None}, "", label="d", by_default=True), 7) is None


def test_candidate_that_a_bandit_asked_in_vain_counts_as_wrong() -> None:
    note = note_of({"a": None, "b": 7}, "b@00")
    for policy in ("thompson", "exp3"):
        judge = judge_of(policy)
        for fact in (judge.by_label(note, 7), judge.by_reward(note, 1.0)):
            assert losses_of(fact) == {"a": 1.0, "b": 0.0}
            assert fact is not None
            assert [one.answered for one in fact.losses] == [False, True]
    for fact in (judge_of().by_label(note, 7), judge_of().by_reward(note, 1.0)):
        assert losses_of(fact) == {"b": 0.0}


@pytest.mark.parametrize("policy", ["exp3", "thompson"])
def test_bandit_stops_asking_a_candidate_that_is_down(policy: str) -> None:
    selection = selection_of(policy, 2)
    judge, generator = Judge(selection.state, None), random.Random(1)
    first = []
    for _ in range(2_000):
        query = opened(selection)
        first.append(answer_all(query, {0: 1 if generator.random() < 0.9 else 0})[0])
        fact = judge.by_label(query.note(), 1)
        assert fact is not None
        selection.state.apply(fact)
    assert first[1_000:].count(1) / 1_000 < 0.1
    assert selection.state.answers[1] == 0.0  # a failure does not count as a wrong answer


def test_reward_counts_for_all_that_gave_the_answer() -> None:
    fact = judge_of().by_reward(note_of({"a": 7, "b": 7, "c": 3}, "a@00", agreement=0.7), 0.25)
    assert losses_of(fact) == {"a": 0.75, "b": 0.75}
    assert fact is not None
    assert fact.vote == (0.7, 0.25)


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan, math.inf])
def test_reward_out_of_range_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        judge_of().by_reward(note_of({"a": 7}, "a@00"), reward)


def test_reward_of_the_default_is_no_candidates_reward() -> None:
    assert judge_of().by_reward(note_of({"a": 7, "b": 7}, "a@00", by_default=True), 0.0) is None


def test_label_still_judges_candidates_where_the_default_was_given() -> None:
    fact = judge_of().by_label(note_of({"a": 7, "b": 3}, "a@00", agreement=0.6, by_default=True), 3)
    assert losses_of(fact) == {"a": 1.0, "b": 0.0}
    assert fact is not None
    assert fact.vote == (0.6, 0.0)


def test_averages_are_judged_by_labels_only() -> None:
    note = note_of({"a": 1, "b": 3}, "", label=2)
    assert losses_of(judge_of(loss="absolute", loss_scale=10.0).by_label(note, 2)) == {"a": 0.1, "b": 0.1}
    assert judge_of().by_reward(note, 1.0) is None


def test_stamps_count_the_facts_that_the_writer_knew() -> None:
    state = state_of([SelectionFact(ANN, 1, n, (Loss("a@00", 0.0),)) for n in range(1, 4)])
    fact = Judge(state, None).by_label(QueryNote(ANN, (AskedNote("a@00", 1.0, True, 7),), "a@00", 7), 7)
    assert fact is not None
    assert (fact.stamp, fact.stamp_all) == (4, 4)
    fact = Judge(state, None).by_label(QueryNote(BOB, (AskedNote("a@00", 1.0, True, 7),), "a@00", 7), 7)
    assert fact is not None
    assert (fact.stamp, fact.stamp_all) == (1, 4)


def test_evidence_of_pairs_is_gathered_for_each_challenger() -> None:
    judge = judge_of(champion="a@00")
    judge.by_label(note_of({"a": 7, "b": 3, "c": 7}, "a@00"), 7)  # the first one only sets the odds
    fact = judge.by_label(note_of({"a": 7, "b": 3, "c": 7}, "a@00"), 7)
    assert fact is not None
    assert fact.evidence == {"a@00>b@00": pytest.approx(math.log(4 / 3))}


def test_evidence_of_one_asked_needs_the_odds_of_the_draw() -> None:
    judge, shares = judge_of("split", champion="a@00"), {"a@00": 0.8, "b@00": 0.2, "c@00": 0.0}
    grown = [judge.by_label(note_of({"b": 3}, "b@00", shares=shares), 7) for _ in range(9)]
    assert grown[-1] is not None
    assert grown[-1].evidence is not None
    assert set(grown[-1].evidence) == {"a@00>b@00"}
    assert 0.0 < grown[-1].evidence["a@00>b@00"] < math.log(5.0)
    for note in (note_of({"b": 3}, "b@00"), note_of({"b": 3}, "b@00", shares={"b@00": 1.0, "a@00": 0.0})):
        fact = judge.by_label(note, 7)
        assert fact is not None
        assert fact.evidence is None


def test_candidate_that_replaced_a_failed_one_gives_no_evidence() -> None:
    judge, shares = judge_of("split", champion="a@00"), {"a@00": 0.5, "b@00": 0.5}
    for _ in range(9):
        fact = judge.by_label(note_of({"a": None, "b": 3}, "b@00", shares=shares), 7)
        assert fact is not None
        assert fact.evidence is None


@pytest.mark.parametrize("policy", ["split", "exp3", "exp4"])
def test_guard_switches_off_a_broken_challenger_of_every_policy(policy: str) -> None:
    selection = selection_of(policy, 3, champion="a")
    judge, generator = Judge(selection.state, "a@00"), random.Random(2)
    for _ in range(1_500):
        query = opened(selection)
        answer_all(query, {0: int(generator.random() < 0.05), 1: 1, 2: int(generator.random() < 0.04)})
        fact = judge.by_label(query.note(), 0)
        assert fact is not None
        selection.state.apply(fact)
    assert selection.state.off == {1}
    assert 1 not in opened(selection).start(0.0)
