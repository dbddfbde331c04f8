"""Inputs of a features stage from a feedback log: each form of request, and lines that have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.models.answer import Provenance
from mark.personal.settings import PersonalSettings
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.port import Feedback, Observation, RecordedBody, ServedAnswer
from mark.serving.personal.logged_inputs import LoggedInput, logged_inputs
from mark.serving.personal.notes import HeadNote, Scored, id_name, key_name

SETTINGS = PersonalSettings(features="tower")
VECTOR = np.array([1.0, 2.0], dtype=np.float32)
NOTHING = RecordedBody("application/json", 0, b"")
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}


def observed(
    identity: str,
    body: RecordedBody,
    *scored: Scored,
    own: bool = False,
    version: str = "v",
    user: str = "u1",
    **said: Any,
) -> Observation:
    note = HeadNote(key_name(user), version, scored or (Scored(None, VECTOR),), id_name(identity) if own else 0)
    how = Provenance(note=note.to_json())
    answer = ServedAnswer(identity, "songs", "1", 0.0, "instance", body, NOTHING, how)
    return Observation(answer, Feedback(identity, {"reward": 2.5, **said}), 10.0)


def json_body(value: Any) -> RecordedBody:
    data = json.dumps(value).encode()
    return RecordedBody("application/json", len(data), data)


def logged(folder: Path, *observations: Observation) -> list[LoggedInput | None]:
    log = FeedbackLog(folder, 10**6)
    log.received(observations, [], 10.0)
    log.close()
    return list(logged_inputs(folder, SETTINGS))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (observed("a", NOTHING, own=True, key="u1", input={"text": "jazz"}), {"text": "jazz"}),
        (observed("a", json_body("slow jazz")), "slow jazz"),
        (observed("a", json_body({"instances": [[1.0, 2.0]]})), [1.0, 2.0]),
        (observed("a", RecordedBody("text/plain", 4, b"jazz")), "jazz"),
        (
            observed(
                "a",
                json_body({"k": 1, "items": [{"item": "s1", "input": 7}, {"item": "s2", "input": 8}]}),
                Scored("s2", VECTOR),
                Scored("s1", VECTOR),
                item="s2",
            ),
            8,
        ),
    ],
)
def test_input_of_each_form_of_request_is_found(tmp_path: Path, one: Observation, expected: Any) -> None:
    (found,) = logged(tmp_path, one)
    assert found is not None
    assert found.input == expected
    assert (found.fact.key, found.fact.reward, found.fact.at_s) == (key_name("u1"), 2.5, 10.0)


def test_input_of_tensors_is_an_array(tmp_path: Path) -> None:
    (found,) = logged(tmp_path, observed("a", json_body({"inputs": [TENSOR]})))
    assert found is not None
    assert np.asarray(found.input).tolist() == [0.5, 1.5]


def test_input_that_was_too_long_for_the_log_is_missing(tmp_path: Path) -> None:
    assert logged(tmp_path, observed("a", RecordedBody("application/json", 9999, None, "ab" * 32))) == [None]


def test_observation_without_a_vector_or_a_reward_teaches_nothing(tmp_path: Path) -> None:
    without = observed("a", NOTHING, Scored("s1"), own=True, key="u1", item="s1")
    bad = observed("b", json_body("x"), reward=True)
    assert logged(tmp_path, without, bad) == []


def test_observation_of_any_version_counts_once(tmp_path: Path) -> None:
    """The same feedback may be in the logs of two servers, by the client's id."""
    one = observed("a", NOTHING, own=True, key="u1", input=1, version="old")
    assert len(logged(tmp_path, one, observed("b", json_body(2)))) == 2
    assert len(logged(tmp_path, one)) == 2


def test_line_that_a_crash_cut_off_is_skipped(tmp_path: Path) -> None:
    logged(tmp_path, observed("a", json_body(1)))
    (path,) = tmp_path.rglob("observations-*.jsonl")
    path.write_bytes(path.read_bytes() * 2 + b'{"id": "b", "prov')
    assert len(list(logged_inputs(tmp_path, SETTINGS))) == 1
