"""What a bouncer and one worker share: memory for the calls of a batch, and for its replies. Nothing is pickled.

A batch lies in memory as

    u64 n, u64 bytes of the kinds | n lengths | n json_bytes, -1 for none | n kinds | the kinds, as JSON | n bodies

where a kind is what calls or replies have in common: nearly always a batch has one, so that texts are encoded once for
a batch, and never for a request. Beside the memory there is a channel for messages of a few bytes, one for a batch and
one for its answer.
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

# What may stay allocated between batches, of calls and of replies: 16 images of 1 MB. Only pages once used cost memory.
KEEP_BYTES = 16 << 20
# A worker has memory for two batches, used in turns: the one it does and the one it does next.
SLOTS = 2

# Messages. The bouncer says how much of the calls' arena is in use; the end of the channel is the end of the worker.
BATCH = struct.Struct("<Q")
DONE = struct.Struct("<cQd")  # b"D", bytes in use of the replies' arena, service time in seconds
LOADED = struct.Struct("<cQ")  # b"R", bytes in use of the replies' arena: one, what is said of the model, in JSON
FAILED = b"F"  # followed by one line of text
MESSAGE_BYTES = 65536

Kind: TypeAlias = tuple[Any, ...]  # a call's protocol, content type, accept; a reply's status, content type

_HEAD = struct.Struct("<QQ")
_MARK, _PROMISED = struct.Struct("<Q"), 2**64 - 1  # in the place of n


class Malformed(Exception):
    """What lies in the arena is no batch: its writer is broken."""


class Arena:
    """A file in memory with no name, mapped on both sides. It grows to whatever a batch takes.

    Sealed against shrinking: a worker that runs wild can spoil what lies in there, not the bouncer that reads it.
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
        """Give back what a large batch took beyond `KEEP_BYTES`; its content is lost."""
        if len(self._map) > KEEP_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, KEEP_BYTES, len(self._map) - KEEP_BYTES)

    def begin(self) -> None:
        """What lies here is no batch any more, and none is there yet."""
        self._map[: _MARK.size] = _MARK.pack(0)

    def promise(self) -> None:
        """There will be replies: the model's part is done."""
        self._map[: _MARK.size] = _MARK.pack(_PROMISED)

    @property
    def promised(self) -> bool:
        """Are there replies since `begin`, or will there be?"""
        return _MARK.unpack_from(self._map) != (0,)

    def write_calls(self, calls: Sequence[Call]) -> int:
        """Bytes in use from then on."""
        return self._write(
            [(call.protocol, call.content_type, call.accept) for call in calls],
            [-1 if call.json_bytes is None else call.json_bytes for call in calls],
            [call.body for call in calls],
        )

    def write_replies(self, replies: Sequence[Reply]) -> int:
        """Bytes in use from then on. A body may lie in the arena of the calls."""
        return self._write(
            [(reply.status, reply.content_type) for reply in replies],
            [-1 if reply.json_bytes is None else reply.json_bytes for reply in replies],
            [reply.body for reply in replies],
        )

    def read_calls(self, size: int) -> list[Call]:
        """Bodies are views, valid until the next batch is written."""
        kinds, frames = self._read(size, (str, str, str))
        view = memoryview(self._map).toreadonly()
        calls = []
        for begin, end, json_bytes, kind in frames:
            protocol, content_type, accept = kinds[kind]
            part = None if json_bytes < 0 else json_bytes
            calls.append(Call(protocol, content_type, view[begin:end], part, accept))
        return calls

    def read_replies(self, size: int) -> list[Reply]:
        """Bodies are copies: the worker may have its next batch before they are on the wire.

        Raises Malformed.
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
        """The kinds, and for each body (begin, end, json_bytes, kind). Raises ValueError."""
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


# A few kinds come again and again.


@lru_cache(256)
def _text(kinds: tuple[Kind, ...]) -> bytes:
    return json.dumps(kinds).encode()


@lru_cache(256)
def _kinds(text: bytes, types: tuple[type, ...]) -> Sequence[Kind]:
    """Raises ValueError or TypeError for what is no list of kinds made of `types`."""
    return [tuple(type_(part) for type_, part in zip(types, kind, strict=True)) for kind in json.loads(text)]
