"""A hijacked instance can neither fill the controller's memory nor redirect it."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from mark_infra.instance_page import MOST_BYTES, instance_session, read_page

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Answers = Callable[[socket.socket], None]


class Instance:
    """A server that answers each connection as the test says, and keeps the requests."""

    def __init__(self, answers: Answers) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked: list[bytes] = []
        self._answers = answers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with suppress(OSError):
                connection, _ = self._listening.accept()
                with connection:
                    connection.settimeout(30.0)
                    if not (head := connection.recv(9999)):
                        return
                    self.asked.append(head)
                    with suppress(OSError):
                        self._answers(connection)

    def end(self) -> None:
        with socket.create_connection(self._listening.getsockname()):
            pass
        self._thread.join()
        self._listening.close()


@pytest.fixture
def start() -> Iterator[Callable[[Answers], Instance]]:
    made: list[Instance] = []

    def begin(answers: Answers) -> Instance:
        made.append(Instance(answers))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def read(instance: Instance, *more: str) -> tuple[int, bytes]:
    async def main() -> tuple[int, bytes]:
        async with instance_session() as session:
            for path in more:
                await read_page(session, instance.url + path)
            return await read_page(session, f"{instance.url}/metrics", {"authorization": "Bearer key"})

    return asyncio.run(main())


def whole(body: bytes, *lines: str, status: str = "200 OK") -> Answers:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *lines, "", ""))
    return lambda connection: connection.sendall(head.encode() + body)


def endless(connection: socket.socket) -> None:
    connection.sendall(CHUNKED)
    piece = b"%x\r\n%b\r\n" % (1 << 20, b"a" * (1 << 20))
    while True:
        connection.sendall(piece)


def test_a_page_of_a_few_megabytes_is_read(start: Callable[[Answers], Instance]) -> None:
    instance = start(whole(b"a" * MOST_BYTES))
    assert read(instance) == (200, b"a" * MOST_BYTES)
    (asked,) = instance.asked
    assert b"accept-encoding: identity" in asked.lower()
    assert b"Bearer key" in asked


def test_a_page_without_end_is_broken_off(start: Callable[[Answers], Instance]) -> None:
    for answers in (endless, whole(b"a" * (MOST_BYTES + 1))):
        with pytest.raises(ValueError, match="more than"):
            read(start(answers))


def test_a_compressed_page_is_not_inflated(start: Callable[[Answers], Instance]) -> None:
    for encoding in ("gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip"):
        with pytest.raises(ValueError, match="compressed"):
            read(start(whole(gzip.compress(b"0" * 1000), f"content-encoding: {encoding}")))
    assert read(start(whole(b"x", "content-encoding: identity"))) == (200, b"x")


def test_a_redirect_is_not_followed(start: Callable[[Answers], Instance]) -> None:
    other = start(whole(b"secret"))
    for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
        with pytest.raises(ValueError, match="redirect"):
            read(start(whole(b"", f"location: {other.url}/latest/meta-data/", status=status)))
    assert other.asked == []


def test_no_cookie_is_kept(start: Callable[[Answers], Instance]) -> None:
    instance = start(whole(b"x", "set-cookie: a=b"))
    read(instance, "/first")
    assert len(instance.asked) == 2
    assert b"cookie" not in instance.asked[1].lower()
