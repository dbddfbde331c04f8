"""The HTTP/1.1 connections of a server: bytes in, complete requests out, and one answer each, in order.

The rules of this file:

- A request is an `Exchange`. The handler gets it once, when it is complete, on the loop, and answers it once, now or
  later. There is no coroutine, task or timer per request or connection: parsing is callbacks of llhttp (httptools), an
  answer is one join and one write, and one sweep a second finds connections that exceeded a time limit.
- Requests that this file refuses (malformed, too large, too slow, not admitted) never reach the handler. The refusal
  is sent after the answers to the requests before it. If the rest of the input cannot be trusted or is not wanted, the
  connection ends with it.
- No client can make memory grow without bound: head, body, pipelined requests and unread answers of a connection each
  have a limit, and so has the number of connections. At that limit a new connection replaces another one, unless its
  own peer has the most connections. The replaced one is the oldest without a request in progress of the peer with the
  most connections. So no peer can keep the others out.

llhttp refuses the inputs that request smuggling uses: both content-length and transfer-encoding, a second
content-length, bad chunk sizes, bare CR or LF, folded headers, white space before a colon.
tests/serving/frontend/test_http.py checks that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

from mark.serving.frontend.limits import JSON, Admit, ConnectionCounts, HttpLimits, Refusal

# The parser's position: between requests, in a head, in a body, after the last request, or the connection is closing.
IDLE, _HEAD, _BODY, _DEAF, _ENDED = range(5)

_MOST_REPEATS = 100  # repeated header names in one request
_REFUSED_AT_ONCE = 64  # connections beyond the limit that get a refusal; further ones are closed without one
_SLASH, _QUESTION_MARK = b"/?"
_LOG = logging.getLogger(__name__)

Handler = Callable[["Exchange"], None]


class Exchange:
    """One request, and its answer.

    `path` is as sent, percent-encoded, without the query; of an absolute target only its path. `headers` has lower-case
    names; values of a repeated name are joined by ", " (a repeated host is refused). `arrived_s` is when its head was
    complete, by the clock of the server (`time.monotonic`, which is the loop's): a deadline covers the reading of the
    body, but not the client's pause inside the head.
    """

    __slots__ = ("_answer", "_connection", "_plain", "arrived_s", "body", "headers", "method", "path", "query")

    def __init__(
        self, connection: Connection, method: bytes, path: bytes, query: bytes, headers: dict[bytes, bytes], s: float
    ) -> None:
        self._connection = connection
        self._answer: bytes | None = None
        self._plain = True  # has a body and no header about the connection
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = b""
        self.arrived_s = s

    @property
    def peer(self) -> str:
        """Return the client's address, or "" for a Unix socket."""
        return self._connection.peer

    @property
    def gone(self) -> bool:
        """Return whether the client has gone and would not read an answer."""
        return self._connection.transport is None

    def has_gone(self) -> bool:
        """Return `gone`, as a method that can be passed on."""
        return self._connection.transport is None

    def answer(self, status: int, body: bytes | memoryview, content_type: bytes = JSON, headers: bytes = b"") -> None:
        """Answer, exactly once. `headers` are complete lines, each with its CRLF; a memoryview is one of bytes.

        The body is copied before this returns. If the client has gone, the answer is counted and dropped. Raises
        RuntimeError if it was answered before.
        """
        if self._answer is not None:
            raise RuntimeError(f"{self.method!r} {self.path!r} was answered already")
        connection = self._connection
        transport = connection.transport
        if transport is None:
            self._answer = b""
            connection.server.counts.dropped_answers += 1
            return
        head = connection.heads.get(status)
        if head is None or not self._plain:
            self._answer = data = self._spell(status, body, content_type, headers)
        else:
            self._answer = data = b"".join(
                (head, content_type, b"\r\ncontent-length: ", b"%d\r\n" % len(body), headers, b"\r\n", body)
            )
        waiting = connection.waiting
        if waiting[0] is self:
            waiting.popleft()
            transport.write(data)
            if waiting or connection.parked or not self._plain:
                connection.answered(self)

    def _spell(self, status: int, body: bytes | memoryview, content_type: bytes, headers: bytes) -> bytes:
        """Return an unusual answer: a status for the first time this second, no body, or the last on its connection."""
        bodiless = status in (204, 304)
        head = self._connection.server.head(status) if not bodiless else _status_line(status)
        parts: list[bytes | memoryview] = [head]
        if not bodiless:
            parts += [content_type, b"\r\ncontent-length: %d\r\n" % len(body)]
        if self._connection.ends_with(self):
            self._plain = False
            parts.append(b"connection: close\r\n")
        elif not self._plain:
            parts.append(b"connection: keep-alive\r\n")
        parts += [headers, b"\r\n"]
        if not bodiless and self.method != b"HEAD":
            parts.append(body)
        return b"".join(parts)


class _Refused(Exchange):
    """A request that this file answers when its turn comes."""

    __slots__ = ("refusal",)
    refusal: Refusal


class Connections:
    """All connections of one server, and their shared state. `handler` gets complete requests."""

    def __init__(self, handler: Handler, limits: HttpLimits, admit: Admit | None, clock: Callable[[], float]) -> None:
        self.handler = handler
        self.limits = limits
        self.admit = admit
        self.clock = clock
        self.counts = ConnectionCounts()
        self.draining = False
        self.gathered_bytes = 0
        self.connections: set[Connection] = set()
        self.of_peer: dict[str, dict[Connection, None]] = {}  # connections by the client's address, oldest first
        self.heads: dict[int, bytes] = {}
        self._settled: asyncio.Future[None] | None = None

    def make_room(self, newcomer: str) -> None:
        """End an idle connection of the peer with the most connections, unless that peer is `newcomer`.

        The oldest connection without a request in progress is ended. A peer's own connections are spared, because a
        load balancer may be sending on the one that would be cut.
        """
        greedy, theirs = max(self.of_peer.items(), key=lambda item: len(item[1]))
        if greedy == newcomer:
            return
        # Connections beyond the limit were refused, and ending such a connection makes no room.
        full = len(self.connections) == self.limits.connections
        free = [
            one for one in theirs if (one.phase != _ENDED or full) and (one.blocked or not (one.waiting or one.parked))
        ]
        if free:  # one in a head or a body only as the last choice
            self.counts.cut += 1
            min(free, key=lambda one: one.phase in (_HEAD, _BODY)).cut()

    def settle(self) -> None:
        """Wake `close` if the connection that ended was the last."""
        if self._settled is not None and not self._settled.done() and not self._owing():
            self._settled.set_result(None)

    def _owing(self) -> bool:
        return any(c.phase != _ENDED or (c.transport and c.transport.get_write_buffer_size()) for c in self.connections)

    def sweep(self, now_s: float) -> None:
        """End connections that exceeded a time limit; called every `sweep_s` with `now_s` by `clock`."""
        self.heads.clear()  # their date is a second old
        for connection in tuple(self.connections):
            self._check(connection, now_s)

    def _check(self, connection: Connection, now_s: float) -> None:
        """End a connection that was in one state for too long, counted from the first sweep in that state."""
        limits = self.limits
        transport = connection.transport
        if transport is None:
            return
        phase = connection.phase
        # In a drain, clients whose other connections end turn to the ones they kept, so the idle time starts again.
        kept = phase == IDLE and self.draining
        seen = (phase, connection.begun, connection.blocks, bool(connection.waiting), kept)
        if seen != connection.seen:
            connection.seen = seen
            connection.since_s = now_s
            connection.unread = transport.get_write_buffer_size()
            return
        in_state_s = now_s - connection.since_s
        if connection.blocked or phase == _ENDED:
            if in_state_s >= limits.answer_timeout_s + connection.unread / limits.bytes_per_s_min:
                self.counts.cut += connection.blocked
                connection.cut()
        elif not connection.reading or connection.invites:
            connection.since_s = now_s  # the client waits for the server
        elif phase == IDLE:
            allowed_s = limits.idle_timeout_s if connection.begun else limits.header_timeout_s
            if self.draining:
                allowed_s = min(allowed_s, limits.drain_idle_s)
            if not connection.waiting and in_state_s >= allowed_s:
                connection.end()
        elif phase == _HEAD:
            if in_state_s >= limits.header_timeout_s:
                connection.refuse(408, "the request's head took too long")
        elif phase == _BODY:
            came = limits.body_bytes - connection.room
            if in_state_s >= limits.body_timeout_s + came / limits.bytes_per_s_min:
                connection.refuse(408, "the request's body took too long")

    def head(self, status: int) -> bytes:
        """Return the first lines of an answer, up to the value of content-type."""
        head = self.heads[status] = _status_line(status) + b"content-type: "
        return head


class _Stop(Exception):
    """Leaves the parser: the request was refused, and the rest of the input is ignored."""


class Connection:
    """A connection: an asyncio.Protocol without that base, because a compiled class has no interpreted bases."""

    __deletable__ = ("parser",)  # mypyc's word for attributes that may be deleted
    __slots__ = (
        "_again",
        "_at_once",
        "_handing",
        "_left",
        "_long",
        "_offered",
        "_peer",
        "_unfinished",
        "begun",
        "blocked",
        "blocks",
        "exchange",
        "headers",
        "heads",
        "invites",
        "last",
        "limits",
        "more",
        "parked",
        "parser",
        "phase",
        "reading",
        "room",
        "seen",
        "server",
        "since_s",
        "target",
        "transport",
        "unread",
        "waiting",
    )

    def __init__(self, server: Connections) -> None:
        self.server = server
        self.limits = server.limits
        self.heads = server.heads
        self.transport: asyncio.Transport | None = None
        self.parser = httptools.HttpRequestParser(self)
        self.phase = IDLE
        self.begun = 0  # requests whose first byte has arrived
        # The request being read.
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.exchange: Exchange | None = None
        self.last: Exchange | None = None  # the connection ends with its answer
        self.room = 0  # bytes by which the body may still grow
        self.more: bytearray | None = None  # a body that arrives in pieces; not a list, because pieces can be tiny
        self._again = 0  # headers with a repeated name
        self._offered = False  # the head offers another protocol
        self._unfinished = 0  # bytes of an incomplete head
        self.invites = False  # the client waits for "100 Continue", and earlier answers are still due
        # Complete requests: with the handler or waiting to be written, and not handed over yet.
        self.waiting: deque[Exchange] = deque()
        self.parked: deque[Exchange] = deque()
        self._handing = False
        self._at_once = 0  # requests answered in this turn of the loop
        self._left = False  # a next turn is scheduled
        # Flow control, and the state at the last sweep.
        self.reading = True
        self.blocked = False
        self.blocks = 0
        self.seen: tuple[int, int, int, bool, bool] | None = None
        self.since_s = 0.0
        self.unread = 0
        self._peer: str | None = None

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=self.limits.unread_bytes)
        server = self.server
        if len(server.connections) >= self.limits.connections:
            server.make_room(self.peer)
        server.connections.add(self)
        server.of_peer.setdefault(self.peer, {})[self] = None
        excess = len(server.connections) - self.limits.connections
        if excess > _REFUSED_AT_ONCE:
            self.cut()
        elif excess > 0:
            self.refuse(503, "too many connections", b"retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        del self.parser  # it refers to this object
        self.phase = _ENDED
        self.parked.clear()
        self._forget_body()
        self.server.counts.dropped_answers += sum(bool(exchange._answer) for exchange in self.waiting)
        self.waiting.clear()  # they refer to this connection; without a cycle no body waits for the garbage collector
        self._make_place()
        self.server.settle()

    def _make_place(self) -> None:
        server = self.server
        server.connections.discard(self)
        of_peer = server.of_peer.get(self.peer)
        if of_peer is not None:
            of_peer.pop(self, None)
            if not of_peer:
                del server.of_peer[self.peer]

    def eof_received(self) -> None:
        """Let the transport close: like most servers, this one treats a half-close as the end of the connection."""

    @property
    def peer(self) -> str:
        if self._peer is None:
            address = self.transport.get_extra_info("peername") if self.transport else None
            self._peer = str(address[0]) if isinstance(address, tuple) else ""
        return self._peer

    def cut(self) -> None:
        """Close immediately and drop unwritten data."""
        self.phase = _ENDED
        self._make_place()
        if self.transport is not None:
            self.transport.abort()
            self.transport = None  # so that late answers find the client gone

    def end(self) -> None:
        """Close after the written data has been sent."""
        self.phase = _ENDED
        if self.transport is not None:
            self.transport.close()
        self.server.settle()

    def _end_after_refusal(self) -> None:
        """Close gently, because the client may still be sending.

        A socket closed with unread input resets the connection, and the client would lose the answer. So only the
        output is ended, and input is discarded until the client or the sweep closes.
        """
        self.phase = _ENDED
        transport = self.transport
        if transport is not None and transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:  # the client has gone already
                self.cut()
        self.server.settle()

    # --- reading

    def data_received(self, data: bytes) -> None:
        if self.phase >= _DEAF:
            return
        if not self._left:
            self._at_once = 0
        unfinished, begun = self.phase == _HEAD, self.begun
        self._long = unfinished or len(data) > self.limits.header_bytes  # otherwise the headers cannot be too long
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Stop):
                _LOG.exception("a request could not be read")
                self.refuse(500, "internal error")
        except httptools.HttpParserUpgrade:
            pass  # a CONNECT was handed over like any other request; its answer is the last
        except httptools.HttpParserError as error:
            if self.phase >= _DEAF:
                pass  # input after the last request is ignored
            elif isinstance(error, httptools.HttpParserInvalidMethodError):
                self.refuse(501, "unknown method")
            else:
                self.refuse(400, f"malformed request: {error}")
        if self.phase == _HEAD:
            # Complete names and values are counted elsewhere; this bounds incomplete ones. The part of a head that
            # arrived with an earlier request is not counted, because it is at most one read.
            self._unfinished = self._unfinished + len(data) if unfinished and self.begun == begun else 0
            if self._unfinished > 2 * (self.limits.header_bytes + self.limits.target_bytes):
                self.refuse(431, "the request's head is too long")

    def _feed(self, data: bytes) -> None:
        """Let the parser read.

        An upgrade that a client offers is ignored (RFC 9110, 7.8). The parser would take the input that follows for the
        other protocol, so a new parser reads the head again without the offer.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._offered:
                    raise
                rest = memoryview(rest)[upgrade.args[0] :]
            self._offered = False
            head = _without_offer(self.parser, self.target, self.headers)
            self.parser = httptools.HttpRequestParser(self)
            self.phase = IDLE
            self.begun -= 1
            self.parser.feed_data(head)

    def on_url(self, piece: bytes) -> None:
        # A request begins here; a method without a target is ignored.
        if self.phase != _HEAD:
            if self.phase != IDLE:
                raise _Stop
            self.phase = _HEAD
            self.begun += 1
            self.target = piece
            self.headers = {}
            self._again = 0
        else:
            self.target += piece
        if len(self.target) > self.limits.target_bytes:
            self._stop(414, "the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase != _HEAD:
            return  # trailers are ignored
        name = name.lower()
        headers = self.headers
        if name in headers:
            if name == b"host":
                self._stop(400, "more than one host")
            if name == b"content-type":
                if value.lower() != headers[name].lower():
                    self._stop(400, "two content-types that differ")
                return
            self._again += 1
            if self._again > _MOST_REPEATS:  # each repetition copies all earlier values
                self._stop(431, "a header is repeated too often")
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        server = self.server
        limits = self.limits
        headers = self.headers
        parser = self.parser
        if b"upgrade" in headers and parser.should_upgrade() and parser.get_method() != b"CONNECT":
            self._offered = True
            return
        path = self.target
        query = b""
        if path[0] != _SLASH:
            path = _origin_form(path)
        if _QUESTION_MARK in path:  # a search for the number is several times as fast
            path, _, query = path.partition(b"?")
        method = parser.get_method()
        self.exchange = exchange = Exchange(self, method, path, query, headers, server.clock())
        self.phase = _BODY
        if self._long and sum(map(len, headers)) + sum(map(len, headers.values())) > limits.header_bytes:
            self._stop(431, "the request's headers are too long")
        if (
            b"connection" in headers
            or b"transfer-encoding" in headers
            or b"host" not in headers
            or method == b"HEAD"
            or method == b"CONNECT"
            or server.draining
            or not parser.should_keep_alive()
        ):
            self._check_unusual(exchange)
        self.room = room = limits.body_bytes
        # The parser has checked that it is a number below 2^64, apart from leading zeros, of which int() accepts only
        # some.
        if b"content-length" in headers and int(headers[b"content-length"].lstrip(b"0") or b"0") > room:
            self._stop(413, f"the body is larger than {room} bytes")
        if server.admit is not None:
            refusal = server.admit(method, path, headers)
            if refusal is not None:
                self._turn_away(exchange, refusal)
        if b"expect" in headers and parser.get_http_version() == "1.1":
            if headers[b"expect"].lower() != b"100-continue":
                self._stop(417, "unknown expectation")
            self.invites = True
            self._invite()

    def _check_unusual(self, exchange: Exchange) -> None:
        headers = exchange.headers
        exchange._plain = False
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._stop(505, "HTTP/1.1 is spoken here")
        if version == "1.1" and b"host" not in headers:
            self._stop(400, "no host")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
            self._stop(501 if version == "1.1" else 400, "unknown transfer-encoding")
        tunnel = exchange.method == b"CONNECT"
        if tunnel and _has_body(headers):
            self._stop(501, "no tunnel here")  # the parser takes the body for the other protocol
        if tunnel or not self.parser.should_keep_alive():
            self.last = exchange

    def _turn_away(self, exchange: Exchange, refusal: Refusal) -> None:
        """Refuse a request that is not admitted. The connection continues only if the request has an empty body."""
        headers = exchange.headers
        if _has_body(headers):
            self._refuse(refusal)
            raise _Stop
        self.exchange = refused = _Refused(self, exchange.method, exchange.path, b"", headers, exchange.arrived_s)
        refused._plain = exchange._plain
        refused.refusal = refusal
        if self.last is exchange:
            self.last = refused

    def on_body(self, piece: bytes) -> None:
        self.room -= len(piece)
        if self.room < 0:
            self._stop(413, f"the body is larger than {self.limits.body_bytes} bytes")
        exchange = self.exchange
        assert exchange is not None, "the parser has announced its head"
        if not exchange.body:
            exchange.body = piece
        else:
            if self.more is None:
                self.more = bytearray()
            self.more += piece
            self.server.gathered_bytes += len(piece)
            if self.server.gathered_bytes > self.limits.gathered_bytes:
                self._stop(503, "too many bodies are coming at once", b"retry-after: 1\r\n")

    def on_message_complete(self) -> None:
        if self._offered:
            return
        exchange = self.exchange
        assert exchange is not None, "the parser has announced its head"
        self.exchange = None
        self.phase = IDLE if self.last is None else _DEAF
        self.invites = False
        if self.more is not None:
            exchange.body += self.more
            self._forget_body()
        pipelined = self.limits.pipelined
        if self.parked or self.blocked or len(self.waiting) >= pipelined or self._at_once >= pipelined:
            self.parked.append(exchange)
            self._pause_reading()
            if not self.blocked and len(self.waiting) < pipelined:
                self._leave_turn()
        elif type(exchange) is Exchange:
            self.waiting.append(exchange)
            try:
                self.server.handler(exchange)
            except Exception:
                self._failed(exchange)
            if exchange._answer is not None:
                self._at_once += 1
        else:
            self._hand(exchange)
            self._at_once += 1

    def _forget_body(self) -> None:
        if self.more is not None:
            self.server.gathered_bytes -= len(self.more)
            self.more = None

    def _invite(self) -> None:
        """Write "100 Continue" after the answers that are still due."""
        before = self.parked or self.waiting
        if before:
            before[-1]._plain = False  # so that `answered` calls this method
        elif self.transport is not None:
            self.invites = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- refusing

    def _stop(self, status: int, why: str, headers: bytes = b"") -> None:
        """Refuse from within the parser."""
        self.refuse(status, why, headers)
        raise _Stop

    def refuse(self, status: int, why: str, headers: bytes = b"") -> None:
        """Answer the request being read with an error, in its turn, and read no further."""
        text = why.replace("\\", "/").replace('"', "'")
        self._refuse((status, b'{"error": "%b"}' % text.encode(), headers))

    def _refuse(self, refusal: Refusal) -> None:
        self.phase = _DEAF
        self.invites = False
        began = self.exchange
        method = began.method if began else b""
        refused = _Refused(self, method, began.path if began else b"", b"", {}, 0.0)
        refused._plain = False
        refused.refusal = refusal
        self.last = refused
        self.exchange = None
        self._forget_body()
        if self.parked:
            self.parked.append(refused)
        else:
            self._hand(refused)

    # --- handing over and answering

    def _hand(self, exchange: Exchange) -> None:
        self.waiting.append(exchange)
        if isinstance(exchange, _Refused):
            status, body, headers = exchange.refusal
            self.server.counts.refuse(status)
            exchange.answer(status, body, JSON, headers)
            return
        try:
            self.server.handler(exchange)
        except Exception:
            self._failed(exchange)

    def _failed(self, exchange: Exchange) -> None:
        _LOG.exception("the handler failed")
        if exchange._answer is None:
            exchange.answer(500, b'{"error": "internal error"}')

    def ends_with(self, exchange: Exchange) -> bool:
        """Return whether this answer is the last one; in a drain it is, if no other request has begun."""
        if self.server.draining and self.phase == IDLE and (self.parked or self.waiting)[-1] is exchange:
            self.last = exchange
            self.phase = _DEAF
        return self.last is exchange

    def answered(self, exchange: Exchange) -> None:
        """After `exchange`, write the answers behind it, hand over parked requests, or end the connection."""
        waiting = self.waiting
        while exchange is not self.last:
            transport = self.transport
            if transport is None or not waiting or waiting[0]._answer is None:
                break
            exchange = waiting.popleft()
            assert exchange._answer is not None, "the loop ends at one without an answer"
            transport.write(exchange._answer)
        if exchange is self.last:
            if isinstance(exchange, _Refused):
                self._end_after_refusal()
            else:
                self.end()
            return
        self._unpark()
        if self.invites:
            self._invite()

    def _unpark(self) -> None:
        if self._handing:
            return  # a handler answered immediately, and the loop below continues
        self._handing = True
        pipelined = self.limits.pipelined
        while self.parked and not self.blocked and len(self.waiting) < pipelined:
            if self._at_once >= pipelined:
                self._leave_turn()
                break
            exchange = self.parked.popleft()
            self._hand(exchange)
            if exchange._answer is not None:
                self._at_once += 1
        self._handing = False
        if not self.parked and not self.blocked:
            self._resume_reading()

    def _leave_turn(self) -> None:
        """Continue in another turn of the loop.

        Otherwise a client with a thousand pipelined requests would block others. They are parsed and parked together,
        all requests of one read.
        """
        if not self._left:
            self._left = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._left = False
        self._at_once = 0
        self._unpark()

    # --- flow control

    def pause_writing(self) -> None:
        self.blocked = True
        self.blocks += 1
        self._pause_reading()

    def resume_writing(self) -> None:
        self.blocked = False
        self._unpark()

    def _pause_reading(self) -> None:
        if self.reading and self.transport is not None:
            self.reading = False
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self.reading and self.transport is not None and not self.transport.is_closing():
            self.reading = True
            self.transport.resume_reading()


def _without_offer(parser: httptools.HttpRequestParser, target: bytes, headers: dict[bytes, bytes]) -> bytes:
    """Return the head that the parser has read, without the offer of another protocol."""
    tokens = [token.strip() for token in headers.pop(b"connection").split(b",")]
    kept = [token for token in tokens if token.lower() not in (b"upgrade", b"http2-settings")]
    for name in (b"upgrade", b"http2-settings"):
        headers.pop(name, None)
    if kept:
        headers[b"connection"] = b", ".join(kept)
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())]
    lines += [b"%b: %b" % header for header in headers.items()]
    return b"\r\n".join([*lines, b"", b""])


def _has_body(headers: Mapping[bytes, bytes]) -> bool:
    return bool(headers.get(b"content-length", b"").strip(b"0")) or b"transfer-encoding" in headers


def _origin_form(target: bytes) -> bytes:
    """Return the path and query of `http://host/path?query`, or a target without a path (`*`, `host:port`)."""
    _, scheme, rest = target.partition(b"://")
    if not scheme:
        return target
    start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    path = rest[start:]
    return path if path[:1] == b"/" else b"/" + path


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\ndate: {formatdate(usegmt=True)}\r\n".encode()
