"""The HTTP listener: bytes are fed to a connection directly, time is an argument; sockets come last."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.serving.frontend.connection import Connection, Exchange, Handler
from mark.serving.frontend.http import HttpLimits, HttpServer
from mark.serving.frontend.limits import Refusal

QUIET = 1e6  # no sweep while a test runs


class Wire(asyncio.Transport):
    """A transport whose other end is the test. `unread` is the number of bytes that the client has not read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.unread = self.writes = 0
        self.reading, self.closing, self.aborted, self.eof = True, False, False, False
        self.protocol: Connection | None = None

    def write(self, data: Any) -> None:
        assert not self.eof, "written after the end"
        self.writes += 1
        if not self.closing:
            self.out += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread

    @property
    def ended(self) -> bool:
        """Whether the server has ended the stream, as the client knows."""
        return self.closing or self.eof


class Listener:
    """A server without a socket. `seen` are the exchanges handed over; `answer_now` echoes each without delay."""

    def __init__(
        self, *, answer_now: bool = True, admit: Any = None, handler: Handler | None = None, **limits: Any
    ) -> None:
        self.now_s = 0.0
        self.seen: list[Exchange] = []
        self.answer_now = answer_now
        self.server = HttpServer(
            handler or self._handle, HttpLimits(**{"sweep_s": QUIET, **limits}), admit=admit, clock=lambda: self.now_s
        )

    def _handle(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        if self.answer_now:
            exchange.answer(200, exchange.body)

    def connect(self) -> tuple[Wire, Connection]:
        wire, connection = Wire(), Connection(self.server)
        connection.connection_made(wire)
        return wire, connection

    def ask(self, *pieces: bytes) -> Wire:
        """Return a new connection that sends the pieces."""
        wire, connection = self.connect()
        for piece in pieces:
            connection.data_received(piece)
        return wire

    def sweep(self, seconds: float = 0.0) -> None:
        self.now_s += seconds
        self.server.sweep(self.now_s)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def answers(out: bytes | bytearray, head: bool = False) -> list[Answer]:
    """Return the answers in a byte stream; with `head` they are answers without bodies."""
    rest, found = bytes(out), []
    while rest:
        lines, end, rest = rest.partition(b"\r\n\r\n")
        assert end, f"unfinished: {lines!r}"
        first, *fields = lines.decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = dict(line.split(": ", 1) for line in fields)
        assert len(headers) == len(fields), "a header twice"
        length = 0 if head else int(headers.get("content-length", 0))
        assert len(rest) >= length, "unfinished body"
        found.append(Answer(int(status), headers, rest[:length]))
        rest = rest[length:]
    return found


def only(wire: Wire) -> Answer:
    (answer,) = answers(wire.out)
    return answer


def request(path: str = "/", body: bytes = b"", method: str = "POST", **headers: str) -> bytes:
    fields = {"host": "mark"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body:
        fields.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


# --- a request


def test_an_exchange_is_what_was_sent() -> None:
    listener = Listener()
    listener.now_s = 5.0
    listener.ask(request("/v2/a%20b?x=1&y", b"body", X_Empty="", X_A="1", x_a="2"))
    (exchange,) = listener.seen
    assert (exchange.method, exchange.path, exchange.query, exchange.body) == (b"POST", b"/v2/a%20b", b"x=1&y", b"body")
    assert exchange.headers == {b"host": b"mark", b"x-empty": b"", b"x-a": b"1, 2", b"content-length": b"4"}
    assert exchange.arrived_s == 5.0


def test_it_arrives_when_its_head_is_complete() -> None:
    listener = Listener()
    _, connection = listener.connect()
    for piece in (b"POST / HTTP/1.1\r\nhost: m\r\n", b"content-length: 4\r\n\r\n", b"bo", b"dy"):
        listener.now_s += 1.0
        connection.data_received(piece)
    assert listener.seen[0].arrived_s == 2.0


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", b"/", b""),
        ("/?", b"/", b""),
        ("/a?b?c", b"/a", b"b?c"),
        ("http://host/a/b?c", b"/a/b", b"c"),
        ("http://host:80", b"/", b""),
        ("http://host?c=/", b"/", b"c=/"),
        ("*", b"*", b""),
    ],
)
def test_targets_in_every_form(target: str, path: bytes, query: bytes) -> None:
    listener = Listener()
    listener.ask(request(target, method="OPTIONS"))
    assert (listener.seen[0].path, listener.seen[0].query) == (path, query)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
def test_every_method_that_exists_is_for_the_handler(method: str) -> None:
    listener = Listener()
    assert only(listener.ask(request(method=method))).status == 200
    assert listener.seen[0].method == method.encode()


def test_an_answer_has_type_length_date_and_given_headers() -> None:
    listener = Listener(
        handler=lambda e: e.answer(429, memoryview(b"busy"), b"text/plain", b"retry-after: 1\r\nx-y: z\r\n")
    )
    answer = only(listener.ask(request()))
    assert (answer.status, answer.body) == (429, b"busy")
    date = answer.headers.pop("date")
    assert date.endswith(" GMT")
    assert answer.headers == {"content-type": "text/plain", "content-length": "4", "retry-after": "1", "x-y": "z"}


def test_head_and_no_content_have_no_body() -> None:
    listener = Listener(handler=lambda e: e.answer(200, b"four"))
    (answer,) = answers(listener.ask(request(method="HEAD")).out, head=True)
    assert answer.headers["content-length"] == "4"
    listener = Listener(handler=lambda e: e.answer(204, b""))
    wire = listener.ask(request(), request())
    assert [(a.status, a.headers.keys() & {"content-length", "content-type"}) for a in answers(wire.out)] == [
        (204, set())
    ] * 2


def test_an_unknown_status_is_sent_without_a_phrase() -> None:
    assert only(Listener(handler=lambda e: e.answer(299, b"")).ask(request())).status == 299


def test_an_answer_is_one_write() -> None:
    listener = Listener()
    wire = listener.ask(*[request("/", b"body")] * 10)
    assert wire.writes == len(answers(wire.out)) == 10


def test_whatever_fails_while_a_request_is_read_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    """The 500 follows the answers that are owed."""

    def admit(method: bytes, path: bytes, headers: Any) -> None:
        if path == b"/odd":
            raise ZeroDivisionError

    wire = Listener(admit=admit).ask(request("/even") + request("/odd"))
    assert [answer.status for answer in answers(wire.out)] == [200, 500]
    assert wire.ended
    assert "ZeroDivisionError" in caplog.text


