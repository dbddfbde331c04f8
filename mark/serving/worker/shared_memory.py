"""Memory that a bouncer and one worker share, for the calls of a batch and for its replies. Nothing is pickled.

A batch is stored as

    u64 n, u64 bytes of the kinds | n lengths | n json_bytes, -1 for none | n kinds | the kinds, as JSON | n bodies

where a kind holds the attributes that calls or replies have in common. A batch nearly always has one kind, so texts are
encoded once per batch and not per request. Beside the memory there is a channel for messages of a few bytes, one for a
batch and one for its answer.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeAlias

from mark.models.call import Call, Reply

# Bytes kept between batches, each for calls and for replies: 16 images of 1 MB. Only used pages take memory.
KEEP_BYTES = 16 << 20
# A worker has memory for two batches, used in turns: the current one and the next one.
SLOTS = 2

# Messages. The bouncer's has the bytes in use of the calls' arena; the worker ends when the channel ends.
BATCH = struct.Struct("<Q")
DONE = struct.Struct("<cQd")  # b"D", bytes in use of the replies' arena, service time in seconds
LOADED = struct.Struct("<cQ")  # b"R", bytes in use of the replies' arena: one reply, the model's metadata in JSON
FAILED = b"F"  # followed by one line of text
MESSAGE_BYTES = 65536

Kind: TypeAlias = tuple[Any, ...]  # a call's protocol, content type, accept; a reply's status, content type

_HEAD = struct.Struct("<QQ")
_MARK, _PROMISED = struct.Struct("<Q"), 2**64 - 1  # takes the place of n


class Malformed(Exception):
    """The arena holds no valid batch: its writer is broken."""


class Arena:
    """An unnamed file in memory, mapped on both sides. It grows to the size of a batch.

    It is sealed against shrinking: a faulty worker can spoil its content, but not crash the bouncer that reads it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)

    @classmethod
    def create(cls, name: str) -> Arena:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, KEEP_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(fd)

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)

    def trim(self) -> None:
        """Release the memory of a large batch beyond `KEEP_BYTES`; its content is lost."""
        if len(self._map) > KEEP_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, KEEP_BYTES, len(self._map) - KEEP_BYTES)

    def begin(self) -> None:
        """Mark that the arena holds no batch yet."""
        self._map[: _MARK.size] = _MARK.pack(0)

    def promise(self) -> None:
        """Mark that replies will follow, because the model's part is done."""
        self._map[: _MARK.size] = _MARK.pack(_PROMISED)

    @property
    def promised(self) -> bool:
        """Return whether there are replies since `begin`, or will be."""
        return _MARK.unpack_from(self._map) != (0,)

    def write_calls(self, calls: Sequence[Call]) -> int:
        """Write calls; return the bytes in use."""
        return self._write(
            [(call.protocol, call.content_type, call.accept) for call in calls],
            [-1 if call.json_bytes is None else call.json_bytes for call in calls],
            [call.body for call in calls],
        )

    def write_replies(self, replies: Sequence[Reply]) -> int:
        """Write replies; return the bytes in use. A body may lie in the arena of the calls."""
        return self._write(
            [(reply.status, reply.content_type) for reply in replies],
            [-1 if reply.json_bytes is None else reply.json_bytes for reply in replies],
            [reply.body for reply in replies],
        )

    def read_calls(self, size: int) -> list[Call]:
        """Return the calls. Bodies are views, valid until the next batch is written."""
        kinds, frames = self._read(size, (str, str, str))
        view = memoryview(self._map).toreadonly()
        calls = []
        for begin, end, json_bytes, kind in frames:
            protocol, content_type, accept = kinds[kind]
            part = None if json_bytes < 0 else json_bytes
            calls.append(Call(protocol, content_type, view[begin:end], part, accept))
        return calls

    def read_replies(self, size: int) -> list[Reply]:
        """Return the replies. Raises Malformed.

        Bodies are copies, because the worker may get its next batch before they are sent.
        """
        try:
            kinds, frames = self._read(size, (int, str))
            memory, replies = self._map, []
            for begin, end, json_bytes, kind in frames:
                status, content_type = kinds[kind]
                part = None if json_bytes < 0 else json_bytes
                replies.append(Reply(status, content_type, memory[begin:end], part))
            return replies
        except (ValueError, IndexError, TypeError, RecursionError) as error:
            raise Malformed(str(error)) from error

    def _write(
        self,
        kinds: list[Kind],
        json_bytes: list[int],
        bodies: list[bytes | memoryview],
    ) -> int:
        n, table = len(bodies), dict[Kind, int]()
        codes = [table.setdefault(kind, len(table)) for kind in kinds]
        text = _text(tuple(table))
        lengths = list(map(len, bodies))
        end = _HEAD.size + 24 * n + len(text)
        size = end + sum(lengths)
        self._hold(size)
        memory = self._map
        memory[:end] = struct.pack(f"<2Q{3 * n}q", n, len(text), *lengths, *json_bytes, *codes) + text
        for body, length in zip(bodies, lengths, strict=True):
            begin, end = end, end + length
            memory[begin:end] = body
        return size

    def _read(self, size: int, types: tuple[type, ...]) -> tuple[Sequence[Kind], zip[tuple[int, int, int, int]]]:
        """Return the kinds, and for each body (begin, end, json_bytes, kind). Raises ValueError."""
        if size > len(self._map) and size > os.fstat(self.fd).st_size:
            raise ValueError(f"{size} bytes are said to be in use")
        self._hold(size)
        n, text_bytes = _HEAD.unpack_from(self._map)
        text = _HEAD.size + 24 * n
        if text + text_bytes > size:
            raise ValueError(f"{n} bodies are said to be there")
        columns = struct.unpack_from(f"<{3 * n}q", self._map, _HEAD.size)
        kinds = _kinds(self._map[text : text + text_bytes], types)
        lengths = columns[:n]
        ends = list(accumulate(lengths, initial=text + text_bytes))
        if ends[-1] != size or min(lengths, default=0) < 0:
            raise ValueError("the bodies do not fill the bytes in use")
        return kinds, zip(ends[:-1], ends[1:], columns[n : 2 * n], columns[2 * n :], strict=True)

    def _hold(self, size: int) -> None:
        """Map at least `size` bytes. Views of an earlier map stay valid, and see the same memory."""
        if size > len(self._map):
            there = os.fstat(self.fd).st_size
            if there < size:
                there = 1 << (size - 1).bit_length()
                os.ftruncate(self.fd, there)
            self._map = mmap.mmap(self.fd, there)


# Cached, because the same few kinds recur.


@lru_cache(256)
def _text(kinds: tuple[Kind, ...]) -> bytes:
    return json.dumps(kinds).encode()


@lru_cache(256)
def _kinds(text: bytes, types: tuple[type, ...]) -> Sequence[Kind]:
    """Return the kinds. Raises ValueError or TypeError unless the text is a list of kinds made of `types`."""
    return [tuple(type_(part) for type_, part in zip(types, kind, strict=True)) for kind in json.loads(text)]
