"""Messages for people: one line, with the value that was wrong."""

from __future__ import annotations

import pickle

from mark.domain.errors import BadInput


def test_a_message_is_one_line_with_place_and_value() -> None:
    assert str(BadInput("must be above zero", "rate", -1)) == "rate: must be above zero: -1"
    assert str(BadInput("is no name", "name", "two\nlines")) == "name: is no name: two lines"
    assert str(BadInput("missing", "name")) == "name: missing"


def test_a_long_values_beginning_and_end_are_shown() -> None:
    path = "/home/" + "folder/" * 60 + "model.npz"
    shown = str(BadInput("cannot be read", "file", path))
    assert len(shown) < 200
    assert "/home/folder/" in shown
    assert shown.endswith("/folder/model.npz")
    assert path[:100] in str(BadInput("cannot be read", "file", path[:160]))


def test_it_survives_the_way_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(BadInput("unknown", "policy", "mrak", known=["mark"])))
    assert str(error) == "policy: unknown, did you mean mark?: mrak"
