"""Data beside the facts that helps a process to start, such as the most used items of a cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

from mark.serving.learned.journal import Journal, Journals
from mark.serving.learned.peers import PeerError, Peers
from mark.serving.learned.storing import WRITE_S, NotStored, Storing

_PEERS_S = 10.0  # for the answers of all peers together
_LOG = logging.getLogger("mark.serving")


class DataAside:
    """Keeps the data in the store, or without one in the journal's folder. It runs on the event loop.

    `journals` are those of all processes in the feedback log; `thread` uses them. `own` returns the data of this
    process for a peer that starts, None if there is none.
    """

    def __init__(
        self,
        journal: Journal,
        journals: Journals,
        storing: Storing | None,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
        thread: Executor,
    ) -> None:
        self.own: Callable[[], bytes | None] = lambda: None
        self._journal, self._journals, self._storing, self._peers = journal, journals, storing, peers
        self._loop, self._thread = loop, thread
        self._is_outdated = False

    def outdate(self) -> None:
        """Have the data in the store replaced at the next `put`, because it may be about a deleted key."""
        self._is_outdated = True

    async def put(self, data: bytes | None) -> None:
        """Keep data for a process that starts later. None: there is none, and only outdated data is replaced."""
        instead, self._is_outdated = self._is_outdated, False
        if data is None and not instead:
            return
        try:
            if self._storing is not None:
                await asyncio.wait_for(self._storing.put_aside(data or b"", instead), WRITE_S)
            elif data is not None:
                await self._loop.run_in_executor(self._thread, self._journal.put_aside, data)
        except (NotStored, TimeoutError, OSError) as error:
            self._is_outdated |= instead
            _LOG.warning("data for later processes is not kept: %s", error)

    async def latest(self) -> bytes | None:
        """Return the data of a peer, or the latest that was kept. None: there is none, or it cannot be read."""
        until_s = self._loop.time() + _PEERS_S
        for peer in self._peers.others:
            with suppress(PeerError):
                left_s = until_s - self._loop.time()
                if not peer.answering or left_s <= 0.0:
                    continue
                if data := await peer.ask(b"GET", b"/aside", answer_s=left_s, optional=True):
                    return data
        if self._storing is None:
            return await self._loop.run_in_executor(self._thread, self._journals.aside)
        with suppress(NotStored, TimeoutError):
            return await asyncio.wait_for(self._storing.aside(), WRITE_S)
        return None
