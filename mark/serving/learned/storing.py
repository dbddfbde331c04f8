"""The transfer of facts to the object store and back, on the event loop; one thread makes the blocking calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from mark.domain.errors import MarkError
from mark.serving.learned.facts import Fact, Vector, pages
from mark.serving.learned.shared import LearnedSnapshot, Shared
from mark.serving.learned.stored import LearnedStore, StoredFacts

WRITE_S = 5.0  # a store that takes longer counts as failed
_OBJECT_BYTES, _MOST_WAITING_BYTES = 8 << 20, 64 << 20
_OBJECTS_A_SNAPSHOT = 200
_SNAPSHOT_EVERY_S, _SNAPSHOT_AGAIN_S = 86_400.0, 60.0
_LOG = logging.getLogger("mark.serving")
T = TypeVar("T")


class NotStored(Exception):
    """The store has not taken the data."""


class Storing:
    """Own facts wait here until the store has them.

    If too many wait, the applied ones are dropped, and the store gets a snapshot as soon as it answers. It also gets
    one each day, so that a rule of the bucket may delete old objects.
    """

    def __init__(
        self,
        store: LearnedStore,
        writer: str,
        shared: Shared,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
    ) -> None:
        self._store, self._writer, self._shared = store, writer, shared
        self._loop, self._now = loop, now
        self._thread = ThreadPoolExecutor(1, "learned-store")
        self._waiting: dict[int, Fact] = {}  # by number, ascending
        self._bytes = 0
        self._newest = 0
        self._dropped_s = 0.0  # time of the oldest dropped fact, or 0
        self._puts = 0
        self._own_snapshot = ""  # key of the last one
        self._snapshot_s, self._again_s = now(), 0.0  # when it was made, and when the next may be tried
        self._putting = asyncio.Lock()
        self._said = ""

    def queue(self, facts: Iterable[Fact]) -> None:
        """Queue new own facts for the store; facts that were queued before are skipped."""
        for fact in facts:
            if fact.number > self._newest:
                self._newest = fact.number
                self._waiting[fact.number] = fact
                self._bytes += fact.memory_bytes
        if self._bytes > _MOST_WAITING_BYTES:
            vector = self._shared.vector
            for fact in [one for one in self._waiting.values() if vector.has(one.writer, one.number)]:
                self._dropped_s = self._dropped_s or fact.at_s
                self._remove(fact)

    def unstored_s(self) -> float:
        """Return the age of the oldest own fact that is not in the store, in seconds."""
        oldest = next(iter(self._waiting.values()), None)
        since_s = self._dropped_s or (0.0 if oldest is None else oldest.at_s)
        return max(0.0, self._now() - since_s) if since_s else 0.0

    async def until(self, facts: Iterable[Fact]) -> None:
        """Store these facts, which were queued. Raises NotStored."""
        numbers = [fact.number for fact in facts]
        try:
            async with asyncio.timeout(WRITE_S):
                while any(number in self._waiting for number in numbers):
                    await self._put()
        except TimeoutError:
            raise NotStored(f"no answer within {WRITE_S:g} s") from None

    async def put(self) -> None:
        """Store all waiting facts. Raises NotStored."""
        await self._put()
        while self._waiting:
            await self._put()

    async def snapshots(self) -> AsyncIterator[LearnedSnapshot]:
        """Yield the readable snapshots in the store, newest first. Raises NotStored."""
        async for snapshot in self._readable(self._store.snapshot, await self._call(self._store.snapshots)):
            yield snapshot

    async def there(self) -> StoredFacts:
        """Return the places of all facts in the store. Raises NotStored."""
        return await self._call(self._store.there)

    async def facts(self, there: StoredFacts, vector: Vector) -> AsyncIterator[list[Fact]]:
        """Yield the facts in the store that this vector lacks, and some that it has. Raises NotStored."""
        async for facts in self._readable(self._store.facts, await self._call(there.lacked_by, vector)):
            yield facts

    async def put_left(self, there: StoredFacts, facts: Sequence[Fact]) -> None:
        """Store these facts of processes which have gone, unless they are there. Raises NotStored."""

        def parts() -> list[list[Fact]]:
            return [part for run in there.lacks(facts) for part, _ in pages(run, _OBJECT_BYTES)]

        for part in await self._call(parts):
            await self._call(self._store.put, part)

    async def put_aside(self, data: bytes, instead: bool) -> None:
        """Store data for processes that start later, with `instead` in place of the last. Raises NotStored."""
        await self._call(self._store.put_aside, data, self._writer, self._now(), instead)

    async def aside(self) -> bytes | None:
        """Return the latest data that a process put aside. Raises NotStored."""
        return await self._call(self._store.aside)

    def close(self) -> None:
        """End the thread without waiting, because a hanging call must not keep the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _readable(self, read: Callable[[str], T], keys: Iterable[str]) -> AsyncIterator[T]:
        """Yield the objects of these keys, without damaged ones, which must not hide the others."""
        for key in keys:
            try:
                found = await self._call(read, key)
            except ValueError as error:
                _LOG.warning("[feedback] store: %s cannot be used: %s", key, error)
            else:
                yield found

    async def _put(self) -> None:
        async with self._putting:
            is_old = self._now() - self._snapshot_s >= _SNAPSHOT_EVERY_S
            if (self._dropped_s or self._puts >= _OBJECTS_A_SNAPSHOT or is_old) and self._now() >= self._again_s:
                await self._put_snapshot()
            facts: list[Fact] = []
            size = 0
            for fact in self._waiting.values():
                size += fact.memory_bytes
                if facts and size > _OBJECT_BYTES:
                    break
                facts.append(fact)
            if facts:
                await self._call(self._store.put, facts)
                self._puts += 1
                for fact in facts:
                    self._remove(fact)

    async def _put_snapshot(self) -> None:
        """Store the state, unless it lacks facts of the newest snapshot, which it would hide."""
        keys = await self._call(self._store.snapshots)
        if keys and keys[0] != self._own_snapshot:
            with suppress(ValueError):
                newest = await self._call(self._store.snapshot, keys[0])
                if self._shared.vector.lacks(newest.vector):
                    self._again_s = self._now() + _SNAPSHOT_AGAIN_S
                    return
        frozen, now_s = self._shared.freeze(), self._now()
        self._own_snapshot = await self._call(
            lambda: self._store.put_snapshot(frozen().to_bytes(), self._writer, now_s)
        )
        self._puts, self._dropped_s, self._snapshot_s = 0, 0.0, self._now()

    def _remove(self, fact: Fact) -> None:
        if self._waiting.pop(fact.number, None) is not None:
            self._bytes -= fact.memory_bytes

    async def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            found = await self._loop.run_in_executor(self._thread, call, *arguments)
        except (MarkError, OSError) as error:
            self._say(f"cannot be used: {error}")
            raise NotStored(str(error)) from error
        self._say("answers")
        return found

    def _say(self, state: str) -> None:
        if state != self._said:
            level = logging.INFO if state == "answers" else logging.WARNING
            _LOG.log(level, "[feedback] store %s", state)
            self._said = state
