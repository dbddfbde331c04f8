"""The client side of the gateway: server bytes are fed to a connection directly; real sockets come last."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.serving.frontend.tls import TlsFiles
from mark.serving.overflow.http_client import (
    Address,
    Asker,
    CallFailure,
    ClientConnection,
    Failure,
    HttpAnswer,
    Reach,
    Upstream,
)
from tests.serving.conftest import Run
from tests.serving.fake_replicas import CLOSE, RESET, FakeReplica, said

REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\nhi"


class Wire(asyncio.Transport):
    """A transport whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.aborted = False
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.out += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Heard:
    """The outcomes that were told, by tag; each tag is told once."""

    def __init__(self) -> None:
        self.by_tag: dict[str, HttpAnswer | tuple[bool, str]] = {}
        self.kinds: dict[str, Failure] = {}
        self.more = asyncio.Event()

    def answered(self, tag: str, answer: HttpAnswer) -> None:
        assert tag not in self.by_tag
        self.by_tag[tag] = answer
        self.more.set()

    def failed(self, tag: str, began: bool, why: CallFailure) -> None:
        assert tag not in self.by_tag
        self.by_tag[tag] = (began, why.text)
        self.kinds[tag] = why.kind
        self.more.set()

    def answer(self, tag: str = "1") -> HttpAnswer:
        heard = self.by_tag[tag]
        assert isinstance(heard, HttpAnswer), heard
        return heard

    def failure(self, tag: str = "1") -> tuple[bool, str]:
        heard = self.by_tag[tag]
        assert isinstance(heard, tuple)
        return heard

    async def until(self, *tags: str) -> None:
        while not self.by_tag.keys() >= set(tags):
            self.more.clear()
            await self.more.wait()


_: type[Asker[str]] = Heard


class Bench:
    """An upstream with one connection whose other end is the test, and a request "1" on it."""

    def __init__(self, **reach: Any) -> None:
        self.now_s = 0.0
        self.heard = Heard()
        loop: Any = None  # no dial, no loop
        self.upstream: Upstream[str] = Upstream(
            Address.of("http://127.0.0.1:1"), self.heard, Reach(**reach), loop, lambda: self.now_s
        )
        self.connection, self.wire = self.connect("1")

    def connect(self, tag: str | None = None) -> tuple[ClientConnection[str], Wire]:
        connection, wire = ClientConnection(self.upstream), Wire()
        connection.tag = tag
        connection.unsent = REQUEST if tag else b""
        connection.connection_made(wire)
        return connection, wire

    def hears(self, *pieces: bytes, end: bool = False) -> Bench:
        for piece in pieces:
            self.connection.data_received(piece)
        if end:
            self.connection.connection_lost(None)
        return self

    @property
    def kept(self) -> bool:
        return self.upstream.idle == [self.connection] and not self.wire.aborted


# --- answers


def test_an_answer_keeps_all_but_hop_by_hop_headers() -> None:
    bench = Bench().hears(
        said(429, b"busy", "Content-Type: text/plain", "Retry-After: 3", "Date: today", "Mark-Answered-By: cache",
             "Keep-Alive: 5", "Connection: keep-alive, x-hop", "X-Hop: 1", "X-Request-Id: theirs")
    )  # fmt: skip
    answer = bench.heard.answer()
    assert (answer.status, answer.content_type, answer.body) == (429, b"text/plain", b"busy")
    assert answer.headers == b"retry-after: 3\r\nmark-answered-by: cache\r\n"
    assert bench.wire.out == REQUEST
    assert bench.kept


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"


@given(cuts=st.lists(st.integers(1, len(CHUNKED) - 1), unique=True))
def test_it_may_come_in_any_pieces(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(CHUNKED)]
    bench = Bench().hears(*(CHUNKED[a:b] for a, b in itertools.pairwise(ends)))
    assert bench.heard.answer().body == b"abcde"
    assert bench.kept


def test_what_is_said_before_the_answer_is_not_the_answer() -> None:
    bench = Bench().hears(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + said(200, b"x"))
    assert (bench.heard.answer().body, bench.heard.answer().headers) == (b"x", b"")


