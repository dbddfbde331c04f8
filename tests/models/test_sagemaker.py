"""SageMaker's /invocations: inputs and outputs."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import mark
from mark.models.call import Call
from mark.models.tensors import DTYPES
from tests.models.calls import Echo, error, one, sagemaker


def npy(array: np.ndarray) -> bytes:
    """Return the array as numpy writes it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "items", "answer"),
    [
        (b'{"instances": [[1], {"a": 2}]}', [[1], {"a": 2}], b'{"predictions":[[1],{"a":2}]}'),
        (b'{"inputs": ["a", "b"]}', ["a", "b"], b'["a","b"]'),
        (b'{"inputs": "a"}', [{"inputs": "a"}], b'{"inputs":"a"}'),
        (b'{"instances": [1], "signature_name": "s"}', [{"instances": [1], "signature_name": "s"}], None),
        (b"[1, 2]", [[1, 2]], b"[1,2]"),
        (b"null", [None], b"null"),
        (b'"text"', ["text"], b'"text"'),
    ],
)
def test_json(body: bytes, items: list[Any], answer: bytes | None) -> None:
    """An object of one key holds many items, any other body is one item; the answer has the same form."""
    for content_type in ("application/json; charset=utf-8", "", "application/x-www-form-urlencoded"):
        model = Echo()
        reply = one(model, sagemaker(body, content_type))
        assert model.seen == [items]
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.body == (body.replace(b" ", b"") if answer is None else answer)


def test_csv_is_rows_of_numbers() -> None:
    """A row is an item, with any line ending; the answer is JSON or rows."""
    model = Echo()
    body = b"1,2.5\r\n 3 ,nan\n\n"
    assert one(model, sagemaker(body, "text/csv")).body == b"[[1.0,2.5],[3.0,null]]"
    assert one(model, sagemaker(body, "text/csv", "text/csv")).body == b"1.0,2.5\n3.0,nan\n"
    assert model.seen[0][0].dtype == np.float64


@settings(max_examples=100)
@given(data=st.data(), kind=st.sampled_from([name for name in DTYPES if name != "BYTES"]), fortran=st.booleans())
def test_npy_comes_back_as_numpy_wrote_it(data: st.DataObject, kind: str, fortran: bool) -> None:
    """Every datatype, shape and order; numpy's own reader finds the same array."""
    dtype = DTYPES[kind]
    sent = data.draw(arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)))
    sent = np.asfortranarray(sent) if fortran and sent.ndim else sent
    reply = one(Echo(), sagemaker(npy(sent), "application/x-npy", "application/x-npy"))
    assert (reply.status, reply.content_type) == (200, "application/x-npy")
    back = np.load(io.BytesIO(bytes(reply.body)), allow_pickle=False)
    assert (back.dtype, back.shape, back.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())


def test_everything_else_is_one_item() -> None:
    """Text becomes `str`, other types `bytes`; bytes are returned unchanged, under the requested type."""
    model = Echo()
    assert one(model, sagemaker("é".encode(), "text/plain", "text/plain")).body == "é".encode()
    image = one(model, sagemaker(b"\x89PNG", "image/png", "image/png"))
    assert (image.body, image.content_type) == (b"\x89PNG", "image/png")
    plain = one(model, Call("sagemaker", "application/octet-stream", memoryview(b"\xff")))
    assert (plain.body, plain.content_type) == (b"\xff", "application/octet-stream")
    assert model.seen == [["é"], [b"\x89PNG"], [b"\xff"]]


