"""Labels: values that are compared, counted and written as JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.labels import NoAnswer, field_of, label_key, label_of, loss_of, score_of
from mark.selection.settings import ABSOLUTE, SQUARED, ZERO_ONE

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
LABELS = st.recursive(SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3))
# Values of which equal ones of different types are likely.
LIKELY = st.recursive(
    st.sampled_from([None, 0, 1, 1.0, True, False, 0.5, "1", "a"]),
    lambda one: st.lists(one, max_size=2) | st.dictionaries(st.sampled_from("ab"), one, max_size=2),
)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (7.0, 7),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.array([7]), 7),
        (np.array(7), 7),
        (np.array([[1.0, 2.5]]), [1, 2.5]),
        (np.bool_(True), True),
        (np.str_("cat"), "cat"),
        (b"cat", "cat"),
        (np.array([b"cat", b"dog"]), ["cat", "dog"]),
        (np.array([b"cat", None], object), ["cat", None]),
        ((1, (2,)), [1, 2]),
        ({"x": (1.0,), 2: b"b"}, {"x": 1, "2": "b"}),
        ([], []),
        (None, None),
        (1e300, 1e300),
        (-0.0, 0),
    ],
)
def test_label_is_a_plain_value(value: Any, label: Any) -> None:
    found = label_of(value)
    assert found == label
    assert type(found) is type(label)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, np.float32("nan"), np.array([1.0, math.nan]), 1j, object(), 2**64, -(2**63) - 1, {"x": set()}],
)
def test_value_that_json_cannot_carry_is_no_answer(value: Any) -> None:
    with pytest.raises(NoAnswer):
        label_of(value)


def test_deep_nesting_is_no_answer() -> None:
    deep: Any = [1, 2]
    for _ in range(100_000):
        deep = [deep, 0]
    with pytest.raises(NoAnswer, match="deeper than 64"):
        label_of(deep)


@given(LABELS)
def test_every_json_value_is_a_label_that_json_carries(value: Any) -> None:
    try:
        label = label_of(value)
    except NoAnswer:
        return
    assert label_of(orjson.loads(orjson.dumps(label))) == label_of(label)


@given(st.text(st.characters()))
def test_texts_with_halves_of_surrogate_pairs_can_be_written(text: str) -> None:
    orjson.dumps(label_of({text: text}))
    orjson.dumps(label_of("\ud800"))


@given(LIKELY, LIKELY)
def test_labels_are_equal_exactly_where_their_keys_are(one: Any, other: Any) -> None:
    assert (one == other) == (label_key(one) == label_key(other))
    if one == other:
        assert hash(label_key(one)) == hash(label_key(other))


def test_a_list_of_pairs_is_another_label_than_a_dictionary() -> None:
    assert label_key([["a", 1], ["b", 2]]) != label_key({"a": 1, "b": 2})


def test_true_is_one_and_a_text_is_no_number() -> None:
    assert loss_of(True, 1, ZERO_ONE, 1.0) == 0.0
    assert loss_of(7, 7.0, ZERO_ONE, 1.0) == 0.0
    assert loss_of("7", 7, ZERO_ONE, 1.0) == 1.0
    assert loss_of({"a": [1, 2]}, {"a": [1.0, 2.0]}, ZERO_ONE, 1.0) == 0.0
    assert loss_of(None, 0, ZERO_ONE, 1.0) == 1.0


@pytest.mark.parametrize(
    ("answer", "label", "absolute", "squared"),
    [
        (1.0, 1.0, 0.0, 0.0),
        (1, 3, 0.5, 1.0),
        (1, 2, 0.25, 0.25),
        ([1, 2], [3, 2], math.sqrt(2) / 4, 0.5),
        (True, 0, 0.25, 0.25),
        (0, 1e308, 1.0, 1.0),
        (-1.7e308, 1.7e308, 1.0, 1.0),
        ([-1.7e308, 0], [1.7e308, 0], 1.0, 1.0),
        ([], [], 0.0, 0.0),
        ("7", 7, 1.0, 1.0),
        ("7", "8", 1.0, 1.0),
        ("7", "7", 0.0, 0.0),
        (["7"], ["8"], 1.0, 1.0),
        (None, 1, 1.0, 1.0),
        ({"a": 1}, 1, 1.0, 1.0),
        ([1, 2], [1, 2, 3], 1.0, 1.0),
        ([1, [2]], [1, 2], 1.0, 1.0),
        ([1, 2], 1, 1.0, 1.0),
        ([2**64 - 1], [0.0, 1.0], 1.0, 1.0),
    ],
)
def test_numeric_losses(answer: Any, label: Any, absolute: float, squared: float) -> None:
    assert loss_of(answer, label, ABSOLUTE, 4.0) == pytest.approx(absolute)
    assert loss_of(answer, label, SQUARED, 4.0) == pytest.approx(squared)


@given(LABELS, LABELS, st.sampled_from([ZERO_ONE, ABSOLUTE, SQUARED]), st.floats(1e-300, 1e300))
def test_losses_are_zero_to_one(answer: Any, label: Any, loss: str, scale: float) -> None:
    assert 0.0 <= loss_of(answer, label, loss, scale) <= 1.0
    assert loss_of(label, label, loss, scale) == 0.0


@pytest.mark.parametrize("score", [0.5, 1, np.float32(0.5), np.array([0.5]), np.array([[0.5]]), -3.0])
def test_score_is_a_finite_number(score: Any) -> None:
    assert score_of(score) == float(np.ravel(score)[0])


@pytest.mark.parametrize(
    "score", [math.nan, math.inf, True, np.bool_(True), "0.5", None, np.array([1.0, 2.0]), 10**400]
)
def test_no_score(score: Any) -> None:
    with pytest.raises(NoAnswer):
        score_of(score)


def test_field_of_a_result() -> None:
    assert field_of({"y": 1}, "y") == 1
    assert field_of([1], None) == [1]
    for result in ({"x": 1}, [1], None):
        with pytest.raises(NoAnswer, match="'y'"):
            field_of(result, "y")
