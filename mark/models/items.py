"""How many items a call holds, before anybody decodes it: what a bouncer counts in a batch. No numpy here."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from mark.models.call import Call

# Rows beyond these are not counted: no batch has so many, and a body of blank numbers has millions.
MOST_ITEMS = 100_000

_SHAPE = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,18})\s*[],]')
_ROW = re.compile(rb"\S[^\r\n]*")
_MANY = re.compile(rb'\s*\{\s*"(?:instances|inputs)"\s*:')
# As numpy writes it: magic, version, length, then a dictionary of these three.
NPY = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<v1>..)|[\x02\x03]\x00(?P<v2>....))"
    rb"\s*\{\s*'descr':\s*'(?P<descr>[^']{1,9})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    rb"\s*'shape':\s*\((?P<shape>[\d, ]{0,700})\),?\s*\}",
    re.DOTALL,
)


def items_in(call: Call) -> int:
    """At least 1, whatever the body holds; a decoder finds as many, or refuses the call.

    Costs a search in the JSON; SageMaker's `{"instances": [...]}` is parsed.
    """
    body = call.body
    found: re.Match[bytes] | None
    if call.protocol == "oip":
        found = _SHAPE.search(body, 0, len(body) if call.json_bytes is None else call.json_bytes)
        return max(1, int(found[1])) if found else 1
    match media_type(call.content_type):
        case "application/json":
            if _MANY.match(body) is None:
                return 1
            import orjson

            try:
                many = many_in(orjson.loads(body))
            except orjson.JSONDecodeError:
                return 1
            return 1 if many is None else max(1, len(many))
        case "text/csv":
            return max(1, sum(1 for _ in islice(_ROW.finditer(body), MOST_ITEMS)))
        case "application/x-npy":
            found = NPY.match(body)
            return max([1, *npy_shape(found)[:1]]) if found else 1
    return 1


def many_in(value: Any) -> list[Any] | None:
    """The list in an object whose one key is `instances` or `inputs`; None: the value is one item."""
    if type(value) is dict and len(value) == 1:
        many = value.get("instances", value.get("inputs"))
        if type(many) is list:
            return many
    return None


def csv_lines(body: bytes | memoryview) -> list[bytes]:
    """The rows of a CSV body; blank ones do not count."""
    return _ROW.findall(body)


def npy_shape(header: re.Match[bytes]) -> list[int]:
    """The shape in what `NPY` matched."""
    return [int(length) for length in re.findall(rb"\d+", header["shape"])]


def media_type(content_type: str) -> str:
    """`Application/JSON; charset=utf-8` -> `application/json`; nothing, and what curl says by itself, is JSON too."""
    bare = content_type.partition(";")[0].strip().lower()
    return "application/json" if bare in ("", "application/x-www-form-urlencoded") else bare
