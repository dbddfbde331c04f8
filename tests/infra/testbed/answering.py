"""Machines that run no process, and answer as if they did."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import uvloop
from mark_infra.testbed.machines_port import Machine

from tests.infra.testbed.cloud_fakes import FakeMachines


class Bouncers(FakeMachines):
    """Machines that answer over HTTP as a bouncer does, from the end of their boot until they end or die."""

    def __init__(self, port: int) -> None:
        super().__init__()
        # asyncio's plain loop would leave a socket open that it accepted while its listener closes.
        self._port, self._loop = port, uvloop.new_event_loop()
        self._listeners: dict[str, asyncio.Server] = {}
        self._connections: set[asyncio.Transport] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bouncers")
        self._thread.start()

    def boot(self, machine: Machine) -> None:
        super().boot(machine)
        self._loop.call_soon_threadsafe(self._loop.call_later, machine.boot_s, self._open, machine)

    def end(self, instance_id: str) -> None:
        super().end(instance_id)
        self.die(instance_id)

    def crash(self, instance_id: str) -> None:
        super().crash(instance_id)
        self.die(instance_id)

    def answering(self) -> dict[str, Machine]:
        """Return the machines that answer now, by their ids."""
        listening, there = set(self._listeners), dict(self.there)
        return {instance_id: machine for instance_id, machine in there.items() if instance_id in listening}

    def die(self, instance_id: str) -> None:
        """Close its port, whatever state the cloud shows."""
        self._loop.call_soon_threadsafe(self._shut, instance_id)

    def close(self) -> None:
        async def ended() -> None:
            for instance_id in list(self._listeners):
                self._shut(instance_id)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _open(self, machine: Machine) -> None:
        self._loop.create_task(self._listen(machine))

    async def _listen(self, machine: Machine) -> None:
        if machine.instance_id in self.there:
            self._listeners[machine.instance_id] = await self._loop.create_server(  # type: ignore[assignment]
                lambda: _Connection(self._connections), machine.address, self._port
            )
            if machine.instance_id not in self.there:
                self._shut(machine.instance_id)

    def _shut(self, instance_id: str) -> None:
        if (listener := self._listeners.pop(instance_id, None)) is not None:
            listener.close()


class _Connection(asyncio.Protocol):
    """A connection that answers one request of any kind, as an idle bouncer does."""

    def __init__(self, all_of_them: set[asyncio.Transport]) -> None:
        self._all = all_of_them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._all.add(self._transport)

    def data_received(self, data: bytes) -> None:
        page = b"mark_workers_ready 1\nmark_requests_total 0\nmark_queued_requests 0\nmark_running_requests 0\n"
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(page)
        self._transport.write(head + page)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self._transport)
