"""The lease in memory: which holder leads when, and how often the terms are asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.lease import FencedLease, MemoryTerms, Term
from mark.domain.errors import LostLease


class CountingTerms(MemoryTerms):
    """Counts what is asked, and takes so long to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.takes_s, self.monotonic_s = 0, 0.0, 0.0

    def claim(self, name: str, holder: str, now_s: float, until_s: float) -> Term:
        self.asked += 1
        self.monotonic_s += self.takes_s
        return super().claim(name, holder, now_s, until_s)


@pytest.fixture
def terms() -> CountingTerms:
    return CountingTerms()


def lease(terms: CountingTerms) -> FencedLease:
    return FencedLease(terms, "site", ttl_s=15.0, monotonic_s=lambda: terms.monotonic_s)


def test_one_leads_until_it_is_gone_for_a_term(terms: CountingTerms) -> None:
    """Then the other one does, with the next number, and the first one is told so."""
    one, other = lease(terms), lease(terms)
    for now_s in range(100, 131):
        assert (one.hold(now_s), other.hold(now_s)) == (1, None)
    # The last renewal was at 130.
    assert [other.hold(now_s) for now_s in (131.0, 144.0, 144.9)] == [None, None, None]
    assert other.hold(145.0) == 2
    assert one.hold(145.0) is None
    assert (one.fence, other.fence) == (1, 2)


def test_a_third_of_a_term_goes_by_between_two_questions(terms: CountingTerms) -> None:
    """A call made every second must be cheap, for the leader and for standbys."""
    one, other = lease(terms), lease(terms)
    for now_s in range(60):
        one.hold(100.0 + now_s)
    assert terms.asked == 12
    for now_s in range(10):
        other.hold(160.0 + now_s)
    assert terms.asked == 12 + 2


def test_released_another_one_leads_at_once(terms: CountingTerms) -> None:
    """The next term has another number, also for the same holder; without a term there is nothing to release."""
    one, other = lease(terms), lease(terms)
    assert one.hold(0.0) == 1
    other.release()
    assert one.hold(5.0) == 1
    one.release()
    one.release()
    assert other.hold(5.1) == 2
    other.release()
    assert other.hold(5.2) == 3


def test_a_failing_store_ends_the_lead_when_the_term_ends(terms: CountingTerms) -> None:
    """A second before, in case clocks differ: then another one might lead. It asks on, and leads again when it can."""
    one = lease(terms)
    assert one.hold(100.0) == 1
    terms.failing = True
    assert [one.hold(now_s) for now_s in (105.0, 110.0, 113.9)] == [1, 1, 1]
    assert [one.hold(now_s) for now_s in (114.0, 118.0)] == [None, None]
    terms.failing = False
    assert one.hold(120.0) == 1


class MovedTerms(CountingTerms):
    """Kept where no other holder looks any more, once they have `moved`."""

    moved = False

    def claim(self, name: str, holder: str, now_s: float, until_s: float) -> Term:
        if self.moved:
            raise LostLease("another file is there now")
        return super().claim(name, holder, now_s, until_s)


def test_terms_that_moved_end_the_lead_at_once() -> None:
    """Others cannot see this holder's term, so it must not wait for its end."""
    terms = MovedTerms()
    one = lease(terms)
    assert one.hold(100.0) == 1
    terms.moved = True
    assert one.hold(105.0) is None
    assert not one.lasts()


def test_a_failing_store_raises_neither_in_hold_nor_in_release(terms: CountingTerms) -> None:
    """There is no leader, and releasing raises nothing."""
    one = lease(terms)
    terms.failing = True
    assert one.hold(0.0) is None
    one.release()
    assert one.fence is None


def test_time_spent_asking_counts(terms: CountingTerms) -> None:
    """A store that answers, or fails to, after the end of the term must not leave two leaders."""
    one = lease(terms)
    terms.takes_s = 13.0
    assert one.hold(100.0) == 1
    terms.takes_s, terms.failing = 7.0, True
    assert one.hold(106.0) == 1
    assert one.hold(107.5) is None  # it is 114.5 when the answer comes


def test_lasts_is_answered_also_while_the_store_hangs(terms: CountingTerms) -> None:
    """By a clock of its own, and from when it was asked for."""
    one = lease(terms)
    assert not one.lasts()
    terms.takes_s = 3.0
    one.hold(100.0)
    assert one.lasts()
    terms.monotonic_s += 10.5
    assert one.lasts()
    terms.monotonic_s += 0.6
    assert not one.lasts()
    one.hold(115.0)
    assert one.lasts()
    one.release()
    assert not one.lasts()


def test_a_clock_that_was_set_back_proves_nothing(terms: CountingTerms) -> None:
    """It asks at once, and learns that another one leads."""
    one, other = lease(terms), lease(terms)
    assert one.hold(100.0) == 1
    assert other.hold(115.0) == 2
    assert one.hold(99.0) is None


def test_leases_of_other_names_are_others(terms: CountingTerms) -> None:
    """Two sites on one store have a leader each."""
    one, other = FencedLease(terms, "one"), FencedLease(terms, "two")
    assert (one.hold(0.0), other.hold(0.0)) == (1, 1)


def test_every_holder_has_its_own_name(terms: CountingTerms) -> None:
    """A restarted controller is another one: it waits for the end of the term before."""
    assert len({lease(terms).holder for _ in range(9)}) == 9


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.0, 5.0, 14.9, 15.0, 40.0]),  # goes by
        st.permutations([0, 1, 2]),  # in this order they look
        st.sampled_from(["nothing", "release", "sleep", "failing", "slow"]),  # befalls the first of them
    ),
    max_size=40,
)


@given(STEPS)
def test_never_two_lead(steps: list[tuple[float, list[int], str]]) -> None:
    """However holders poll, sleep, release or lose answers: at most one leads, and a new term has a higher number."""
    terms = CountingTerms()
    holders = [lease(terms) for _ in range(3)]
    now_s, last = 1000.0, (0, -1)
    for passed_s, order, befalls in steps:
        now_s += passed_s
        terms.failing, terms.takes_s = befalls == "failing", 0.0
        leading = []
        for place, k in enumerate(order):
            if place == 0 and befalls == "sleep":
                continue
            if place == 0 and befalls == "release":
                holders[k].release()
                continue
            terms.takes_s = 6.0 if place == 0 and befalls == "slow" else 0.0
            asked_s = terms.monotonic_s
            fence = holders[k].hold(now_s)
            now_s += terms.monotonic_s - asked_s
            if fence is not None:
                leading.append((fence, k))
        assert len(leading) <= 1 or befalls == "slow"
        for one in leading:
            assert one == last or one[0] > last[0]
            last = one
