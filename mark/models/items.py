"""Count the items of a call without decoding it, for a bouncer's batches. This module must not import numpy."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from mark.models.call import Call

# The count stops here: no batch has more, and a body of blank numbers can have millions of rows.
MOST_ITEMS = 100_000

_SHAPE = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,18})\s*[],]')
_ROW = re.compile(rb"\S[^\r\n]*")
# JSON is counted without parsing, which took seconds for 16 MB of small lists. Escapes are removed first.
_STRING = rb'"[^"]*+"'
_NESTED = rb'[\[{](?:[^][{}"]++|%b)*+[\]}]' % _STRING
for _ in range(15):  # levels; an item that is nested more deeply is not counted, and its call is refused
    _NESTED = rb'[\[{](?:[^][{}"]++|%b|%b)*+[\]}]' % (_STRING, _NESTED)
_MANY = re.compile(rb'\s*+\{\s*+"(?:instances|inputs)"\s*+:\s*+\[')
_ITEM = re.compile(rb'(?:[^][{}",]++|%b|%b)++,?+' % (_STRING, _NESTED))
_END = re.compile(rb"\s*+\]\s*+\}\s*+\Z")
# Limit on lists, objects and strings in a body, counted roughly; scanning this many takes about 0.1 s.
_MOST_PARTS = 1_000_000
# The header that numpy writes: magic, version, length, then a dictionary of these three keys.
NPY = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<v1>..)|[\x02\x03]\x00(?P<v2>....))"
    rb"\s*\{\s*'descr':\s*'(?P<descr>[^']{1,9})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    rb"\s*'shape':\s*\((?P<shape>[\d, ]{0,700})\),?\s*\}",
    re.DOTALL,
)


def items_in(call: Call) -> int:
    """Return the number of items, at least 1. A decoder finds the same number, or refuses the call.

    This searches the JSON once; SageMaker's `{"instances": [...]}` is scanned completely.
    """
    body = call.body
    found: re.Match[bytes] | None
    if call.protocol == "oip":
        found = _SHAPE.search(body, 0, len(body) if call.json_bytes is None else call.json_bytes)
        return max(1, int(found[1])) if found else 1
    match media_type(call.content_type):
        case "application/json":
            return _items_in_json(bytes(body))
        case "text/csv":
            return max(1, sum(1 for _ in islice(_ROW.finditer(body), MOST_ITEMS)))
        case "application/x-npy":
            found = NPY.match(body)
            return max([1, *npy_shape(found)[:1]]) if found else 1
    return 1


def _items_in_json(body: bytes) -> int:
    """Return the number of items, from 1 to `MOST_ITEMS`; 1 for text that is not JSON or nested too deeply."""
    begin = _MANY.match(body)
    if begin is None:
        return 1
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if body.count(b"[") + body.count(b"{") + body.count(b'"') > _MOST_PARTS:
        return MOST_ITEMS
    count, at = 0, begin.end()
    while found := _ITEM.match(body, at):
        count, at = count + 1, found.end()
        if count == MOST_ITEMS:
            return count
    return max(1, count) if _END.match(body, at) else 1


def many_in(value: Any) -> list[Any] | None:
    """Return the list in an object whose only key is `instances` or `inputs`; None if the value is one item."""
    if type(value) is dict and len(value) == 1:
        many = value.get("instances", value.get("inputs"))
        if type(many) is list:
            return many
    return None


def csv_lines(body: bytes | memoryview) -> list[bytes]:
    """Return the rows of a CSV body, without blank ones."""
    return _ROW.findall(body)


def npy_shape(header: re.Match[bytes]) -> list[int]:
    """Return the shape in a header that `NPY` matched."""
    return [int(length) for length in re.findall(rb"\d+", header["shape"])]


def media_type(content_type: str) -> str:
    """Return the media type: `Application/JSON; charset=utf-8` -> `application/json`.

    An empty type and curl's default one count as JSON.
    """
    bare = content_type.partition(";")[0].strip().lower()
    return "application/json" if bare in ("", "application/x-www-form-urlencoded") else bare
