"""Sums of facts: independent of order, and equal to a slow reference."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.tally import LossTally, Observed, Tallies, discount_of
from tests.selection.selections import close

FACTS = st.lists(
    st.tuples(
        st.integers(1, 3) | st.integers(1, 100_000) | st.just(2**53),
        st.dictionaries(st.integers(0, 2), st.tuples(st.floats(0.0, 1.0), st.floats(1e-3, 1.0))).map(
            lambda by: [(one, *pair) for one, pair in by.items()]
        ),
    ),
    max_size=12,
)
DISCOUNTS = st.sampled_from([1.0, 0.999, 0.995, 0.5, 1e-3])
Facts = list[tuple[int, list[Observed]]]


def reference(facts: Facts, discount: float) -> list[float]:
    """Return counts, losses and weighted losses of three candidates, computed from all facts together."""
    newest = max((stamp for stamp, _ in facts), default=0)
    found = []
    for column in range(3):
        for candidate in range(3):
            terms = []
            for stamp, observed in facts:
                for one, loss, propensity in observed:
                    value = (1.0, loss, loss / propensity)[column]
                    terms.append(discount ** (newest - stamp) * value if one == candidate else 0.0)
            found.append(math.fsum(terms))
    return found


def flat(sums: Sequence[Sequence[float]]) -> list[float]:
    return [value for column in sums for value in column]


@given(FACTS, DISCOUNTS, st.randoms(use_true_random=False))
def test_sums_are_those_of_the_reference_in_any_order(facts: Facts, discount: float, chance: random.Random) -> None:
    shuffled = facts[:]
    chance.shuffle(shuffled)
    for order in (facts, shuffled):
        tally, tallies = LossTally(3, discount), Tallies(3, discount)
        for stamp, observed in order:
            tally.add(stamp, observed)
            tallies.add(2**64 - 1, stamp, stamp, observed)
        assert close(flat(tally.sums), reference(facts, discount))
        assert tally.facts == tallies.facts(2**64 - 1) == len(facts)
        kept = tallies.sums(2**64 - 1)
        assert (kept is None) == (not facts)
        if kept is not None:
            assert close(flat(kept), reference(facts, discount))


def test_two_writers_who_know_nothing_of_each_other_add_up_in_any_order() -> None:
    generator = random.Random(3)
    facts: Facts = [(stamp, [(0, generator.random(), 0.25)]) for _ in range(2) for stamp in range(1, 2_001)]
    one, other = LossTally(3, 0.995), LossTally(3, 0.995)
    for stamp, observed in facts:
        one.add(stamp, observed)
    generator.shuffle(facts)
    for stamp, observed in facts:
        other.add(stamp, observed)
    assert close(flat(one.sums), flat(other.sums))
    assert close(flat(one.sums), reference(facts, 0.995))


def test_a_query_keeps_the_sums_that_it_began_with() -> None:
    tally = LossTally(1, 0.5)
    tally.add(1, [(0, 1.0, 1.0)])
    before = tally.sums
    tally.add(2, [(0, 1.0, 1.0)])
    assert (before.counts, tally.sums.counts) == ([1.0], [1.5])


def test_mean_is_shrunk_towards_the_prior() -> None:
    tally = LossTally(2, 1.0)
    tally.add(1, [(0, 1.0, 1.0)])
    assert tally.sums.mean(0) == 0.75
    assert tally.sums.mean(1) == 0.5
    assert tally.sums.mean(1, 0.1, 4.0) == pytest.approx(0.1)


@given(FACTS, DISCOUNTS)
def test_a_tally_returns_from_its_row(facts: Facts, discount: float) -> None:
    tally, other = LossTally(3, discount), LossTally(3, discount)
    for stamp, observed in facts:
        tally.add(stamp, observed)
    other.load(tally.dump())
    assert (other.sums, other.facts, other.newest) == (tally.sums, tally.facts, tally.newest)
    with pytest.raises(ValueError, match="another number of candidates"):
        LossTally(2, discount).load(tally.dump())


def filled(contexts: Sequence[int], most: int = 1_000_000) -> Tallies:
    """Return tallies in which the n-th context has the stamp n and the loss 1 / n of the first of two candidates."""
    tallies = Tallies(2, 0.9, most)
    for n, context in enumerate(contexts, 1):
        tallies.add(context, 1, n, [(0, 1.0 / n, 0.5), (1, 0.0, 0.5)])
    return tallies


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=40), st.integers(1, 64))
def test_contexts_return_from_a_dump(contexts: list[int], most: int) -> None:
    tallies, other = filled(contexts), Tallies(2, 0.9, most)
    other.load(tallies.dump(), [0, 1], 2)
    kept = contexts[-most:]  # those with the newest facts
    assert len(other) == len(kept)
    for context in contexts:
        assert other.sums(context) == (tallies.sums(context) if context in kept else None)


def test_candidates_change_places_in_a_dump() -> None:
    dumped, other = filled([5, 6]).dump(), Tallies(3, 0.9)
    other.load(dumped, [1, None, 0], 2)
    assert other.sums(6) == ([1.0, 0.0, 1.0], [0.0, 0.0, 0.5], [0.0, 0.0, 1.0])
    assert other.facts(6) == 1
    one = Tallies(1, 0.9)
    one.load(dumped, [0], 2)
    assert one.sums(6) == ([1.0], [0.5], [1.0])


@pytest.mark.parametrize("damaged", [b"", b"\x01", b"\xff" * 8, filled([1]).dump()[:-1], filled([1]).dump() + b"\0"])
def test_a_dump_that_is_cut_short_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        Tallies(2, 0.9).load(damaged, [0, 1], 2)


def test_a_dump_with_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        Tallies(2, 0.9).load(filled([1]).dump()[:-8] + b"\xff" * 8, [0, 1], 2)


def test_the_context_whose_last_fact_is_the_oldest_makes_room() -> None:
    tallies = filled([10, 20, 30], most=3)
    tallies.add(10, 2, 4, [])
    tallies.add(40, 1, 5, [(0, 1.0, 1.0)])
    assert tallies.sums(20) is None
    assert tallies.facts(10) == 2
    assert tallies.sums(40) == ([1.0, 0.0], [1.0, 0.0], [1.0, 0.0])
    assert len(tallies) == 3


def test_many_new_contexts_keep_to_the_limit() -> None:
    generator = random.Random(1)
    tallies = Tallies(2, 0.9, most=1_000)
    for n in range(1, 20_001):
        tallies.add(generator.getrandbits(64), 1, n, [(0, 1.0, 1.0)])
    assert 1_000 <= len(tallies) <= 1_010
    assert int.from_bytes(tallies.dump()[:8], "little") == len(tallies)


@pytest.mark.parametrize("count", [12_500, pytest.param(100_000, marks=pytest.mark.acceptance)])
def test_contexts_take_at_most_200_bytes_each(count: int) -> None:
    """A hundred thousand of them take a tenth of 200 MB."""
    generator = random.Random(1)
    contexts = [generator.getrandbits(64) for _ in range(count)]
    tracemalloc.start()
    tallies = Tallies(5, 0.995, most=count)
    for n, context in enumerate(contexts, 1):
        tallies.add(context, 1, n, [(0, 1.0, 1.0)])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= 200 * count


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.5, math.nan])
def test_impossible_discounts_are_refused(discount: float) -> None:
    with pytest.raises(ValueError, match="above 0 and 1 at most"):
        LossTally(2, discount)
    with pytest.raises(ValueError, match="above 0 and 1 at most"):
        Tallies(2, discount)


def test_discount_halves_after_a_half_life() -> None:
    assert discount_of(140.0) ** 140 == pytest.approx(0.5)
    assert discount_of(math.inf) == 1.0
