"""SageMaker's `POST /invocations`: JSON, CSV rows, npy, or raw bytes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from mark.models.call import Call, Reply
from mark.models.items import NPY, csv_lines, items_in, many_in, media_type, npy_shape
from mark.models.model import Model
from mark.models.tensors import LARGEST, MAX_DIMENSIONS, NAMES, Array, BadCall, fitted_items, misfit, stacked

_LONG, _DIGITS = b"0" * 19, bytes.maketrans(b"123456789", b"0" * 9)
# any other type is passed to the model as bytes
_KNOWN = ("application/json", "text/csv", "application/x-npy", "text/plain")
_TYPE = re.compile(r"[\w.+*-]+/[\w.+*-]+", re.ASCII)


@dataclass(slots=True)
class AnswerFormat:
    """The form of the answer: `one` plain result or a list, under `key` if set; `accept` in order of preference."""

    accept: list[str]
    one: bool
    key: str | None = None


def decode(call: Call, model: Model) -> tuple[list[Any], AnswerFormat]:
    """Return the items of a request, and the wanted form of the answer. Raises BadCall.

    `{"instances": [...]}` and `{"inputs": [...]}` hold an item each, any other JSON is one item; CSV holds an item per
    row (numbers), npy along its first dimension; text is one `str`, everything else one `bytes`.
    """
    accept = _accepted(call.accept)
    asked = AnswerFormat(accept, one=True)
    match media_type(call.content_type):
        case "application/json":
            try:
                value = orjson.loads(call.body)
            except orjson.JSONDecodeError as error:
                raise BadCall(f"the body is not JSON: {error}") from None
            if _LONG in bytes(call.body).translate(_DIGITS):
                _check_integers(call.body)
            many = many_in(value)
            if many and len(many) != items_in(call):  # it would be admitted as few items and run as many
                raise BadCall("the items of the body cannot be counted: a key twice or escaped, or nested too deeply")
            items = [value] if many is None else many
            asked = AnswerFormat(
                accept, many is None, "predictions" if many is not None and "instances" in value else None
            )
        case "text/csv":
            items, asked.one = _rows(call.body, model), False
        case "application/x-npy":
            tensor = _npy(call.body)
            asked.one = tensor.ndim == 0
            items = [tensor[()]] if asked.one else list(tensor)
        case "text/plain":
            try:
                items = [str(call.body, "utf-8")]
            except UnicodeDecodeError:
                raise BadCall("the text is not UTF-8") from None
        case kind:
            spec = model.inputs[0] if len(model.inputs) == 1 else None
            if model.columns or (model.inputs and not (spec and spec.datatype == "BYTES" and not spec.shape)):
                raise BadCall(f"content-type {kind} is not known, but {', '.join(_KNOWN)}", 415)
            items = [bytes(call.body)]
    if not items:
        raise BadCall("the request holds no item")
    return fitted_items(items, model), asked


def encode(model: Model, asked: AnswerFormat, results: Any) -> Reply:
    """Return the reply to one request, in the first type that it accepts and that we support.

    NaN and infinity are null in JSON. Raises BadCall (406) if no accepted type is supported, TypeError or ValueError if
    the results cannot be encoded.
    """
    value = results[0] if asked.one else results
    raw = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
    for kind in asked.accept:
        if kind == "application/x-npy":
            return Reply(200, kind, _to_npy(value if asked.one else results))
        if kind == "text/csv" or (kind == "text/*" and raw is None):
            return Reply(200, "text/csv", _to_csv(results, [spec.name for spec in model.outputs]))
        if kind == "text/plain" and isinstance(value, str):
            return Reply(200, kind, value.encode())
        if kind == "application/json" or (kind in ("*/*", "application/*") and raw is None):
            return Reply(200, "application/json", _json({asked.key: value} if asked.key else value))
        if raw is not None:
            return Reply(200, "application/octet-stream" if "*" in kind else kind, raw)
    raise BadCall(f"cannot answer as {', '.join(asked.accept)}", 406)


def _check_integers(body: bytes | memoryview) -> None:
    """Raise BadCall for an integer wider than 64 bits, because it would be read as a different number."""

    def check(text: str) -> None:
        if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
            raise BadCall(f"the integer {text[:30]} does not fit 64 bits")

    json.loads(bytes(body), parse_int=check)


def _accepted(accept: str) -> list[str]:
    types = [each.partition(";")[0].strip() for each in accept.lower().split(",")]
    return [each for each in types if _TYPE.fullmatch(each)] or ["*/*"]


def _rows(body: bytes | memoryview, model: Model) -> list[Any]:
    specs = model.inputs
    if len(specs) > 1:
        raise BadCall("text/csv cannot say which input is meant: send JSON")
    try:
        if model.columns:
            return _mixed_rows(csv_lines(body))
        rows = [[field.strip() for field in line.decode().split(",")] for line in csv_lines(body)]
        if not specs:
            return list(np.array([[float(field) for field in row] for row in rows], dtype=np.float64))
        spec = specs[0]
        parsed: list[Any] = rows
        if spec.datatype != "BYTES":
            number = int if "INT" in spec.datatype else float
            parsed = [[number(field) for field in row] for row in rows]
    except ValueError as error:  # includes text that is not UTF-8
        raise BadCall(f"text/csv must be rows of numbers, all as long: {error}") from None
    return [row[0] if not spec.shape and len(row) == 1 else row for row in parsed]


def _mixed_rows(lines: list[bytes]) -> list[list[Any]]:
    """Return rows of numbers and of quoted text: `007` is a number, `"007"` is not. Raises BadCall."""
    try:
        return list(
            csv.reader(map(bytes.decode, lines), quoting=csv.QUOTE_NONNUMERIC, skipinitialspace=True, strict=True)
        )
    except (csv.Error, ValueError) as error:
        raise BadCall(f'text/csv must be rows of numbers and of text in double quotes ("Ulm"): {error}') from None


def _npy(body: bytes | memoryview) -> Array:
    # numpy's own reader evaluates the header, and allocates the size it claims before looking at the data.
    found = NPY.match(body)
    if found is None:
        raise BadCall("the body is not npy")
    dtype = next((each for each in NAMES if found["descr"].decode("latin-1") in (each.str, each.str[1:])), None)
    if dtype is None or dtype.hasobject:
        raise BadCall("npy must be of little-endian numbers or booleans")
    start = 10 + int.from_bytes(found["v1"], "little") if found["v1"] else 12 + int.from_bytes(found["v2"], "little")
    shape = npy_shape(found)
    data = memoryview(body)[start:]
    if len(shape) > MAX_DIMENSIONS or math.prod(length or 1 for length in shape) > LARGEST:
        raise BadCall("npy has no such shape")
    if start < found.end() or len(data) != math.prod(shape) * dtype.itemsize:
        raise BadCall("the npy data does not match its header")
    if dtype.kind == "b" and len(data) and np.frombuffer(data, dtype=np.uint8).max() > 1:
        raise BadCall("a boolean of npy is a byte of 0 or 1")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if found["fortran"] == b"True" else "C")


def _tensor(value: Any, kind: str) -> Array:
    try:
        row: Array = stacked([value], None)[0]
        return row
    except (TypeError, ValueError):
        raise BadCall(f"the results are no tensor: cannot answer as {kind}", 406) from None


def _to_npy(value: Any) -> bytes:
    tensor = np.asarray(value if isinstance(value, np.ndarray) else _tensor(value, "application/x-npy"))
    if tensor.dtype.kind not in "biufc":
        raise BadCall("the results are not numbers: cannot answer as application/x-npy", 406)
    file = io.BytesIO()
    np.lib.format.write_array(file, tensor, allow_pickle=False)
    return file.getvalue()


def _to_csv(results: Any, names: list[str]) -> bytes:
    """Return a row for each result; several declared outputs are joined in one row."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for result in results:
        several = isinstance(result, dict) and len(names) > 1 and result.keys() == set(names)
        parts = [result[name] for name in names] if several else [result]
        fields = [field for part in parts for field in _fields(_tensor(part, "text/csv"))]
        if not all(isinstance(field, str | bool | int | float) for field in fields):
            raise BadCall("the results are not rows: cannot answer as text/csv", 406)
        writer.writerow(fields)
    return file.getvalue().encode()


def _fields(tensor: Array) -> list[Any]:
    """Return the values of a tensor; FP32 and FP16 as the shortest decimals, as JSON has them."""
    flat = np.ravel(tensor)
    narrow = flat.dtype.kind == "f" and flat.dtype.itemsize < 8
    return [float(str(each)) for each in flat] if narrow else flat.tolist()


def _json(value: Any) -> bytes:
    try:
        return _json_text(value)
    except orjson.JSONEncodeError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise BadCall("the result is bytes that are not text: cannot answer as application/json", 406) from None
        raise TypeError(misfit(value, _json_text) or error) from None


def _json_text(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return str(value, "utf-8")
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not value.flags.c_contiguous:
        return np.ascontiguousarray(value)  # orjson writes FP32 with as many digits as it has
    if hasattr(value, "tolist"):  # an array that orjson refuses, for example of objects
        return value.tolist()
    raise TypeError
