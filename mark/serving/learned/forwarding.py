"""If feedback reaches another process than the one that answered, pass it on to that process, once.

A request id that a server made begins with its writer, so its process is known. Feedback on any other id that is
unknown here goes to all peers, one after the other, and at most one of them applies it. Such feedback that arrives
within `GATHER_S` goes together. A process that gets feedback from a peer judges it and never passes it on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import orjson

from mark.serving.feedback.collector import FeedbackCollector, Told
from mark.serving.feedback.port import RESULTS, UNKNOWN, Feedback
from mark.serving.learned.peers import NotThere, Peer, PeerError, Peers

GATHER_S = 0.2
_ANSWER_S = 10.0  # a peer waits for its own peers and its store
_MOST_BYTES, _PART_BYTES = 16 << 20, 1 << 20  # of waiting feedback, and per message to a peer
Results = list[str] | None  # None: not all could be stored, and the client is asked to repeat them
_LOG = logging.getLogger("mark.serving")


class FeedbackForwarding:
    """Takes feedback as its collector does, and passes on feedback that other processes may know.

    It runs on the event loop.
    """

    def __init__(
        self, collector: FeedbackCollector, peers: Peers, writer: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._collector, self._peers, self._writer, self._loop = collector, peers, writer, loop
        self._bytes = 0
        self._gathered: list[Feedback] = []
        self._asking: asyncio.Task[dict[int, str] | None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def post(self, feedback: Sequence[Feedback], size: int, told: Told) -> bool:
        """Take feedback of `size` bytes; `told` is called once, later. Return False if too much is waiting."""
        places = [self._place(one) for one in feedback]
        if all(place == self._writer for place in places):
            return self._collector.post(feedback, size, told)
        if self._bytes + size > _MOST_BYTES:
            return False
        self._bytes += size
        self._begin(self._pass_on(feedback, places, size, told))
        return True

    async def judged(self, feedback: Sequence[Feedback], size: int, known_only: bool) -> Results:
        """Return the results of feedback from a peer; with `known_only`, unknown pieces are not stored here."""
        ours = [not known_only or self._collector.join.knows(one.id) for one in feedback]
        results = await self._here([one for one, our in zip(feedback, ours, strict=True) if our], size)
        if results is None:
            return None
        left = iter(results)
        return [next(left) if our else UNKNOWN for our in ours]

    async def close(self) -> None:
        """Wait for the feedback that is being passed on."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _place(self, one: Feedback) -> str:
        """Return the writer that should judge the feedback; "": any peer may."""
        writer = one.id.partition("-")[0]
        if writer == self._writer or self._collector.join.knows(one.id) or not self._peers.others:
            return self._writer
        peer = self._peers.of_writer(writer)
        return writer if peer is not None and peer.answering else ""

    async def _pass_on(self, feedback: Sequence[Feedback], places: Sequence[str], size: int, told: Told) -> None:
        results: Results = None
        try:
            parts = {
                place: [one for one, its in zip(feedback, places, strict=True) if its == place] for place in places
            }
            found = await asyncio.gather(*(self._judge(place, part) for place, part in parts.items()))
            by_place = {place: iter(part) for place, part in zip(parts, found, strict=True) if part is not None}
            if len(by_place) == len(parts):
                results = [next(by_place[place]) for place in places]
        except Exception:
            _LOG.exception("feedback was not passed on")
        self._bytes -= size
        told(results)

    async def _judge(self, place: str, feedback: list[Feedback]) -> Results:
        if not place:
            return await self._by_any(feedback)
        peer = self._peers.of_writer(place)
        if peer is None:  # this process, or a peer that has gone
            return await self._here(feedback)
        try:
            return await self._by(peer, feedback, known_only=False)
        except NotThere:
            return await self._by_any(feedback)

    async def _here(self, feedback: Sequence[Feedback], size: int = 0) -> Results:
        if not feedback:
            return []
        told: asyncio.Future[Sequence[str] | None] = self._loop.create_future()
        if not self._collector.post(feedback, size, told.set_result):
            return None
        results = await told
        return None if results is None else list(results)

    async def _by_any(self, feedback: list[Feedback]) -> Results:
        """Return the results of the peer that knows the answer, or of this process if none does."""
        first = len(self._gathered)
        self._gathered += feedback
        if self._asking is None:
            self._asking = self._begin(self._ask_all())
        found = await self._asking
        if found is None:
            return None
        kept = await self._here([one for at, one in enumerate(feedback, first) if at not in found])
        if kept is None:
            return None
        left = iter(kept)
        return [found[at] if at in found else next(left) for at in range(first, first + len(feedback))]

    async def _ask_all(self) -> dict[int, str] | None:
        """Return the results of pieces that a peer knows, by position.

        None: a peer that answers could not store its own.
        """
        await asyncio.sleep(GATHER_S)
        feedback, self._gathered, self._asking = self._gathered, [], None
        found: dict[int, str] = {}
        for peer in [one for one in self._peers.others if one.answering]:
            left = [at for at in range(len(feedback)) if at not in found]
            try:
                results = await self._by(peer, [feedback[at] for at in left], known_only=True) if left else []
            except NotThere:
                continue
            if results is None:
                return None
            found |= {at: result for at, result in zip(left, results, strict=True) if result != UNKNOWN}
        return found

    async def _by(self, peer: Peer, feedback: Sequence[Feedback], known_only: bool) -> Results:
        """Return the results of a peer, or None if it fails; it may have stored the feedback. Raises NotThere."""
        found: list[str] = []
        for part in _parts(feedback):
            body = b'{"known_only":%b,"feedback":[%b]}' % (b"true" if known_only else b"false", b",".join(part))
            try:
                results = orjson.loads(await peer.ask(b"POST", b"/feedback", body, _ANSWER_S))["results"]
            except NotThere:
                raise
            except (PeerError, ValueError, KeyError, TypeError) as error:
                _LOG.warning("feedback was not passed on to %s: %r", peer.address.url, error)
                return None
            if not isinstance(results, list) or len(results) != len(part) or not set(results) <= set(RESULTS):
                return None
            found += results
        return found

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _parts(feedback: Sequence[Feedback]) -> Iterator[list[bytes]]:
    """Yield the pieces in JSON, in parts that a peer accepts in one message."""
    part: list[bytes] = []
    size = 0
    for one in feedback:
        piece = orjson.dumps([one.id, one.said, one.version])
        if part and size + len(piece) > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(piece)
        size += len(piece)
    if part:
        yield part
