"""Rows of a log of answers: how they are read, and one clear line for each that cannot be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest

from mark.domain.errors import BadInput
from mark.selection.answer_log import (
    NO_LABEL,
    NO_NOTE,
    OTHER_ITEMS,
    AnswerRow,
    cell_value,
    is_observation,
    query_of,
    row_of,
    rows_of_observation,
)
from mark.selection.outcome import AskedNote, QueryNote, context_key, notes_to_json
from mark.selection.policy import CandidateReply


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *[("7", 7), ("7.0", 7), ("-3", -3), (" 0.25 ", 0.25), (".5", 0.5), ("1e-3", 1e-3), ("", None), ("  ", None)],
        *[("007", "007"), ("1_000", "1_000"), ("cat", "cat"), ("nan", "nan"), ("inf", "inf"), ("1e999", "1e999")],
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_cell_is_a_number_only_where_it_is_written_as_one(cell: str, value: object) -> None:
    assert cell_value("a.answer", cell) == value


def test_key_stays_as_it_is_written() -> None:
    assert cell_value("key", "7.0") == "7.0"


def test_label_of_a_table_equals_the_answer_of_a_model() -> None:
    fields = {column: cell_value(column, cell) for column, cell in {"label": "7", "a.answer": "7.0"}.items()}
    row = row_of("log.csv:2", fields)
    assert row.label == row.replies["a"].label == 7
    assert isinstance(row.label, int)


def test_flat_and_nested_fields_are_the_same_row() -> None:
    flat = {"label": "x", "a.answer": "x", "a.score": 0.5, "b.answer": ["y", 1], "b.usd": 0.25, "key": "u1", "t": 3}
    nested = {
        "label": "x", "a": {"answer": "x", "score": 0.5}, "b": {"answer": ["y", 1], "usd": 0.25}, "key": "u1",
        "extra": {"answers": 1},
    }  # fmt: skip
    wanted = AnswerRow(
        "w", "x", {"a": CandidateReply("x", "x", 0.5), "b": CandidateReply(["y", 1], ["y", 1])}, {"b": 0.25}, "u1"
    )
    assert row_of("w", flat) == row_of("w", nested) == wanted


def test_blank_answer_is_no_answer() -> None:
    row = row_of("w", {"label": 1, "a.answer": None, "a.usd": 0.5, "b": {"answer": None, "score": 1}})
    assert (row.replies, row.usd) == ({}, {"a": 0.5})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a.answer": 1}, "log.csv:3 label: must not be blank"),
        ({"label": None}, "log.csv:3 label: must not be blank"),
        ({"label": 1, "a.answer": 1, "a.score": "high"}, "log.csv:3 a.score: must be a finite number: high"),
        ({"label": 1, "a.answer": 1, "a.score": True}, "log.csv:3 a.score: must be a finite number: True"),
        ({"label": 1, "a.usd": float("inf")}, "log.csv:3 a.usd: must be a finite number: inf"),
        ({"label": 1, "a.usd": -0.5}, "log.csv:3 a.usd: a price must be zero or more: -0.5"),
        ({"label": float("nan")}, "log.csv:3 label: cannot be an answer: nan"),
        ({"label": 1, "a.anwser": 1}, "log.csv:3: unknown column, did you mean a.answer?: a.anwser"),
        ({"label": 1, "a": {"answer": 1, "scor": 1}}, "log.csv:3: unknown column, did you mean a.score?: a.scor"),
        ({"Label": 1}, "log.csv:3: unknown column, did you mean label?: Label"),
    ],
)
def test_row_that_cannot_be_read_is_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        row_of("log.csv:3", fields)
    assert str(refused.value).startswith(message)


def observed(label: object, *notes: QueryNote, **asked: float) -> dict[str, Any]:
    """Return an observation as in the feedback log; `asked` are prices by model."""
    how = {
        "asked": [{"model": name, "propensity": 1.0, "usd": usd} for name, usd in asked.items()],
        "note": orjson.loads(notes_to_json(notes)),
    }
    return {"id": "r-1", "feedback": {"label": label}, "provenance": how}


def test_observation_has_the_answers_of_the_candidates_that_were_asked() -> None:
    context = context_key("u1")
    note = QueryNote(context, (AskedNote("a@1", 0.5, True, 3, 0.75), AskedNote("b@2", 1.0)), "a@1", 3)
    record = observed(4, note, a=0.25, b=0.5)
    assert is_observation(record)
    wanted = AnswerRow("w", 4, {"a@1": CandidateReply(3, 3, 0.75)}, {"a@1": 0.25, "b@2": 0.5}, context)
    left_out: Counter[str] = Counter()
    assert list(rows_of_observation("w", record, left_out)) == [wanted]
    assert not left_out


def test_items_of_a_request_are_queries_of_their_own() -> None:
    notes = [QueryNote("", (AskedNote("a@1", 1.0, True, answer),), "a@1", answer) for answer in (1, 2)]
    rows = list(rows_of_observation("w", observed([1, 5], *notes), Counter()))
    assert [(row.label, row.replies["a@1"].label) for row in rows] == [(1, 1), (5, 2)]


def test_observations_of_no_use_are_counted() -> None:
    note = QueryNote("", (AskedNote("a@1", 1.0, True, 1),), "a@1", 1)
    left_out: Counter[str] = Counter()
    records = [
        {"id": "r", "feedback": {"label": 1}},
        {"id": "r", "feedback": {"label": 1}, "provenance": {"asked": []}},
        observed(None, note) | {"feedback": {"reward": 0.5}},
        observed([1, 2, 3], note, note),
        observed(1, note, note),
    ]
    assert [row for record in records for row in rows_of_observation("w", record, left_out)] == []
    assert left_out == {NO_NOTE: 2, NO_LABEL: 1, OTHER_ITEMS: 2}


@pytest.mark.parametrize("note", [7, [["u"]], {"a": 1}, [[1, 2, 3, 4, 5]], [["u", [[7, 1.0]], "", 1, None]]])
def test_note_of_another_kind_is_one_line(note: object) -> None:
    record = {"id": "r", "feedback": {"label": 1}, "provenance": {"note": note, "asked": []}}
    with pytest.raises(BadInput, match=r"^w: provenance is none of a selection"):
        list(rows_of_observation("w", record, Counter()))


def test_query_has_replies_and_prices_in_the_order_of_the_candidates() -> None:
    row = AnswerRow("w", 1, {"b": CandidateReply(1, 1), "stranger": CandidateReply(2, 2)}, {"b": 0.5}, "u1")
    query = query_of(row, {"a": 0, "b": 1}, [0.125, 0.25])
    assert (query.label, query.replies, query.usd, query.key) == (1, [None, CandidateReply(1, 1)], [0.125, 0.5], "u1")


def test_lists_of_numbers_are_arrays_under_a_numeric_loss() -> None:
    row = AnswerRow("w", [1, 2], {"a": CandidateReply([1, 2], [1, 2]), "b": CandidateReply(["x"], ["x"])}, {})
    of_array, of_text = query_of(row, {"a": 0, "b": 1}, [0.0, 0.0], "squared").replies
    assert of_array is not None
    assert isinstance(of_array.result, np.ndarray)
    assert of_array.result.dtype == float
    assert of_text == CandidateReply(["x"], ["x"])
    voted, _ = query_of(row, {"a": 0, "b": 1}, [0.0, 0.0]).replies
    assert voted == CandidateReply([1, 2], [1, 2])
