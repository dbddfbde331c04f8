"""Notes and facts of heads: they survive writing and reading, and keys are named by a digest."""

from __future__ import annotations

import numpy as np
import pytest

from mark.serving.personal.notes import (
    HeadFact,
    HeadNote,
    Scored,
    fact_in,
    id_name,
    key_name,
    key_of_header,
    notes_in,
)

VECTOR = np.array([1.5, -2.25], dtype=np.float32)


def test_note_is_read_as_it_was_written() -> None:
    note = HeadNote("k", "v", [Scored("s1", VECTOR, 0.25), Scored("s2")], 7)
    (found,) = notes_in(note.to_json())
    assert (found.key, found.version, found.own_id) == ("k", "v", 7)
    first, second = found.scored
    assert (first.item, first.propensity, second.item, second.vector) == ("s1", 0.25, "s2", None)
    assert first.vector is not None
    assert first.vector.tolist() == VECTOR.tolist()


def test_notes_of_several_items_are_a_list() -> None:
    notes = b"[%b,%b]" % (HeadNote("k", "v", [Scored("a")]).to_json(), HeadNote("k", "v", [Scored("b")]).to_json())
    assert [one.scored[0].item for one in notes_in(notes)] == ["a", "b"]


@pytest.mark.parametrize("note", [b"7", b"{}", b"[3]", b'{"key":1}', b"null"])
def test_what_is_no_note_raises_value_error(note: bytes) -> None:
    with pytest.raises(ValueError, match="no note of a head"):
        notes_in(note)


def test_fact_is_read_as_it_was_written() -> None:
    fact = fact_in(HeadFact("k", 3.5, "v", 4.0, "s", VECTOR, 9).to_json())
    assert fact is not None
    assert (fact.key, fact.at_s, fact.version, fact.reward, fact.item, fact.own_id) == ("k", 3.5, "v", 4.0, "s", 9)
    deletion = fact_in(HeadFact("k", 3.5).to_json())
    assert deletion is not None
    assert deletion.reward is None


def test_erased_fact_is_none() -> None:
    assert fact_in(b"") is None


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"7", "no fact of a head"),
        (b"{}", "no fact of a head"),
        (b'{"key": "k"}', "no fact of a head"),
        (b'{"key": "k", "at_s": "x"}', "could not convert"),
        (b"nonsense", "invalid literal"),
    ],
)
def test_what_is_no_fact_raises_value_error(content: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        fact_in(content)


def test_key_has_one_name_in_header_and_body() -> None:
    header = "Zoë".encode().decode("latin-1")  # as the listener reads it
    assert key_name(key_of_header(header)) == key_name("Zoë")
    assert "Zo" not in key_name("Zoë")


def test_id_is_a_number_that_json_holds() -> None:
    assert 0 < id_name("c-1") < 1 << 53
    assert id_name("c-1") != id_name("c-2")
