"""Coding groups: which queries share parity calls, what is reconstructed and when, and that memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mark.domain.arrays import FloatArray
from mark.insurance.coding import (
    Action,
    CallParities,
    CodingGroup,
    CodingGroups,
    Member,
    PassOn,
    Reconstructed,
)
from mark.insurance.insurance_settings import SUM, ParitySettings

RT_MAX_S = 100.0
MODEL = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def model(query: FloatArray) -> FloatArray:
    return query @ MODEL


def query(number: int) -> FloatArray:
    return np.random.default_rng(number).normal(size=3).astype(np.float32)


def groups(k: int = 2, r: int = 1, **changed: float) -> CodingGroups:
    parity = ParitySettings(SUM, k, r, input_shape=(3,), output_shape=(4,))
    options = {"rt_max_s": RT_MAX_S, "after_s": 0.0, "fill_s": math.inf} | changed
    return CodingGroups(parity, **options)  # type: ignore[arg-type]


def join(coding: CodingGroups, number: int, now_s: float, accepts: bool = True) -> tuple[Member, list[Action]]:
    return coding.join(query(number), now_s, now_s + RT_MAX_S, now_s, accepts=accepts)


def two(coding: CodingGroups, accepts: bool = True) -> tuple[Member, Member, CodingGroup]:
    first, nothing = join(coding, 1, 0.0, accepts)
    assert nothing == []
    second, (called,) = join(coding, 2, 1.0, accepts)
    assert isinstance(called, CallParities)
    return first, second, called.group


def test_missing_answer_is_reconstructed_from_the_other_and_the_parity() -> None:
    coding = groups()
    first, second, group = two(coding)
    (parity,) = coding.encoded(group)
    assert coding.answered(first, model(query(1)), 2.0) == []
    assert coding.parity_answered(group, 0, model(parity), 3.0) == []
    assert coding.due_s() == 3.0
    (found,) = coding.woken(3.0)
    assert isinstance(found, Reconstructed)
    assert found.member is second
    np.testing.assert_allclose(found.output, model(query(2)), rtol=1e-4, atol=1e-5)
    assert found.output.dtype == np.float32, "as the model's own"
    assert coding.answered(second, model(query(2)), RT_MAX_S + 5.0) == []
    assert (coding.claims.reconstructed, coding.claims.saved) == (1, 1)
    assert (coding.claims.compared, coding.claims.agreed) == (1, 1)
    assert coding.kept_bytes == 0


def test_reconstruction_waits_for_its_time_and_an_exact_answer_at_that_moment_comes_first() -> None:
    for exact_s in (50.0, 60.0):
        coding = groups(after_s=49.0)
        first, second, group = two(coding)
        coding.encoded(group)
        coding.answered(first, model(query(1)), 2.0)
        assert coding.parity_answered(group, 0, model(query(1) + query(2)), 3.0) == []
        assert coding.due_s() == 50.0
        assert coding.woken(49.9) == []
        if exact_s == 50.0:
            assert coding.answered(second, model(query(2)), 50.0) == []
            assert coding.woken(50.0) == []
        else:
            (found,) = coding.woken(50.0)
            assert isinstance(found, Reconstructed)
            assert found.member is second


def test_own_deadline_shortens_the_wait() -> None:
    coding = groups(after_s=90.0)
    first, _ = coding.join(query(1), 0.0, 10.0, 0.0, accepts=True)
    second, _ = coding.join(query(2), 0.0, 300.0, 0.0, accepts=True)
    assert first.from_s == 10.0 - 0.005
    assert second.from_s == 90.0


def test_requests_that_take_exact_answers_only_still_serve_the_others() -> None:
    coding = groups()
    first, second, group = two(coding, accepts=False)
    coding.encoded(group)
    coding.answered(first, model(query(1)), 2.0)
    assert coding.parity_answered(group, 0, model(query(1) + query(2)), 3.0) == []
    assert coding.refused(second, 4.0) == (False, [])
    coding = groups()
    member, _ = join(coding, 1, 0.0, accepts=False)
    other, (called,) = join(coding, 2, 1.0)
    assert isinstance(called, CallParities)
    coding.encoded(called.group)
    coding.answered(member, model(query(1)), 2.0)
    coding.parity_answered(called.group, 0, model(query(1) + query(2)), 3.0)
    assert len(coding.woken(3.0)) == 1
    assert other.answered


def test_refusal_is_held_until_the_reconstruction() -> None:
    coding = groups(after_s=90.0)
    first, second, group = two(coding)
    coding.encoded(group)
    assert coding.refused(second, 1.5) == (True, [])
    assert coding.answered(first, model(query(1)), 2.0) == []
    assert coding.parity_answered(group, 0, model(query(1) + query(2)), 3.0) == []
    (found,) = coding.woken(3.0)
    assert isinstance(found, Reconstructed)
    assert coding.claims.saved == 1, "nothing exact will come"
    assert (coding.claims.held, coding.claims.held_passed_on) == (1, 0)


@pytest.mark.parametrize("lost", ["parity", "other", "deadline"])
def test_refusal_is_passed_on_once_no_reconstruction_can_come(lost: str) -> None:
    coding = groups()
    first, second, group = two(coding)
    coding.encoded(group)
    assert coding.refused(second, 1.5) == (True, [])
    if lost == "parity":
        assert coding.parity_missed(group, 0) == [PassOn(second)]
    elif lost == "other":
        assert coding.failed(first, 2.0) == [PassOn(second)]
    else:
        assert coding.woken(1.0 + RT_MAX_S - 0.1) == []
        assert coding.woken(1.0 + RT_MAX_S) == [PassOn(second)]
    assert coding.claims.held_passed_on == 1


def test_refusal_is_passed_on_at_once_where_no_reconstruction_can_come() -> None:
    coding = groups()
    _, second, group = two(coding)
    coding.encoded(group)
    coding.parity_missed(group, 0)
    assert coding.refused(second, 2.0) == (False, [])


def test_refusal_at_the_deadline_gives_way_to_the_reconstruction_of_that_moment() -> None:
    coding = groups(after_s=RT_MAX_S)
    first, second, group = two(coding)
    coding.encoded(group)
    coding.answered(first, model(query(1)), 2.0)
    coding.parity_answered(group, 0, model(query(1) + query(2)), 3.0)
    assert coding.refused(second, second.deadline_s) == (True, [])
    (found,) = coding.woken(second.deadline_s)
    assert isinstance(found, Reconstructed)
    assert coding.claims.saved == 1


def test_reconstruction_after_the_deadline_saves_nothing() -> None:
    coding = groups()
    first, second, group = two(coding)
    coding.encoded(group)
    coding.answered(first, model(query(1)), 2.0)
    coding.parity_answered(group, 0, model(query(1) + query(2)), second.deadline_s + 1.0)
    (found,) = coding.woken(second.deadline_s + 1.0)
    assert isinstance(found, Reconstructed)
    coding.answered(second, model(query(2)), second.deadline_s + 2.0)
    assert (coding.claims.reconstructed, coding.claims.saved) == (1, 0)


def test_error_of_the_model_is_passed_on_at_once() -> None:
    coding = groups()
    _, second, group = two(coding)
    coding.encoded(group)
    assert coding.failed(second, 2.0) == []
    assert second.answered


def test_group_closes_with_older_queries_in_free_places() -> None:
    coding = groups(k=3, fill_s=10.0)
    known = [join(coding, number, float(number))[0] for number in (1, 2, 3)]
    for number, member in enumerate(known, 1):
        coding.answered(member, model(query(number)), 3.0 + number)
    last, nothing = join(coding, 9, 20.0)
    assert nothing == []
    assert coding.closed(29.9) == []
    (called,) = coding.closed(30.0)
    assert isinstance(called, CallParities)
    (parity,) = coding.encoded(called.group)
    np.testing.assert_allclose(parity, query(9) + query(2) + query(3), rtol=1e-5)
    assert coding.parity_answered(called.group, 0, model(parity), 31.0) == []
    (found,) = coding.woken(31.0)
    assert isinstance(found, Reconstructed)
    assert found.member is last
    np.testing.assert_allclose(found.output, model(query(9)), rtol=1e-4, atol=1e-5)


def test_group_that_cannot_be_filled_is_given_up() -> None:
    coding = groups(k=3, fill_s=10.0)
    member, _ = join(coding, 1, 0.0)
    assert coding.refused(member, 1.0) == (True, [])
    assert coding.closed(10.0) == [PassOn(member)]
    assert (coding.claims.groups, coding.claims.given_up, coding.claims.parity_calls) == (1, 1, 0)
    assert coding.kept_bytes == 0


def test_group_whose_parity_calls_come_too_late_makes_none() -> None:
    coding = groups()
    first, second, group = two(coding)
    assert coding.limit_s(group) == second.deadline_s
    coding.refused(first, 2.0)
    assert coding.too_late(group) == [PassOn(first)]
    coding.answered(second, model(query(2)), 3.0)
    assert (coding.claims.given_up, coding.claims.parity_calls, coding.kept_bytes) == (1, 0, 0)


def test_members_that_never_answer_are_forgotten_when_memory_is_full() -> None:
    coding = groups(most_bytes=10_000)
    first, _ = join(coding, 0, 0.0)
    assert coding.refused(first, 0.0) == (True, [])
    actions = []
    for number in range(1, 100):
        _, more = join(coding, number, float(number) / 100)
        actions += more
        assert coding.kept_bytes <= 10_000
    assert coding.claims.forgotten >= 40
    assert PassOn(first) in actions, "its refusal is not held for ever"


def test_query_at_the_moment_of_closing_belongs_to_the_group() -> None:
    coding = groups(k=3, fill_s=10.0)
    join(coding, 1, 0.0)
    join(coding, 2, 10.0)
    third, _ = join(coding, 3, 10.0)
    assert third.place == 2
    late, _ = join(coding, 4, 20.0)
    assert late.place == 0
    later, _ = join(coding, 5, 30.1)
    assert later.place == 0, "the timer that closes the group is late"


@pytest.mark.parametrize("bad", [np.array([1, np.nan, 0, 0], np.float32), np.ones(3, np.float32), "a", None, [1, [2]]])
def test_answer_of_a_parity_model_that_is_no_output_is_counted_and_not_used(bad: object) -> None:
    coding = groups()
    first, second, group = two(coding)
    coding.encoded(group)
    coding.answered(first, model(query(1)), 2.0)
    assert coding.parity_answered(group, 0, bad, 3.0) == []
    assert coding.woken(3.0) == []
    assert not second.answered
    assert (coding.claims.malformed, coding.claims.parity_missed) == (1, 1)


def test_labels_are_no_outputs() -> None:
    coding = groups()
    first, _, group = two(coding)
    coding.encoded(group)
    coding.answered(first, np.array([1, 0, 0, 0]), 2.0)
    assert coding.parity_answered(group, 0, model(query(1) + query(2)), 3.0) == []
    assert coding.woken(3.0) == []
    assert coding.claims.unusable == 1


def test_reconstruction_that_is_not_finite_is_not_passed_on() -> None:
    coding = groups()
    first, _, group = two(coding)
    coding.encoded(group)
    largest = np.full(4, np.finfo(np.float32).max, np.float32)
    coding.answered(first, -largest, 2.0)
    assert coding.parity_answered(group, 0, largest, 3.0) == []
    assert coding.woken(3.0) == []
    assert coding.claims.malformed == 1


@pytest.mark.parametrize(
    "item",
    [np.ones(4), np.array([1.0, np.inf, 0.0]), np.array(["a", "b", "c"]), [[1], 2, 3], "abc", {"x": 1}, 1e300, None],
)
def test_items_that_fit_no_group_are_told_apart(item: object) -> None:
    assert groups().query_of(item) is None


@pytest.mark.parametrize("item", [np.ones(3), [1, 2, 3], np.ones(3, np.uint8)])
def test_items_of_the_shape_are_numbers_to_encode(item: object) -> None:
    found = groups().query_of(item)
    assert found is not None
    assert found.dtype == np.float32


def test_agreement_is_the_expected_one_until_enough_were_compared() -> None:
    claims = groups().claims
    claims.compared, claims.agreed = 29, 10
    assert claims.agreement(0.93) == 0.93
    claims.compared, claims.agreed = 30, 27
    assert claims.agreement(0.93) == 0.9


# --- a whole run, against the rules


@dataclass
class Asked:
    """A query of a run: its time, and its outcome at the model."""

    at: int
    takes: int
    end: str  # "answer", "refuse", "fail" or "never"
    accepts: bool


@dataclass
class Told:
    """The results of a run, by query: how and when it was answered."""

    answers: dict[int, tuple[str, float]] = field(default_factory=dict)


ASKED = st.builds(
    Asked, st.integers(0, 30), st.integers(1, 12), st.sampled_from(("answer", "answer", "refuse", "fail", "never")),
    st.booleans(),
)  # fmt: skip


def played(asked: Sequence[Asked], parity_takes: Sequence[int], k: int, r: int, after: int, fill: float) -> Told:
    """Tell the machine all events in their order."""
    coding, told = groups(k, r, after_s=float(after), fill_s=fill), Told()
    members: dict[int, Member] = {}
    calls: list[tuple[float, CodingGroup, int]] = []
    number_of: dict[Member, int] = {}

    def act(actions: Sequence[Action], now_s: float) -> None:
        for action in actions:
            if isinstance(action, CallParities):
                encoded = coding.encoded(action.group)
                for parity in range(r if encoded else 0):
                    takes = parity_takes[(len(calls)) % len(parity_takes)]
                    calls.append((now_s + takes, action.group, parity))
            else:
                number = number_of[action.member]
                assert number not in told.answers
                told.answers[number] = "reconstructed" if isinstance(action, Reconstructed) else "refused", now_s

    for now in (float(half) for half in range(200)):
        for number, one in enumerate(asked):
            if number not in members or one.at + one.takes != now or one.end == "never":
                continue
            member = members[number]
            was = member.answered
            if one.end == "answer":
                actions, held = coding.answered(member, model(query(number)), now), False
            elif one.end == "refuse":
                held, actions = coding.refused(member, now)
            else:
                actions, held = coding.failed(member, now), False
            if not was and not held:
                told.answers[number] = ({"answer": "exact", "refuse": "refused", "fail": "failed"}[one.end], now)
            act(actions, now)
        for at, group, parity in calls:
            if at == now:
                act(coding.parity_answered(group, parity, np.zeros(4, np.float32), now), now)
        act(coding.woken(now), now)
        for number, one in enumerate(asked):
            if one.at == now:
                members[number], actions = join(coding, number, now, one.accepts)
                number_of[members[number]] = number
                act(actions, now)
        act(coding.closed(now), now)
    return told


def by_the_rules(asked: Sequence[Asked], parity_takes: Sequence[int], k: int, r: int, after: int, fill: float) -> Told:
    """Compute the same from the text of the rules: all times are known beforehand."""
    order = sorted(range(len(asked)), key=lambda number: asked[number].at)
    exact = {n: one.at + one.takes if one.end == "answer" else math.inf for n, one in enumerate(asked)}
    ended = {n: one.at + one.takes if one.end != "never" else math.inf for n, one in enumerate(asked)}
    formed: list[tuple[list[int], float]] = []
    while order:
        opened = asked[order[0]].at
        group = [n for n in order if asked[n].at <= opened + fill][:k]
        closed = asked[group[-1]].at if len(group) == k else opened + fill
        formed.append((group, closed))
        order = order[len(group) :]
    told, calls = Told(), 0
    reconstructable: dict[int, float] = {}
    never: dict[int, float] = {}  # from when on it is known that no reconstruction comes
    closings = sorted(range(len(formed)), key=lambda at: formed[at][1])
    parities: dict[int, list[float]] = {}
    for at in closings:
        group, closed = formed[at]
        fills = sum(exact[n] <= closed for n in range(len(asked)))
        if math.isinf(closed) or k - len(group) > min(fills, k - 1):
            parities[at] = []
            continue
        parities[at] = [closed + parity_takes[(calls + p) % len(parity_takes)] for p in range(r)]
        calls += r
    for at, (group, closed) in enumerate(formed):
        for n in group:
            outputs = [exact[other] for other in group if other != n] + [closed] * (k - len(group)) + parities[at]
            found = sorted(outputs)
            reconstructable[n] = found[k - 1] if len(found) >= k and parities[at] else math.inf
            # Add each loss, in order of time, until fewer than k members are left.
            losses = sorted(
                [ended[other] for other in group if other != n and math.isinf(exact[other])]
                + ([closed] * r if not parities[at] else [])
            )
            spare = k - 1 + r - k
            never[n] = losses[spare] if len(losses) > spare else math.inf
    for n, one in enumerate(asked):
        at_s = max(reconstructable[n], one.at + after)
        exact_s, refused_s = exact[n], ended[n] if one.end == "refuse" else math.inf
        if one.end == "fail" and (not one.accepts or ended[n] <= at_s):
            told.answers[n] = "failed", ended[n]
        elif one.end == "refuse" and not one.accepts:
            told.answers[n] = "refused", refused_s
        elif one.end == "refuse" and one.accepts and refused_s <= at_s:
            held_until = min(max(refused_s, reconstructable[n]), max(refused_s, never[n]), one.at + RT_MAX_S)
            kind = "reconstructed" if max(refused_s, reconstructable[n]) == held_until else "refused"
            if not math.isinf(held_until):
                told.answers[n] = kind, held_until
        elif one.accepts and at_s < exact_s:
            told.answers[n] = "reconstructed", at_s
        elif not math.isinf(exact_s):
            told.answers[n] = "exact", exact_s
    return told


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ASKED, min_size=1, max_size=12),
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.integers(2, 4),
    st.integers(1, 2),
    st.integers(0, 15),
    st.sampled_from((0.0, 3.0, 7.0, math.inf)),
)
def test_every_query_is_answered_as_the_rules_say(
    asked: list[Asked], parity_takes: list[int], k: int, r: int, after: int, fill: float
) -> None:
    r = min(r, k - 1)
    assert played(asked, parity_takes, k, r, after, fill).answers == (
        by_the_rules(asked, parity_takes, k, r, after, fill).answers
    )


class Coding(RuleBasedStateMachine):
    """Events in any order: one answer each, bounded memory, and right reconstructions of a linear model."""

    MOST_BYTES = 8000

    @initialize(
        k=st.integers(2, 4), r=st.integers(1, 2), after=st.integers(0, 20), fill=st.sampled_from((2.0, math.inf))
    )
    def start(self, k: int, r: int, after: int, fill: float) -> None:
        self.coding = groups(k, min(r, k - 1), after_s=float(after), fill_s=fill, most_bytes=self.MOST_BYTES)
        self.now_s = 0.0
        self.number = 0
        self.pending: list[tuple[int, Member]] = []
        self.numbers: dict[Member, int] = {}
        self.calls: list[tuple[CodingGroup, int, FloatArray]] = []
        self.answered: set[Member] = set()

    def act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, CallParities):
                self.calls += [(action.group, p, one) for p, one in enumerate(self.coding.encoded(action.group))]
            else:
                self.ends(action.member)
                if isinstance(action, Reconstructed):
                    exact = model(query(self.numbers[action.member]))
                    np.testing.assert_allclose(action.output, exact, rtol=1e-2, atol=1e-3)

    def ends(self, member: Member) -> None:
        assert member not in self.answered, "it has two answers"
        self.answered.add(member)

    @rule(accepts=st.booleans())
    def comes(self, accepts: bool) -> None:
        self.number += 1
        member, actions = join(self.coding, self.number, self.now_s, accepts)
        self.numbers[member] = self.number
        self.pending.append((self.number, member))
        self.act(actions)

    @precondition(lambda self: self.pending)
    @rule(at=st.integers(0, 100), how=st.sampled_from(("answered", "answered", "refused", "failed", "gone")))
    def ends_at_the_model(self, at: int, how: str) -> None:
        at %= len(self.pending)
        number, member = self.pending[at]
        if how == "gone":
            if not member.answered:
                self.ends(member)
            self.coding.gone(member)
            return
        del self.pending[at]
        was, held = member.answered, False
        if how == "answered":
            actions = self.coding.answered(member, model(query(number)), self.now_s)
        elif how == "refused":
            held, actions = self.coding.refused(member, self.now_s)
        else:
            actions = self.coding.failed(member, self.now_s)
        if not was and not held:
            self.ends(member)
        self.act(actions)

    @precondition(lambda self: self.calls)
    @rule(at=st.integers(0, 100), answers=st.booleans())
    def ends_at_a_parity_model(self, at: int, answers: bool) -> None:
        group, parity, encoded = self.calls.pop(at % len(self.calls))
        if answers:
            self.act(self.coding.parity_answered(group, parity, model(encoded), self.now_s))
        else:
            self.act(self.coding.parity_missed(group, parity))

    @rule(seconds=st.integers(1, 120))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        self.act(self.coding.woken(self.now_s))
        self.act(self.coding.closed(self.now_s))

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.coding.kept_bytes <= self.MOST_BYTES

    def teardown(self) -> None:
        while self.calls:
            group, parity, _ = self.calls.pop()
            self.act(self.coding.parity_missed(group, parity))
        for _, member in self.pending:
            was = member.answered
            held, actions = self.coding.refused(member, self.now_s)
            if not was and not held:
                self.ends(member)
            self.act(actions)
        self.now_s += 2 * RT_MAX_S
        self.act(self.coding.woken(self.now_s))
        assert set(self.numbers) == self.answered


TestCoding = Coding.TestCase
TestCoding.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