def test_a_length_may_begin_with_zeros() -> None:
    """There are more zeros than int() accepts."""
    wire = Listener().ask(b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: %b2\r\n\r\nok" % (b"0" * 4400))
    assert only(wire).status == 200


def test_answering_twice_raises_and_writes_nothing() -> None:
    listener = Listener()
    wire = listener.ask(request())
    before = bytes(wire.out)
    with pytest.raises(RuntimeError, match="answered already"):
        listener.seen[0].answer(200, b"again")
    assert wire.out == before


def test_a_disconnected_client_leaves_no_reference_cycle() -> None:
    """Many clients with large bodies may leave together, and the garbage collector runs rarely."""
    listener = Listener(answer_now=False)
    _, connection = listener.connect()
    connection.data_received(request("/1"))
    kept = sys.getrefcount(exchange := listener.seen.pop())
    connection.connection_lost(None)
    assert sys.getrefcount(exchange) == kept - 1
    exchange.answer(200, b"too late")
    assert listener.server.counts.dropped_answers == 1


def test_an_answer_to_a_disconnected_client_is_dropped_and_counted() -> None:
    listener = Listener(answer_now=False)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2"))
    listener.seen[1].answer(200, b"waits behind the first")
    assert not listener.seen[0].gone
    connection.connection_lost(None)
    assert listener.seen[0].gone
    listener.seen[0].answer(200, b"too late")
    assert listener.server.counts.dropped_answers == 2
    assert not wire.out
    assert not listener.server.connections
    listener.sweep(1000)
    with pytest.raises(RuntimeError, match="answered already"):
        listener.seen[0].answer(200, b"")


def test_a_handler_that_fails_is_a_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(exchange: Exchange) -> None:
        if exchange.path == b"/after":
            exchange.answer(200, b"")
        raise ZeroDivisionError

    wire = Listener(handler=fail).ask(request("/before") + request("/after"))
    assert [a.status for a in answers(wire.out)] == [500, 200]
    assert not wire.ended
    assert len([r for r in caplog.records if r.exc_info]) == 2


# --- keep-alive, versions, upgrades


def test_a_connection_is_kept_unless_either_side_closes_it() -> None:
    listener = Listener()
    wire = listener.ask(request("/1"), request("/2"), b"\r\n" + request("/3"))
    assert [a.headers.get("connection") for a in answers(wire.out)] == [None] * 3
    assert not wire.ended
    wire = listener.ask(request(Connection="close") + request("/ignored"))
    assert only(wire).headers["connection"] == "close"
    assert wire.ended
    assert b"/ignored" not in [e.path for e in listener.seen]


def test_after_connection_close_further_requests_are_ignored() -> None:
    listener = Listener(answer_now=False)
    wire, connection = listener.connect()
    connection.data_received(request(Connection="close"))
    connection.data_received(request("/ignored"))
    assert len(listener.seen) == 1
    assert not wire.ended
    listener.seen[0].answer(200, b"")
    assert only(wire).status == 200
    assert wire.ended


def test_http_1_0_closes_unless_asked_to_go_on() -> None:
    wire = Listener().ask(b"GET / HTTP/1.0\r\n\r\n")
    assert only(wire).headers["connection"] == "close"
    assert wire.ended
    asking = b"GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n"
    wire = Listener().ask(asking, asking)
    assert [a.headers["connection"] for a in answers(wire.out)] == ["keep-alive"] * 2
    assert not wire.ended


H2C = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB"}


@pytest.mark.parametrize("cut", [None, 1, 30])
@pytest.mark.parametrize("offer", [H2C, {"Connection": "keep-alive, upgrade", "Upgrade": "websocket"}])
def test_an_offered_upgrade_is_answered_as_http_1_1(offer: dict[str, str], cut: int | None) -> None:
    """Java's client and `curl --http2` offer it so, with a body and without, among other requests."""
    listener = Listener()
    chunked = b"POST /3 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n%b\r\n4\r\nmore\r\n0\r\n\r\n"
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in offer.items())
    sent = request("/1", b"body", **offer) + request("/2", b"", **offer) + chunked % lines + request("/4", b"next")
    wire = listener.ask(*(sent[i : i + (cut or len(sent))] for i in range(0, len(sent), cut or len(sent))))
    assert [(a.status, a.body) for a in answers(wire.out)] == [
        (200, b"body"),
        (200, b""),
        (200, b"more"),
        (200, b"next"),
    ]
    assert [e.path for e in listener.seen] == [b"/1", b"/2", b"/3", b"/4"]
    assert all(b"upgrade" not in e.headers and b"http2-settings" not in e.headers for e in listener.seen)
    assert not wire.ended


def test_an_offered_upgrade_keeps_what_else_the_connection_says() -> None:
    wire = Listener().ask(request("/", b"body", Connection="close, Upgrade", Upgrade="h2c"))
    assert (only(wire).body, only(wire).headers["connection"]) == (b"body", "close")
    assert wire.ended


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"content-length: 4\r\ntransfer-encoding: chunked\r\n", 400),
        (b"content-length: 4\r\ncontent-length: 5\r\n", 400),
        (b"content-length: 99999999\r\n", 413),
        (b"host: y\r\n", 400),
        (b"expect: more\r\n", 417),
    ],
)
def test_an_offered_upgrade_loosens_no_rule(more: bytes, status: int) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n%b\r\nbody" % more
    listener = Listener(body_bytes=1000)
    wire = listener.ask(head)
    assert only(wire).status == status
    assert wire.ended
    assert not listener.seen


def test_an_upgrade_that_is_only_offered_changes_nothing() -> None:
    wire = Listener().ask(request("/", b"body", Upgrade="h2c"), request("/", b"next"))
    assert [a.body for a in answers(wire.out)] == [b"body", b"next"]


def test_connect_is_for_the_handler_and_never_becomes_a_tunnel() -> None:
    listener = Listener(handler=lambda e: e.answer(405, b""))
    wire = listener.ask(request("host:443", method="CONNECT") + request())
    assert only(wire).status == 405
    assert wire.ended


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/0.9", ""])
def test_other_versions_are_refused(version: str) -> None:
    wire = Listener().ask(f"GET / {version}".rstrip().encode() + b"\r\nhost: m\r\n\r\n")
    assert only(wire).status in (400, 505)
    assert wire.ended