def test_an_answer_without_a_length_lasts_until_the_server_closes() -> None:
    bench = Bench().hears(b"HTTP/1.0 200 OK\r\n\r\nab", b"c", end=True)
    assert bench.heard.answer().body == b"abc"
    assert not bench.kept


def test_an_answer_without_a_body() -> None:
    bench = Bench().hears(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (bench.heard.answer().status, bench.heard.answer().body) == (204, b"")
    assert bench.kept


@pytest.mark.parametrize(
    "answer",
    [
        said(200, b"x", "connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx",
        said(200, b"x") + said(200, b"y"),
        said(200, b"x") + b"nonsense",
    ],
)
def test_a_connection_with_close_or_extra_data_is_not_kept(answer: bytes) -> None:
    bench = Bench().hears(answer)
    assert bench.heard.answer().body == b"x"
    assert not bench.upstream.idle
    assert bench.wire.aborted


def test_a_connection_with_a_partly_unsent_request_is_not_kept() -> None:
    """The server answered a large body before its end (413, say)."""
    bench = Bench()
    bench.wire.unsent = 10
    assert bench.hears(said(413)).heard.answer().status == 413
    assert not bench.kept


@pytest.mark.parametrize(
    ("pieces", "began", "why"),
    [
        ((), False, "closed the connection"),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",), True, "closed the connection"),
        ((b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nab",), True, "closed the connection"),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",), True, "closed the connection"),
        ((b"HTTP/1.1 2",), True, "closed the connection"),
        ((b"SSH-2.0-x\r\n",), True, "gave an answer that is not HTTP"),
        (
            (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",),
            True,
            "gave an answer that is not HTTP",
        ),
        ((b"HTTP/1.1 101 X\r\nupgrade: h2\r\nconnection: upgrade\r\n\r\n",), True, "switched protocols"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 101), True, "answered more than 100 bytes"),
        ((b"HTTP/1.1 200 OK\r\nx: ", b"y" * 300), True, "answered a head that is too long"),
    ],
)
def test_what_is_no_answer_is_a_failure(pieces: tuple[bytes, ...], began: bool, why: str) -> None:
    bench = Bench(answer_bytes=100, head_bytes=200)
    bench.hears(*pieces, end=True)
    assert bench.heard.failure()[0] == began
    assert why in bench.heard.failure()[1]
    kinds = {"closed the connection": Failure.CLOSED, "answered more than 100 bytes": Failure.TOO_LARGE}
    assert bench.heard.kinds["1"] is kinds.get(why, Failure.UNUSABLE)
    assert not bench.upstream.idle
    assert not bench.upstream.connections


def test_connections_are_reused_newest_first() -> None:
    bench = Bench().hears(said(200, b"x"))
    other, wire = bench.connect()
    assert bench.upstream.ask("2", b"second") is other
    assert wire.out == b"second"
    assert bench.upstream.ask("3", b"third") is bench.connection
    bench.hears(said(200, b"z"))
    assert bench.heard.answer("3").body == b"z"


def test_connection_made_after_the_time_limit_is_not_used() -> None:
    class Expired:
        def expired(self) -> bool:
            return True

    bench = Bench().hears(said(200, b"x"))
    late, wire = ClientConnection(bench.upstream), Wire()
    late.tag, late.unsent, late.dialling = "2", REQUEST, cast(Any, Expired())
    late.connection_made(wire)
    assert (wire.out, late.transport) == (b"", None)
    assert bench.upstream.connections == {bench.connection}


def test_an_unsolicited_answer_ends_the_connection() -> None:
    bench = Bench().hears(said(200, b"x"), b"HTTP/1.1 408 Too late\r\n\r\n")
    assert not bench.upstream.idle
    assert bench.wire.aborted


def test_all_answers_that_are_coming_have_a_limit_together() -> None:
    """Room is made when an answer ends, when it fails, and when its connection is lost."""
    bench = Bench(gathered_bytes=100)
    (second, _), (third, wire) = bench.connect("2"), bench.connect("3")
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n32\r\n" + b"x" * 50
    bench.hears(endless)
    second.data_received(endless)
    assert bench.upstream.gathered.bytes == 100
    third.data_received(endless)
    assert "100 bytes are coming at once" in bench.heard.failure("3")[1]
    assert wire.aborted
    bench.hears(b"\r\n0\r\n\r\n")
    assert bench.heard.answer("1").body == b"x" * 50
    second.connection_lost(None)
    third.connection_lost(None)
    assert bench.upstream.gathered.bytes == 0
    assert bench.upstream.ask("4", REQUEST) is bench.connection
    bench.hears(said(200, b"y" * 100))
    assert bench.heard.answer("4").body == b"y" * 100


def test_an_answer_with_anothers_id_is_none() -> None:
    """This works with a server that echoes ids; answers of a server that makes its own ids cannot be checked."""
    bench = Bench().hears(said(200, b"x", "x-request-id: its-own"))
    bench.upstream.ask("2", REQUEST, b"two")
    bench.hears(said(200, b"x", "x-request-id: its-own"))
    bench.upstream.ask("3", REQUEST, b"three")
    bench.hears(said(200, b"x", "x-request-id: three"))
    bench.upstream.ask("4", REQUEST, b"four")
    bench.hears(said(429))  # says none
    assert [bench.heard.answer(tag).status for tag in "1234"] == [200, 200, 200, 429]
    bench.upstream.ask("5", REQUEST, b"five")
    bench.hears(said(200, b"x", "x-request-id: three"))
    assert bench.heard.failure("5") == (False, "answered another request")
    assert bench.wire.aborted
    assert bench.upstream.unasked == 1


def test_a_cancelled_requests_answer_is_dropped() -> None:
    bench = Bench()
    bench.upstream.cancel(bench.connection, "2")
    assert not bench.wire.aborted  # another request has the connection
    bench.upstream.cancel(bench.connection, "1")
    assert bench.wire.aborted
    bench.hears(said(200), end=True)
    assert bench.heard.by_tag == {}
    assert not bench.upstream.connections


def test_idle_connections_are_closed_in_time() -> None:
    bench = Bench(keep_s=30.0).hears(said(200))
    bench.now_s = 29.0
    bench.upstream.sweep()
    assert bench.kept
    bench.now_s = 31.0
    young, wire = bench.connect()
    bench.upstream.sweep()
    assert bench.upstream.idle == [young]
    assert (bench.wire.aborted, wire.aborted) == (True, False)


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "https://a.b-c.d:443", "http://[::1]:8080"])
def test_addresses(url: str) -> None:
    address = Address.of(url)
    assert address.url == url
    assert address.authority.decode() == url.split("//")[1]
    assert address.host == url.split("//")[1].rpartition(":")[0].strip("[]")


