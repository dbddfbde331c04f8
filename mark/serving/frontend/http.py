"""The HTTP/1.1 server: it listens, accepts, sweeps, and closes. `connection` has the connections."""

from __future__ import annotations

import asyncio
import ctypes
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from mark.domain.errors import BadInput
from mark.serving.frontend.connection import IDLE, Connection, Connections, Exchange, Handler
from mark.serving.frontend.limits import JSON, Admit, HttpLimits

if TYPE_CHECKING:
    import ssl

__all__ = ["JSON", "Exchange", "Handler", "HttpLimits", "HttpServer"]

# A filter of Linux (classic BPF: code, jump if true, jump if false, operand). On a TCP socket it drops segments with
# SYN and passes all others. A client whose SYN was dropped sends it again, on Linux after a second.
_SO_ATTACH_FILTER = 26
_SYN_IS_DROPPED = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


def _drop_new(listener: socket.socket) -> None:
    """Keep new connections out of a closing listener's queue, because the close would reset them."""
    if sys.platform != "linux" or listener.family not in (socket.AF_INET, socket.AF_INET6):
        return
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in _SYN_IS_DROPPED))
    program = struct.pack("HP", len(_SYN_IS_DROPPED), ctypes.addressof(code))
    with suppress(OSError):  # a sandbox's network may not support it; then the listener closes without it
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


class HttpServer(Connections):
    """Listens, and hands complete requests to `handler`.

    `admit(method, path, headers)` is called when the head is complete, before the body is read; it returns a refusal or
    None. `clock` must be the loop's.
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits | None = None,
        *,
        admit: Admit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(handler, limits or HttpLimits(), admit, clock)
        self._listeners: list[asyncio.AbstractServer] = []
        self._tick: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen and return the bound port; with `port` 0 the system chooses it. Raises BadInput if that fails."""
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                self._connection,
                host,
                port,
                ssl=tls,
                backlog=1024,
                ssl_handshake_timeout=self.limits.header_timeout_s if tls else None,
            )
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"cannot listen ({getattr(error, 'strerror', None) or error})", "host and port", f"{host}:{port}"
            ) from error
        self._opened(listener)
        listening: Any = listener  # uvloop keeps its sockets in a list
        return int(listening.sockets[0].getsockname()[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket."""
        self._opened(await asyncio.get_running_loop().create_unix_server(self._connection, path))

    def _connection(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, Connection(self))

    def _opened(self, listener: asyncio.AbstractServer) -> None:
        self._listeners.append(listener)
        if self._tick is None:
            self._sweep_again()

    async def let_in(self) -> None:
        """Accept the connections in the queue, which closing would reset, and keep further ones out.

        Call `stop_listening` next, without a turn of the loop in between.
        """
        standing = select.poll()
        listeners: list[Any] = self._listeners
        for listener in listeners:
            for one in listener.sockets:
                standing.register(one.fileno(), select.POLLIN)
                _drop_new(one)
        # A client that sent its SYN earlier is connected at the SYN-ACK and may send; its ACK may be on the way.
        await asyncio.sleep(self.limits.handshake_s)
        empty = 0
        for _ in range(self.limits.connections):  # if new connections are not dropped, a flood would never end
            empty = 0 if standing.poll(0) else empty + 1
            if empty > 3:  # uvloop accepts one per turn; a plain loop accepts all, and has them two turns later
                break
            await asyncio.sleep(0)

    def stop_listening(self) -> None:
        """Begin the drain: accept no connection; end each after its next answer or once idle for `drain_idle_s`."""
        self.draining = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for connection in self.connections:
            for exchange in (*connection.waiting, *connection.parked, connection.exchange):
                if exchange is not None:
                    exchange._plain = False

    async def close(self, timeout_s: float) -> None:
        """Stop listening, close idle connections, wait up to `timeout_s` for due answers, and cut the others."""
        self.stop_listening()
        for connection in tuple(self.connections):
            if connection.phase == IDLE and not connection.waiting:
                connection.end()
        if self._owing():
            self._settled = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._settled], timeout=timeout_s)
            self._settled = None
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        for connection in tuple(self.connections):
            connection.cut()

    def _sweep_again(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(self.limits.sweep_s, self._sweep_again)
        self.sweep(self.clock())
