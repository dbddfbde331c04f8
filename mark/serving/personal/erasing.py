"""Erase the traces of deleted keys in a process: facts and snapshots, lines of the feedback log, remembered answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.port import ServedAnswer
from mark.serving.learned.facts import Fact
from mark.serving.learned.learning import Learning
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import fact_in, key_name, notes_in

_AGAIN_S = 60.0  # after an error
_LOG = logging.getLogger("mark.serving")


class Erasing:
    """Erases one batch of keys after the other. It runs on the event loop, and the threads of log and journal write.

    Erasing waits for `begin`, because a snapshot that is taken while the process reads its files would lack facts.
    Folders get a mark of the deletions that are erased there. Otherwise deletions whose erasing a kill ended would
    never be erased, or the files be rewritten at each start.
    """

    def __init__(self, learning: Learning, collector: FeedbackCollector, heads: PersonalHeads) -> None:
        self._learning, self._collector, self._heads = learning, collector, heads
        self._keys: dict[str, float] = {}  # by key: data up to this Unix time is erased
        self._running: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._begun = asyncio.Event()
        self._read_mark = False

    def cleaned(self, fact: Fact) -> Fact:
        """Return a new fact without its content if it is about a deleted key and from before the deletion."""
        return _without(fact, self._heads.deleted_s)

    def begin(self) -> None:
        """Erase from now on, because the process has read its files."""
        self._begun.set()
        self._start()

    def erase(self, key: str, until_s: float) -> None:
        """Begin to erase the data of a key up to this Unix time; `key` is its name in the state."""
        self._keys[key] = max(until_s, self._keys.get(key, until_s))
        self._start()

    async def done(self) -> bool:
        """Wait until the waiting keys are erased. Return False after an error; erasing is tried again later."""
        await self._begun.wait()
        if self._running is not None:
            await asyncio.wait([self._running])
        return not self._keys

    async def close(self) -> None:
        """Wait for the erasing in progress."""
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._again is not None:
            self._again.cancel()

    def _start(self) -> None:
        if self._keys and self._running is None and self._begun.is_set():
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while keys := self._keys:
            self._keys = {}
            try:
                await self._erase(keys)
            except Exception as error:  # one that is not the disk's must not end all erasing either
                is_disk = isinstance(error, OSError)
                _LOG.error("%d deleted keys are not erased: %s", len(keys), error, exc_info=not is_disk)
                for key, until_s in keys.items():
                    self.erase(key, until_s)
                if self._again is not None:
                    self._again.cancel()
                self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._start)
                break
        self._running = None

    async def _erase(self, keys: Mapping[str, float]) -> None:
        deleted = self._heads.deleted()
        mark = blake2b(orjson.dumps(sorted(deleted.items())), digest_size=16).digest()
        if not self._read_mark and await self._learning.is_erased(mark):
            keys = {key: until_s for key, until_s in keys.items() if deleted.get(key) != until_s}
        self._read_mark = True
        if not keys:
            return
        self._collector.join.erase(lambda answer: _answer_is_about(answer, keys))
        left = await self._learning.rewrite(lambda fact: _without(fact, lambda key: keys.get(key, -1.0)))
        await self._collector.rewrite(lambda line: _line_without(line, keys))
        await self._learning.put_erased(mark, left)


def _without(fact: Fact, until_s: Callable[[str], float]) -> Fact:
    """Return the fact without content if it is about a key, and not from after the time until which data is erased.

    It keeps its number, so that no process reports it missing.
    """
    try:
        found = fact_in(fact.content)
    except ValueError:
        return fact
    if found is None or found.reward is None or found.at_s > until_s(found.key):
        return fact
    return replace(fact, content=b"")


def _line_without(line: bytes, keys: Mapping[str, float]) -> bytes:
    """Return the line of a feedback log, or b"" if it is about one of the keys."""
    try:
        said = orjson.loads(line)
    except ValueError:
        return b""  # truncated by a crash, and unreadable
    at_s = said.get("received_at_s", said.get("served_at_s", 0.0))
    return b"" if any(at_s <= keys[name] for name in keys_of_line(said) if name in keys) else line


def keys_of_line(said: Any) -> set[str]:
    """Return the names of the keys that a line of a feedback log is about."""
    if not isinstance(said, dict):
        return set()
    found = set()
    feedback, how = said.get("feedback"), said.get("provenance")
    if isinstance(feedback, dict) and isinstance(feedback.get("key"), str):
        found.add(key_name(feedback["key"]))
    if isinstance(how, dict) and "note" in how:
        with suppress(ValueError):
            # A deletion's own line in the log is about no key: its note has no scored item.
            found |= {note.key for note in notes_in(orjson.dumps(how["note"])) if note.scored}
    return found


def _answer_is_about(answer: ServedAnswer, keys: Mapping[str, float]) -> bool:
    if answer.provenance is None or not answer.provenance.note:
        return False
    try:
        notes = notes_in(answer.provenance.note)
    except ValueError:
        return False
    return any(answer.served_at_s <= keys.get(note.key, -1.0) for note in notes if note.scored)
