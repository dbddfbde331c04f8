"""The controller's listening socket, with limits, so that clients cannot use up the descriptors that rounds need.

Every client that reaches the port may open connections, even without a key. So a connection must send a whole request
within REQUEST_S, and the number of connections is limited, per address and in total. Further ones get a 503.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections import Counter
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 256
MOST_PER_ADDRESS = 64  # a browser opens six, Prometheus one
REQUEST_S = 10.0  # time for a request to arrive, from its first byte or the connection's start
_SHARE = 4  # connections may use a quarter of the process's descriptors
_SPARE = 8  # descriptors that a round needs
_NONE_LEFT = frozenset((errno.EMFILE, errno.ENFILE))
_BODY = b'{"error":"too many connections"}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 10\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class BoundedListener(socket.socket):
    """A listening socket that accepts `most` connections at a time, and `most_per_address` from one address.

    Works only with asyncio's own event loop, because others accept connections without asking the socket.
    """

    def __init__(
        self,
        family: int,
        fileno: int,
        *,
        tls: bool,
        most: int = MOST_CONNECTIONS,
        most_per_address: int = MOST_PER_ADDRESS,
    ) -> None:
        # Without the protocol, asyncio does not recognise TCP and leaves Nagle's algorithm on: 40 ms for each answer.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno)
        self._tls = tls
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(most, limit // _SHARE))
        self.most_per_address = max(1, min(most_per_address, self.most // 2))
        self.held: Counter[str] = Counter()  # open connections by address

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError after closing a connection above the limit."""
        fileno, address = self._accept()  # type: ignore[attr-defined]
        host = str(address[0])
        if self.held.total() < self.most and self.held[host] < self.most_per_address:
            self.held[host] += 1
            return _Connection(self, host, fileno), address
        with socket.socket(self.family, self.type, self.proto, fileno) as refused, suppress(OSError):
            refused.setblocking(False)
            if not self._tls:
                refused.send(_FULL)
        raise BlockingIOError(errno.EAGAIN, "too many connections")

    def left(self, host: str) -> None:
        """Note that a connection from the address was closed."""
        self.held[host] -= 1
        if not self.held[host]:
            del self.held[host]


class _Connection(socket.socket):
    """A connection that tells its listener when it is closed."""

    def __init__(self, listener: BoundedListener, host: str, fileno: int) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno)
        self._listener: BoundedListener | None = listener
        self._host = host

    def _real_close(self, *args: Any) -> None:
        super()._real_close(*args)  # type: ignore[misc]
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.left(self._host)


class PromptRequests(HttpToolsProtocol):
    """uvicorn's HTTP protocol that also closes connections whose request takes too long to arrive.

    uvicorn itself limits only the wait for the first byte of the next request.
    """

    request_s = REQUEST_S
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._await_request()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def _await_request(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def has_descriptors() -> bool:
    """Return whether the process and the machine have enough free descriptors for a round."""
    opened: list[int] = []
    try:
        while len(opened) < _SPARE:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _NONE_LEFT
    finally:
        for fileno in opened:
            os.close(fileno)
    return True
