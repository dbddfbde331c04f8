"""Notes and facts: they return from JSON, and malformed ones from a peer are refused with a ValueError."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.outcome import (
    AskedNote,
    Loss,
    QueryNote,
    SelectionFact,
    candidate_key,
    context_key,
    facts_from_json,
    facts_to_json,
    notes_from_json,
    notes_to_json,
)
from mark.selection.settings import MOST_CANDIDATES, SelectionSettings
from mark.selection.state import SelectionState

KEYS = st.sampled_from(["a@00", "b@00", "c@00"])
CONTEXTS = st.sampled_from(["", context_key("ann"), context_key("bob")])
SHARES = st.floats(0.0, 1.0)
PROPENSITIES = st.floats(0.0, 1.0, exclude_min=True)
SCORES = st.none() | st.floats(allow_nan=False, allow_infinity=False)
LABELS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda one: st.lists(one, max_size=7) | st.dictionaries(st.text(max_size=5), one, max_size=3),
)


def unique(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=3, unique_by=lambda found: found.candidate).map(tuple)


ASKED = st.tuples(KEYS, PROPENSITIES) | st.tuples(KEYS, PROPENSITIES, st.just(True), LABELS, SCORES)
NOTES = st.tuples(
    CONTEXTS,
    unique(ASKED.map(lambda values: AskedNote(*values))),
    st.just("") | KEYS,
    LABELS,
    st.none() | SHARES,
    st.booleans(),
    st.none() | st.dictionaries(KEYS, SHARES),
).map(lambda values: QueryNote(*values))
STAMPS = st.integers(1, 2**53)
FACTS = st.builds(
    SelectionFact,
    CONTEXTS,
    STAMPS,
    STAMPS,
    unique(st.builds(Loss, KEYS, SHARES, PROPENSITIES, SCORES, st.booleans())),
    st.none() | st.tuples(SHARES, SHARES),
    st.none() | st.dictionaries(KEYS, st.floats(-50.0, 50.0)),
)
GOOD: list[Any] = ["", 1, 2, [["a@00", 0.5, 1.0, 0.25, True]], [0.5, 1.0], {"b@00": 0.1}]


@given(st.lists(NOTES, max_size=3))
def test_notes_return_from_json(notes: list[QueryNote]) -> None:
    assert notes_from_json(notes_to_json(notes)) == notes


@given(st.lists(FACTS, max_size=3))
def test_facts_return_from_json(facts: list[SelectionFact]) -> None:
    assert facts_from_json(facts_to_json(facts)) == facts


def accepted(data: bytes) -> list[SelectionFact]:
    try:
        return facts_from_json(data)
    except ValueError:
        return []


@given(st.binary(max_size=30))
def test_bytes_of_a_peer_raise_nothing_but_value_error(data: bytes) -> None:
    accepted(data)
    with pytest.raises(ValueError, match="line 1 column"):
        notes_from_json(b"\x00" + data)


@given(JSON, st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(0, 4))
def test_any_json_in_place_of_a_fact_or_its_parts_is_refused_or_can_be_applied(
    said: Any, places: list[int], part: int
) -> None:
    fact: Any = orjson.loads(orjson.dumps(GOOD))
    for place in places:
        fact[place] = said
    loss: Any = orjson.loads(orjson.dumps(GOOD))
    loss[3][0][part] = said
    for data in (said, [said], [fact], [loss]):
        settings = SelectionSettings("exp4", by_key=True)
        state = SelectionState(["a@00", "b@00"], settings)
        for found in accepted(orjson.dumps(data)):
            state.apply(found)
        state.load(state.dump())
        numbers = [*state.sums("").counts, *state.sums("").weighted, *state.evidence, state.votes.total]
        assert all(0.0 <= one < 1e300 or one in state.evidence for one in numbers)


@given(JSON, st.integers(0, 6), st.integers(0, 4))
def test_any_json_in_place_of_a_note_or_its_parts_raises_nothing_but_value_error(
    said: Any, place: int, part: int
) -> None:
    note: Any = ["", [["a@00", 0.5, True, 7, 0.5]], "a@00", 7, 1.0, False, None]
    note[place] = said
    asked: Any = ["", [["a@00", 0.5, True, 7, 0.5]], "a@00", 7, 1.0, False, None]
    asked[1][0][part] = said
    for data in (said, [said], [note], [asked]):
        try:
            found = notes_from_json(orjson.dumps(data))
        except ValueError:
            continue
        assert notes_from_json(notes_to_json(found)) == found


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "ann"),
        (0, "0X12345678901234"),
        (0, None),
        (1, 0),
        (1, 2**53 + 1),
        (1, 1.0),
        (1, True),
        (2, -1),
        (3, {}),
        (3, [["a@00", 0.5, 1.0, None, True]] * 2),
        (3, [[f"{n}", 0.5, 1.0, None, True] for n in range(MOST_CANDIDATES + 1)]),
        (3, [["a@00", 1.5, 1.0, None, True]]),
        (3, [["a@00", -0.1, 1.0, None, True]]),
        (3, [["a@00", 0.5, 0.0, None, True]]),
        (3, [["a@00", 0.5, 1.1, None, True]]),
        (3, [["a@00", True, 1.0, None, True]]),
        (3, [["a@00", 0.5, 1.0, "nan", True]]),
        (3, [["a@00", 0.5, 1.0, None, 1]]),
        (3, [["", 0.5, 1.0, None, True]]),
        (3, [["x" * 301, 0.5, 1.0, None, True]]),
        (4, []),
        (4, [2.0, 1.0]),
        (4, {"0": 1}),
        (5, []),
        (5, {"a@00": 101.0}),
        (5, {"a@00": None}),
    ],
)
def test_value_out_of_range_is_refused(place: int, value: Any) -> None:
    fact = list(GOOD)
    fact[place] = value
    assert accepted(orjson.dumps([GOOD]))
    with pytest.raises(ValueError, match="must be"):
        facts_from_json(orjson.dumps([fact]))


def test_too_many_bytes_are_refused_before_they_are_read() -> None:
    with pytest.raises(ValueError, match="too many"):
        facts_from_json(b"[" + b" " * (16 * 1024 * 1024) + b"]")


def test_message_does_not_repeat_a_long_value() -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        facts_from_json(orjson.dumps([["x" * 10_000, *GOOD[1:]]]))
    assert len(str(caught.value)) < 200


def test_key_of_a_candidate_changes_with_its_model() -> None:
    assert candidate_key("small", "m:A") == candidate_key("small", "m:A")
    assert candidate_key("small", "m:A") != candidate_key("small", "m:B")
    assert candidate_key("small", "m:A").startswith("small@")


def test_context_is_a_digest_and_not_the_key() -> None:
    assert len(context_key("ann" * 1_000)) == len(context_key("\ud800")) == 16
    assert context_key("ann") != context_key("bob")
