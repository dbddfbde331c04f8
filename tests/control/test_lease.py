"""The lease in memory: which holder leads when, and how often the terms are asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.lease import FencedLease, MemoryTerms, Term, claimed
from mark.domain.errors import LostLease


class CountingTerms(MemoryTerms):
    """Counts reads and writes, and takes `takes_s` to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.takes_s, self.monotonic_s = 0, 0.0, 0.0

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        self.asked += 1
        self.monotonic_s += self.takes_s
        return super().claim(name, holder, until_s, over)


@pytest.fixture
def terms() -> CountingTerms:
    return CountingTerms()


class Holder:
    """A holder whose wall clock is `ahead_s` of the monotonic one, which all share."""

    def __init__(self, terms: CountingTerms, name: str = "site", *, ahead_s: float = 0.0) -> None:
        self.terms, self.ahead_s = terms, ahead_s
        self.lease = FencedLease(terms, name, ttl_s=15.0, monotonic_s=lambda: terms.monotonic_s)

    def hold(self, at_s: float) -> int | None:
        self.terms.monotonic_s = max(self.terms.monotonic_s, at_s)
        return self.lease.hold(self.terms.monotonic_s + self.ahead_s)


def test_one_leads_until_it_is_gone_for_a_term(terms: CountingTerms) -> None:
    """Then the other one leads with the next number, and the first one notices."""
    one, other = Holder(terms), Holder(terms)
    for at_s in range(100, 131):
        assert (one.hold(at_s), other.hold(at_s)) == (1, None)
    # The last renewal was at 130, and seen immediately.
    assert [other.hold(at_s) for at_s in (131.0, 144.0, 144.9)] == [None, None, None]
    assert other.hold(145.0) == 2
    assert one.hold(145.0) is None
    assert (one.lease.fence, other.lease.fence) == (1, 2)


def test_a_third_of_a_term_goes_by_between_two_questions(terms: CountingTerms) -> None:
    """A call made every second must be cheap, for the leader and for standbys."""
    one, other = Holder(terms), Holder(terms)
    for at_s in range(60):
        one.hold(100.0 + at_s)
    assert terms.asked == 12
    for at_s in range(10):
        other.hold(160.0 + at_s)
    assert terms.asked == 12 + 2


def test_released_another_one_leads_at_once(terms: CountingTerms) -> None:
    """The next term has another number, even for the same holder; without a term there is nothing to release."""
    one, other = Holder(terms), Holder(terms)
    assert one.hold(0.0) == 1
    other.lease.release()
    assert one.hold(5.0) == 1
    one.lease.release()
    one.lease.release()
    assert other.hold(5.1) == 2
    other.lease.release()
    assert other.hold(5.2) == 3


def test_later_term_of_the_same_holder_is_another_one(terms: CountingTerms) -> None:
    one, other = Holder(terms), Holder(terms)
    assert (one.hold(0.0), one.lease.lasts_as(1)) == (1, True)
    one.lease.release()
    assert (other.hold(1.0), one.hold(2.0), one.lease.lasts_as(1)) == (2, None, False)
    other.lease.release()
    assert one.hold(20.0) == 3
    assert (one.lease.lasts_as(1), one.lease.lasts_as(3)) == (False, True)


def test_a_failing_store_ends_the_lead_when_the_term_ends(terms: CountingTerms) -> None:
    """The lead ends a second early, in case clocks differ. The holder still asks, and leads again when it can."""
    one = Holder(terms)
    assert one.hold(100.0) == 1
    terms.failing = True
    assert [one.hold(at_s) for at_s in (105.0, 110.0, 113.9)] == [1, 1, 1]
    assert [one.hold(at_s) for at_s in (114.0, 118.0)] == [None, None]
    terms.failing = False
    assert one.hold(120.0) == 1


class MovedTerms(CountingTerms):
    """Terms that no other holder reads any more, once they have `moved`."""

    moved = False

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        if self.moved:
            raise LostLease("another file is there now")
        return super().claim(name, holder, until_s, over)


def test_terms_that_moved_end_the_lead_at_once() -> None:
    """Others cannot see this holder's term, so it must not wait for its end."""
    terms = MovedTerms()
    one = Holder(terms)
    assert one.hold(100.0) == 1
    terms.moved = True
    assert one.hold(105.0) is None
    assert not one.lease.lasts()


