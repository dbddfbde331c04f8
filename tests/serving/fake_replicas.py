"""Servers of a model over real sockets by HTTP, which fail on a test's command."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def said(status: int = 200, body: bytes = b"", *lines: str) -> bytes:
    """Return an answer; a line is a header."""
    head = "".join(f"{line}\r\n" for line in lines)
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body


HANG, CLOSE, RESET = b"hang", b"close", b"reset"


@dataclass
class FakeReplica:
    """A server that echoes requests.

    `then` replaces the echo: by bytes to be written (and with `ends` the connection is closed), or by HANG, CLOSE or
    RESET. While `held`, answers wait. Readiness is `ready`, and its probes are not among `asked`.
    """

    then: Callable[[Asked], bytes] = lambda asked: said(200, asked.body, "mark-answered-by: instance")
    ends: bool = False
    ready: bytes = said()
    asked: list[Asked] = field(default_factory=list)
    probes: list[Asked] = field(default_factory=list)
    connections: int = 0
    gone: int = 0  # connections that clients closed while their request was open
    held: asyncio.Event | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _listener: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> FakeReplica:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        port = self._listener.sockets[0].getsockname()[1]
        self.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        return self

    async def stop(self) -> None:
        """Stop as after a SIGKILL: no request is answered any more."""
        assert self._listener is not None
        self._listener.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    def say(self, data: bytes) -> None:
        """Send data on every connection without a request."""
        for writer in tuple(self._writers):
            writer.write(data)

    def hang_up(self) -> None:
        """Close every connection, and go on listening."""
        for writer in tuple(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        self._writers.discard(writer)
        self.left.set()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert len(headers) == len(lines), "a header twice"
        method, target, version = first.split(" ")
        assert version == "HTTP/1.1"
        asked = Asked(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))
        if target in ("/v2/health/ready", "/ping"):
            self.probes.append(asked)
            writer.write(self.ready if target != "/ping" else said())
            return True
        self.asked.append(asked)
        self.came.set()
        if self.held is not None:
            waiting = asyncio.ensure_future(reader.read(1))
            await asyncio.wait([waiting, asyncio.ensure_future(self.held.wait())], return_when="FIRST_COMPLETED")
            if waiting.done():
                self.gone += 1
                return False
            waiting.cancel()
            await asyncio.wait([waiting])
        answer = self.then(asked)
        if answer == HANG:
            await reader.read(1)
            self.gone += 1
            return False
        if answer == RESET:
            writer.transport.abort()
            return False
        if answer != CLOSE:
            writer.write(answer)
        return answer != CLOSE and not self.ends