@pytest.mark.parametrize(
    "url",
    ["", "a:80", "http://a", "http://a:80/", "http://a:80/x", "http://a:80?x", "http://u:p@a:80", "ftp://a:80",
     "http://:80", "http://a:0", "http://a:99999", "http://a:x", "http://a b:80", "http://a\r\nx:80", "http://ä:80",
     "http://[::1:80", "HTTP://a:80", "http://[::1%25lo]:80"],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput, match="a replica is http://host:port"):
        Address.of(url)


# --- over sockets


def reaching(url: str, **reach: Any) -> tuple[Upstream[str], Heard]:
    heard = Heard()
    return Upstream(Address.of(url), heard, Reach(**reach), asyncio.get_running_loop()), heard


def test_connections_are_kept_and_as_many_as_are_needed(run: Run) -> None:
    async def main() -> None:
        replica = await FakeReplica().start()
        upstream, heard = reaching(replica.url)
        for tag in "123":
            upstream.ask(tag, REQUEST)
            await heard.until(tag)
        assert replica.connections == 1
        for tag in "456":
            upstream.ask(tag, REQUEST)
        await heard.until(*"456")
        assert replica.connections == 3
        assert [heard.answer(tag).body for tag in "123456"] == [b"hi"] * 6
        upstream.close()
        await replica.stop()

    run(main())


def test_a_server_that_is_not_there_or_does_not_answer(run: Run) -> None:
    async def main() -> None:
        replica = await FakeReplica(lambda asked: CLOSE).start()
        upstream, heard = reaching(replica.url)
        upstream.ask("closes", REQUEST)
        await heard.until("closes")
        replica.then = lambda asked: RESET
        upstream.ask("resets", REQUEST)
        await heard.until("resets")
        await replica.stop()
        upstream.ask("refuses", REQUEST)
        await heard.until("refuses")
        assert [heard.failure(tag)[0] for tag in ("closes", "resets", "refuses")] == [False] * 3
        assert "cannot be reached" in heard.failure("refuses")[1]
        assert heard.kinds["refuses"] is Failure.UNREACHED
        assert not upstream.connections

    run(main())


