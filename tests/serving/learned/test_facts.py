"""Facts, their lines, and the vector that says which facts a state holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.serving.learned.facts import (
    KEPT_S,
    MOST_CONTENT,
    NEW,
    OLD,
    REPEATED,
    Fact,
    Vector,
    fact_in,
    facts_in,
    line_of,
    pages,
    vector_in,
)
from tests.serving.learned.made import fact


def vector(*facts: Fact) -> Vector:
    made = Vector()
    for one in facts:
        made.add(one)
    return made


@given(st.binary(max_size=200), st.text(max_size=20), st.integers(1, 1 << 40), st.floats(-1e12, 1e12))
def test_a_fact_survives_its_line(content: bytes, about: str, number: int, at_s: float) -> None:
    one = Fact("5fca80d81bd2", number, at_s, about, content)
    line = line_of(one)
    assert line.count(b"\n") == 1
    assert fact_in(line) == one


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'["w",1,0,"r"]',
        b'["w",0,0,"r",""]',
        b'["w",1.5,0,"r",""]',
        b'["w",true,0,"r",""]',
        b'["w",9007199254740992,0,"r",""]',
        b'["",1,0,"r",""]',
        b'["w",1,null,"r",""]',
        b'["w",1,0,"r","?"]',
        b'["w",1,0,"%b",""]' % (b"r" * 129),
        b'["w",1,0,"r","%b"]' % (b"AAAA" * (MOST_CONTENT // 3 + 2)),
        b'["w",1,0,"r',
    ],
)
def test_lines_that_are_no_facts_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json, base64 or facts
        fact_in(line)


def test_pages_hold_all_facts_in_order() -> None:
    facts = [fact("w", number) for number in range(1, 30)]
    found = list(pages(facts, 200))
    assert len(found) == 4
    assert [one for page, _ in found for one in page] == facts
    assert all(facts_in(lines) == page for page, lines in found)


@given(*2 * [st.lists(st.integers(1, 12), unique=True)])
def test_a_vector_knows_new_and_repeated_facts_and_counts_the_missing(here: list[int], there: list[int]) -> None:
    """The order does not matter, and a vector survives writing and reading."""
    ours, theirs = (vector(*(fact("w", number) for number in numbers)) for numbers in (here, there))
    for number in range(1, 14):
        assert ours.judge(fact("w", number)) == (REPEATED if number in here else NEW)
        assert ours.has("w", number) == (number in here)
    assert ours.lacks(theirs) == len(set(there) - set(here))
    assert vector_in(ours.to_json()) == ours.copy() == ours
    if here:
        through = next(number for number in range(1, 14) if number not in here) - 1
        assert ours.writers["w"].through == through


def test_writers_of_long_ago_are_forgotten_and_their_facts_stay_known() -> None:
    old, new = fact("old", 1, at_s=0.0), fact("new", 1, at_s=KEPT_S)
    ours = vector(old, new, fact("alive", 1, at_s=0.0))
    theirs = ours.copy()
    assert ours.forget(10.0, {"alive"}) == ["old"]
    assert set(ours.writers) == {"new", "alive"}
    assert ours.judge(old) == OLD
    assert ours.judge(fact("old", 2, at_s=5.0)) == OLD  # 30 days late
    assert ours.judge(fact("later", 1, at_s=10.0)) == NEW
    assert (ours.lacks(theirs), theirs.lacks(ours)) == (0, 0)  # so they are not sent again
    assert vector_in(ours.to_json()) == ours


def test_a_vector_that_forgets_nothing_knows_no_old_facts() -> None:
    ours = vector(fact("w", 1))
    assert ours.forget(0.0, ()) == []
    assert ours.since_s == -math.inf


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"since_s": None, "writers": []},
        {"since_s": None, "writers": {"w": [1, []]}},
        {"since_s": None, "writers": {"w": [-1, [], 0.0]}},
        {"since_s": None, "writers": {"w": [3, [2], 0.0]}},
        {"since_s": None, "writers": {"w": [3, ["x"], 0.0]}},
        {"since_s": "x", "writers": {}},
        {"since_s": None, "writers": {"": [1, [], 0.0]}},
    ],
)
def test_what_is_no_vector_is_refused(said: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of float, too
        vector_in(said)
