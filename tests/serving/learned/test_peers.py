"""Servers that ask each other over sockets: permissions, refusals, and unusable addresses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.serving.backend.metrics import Metrics
from mark.serving.frontend.auth import Auth, parse_keys
from mark.serving.frontend.feedback_door import FeedbackDoor
from mark.serving.frontend.http import HttpLimits, HttpServer
from mark.serving.frontend.routes import ModelRoute
from mark.serving.frontend.server import ServedVersion, Server
from mark.serving.learned.facts import Vector, line_of
from mark.serving.learned.peer_routes import routes_of
from mark.serving.learned.peers import REACH, NotThere, Peer, PeerAccess, PeerError, Peers
from mark.serving.overflow.http_client import Address
from tests.serving.backend.test_variants import Fake
from tests.serving.learned.linked import Process
from tests.serving.learned.made import fact
from tests.serving.learned.processes import Client
from tests.serving.learned.test_learning import run, said

KEYS = "peer:aaaaaaaaaaaaaaaa\nclient:bbbbbbbbbbbbbbbb\noperator:cccccccccccccccc:admin\n"


@asynccontextmanager
async def listening(process: Process, auth: Auth | None = None) -> AsyncIterator[str]:
    """Yield the URL of the process behind a real listener."""
    loop = asyncio.get_running_loop()
    routes: list[ModelRoute] = [
        FeedbackDoor(process.forwarding).route(),
        *routes_of(process.learning, process.forwarding, loop),
    ]
    backend = Fake("1")
    server = Server("m", [ServedVersion("1", backend)], backend, 1.0, Metrics(), routes=routes)
    if auth is not None:
        process.learning.may_teach = auth.may_teach
    http = HttpServer(server.handle, HttpLimits(), admit=auth.admit if auth is not None else None)
    try:
        yield f"http://127.0.0.1:{await http.start('127.0.0.1', 0)}"
    finally:
        await http.close(1.0)
        await process.close()


def peer(url: str, key: str | None = None) -> Peer:
    return Peer(Address.of(url), PeerAccess(key=key), "m", asyncio.get_running_loop())


def test_processes_exchange_facts_and_feedback_over_sockets(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        b.answer("b-1", "b-2")
        async with listening(a) as at_a, listening(b) as at_b:
            for one in (a, b):
                one.learning.peers = Peers(PeerAccess(), "m", one.writer, asyncio.get_running_loop())
                one.forwarding._peers = one.learning.peers
                one.learning.hear([at_a, at_b])  # its own address is among them
            assert await b.post(b_1=5) == ["applied"]
            for one in (a, b):
                await one.learning.tick()
                assert (said(one)["peers"], said(one)["missing_facts"]) == (1, 0)
            assert await a.post(b_1=5, b_2=6) == ["duplicate", "applied"]
            assert a.learner.counts == b.learner.counts == {5: 1, 6: 1}
            c = Process("c", tmp_path / "c")
            c.learning.peers = Peers(PeerAccess((Address.of(at_a),)), "m", "c", asyncio.get_running_loop())
            await c.learning.catch_up()
            assert c.learner.counts == {5: 1, 6: 1}
            await c.close()
            b.learning.hear([at_b])
            assert said(b)["peers"] == 0

    run(main)


def test_only_peers_and_operators_exchange_facts(tmp_path: Path) -> None:
    """A client that may infer and send feedback must neither write nor read the learner's state."""

    async def main() -> None:
        a = Process("a", tmp_path / "a")
        auth = Auth(parse_keys(KEYS, "keys"))
        async with listening(a, auth) as at:
            for path in (b"/facts", b"/lacking", b"/feedback"):
                with pytest.raises(PeerError, match="status 403"):
                    await peer(at, "b" * 16).ask(b"POST", path, b"")
            with pytest.raises(PeerError, match="status 403"):
                await peer(at, "b" * 16).ask(b"GET", b"/snapshot?number=0&begin=0")
            with pytest.raises(PeerError, match="status 401"):
                await peer(at).ask(b"POST", b"/facts", b"")
            for key in "ac":
                assert json.loads(await peer(at, key * 16).ask(b"POST", b"/facts", line_of(fact("b", 1))))["old"] == 0
        assert a.learner.counts == {1: 1}

    run(main)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/facts", b"{}", 400),
        ("POST", "/facts", line_of(fact("b", 1)) + b"[1", 400),
        ("POST", "/facts", bytes(5 << 20), 413),
        ("POST", "/lacking", b"", 400),
        ("POST", "/lacking", b"[]", 400),
        ("POST", "/lacking", b'{"vector": {"since_s": null, "writers": {"w": 1}}}', 400),
        ("POST", "/feedback", b'{"known_only": true}', 400),
        ("POST", "/feedback", b'{"known_only": true, "feedback": [["x", 1, null]]}', 400),
        ("GET", "/snapshot", b"", 400),
        ("GET", "/snapshot?number=x&begin=0", b"", 400),
        ("GET", "/snapshot?number=9&begin=0", b"", 404),
        ("PUT", "/facts", b"", 405),
    ],
)
def test_bad_questions_are_refused_and_change_nothing(
    tmp_path: Path, method: str, path: str, body: bytes, status: int
) -> None:
    async def main() -> None:
        a = Process("a", tmp_path / "a")
        async with listening(a) as at:
            client = Client(at)
            answer = await client.ask(method, f"/v2/models/m/learned{path}", body)
            assert (answer.status, b"error" in answer.body) == (status, True)
            page = await client.ask("GET", "/openapi.json")
            assert b"/learned" not in page.body
            client.close()
        assert a.learner.counts == {}

    run(main)


