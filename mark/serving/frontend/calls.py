"""The calls in requests of the HTTP listener, read from their headers and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import orjson

from mark.models.call import BY_VALUE, RESULTS, Call
from mark.models.compression import Refused, inflated
from mark.serving.frontend.connection import Exchange

_LONGEST_NUMBER = 18  # digits, more than the length of any body has
_LONGEST_DEADLINE_S = 3600.0


def deadline_in(headers: Mapping[bytes, bytes], arrived_s: float, rt_max_s: float) -> float:
    """Return until when the client waits: as long as `mark-deadline-ms` says, or RT_max without it. Raises Refused."""
    left_ms = headers.get(b"mark-deadline-ms")
    if left_ms is None:
        return arrived_s + rt_max_s
    try:
        left_s = float(left_ms) / 1e3
    except ValueError:
        left_s = -1.0
    if not left_s >= 0.0:
        raise Refused(400, "mark-deadline-ms must be a number of milliseconds")
    return arrived_s + min(left_s, _LONGEST_DEADLINE_S)


def oip_call(exchange: Exchange, most_bytes: int) -> Call:
    """Return the call of a request in the Open Inference Protocol.

    Raises Refused. A compressed body may grow to `most_bytes`.
    """
    headers, body = exchange.headers, body_of(exchange, most_bytes)
    json_bytes = None
    length = headers.get(b"inference-header-content-length")
    if length is not None:
        if not length.isdigit() or len(length) > _LONGEST_NUMBER or int(length) > len(body):
            raise Refused(400, "inference-header-content-length is not within the body")
        json_bytes = int(length)
    return Call("oip", _text(headers.get(b"content-type", b"")), body, json_bytes)


def stage_call(exchange: Exchange, most_bytes: int) -> Call:
    """Return the call of a stage, from its conductor (`mark.models.results.call_with`) or as for any model.

    Raises Refused.
    """
    call = oip_call(exchange, most_bytes)
    if call.content_type != RESULTS:
        return call
    if call.json_bytes is None:
        raise Refused(400, "inference-header-content-length is missing")
    return Call(BY_VALUE, RESULTS, call.body, call.json_bytes, RESULTS)


def sagemaker_call(exchange: Exchange, most_bytes: int) -> Call:
    """Return the call of a request by SageMaker's contract.

    Raises Refused. A compressed body may grow to `most_bytes`.
    """
    headers, body = exchange.headers, body_of(exchange, most_bytes)
    accept = _text(headers.get(b"accept", b""))
    if accept == RESULTS:
        raise Refused(406, "this form of an answer is not for clients")
    return Call("sagemaker", _text(headers.get(b"content-type", b"")), body, accept=accept)


def only_ready(exchange: Exchange, most_bytes: int) -> bool:
    """Return whether a request for the repository's index asks for ready models only. Raises Refused."""
    body = body_of(exchange, most_bytes)
    try:
        said = orjson.loads(body) if body else {}
    except ValueError:
        raise Refused(400, "the body is not JSON") from None
    ready = said.get("ready", False) if isinstance(said, dict) else None
    if not isinstance(ready, bool):
        raise Refused(400, "the body is an object, and 'ready' in it true or false")
    return ready


def body_of(exchange: Exchange, most_bytes: int) -> bytes:
    """Return the body, decompressed if it was compressed. Raises Refused."""
    coding = exchange.headers.get(b"content-encoding")
    return exchange.body if coding is None else inflated(exchange.body, coding, most_bytes)


@lru_cache(maxsize=64)
def _text(value: bytes) -> str:
    """Return the text. It is nearly always one of a few, and cached so that equal calls of a batch share one object."""
    return value.decode("latin-1")
