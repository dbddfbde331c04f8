"""What a request of the HTTP listener asks for: which headers say what of its body."""

from __future__ import annotations

from functools import lru_cache

import orjson

from mark.models.call import BY_VALUE, RESULTS, Call
from mark.models.compression import Refused, inflated
from mark.serving.frontend.connection import Exchange

_LONGEST_NUMBER = 18  # digits, more than any body has bytes


def oip_call(exchange: Exchange, most_bytes: int) -> Call:
    """By the Open Inference Protocol. Raises Refused; a compressed body may inflate to `most_bytes`."""
    headers, body = exchange.headers, body_of(exchange, most_bytes)
    json_bytes = None
    length = headers.get(b"inference-header-content-length")
    if length is not None:
        if not length.isdigit() or len(length) > _LONGEST_NUMBER or int(length) > len(body):
            raise Refused(400, "inference-header-content-length is not within the body")
        json_bytes = int(length)
    return Call("oip", _text(headers.get(b"content-type", b"")), body, json_bytes)


def stage_call(exchange: Exchange, most_bytes: int) -> Call:
    """Of a stage: by its conductor (`mark.models.results.call_with`), or as of any model. Raises Refused."""
    call = oip_call(exchange, most_bytes)
    if call.content_type != RESULTS:
        return call
    if call.json_bytes is None:
        raise Refused(400, "inference-header-content-length is missing")
    return Call(BY_VALUE, RESULTS, call.body, call.json_bytes, RESULTS)


def sagemaker_call(exchange: Exchange, most_bytes: int) -> Call:
    """By SageMaker's contract. Raises Refused; a compressed body may inflate to `most_bytes`."""
    headers, body = exchange.headers, body_of(exchange, most_bytes)
    accept = _text(headers.get(b"accept", b""))
    if accept == RESULTS:
        raise Refused(406, "this form of an answer is not for clients")
    return Call("sagemaker", _text(headers.get(b"content-type", b"")), body, accept=accept)


def only_ready(exchange: Exchange, most_bytes: int) -> bool:
    """Does a request for the repository's index ask for ready models only? Raises Refused."""
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
    """The body as it was before it was compressed, if it was. Raises Refused."""
    coding = exchange.headers.get(b"content-encoding")
    return exchange.body if coding is None else inflated(exchange.body, coding, most_bytes)


@lru_cache(maxsize=64)
def _text(value: bytes) -> str:
    """Nearly always one of a few; one text for all means that a batch has one kind of calls."""
    return value.decode("latin-1")