@pytest.mark.parametrize(
    ("accept", "status", "body"),
    [
        ("", 200, b"[[1.5,2.0]]"),
        ("*/*", 200, b"[[1.5,2.0]]"),
        ("image/png, application/json;q=0.5", 200, b"[[1.5,2.0]]"),
        ("text/csv", 200, b"1.5,2.0\n"),
        ("TEXT/*", 200, b"1.5,2.0\n"),
        ("application/x-npy", 200, npy(np.array([[1.5, 2.0]]))),
        ("image/png", 406, None),
        ("text/plain", 406, None),
        ("image/\udce9", 200, b"[[1.5,2.0]]"),
        ("a" * 100_000, 200, b"[[1.5,2.0]]"),
    ],
)
def test_the_answer_is_of_a_type_that_is_accepted(accept: str, status: int, body: bytes | None) -> None:
    """It is the first type that we have, otherwise the status is 406."""
    reply = one(Echo(), sagemaker(b"1.5,2.0", "text/csv", accept))
    assert reply.status == status
    assert body is None or reply.body == body


def test_results_that_a_type_cannot_say_are_406() -> None:
    """Examples are bytes that are not text for JSON, and objects for npy and CSV."""
    cases = [
        (b"\xff", "application/json"),
        ({"a": 1}, "text/csv"),
        ({"a": 1}, "application/x-npy"),
        ("text", "application/x-npy"),
        ([[1], [2, 3]], "application/x-npy"),
        ([[1], [2, 3]], "text/csv"),
        ([None], "text/csv"),
    ]
    for result, accept in cases:
        model = mark.model(lambda batch, result=result: [result])
        assert one(model, sagemaker(b"1", accept=accept)).status == 406, (result, accept)


def test_results_of_numpy_are_json() -> None:
    """This covers nested arrays, scalars, bytes of text, and arrays that are not contiguous."""
    result = {
        "a": np.array([[1, 2], [3, 4]])[:, 0],
        "b": np.float32(0.5),
        "c": b"text",
        "d": np.array([b"x"], dtype=object),
    }
    model = mark.model(lambda batch: [result])
    assert one(model, sagemaker(b"1")).body == b'{"a":[1,3],"b":0.5,"c":"text","d":["x"]}'
    column = mark.model(lambda batch: [np.full((2, 2), 0.1, np.float32)[:, 0]])
    assert one(column, sagemaker(b"1")).body == b"[0.1,0.1]"
    assert one(column, sagemaker(b"1", accept="text/csv")).body == b"0.1,0.1\n"
    assert one(mark.model(lambda batch: [["a,b", "c"]]), sagemaker(b"1", accept="text/csv")).body == b'"a,b",c\n'


_X = mark.TensorSpec("x", "FP32", (2,))


def test_declared_inputs_make_arrays_of_every_form() -> None:
    """A model written for tensors need not know how they came."""
    model = Echo([_X])
    for body, content_type in (
        (b"[1, 2]", ""),
        (b'{"instances": [[1, 2]]}', ""),
        (b"1,2", "text/csv"),
        (npy(np.array([[1, 2]])), "application/x-npy"),
    ):
        one(model, sagemaker(body, content_type))
        ((item,),) = model.seen
        assert (item.dtype, item.tolist()) == (np.float32, [1, 2])
        model.seen.clear()


def test_declared_scalars_text_and_several_inputs() -> None:
    """Shape () is one number or text; several inputs are an object of exactly their names."""
    numbers, text = Echo([mark.TensorSpec("n", "INT64")]), Echo([mark.TensorSpec("t", "BYTES")])
    both = Echo([_X, mark.TensorSpec("t", "BYTES")])
    assert one(numbers, sagemaker(b"7\n8", "text/csv")).body == b"[7,8]"
    assert one(text, sagemaker(b"\xff", "application/octet-stream")).body == b"\xff"
    one(text, sagemaker(b'"a"'))
    one(text, sagemaker(b"a", "text/csv"))
    assert text.seen[1:] == [[b"a"], [b"a"]]
    one(both, sagemaker(b'{"x": [1, 2], "t": "a"}'))
    ((item,),) = both.seen
    assert item["x"].dtype == np.float32
    assert item["t"] == b"a"
    assert "object of x, t" in error(one(both, sagemaker(b'{"x": [1, 2]}')))
    assert one(both, sagemaker(b"1,2", "text/csv")).status == 400


def _header(shape: str, descr: str = "<f4", data: bytes = b"1234") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