# --- pipelining


def test_answers_keep_the_order_of_the_requests() -> None:
    for order in itertools.permutations(range(4)):
        listener = Listener(answer_now=False)
        wire = listener.ask(b"".join(request(f"/{i}") for i in range(4)))
        for i in order:
            listener.seen[i].answer(200, b"%d" % i)
        assert [a.body for a in answers(wire.out)] == [b"0", b"1", b"2", b"3"]


def test_beyond_the_limit_requests_wait_and_nothing_is_read() -> None:
    listener = Listener(answer_now=False, pipelined=3)
    wire, connection = listener.connect()
    connection.data_received(b"".join(request(f"/{i}") for i in range(8)))
    assert len(listener.seen) == 3
    assert not wire.reading
    listener.seen[1].answer(200, b"")  # not the first: no room
    assert len(listener.seen) == 3
    listener.seen[0].answer(200, b"")
    assert len(listener.seen) == 5
    assert not wire.reading
    for exchange in listener.seen[2:]:
        exchange.answer(200, b"")
    assert len(listener.seen) == 8
    assert wire.reading
    for exchange in listener.seen[5:]:
        exchange.answer(200, b"")
    assert len(answers(wire.out)) == 8


def test_answering_thousands_of_parked_requests_does_not_block_the_loop() -> None:
    async def main(parked: bool) -> None:
        listener = Listener(answer_now=not parked, pipelined=10)
        wire, connection = listener.connect()
        connection.data_received(request("/x") * 5000)
        if parked:
            listener.answer_now = True
            for exchange in listener.seen[:10]:
                exchange.answer(200, b"")
        turns, before = 0, 0
        while before < 5000:
            now = len(listener.seen)
            assert now - before <= 20, "others had to wait"
            before = now
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 250
        assert len(answers(wire.out)) == 5000
        assert wire.reading

    asyncio.run(main(parked=True))
    asyncio.run(main(parked=False))


def test_a_client_that_goes_between_two_turns_leaves_nothing() -> None:
    async def main() -> None:
        listener = Listener(pipelined=10)
        _, connection = listener.connect()
        connection.data_received(request("/x") * 50)
        connection.connection_lost(None)
        await asyncio.sleep(0)
        assert len(listener.seen) == 10
        assert not connection.parked

    asyncio.run(main())


def test_a_refusal_takes_its_turn() -> None:
    listener = Listener(answer_now=False, pipelined=1)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2") + b"garbage\r\n\r\n" + request("/3"))
    assert not wire.out
    listener.seen[0].answer(200, b"1")
    assert not wire.ended
    listener.seen[1].answer(200, b"2")
    assert [a.status for a in answers(wire.out)] == [200, 200, 501]
    assert wire.ended
    assert wire.reading  # for nothing, so that the answer is not lost
    assert len(listener.seen) == 2


METHODS = st.sampled_from(["GET", "POST", "PUT", "OPTIONS"])
BODIES = st.binary(max_size=40)


@dataclass
class Sent:
    """A request as bytes, and how the handler should see it."""

    raw: bytes
    seen: tuple[bytes, bytes, bytes, bytes]


@st.composite
def sent(draw: st.DrawFn) -> Sent:
    method, body = draw(METHODS), draw(BODIES)
    path, query = draw(st.sampled_from(["/", "/v2/models/m/infer", "/x%2f"])), draw(st.sampled_from(["", "a=b", "?"]))
    framing = draw(st.sampled_from(["length", "chunked", "trailers"]))
    target = f"{path}?{query}" if query else path
    tag = draw(st.sampled_from([b"", b"a", b"b" * 30]))
    head = f"{method} {target} HTTP/1.1\r\nHost: m\r\nX-Tag: ".encode() + tag + b"\r\n"
    if framing == "length":
        raw = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    else:
        cut = draw(st.integers(0, len(body)))
        chunks = b"".join(b"%x;ext\r\n%b\r\n" % (len(c), c) for c in (body[:cut], body[cut:]) if c)
        trailer = b"x-tag: from the trailer\r\nhost: x\r\n" if framing == "trailers" else b""
        raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"
    return Sent(raw, (method.encode(), path.encode(), query.encode(), tag + b"|" + body))


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges) if a < b]


@settings(max_examples=200)
@given(st.lists(sent(), min_size=1, max_size=6), st.lists(st.integers(0, 10_000), max_size=12), st.randoms())
def test_any_split_of_the_bytes_gives_the_same_exchanges(
    all_sent: list[Sent], cuts: list[int], chance: random.Random
) -> None:
    """Any order of answering gives the answers in the order of the requests."""
    listener = Listener(answer_now=False, pipelined=4)
    wire, connection = listener.connect()
    owed: list[Exchange] = []

    def answer_one() -> None:
        owed.extend(listener.seen[len(owed) + done :])
        exchange = owed.pop(chance.randrange(len(owed)))
        exchange.answer(200, exchange.headers[b"x-tag"] + b"|" + exchange.body)

    done = 0
    for piece in split(b"".join(one.raw for one in all_sent), cuts):
        connection.data_received(piece)
        if chance.random() < 0.3 and len(listener.seen) > done:
            answer_one()
            done += 1
    while done < len(all_sent):
        answer_one()
        done += 1
    assert [(e.method, e.path, e.query, e.headers[b"x-tag"] + b"|" + e.body) for e in listener.seen] == [
        one.seen for one in all_sent
    ]
    assert [(a.status, a.body) for a in answers(wire.out)] == [(200, one.seen[3]) for one in all_sent]
    assert wire.reading
    assert not wire.ended


# --- 100-continue


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    listener = Listener()
    wire, connection = listener.connect()
    connection.data_received(request(Expect="100-Continue", Content_Length="4"))
    assert wire.out == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.out.clear()
    connection.data_received(b"body")
    assert only(wire).body == b"body"