def test_a_kept_connection_that_the_server_closed_is_not_used(run: Run) -> None:
    async def main() -> None:
        replica = await FakeReplica().start()
        upstream, heard = reaching(replica.url)
        upstream.ask("1", REQUEST)
        await heard.until("1")
        replica.hang_up()
        while upstream.idle:
            await asyncio.sleep(0)
        upstream.ask("2", REQUEST)
        await heard.until("2")
        assert heard.answer("2").body == b"hi"
        upstream.close()
        await replica.stop()

    run(main())


def test_connection_made_just_before_the_time_limit_is_kept(run: Run) -> None:
    """uvloop closed such a connection without a word, and the next request on it raised "the handler is closed"."""

    async def main() -> None:
        replica = await FakeReplica().start()
        limit_s, stalls_until_s = 0.1, time.monotonic() + 0.15

        def stalling() -> float:  # is called when the connection is made
            while time.monotonic() < stalls_until_s:
                pass
            return time.monotonic()

        heard = Heard()
        reach = Reach(connect_timeout_s=limit_s)
        upstream = Upstream(Address.of(replica.url), heard, reach, asyncio.get_running_loop(), stalling)
        upstream.cancel(upstream.ask("never", REQUEST), "never")
        while not upstream.idle:
            await asyncio.sleep(0)
        for _ in range(10):  # turns in which the time limit would take effect
            await asyncio.sleep(0)
        upstream.ask("1", REQUEST)
        await heard.until("1")
        connections = replica.connections
        upstream.close()
        await replica.stop()
        assert heard.answer("1").body == b"hi"
        assert connections == 1

    run(main())


def test_closing_fails_requests_under_way_and_cancelled_dials_idle(run: Run) -> None:
    async def main() -> None:
        replica = await FakeReplica(held=asyncio.Event()).start()
        upstream, heard = reaching(replica.url)
        upstream.cancel(upstream.ask("never", REQUEST), "never")
        while not upstream.idle:
            await asyncio.sleep(0)
        assert replica.asked == []
        upstream.ask("1", REQUEST)
        await replica.came.wait()
        upstream.close()
        upstream.ask("2", REQUEST)
        await heard.until("1", "2")
        assert heard.failure("1")[0] is False
        await replica.left.wait()
        assert replica.gone == 1
        await replica.stop()
        assert "never" not in heard.by_tag

    run(main())


def test_tls_is_spoken_only_with_a_trusted_authority(run: Run, tmp_path: Path) -> None:
    ca = trustme.CA()
    files = TlsFiles(tmp_path / "r.pem", tmp_path / "r.key")
    leaf = ca.issue_cert("localhost")
    leaf.private_key_pem.write_to_path(files.key)
    files.certificate.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)

    async def main() -> None:
        replica = await FakeReplica().start(files.context())
        upstream, heard = reaching(replica.url, tls=trusting)
        for tag in "12":
            upstream.ask(tag, REQUEST)
            await heard.until(tag)
            assert heard.answer(tag).body == b"hi"
        assert replica.connections == 1
        stranger, heard_no = reaching(replica.url)
        stranger.ask("1", REQUEST)
        await heard_no.until("1")
        assert heard_no.failure("1")[0] is False
        assert len(replica.asked) == 2
        upstream.close()
        await replica.stop()

    run(main())


def test_connecting_has_a_time_limit(run: Run) -> None:
    """The server accepts the connection and is silent to the TLS client."""

    async def main() -> None:
        left = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            left.set()

        listener = await asyncio.start_server(silent, "127.0.0.1", 0)
        upstream, heard = reaching(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", connect_timeout_s=0.05)
        upstream.ask("1", REQUEST)
        await heard.until("1")
        assert heard.failure("1") == (False, "cannot be reached (TimeoutError)")
        await left.wait()
        listener.close()
        await asyncio.sleep(0)

    run(main())