_NPY = "application/x-npy"
_BAD = {
    "JSON": sagemaker(b"{"),
    "JSON of NaN": sagemaker(b"[NaN]"),
    "JSON nested deeply": sagemaker(b"[" * 10**5),
    "JSON not UTF-8": sagemaker(b'"\xff"'),
    "JSON without items": sagemaker(b'{"instances": []}'),
    "CSV empty": sagemaker(b"\n", "text/csv"),
    "CSV of text": sagemaker(b"a,b", "text/csv"),
    "CSV ragged": sagemaker(b"1,2\n3", "text/csv"),
    "CSV not UTF-8": sagemaker(b"\xff", "text/csv"),
    "CSV field empty": sagemaker(b"1,,2", "text/csv"),
    "CSV of a huge number": sagemaker(b"9" * 10_000 + b",x", "text/csv"),
    "text not UTF-8": sagemaker(b"\xff", "text/plain"),
    "npy no npy": sagemaker(b"PK", _NPY),
    "npy cut": sagemaker(npy(np.zeros(4))[:-1], _NPY),
    "npy longer": sagemaker(npy(np.zeros(4)) + b"1", _NPY),
    "npy of objects": sagemaker(_header("1,", "|O"), _NPY),
    "npy pickled": sagemaker(b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (), }\n", _NPY),
    "npy big-endian": sagemaker(_header("1,", ">f4"), _NPY),
    "npy of text": sagemaker(_header("1,", "<U1"), _NPY),
    "npy of a huge shape": sagemaker(_header("1099511627776, 1099511627776"), _NPY),
    "npy of a huge shape behind a zero": sagemaker(_header("1, 0, 99999999999999999999", data=b""), _NPY),
    "npy without items": sagemaker(npy(np.zeros((0, 2))), _NPY),
    "npy of bad booleans": sagemaker(_header("4,", "|b1", b"\x02\0\0\0"), _NPY),
    "npy header of code": sagemaker(_header("__import__('os').abort()"), _NPY),
    "npy of digits without end": sagemaker(_header("1" * 600 + "x"), _NPY),
    "npy of many dimensions": sagemaker(_header("1, " * 100), _NPY),
    "npy header beyond the body": sagemaker(b"\x93NUMPY\x01\x00\xff\xff" + _header("1,")[10:], _NPY),
}


@pytest.mark.parametrize("call", _BAD.values(), ids=_BAD.keys())
def test_a_bad_request_is_a_400_of_one_line(call: Call) -> None:
    """A false size reserves no memory."""
    tracemalloc.start()
    try:
        reply = one(Echo(), call)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reply.status == 400, bytes(reply.body)
    error(reply)
    assert peak_bytes < 2_000_000 + 10 * len(call.body)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[1]", ""),
        (b"[1,2,3]", ""),
        (b"1", ""),
        (b'["1","2"]', ""),
        (b"[[1,2]]", ""),
        (b'{"x":[1,2]}', ""),
        (b"null", ""),
        (b"1,2,3", "text/csv"),
        (b"a,b", "text/csv"),
        (b"1,2", "text/plain"),
        (npy(np.zeros((1, 3))), _NPY),
        (npy(np.zeros((1, 2), dtype=complex)), _NPY),
    ],
)
def test_what_does_not_fit_the_declared_input_is_a_400(body: bytes, content_type: str) -> None:
    """Before predict sees it, so that it does not spoil the batch of other calls."""
    model = Echo([_X])
    reply = one(model, sagemaker(body, content_type))
    assert reply.status == 400, bytes(reply.body)
    assert "\n" not in error(reply)
    assert model.seen == []


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_TYPES = ["", "application/json", "text/csv", "text/plain", _NPY, "application/octet-stream", "image/png", "*/*", ";,/"]


