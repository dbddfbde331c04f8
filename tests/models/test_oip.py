"""The Open Inference Protocol, against tritonclient's own encoder and decoder, a table of bad requests, and chance."""

from __future__ import annotations

import copy
import json
import tracemalloc
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult

import mark
from mark.models.answering import answer
from mark.models.call import Call, Reply
from mark.models.model import DATATYPES
from mark.models.tensors import DTYPES
from tests.models.calls import Echo, error, oip, one, outputs, tensor

_SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)
_BYTES = st.binary(max_size=9)
_TEXT = st.text(max_size=9).map(lambda text: text.encode(errors="replace"))


def _tensors(datatype: str, text: bool) -> st.SearchStrategy[np.ndarray]:
    if datatype == "BYTES":
        return arrays.arrays(object, _SHAPES, elements=_TEXT if text else _BYTES, fill=st.nothing())
    dtype = DTYPES[datatype]
    finite: dict[str, Any] = {"allow_nan": False, "allow_infinity": False} if text and dtype.kind == "f" else {}
    return arrays.arrays(dtype, _SHAPES, elements=arrays.from_dtype(dtype, **finite))


def _triton_call(inputs: list[InferInput], **asked: Any) -> Call:
    body, json_bytes = InferenceServerClient.generate_request_body(inputs, **asked)
    return Call("oip", "application/octet-stream", body, json_bytes)


def _triton_result(reply: Reply) -> InferResult:
    assert reply.status == 200, bytes(reply.body)
    return InferResult.from_response_body(bytes(reply.body), header_length=reply.json_bytes)


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary-out", "json-out"])
@pytest.mark.parametrize("binary_in", [True, False], ids=["binary-in", "json-in"])
@pytest.mark.parametrize("datatype", DATATYPES)
@settings(max_examples=10)
@given(data=st.data())
def test_every_datatype_comes_back_to_tritonclient(
    datatype: str, binary_in: bool, binary_out: bool, data: st.DataObject
) -> None:
    """The client's request, an echo, the client's own reading of the reply: every bit the same, in both forms."""
    sent = data.draw(_tensors(datatype, text=not (binary_in and binary_out)))
    given_input = InferInput("x", list(sent.shape), datatype)
    given_input.set_data_from_numpy(sent, binary_data=binary_in)
    wanted = InferRequestedOutput("output", binary_data=binary_out)
    reply = one(Echo(), _triton_call([given_input], outputs=[wanted], request_id="r1"))
    result = _triton_result(reply)
    back = result.as_numpy("output")
    assert result.get_response()["id"] == "r1"
    assert result.get_output("output")["datatype"] == datatype
    assert (reply.json_bytes is not None) == binary_out
    if datatype == "BYTES":
        found = [each.encode() if isinstance(each, str) else each for each in back.ravel()]
        assert (back.shape, found) == (sent.shape, list(sent.ravel()))
    else:
        assert (back.shape, back.dtype, back.tobytes()) == (sent.shape, sent.dtype, sent.tobytes())


def test_bf16_is_refused() -> None:
    """numpy has no such type; the reply lists the known datatypes."""
    assert "FP16" in error(one(Echo(), oip(tensor(datatype="BF16", data=[1, 2]))))


def test_several_inputs_are_objects_of_rows() -> None:
    """The inputs are binary and JSON together, in tritonclient's order; outputs come in the requested order."""
    left, right = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7, 8], dtype=np.int64)
    inputs = [InferInput("left", [2, 3], "FP32"), InferInput("right", [2], "INT64")]
    inputs[0].set_data_from_numpy(left)
    inputs[1].set_data_from_numpy(right, binary_data=False)
    model = Echo()
    asked = [InferRequestedOutput("right"), InferRequestedOutput("left", binary_data=False)]
    reply = one(model, _triton_call(inputs, outputs=asked))
    assert [list(item) for item in model.seen[0]] == [["left", "right"]] * 2
    result = _triton_result(reply)
    assert [output["name"] for output in result.get_response()["outputs"]] == ["right", "left"]
    np.testing.assert_array_equal(result.as_numpy("left"), left)
    np.testing.assert_array_equal(result.as_numpy("right"), right)


