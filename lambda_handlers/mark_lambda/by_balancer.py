"""Requests that a load balancer sends to the function itself while no instance of the service is ready.

An Application Load Balancer invokes a function with the HTTP request as an event and makes the HTTP response from the
returned value; neither may be larger than 1 MB. In front of a pipeline's stages it passes on the calls of conductors in
the same way. The function answers as a bouncer would. No bouncer has checked the caller's key, so the function checks
it, with the same parameter of key digests that bouncers read. Without that parameter no client may ask. Signed tokens
are not supported here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from mark.models.answering import answer, refusal
from mark.models.call import BY_VALUE, RESULTS, Call, Reply
from mark.models.compression import Refused, inflated
from mark.models.metadata import metadata, server_metadata
from mark.models.model import Model

_log = logging.getLogger("mark.function")

KEPT_S = 60.0  # keys are read again after this time
_MOST_BYTES = 16 << 20  # of a decompressed body
_MOST_ANSWER_BYTES = 1_000_000
_AGAIN_S = 5.0  # time until the next attempt after the keys could not be read
_JSON = "application/json"
_OPEN = frozenset(("/ping", "/v2/health/live", "/v2/health/ready"))  # served without a key, as by a bouncer
_MAY_INFER = frozenset(("infer", "admin"))
_LONGEST_ID = 128
_REFUSALS = {
    401: ("a key or a token is needed", {"www-authenticate": "Bearer"}),
    403: ("this key is for something else", {}),
    503: ("the keys are not known now", {"retry-after": "5"}),
}


def is_of_balancer(event: Mapping[str, Any]) -> bool:
    """Return whether the event holds a load balancer's request."""
    context = event.get("requestContext")
    return isinstance(context, Mapping) and "elb" in context


class _Known(NamedTuple):
    may_infer: bool
    until_s: float


class KeyDigests:
    """The keys that may infer, from the text of a key file that `read` returns. The text is read again after a minute.

    If it cannot be read, the keys that were read last remain valid.
    """

    def __init__(self, read: Callable[[], str], clock: Callable[[], float] = time.time) -> None:
        self._read, self._clock = read, clock
        self._known: dict[str, _Known] | None = None  # by digest; None: not read yet
        self._again_s = 0.0

    def refuses(self, headers: Mapping[str, str]) -> int | None:
        """Return the status of the refusal if the caller may not infer: 401, 403, or 503 while no keys are known."""
        now_s = self._clock()
        if now_s >= self._again_s:
            self._again_s = now_s + KEPT_S
            try:
                self._known = dict(_lines(self._read()))
            except Exception:  # AWS's library failed, or the text is malformed
                _log.exception("the keys cannot be read")
                self._again_s = now_s + _AGAIN_S
        if self._known is None:
            return 503
        shown = headers.get("x-api-key")
        if shown is None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                return 401
        known = self._known.get(_digest(shown.strip()))
        if known is None or known.until_s <= now_s:
            return 401
        return None if known.may_infer else 403


