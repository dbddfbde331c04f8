"""A batch of calls through one predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mark
from mark.models.answering import Opened, answer, hold, warm_up
from mark.models.call import Call
from mark.models.model import DATATYPES
from tests.models.calls import Echo, error, oip, one, outputs, sagemaker, tensor


def test_one_predict_for_all_calls_and_each_gets_its_own() -> None:
    """Calls of both protocols and of several items, a bad one between them: split as they came."""
    calls = [
        oip(tensor(shape=[2, 1], data=[1, 2])),
        oip(tensor(shape=[2, 1], data=[1])),
        sagemaker(b'{"instances": [3, 4]}'),
        oip(tensor(shape=[1, 1], data=[5])),
    ]
    model = Echo()
    first, bad, second, third = answer(model, calls)
    assert [np.asarray(item).item() for item in model.seen.pop()] == [1, 2, 3, 4, 5]
    assert model.seen == []
    assert outputs(first)[0]["data"] == [1, 2]
    assert "1 elements" in error(bad)
    assert second.body == b'{"predictions":[3,4]}'
    assert outputs(third)[0]["data"] == [5]


@pytest.mark.parametrize(
    "results",
    [[1], [1, 2, 3], [], None, 7, {"a": 1, "b": 2}, "ab", iter([1, 2])],
    ids=["few", "many", "empty", "None", "number", "dict", "text", "iterator"],
)
def test_a_wrong_number_of_results_is_a_500_for_all(results: Any, caplog: pytest.LogCaptureFixture) -> None:
    """No call may get another call's result; the log has the cause."""
    model = mark.model(lambda batch: results)
    replies = answer(model, [sagemaker(b"1"), sagemaker(b"2")])
    assert [reply.status for reply in replies] == [500, 500]
    assert "failed on a batch of 2" in caplog.text


def test_a_predict_that_raises_is_a_500_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """The client learns the kind of error, the log the rest; a bad call keeps its 400."""

    @mark.model
    def broken(batch: list[Any]) -> list[Any]:
        raise ValueError("password=hunter2")

    replies = answer(broken, [sagemaker(b"1"), sagemaker(b"{")])
    assert [reply.status for reply in replies] == [500, 400]
    assert error(replies[0]) == "the model failed: ValueError"
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("odd", [object(), {1}, 1 + 2j, [[1], [2, 3]], [1, "a"], {}, None])
def test_a_result_that_fails_to_encode_is_a_500(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The others of the batch have theirs."""

    @mark.model
    def half(batch: list[Any]) -> list[Any]:
        return [odd if item[0] == 0 else item for item in batch]

    replies = answer(half, [oip(tensor(data=[i, 1])) for i in range(2)])
    assert [reply.status for reply in replies] == [500, 200]
    assert "cannot be encoded" in caplog.text


def test_outputs_that_differ_between_items_are_a_500() -> None:
    """A tensor has one shape, and a request one set of outputs."""
    for results in ([np.zeros(1), np.zeros(2)], [{"a": 1}, {"b": 1}], [{"a": 1}, 2]):
        model = mark.model(lambda batch, results=results: results)
        assert one(model, oip(tensor(shape=[2, 1], data=[1, 2]))).status == 500


def test_bytes_that_are_not_text_need_the_binary_form() -> None:
    """JSON cannot say them; that is the request's fault."""
    model = mark.model(lambda batch: [b"\xff"])
    assert "binary_data" in error(one(model, oip(tensor(data=[1, 2]))))
    assert one(model, oip(tensor(data=[1, 2]), parameters={"binary_data_output": True})).body.endswith(
        b"\x01\0\0\0\xff"
    )


def test_a_predict_that_empties_its_batch_is_answered() -> None:
    """The list is the model's to do with as it likes."""

    @mark.model
    def emptying(batch: list[Any]) -> list[Any]:
        return [batch.pop(0) for _ in range(len(batch))]

    assert one(emptying, sagemaker(b'{"inputs":[1,2]}')).body == b"[1,2]"


def test_an_unknown_protocol_is_a_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """The client cannot choose the protocol; the other calls of the batch are answered."""
    replies = answer(Echo(), [Call("rest", "", b"{}"), sagemaker(b"1")])
    assert [reply.status for reply in replies] == [500, 200]
    assert "could not be decoded" in caplog.text


def test_no_calls_no_predict() -> None:
    """A model never sees an empty batch."""
    model = Echo()
    assert answer(model, []) == []
    assert answer(model, [sagemaker(b"{")])[0].status == 400
    assert model.seen == []


def test_warming_up_predicts_once() -> None:
    """It uses the author's items, or zeros of the declared shape, of every datatype; without either it does nothing."""
    model = Echo()
    warm_up(model)
    assert model.seen == []
    model.inputs = [mark.TensorSpec(datatype, datatype, (-1, 3)) for datatype in DATATYPES]
    warm_up(model)
    (zeros,) = model.seen.pop()
    assert {name: row.shape for name, row in zeros.items()} == dict.fromkeys(DATATYPES, (1, 3))
    model.inputs = [mark.TensorSpec("x", "BYTES")]
    warm_up(model)
    assert model.seen.pop() == [b""]
    model.warmup = [b"a", b"b"]
    warm_up(model)
    assert model.seen.pop() == [b"a", b"b"]


def test_a_model_that_cannot_warm_up_says_so() -> None:
    """It must not become ready."""
    model = mark.model(warmup=[1, 2])(lambda batch: [1])
    with pytest.raises(ValueError, match="1 results for 2 items"):
        warm_up(model)


def test_results_are_held_whatever_becomes_of_the_models_memory() -> None:
    """Arrays, bytes and containers are copied; an object that cannot be copied is reported."""
    buffer, raw, rows = np.arange(3.0), bytearray(b"ab"), [1, "x", None, True]
    opened = Opened(1)
    opened.results = [buffer, {"a": buffer[:1], "b": (memoryview(raw), raw)}, rows, np.float32(2.0)]
    assert hold(opened)
    buffer[:], raw[:], rows[:] = 9.0, b"zz", []
    first, second, third, fourth = opened.results
    assert first.tolist() == [0.0, 1.0, 2.0]
    assert (second["a"].tolist(), second["b"]) == ([0.0], [b"ab", b"ab"])
    assert (third, fourth) == ([1, "x", None, True], 2.0)
    for strange in (object(), [object()], np.array([object()])):
        opened.results = strange
        assert not hold(opened)
        assert opened.results is strange
