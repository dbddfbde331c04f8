"""The client side of the gateway: requests to one server over kept connections, with an answer or a failure for each.

As in `mark.serving.frontend.http` there is no coroutine per request: a request is one write, its answer callbacks of
llhttp. Only a new connection costs a task. A connection carries one request at a time; any irregularity of an answer
ends it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import httptools

from mark.domain.errors import BadInput

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# Headers that belong to a connection and not to the message (RFC 9110, section 7.6.1), or that each hop sets.
HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"content-length",
    )
)  # fmt: skip
_JSON_BYTES = re.compile(rb"(?:^|\n)inference-header-content-length: ([0-9]{1,18})\r\n")
_NOT_KEPT = HOP_BY_HOP | {b"date", b"content-type", b"x-request-id"}  # the listener sets these itself


class Failure(Enum):
    """The kinds of failed requests."""

    UNREACHED = "no connection was made"
    CLOSED = "the server closed the connection"  # before any byte of an answer, mostly a kept one
    TOO_LARGE = "the answer has too many bytes"
    UNUSABLE = "the answer cannot be used, or nobody waits for it any more"


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a request got no answer; `text` continues a sentence that begins with the server."""

    kind: Failure
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a replica: `http://host:port` or `https://host:port`."""

    url: str
    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the address of a URL. Raises BadInput for any other form."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or not port
            or url != f"{parts.scheme}://{parts.netloc}"
            or "@" in parts.netloc
            or "%" in parts.netloc  # an IPv6 scope: no name resolver accepts it as quoted here
            or not url.isascii()
            or not url.isprintable()
            or " " in url
        ):
            raise BadInput("a replica is http://host:port or https://host:port", "replica", url)
        return cls(url, parts.hostname, port, parts.scheme == "https")

    @property
    def authority(self) -> bytes:
        """Return the value of the host header."""
        return self.url.partition("://")[2].encode()


@dataclass(frozen=True, slots=True)
class Reach:
    """The limits and times of connections to servers. Times in seconds."""

    connect_timeout_s: float = 1.0
    # For an idle connection; shorter than any server's idle time-out, or requests meet closed connections.
    keep_s: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024  # a larger answer is a failure
    gathered_bytes: int = 256 * 1024 * 1024  # of all incomplete answers; an answer beyond it is a failure
    head_bytes: int = 64 * 1024
    tls: ssl.SSLContext | None = None  # for https; None: the system's authorities


class HttpAnswer:
    """The answer of a server. `headers` are complete lines without those of `HOP_BY_HOP` and the listener's own."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, status: int, content_type: bytes, headers: bytes, body: bytes) -> None:
        self.status, self.content_type, self.headers, self.body = status, content_type, headers, body

    @property
    def json_bytes(self) -> int | None:
        """Return the length of the body's JSON, if the server says that binary data follows it."""
        length = _JSON_BYTES.search(self.headers)
        return None if length is None else int(length[1])


_NOT_ASKED = CallFailure(Failure.UNUSABLE, "is not asked any more")


