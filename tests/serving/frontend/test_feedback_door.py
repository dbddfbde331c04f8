"""The feedback that clients may give on answers, and refusals in one line."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.models.compression import Refused
from mark.serving.feedback.port import Feedback
from mark.serving.frontend.feedback_door import MOST_BYTES, MOST_ITEMS, check_shares, feedback_in


@pytest.mark.parametrize("content_type", [b"", b"application/json", b"application/x-www-form-urlencoded"])
def test_one_or_a_list(content_type: bytes) -> None:
    """Extra keys are kept; an item may have a label and a reward, and a label may be any JSON value."""
    assert feedback_in(b'{"id": "a", "label": null}', content_type, None) == [Feedback("a", {"label": None})]
    said = [{"id": "a", "label": {"x": [1]}, "reward": 0, "by": "me"}, {"id": "b", "reward": -0.5}]
    assert feedback_in(json.dumps(said).encode(), content_type, "2") == [
        Feedback("a", {"label": {"x": [1]}, "reward": 0, "by": "me"}, "2"),
        Feedback("b", {"reward": -0.5}, "2"),
    ]


@pytest.mark.parametrize(
    "kind", [b"application/x-ndjson", b"application/jsonl; charset=utf-8", b"Application/X-JsonLines"]
)
def test_json_lines(kind: bytes) -> None:
    lines = b'{"id": "a", "label": 1}\r\n\n{"id": "b", "label": 2}'
    assert [one.id for one in feedback_in(lines, kind, None)] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        (b"", 400, "the body is not JSON"),
        (b"{", 400, "the body is not JSON"),
        (b'{"id": "a", "label": NaN}', 400, "the body is not JSON"),
        (b"[]", 400, "1 to 1000 pieces of feedback at a time, not 0"),
        (b"[" + b",".join([b"1"] * (MOST_ITEMS + 1)) + b"]", 413, "1 to 1000 pieces of feedback at a time, not 1001"),
        (b" " * (MOST_BYTES + 1), 413, "feedback of more than 1048576 bytes"),
        (b"7", 400, "feedback 1: must be an object"),
        (b'[{"id": "a", "label": 1}, []]', 400, "feedback 2: must be an object"),
        (b'{"label": 1}', 400, "feedback 1: id must be the x-request-id of an answer, 1 to 128 characters"),
        (b'{"id": 7, "label": 1}', 400, "feedback 1: id must be"),
        (b'{"id": "", "label": 1}', 400, "feedback 1: id must be"),
        (b'{"id": "%b", "label": 1}' % (b"a" * 129), 400, "feedback 1: id must be"),
        (b'{"id": "a"}', 400, "feedback 1: must have a label or a reward"),
        (b'{"id": "a", "lable": 1}', 400, "feedback 1: 'lable' is no field, did you mean label?"),
        (b'{"id": "a", "label": 1, "Reward": 1}', 400, "feedback 1: 'Reward' is no field, did you mean reward?"),
        (b'{"id": "a", "label": 1, "reward": true}', 400, "feedback 1: reward must be a number"),
        (b'{"id": "a", "reward": "1"}', 400, "feedback 1: reward must be a number"),
        (b'{"id": "a", "label": %b}' % (b"[" * 64 + b"]" * 64), 400, "feedback 1: is nested more than 64 deep"),
        (b'{"id": "a", "label": %b}' % (b"[" * 300 + b"]" * 300), 400, "feedback 1: is nested more than 64 deep"),
        (b'{"id": "a", "label": 1, "x": %b1%b}' % (b'{"y":' * 1000, b"}" * 1000), 400, "feedback 1: is nested more"),
    ],
)
def test_what_is_wrong_is_refused_whole(body: bytes, status: int, what: str) -> None:
    with pytest.raises(Refused) as refused:
        feedback_in(body, b"", None)
    assert refused.value.status == status
    assert str(refused.value).startswith(what)


@pytest.mark.parametrize("other", ["label_of", "rewarded_at", "kye", "words", "lab", "", "labels"])
def test_other_fields_are_kept(other: str) -> None:
    """A field beside the label is no slip for it."""
    (one,) = feedback_in(json.dumps({"id": "a", "label": 1, other: 2}).encode(), b"", None)
    assert one.said[other] == 2


@pytest.mark.parametrize(
    "piece",
    [
        {"label": 1, "rewards": [0.5, 1]},
        {"reward": 1, "labels": {"app": "x"}},
        {"reward": 1, "late": 1, "level": 2, "table": 3, "react": 4, "stem": 5, "inputs_of": 6},
    ],
)
def test_ordinary_fields_beside_a_reward_or_a_label_are_kept(piece: dict[str, object]) -> None:
    (one,) = feedback_in(json.dumps({"id": "a"} | piece).encode(), b"", None)
    assert one.said == piece


def test_plural_with_one_value_is_a_slip() -> None:
    with pytest.raises(Refused, match=r"'rewards' is no field, did you mean reward\?"):
        feedback_in(b'{"id": "a", "label": 1, "rewards": 1}', b"", None)


def test_what_is_nested_as_deep_as_allowed_is_taken() -> None:
    (one,) = feedback_in(b'{"id": "a", "label": %b}' % (b"[" * 63 + b"]" * 63), b"", None)
    assert json.dumps(one.said).count("[") == 63


def test_a_wrong_line_is_named() -> None:
    with pytest.raises(Refused, match="line 2 is not JSON"):
        feedback_in(b'{"id": "a", "label": 1}\n{', b"application/x-ndjson", None)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=60) | st.text('[]{}":,0123456789.eE- idlabreward\n').map(str.encode), st.booleans())
def test_no_body_is_more_than_refused(body: bytes, lines: bool) -> None:
    with suppress(Refused):
        assert feedback_in(body, b"application/x-ndjson" if lines else b"", None)


@pytest.mark.parametrize("reward", [-0.1, 1.1, 7])
def test_reward_that_something_learns_from_is_a_share(reward: float) -> None:
    with pytest.raises(Refused, match=f"feedback 2: reward must be 0 to 1, not {reward}"):
        check_shares([Feedback("a", {"reward": 0.5}), Feedback("b", {"reward": reward})])
    check_shares([Feedback("a", {"reward": 0}), Feedback("b", {"reward": 1}), Feedback("c", {"label": 9})])