def test_rows_of_binary_data_are_views_of_the_body() -> None:
    """Binary data is not copied, wherever it begins."""
    numbers = np.arange(8, dtype=np.float32)
    call = oip(tensor(shape=[2, 4], parameters={"binary_data_size": 32}), tail=numbers.tobytes())
    shared = bytearray(call.body)
    model = Echo()
    one(model, Call("oip", "", memoryview(shared), call.json_bytes))
    shared[-4:] = np.float32(99).tobytes()
    assert model.seen[0][1].tolist() == [4, 5, 6, 99]


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[[1, 2, 3]], [[4, 5, 6]]]], ids=["flat", "nested"])
def test_json_data_is_flat_or_nested(data: list[Any]) -> None:
    """The protocol allows both; nothing in between."""
    model = Echo()
    (output,) = outputs(one(model, oip(tensor(shape=[2, 1, 3], datatype="INT16", data=data))))
    assert output == {"name": "output", "datatype": "INT16", "shape": [2, 1, 3], "data": [1, 2, 3, 4, 5, 6]}
    assert model.seen[0][1].tolist() == [[4, 5, 6]]


def test_reply_names_model_version_and_id() -> None:
    """The version only where there is one, the id only where it was given."""
    model = Echo()
    call = oip(tensor(data=[1, 2]))
    assert list(orjson.loads(one(model, call).body)) == ["model_name", "outputs"]
    model.name, model.version = "m", "3"
    said = orjson.loads(one(model, oip(tensor(data=[1, 2]), id='a"b')).body)
    assert (said["model_name"], said["model_version"], said["id"]) == ("m", "3", 'a"b')


def test_nan_is_null_in_json_and_stays_nan_in_binary() -> None:
    """JSON cannot express such numbers."""
    call = oip(tensor(parameters={"binary_data_size": 8}), tail=np.array([np.nan, np.inf], dtype=np.float32).tobytes())
    assert outputs(one(Echo(), call))[0]["data"] == [None, None]


@pytest.mark.parametrize(
    ("results", "datatype", "data"),
    [
        ([1, 2], "INT64", [1, 2]),
        ([0.5, 1], "FP64", [0.5, 1.0]),
        ([True, False], "BOOL", [True, False]),
        (["é", b"b"], "BYTES", ["é", "b"]),
        ([["a", "b"], ["c", "d"]], "BYTES", ["a", "b", "c", "d"]),
        ([[1, 2], [3, 4]], "INT64", [1, 2, 3, 4]),
        (np.array([[1.5], [2.5]], dtype=np.float32), "FP32", [1.5, 2.5]),
        (np.array([1, 2], dtype=">i4"), "INT32", [1, 2]),
        (np.array(["a", "bc"]), "BYTES", ["a", "bc"]),
        (list(np.array([1, 2], dtype=np.uint8)), "UINT8", [1, 2]),
        (np.arange(8, dtype=np.int32).reshape(2, 4)[:, ::2], "INT32", [0, 2, 4, 6]),
    ],
)
def test_results_of_every_kind_become_tensors(results: Any, datatype: str, data: list[Any]) -> None:
    """Arrays, numbers, text, bytes, lists; with the datatype that they have."""
    model = mark.model(lambda batch: results)
    (output,) = outputs(one(model, oip(tensor(shape=[2, 1], data=[0, 0]))))
    assert (output["datatype"], output["data"], output["shape"][0]) == (datatype, data, 2)


def test_outputs_have_the_datatype_that_the_model_declares() -> None:
    """The output has the declared name as well; a conversion that loses more than precision is the model's fault."""
    model = mark.model(outputs=[mark.TensorSpec("y", "FP32")])(lambda batch: [0.1 for _ in batch])
    (output,) = outputs(one(model, oip(tensor(data=[1, 2]))))
    assert (output["name"], output["datatype"], output["data"]) == ("y", "FP32", [0.1])
    wrong = mark.model(outputs=[mark.TensorSpec("y", "INT32")])(lambda batch: [0.1 for _ in batch])
    assert one(wrong, oip(tensor(data=[1, 2]))).status == 500


_DECLARED = Echo([mark.TensorSpec("x", "FP32", (2, -1)), mark.TensorSpec("n", "INT8")])
_X, _N = tensor("x", [1, 2, 1], data=[1, 2]), tensor("n", [1], "INT8", data=[1])


