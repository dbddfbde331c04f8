"""A sample request of one item, from the model's declarations or from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from mark.domain.cells import read_bytes
from mark.domain.errors import BadInput
from mark.models.call import Call
from mark.models.items import items_in
from mark.models.model import Model
from mark.models.tensors import DTYPES, NAMES, Array, to_bytes

_TYPES = {".csv": "text/csv", ".txt": "text/plain", ".npy": "application/x-npy"}


def sample_call(model: Model) -> Call | None:
    """Return the first item of `warmup`, else zeros of the declared `inputs`, as a request; None without either.

    Tensors go in Open Inference's binary form; other items as SageMaker's JSON, text or bytes.
    """
    specs = model.inputs
    if not len(model.warmup):
        if not specs:
            return None
        # Zeros of any datatype are zero bytes; empty BYTES are lengths of 0, four bytes each.
        zeros: list[Tensor] = []
        for spec in specs:
            shape = [max(length, 1) for length in spec.shape]
            width = 4 if spec.datatype == "BYTES" else DTYPES[spec.datatype].itemsize
            zeros.append((spec.name, spec.datatype, shape, bytes(math.prod(shape) * width)))
        return _binary(zeros)
    item = model.warmup[0]
    if specs:
        rows = item if isinstance(item, Mapping) and len(specs) > 1 else {specs[0].name: item}
        return _binary([_tensor(spec.name, np.asarray(rows[spec.name], dtype=DTYPES[spec.datatype])) for spec in specs])
    if isinstance(item, bytes):
        return Call("sagemaker", "application/octet-stream", item)
    if isinstance(item, str):
        return Call("sagemaker", "text/plain", item.encode())
    if hasattr(item, "__array__"):
        tensor = np.asarray(item)
        if tensor.dtype in NAMES:
            return _binary([_tensor("input", tensor)])
    body = orjson.dumps({"instances": [item]}, default=lambda one: one.tolist(), option=orjson.OPT_SERIALIZE_NUMPY)
    return Call("sagemaker", "application/json", body)


def call_from_file(file: Path) -> Call:
    """Return the request body in a file: Open Inference JSON, or JSON, CSV, npy, text or bytes for /invocations.

    Its type follows from the file's name and content. Raises BadInput if it cannot be read or does not hold one item.
    """
    body = read_bytes(file)
    content_type = _TYPES.get(file.suffix.lower(), "")
    protocol = "sagemaker"
    if not content_type:
        try:
            content = orjson.loads(body)
            content_type = "application/json"
        except orjson.JSONDecodeError as error:
            if file.suffix.lower() == ".json":
                raise BadInput(f"is no JSON: {error}", str(file)) from None
            content, content_type = None, "application/octet-stream"
        inputs = content.get("inputs") if isinstance(content, dict) else None
        if isinstance(inputs, list) and inputs and all(isinstance(one, dict) and "datatype" in one for one in inputs):
            protocol = "oip"
    call = Call(protocol, content_type, body)
    if (items := items_in(call)) != 1:
        raise BadInput("must hold one item, which is repeated to the size of a batch", str(file), items)
    return call


# name, datatype, shape of an item, data
Tensor = tuple[str, str, list[int], bytes]


def _tensor(name: str, tensor: Array) -> Tensor:
    return name, NAMES[tensor.dtype], list(tensor.shape), bytes(to_bytes(tensor))


def _binary(tensors: Sequence[Tensor]) -> Call:
    head = orjson.dumps(
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": datatype,
                    "shape": [1, *shape],
                    "parameters": {"binary_data_size": len(data)},
                }
                for name, datatype, shape, data in tensors
            ],
            "parameters": {"binary_data_output": True},
        }
    )
    return Call("oip", "application/octet-stream", b"".join([head, *(data for *_, data in tensors)]), len(head))
