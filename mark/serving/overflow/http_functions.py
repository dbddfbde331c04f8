"""Another server of the same model behind the port `FunctionClient`, in either protocol.

For sites without Lambda: a large machine of your own, another site's gateway, or a test.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from mark.domain.errors import BadInput
from mark.models.call import BY_VALUE, Call, Reply
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Spent, Throttled, UnderWay, Unsuitable
from mark.serving.overflow.http_client import (
    Address,
    CallFailure,
    ClientConnection,
    Failure,
    HttpAnswer,
    Reach,
    Upstream,
)

# A model answers a call with these statuses. All others come from the path to it: keys, routes, proxies, a full queue.
_OF_THE_MODEL = {200, 400, 415, 422, 500}
# With these a server refuses one call: its accept header, its size, its headers. It may answer others.
_OF_THE_CALL = {406, 411, 413, 414, 417, 431}
_AFTER = re.compile(rb"(?:^|\n)retry-after: ([0-9]{1,9})\r\n")
MOST_ANSWER_BYTES = 16 * 1024 * 1024  # the same as for a request here; Lambda itself allows 6 MB

Waiting = asyncio.Future[HttpAnswer]


class _Closed(FunctionsFailed):
    """The connection closed before any byte of an answer."""


class HttpFunctions:
    """Posts a call unchanged to `url`: `http://host:port/v2/models/M` (OIP) or `.../invocations` (SageMaker).

    If M is a stage that is served alone, OIP also takes its conductor's calls. `key` is the API key that the server
    requires. Several calls of one invocation are sent one after the other, over kept connections. The client is the
    gateway's, because an overloaded bouncer cannot spare the cost of a general one (CPU per call with 100 bytes: 77 us
    here, aiohttp 300 to 600 us, httpx 4 to 14 ms with 16 to 256 in progress).
    """

    def __init__(self, url: str, *, key: str | None = None, reach: Reach | None = None) -> None:
        self._url = url.rstrip("/")
        self._protocols = ("sagemaker",) if self._url.endswith("/invocations") else ("oip", BY_VALUE)
        if BY_VALUE in self._protocols:
            self._url += "/infer"
        self._address, target = _split(self._url)
        secret = "" if key is None else f"x-api-key: {key}\r\n"
        self._head = b"POST %b HTTP/1.1\r\nhost: %b\r\n%b" % (target, self._address.authority, secret.encode())
        self._reach = reach or Reach(answer_bytes=MOST_ANSWER_BYTES)
        self._under_way = UnderWay(self._url)
        self._id_prefix, self._ids = os.urandom(6).hex(), 0
        self._upstream: Upstream[Waiting] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.spent = Spent()  # stays zero, as the server sends no bill

    async def open(self) -> None:
        """Do nothing; the connection is made by the first call."""

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        async with self._under_way.within(timeout_s):
            return [await self._post(call) for call in calls]

    async def close(self) -> None:
        await self._under_way.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._upstream is not None:
            self._upstream.close()

    async def _post(self, call: Call) -> Reply:
        if call.protocol not in self._protocols:
            raise Unsuitable(f"{self._url} speaks {self._protocols[0]}, not {call.protocol}")
        head = f"content-type: {call.content_type or 'application/json'}\r\ncontent-length: {len(call.body)}\r\n"
        if call.accept:
            head += f"accept: {call.accept}\r\n"
        if call.json_bytes is not None:
            head += f"inference-header-content-length: {call.json_bytes}\r\n"
        # The id is of this client only, so that an answer to another call is recognized.
        self._ids += 1
        identity = f"{self._id_prefix}-{self._ids:x}".encode()
        lines = head.encode("latin-1") + b"x-request-id: %b\r\n\r\n" % identity
        data = b"".join((self._head, lines, call.body))
        try:
            answer = await self._asked(data, identity)
        except _Closed:  # a server may close a kept connection just when it is used
            answer = await self._asked(data, identity)
        status = answer.status
        if status in (429, 503):
            after = _AFTER.search(answer.headers)
            raise Throttled(float(after[1]) if after else 1.0)
        if status in _OF_THE_CALL:
            raise Unsuitable(f"{self._url}: status {status}")
        if status not in _OF_THE_MODEL:
            raise FunctionsFailed(f"{self._url}: status {status}")
        return Reply(status, answer.content_type.decode("latin-1"), answer.body, answer.json_bytes)

    async def _asked(self, data: bytes, identity: bytes) -> HttpAnswer:
        loop = asyncio.get_running_loop()
        if self._upstream is None:
            self._upstream = Upstream(self._address, self, self._reach, loop)
            self._sweep = loop.call_later(self._reach.keep_s, self._swept)
        waiting: Waiting = loop.create_future()
        connection: ClientConnection[Waiting] = self._upstream.ask(waiting, data, identity)
        try:
            return await waiting
        finally:
            if waiting.cancelled():
                self._upstream.cancel(connection, waiting)

    def _swept(self) -> None:
        assert self._upstream is not None, "opened before it is called"
        self._upstream.sweep()
        self._sweep = asyncio.get_running_loop().call_later(self._reach.keep_s, self._swept)

    # Callbacks of the upstream

    def answered(self, tag: Waiting, answer: HttpAnswer) -> None:
        """Take the complete answer."""
        if not tag.done():
            tag.set_result(answer)

    def failed(self, tag: Waiting, began: bool, why: CallFailure) -> None:
        """Note that no answer will come."""
        if not tag.done():
            kind = _Closed if why.kind is Failure.CLOSED and not began else FunctionsFailed
            if why.kind is Failure.TOO_LARGE:
                kind = Unsuitable
            tag.set_exception(kind(f"{self._url}: {why}"))


def _split(url: str) -> tuple[Address, bytes]:
    """Return the address to connect to, and the request target. Raises BadInput."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        address = Address.of(f"{parts.scheme}://{parts.netloc}" + ("" if parts.port else f":{port}"))
    except (ValueError, BadInput):
        raise BadInput("must be http://host:port/path or https://host:port/path", "function", url) from None
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise BadInput("must be an address without spaces and other signs", "function", url)
    return address, target.encode()


_: type[FunctionClient] = HttpFunctions