def test_declared_inputs_are_checked() -> None:
    """Names, number, datatypes and shapes; a request that fits passes in any order."""
    assert one(_DECLARED, oip(_N, _X)).status == 200
    assert "has 2 inputs" in error(one(_DECLARED, oip(_X)))
    assert "no input 'm'" in error(one(_DECLARED, oip(_X, _N | {"name": "m"})))
    assert "takes INT8" in error(one(_DECLARED, oip(_X, _N | {"datatype": "INT16"})))
    assert "takes [-1, 2, -1]" in error(one(_DECLARED, oip(_X | {"shape": [1, 1, 2]}, _N)))


def _binary(size: Any = 8, tail: bytes = b"12345678", **more: Any) -> Call:
    return oip(tensor(parameters={"binary_data_size": size}, **more), tail=tail)


_DEEP = b"[" * 900 + b"]" * 900
_BAD: dict[str, Call] = {
    "no JSON": Call("oip", "", b"{"),
    "nothing": Call("oip", "", b""),
    "not UTF-8": Call("oip", "", b'{"inputs": "\xff"}'),
    "deeply nested": Call("oip", "", b"[" * 100_000),
    "deeply nested data": Call("oip", "", orjson.dumps({"inputs": [tensor()]})[:-3] + b',"data":' + b"[" * 10**5),
    "nested as deep as JSON may": Call("oip", "", orjson.dumps({"inputs": [tensor(data=[])]}).replace(b"[]", _DEEP)),
    "not an object": Call("oip", "", b"[]"),
    "no inputs": Call("oip", "", b"{}"),
    "inputs no list": Call("oip", "", b'{"inputs": {}}'),
    "empty inputs": oip(),
    "an input no object": oip(1),
    "no name": oip({"shape": [1], "datatype": "FP32", "data": [1]}),
    "name no text": oip(tensor(name=1, data=[1, 2])),  # type: ignore[arg-type]
    "a name twice": oip(tensor(data=[1, 2]), tensor(data=[1, 2])),
    "datatype unknown": oip(tensor(datatype="FP31", data=[1, 2])),
    "datatype a list": oip(tensor(datatype=["FP32"], data=[1, 2])),
    "shape missing": oip({"name": "x", "datatype": "FP32", "data": [1]}),
    "shape no list": oip(tensor(shape=2, data=[1, 2])),
    "shape empty": oip(tensor(shape=[], data=[1])),
    "shape negative": oip(tensor(shape=[-1, 2], data=[1, 2])),
    "shape negative twice": oip(tensor(shape=[-1, -2], data=[1, 2])),
    "shape a fraction": oip(tensor(shape=[1.0, 2], data=[1, 2])),
    "shape true": oip(tensor(shape=[True, 2], data=[1, 2])),
    "shape text": oip(tensor(shape=["1", 2], data=[1, 2])),
    "shape null": oip(tensor(shape=[None], data=[1, 2])),
    "shape without items": oip(tensor(shape=[0, 2], data=[])),
    "shape huge": oip(tensor(shape=[2**40], data=[1])),
    "shape beyond 64 bits": Call("oip", "", b'{"inputs":[{"name":"x","shape":[1e30],"datatype":"FP32","data":[1]}]}'),
    "shape huge in product": oip(tensor(shape=[1] + [2**62] * 31, data=[1])),
    "shape huge, BYTES": oip(tensor(shape=[2**40], datatype="BYTES", data=["a"])),
    "shape huge behind a zero": oip(tensor(shape=[1, 0, 2**64 - 1], data=[])),
    "shape huge in product behind a zero": oip(tensor(shape=[1, 0, 2**62, 4], data=[])),
    "shape huge behind a zero, BYTES": oip(tensor(shape=[1, 0, 2**63], datatype="BYTES", data=[])),
    "shape huge behind a zero, binary": Call(
        "oip", "", (_BODY := b'{"inputs":[{"name":"x","shape":[1,0,18446744073709551615],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":0}}]}'), len(_BODY)
    ),
    "shape of many dimensions": oip(tensor(shape=[1] * 33, data=[1])),
    "too few elements": oip(tensor(data=[1])),
    "too many elements": oip(tensor(data=[1, 2, 3])),
    "nested otherwise": oip(tensor(shape=[2, 2], data=[[1], [2, 3, 4]])),
    "nested too deep": oip(tensor(shape=[1, 2], data=[[[1, 2]]])),
    "nested too little": oip(tensor(shape=[2, 1, 2], data=[[1, 2], [3, 4]])),
    "nested in part": oip(tensor(shape=[2, 1], data=[[1], 2])),
    "flat and nested": oip(tensor(shape=[2], data=[1, [2]])),
    "data missing": oip(tensor()),
    "data an object": oip(tensor(data={"0": 1})),
    "data text": oip(tensor(data="12")),
    "text for a number": oip(tensor(data=["1", "2"])),
    "null for a number": oip(tensor(data=[1, None])),
    "an object for a number": oip(tensor(data=[1, {}])),
    "NaN": Call("oip", "", b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}'),
    "a fraction for an integer": oip(tensor(datatype="INT32", data=[1, 1.5])),
    "below the range": oip(tensor(datatype="UINT8", data=[1, -1])),
    "above the range": oip(tensor(datatype="INT8", data=[1, 128])),
    "a number for a BOOL": oip(tensor(datatype="BOOL", data=[1, 0])),
    "a number for BYTES": oip(tensor(datatype="BYTES", data=["a", 1])),
    "first lengths differ": oip(tensor(data=[1, 2]), tensor("y", [2, 1], data=[1, 2])),
    "id no text": oip(tensor(data=[1, 2]), id=7),
    "parameters no object": oip(tensor(data=[1, 2]), parameters=[]),
    "binary_data_output no flag": oip(tensor(data=[1, 2]), parameters={"binary_data_output": 1}),
    "an input's parameters no object": oip(tensor(data=[1, 2], parameters=3)),
    "shared memory": oip(tensor(parameters={"shared_memory_region": "r"})),
    "outputs no list": oip(tensor(data=[1, 2]), outputs={}),
    "outputs text": oip(tensor(data=[1, 2]), outputs="output"),
    "an output no object": oip(tensor(data=[1, 2]), outputs=["output"]),
    "an output unknown": oip(tensor(data=[1, 2]), outputs=[{"name": "z"}]),
    "an output twice": oip(tensor(data=[1, 2]), outputs=[{"name": "output"}] * 2),
    "an output's parameters no object": oip(tensor(data=[1, 2]), outputs=[{"name": "output", "parameters": 1}]),
    "an output's flag no flag": oip(tensor(data=[1, 2]), outputs=[{"name": "o", "parameters": {"binary_data": 0}}]),
    "classification": oip(tensor(data=[1, 2]), outputs=[{"name": "output", "parameters": {"classification": 1}}]),
    "binary cut off": _binary(tail=b"1234567"),
    "binary left over": _binary(tail=b"123456789"),
    "binary too short for the shape": _binary(4, b"1234"),
    "binary size huge": _binary(2**62),
    "binary size negative": _binary(-8),
    "binary size text": _binary("8"),
    "binary and data": _binary(data=[1, 2]),
    "binary without the header": oip(tensor(parameters={"binary_data_size": 8})),
    "binary huge shape": _binary(shape=[2**40, 2]),
    "binary BOOL of 2": _binary(2, b"\x01\x02", datatype="BOOL"),
    "BYTES shorter than its lengths": _binary(8, b"\x05\0\0\0abc\0", datatype="BYTES", shape=[1]),
    "BYTES longer than its lengths": _binary(8, b"\x03\0\0\0abc\0", datatype="BYTES", shape=[1]),
    "BYTES of 4 GiB": _binary(8, b"\xff\xff\xff\xffabcd", datatype="BYTES", shape=[1]),
    "BYTES cut in a length": _binary(8, b"\x01\0\0\0a\0\0\0", datatype="BYTES", shape=[2]),
    "BYTES huge shape": _binary(8, b"\0" * 8, datatype="BYTES", shape=[2**40]),
    "JSON longer than the body": Call("oip", "", b"{}", 3),
    "JSON of negative length": Call("oip", "", b"{}", -1),
}  # fmt: skip


