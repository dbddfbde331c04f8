"""The whole state of a process, which a peer reads page by page. A page is a line of JSON, and a part of a snapshot."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import NamedTuple

import orjson

from mark.serving.learned.peers import PAGE_BYTES, Peer, whole_number
from mark.serving.learned.shared import LearnedSnapshot, Shared, snapshot_in

_FRESH_S, _HELD_S = 1.0, 120.0  # until a new snapshot is made, and while peers read it
_PAGE_S = 10.0  # for the answer with a page, because its snapshot may have to be made first


class _Held(NamedTuple):
    """A snapshot that peers read, made at `at_s` of the loop's clock."""

    number: int
    data: bytes
    at_s: float


class SnapshotPages:
    """The latest snapshots of `shared`, held while peers read them. It runs on the event loop; `thread` encodes."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop, thread: Executor) -> None:
        self._shared, self._loop, self._thread = shared, loop, thread
        self._held: list[_Held] = []
        self._making = asyncio.Lock()
        self._made = self._drops = 0

    async def page(self, number: int, begin: int) -> bytes | None:
        """Return the page of snapshot `number` from byte `begin`, with 0 of a recent one; None if it was dropped."""
        now_s = self._loop.time()
        self._held = [one for one in self._held if now_s - one.at_s < _HELD_S]
        if number == 0:
            async with self._making:  # peers that ask together share a snapshot
                while not (self._held and now_s - self._held[-1].at_s < _FRESH_S):
                    await self._make()
        held = self._held[-1] if number == 0 else next((one for one in self._held if one.number == number), None)
        if held is None:
            return None
        head = {"number": held.number, "bytes": len(held.data)}
        return orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + held.data[begin : begin + PAGE_BYTES]

    def drop(self) -> None:
        """Drop all snapshots, also one that is being encoded, because a key was deleted."""
        self._held = []
        self._drops += 1

    async def _make(self) -> None:
        frozen, drops, at_s = self._shared.freeze(), self._drops, self._loop.time()
        data = await self._loop.run_in_executor(self._thread, lambda: frozen().to_bytes())
        if drops == self._drops:
            self._made += 1
            self._held = [*self._held[-1:], _Held(self._made, data, at_s)]


async def snapshot_of(peer: Peer) -> LearnedSnapshot:
    """Return the whole state of a peer. Raises PeerError, or ValueError, KeyError or TypeError for a damaged page."""
    data, number, total = bytearray(), 0, 1
    while len(data) < total:
        page = await peer.ask(b"GET", b"/snapshot?number=%d&begin=%d" % (number, len(data)), answer_s=_PAGE_S)
        head, _, part = page.partition(b"\n")
        said = orjson.loads(head)
        number, total = whole_number(said["number"]), whole_number(said["bytes"])
        if not part:
            raise ValueError("an empty page of a snapshot")
        data += part
    return snapshot_in(bytes(data))
