"""Decoded items and results as bytes, for a backend that combines answers: plain Python and numpy values, no pickle.

JSON comes first (`json_bytes`), then the bytes of arrays and of `bytes`, in the order of their places in it. `{"dict":
[[name, value], ...]}` is a dictionary, and an object with "bytes" or "dtype" stands for bytes that follow.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from mark.models.call import BY_VALUE, RESULTS, Call, Reply
from mark.models.model import Model
from mark.models.tensors import BadCall, fitted_items

PROTOCOL = BY_VALUE
# numpy's short names. Data from a network may name no other type, and none that numpy would have to parse.
_DTYPE = re.compile(r"[<>|=]?[biufc][0-9]{1,2}")
_MOST_AXES = 64  # numpy's limit


def call_with(item: Any) -> Call:
    """Return a call with one item that asks for decoded results.

    Raises TypeError unless it is a plain value or array.
    """
    parts: list[bytes] = []
    head = json.dumps([_packed(item, parts)]).encode()
    return Call(PROTOCOL, RESULTS, b"".join((head, *parts)), len(head), RESULTS)


def decode(call: Call, model: Model) -> tuple[list[Any], None]:
    """Return the item of such a call, in a list.

    Raises BadCall for a malformed call, and for an item that does not fit.
    """
    try:
        items = _values(call.body, call.json_bytes)
    except ValueError as error:
        raise BadCall(str(error)) from None
    if len(items) != 1:  # the number that its bouncer counted
        raise BadCall(f"a call of a stage has one item, not {len(items)}")
    return fitted_items(items, model), None


def encode(model: Model, asked: object, results: Any) -> Reply:
    """Return the reply with a call's results, one for each item.

    Raises TypeError unless they are plain values or arrays.
    """
    parts: list[bytes] = []
    head = json.dumps([_packed(each, parts) for each in results]).encode()
    return Reply(200, RESULTS, b"".join((head, *parts)), len(head))


def results_of(reply: Reply) -> list[Any]:
    """Return the results that `encode` got, as a list. Raises ValueError for any other or a malformed reply."""
    if reply.content_type != RESULTS or reply.json_bytes is None:
        raise ValueError(f"the reply has no decoded results: status {reply.status}, {reply.content_type}")
    return _values(reply.body, reply.json_bytes)


def _values(body: bytes | memoryview, json_bytes: int | None) -> list[Any]:
    view = memoryview(body)
    try:
        packed = json.loads(bytes(view[:json_bytes]))
        values, rest = _unpacked(packed, view[json_bytes:])
    except (KeyError, OverflowError, TypeError, RecursionError) as error:
        raise ValueError(f"malformed results: {error!r}") from None
    if len(rest) or not isinstance(values, list):
        raise ValueError("malformed results: bytes are left, or there is no list")
    return values


def _packed(value: Any, parts: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        parts.append(bytes(value))
        return {"bytes": len(parts[-1])}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufc":
            return _packed(value.tolist(), parts)
        parts.append(value.tobytes())
        return {"dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, list | tuple):
        return [_packed(each, parts) for each in value]
    if isinstance(value, dict):
        return {"dict": [[_text(name), _packed(each, parts)] for name, each in value.items()]}
    raise TypeError(f"a result is a {type(value).__name__}")


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a result has a name that is a {type(name).__name__}")
    return name


def _unpacked(packed: Any, rest: memoryview) -> tuple[Any, memoryview]:
    """Return the value, and the bytes that follow its own."""
    if isinstance(packed, list):
        values = []
        for each in packed:
            value, rest = _unpacked(each, rest)
            values.append(value)
        return values, rest
    if not isinstance(packed, dict):
        return packed, rest
    if "dict" in packed:
        named = {}
        for name, each in packed["dict"]:
            named[_text(name)], rest = _unpacked(each, rest)
        return named, rest
    if "bytes" in packed:
        size = _size(packed["bytes"], rest)
        return bytes(rest[:size]), rest[size:]
    named, shape = packed["dtype"], packed["shape"]
    if not _DTYPE.fullmatch(named) or len(shape) > _MOST_AXES or min(shape, default=0) < 0:
        raise ValueError("malformed results: no array of numbers")
    dtype = np.dtype(named)
    size = _size(dtype.itemsize * math.prod(shape), rest)
    return np.frombuffer(rest[:size], dtype).reshape(shape)[()], rest[size:]


def _size(size: int, rest: memoryview) -> int:
    if not 0 <= size <= len(rest):
        raise ValueError(f"malformed results: {size} bytes of {len(rest)}")
    return size
