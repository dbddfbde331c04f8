"""Decoded results as bytes: they survive the round trip, and no other bytes are taken for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mark
from mark.models.answering import answer
from mark.models.call import RESULTS, Call, Reply
from mark.models.results import PROTOCOL, call_with, encode, results_of

MODEL = mark.model(lambda batch: batch)


@pytest.mark.parametrize(
    "results",
    [
        [],
        [None, True, 7, 0.5, "text"],
        [b"\xff\0", b""],
        [[1, [2.0, "three"]], {"a": {"b": [b"c"]}, "dict": 1, "bytes": 2}],
        [float("inf"), -0.0],
    ],
    ids=["none", "plain", "bytes", "nested", "odd numbers"],
)
def test_plain_values_come_back_as_they_were(results: list[Any]) -> None:
    assert results_of(encode(MODEL, None, results)) == results


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64"])
def test_arrays_come_back_with_type_and_shape(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    rows = results_of(encode(MODEL, None, array))
    turned, scalar, nothing = results_of(encode(MODEL, None, [array.T, array[1, 2], array[:0]]))
    assert [row.dtype for row in rows] == [array.dtype] * 2
    np.testing.assert_array_equal(np.stack(rows), array)
    np.testing.assert_array_equal(turned, array.T)
    assert (scalar.dtype, scalar) == (array.dtype, array[1, 2])
    assert nothing.shape == (0, 3)


def test_arrays_of_objects_become_lists() -> None:
    texts = np.array([["a", b"b"]], dtype=object)
    assert results_of(encode(MODEL, None, [texts, np.array(["c"])])) == [[["a", b"b"]], ["c"]]


@pytest.mark.parametrize("result", [object(), {1: 2}, {1, 2}])
def test_results_of_other_types_are_a_500(result: Any) -> None:
    reply, _ = answer(
        mark.model(lambda batch: [result, 1]), [Call("sagemaker", "application/json", b"1", accept=RESULTS)] * 2
    )
    assert reply.status == 500


def test_calls_with_and_without_raw_results_share_a_batch() -> None:
    calls = [Call("sagemaker", "application/json", b"[1]", accept=accept) for accept in ("", RESULTS)]
    encoded, decoded = answer(MODEL, calls)
    assert (encoded.content_type, encoded.body) == ("application/json", b"[1]")
    assert results_of(decoded) == [[1]]


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (b"[", b""),
        (b"{}", b""),
        (b'{"dict": []}', b""),
        (b"[1]", b"left"),
        (b'[{"bytes": 5}]', b"four"),
        (b'[{"bytes": -1}]', b""),
        (b'[{"dtype": "<f4", "shape": [2]}]', b"four"),
        (b'[{"dtype": "<f4", "shape": [-1]}]', b"four"),
        (b'[{"dtype": "O", "shape": [1]}]', b"12345678"),
        (b'[{"dtype": "no", "shape": [1]}]', b""),
        (b'[{"dtype": "(,)f4", "shape": [1]}]', b"1234"),
        (b'[{"dtype": 1, "shape": [1]}]', b"1234"),
        (b'[{"dtype": "<f4", "shape": [0, 1000000000000000000000]}]', b""),
        (b'[{"dict": [[1, 2]]}]', b""),
        (b'[{"dict": 1}]', b""),
    ],
)
def test_malformed_results_are_a_value_error(head: bytes, rest: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|JSON|Expecting|dimension"):
        results_of(Reply(200, RESULTS, head + rest, len(head)))


def test_replies_of_another_kind_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="status 429, application/json"):
        results_of(Reply(429, "application/json", b"{}"))


class Pair(mark.Model):
    inputs = (mark.TensorSpec("pair", "FP32", (2,)),)

    def predict(self, batch: list[Any]) -> Any:
        return [float(item.sum()) for item in batch]


def test_a_value_reaches_a_model_unchanged_and_must_fit() -> None:
    item = {"text": "a", "pixels": np.arange(3, dtype=np.uint8), "rest": [None, b"b"]}
    (reply,) = answer(MODEL, [call_with(item)])
    (back,) = results_of(reply)
    np.testing.assert_array_equal(back.pop("pixels"), item["pixels"])
    assert back == {"text": "a", "rest": [None, b"b"]}
    fits, unfit = answer(Pair(), [call_with([1, 2]), call_with([1, 2, 3])])
    assert results_of(fits) == [3.0]
    assert unfit.status == 400
    with pytest.raises(TypeError, match="is a set"):
        call_with({1, 2})


@pytest.mark.parametrize("body", [b"", b"[", b"{}", b'[{"bytes": 9}]', b"[1] more"])
def test_a_malformed_value_is_refused(body: bytes) -> None:
    (reply,) = answer(MODEL, [Call(PROTOCOL, RESULTS, body, len(body), RESULTS)])
    assert reply.status == 400


def test_a_call_has_one_item() -> None:
    """Its bouncer counted one item, so any other number is refused."""
    for body in (b"[]", b"[1, 2]"):
        (reply,) = answer(MODEL, [Call(PROTOCOL, RESULTS, body, len(body), RESULTS)])
        assert reply.status == 400
