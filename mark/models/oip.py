"""The Open Inference Protocol v2 over HTTP: JSON, and the binary tensor data extension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from mark.models.call import Call, Reply
from mark.models.items import items_in
from mark.models.model import Model, TensorSpec
from mark.models.tensors import (
    DTYPES,
    NAMES,
    Array,
    BadCall,
    elements,
    from_bytes,
    from_json,
    in_columns,
    misfit,
    size_of,
    stacked,
    to_bytes,
)

# name, datatype, shape, its product, bytes of binary data (None: JSON), JSON data
Given = tuple[str, str, list[int], int, int | None, Any]


@dataclass(slots=True)
class RequestedOutputs:
    """The outputs that a request wants.

    `outputs` maps names to True for binary; None: all outputs, in the form `binary`.
    """

    id: str | None
    outputs: dict[str, bool] | None
    binary: bool


def decode(call: Call, model: Model) -> tuple[list[Any], RequestedOutputs]:
    """Return the items of a request, and the outputs that it wants. Raises BadCall.

    An item is a row of the only input, or {input name: row} of several. Rows of binary data are views of the body.
    """
    body, length = call.body, call.json_bytes
    if length is None:
        (asked, inputs), rest = _read(body), memoryview(b"")
    else:
        if not 0 <= length <= len(body):
            raise BadCall("inference-header-content-length does not fit the body")
        view = memoryview(body)
        rest = view[length:]
        # A client that sends binary tensors repeats the same description, so it is cached.
        asked, inputs = (_reread if length <= _MAX_REREAD_BYTES else _read)(bytes(view[:length]))
    specs = model.inputs
    if specs:
        _check(specs, inputs)
    tensors: dict[str, Array] = {}
    at = 0
    for name, datatype, shape, size, binary_bytes, data in inputs:
        if binary_bytes is None:
            tensors[name] = from_json(data, datatype, shape, size, name)
        else:
            end = at + binary_bytes
            if end > len(rest):
                raise BadCall(f"input '{name}': the body ends before its binary data")
            tensors[name] = from_bytes(rest[at:end], datatype, shape, size, name)
            at = end
    if at != len(rest):
        raise BadCall(f"{len(rest) - at} bytes of the body belong to no input")
    count = inputs[0][2][0]
    if count > 1 and items_in(call) != count:  # it was admitted as fewer items
        raise BadCall('a "shape" before that of the first input hides how many items there are')
    if not specs:  # text, as it would be in JSON
        tensors = {name: _as_text(tensor) if tensor.dtype.hasobject else tensor for name, tensor in tensors.items()}
    if model.columns:
        return _by_columns(tensors, count, model.columns), asked
    if len(tensors) == 1 and not model.by_name:
        tensor = tensors[name]
        return [tensor[0]] if count == 1 else list(tensor), asked
    return [{name: tensor[i] for name, tensor in tensors.items()} for i in range(count)], asked


def encode(model: Model, asked: RequestedOutputs, results: Any) -> Reply:
    """Return the reply to one request; `results` belong to its items.

    NaN and infinity are null in JSON. Raises BadCall if the request wants an unknown output, TypeError or ValueError if
    the results are not tensors.
    """
    specs = model.outputs
    if isinstance(results[0], dict):
        known = {spec.name: spec for spec in specs}
        names = list(results[0])
        if not all(isinstance(name, str) for name in names):
            raise TypeError(misfit(results[0], _element))
        found = {name: _stacked([each[name] for each in results], name, known.get(name)) for name in names}
    else:
        spec = specs[0] if specs else None
        name = spec.name if spec else "output"
        found = {name: _stacked(results, name, spec)}
    wanted = dict.fromkeys(found, asked.binary) if asked.outputs is None else asked.outputs
    if not wanted:
        raise TypeError("a result without outputs")
    head = [_opening(model.name, model.version)]
    if asked.id is not None:
        head += b'"id":', orjson.dumps(asked.id), b","
    head.append(b'"outputs":[')
    parts: list[bytes | memoryview] = []
    for name, binary in wanted.items():
        tensor = found.get(name)
        if tensor is None:
            raise BadCall(f"the model has no output '{name}', but {', '.join(found)}")
        head.append(_described(name, tensor.dtype, tensor.shape, binary))
        if not binary:
            data = _text(tensor, name) if tensor.dtype.hasobject else tensor.ravel()
            head += orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY), b"}"
        else:
            part = to_bytes(tensor)
            parts.append(part)
            if tensor.dtype.hasobject:
                head.append(b"%d}}" % len(part))
        head.append(b",")
    head[-1] = b"]}"
    header = b"".join(head)
    if not parts:
        return Reply(200, "application/json", header)
    return Reply(200, "application/octet-stream", b"".join([header, *parts]), len(header))


def _stacked(results: Any, name: str, spec: TensorSpec | None) -> Array:
    """Return the results as one tensor.

    Raises TypeError or ValueError, naming the output and, if possible, the element.
    """
    try:
        tensor = stacked(results, spec)
        if tensor.dtype.hasobject:
            elements(tensor)
        elif tensor.dtype not in NAMES:
            raise TypeError(f"{tensor.dtype} has no datatype in the protocol")
        return tensor
    except (TypeError, ValueError) as error:
        wrong = misfit(results, _element) or str(error)
        raise type(error)(f"output '{name}': {wrong}") from None


def _element(value: Any) -> None:
    if isinstance(value, str | bytes):
        return
    dtype = np.asarray(value).dtype
    if dtype not in NAMES or dtype.hasobject:
        raise TypeError


def _read(body: bytes | memoryview) -> tuple[RequestedOutputs, list[Given]]:
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadCall(f"the body is not JSON: {error}") from None
    if type(request) is not dict:
        raise BadCall("the request must be a JSON object")
    inputs = request.get("inputs")
    if type(inputs) is not list or not inputs:
        raise BadCall("inputs must be a list of tensors")
    read: list[Given] = []
    for given in inputs:
        if type(given) is not dict:
            raise BadCall("an input must be an object")
        name, datatype = given.get("name"), given.get("datatype")
        shape: Any = given.get("shape")
        if type(name) is not str:
            raise BadCall("an input needs a name")
        if type(datatype) is not str or datatype not in DTYPES:
            raise BadCall(f"input '{name}': datatype must be one of {', '.join(DTYPES)}")
        size = size_of(shape, name)
        if read and shape[0] != read[0][2][0]:
            raise BadCall(f"input '{name}': its first length is {shape[0]}, that of the first input {read[0][2][0]}")
        parameters = given.get("parameters")
        binary_bytes = None if parameters is None else _binary_bytes(parameters, name)
        if binary_bytes is not None and "data" in given:
            raise BadCall(f"input '{name}': has both data and binary data")
        read.append((name, datatype, shape, size, binary_bytes, given.get("data")))
    if len(read) > 1 and len({given[0] for given in read}) < len(read):
        raise BadCall("every input needs a name of its own")
    return _asked(request), read


_MAX_REREAD_BYTES = 1024
_reread = lru_cache(maxsize=64)(_read)


@lru_cache(maxsize=64)
def _opening(name: str, version: str) -> bytes:
    said = {"model_name": name} | ({"model_version": version} if version else {})
    return orjson.dumps(said)[:-1] + b","


@lru_cache(maxsize=256)
def _described(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], binary: bool) -> bytes:
    if dtype not in NAMES:
        raise TypeError(f"output '{name}': {dtype} has no datatype in the protocol")
    said = orjson.dumps({"name": name, "datatype": NAMES[dtype], "shape": shape})[:-1]
    if not binary:
        return said + b',"data":'
    said += b',"parameters":{"binary_data_size":'
    return said if dtype.hasobject else said + b"%d}}" % (math.prod(shape) * dtype.itemsize)


def _asked(request: dict[str, Any]) -> RequestedOutputs:
    id_ = request.get("id")
    if id_ is not None and type(id_) is not str:
        raise BadCall("id must be text")
    binary = False
    if "parameters" in request:
        binary = _flag(_object(request["parameters"], "the request"), "binary_data_output", False, "the request")
    given = request.get("outputs")
    if not given:
        if given is None or type(given) is list:
            return RequestedOutputs(id_, None, binary)
        raise BadCall("outputs must be a list")
    if type(given) is not list:
        raise BadCall("outputs must be a list")
    outputs: dict[str, bool] = {}
    for output in given:
        name = output.get("name") if type(output) is dict else None
        if type(name) is not str or name in outputs:
            raise BadCall("every output asked for needs a name of its own")
        where = f"output '{name}'"
        parameters = _object(output.get("parameters"), where)
        for extension in ("classification", "shared_memory_region"):
            if extension in parameters:
                raise BadCall(f"{where}: {extension} is not supported")
        outputs[name] = _flag(parameters, "binary_data", binary, where)
    return RequestedOutputs(id_, outputs, binary)


def _object(parameters: Any, where: str) -> dict[str, Any]:
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise BadCall(f"{where}: parameters must be an object")
    return parameters


def _flag(parameters: dict[str, Any], key: str, default: bool, where: str) -> bool:
    flag = parameters.get(key, default)
    if type(flag) is not bool:
        raise BadCall(f"{where}: {key} must be true or false")
    return flag


def _binary_bytes(parameters: Any, name: str) -> int | None:
    where = f"input '{name}'"
    parameters = _object(parameters, where)
    if "shared_memory_region" in parameters:
        raise BadCall(f"{where}: shared_memory_region is not supported")
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise BadCall(f"{where}: binary_data_size must be a number of bytes")
    return size


def _check(specs: Sequence[TensorSpec], inputs: list[Given]) -> None:
    if len(inputs) != len(specs):
        raise BadCall(f"the model has {len(specs)} inputs, the request {len(inputs)}")
    for name, datatype, shape, *_ in inputs:
        for spec in specs:
            if spec.name == name:
                break
        else:
            raise BadCall(f"the model has no input '{name}'; it has {', '.join(spec.name for spec in specs)}")
        if datatype != spec.datatype:
            raise BadCall(f"input '{name}': datatype is {datatype}, the model takes {spec.datatype}")
        if not spec.fits(shape[1:]):
            raise BadCall(f"input '{name}': shape is {shape}, the model takes {[-1, *spec.shape]}")


def _by_columns(tensors: dict[str, Array], count: int, columns: Sequence[str]) -> list[Any]:
    """Return the items from one tensor for each column, or from a single one with all columns in each row."""
    if len(tensors) == 1 and tensors.keys() != set(columns):
        (tensor,) = tensors.values()
        return [in_columns(row, columns) for row in tensor.reshape(count, -1)]
    for name, tensor in tensors.items():
        if tensor.size != count:
            raise BadCall(f"input '{name}': a column has one value an item, not shape {list(tensor.shape)}")
    flat = {name: tensor.ravel() for name, tensor in tensors.items()}
    return [in_columns({name: tensor[i] for name, tensor in flat.items()}, columns) for i in range(count)]


def _as_text(tensor: Array) -> Array:
    """Return the tensor with UTF-8 elements as `str`; others stay `bytes`."""
    text = np.empty_like(tensor)
    text.ravel()[:] = [_decoded(each) for each in tensor.ravel()]
    return text


def _decoded(each: bytes) -> str | bytes:
    try:
        return each.decode()
    except UnicodeDecodeError:
        return each


def _text(tensor: Array, name: str) -> list[str]:
    try:
        return [each.decode() for each in elements(tensor)]
    except UnicodeDecodeError:
        raise BadCall(f"output '{name}' holds bytes that are not text: ask for them with binary_data") from None