def test_a_failing_store_raises_neither_in_hold_nor_in_release(terms: CountingTerms) -> None:
    """Nobody leads then."""
    one = Holder(terms)
    terms.failing = True
    assert one.hold(0.0) is None
    one.lease.release()
    assert one.lease.fence is None


def test_time_spent_asking_counts(terms: CountingTerms) -> None:
    """A store that answers, or fails to, after the end of the term must not leave two leaders."""
    one = Holder(terms)
    terms.takes_s = 13.0
    assert one.hold(100.0) == 1
    terms.takes_s, terms.failing = 0.5, True
    assert one.hold(113.0) == 1
    assert one.hold(113.6) == 1
    terms.takes_s, terms.failing = 15.0, False
    assert one.hold(114.5) is None, "it is 129.5 when the answer comes, and the term was asked for 15 s ago"


class LateAnswers(CountingTerms):
    """Terms that change while they answer: `meanwhile` is called before the answer is read."""

    meanwhile: Callable[[], None] | None = None

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().claim(name, holder, until_s, over)


def test_a_term_counts_from_the_answer_that_shows_it() -> None:
    """Its holder may have renewed it just before. Counted from the question a standby would lead too early."""
    terms = LateAnswers()
    one, other = Holder(terms), Holder(terms)
    assert (one.hold(0.0), other.hold(1.0)) == (1, None)

    def renewed() -> None:
        assert one.hold(12.0) == 1

    terms.meanwhile = renewed
    assert other.hold(6.5) is None, "the answer comes at 12"
    for at_s in (21.4, 21.6, 24.0, 25.9):
        assert other.hold(at_s) is None
        assert one.lease.lasts()
    assert other.hold(26.9) is None
    assert other.hold(27.0) == 2
    assert not one.lease.lasts()


def test_lasts_is_answered_also_while_the_store_hangs(terms: CountingTerms) -> None:
    """`lasts` uses a separate clock, and counts from the time of the request."""
    one = Holder(terms)
    assert not one.lease.lasts()
    terms.takes_s = 3.0
    one.hold(100.0)
    assert one.lease.lasts()
    terms.monotonic_s += 10.5
    assert one.lease.lasts()
    terms.monotonic_s += 0.6
    assert not one.lease.lasts()
    one.hold(115.0)
    assert one.lease.lasts()
    one.lease.release()
    assert not one.lease.lasts()


@pytest.mark.parametrize("ahead_s", [-1e6, -20.0, 20.0, 900.0, 1e6])
def test_a_standby_by_another_clock_waits_a_term_itself(terms: CountingTerms, ahead_s: float) -> None:
    """A standby's wall clock may be ahead or jump, so times that the holder wrote by another clock prove nothing."""
    one, other = Holder(terms), Holder(terms, ahead_s=ahead_s)
    for at_s in range(100, 131):
        assert (one.hold(at_s), other.hold(at_s)) == (1, None)
        other.ahead_s = -other.ahead_s
    assert [other.hold(at_s) for at_s in (140.0, 144.9, 145.0)] == [None, None, 2]


def test_a_new_holder_waits_for_a_term_long_over(terms: CountingTerms) -> None:
    """It cannot know that it is: the term's end was written by another clock."""
    one, other = Holder(terms), Holder(terms)
    assert one.hold(100.0) == 1
    assert [other.hold(at_s) for at_s in (1000.0, 1014.9, 1015.0)] == [None, None, 2]


@pytest.mark.parametrize("ahead_s", [-900.0, -20.0, 20.0, 900.0])
def test_a_holder_whose_wall_clock_was_set_lets_go(terms: CountingTerms, ahead_s: float) -> None:
    """It lets go immediately and for two terms, in which another may take over.

    Without one, it leads with a new number.
    """
    one, other = Holder(terms), Holder(terms)
    for at_s in range(100, 121):
        assert (one.hold(at_s), other.hold(at_s)) == (1, None)
    one.ahead_s = ahead_s
    assert one.hold(121.0) is None
    assert not one.lease.lasts()
    led = [(one.hold(at_s), other.hold(at_s)) for at_s in range(122, 161)]
    assert led == [(None, None)] * 13 + [(None, 2)] * 26
    other.ahead_s = ahead_s
    assert other.hold(161.0) is None
    assert [other.hold(at_s) for at_s in (176.0, 190.9, 191.0)] == [None, None, 3], "none took over"


