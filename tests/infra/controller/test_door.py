"""Connections of the controller's page cannot take the resources of its rounds."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
from mark_infra.controller.door import BoundedListener, PromptRequests, has_descriptors

from tests.infra.testbed.real_processes import wait_for

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LONGEST_S = 30.0


class Quick(PromptRequests):
    request_s = 0.3


async def answers(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Door:
    """A server behind a bounded listener, in a thread."""

    def __init__(
        self,
        http: type[PromptRequests] = PromptRequests,
        files: tuple[str, str] | None = None,
        most: int = 8,
        most_per_address: int = 4,
    ) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.listener = BoundedListener(
            socket.AF_INET, listening.detach(), tls=files is not None, most=most, most_per_address=most_per_address
        )
        self.address = self.listener.getsockname()
        certificate, key = files or (None, None)
        config = uvicorn.Config(
            answers, http=http, loop="asyncio", log_config=None, access_log=False, lifespan="off",
            ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        self._server = Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.listener]})
        self._thread.start()

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(self.address, timeout=LONGEST_S, source_address=(host, 0))

    def asked(self, host: str = "127.0.0.1") -> bytes:
        """Return the status line of an answer, or b"" without one."""
        with self.connect(host) as client:
            try:
                client.sendall(GET)
                return client.recv(1000).partition(b"\r\n")[0]
            except OSError:
                return b""

    def wait_for_held(self, count: int) -> None:
        """Wait until the server has closed the connections that its clients left, so that it holds this many."""
        wait_for(lambda: self.listener.held.total() == count, f"{count} connections", LONGEST_S)

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.listener.close()


@pytest.fixture
def make_door() -> Iterator[Callable[..., Door]]:
    made: list[Door] = []

    def begin(*args: Any, **kwargs: Any) -> Door:
        made.append(Door(*args, **kwargs))
        return made[-1]

    yield begin
    for door in made:
        door.end()


def answer(client: socket.socket) -> bytes:
    """Read a whole answer and return its status line."""
    said = b""
    while not said.endswith(b"\r\n\r\nok") and (piece := client.recv(1000)):
        said += piece
    return said.partition(b"\r\n")[0]


def is_closed(client: socket.socket) -> bool:
    """Does the server close it, without an answer?"""
    try:
        return client.recv(1000) == b""
    except ConnectionError:
        return True


def test_one_address_has_few_connections_and_others_have_theirs(make_door: Callable[..., Door]) -> None:
    door = make_door()
    with ExitStack() as held:
        idle = [held.enter_context(door.connect()) for _ in range(4)]
        refused = held.enter_context(door.connect())
        assert refused.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert door.asked("127.0.0.2") == b"HTTP/1.1 200 OK"
        idle[0].sendall(GET)
        assert answer(idle[0]) == b"HTTP/1.1 200 OK"
        door.wait_for_held(4)
        more = [held.enter_context(door.connect("127.0.0.3")) for _ in range(4)]
        assert held.enter_context(door.connect("127.0.0.4")).recv(1000).startswith(b"HTTP/1.1 503 "), "eight in all"
        assert len(more) == 4


def test_a_closed_connection_makes_room(make_door: Callable[..., Door]) -> None:
    door = make_door()
    for _ in range(20):
        assert door.asked() == b"HTTP/1.1 200 OK"
        door.wait_for_held(0)
    with ExitStack() as held:
        idle = [held.enter_context(door.connect()) for _ in range(4)]
        assert held.enter_context(door.connect()).recv(1000).startswith(b"HTTP/1.1 503 ")
        for one in idle:
            one.shutdown(socket.SHUT_WR)
            assert is_closed(one)
        door.wait_for_held(0)
        assert door.asked() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab"],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
@pytest.mark.parametrize("first", [b"", GET], ids=["at once", "after an answer"])
def test_what_sends_no_whole_request_is_closed(make_door: Callable[..., Door], sent: bytes, first: bytes) -> None:
    door = make_door(Quick)
    with door.connect() as client:
        if first:
            client.sendall(first)
            assert answer(client) == b"HTTP/1.1 200 OK"
        client.sendall(sent)
        assert is_closed(client)


def test_a_drip_of_bytes_is_no_request(make_door: Callable[..., Door]) -> None:
    """A byte of a head does not restart the time limit."""
    door = make_door(Quick)
    with door.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        client.settimeout(0.05)  # a pause between two headers
        while True:
            try:
                client.sendall(b"x: 1\r\n")
                assert client.recv(1000) == b""
                return
            except TimeoutError:
                continue
            except ConnectionError:
                return


def test_connections_without_a_handshake_are_counted(make_door: Callable[..., Door], tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key"))
    door = make_door(files=(str(tmp_path / "certificate"), str(tmp_path / "key")))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(door.connect())
        assert is_closed(held.enter_context(door.connect()))
        with door.connect("127.0.0.2") as client, context.wrap_socket(client) as speaking:
            speaking.sendall(GET)
            assert answer(speaking) == b"HTTP/1.1 200 OK"


def test_a_quarter_of_the_descriptors_is_for_connections() -> None:
    script = (
        "import resource, socket\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from mark_infra.controller.door import BoundedListener\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "with BoundedListener(socket.AF_INET, listening.detach(), tls=False) as door:\n"
        "    print(door.most, door.most_per_address)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["25", "12"]


def test_a_process_without_descriptors_knows_it() -> None:
    """A few may be left, because a round needs several."""
    assert has_descriptors()
    script = (
        "import os, resource\n"
        "from mark_infra.controller.door import has_descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.dup(0))\n"
        "except OSError: pass\n"
        "none = has_descriptors()\n"
        "for _ in range(3): os.close(held.pop())\n"
        "few = has_descriptors()\n"
        "for _ in range(9): os.close(held.pop())\n"
        "print(none, few, has_descriptors())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
