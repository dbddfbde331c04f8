"""Counting items without decoding."""

from __future__ import annotations

import io
import json

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.models.call import Call
from mark.models.items import MOST_ITEMS, items_in
from tests.models.calls import Echo, oip, one, sagemaker, tensor


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (oip(tensor(shape=[7, 2])), 7),
        (oip(tensor(shape=[3])), 3),
        (Call("oip", "", b'{ "inputs" : [ { "shape" : [ 12 , 3 ] } ] }'), 12),
        (oip(tensor(shape=[5, 2], name='"shape":[9]')), 5),
        (oip(tensor(shape=[-1])), 1),
        (oip(tensor(shape=[])), 1),
        (oip(tensor(shape=[0])), 1),
        (Call("oip", "", b'{"shape":[' + b"9" * 40 + b"]}"), 1),
        (Call("oip", "", b"\xff\x00"), 1),
        (Call("oip", "", memoryview(b'{"shape":[4]}')), 4),
        (Call("oip", "", b'{}"shape":[4]', 2), 1),
        (sagemaker(b"[1,2,3]"), 1),
        (sagemaker(b'{"instances": [[1], [2], [3]]}'), 3),
        (sagemaker(b' {"inputs":["a","b"]}', ""), 2),
        (sagemaker(b'{"inputs":"a"}'), 1),
        (sagemaker(b'{"inputs":["a","b"],"parameters":{}}'), 1),
        (sagemaker(b'{"instances":[1,2'), 1),
        (sagemaker(b' { "instances" : [ "a,]\\"", {"b": [1, 2, {"c": "]"}]}, "\\\\", [[], [1]], -1.5e3 , null ]}'), 6),
        (sagemaker(b'{"instances":[' + b"[]," * (2 * MOST_ITEMS) + b"1]}"), MOST_ITEMS),
        (sagemaker(b'{"instances":[[' + b"[]," * 1_000_000 + b"1]]}"), MOST_ITEMS),
        (sagemaker(b'{"instances":[]}'), 1),
        (sagemaker(b"1,2\n3,4\n\n", "text/csv; charset=utf-8"), 2),
        (sagemaker(b"1,2\r\n3,4", "Text/CSV"), 2),
        (sagemaker(b"", "text/csv"), 1),
        (sagemaker(b"1\n" * (2 * MOST_ITEMS), "text/csv"), MOST_ITEMS),
        (sagemaker(_npy(np.zeros((6, 2))), "application/x-npy"), 6),
        (sagemaker(_npy(np.zeros(())), "application/x-npy"), 1),
        (sagemaker(b"junk", "application/x-npy"), 1),
        (sagemaker(b"\n\n\n", "image/png"), 1),
    ],
)
def test_items_are_counted(call: Call, count: int) -> None:
    """Items are counted by shape, by rows or by instances; the least count is one."""
    assert items_in(call) == count


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from(["oip", "json", "csv", "npy"]))
def test_the_count_is_what_a_model_sees(numbers: list[int], form: str) -> None:
    """A bouncer that counts and a worker that decodes agree on every form."""
    rows = [[each] for each in numbers]
    call = {
        "oip": oip(tensor(shape=[len(rows), 1], data=rows)),
        "json": sagemaker(orjson.dumps({"instances": rows})),
        "csv": sagemaker("\n".join(map(str, numbers)).encode(), "text/csv"),
        "npy": sagemaker(_npy(np.array(rows)), "application/x-npy"),
    }[form]
    model = Echo()
    assert one(model, call).status == 200
    assert items_in(call) == len(model.seen[0]) == len(rows)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | st.text(',[]{}"\\ \n\u00e9a', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"],\\', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_json_items_are_counted_as_they_are_parsed(items: list[object], indent: int | None, escaped: bool) -> None:
    body = json.dumps({"instances": items}, indent=indent, ensure_ascii=escaped).encode()
    assert items_in(sagemaker(body)) == len(items)
    assert one(Echo(), sagemaker(body)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        rb'{"\u0069nstances":[1,2,3]}',
        b'{"instances":[1],"instances":[1,2,3]}',
        b'{"instances":[1,' + b"[" * 40 + b"]" * 40 + b"]}",
    ],
    ids=["escaped key", "key twice", "too deep"],
)
def test_json_items_that_are_not_counted_are_refused(body: bytes) -> None:
    """They would be admitted as one item and run as several."""
    assert items_in(sagemaker(body)) == 1
    assert one(Echo(), sagemaker(body)).status == 400


def test_items_that_hide_behind_another_shape_are_refused() -> None:
    """They would be admitted as one item and run as several."""
    hidden = b'{"parameters":{"shape":[1]},"inputs":' + orjson.dumps([tensor(shape=[2, 1], data=[1, 2])]) + b"}"
    assert one(Echo(), Call("oip", "", hidden)).status == 400