@pytest.mark.parametrize("call", _BAD.values(), ids=_BAD.keys())
def test_a_bad_request_is_a_400_of_one_line(call: Call) -> None:
    """A good request beside it is answered, and a false size reserves no memory."""
    good = oip(tensor(data=[1, 2]))
    tracemalloc.start()
    try:
        refused, answered = answer(Echo(), [call, good])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.status == 400, bytes(refused.body)
    assert len(error(refused)) <= 300
    assert answered.status == 200
    assert peak_bytes < 2_000_000 + 10 * len(call.body)


_HOSTILE = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            False,
            0,
            -1,
            1,
            2,
            2**40,
            2**63 - 1,
            1.5,
            "",
            "x",
            [],
            {},
            [[]],
            "FP32",
            "BYTES",
            "BOOL",
            [1],
            [-1],
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
)
_GOOD = {
    "id": "1",
    "parameters": {"binary_data_output": True},
    "inputs": [
        {"name": "a", "shape": [2, 2], "datatype": "INT8", "data": [[1, 2], [3, 4]]},
        {"name": "b", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 10}},
        {"name": "c", "shape": [2, 1], "datatype": "FP16", "parameters": {"binary_data_size": 4}},
    ],
    "outputs": [{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}, {"name": "c"}],
}
_TAIL = b"\x01\0\0\0a\x01\0\0\0b" + b"\0\0\0\0"


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, each in inner for place in _places(each, (*path, key))]


