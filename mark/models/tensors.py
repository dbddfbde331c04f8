"""Convert tensors between the wire and numpy: every datatype, as JSON and as bytes."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mark.models.model import Model, TensorSpec

Array = NDArray[Any]
_MAX_TEXT = 300


class BadCall(Exception):
    """The caller's error; the reply has this status, and this text, always in one line."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text, self.status = " ".join(text.split())[:_MAX_TEXT], status


DTYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "FP16": np.dtype("<f2"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "BOOL": np.dtype("?"),
    "BYTES": np.dtype("O"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

# array.array is strict where numpy is lenient: it refuses text and null for a number and a fraction for an integer, and
# it never allocates more than the list that it is given.
_CODES = {
    "FP32": "f",
    "FP64": "d",
    "FP16": "d",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
}
MAX_DIMENSIONS = 32
_LENGTH = struct.Struct("<I")
LARGEST = 2**59  # elements of 8 bytes: numpy cannot count more, even if a length of 0 leaves no element


def size_of(shape: Any, name: str) -> int:
    """Return the number of elements of a tensor of this shape.

    Raises BadCall if it is not a shape, or holds no item.
    """
    if type(shape) is not list or not 0 < len(shape) <= MAX_DIMENSIONS:
        raise BadCall(f"input '{name}': shape must be a list of 1 to {MAX_DIMENSIONS} lengths, the batch's first")
    size = without_zeros = 1
    for length in shape:
        if type(length) is not int or length < 0:
            raise BadCall(f"input '{name}': every length in shape must be a whole number, 0 or more")
        size *= length
        without_zeros *= length or 1
    if without_zeros > LARGEST:
        raise BadCall(f"input '{name}': no tensor has so large a shape")
    if shape[0] == 0:
        raise BadCall(f"input '{name}': shape holds no item")
    return size


def from_json(data: Any, datatype: str, shape: Sequence[int], size: int, name: str) -> Array:
    """Return the tensor in JSON data, flat or nested by its shape; `size` is the product of `shape`."""
    if type(data) is not list:
        raise BadCall(f"input '{name}': data must be a list")
    flat = data
    if len(shape) > 1 and data and type(data[0]) is list:
        flat = _flatten(data, shape, name)
    if len(flat) != size:
        raise BadCall(f"input '{name}': data holds {len(flat)} elements, shape {size}")
    code = _CODES.get(datatype)
    if code is None:
        return _from_other_json(flat, datatype, name).reshape(shape)
    try:
        numbers = array(code, flat)
    except (TypeError, OverflowError) as error:
        raise BadCall(f"input '{name}': data does not fit {datatype}: {error}{_misfit(code, flat)}") from None
    if size == 0 or datatype == "FP16":
        with np.errstate(over="ignore"):
            tensor = np.array(numbers, dtype=DTYPES[datatype]).reshape(shape)
    else:
        tensor = np.ndarray(shape, DTYPES[datatype], numbers)  # half the time of frombuffer and reshape
    if datatype in ("FP32", "FP16"):
        _check_range(flat, tensor, datatype, name)
    return tensor


def from_bytes(data: memoryview, datatype: str, shape: Sequence[int], size: int, name: str) -> Array:
    """Return the tensor in these little-endian bytes: a view, except for BYTES. `size` as in from_json."""
    dtype = DTYPES[datatype]
    if datatype == "BYTES":
        return _from_lengths(data, size, name).reshape(shape)
    if len(data) != size * dtype.itemsize:
        raise BadCall(f"input '{name}': {len(data)} bytes of binary data, shape asks for {size * dtype.itemsize}")
    if datatype == "BOOL" and size and np.frombuffer(data, dtype=np.uint8).max() > 1:
        raise BadCall(f"input '{name}': a BOOL is a byte of 0 or 1")
    return np.ndarray(shape, dtype, data)


def fitted(value: Any, spec: TensorSpec) -> Any:
    """Return an item that fits its spec, from a JSON value, text, bytes or an array. Raises BadCall."""
    if isinstance(value, np.ndarray):
        if not spec.fits(value.shape):
            raise BadCall(f"input '{spec.name}': an item is of shape {list(value.shape)}, not {list(spec.shape)}")
        if value.dtype.kind in "SU" or spec.datatype == "BYTES":
            value = value.tolist()
        elif not np.can_cast(value.dtype, DTYPES[spec.datatype], "same_kind"):
            raise BadCall(f"input '{spec.name}': {value.dtype} does not fit {spec.datatype}")
        else:
            with np.errstate(over="ignore"):
                tensor = value.astype(DTYPES[spec.datatype], copy=False)
            if value.dtype.kind == "f" and tensor.dtype.itemsize < value.dtype.itemsize:
                _check_range(value.ravel(), tensor, spec.datatype, spec.name)
            return tensor
    if isinstance(value, bytes | memoryview):
        if spec.datatype != "BYTES" or spec.shape:
            raise BadCall(f"input '{spec.name}': takes {spec.datatype} of shape {list(spec.shape)}, not bytes")
        return value
    shape, inner = [1], value
    for _ in spec.shape:
        if type(inner) is not list:
            raise BadCall(f"input '{spec.name}': an item is a list of shape {list(spec.shape)}")
        shape.append(len(inner))
        inner = inner[0] if inner else []
    if not spec.fits(shape[1:]):
        shape += [len(inner)] if type(inner) is list and inner else []
        several = "; send several items as `instances`" if spec.fits(shape[2:]) else ""
        raise BadCall(f"input '{spec.name}': an item is of shape {shape[1:]}, not {list(spec.shape)}{several}")
    return from_json([value], spec.datatype, shape, size_of(shape, spec.name), spec.name)[0]


def _check_range(values: Any, tensor: Array, datatype: str, name: str) -> None:
    """Raise BadCall if a number became infinite in the tensor."""
    if np.isinf(tensor).any():
        for at in np.flatnonzero(np.isinf(tensor)):
            if math.isfinite(values[at]):
                raise BadCall(f"input '{name}': data does not fit {datatype}: {float(values[at])!r} at {at}")


def _misfit(code: str, flat: list[Any]) -> str:
    """Return a text about the first element that does not fit and its place."""
    for at, each in enumerate(flat):
        try:
            array(code, [each])
        except (TypeError, OverflowError):
            return f": {_shown(each)} at {at}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def in_columns(item: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return an item of a model with columns as plain values by name, in their order. Raises BadCall for other columns.

    The form does not depend on the request: numbers are Python's, for any datatype, and missing ones are
    NaN.
    """
    if isinstance(item, np.ndarray):
        item = item.tolist()
    if isinstance(item, dict):
        if item.keys() != set(columns):
            lacks = [name for name in columns if name not in item]
            more = [str(name) for name in item if name not in columns]
            wrong = [f"lacks {', '.join(lacks)}"] * bool(lacks) + [f"has unknown {', '.join(more)}"] * bool(more)
            raise BadCall(f"an item {' and '.join(wrong)}: its columns are {', '.join(columns)}")
        values = [item[name] for name in columns]
    elif isinstance(item, list) and len(item) == len(columns):
        values = item
    else:
        raise BadCall(f"an item must be an object of {', '.join(columns)}, or a list of these {len(columns)} values")
    found = {}
    for name, value in zip(columns, values, strict=True):
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            value = math.nan
        elif not isinstance(value, bool | int | float | str):
            raise BadCall(f"column '{name}' must be a number or text, not {_shown(value)}")
        found[name] = value
    return found


def fitted_item(item: Any, specs: Sequence[TensorSpec]) -> Any:
    """Return an item that fits a model with these inputs, by name if there are several. Raises BadCall."""
    if not specs:
        return item
    if len(specs) == 1:
        return fitted(item, specs[0])
    if type(item) is not dict or item.keys() != {spec.name for spec in specs}:
        raise BadCall(f"an item must be an object of {', '.join(spec.name for spec in specs)}")
    return {spec.name: fitted(item[spec.name], spec) for spec in specs}


def fitted_items(items: list[Any], model: Model) -> list[Any]:
    """Return the items of a call as the model takes them. Raises BadCall."""
    if model.inputs:
        return [fitted_item(item, model.inputs) for item in items]
    return [in_columns(item, model.columns) for item in items] if model.columns else items


def stacked(results: Any, spec: TensorSpec | None) -> Array:
    """Return results as one tensor with a row for each.

    Raises TypeError or ValueError for other results, a model's error.
    """
    if isinstance(results, np.ndarray):
        tensor = results
    else:
        first = results[0]
        if type(first) is np.ndarray:
            tensor = first[None] if len(results) == 1 else np.stack(results)
        elif isinstance(first, str | bytes):
            tensor = np.empty(len(results), dtype=object)
            tensor[:] = results
        elif isinstance(first, np.generic):
            tensor = np.asarray(results)
        elif hasattr(first, "__array__"):  # such as torch's tensors
            tensor = np.stack([np.asarray(each) for each in results])
        else:
            tensor = _from_values(results)
    if spec is not None and tensor.dtype != (wanted := DTYPES[spec.datatype]):
        tensor = tensor.astype(wanted, casting="same_kind")
    if tensor.dtype not in NAMES:
        if tensor.dtype.kind in "SU":
            return tensor.astype(object)
        return tensor.astype(tensor.dtype.newbyteorder("="), copy=False)
    return tensor


def elements(tensor: Array) -> list[bytes]:
    """Return the elements of a BYTES tensor, with text as UTF-8."""
    return [each if isinstance(each, bytes) else _encoded(each) for each in tensor.ravel()]


def to_bytes(tensor: Array) -> bytes | memoryview:
    """Return the bytes that `from_bytes` reads."""
    if tensor.dtype != object:
        return np.ascontiguousarray(tensor).data if tensor.size else b""
    return b"".join([part for each in elements(tensor) for part in (_LENGTH.pack(len(each)), each)])


def misfit(value: Any, fits: Callable[[Any], object], where: str = "results") -> str:
    """Return place, type and value of the part of a model's results that cannot be encoded; "" if all can."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        value = value.tolist()
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                return f"{where} has a key that is no text: {_shown(key)}"
            if found := misfit(each, fits, f"{where}[{key!r}]"):
                return found
    elif isinstance(value, list | tuple):
        for at, each in enumerate(value):
            if found := misfit(each, fits, f"{where}[{at}]"):
                return found
    else:
        try:
            fits(value)
        except (TypeError, ValueError, BadCall):
            return f"{where} is {_shown(value)}"
    return ""


def _flatten(data: list[Any], shape: Sequence[int], name: str) -> list[Any]:
    def fail() -> NoReturn:
        raise BadCall(f"input '{name}': data is not nested as shape {list(shape)}")

    if len(data) != shape[0]:
        fail()
    level = data
    for length in shape[1:]:
        if len(level) == 1:
            level = level[0]
            if type(level) is not list or len(level) != length:
                fail()
        elif level:
            if set(map(type, level)) != {list} or set(map(len, level)) != {length}:
                fail()
            level = list(chain.from_iterable(level))
    return level


def _from_other_json(flat: list[Any], datatype: str, name: str) -> Array:
    kinds = set(map(type, flat))
    if datatype == "BOOL":
        if kinds <= {bool}:
            return np.array(flat, dtype=bool)
        raise BadCall(f"input '{name}': data of a BOOL must be true or false")
    if not kinds <= {str}:
        raise BadCall(f"input '{name}': data of BYTES must be text; other bytes need the binary form")
    tensor = np.empty(len(flat), dtype=object)
    tensor[:] = [each.encode() for each in flat]
    return tensor


def _from_lengths(data: memoryview, size: int, name: str) -> Array:
    if len(data) < 4 * size:  # before anything of this size is allocated
        raise BadCall(f"input '{name}': {len(data)} bytes of binary data cannot hold {size} elements")
    found, at, end = [], 0, len(data)
    for _ in range(size):
        start = at + 4
        if start > end:
            break
        at = start + _LENGTH.unpack_from(data, at)[0]
        if at > end:
            break
        found.append(bytes(data[start:at]))
    if len(found) != size or at != end:
        raise BadCall(f"input '{name}': binary data of BYTES does not end where its lengths say")
    tensor = np.empty(size, dtype=object)
    tensor[:] = found
    return tensor


def _from_values(values: Any) -> Array:
    # As objects first, because numpy would turn numbers among text into text, each as wide as the longest.
    objects = np.array(values, dtype=object)
    return objects if {str, bytes} & set(map(type, objects.flat)) else np.asarray(values)


def _encoded(each: Any) -> bytes:
    if isinstance(each, str):
        return each.encode()
    raise TypeError(f"an output of BYTES holds a {type(each).__name__}")