class BalancerRequests:
    """Answers a load balancer's events with `model`. Without `keys` every caller is refused."""

    def __init__(self, model: Model, keys: KeyDigests | None) -> None:
        self._model, self._keys = model, keys

    def __call__(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the request in an event. Raises ValueError if the event holds none."""
        try:
            headers = {name.lower(): str(value) for name, value in (event.get("headers") or {}).items()}
            method, path = str(event["httpMethod"]), unquote(str(event["path"])).rstrip("/")
            body = event.get("body") or ""
            read = b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a request of a balancer: {type(error).__name__} {error}") from None
        said = (
            {"x-request-id": headers["x-request-id"]} if 0 < len(headers.get("x-request-id", "")) <= _LONGEST_ID else {}
        )
        refused = None if path in _OPEN else 401 if self._keys is None else self._keys.refuses(headers)
        if refused is not None:
            text, more = _REFUSALS[refused]
            return _response(refusal(refused, text), said | more)
        reply, more = self._answered(method, path, headers, read)
        response = _response(reply, said | more, bodiless=method == "HEAD")
        if len(json.dumps(response)) > _MOST_ANSWER_BYTES:
            text = "the answer is too large for a function, and no instance is ready"
            return _response(refusal(503, text), said | {"retry-after": "5"})
        return response

    def _answered(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Reply, dict[str, str]]:
        model = self._model
        here, version = f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"
        pages: dict[str, Callable[[], object]] = {
            "/v2": server_metadata,
            "/v2/health/live": lambda: {"live": True},
            "/v2/health/ready": lambda: {"ready": True},
        }
        for base in (here, version):
            pages[base] = lambda: metadata(model, [model.version])
            pages[f"{base}/ready"] = lambda: {"name": model.name, "ready": True}
        if path in (f"{here}/infer", f"{version}/infer", "/invocations"):
            if method != "POST":
                return refusal(405, "only POST here"), {"allow": "POST"}
            try:
                call = _call(path, headers, body)
            except Refused as error:
                lines = (line.partition(b": ") for line in error.headers.splitlines())
                return refusal(error.status, str(error)), {name.decode(): value.decode() for name, _, value in lines}
            (reply,) = answer(model, [call])
            return reply, {}
        if path in pages or path == "/ping":
            if method not in ("GET", "HEAD"):
                return refusal(405, "only GET here"), {"allow": "GET"}
            return Reply(200, _JSON, orjson.dumps(pages[path]()) if path in pages else b""), {}
        if path.startswith(f"{here}/versions/"):
            return refusal(503, f"no instance is ready, and the function has version {model.version}"), {
                "retry-after": "5"
            }
        return refusal(404, f"nothing at {path[:200]}; the model here is {model.name}"), {}


def read_parameter(name: str) -> str:
    """Return a parameter of Systems Manager, read with the function's rights. Raises the errors of AWS's library."""
    import boto3  # type: ignore[import-untyped]  # here: half a second, only where a balancer calls
    from botocore.config import Config  # type: ignore[import-untyped]

    quick = Config(connect_timeout=2.0, read_timeout=2.0, retries={"mode": "standard", "total_max_attempts": 3})
    found = boto3.client("ssm", config=quick).get_parameter(Name=name, WithDecryption=True)
    return str(found["Parameter"]["Value"])


def _call(path: str, headers: Mapping[str, str], body: bytes) -> Call:
    """Return the call in a request. Raises Refused if it is malformed."""
    coding = headers.get("content-encoding")
    if coding is not None:
        body = inflated(body, coding.encode("latin-1", "replace"), _MOST_BYTES)
    kind = headers.get("content-type", "")
    if path == "/invocations":
        accept = headers.get("accept", "")
        if accept == RESULTS:
            raise Refused(406, "this form of an answer is not for clients")
        return Call("sagemaker", kind, body, accept=accept)
    length = headers.get("inference-header-content-length")
    if length is None:
        return Call("oip", kind, body)
    if not (length.isascii() and length.isdigit()) or len(length) > 18 or int(length) > len(body):
        raise Refused(400, "inference-header-content-length is not within the body")
    if kind == RESULTS:  # a conductor calls the function of a stage
        return Call(BY_VALUE, RESULTS, body, int(length), RESULTS)
    return Call("oip", kind, body, int(length))


def _response(reply: Reply, headers: Mapping[str, str], *, bodiless: bool = False) -> dict[str, Any]:
    # Refusals have the header too: a check whether an instance answers must not mistake them for an instance's.
    said = {"content-type": reply.content_type, "mark-answered-by": "function", **headers}
    body, text = bytes(reply.body) if not bodiless else b"", reply.json_bytes is None
    if not text:
        said["inference-header-content-length"] = str(reply.json_bytes)
    try:
        shown = body.decode("ascii") if text else ""
    except UnicodeDecodeError:
        text = False
    return {
        "statusCode": reply.status,
        "headers": said,
        "body": shown if text else b64encode(body).decode("ascii"),
        "isBase64Encoded": not text,
    }


def _lines(text: str) -> Iterator[tuple[str, _Known]]:
    """Yield the digest and the rights of each key. Raises ValueError for a line without a name, key and scopes."""
    for line in (line.strip() for line in text.splitlines()):
        if line and not line.startswith("#"):
            _, key, scopes, *until = line.split(":")
            digest = key.removeprefix("sha256-") if key.startswith("sha256-") else _digest(key)
            may_infer = not _MAY_INFER.isdisjoint(scopes.split(","))
            yield digest, _Known(may_infer, float(until[0]) if until else math.inf)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