def test_continue_waits_for_earlier_answers() -> None:
    listener = Listener(answer_now=False)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2", Expect="100-continue", Content_Length="4"))
    assert not wire.out
    listener.sweep()
    listener.sweep(1000)  # it is not the client that is slow
    listener.seen[0].answer(200, b"1")
    first, end, rest = bytes(wire.out).partition(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answers(first)[0].body == b"1"
    assert end
    assert not rest


def test_continue_is_not_said_to_what_is_refused() -> None:
    too_large = Listener(body_bytes=3).ask(request(Expect="100-continue", Content_Length="4"))
    assert only(too_large).status == 413
    not_admitted = Listener(admit=lambda *_: (401, b"{}", b"")).ask(request(Expect="100-continue", Content_Length="4"))
    assert only(not_admitted).status == 401
    unknown = Listener().ask(request(Expect="a-miracle", Content_Length="4"))
    assert only(unknown).status == 417
    assert too_large.ended
    assert not_admitted.ended
    assert unknown.ended


def test_http_1_0_clients_do_not_know_continue() -> None:
    wire = Listener().ask(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nok")
    assert only(wire).body == b"ok"


# --- admission


def test_admit_sees_the_head_before_the_body_comes() -> None:
    asked: list[tuple[bytes, bytes, dict[bytes, bytes]]] = []

    def admit(method: bytes, path: bytes, headers: Any) -> Refusal | None:
        asked.append((method, path, dict(headers)))
        return None if path == b"/in" else (401, b'{"error": "no"}', b"www-authenticate: Bearer\r\n")

    listener = Listener(admit=admit)
    wire = listener.ask(request("/out?q", Content_Length="1000000"))
    assert (only(wire).status, only(wire).body) == (401, b'{"error": "no"}')
    assert only(wire).headers["www-authenticate"] == "Bearer"
    assert wire.ended
    assert asked == [(b"POST", b"/out", {b"host": b"mark", b"content-length": b"1000000"})]
    assert only(listener.ask(request("/in", b"x"))).status == 200
    assert len(listener.seen) == 1
    assert listener.server.counts.refused == {401: 1}


def test_a_refused_request_without_a_body_leaves_the_connection_open() -> None:
    listener = Listener(admit=lambda m, path, h: None if path == b"/in" else (403, b"{}", b""))
    wire = listener.ask(request("/out"), request("/in"), request("/out", Content_Length="0") + request("/in"))
    assert [a.status for a in answers(wire.out)] == [403, 200, 403, 200]
    assert not wire.ended
    wire = listener.ask(request("/out", Connection="close"))
    assert only(wire).status == 403
    assert wire.ended


# --- malformed requests, and building blocks of request smuggling

POST = b"POST / HTTP/1.1\r\nhost: m\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
MALFORMED = {
    "both lengths": POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, other order": POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "a length twice": POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"content-length: 3, 3\r\n\r\nabc",
    "signed length": POST + b"content-length: +3\r\n\r\nabc",
    "negative length": POST + b"content-length: -3\r\n\r\nabc",
    "hexadecimal length": POST + b"content-length: 0x3\r\n\r\nabc",
    "empty length": POST + b"content-length:\r\n\r\nabc",
    "length beyond 64 bits, behind zeros": POST + b"content-length: %b36893488147419103235\r\n\r\nabc" % (b"0" * 4400),
    "length beyond 64 bits": POST + b"content-length: 36893488147419103235\r\n\r\nabc",
    "chunked twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "not quite chunked": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "gzip and chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": b"POST / HTTP/1.0\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "blank before the colon": POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunk size not a number": CHUNKED + b"x\r\nabc\r\n0\r\n\r\n",
    "chunk size 0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size signed": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size beyond 64 bits": CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "chunk longer than said": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "bare LF after chunk size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "bare LF after chunk": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "bare LF in the head": b"GET / HTTP/1.1\r\nhost: m\nx: y\r\n\r\n",
    "bare LF everywhere": b"GET / HTTP/1.1\nhost: m\n\n",
    "bare CR in a header": b"GET / HTTP/1.1\r\nhost: m\rx: y\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nhost: m\0\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nhost: m\r\nx: a\r\n b\r\n\r\n",
    "blank before the first header": b"GET / HTTP/1.1\r\n host: m\r\n\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\nhost: m\r\nnonsense\r\n\r\n",
    "header without a name": b"GET / HTTP/1.1\r\nhost: m\r\n: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: m\r\nHost: m\r\n\r\n",
    "blank in the target": b"GET /a b HTTP/1.1\r\nhost: m\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nhost: m\r\n\r\n",
    "unknown version": b"GET / HTTP/1.7\r\nhost: m\r\n\r\n",
    "unknown method": b"EXPLODE / HTTP/1.1\r\nhost: m\r\n\r\n",
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS on a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused_and_ends_the_connection(name: str) -> None:
    """It is sent in one piece or byte by byte, and bytes that follow are not taken for a request."""
    raw = MALFORMED[name]
    for pieces in ([raw + request("/smuggled")], [raw[i : i + 1] for i in range(len(raw))] + [request("/smuggled")]):
        listener = Listener()
        wire = listener.ask(*pieces)
        assert only(wire).status in (400, 501), only(wire)
        assert b'"error"' in only(wire).body
        assert only(wire).headers["connection"] == "close"
        assert wire.ended
        assert not listener.seen


def test_trailers_are_not_headers_of_anything() -> None:
    listener = Listener()
    listener.ask(CHUNKED + b"0\r\nx-evil: 1\r\nhost: other\r\n\r\n" + request("/next"))
    assert [(e.path, b"x-evil" in e.headers, e.headers[b"host"]) for e in listener.seen] == [
        (b"/", False, b"m"),
        (b"/next", False, b"mark"),
    ]


# --- limits of size


def test_a_too_large_body_is_refused_before_it_arrives() -> None:
    listener = Listener(body_bytes=10)
    assert only(listener.ask(request("/", b"x" * 10))).status == 200
    wire, connection = listener.connect()
    connection.data_received(request(Content_Length="11"))
    assert only(wire).status == 413
    assert wire.ended
    connection.data_received(b"x" * 11 + request())  # read for nothing
    assert only(wire).status == 413
    assert len(listener.seen) == 1


def test_a_chunked_body_is_refused_where_it_becomes_too_large() -> None:
    listener = Listener(body_bytes=10)
    chunk = b"5\r\nhello\r\n"
    assert only(listener.ask(CHUNKED + chunk + chunk + b"0\r\n\r\n")).body == b"hello" * 2
    for pieces in (
        [CHUNKED + chunk * 2 + b"1\r\nx"],
        [CHUNKED, chunk, chunk, b"1\r\nx"],
        [CHUNKED + b"b\r\nhello world"],
    ):
        wire = listener.ask(*pieces)
        assert only(wire).status == 413
        assert wire.ended


def test_all_bodies_that_are_coming_have_a_limit_together() -> None:
    listener = Listener(gathered_bytes=100, answer_now=False)
    connections = [listener.connect() for _ in range(3)]
    for _, connection in connections:
        connection.data_received(request(Content_Length="60"))
        for _ in range(4):
            connection.data_received(b"x" * 13)  # the first piece is not counted
    refused, _ = connections[2]
    assert (only(refused).status, only(refused).headers["retry-after"]) == (503, "1")
    assert refused.ended
    connections[0][1].data_received(b"x" * 8)
    connections[1][1].connection_lost(None)
    assert [e.body for e in listener.seen] == [b"x" * 60]
    assert listener.server.gathered_bytes == 0


def test_a_target_that_is_too_long_is_refused() -> None:
    listener = Listener(target_bytes=10)
    assert only(listener.ask(request("/23456789?"))).status == 200
    for pieces in ([request("/" * 11)], [b"GET /23456", b"7890", b"1"]):
        wire = listener.ask(*pieces)
        assert only(wire).status == 414
        assert wire.ended


def test_headers_that_are_too_long_are_refused() -> None:
    listener = Listener(header_bytes=200)
    short, long = request(X="y" * 180), request(X="y" * 200)
    assert [only(listener.ask(short)).status, only(listener.ask(*split(short, [40, 90]))).status] == [200, 200]
    assert [only(listener.ask(long)).status, only(listener.ask(*split(long, [40, 90]))).status] == [431, 431]
    many = b"GET / HTTP/1.1\r\nhost: m\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(80)) + b"\r\n"
    assert only(listener.ask(many)).status == 431


def test_a_header_without_an_end_is_refused() -> None:
    listener = Listener(header_bytes=100, target_bytes=100)
    wire, connection = listener.connect()
    connection.data_received(b"GET / HTTP/1.1\r\nx: ")
    pieces = 0
    while not wire.ended:
        connection.data_received(b"y" * 50)
        pieces += 1
        assert pieces < 20
    assert only(wire).status == 431


def test_whole_requests_between_two_halves_are_no_head() -> None:
    """A read may begin and end in the middle of a head, and hold a thousand requests between."""
    listener = Listener(header_bytes=100, target_bytes=100, pipelined=1000)
    one = request()
    wire = listener.ask(one[:10], one[10:] + 100 * one + one[:10], one[10:])
    assert [answer.status for answer in answers(wire.out)] == [200] * 102
    assert not wire.ended


def test_connections_beyond_the_limit_are_told_so() -> None:
    listener = Listener(answer_now=False, connections=2)
    open_ = [listener.connect() for _ in range(2)]
    for _, connection in open_:
        connection.data_received(request("/slow"))
    wire = listener.ask(request())
    assert only(wire).status == 503
    assert only(wire).headers["retry-after"] == "1"
    assert wire.ended
    assert len(listener.seen) == 2
    wires = [listener.connect()[0] for _ in range(100)]
    assert wires[-1].aborted  # no effort for a flood
    assert len(listener.server.connections) > 2
    for connection in tuple(listener.server.connections):
        if connection is not open_[0][1]:
            connection.connection_lost(None)
    listener.answer_now = True
    assert only(listener.ask(request())).status == 200


def from_peer(listener: Listener, peer: str) -> tuple[Wire, Connection]:
    wire, connection = Wire(), Connection(listener.server)
    connection._peer = peer
    connection.connection_made(wire)
    return wire, connection


def test_the_peer_with_most_connections_makes_room_for_others() -> None:
    """Its oldest connection without a request under way is closed, whether idle or in the middle of a head or body."""
    listener = Listener(answer_now=False, connections=4)
    held = [from_peer(listener, "greedy") for _ in range(3)]
    other, _ = from_peer(listener, "other")
    held[0][1].data_received(request())
    held[1][1].data_received(b"POST / HT")
    for _ in range(2):
        honest, connection = from_peer(listener, "honest")
        connection.data_received(request())
        assert not honest.ended
    assert [wire.aborted for wire, _ in held] == [False, True, True]
    assert not other.ended
    assert len(listener.server.connections) == sum(map(len, listener.server.of_peer.values())) == 4
    refused, _ = from_peer(listener, "honest")  # all peers with most connections wait for their answers
    assert only(refused).status == 503


def test_a_content_type_said_twice_is_one() -> None:
    """If the two values differ, it is unknown which one holds."""
    twice = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: text/csv\r\ncontent-type: %b\r\ncontent-length: 1\r\n\r\n1"
    listener = Listener()
    assert only(listener.ask(twice % b"text/csv")).status == 200
    assert listener.seen[0].headers[b"content-type"] == b"text/csv"
    assert only(listener.ask(twice % b"text/plain")).status == 400


def test_a_header_repeated_again_and_again_is_refused() -> None:
    """Each repetition copies all earlier ones: 80 kB of them cost 28 ms."""
    listener = Listener()
    head = b"GET / HTTP/1.1\r\nhost: m\r\n" + b"a:\r\n" * 100 + b"\r\n"
    assert only(listener.ask(head)).status == 200
    assert only(listener.ask(head.replace(b"a:\r\n", b"a:\r\n" * 2))).status == 431


def test_a_peer_makes_no_room_for_its_own_connections() -> None:
    """A load balancer may have all connections, and may be sending on the one that would be cut."""
    listener = Listener(connections=2)
    held = [from_peer(listener, "balancer") for _ in range(2)]
    refused, _ = from_peer(listener, "balancer")
    assert only(refused).status == 503
    assert not any(wire.ended for wire, _ in held)


def test_lingering_and_unread_connections_make_room_before_active_ones() -> None:
    listener = Listener(connections=3, unread_bytes=1, pipelined=1)
    refused, garbage = from_peer(listener, "greedy")
    garbage.data_received(b"\0\0\0\0\r\n\r\n")
    assert refused.eof  # told so, and read for nothing until it closes
    unread, blocked = from_peer(listener, "greedy")
    blocked.pause_writing()
    blocked.data_received(request() * 3)
    coming, half = from_peer(listener, "greedy")
    half.data_received(request(body=b"x" * 100)[:-50])
    for cut in (refused, unread):
        assert not cut.aborted
        honest, connection = from_peer(listener, "honest")
        connection.data_received(request())
        assert only(honest).status == 200
        assert cut.aborted
        connection.connection_lost(None)
        from_peer(listener, "greedy")  # idle
    for _ in range(2):  # idle
        listener.server.make_room("other")
        assert not coming.aborted
    listener.server.make_room("other")
    assert coming.aborted
    assert not listener.server.connections
    assert not listener.server.of_peer


def test_refusals_of_pipelined_requests_leave_the_loop_to_others_too() -> None:
    async def main() -> None:
        listener = Listener(pipelined=10, admit=lambda *_: (401, b"{}", b""))
        wire, connection = listener.connect()
        connection.data_received(request() * 100)
        assert len(answers(wire.out)) == 10
        while len(answers(wire.out)) < 100:
            await asyncio.sleep(0)
        assert wire.reading

    asyncio.run(main())


def test_limits_are_checked() -> None:
    with pytest.raises(BadInput, match=r"limits\.body_bytes"):
        HttpLimits(body_bytes=0)
    with pytest.raises(BadInput, match=r"limits\.idle_timeout_s"):
        HttpLimits(idle_timeout_s=float("nan"))


# --- limits of time


def test_a_head_that_takes_too_long_is_cut() -> None:
    listener = Listener(header_timeout_s=5)
    wire, connection = listener.connect()
    connection.data_received(request() + b"GET /slow HTTP/1.1\r\n")
    listener.sweep()
    for _ in range(4):
        connection.data_received(b"x: y\r\n")  # a byte now and then does not help
        listener.sweep(1.2)
    assert not wire.ended
    connection.data_received(b"x: y\r\n")
    listener.sweep(0.3)
    assert [a.status for a in answers(wire.out)] == [200, 408]
    assert wire.ended


def test_a_body_must_come_at_a_minimum_rate() -> None:
    listener = Listener(body_timeout_s=5, bytes_per_s_min=100, body_bytes=10_000)
    slow, fast = listener.connect(), listener.connect()
    for _, connection in (slow, fast):
        connection.data_received(request(Content_Length="10000"))
    listener.sweep()
    for _ in range(9):
        slow[1].data_received(b"x" * 20)
        fast[1].data_received(b"x" * 110)
        listener.sweep(1.0)
    assert only(slow[0]).status == 408
    assert slow[0].ended
    assert not fast[0].out
    fast[1].data_received(b"x" * (10_000 - 9 * 110))
    assert only(fast[0]).status == 200


def test_idle_connections_are_closed_busy_ones_are_not() -> None:
    listener = Listener(answer_now=False, idle_timeout_s=60, header_timeout_s=5)
    silent, (idle, connection), waiting = listener.connect()[0], listener.connect(), listener.ask(request())
    connection.data_received(request())
    listener.seen[1].answer(200, b"")
    listener.sweep()
    listener.sweep(5)
    assert silent.ended  # never said anything
    listener.sweep(54)
    assert not idle.ended
    connection.data_received(request())
    listener.seen[2].answer(200, b"")
    listener.sweep(1)
    listener.sweep(59)
    assert not idle.ended  # it was used in between
    listener.sweep(1)
    assert idle.ended
    listener.sweep(1000)
    assert not waiting.ended  # the answer is ours to give


def test_time_that_we_do_not_read_is_not_the_clients() -> None:
    listener = Listener(answer_now=False, pipelined=1, header_timeout_s=5)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2") + b"GET /3")
    for _ in range(3):
        listener.sweep(100)
    assert not wire.ended
    listener.seen[0].answer(200, b"")
    listener.seen[1].answer(200, b"")
    assert wire.reading
    listener.sweep(4.9)
    connection.data_received(b" HTTP/1.1\r\nhost: m\r\n\r\n")
    listener.seen[2].answer(200, b"")
    assert [a.status for a in answers(wire.out)] == [200, 200, 200]


def test_a_client_that_never_reads_is_paused_and_then_cut() -> None:
    listener = Listener(answer_timeout_s=5, bytes_per_s_min=100)
    wire, connection = listener.connect()
    connection.data_received(request("/1"))
    wire.unread = 1000
    connection.pause_writing()
    assert not wire.reading
    connection.data_received(request("/2"))  # was on its way
    assert len(listener.seen) == 1
    listener.sweep()
    listener.sweep(14.9)  # 5 s and 1000 bytes at 100 bytes/s
    assert not wire.aborted
    connection.resume_writing()
    assert len(listener.seen) == 2
    assert wire.reading
    connection.pause_writing()
    listener.sweep(10)  # a new count
    listener.sweep(14.9)
    assert not wire.aborted
    listener.sweep(0.2)
    assert wire.aborted
    assert listener.server.counts.cut == 1


def test_a_refused_client_that_keeps_sending_is_cut() -> None:
    listener = Listener(answer_timeout_s=5, body_bytes=1)
    wire, connection = listener.connect()
    connection.data_received(request(Content_Length="1000000"))
    assert wire.eof
    assert wire.reading
    assert not wire.closing
    listener.sweep()
    connection.data_received(b"x" * 1000)
    listener.sweep(5)
    assert wire.aborted


def test_the_date_is_renewed_by_the_sweep() -> None:
    listener = Listener()
    listener.ask(request())
    assert listener.server.heads
    listener.sweep()
    assert not listener.server.heads


# --- the drain, without a socket


def test_a_drain_closes_idle_connections_and_each_after_its_answer() -> None:
    listener = Listener(answer_now=False, drain_idle_s=1, idle_timeout_s=60)
    busy, idle, (late, connection) = (
        listener.ask(request("/1") + request("/2")),
        listener.connect()[0],
        listener.connect(),
    )
    listener.sweep()
    listener.sweep(9)
    listener.server.stop_listening()
    listener.sweep(0.5)
    listener.sweep(0.5)
    assert not idle.ended  # a client may have sent something just now, or turn to it as its other connections end
    connection.data_received(request("/late"))
    listener.sweep(0.5)
    assert idle.ended
    for exchange in listener.seen:
        exchange.answer(200, b"")
    assert [a.headers["connection"] for a in answers(busy.out)] == ["keep-alive", "close"]
    assert only(late).headers["connection"] == "close"
    assert busy.ended
    assert late.ended


def test_no_request_is_taken_behind_the_last_answer() -> None:
    """The second of two is answered first, with close. A request after it would be accepted and never answered."""
    listener = Listener(answer_now=False)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2"))
    listener.server.stop_listening()
    listener.seen[1].answer(200, b"2")
    connection.data_received(request("/3"))
    assert len(listener.seen) == 2
    listener.seen[0].answer(200, b"1")
    assert [(a.body, a.headers["connection"]) for a in answers(wire.out)] == [(b"1", "keep-alive"), (b"2", "close")]
    assert wire.ended


def test_a_request_half_read_at_the_drain_is_served() -> None:
    listener = Listener(answer_now=False)
    wire, connection = listener.connect()
    connection.data_received(request("/1") + request("/2", Content_Length="4") + b"bo")
    listener.server.stop_listening()
    listener.seen[0].answer(200, b"1")
    assert not wire.ended
    connection.data_received(b"dy")
    listener.seen[1].answer(200, b"2")
    assert [(a.body, a.headers["connection"]) for a in answers(wire.out)] == [(b"1", "keep-alive"), (b"2", "close")]
    assert wire.ended


# --- garbage


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60), st.sampled_from([*MALFORMED.values(), CHUNKED, request(), request("/", b"b")])
        )
    )
)
def test_whatever_comes_is_answered_by_http_or_not_at_all(pieces: list[bytes]) -> None:
    listener = Listener()
    wire = listener.ask(*pieces)
    for answer in answers(wire.out):
        assert answer.status in (200, 400, 413, 414, 431, 501, 505, 417)
    assert len(listener.seen) == sum(a.status == 200 for a in answers(wire.out))
    assert only(listener.ask(request("/", b"alive"))).body == b"alive"