@settings(max_examples=250)
@given(
    changes=st.lists(st.tuples(st.sampled_from(_places(_GOOD)), _HOSTILE), max_size=3),
    cut=st.integers(0, 14),
    extra=st.binary(max_size=3),
    length=st.sampled_from([0, 0, 0, 0, 1, -1, 10**9]),
)
def test_a_request_changed_anywhere_is_answered_or_refused(
    changes: list[tuple[tuple[Any, ...], Any]], cut: int, extra: bytes, length: int
) -> None:
    """Any values in any places, binary data cut or longer: 200 or 400, never an exception, never a fault of ours."""
    request: Any = copy.deepcopy(_GOOD)
    for path, value in changes:
        inner = request
        try:
            for key in path[:-1]:
                inner = inner[key]
            if isinstance(inner, dict) and not isinstance(path[-1], str):
                continue  # JSON cannot have such a key
            inner[path[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError, AttributeError):
            continue  # an earlier change took the place away
    head = orjson.dumps(request)
    reply = one(Echo(), Call("oip", "", head + _TAIL[: 14 - cut] + extra, len(head) + length))
    assert reply.status in (200, 400), bytes(reply.body)
    if not changes and not cut and not extra and not length:
        assert reply.status == 200
    if reply.status == 400:
        error(reply)


@settings(max_examples=100)
@given(body=st.binary(max_size=60), json_bytes=st.none() | st.integers(-2, 70))
def test_noise_is_refused(body: bytes, json_bytes: int | None) -> None:
    """Random bytes are never a request."""
    assert one(Echo(), Call("oip", "", body, json_bytes)).status == 400


@pytest.mark.parametrize(
    ("datatype", "number", "said"),
    [
        ("FP32", 1e39, "input 'x': data does not fit FP32: 1e+39 at 1"),
        ("FP32", -4e38, "input 'x': data does not fit FP32: -4e+38 at 1"),
        ("FP16", 65520.0, "input 'x': data does not fit FP16: 65520.0 at 1"),
        ("INT8", 300, "input 'x': data does not fit INT8: signed char is greater than maximum: 300 (int) at 1"),
        ("INT64", 2**70, "input 'x': data does not fit INT64: "),
        ("FP64", "a", "input 'x': data does not fit FP64: must be real number, not str: 'a' (str) at 1"),
    ],
)
def test_a_number_that_does_not_fit_is_named(datatype: str, number: object, said: str) -> None:
    body = json.dumps({"inputs": [tensor("x", [2], datatype, data=[1, number])]}).encode()
    assert error(one(Echo(), Call("oip", "application/json", body))).startswith(said)


def test_the_largest_numbers_fit() -> None:
    largest = float(np.finfo(np.float32).max)
    assert outputs(one(Echo(), oip(tensor("x", [2], "FP32", data=[largest, -largest]))))[0]["data"] == [
        pytest.approx(largest),
        pytest.approx(-largest),
    ]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"s": {1, 2}}, "output 's': results[0] is {1, 2} (set)"),
        ({"n": 2**70}, "output 'n': results[0] is 1180591620717411303424 (int)"),
        ({1: "a"}, "results has a key that is no text: 1 (int)"),
        ({"d": [1, None]}, "output 'd': results[0][1] is None (NoneType)"),
        ({"d": np.array(["2026-01-01"], "datetime64[D]")}, "output 'd': results[0] is array(["),
    ],
)
def test_a_result_that_is_no_tensor_is_named(result: dict[Any, Any], said: str) -> None:
    class Odd(mark.Model):
        def predict(self, batch: list[Any]) -> list[Any]:
            return [result] * len(batch)

    told = error(one(Odd(), oip(tensor("x", [1], "FP32", data=[1.0]))))
    assert told.startswith("the model's results cannot be encoded: TypeError: " + said)