@settings(max_examples=300)
@given(
    body=st.binary(max_size=40)
    | _VALUES.map(orjson.dumps)
    | _VALUES.map(lambda value: orjson.dumps({"instances": value}))
    | st.binary(max_size=20).map(lambda cut: npy(np.arange(3.0))[: -1 - len(cut)] + cut),
    content_type=st.sampled_from(_TYPES),
    accept=st.sampled_from(_TYPES),
    specs=st.sampled_from([(), (_X,), (mark.TensorSpec("t", "BYTES"),), (_X, mark.TensorSpec("t", "BOOL", (-1,)))]),
)
def test_anything_is_answered_or_refused(
    body: bytes, content_type: str, accept: str, specs: tuple[mark.TensorSpec, ...]
) -> None:
    """Any body under any type: 200, 400, 406 or 415, never an exception, never a fault of ours."""
    reply = one(Echo(specs), sagemaker(body, content_type, accept))
    assert reply.status in (200, 400, 406, 415), bytes(reply.body)
    if reply.status != 200:
        error(reply)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"1180591620717411303424", "1180591620717411303424"),
        (b'{"instances": [1, {"a": [-9223372036854775809]}]}', "-9223372036854775809"),
        (b"18446744073709551616", "18446744073709551616"),
        (b"1" * 300, "1" * 30),
        (b"18446744073709551615", None),
        (b"-9223372036854775808", None),
        (b'["1180591620717411303424", 0.00000123456789012345678901, 1e30]', None),
    ],
)
def test_an_integer_beyond_64_bits_is_refused(body: bytes, refused: str | None) -> None:
    reply = one(Echo(), sagemaker(body))
    if refused is None:
        assert reply.status == 200
        assert orjson.loads(reply.body) == json.loads(body)
    else:
        assert error(reply) == f"the integer {refused} does not fit 64 bits"


@pytest.mark.parametrize("content_type", ["application/xml", "application/x-www-form", "image/png"])
def test_an_unknown_content_type_is_refused_with_the_known_ones(content_type: str) -> None:
    """Unless the model takes bytes."""
    reply = one(Echo([mark.TensorSpec("x", "FP32", (2,))]), sagemaker(b"<x/>", content_type))
    assert (reply.status, error(reply)) == (
        415,
        f"content-type {content_type} is not known, but application/json, text/csv, application/x-npy, text/plain",
    )
    for takes_bytes in (Echo(), Echo([mark.TensorSpec("x", "BYTES")])):
        assert one(takes_bytes, sagemaker(b"<x/>", content_type)).status == 200


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/json", b"[1e39, 1]"), ("text/csv", b"1e39,1"), ("application/x-npy", None)],
)
def test_a_number_that_becomes_infinite_is_refused(content_type: str, body: bytes | None) -> None:
    if body is None:
        file = io.BytesIO()
        np.save(file, np.array([[1e39, 1.0]]))
        body = file.getvalue()
    reply = one(Echo([mark.TensorSpec("x", "FP32", (2,))]), sagemaker(body, content_type))
    assert error(reply) == "input 'x': data does not fit FP32: 1e+39 at 0"


def test_list_of_items_is_not_one_item() -> None:
    row = Echo([mark.TensorSpec("x", "FP32", (3,))])
    said = "input 'x': an item is of shape [2, 3], not [3]; send several items as `instances`"
    assert error(one(row, sagemaker(b"[[1, 2, 3], [4, 5, 6]]"))) == said
    assert error(one(row, sagemaker(b"[1, 2]"))) == "input 'x': an item is of shape [2], not [3]"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"s": [1, {2}]}, "results['s'][1] is {2} (set)"),
        ({1: "a"}, "results has a key that is no text: 1 (int)"),
        ({"n": 2**70}, "results['n'] is 1180591620717411303424 (int)"),
        (1j, "results is 1j (complex)"),
    ],
)
def test_a_result_that_json_cannot_hold_is_named(result: Any, said: str) -> None:
    class Odd(mark.Model):
        def predict(self, batch: list[Any]) -> list[Any]:
            return [result] * len(batch)

    assert error(one(Odd(), sagemaker(b"1"))) == f"the model's results cannot be encoded: TypeError: {said}"
