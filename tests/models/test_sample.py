"""A request to try a model with: the model accepts it, whatever inputs it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.answering import answer
from mark.models.model import DATATYPES
from mark.models.sample import call_from_file, sample_call
from tests.models.calls import Echo


def tried(model: Echo, times: int = 3) -> list[Any]:
    """Try the sample call `times` times in a batch, and return the items as the model saw them."""
    call = sample_call(model)
    assert call is not None
    assert {reply.status for reply in answer(model, [call] * times)} == {200}
    (batch,) = model.seen
    assert len(batch) == times
    return batch


@pytest.mark.parametrize("datatype", DATATYPES)
def test_zeros_of_what_is_declared(datatype: str) -> None:
    """Any length is taken as 1."""
    first, *_ = tried(Echo([mark.TensorSpec("x", datatype, (2, -1))]))
    assert first.shape == (2, 1)
    assert not any(first.ravel())


def test_zeros_of_several_inputs() -> None:
    first, *_ = tried(Echo([mark.TensorSpec("x", "FP32", (3,)), mark.TensorSpec("n", "INT64")]))
    assert first["x"].tolist() == [0.0, 0.0, 0.0]
    assert (first["n"], first["n"].dtype) == (0, np.dtype("int64"))


@pytest.mark.parametrize(
    "item",
    [
        "text",
        b"\x89PNG",
        {"user": 7, "words": ["a", "b"]},
        [1, 2, [3]],
        4.5,
        np.arange(6, dtype=np.int16).reshape(2, 3),
        {"instances": [1]},  # must not be taken for a request
    ],
)
def test_the_first_warm_up_item_arrives_as_it_is(item: Any) -> None:
    model = Echo()
    model.warmup = [item, "another"]
    first, *_ = tried(model)
    assert type(first) is type(item)
    assert np.array_equal(first, item) if isinstance(item, np.ndarray) else first == item


def test_a_warm_up_item_of_declared_inputs_counts_before_zeros() -> None:
    model = Echo([mark.TensorSpec("x", "FP32", (2,))])
    model.warmup = [[1.5, 2.5]]
    first, *_ = tried(model)
    assert (first.tolist(), first.dtype) == ([1.5, 2.5], np.dtype("float32"))
    several = Echo([mark.TensorSpec("x", "FP64", (2,)), mark.TensorSpec("word", "BYTES")])
    several.warmup = [{"x": [1.0, 2.0], "word": b"hello"}]
    first, *_ = tried(several)
    assert (first["x"].tolist(), first["word"]) == ([1.0, 2.0], b"hello")


def test_a_model_that_says_nothing_has_no_sample() -> None:
    assert sample_call(Echo()) is None


OIP = orjson.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]})


@pytest.mark.parametrize(
    ("name", "body", "protocol", "content_type"),
    [
        ("a.json", OIP, "oip", "application/json"),
        ("body", OIP, "oip", "application/json"),
        ("a.json", b'{"instances": [[1, 2]]}', "sagemaker", "application/json"),
        ("a.json", b'{"inputs": ["hello"]}', "sagemaker", "application/json"),
        ("a.csv", b"1,2\n", "sagemaker", "text/csv"),
        ("a.txt", b"hello", "sagemaker", "text/plain"),
        ("a.png", b"\x89PNG", "sagemaker", "application/octet-stream"),
    ],
)
def test_files_are_told_by_name_and_content(
    name: str, body: bytes, protocol: str, content_type: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(body)
    call = call_from_file(tmp_path / name)
    assert (call.protocol, call.content_type, call.body) == (protocol, content_type, body)


def test_npy_holds_one_row(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((1, 4)))
    call = call_from_file(tmp_path / "one.npy")
    model = Echo()
    assert answer(model, [call])[0].status == 200
    assert model.seen[0][0].tolist() == [1.0] * 4
    np.save(tmp_path / "many.npy", np.ones((3, 4)))
    with pytest.raises(BadInput, match=r"must hold one item.*: 3"):
        call_from_file(tmp_path / "many.npy")


def test_what_cannot_be_a_request(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(BadInput, match="is no JSON"):
        call_from_file(tmp_path / "a.json")
    with pytest.raises(BadInput, match="cannot be read"):
        call_from_file(tmp_path / "missing.json")
