"""SIEVE against a reference that keeps a plain list, and the cases that the paper draws."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.serving.backend.sieve import Owner, Sieve


@dataclass
class Row:
    key: bytes
    value: int
    size: int
    until_s: float
    marked: bool = False


class Reference:
    """The queue as a list, oldest first; `hand` is the next place to look at."""

    def __init__(self, budget: int) -> None:
        self.budget, self.rows, self.hand = budget, list[Row](), 0

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)

    def get(self, key: bytes, now_s: float) -> int | None:
        for row in self.rows:
            if row.key == key and now_s < row.until_s:
                row.marked = True
                return row.value
        return None

    def put(self, key: bytes, value: int, size: int, now_s: float, ttl_s: float) -> list[bytes]:
        there = [row for row in self.rows if row.key == key]
        for row in there:
            row.value, row.size, row.until_s, row.marked = value, size, now_s + ttl_s, True
        need = self.budget if there else self.budget - size
        evicted = []
        while self.size > need:
            row = self.rows[self.hand]
            if row in there or (row.marked and now_s < row.until_s):
                row.marked = row in there
                self.hand += 1
            else:
                evicted.append(self.rows.pop(self.hand).key)
            if self.hand == len(self.rows):
                self.hand = 0
        if not there:
            self.rows.append(Row(key, value, size, now_s + ttl_s))
        return evicted


OWNER = Owner()


def key(number: int) -> bytes:
    return b"%d" % number


@given(budget=st.integers(3, 8), keys=st.integers(2, 12), ages=st.booleans(), seed=st.integers(0, 2**32))
def test_sieve_agrees_with_a_plain_list(budget: int, keys: int, ages: bool, seed: int) -> None:
    """Values, evictions and sizes by owner agree, however entries age, grow and are asked for."""
    draw, sieve, reference, now_s = random.Random(seed), Sieve[int](budget), Reference(budget), 0.0
    owners = [Owner(), Owner()]
    evictions = [0, 0]
    for value in range(200):
        now_s += draw.choice((0.0, 0.0, 0.5, 2.0))
        number, size = draw.randrange(keys), draw.choice((0, 1, 1, 2, 3))
        ttl_s = draw.choice((0.0, 1.0, 5.0, math.inf)) if ages else math.inf
        if draw.random() < 0.5:
            sieve.put(key(number), value, owners[number % 2], size, now_s, ttl_s)
            for evicted in reference.put(key(number), value, size, now_s, ttl_s):
                evictions[int(evicted) % 2] += 1
        else:
            assert sieve.get(key(number), now_s) == reference.get(key(number), now_s)
        assert set(sieve._entries) == {row.key for row in reference.rows}
        assert [owner.evictions for owner in owners] == evictions
        sizes = [sum(row.size for row in reference.rows if int(row.key) % 2 == one) for one in (0, 1)]
        assert [owner.bytes for owner in owners] == sizes
        assert sieve.size == sum(sizes) <= budget


def filled(numbers: range, budget: int = 3) -> Sieve[int]:
    sieve = Sieve[int](budget)
    for number in numbers:
        sieve.put(key(number), number, OWNER, 1, 0.0)
    return sieve


def held(sieve: Sieve[int]) -> set[int]:
    """Return the numbers in the sieve. Asking marks them."""
    return {number for number in range(20) if sieve.get(key(number), 0.0) is not None}


def test_an_entry_that_was_asked_for_stays_before_newer_ones() -> None:
    sieve = filled(range(3))
    assert sieve.get(key(0), 0.0) == 0
    sieve.put(key(3), 3, OWNER, 1, 0.0)
    assert held(sieve) == {0, 2, 3}


def test_the_hand_goes_on_from_its_last_eviction() -> None:
    """Entry 0 has lost its mark, but the hand comes to it again only after all newer ones."""
    sieve = filled(range(3))
    sieve.get(key(0), 0.0)
    for number in (3, 4):
        sieve.put(key(number), number, OWNER, 1, 0.0)
    assert held(sieve) == {0, 3, 4}


def test_the_hand_begins_with_the_oldest_after_it_evicted_the_newest() -> None:
    sieve = filled(range(2), budget=2)
    sieve.get(key(0), 0.0)
    sieve.put(key(2), 2, OWNER, 1, 0.0)
    assert set(sieve._entries) == {key(0), key(2)}
    sieve.put(key(3), 3, OWNER, 1, 0.0)
    assert set(sieve._entries) == {key(2), key(3)}


def test_a_value_that_grows_makes_room_and_stays() -> None:
    """This includes a value that is too old when it is stored."""
    sieve = filled(range(3))
    sieve.put(key(0), 10, OWNER, 3, 0.0, ttl_s=0.0)
    assert (set(sieve._entries), sieve.size) == ({key(0)}, 3)
    sieve.put(key(0), 11, OWNER, 2, 1.0)
    sieve.put(key(1), 1, OWNER, 1, 1.0)
    assert sieve.get(key(0), 1.0) == 11


def test_a_scan_leaves_entries_in_use() -> None:
    sieve = filled(range(3))
    for number in range(3, 20):
        assert sieve.get(key(0), 0.0) == 0
        sieve.put(key(number), number, OWNER, 1, 0.0)
    assert sieve.get(key(0), 0.0) == 0


def test_an_entry_too_old_is_given_no_more_and_leaves_first_though_marked() -> None:
    sieve = Sieve[int](3)
    for number, ttl_s in ((0, math.inf), (1, 5.0), (2, math.inf)):
        sieve.put(key(number), number, OWNER, 1, 0.0, ttl_s)
        assert sieve.get(key(number), 4.9) == number
    assert sieve.get(key(1), 5.0) is None
    sieve.put(key(3), 3, OWNER, 1, 5.0)
    assert set(sieve._entries) == {key(0), key(2), key(3)}


def test_a_size_beyond_the_budget_changes_nothing() -> None:
    sieve = filled(range(3))
    for size in (4, -1):
        with pytest.raises(ValueError, match="do not fit into 3"):
            sieve.put(key(9), 9, OWNER, size, 0.0)
    assert (held(sieve), sieve.size) == ({0, 1, 2}, 3)
