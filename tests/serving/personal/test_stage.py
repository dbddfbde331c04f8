"""The head's items: a vector, a name, or both; and whose fault any other value is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mark.models.answer import Answer
from mark.models.results import call_with, results_of
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.request import Request
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import key_name, notes_in
from mark.serving.personal.stage import PersonalStage, scored_in
from tests.serving.personal.made import heads


def asked(of: PersonalHeads, item: Any, key: str = "u1", *, first: bool = False) -> Answer:
    answers: list[Answer] = []
    request = Request(call_with(item), 1, 0.0, 1.0, lambda request, answer: answers.append(answer))
    request.key = key
    PersonalStage(of, ModelMetrics("songs", "1", "personal"), lambda: 0.5, first=first).offer(request)
    (answer,) = answers
    return answer


@pytest.mark.parametrize(
    ("item", "name", "vector"),
    [
        ([1, 2], None, [1.0, 2.0]),
        (np.array([1.0, 2.0]), None, [1.0, 2.0]),
        ({"vector": [3.0]}, None, [3.0]),
        ({"embedding": [3.0]}, None, [3.0]),
        ({"vector": [3.0], "item": "s1"}, "s1", [3.0]),
        ("s1", "s1", None),
        (b"s1", "s1", None),
        (np.array([b"s1"], dtype=object), "s1", None),
    ],
)
def test_item_is_a_vector_a_name_or_both(item: Any, name: str | None, vector: list[float] | None) -> None:
    found = scored_in(item)
    assert found.item == name
    assert (None if found.vector is None else found.vector.tolist()) == vector


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ([], "one axis"),
        ([[1.0], [2.0]], "one axis"),
        ([1.0, float("nan")], "not finite"),
        ([1e39], "not finite"),
        (None, "one axis|list of numbers"),
        ({"vektor": [1.0], "item": "s1"}, "has vector or item, and not item, vektor"),
        ({"vector": "x"}, "list of numbers"),
        ({"item": 7}, "has a name"),
    ],
)
def test_other_values_are_faults_of_the_stage_before(item: Any, what: str) -> None:
    with pytest.raises((ValueError, TypeError), match=what):
        scored_in(item)
    answer = asked(heads(), item)
    assert answer.reply.status == 500
    assert asked(heads(), item, first=True).reply.status == 400, "a client asked the head itself"


def test_answer_has_the_score_and_a_note_for_feedback() -> None:
    answer = asked(heads(), [1.0, 2.0, 4.0])
    assert results_of(answer.reply) == [0.0]
    assert answer.provenance is not None
    (note,) = notes_in(answer.provenance.note)
    assert (note.key, note.version) == (key_name("u1"), "v")
    assert asked(heads(), [1.0], key="").provenance is not None


def test_unknown_item_is_the_clients_fault() -> None:
    assert asked(heads(table=True), "nothing").reply.status == 400
    assert asked(heads(table=True), "s1").reply.status == 200