def test_a_peer_that_answers_nonsense_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        a = Process("a", tmp_path / "a")
        a.learning.peers = Peers(
            PeerAccess((Address.of(f"http://127.0.0.1:{port}"),)), "m", "a", asyncio.get_running_loop()
        )
        await a.learning.tick()
        assert said(a)["peers"] == 0
        a.answer("x")
        assert await a.post(x=5) is None
        await a.close()
        server.close()
        await server.wait_closed()

    run(main)


def test_a_silent_peer_is_given_up_in_time() -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        one = peer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(PeerError, match=r"no answer within 0\.05 s"):
            await one.ask(b"POST", b"/facts", b"", 0.05)
        assert not one.answering
        one.close()
        server.close()
        await server.wait_closed()

    run(main)


def test_addresses_that_cannot_be_used_are_passed_over() -> None:
    """The controller's addresses come over the network, and the key must not travel in clear."""

    async def main() -> None:
        peers = Peers(PeerAccess(), "m", "a", asyncio.get_running_loop())
        assert not peers.tell(["http://10.0.0.5:80", "nonsense", "https://10.0.0.6:80", "http://127.0.0.1:81"])
        assert [one.address.url for one in peers.others] == ["https://10.0.0.6:80", "http://127.0.0.1:81"]
        assert peers.tell(["http://127.0.0.1:81"])
        assert [one.address.url for one in peers.others] == ["http://127.0.0.1:81"]
        assert not peers.tell(["http://127.0.0.1:81"])
        assert peers.others[0].vector == Vector()
        peers.close()

    run(main)


def test_peers_in_clear_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"peers: would be reached in clear.*http://10\.0\.0\.5:80"):
        PeerAccess((Address.of("http://10.0.0.5:80"),))
    assert PeerAccess((Address.of("http://10.0.0.5:80"),), in_clear=True, reach=REACH).addresses


def test_an_address_without_a_server_is_told_from_one_that_closes() -> None:
    """A request on a closed connection is repeated once; a refused connection is not."""

    async def main() -> None:
        asked = []

        def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(writer)
            writer.close()

        server = await asyncio.start_server(close, "127.0.0.1", 0)
        there = peer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            with pytest.raises(PeerError, match="closed the connection"):
                await there.ask(b"GET", b"/facts")
        finally:
            server.close()
            await server.wait_closed()
        assert len(asked) == 2
        assert there.there
        with pytest.raises(NotThere):
            await there.ask(b"GET", b"/facts")
        assert not there.there
        there.close()

    run(main)