# --- real sockets

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a runner of a test's coroutine on a plain loop and on uvloop, at most a minute.

    An error that a loop only logs fails the test.
    """
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def go(main: Coroutine[Any, Any, None]) -> None:
        errors: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            async with asyncio.timeout(60):
                await main

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(watched())
        assert not errors

    return go


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, raw: bytes) -> Answer:
        self.writer.write(raw)
        return await self.answer()

    async def answer(self) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        (answer,) = answers(head, head=True)
        answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        return answer

    async def rest(self) -> bytes:
        """Read until the server closes."""
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


@dataclass
class Live:
    """A server on a port that echoes or, if `hold` is set, keeps requests in `held`."""

    server: HttpServer
    port: int = 0
    hold: bool = False
    held: list[Exchange] = field(default_factory=list)

    def handle(self, exchange: Exchange) -> None:
        if self.hold:
            self.held.append(exchange)
        else:
            exchange.answer(200, exchange.body)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def __aenter__(self) -> Live:
        self.port = await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close(0)


def live(**limits: Any) -> Live:
    made = Live(HttpServer(lambda e: made.handle(e), HttpLimits(**{"sweep_s": QUIET, **limits})))
    return made


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until the condition holds."""
    while not condition():
        await asyncio.sleep(0)


def test_requests_over_a_socket(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            client = await listener.connect()
            for body in (b"", b"one", b"x" * 3_000_000):
                assert (await client.ask(request("/", body))).body == body
            client.writer.write(request("/", b"1") + request("/", b"2"))
            assert [(await client.answer()).body, (await client.answer()).body] == [b"1", b"2"]
            client.close()
            await until(lambda: not listener.server.connections)

    run(main())


def test_connections_in_the_backlog_are_served_before_closing(run: Run) -> None:
    """Connected while the loop was busy, and sent already."""

    async def main() -> None:
        async with live() as listener:
            waiting = [socket.create_connection(("127.0.0.1", listener.port), 10) for _ in range(20)]
            for one in waiting:
                one.sendall(request("/", b"body"))
            await listener.server.let_in()
            listener.server.stop_listening()
            for one in waiting:
                with one:
                    said = await asyncio.to_thread(one.recv, 65536)
                    assert [answer.body for answer in answers(said)] == [b"body"]

    run(main())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can let a listener's queue run dry")
def test_a_connection_during_the_close_is_answered_or_refused(run: Run) -> None:
    """It is never reset once connected: an accepted request has an answer, and a later client can go elsewhere.

    Handshakes have five seconds. If the machine starves its network for that long, connecting ends with a reset instead
    of a refusal. Either way nothing was sent.
    """

    def connect_until_refused(port: int, answered: list[bytes]) -> None:
        while True:
            try:
                one = socket.create_connection(("127.0.0.1", port), 60)
            except (ConnectionRefusedError, ConnectionResetError):
                return
            with one:
                one.sendall(request("/", b"body"))
                answered.append(one.recv(65536))

    async def main() -> None:
        answered: list[bytes] = []
        async with live(handshake_s=5.0) as listener, asyncio.TaskGroup() as clients:
            for _ in range(8):
                clients.create_task(asyncio.to_thread(connect_until_refused, listener.port, answered))
            await until(lambda: len(answered) > 20)
            await listener.server.let_in()
            listener.server.stop_listening()
        assert all(answered)

    run(main())


@pytest.mark.parametrize("turns", range(8))
def test_a_connection_made_while_closing_is_owned(run: Run, tmp_path: Path, turns: int) -> None:
    """It may come in any turn of the loop; a plain loop closed between accepting and owning it would drop it."""

    async def main() -> None:
        async with live(handshake_s=1e-9) as listener:
            where = str(tmp_path / "listener")
            await listener.server.start_unix(where)

            async def close() -> None:
                await listener.server.let_in()
                listener.server.stop_listening()

            closing = asyncio.create_task(close())
            for _ in range(turns):
                await asyncio.sleep(0)
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(60)
                if not closing.done():
                    one.connect(where)
                    one.sendall(request("/", b"body"))
                    assert [answer.body for answer in answers(await asyncio.to_thread(one.recv, 65536))] == [b"body"]
                await closing

    run(main())


def test_httpx_finds_nothing_odd(run: Run) -> None:
    async def main() -> None:
        async with live() as listener, httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}") as client:

            async def chunks() -> Any:
                for _ in range(3):
                    yield b"chunk"

            assert (await client.post("/", content=b"body")).content == b"body"
            assert (await client.post("/", content=chunks())).content == b"chunk" * 3
            assert (await client.head("/")).status_code == 200
            many = await asyncio.gather(*(client.post("/", content=b"%d" % i) for i in range(50)))
            assert [int(one.content) for one in many] == list(range(50))

    run(main())