class Gathered:
    """Bytes of incomplete answers, over all connections that share it."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Asker(Protocol[T_contra]):
    """The user of a client. For each `ask` that is not cancelled, one of these methods is called exactly once."""

    def answered(self, tag: T_contra, answer: HttpAnswer) -> None:
        """Take the complete answer."""

    def failed(self, tag: T_contra, began: bool, why: CallFailure) -> None:
        """Note that no answer will come; `began`: a part of one came."""


class Upstream(Generic[T]):
    """One server. Its newest idle connection is used first, so that the others can be closed after `keep_s`.

    Several servers may share `gathered`, and with it the limit of `reach`.
    """

    def __init__(
        self,
        address: Address,
        asker: Asker[T],
        reach: Reach,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
        gathered: Gathered | None = None,
    ) -> None:
        self.address, self.asker, self.reach = address, asker, reach
        self.gathered = gathered or Gathered()
        self.echoes = False  # whether it has ever returned the id of a request
        self._loop, self.now = loop, now
        self.authority = address.authority
        self._tls = (reach.tls or ssl.create_default_context()) if address.tls else None
        self.connections: set[ClientConnection[T]] = set()
        self.idle: list[ClientConnection[T]] = []
        self._dials: dict[asyncio.Task[None], ClientConnection[T]] = {}
        self.unasked = 0  # answers to no request, or repeated ones
        self.closed = False

    def ask(self, tag: T, data: bytes, identity: bytes = b"") -> ClientConnection[T]:
        """Send a request; return the connection, for `cancel` with this tag. No callback comes before this returns.

        `identity` is the `x-request-id` in `data`, if any. If a server that echoes ids answers with another id, the
        answer belongs to another request, such as an earlier one, and this request fails without an answer.
        """
        idle = self.idle
        while idle:
            connection = idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                transport.write(data)
                connection.tag, connection.identity = tag, identity
                return connection
        connection = ClientConnection(self)
        connection.tag, connection.identity = tag, identity
        connection.unsent = data
        task = self._loop.create_task(self._dial(connection))
        self._dials[task] = connection
        task.add_done_callback(self._dials.pop)
        return connection

    def cancel(self, connection: ClientConnection[T], tag: T) -> None:
        """Drop the answer: no callback comes for it. After the callback this does nothing."""
        if connection.tag is tag:
            connection.tag = None
            connection.unsent = b""
            connection.cut()  # the server notices it and can stop

    def sweep(self) -> None:
        """Close connections that have been idle for too long."""
        before_s = self.now() - self.reach.keep_s
        old = [one for one in self.idle if one.since_s < before_s]
        for connection in old:
            connection.cut()

    def close(self) -> None:
        """Close all connections; requests on them fail."""
        self.closed = True
        for connection in tuple(self.connections):
            connection.cut()
        for task, connection in tuple(self._dials.items()):
            if connection.transport is None:
                task.cancel()
                self._loop.call_soon(connection.fail, _NOT_ASKED)  # the task may not have begun

    async def _dial(self, connection: ClientConnection[T]) -> None:
        address, reach = self.address, self.reach
        try:
            async with asyncio.timeout(reach.connect_timeout_s) as connection.dialling:
                await self._loop.create_connection(lambda: connection, address.host, address.port, ssl=self._tls)
        except (OSError, ValueError, asyncio.CancelledError) as error:
            text = f"cannot be reached ({getattr(error, 'strerror', None) or type(error).__name__})"
            self._loop.call_soon(connection.fail, CallFailure(Failure.UNREACHED, text))


class ClientConnection(asyncio.Protocol, Generic[T]):
    """A connection to a server, with at most one request on it."""

    def __init__(self, upstream: Upstream[T]) -> None:
        self.upstream = upstream
        self.tag: T | None = None  # the request that waits for an answer
        self.identity = b""  # of that request
        self.unsent = b""  # its bytes, while the connection is being made
        self.transport: asyncio.Transport | None = None
        self.dialling: asyncio.Timeout | None = None  # time limit of the task that makes the connection
        self.since_s = 0.0  # idle since then
        self._parser = httptools.HttpResponseParser(self)
        self._room = upstream.reach.answer_bytes
        self._body: bytes | bytearray = b""
        self._forget()

    def _forget(self) -> None:
        self._began = self._whole = self._keep = self._framed = self._to_the_end = False
        self._status = self._head_bytes = 0
        self._content_type = b"application/octet-stream"
        self._lines: list[tuple[bytes, bytes]] = []
        self._named = b""  # headers that belong to the connection only, as it declares
        self._said_id = b""
        self._drop_body()

    def _drop_body(self) -> None:
        self.upstream.gathered.bytes -= len(self._body)
        self._body = b""

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The task ends some turns of the loop later. If it is cancelled before, uvloop closes the transport, never
        # calls `connection_lost`, and raises "the handler is closed" at the next write.
        if self.dialling is not None:
            if self.dialling.expired():
                return
            self.dialling.reschedule(None)
        self.transport = transport = cast(asyncio.Transport, transport)
        upstream = self.upstream
        upstream.connections.add(self)
        if upstream.closed:
            self.cut()
        elif self.tag is None:
            self._rest()
        else:
            transport.write(self.unsent)
            self.unsent = b""

    def connection_lost(self, error: Exception | None) -> None:
        upstream = self.upstream
        self.transport = None
        upstream.connections.discard(self)
        if self in upstream.idle:
            upstream.idle.remove(self)
        if self._to_the_end and error is None and self.tag is not None:
            self._finish()
        else:
            self._drop_body()
            self.fail(CallFailure(Failure.CLOSED, f"closed the connection{f' ({error})' if error else ''}"))

    def cut(self) -> None:
        """Close immediately; a request on the connection fails."""
        upstream = self.upstream
        if self in upstream.idle:
            upstream.idle.remove(self)
        self._to_the_end = False
        if self.transport is not None:
            self.transport.abort()

    def fail(self, why: CallFailure) -> None:
        """Report the failure if a request is in progress."""
        tag = self.tag
        if tag is not None:
            self.tag = None
            self.upstream.asker.failed(tag, self._began, why)

    def _rest(self) -> None:
        self.since_s = self.upstream.now()
        self.upstream.idle.append(self)

    # --- reading

    def data_received(self, data: bytes) -> None:
        if self.tag is None:  # an answer to no request
            self.upstream.unasked += 1
            self.cut()
            return
        self._began = True
        why: CallFailure | None = None
        try:
            self._parser.feed_data(data)
            if not self._status:
                # A complete head is counted elsewhere; this bounds an incomplete one.
                self._head_bytes += len(data)
                if self._head_bytes > self.upstream.reach.head_bytes:
                    why = CallFailure(Failure.UNUSABLE, "answered a head that is too long")
        except httptools.HttpParserCallbackError as error:
            refused = error.__context__
            why = refused.why if isinstance(refused, _Refused) else CallFailure(Failure.UNUSABLE, str(refused))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            why = CallFailure(Failure.UNUSABLE, f"gave an answer that is not HTTP/1.1 ({error})")
        if why is not None:
            self._keep = False
            if not self._whole:  # input after a complete answer spoils the connection, not the answer
                self.cut()
                self.fail(why)
                return
        if self._whole:
            self._finish()

    def on_message_begin(self) -> None:
        if self._whole:
            self.upstream.unasked += 1
            raise _Refused("answered twice")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._content_type = value
        elif name not in _NOT_KEPT:
            self._lines.append((name, value))
        elif name == b"x-request-id":
            self._said_id = value
        elif name == b"connection":
            self._named += value.lower() + b","
        elif name == b"content-length" or name == b"transfer-encoding":
            self._framed = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        status = parser.get_status_code()
        if status < 200:
            if status == 101:
                raise _Refused("switched protocols")
            self._lines.clear()
            self._named = self._said_id = b""
            return
        self._status = status
        self._keep = parser.should_keep_alive()
        self._to_the_end = not self._keep and not self._framed  # then the answer ends when the server closes

    def on_body(self, piece: bytes) -> None:
        if len(self._body) + len(piece) > self._room:
            raise _Refused(f"answered more than {self._room} bytes", Failure.TOO_LARGE)
        gathered, reach = self.upstream.gathered, self.upstream.reach
        if gathered.bytes + len(piece) > reach.gathered_bytes:
            raise _Refused(f"answers of more than {reach.gathered_bytes} bytes are coming at once")
        gathered.bytes += len(piece)
        if not self._body:
            self._body = piece
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece

    def on_message_complete(self) -> None:
        if self._status:
            self._whole = True

    def _finish(self) -> None:
        tag, upstream = self.tag, self.upstream
        assert tag is not None, "answers are read only while a request is under way"
        if self._said_id and self.identity:
            if self._said_id == self.identity:
                upstream.echoes = True
            elif upstream.echoes:
                upstream.unasked += 1
                self._began = False  # no part of its own answer came, so it may be repeated
                self.cut()
                self.fail(CallFailure(Failure.UNUSABLE, "answered another request"))
                return
        lines = self._lines
        if self._named and self._named not in (b"close,", b"keep-alive,"):
            named = {name.strip() for name in self._named.split(b",")}
            lines = [line for line in lines if line[0] not in named]
        headers = b"".join([b"%b: %b\r\n" % line for line in lines])
        answer = HttpAnswer(self._status, self._content_type, headers, bytes(self._body))
        self.tag = None
        keep, transport = self._keep, self.transport
        self._forget()
        if transport is not None:
            # A part of the request may be unsent if the server answered early.
            if keep and not transport.is_closing() and not transport.get_write_buffer_size() and not upstream.closed:
                self._rest()
            else:
                self.cut()
        upstream.asker.answered(tag, answer)


class _Refused(Exception):
    """Leaves the parser, because the answer is refused."""

    def __init__(self, text: str, kind: Failure = Failure.UNUSABLE) -> None:
        super().__init__(text)
        self.why = CallFailure(kind, text)