def test_a_clock_set_during_a_long_pause_ends_the_lead(terms: CountingTerms) -> None:
    """A round that is still under way uses control time by the old clock, so the lead gets a new number."""
    one = Holder(terms, ahead_s=600.0)
    assert one.hold(100.0) == 1
    one.ahead_s = 0.0
    assert [one.hold(at_s) for at_s in (3700.0, 3715.0, 3729.9, 3730.0)] == [None, None, None, 2]


def test_a_slow_wall_clock_is_no_reason_to_let_go(terms: CountingTerms) -> None:
    """A clock that stands still is none either: the term is renewed by the monotonic clock, as others see."""
    one, other = Holder(terms), Holder(terms)
    for at_s in range(100, 300):
        one.ahead_s = 100.0 - at_s
        assert (one.hold(at_s), other.hold(at_s)) == (1, None)
    assert terms.asked == 80


def test_a_machine_that_slept_does_not_lead_on(terms: CountingTerms) -> None:
    """Its monotonic clock stood still during the sleep, its wall clock did not."""
    one = Holder(terms)
    assert one.hold(100.0) == 1
    one.ahead_s = 3600.0
    assert one.hold(101.0) is None


def test_leases_of_other_names_are_others(terms: CountingTerms) -> None:
    """Two sites on one store have a leader each."""
    one, other = Holder(terms, "one"), Holder(terms, "two")
    assert (one.hold(0.0), other.hold(0.0)) == (1, 1)


def test_every_holder_has_its_own_name(terms: CountingTerms) -> None:
    """A restarted controller counts as another holder: it waits for the end of the term before."""
    assert len({Holder(terms).lease.holder for _ in range(9)}) == 9


@given(st.lists(st.floats(-1e10, 1e10), max_size=9))
def test_two_terms_that_are_equal_were_not_renewed(until_s: list[float]) -> None:
    """A claimant compares the terms that it saw, so this must hold whatever the holder's clock shows."""
    term, seen = claimed(None, "a", 0.0, None), list[Term]()
    for one in until_s:
        seen.append(term)
        term = claimed(term, "a", one, None)
        assert term not in seen
        assert term.until_s >= one
        assert claimed(term, "b", one, seen[-1]) == term
    assert claimed(term, "b", 0.0, term) == Term("b", 2, 0.0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.0, 5.0, 14.9, 15.0, 40.0]),  # goes by
        st.permutations([0, 1, 2]),  # in this order they look
        st.sampled_from(["nothing", "release", "sleep", "failing", "slow", "ahead", "behind"]),  # befalls the first
    ),
    max_size=40,
)


@given(STEPS)
def test_never_two_lead(steps: list[tuple[float, list[int], str]]) -> None:
    """At most one leads, however holders poll, sleep, release, lose answers or have their clocks set.

    A new term has a higher number.
    """
    terms = CountingTerms()
    holders = [Holder(terms, ahead_s=ahead_s) for ahead_s in (0.0, 100.0, -7.0)]
    last = (0, -1)
    for passed_s, order, befalls in steps:
        terms.monotonic_s += passed_s
        terms.failing, terms.takes_s = befalls == "failing", 0.0
        for place, k in enumerate(order):
            if place == 0 and befalls == "sleep":
                continue
            if place == 0 and befalls == "release":
                holders[k].lease.release()
                continue
            if place == 0 and befalls in ("ahead", "behind"):
                holders[k].ahead_s += 60.0 if befalls == "ahead" else -60.0
            terms.takes_s = 6.0 if place == 0 and befalls == "slow" else 0.0
            fence = holders[k].hold(terms.monotonic_s)
            if fence is not None:
                assert (fence, k) == last or fence > last[0]
                last = fence, k
        leading = [k for k, holder in enumerate(holders) if holder.lease.lasts()]
        assert len(leading) <= 1