def test_the_peer_is_the_clients_address(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            listener.hold = True
            client = await listener.connect()
            client.writer.write(request())
            await until(lambda: listener.held)
            assert listener.held[0].peer == "127.0.0.1"
            listener.held[0].answer(200, b"")
            client.close()

    run(main())


def test_a_client_still_sending_gets_its_refusal(run: Run) -> None:
    """A socket closed on unread bytes would reset the connection, and the client would lose the answer."""

    async def main() -> None:
        async with live(body_bytes=1000) as listener:
            client = await listener.connect()
            client.writer.write(request(Content_Length="8000000"))
            client.writer.write(b"x" * 8_000_000)
            await client.writer.drain()
            assert (await client.answer()).status == 413
            assert await client.rest() == b""
            client.close()
            await until(lambda: not listener.server.connections)

    run(main())


def test_a_client_that_does_not_read_is_cut(run: Run) -> None:
    """Its answers fill the buffers, then its requests are neither read nor answered, and the sweep closes it."""

    async def main() -> None:
        async with live(answer_timeout_s=5, bytes_per_s_min=1e6) as listener:
            client = await listener.connect()
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            body = b"x" * 1_000_000
            asking = asyncio.ensure_future(flood(client, request("/", body)))
            await until(lambda: any(c.blocked for c in listener.server.connections))
            (connection,) = listener.server.connections
            assert connection.transport is not None
            unread = connection.transport.get_write_buffer_size()
            assert unread < 4 * len(body)
            listener.server.sweep(0.0)
            listener.server.sweep(4.9)
            assert listener.server.connections
            listener.server.sweep(6.0 + unread / 1e6)
            await until(lambda: not listener.server.connections)
            assert listener.server.counts.cut == 1
            client.close()
            await asyncio.gather(asking, return_exceptions=True)

    async def flood(client: Client, raw: bytes) -> None:
        for _ in range(30):
            client.writer.write(raw)
            await client.writer.drain()

    run(main())


def test_a_client_that_resets_leaves_nothing_behind(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            listener.hold = True
            client = await listener.connect()
            client.writer.write(request())
            await until(lambda: listener.held)
            raw: socket.socket = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
            await until(lambda: not listener.server.connections)
            assert listener.held[0].gone
            listener.held[0].answer(200, b"")
            assert listener.server.counts.dropped_answers == 1

    run(main())


def test_an_answer_to_a_connection_just_lost_disturbs_nothing(run: Run) -> None:
    """A batch that answers many clients must not be disturbed by the loss of one."""

    async def main() -> None:
        async with live() as listener:
            listener.hold = True
            client = await listener.connect()
            client.writer.write(request("/1") + request("/2"))
            await until(lambda: len(listener.held) == 2)
            (connection,) = listener.server.connections
            assert connection.transport is not None
            connection.transport.abort()
            assert listener.server.connections
            for exchange in reversed(listener.held):
                exchange.answer(200, b"")
            await until(lambda: not listener.server.connections)
            client.close()

    run(main())


def test_close_answers_what_was_asked_and_accepts_no_more(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            idle, busy = await listener.connect(), await listener.connect()
            assert (await idle.ask(request())).status == 200
            listener.hold = True
            busy.writer.write(request("/", b"asked"))
            await until(lambda: listener.held)
            closing = asyncio.ensure_future(listener.server.close(10))
            assert await idle.rest() == b""
            with pytest.raises(ConnectionError):
                await listener.connect()
            assert not closing.done()
            listener.held[0].answer(200, b"answered")
            answer = await busy.answer()
            assert (answer.body, answer.headers["connection"]) == (b"answered", "close")
            await closing
            assert await busy.rest() == b""
            for client in (idle, busy):
                client.close()

    run(main())


def test_close_waits_no_longer_than_it_may(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            listener.hold = True
            client = await listener.connect()
            client.writer.write(request())
            await until(lambda: listener.held)
            await listener.server.close(0.01)
            with suppress(ConnectionError):
                assert await client.rest() == b""
            await until(lambda: not listener.server.connections)
            client.close()

    run(main())


def test_the_sweep_runs_by_itself(run: Run) -> None:
    async def main() -> None:
        async with live(sweep_s=0.01, header_timeout_s=0.02) as listener:
            client = await listener.connect()
            client.writer.write(b"GET / HTTP/1.1\r\n")
            assert (await client.answer()).status == 408
            client.close()

    run(main())


def test_two_servers_share_no_port(run: Run) -> None:
    async def main() -> None:
        async with live() as listener:
            with pytest.raises(BadInput, match=f"cannot listen.*127.0.0.1:{listener.port}"):
                await live().server.start("127.0.0.1", listener.port)

    run(main())


def test_a_unix_socket(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with live() as listener:
            listener.hold = True
            await listener.server.start_unix(str(tmp_path / "listener"))
            client = Client(*await asyncio.open_unix_connection(str(tmp_path / "listener")))
            client.writer.write(request("/", b"local"))
            await until(lambda: listener.held)
            assert listener.held[0].peer == ""
            listener.held[0].answer(200, b"local")
            assert (await client.answer()).body == b"local"
            client.close()

    run(main())


def test_after_garbage_from_many_sides_the_server_still_answers(run: Run) -> None:
    chance = random.Random(5)
    templates = [*MALFORMED.values(), request("/", b"body" * 10), CHUNKED + b"4\r\nbody\r\n0\r\n\r\n"]

    def garbage() -> bytes:
        raw = bytearray(chance.choice(templates) * chance.randrange(1, 4))
        for _ in range(chance.randrange(6)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        return bytes(raw[: chance.randrange(len(raw)) + 1]) if chance.random() < 0.3 else bytes(raw)

    async def one(listener: Live) -> None:
        client = await listener.connect()
        client.writer.write(garbage())
        if chance.random() < 0.5:
            client.writer.write_eof()
            await client.rest()
        client.close()

    async def quietly(doing: Awaitable[None]) -> None:
        with suppress(ConnectionError):  # the server may well reset
            await doing

    async def main() -> None:
        async with live() as listener:
            for _ in range(10):
                await asyncio.gather(*(quietly(one(listener)) for _ in range(20)))
            client = await listener.connect()
            assert (await client.ask(request("/", b"alive"))).body == b"alive"
            client.close()
            await until(lambda: not listener.server.connections)

    run(main())
