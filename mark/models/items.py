"""How many items a call holds, without decoding it: what a bouncer counts in a batch. No numpy here."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from mark.models.call import Call

# Rows beyond these are not counted: no batch has more, and a body of blank numbers has millions.
MOST_ITEMS = 100_000

_SHAPE = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,18})\s*[],]')
_ROW = re.compile(rb"\S[^\r\n]*")
# JSON is counted without being parsed, which took seconds for 16 MB of small lists. Escapes are taken out before.
_STRING = rb'"[^"]*+"'
_NESTED = rb'[\[{](?:[^][{}"]++|%b)*+[\]}]' % _STRING
for _ in range(15):  # levels; an item that is nested more deeply is not counted, and its call is refused
    _NESTED = rb'[\[{](?:[^][{}"]++|%b|%b)*+[\]}]' % (_STRING, _NESTED)
_MANY = re.compile(rb'\s*+\{\s*+"(?:instances|inputs)"\s*+:\s*+\[')
_ITEM = re.compile(rb'(?:[^][{}",]++|%b|%b)++,?+' % (_STRING, _NESTED))
_END = re.compile(rb"\s*+\]\s*+\}\s*+\Z")
# Lists, objects and strings in a body, more or less; a scan of that many takes about 0.1 s.
_MOST_PARTS = 1_000_000
# As numpy writes it: magic, version, length, then a dictionary of these three.
NPY = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<v1>..)|[\x02\x03]\x00(?P<v2>....))"
    rb"\s*\{\s*'descr':\s*'(?P<descr>[^']{1,9})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    rb"\s*'shape':\s*\((?P<shape>[\d, ]{0,700})\),?\s*\}",
    re.DOTALL,
)


def items_in(call: Call) -> int:
    """At least 1, whatever the body holds; a decoder finds as many, or refuses the call.

    Costs a search in the JSON, for SageMaker's `{"instances": [...]}` a scan.
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
    """At least 1, at most `MOST_ITEMS`; what is no JSON, or too deep, has 1."""
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
