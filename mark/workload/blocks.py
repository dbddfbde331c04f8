"""Text files as blocks of whole lines: plain or compressed, by content; foreign errors are translated here only."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from mark.domain.errors import BadInput

_BLOCK = 8 << 20
_PACKED = 1 << 16
_LONGEST_LINE = 1 << 20
_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_XZ = b"\xfd7zXZ\0"
_ZSTD = b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NULS = re.compile(rb"\0+")
_CONTROLS = bytes([*range(1, 9), *range(14, 27), *range(28, 32), 127])
_MOST_CONTROLS = 0.01  # of the bytes of a text

Told = Callable[[int, int], None]
"""Takes how many bytes of a file were read so far, and how many it has."""

watched: ContextVar[Told | None] = ContextVar("watched", default=None)
"""Takes how far the reading of files is, wherever it happens: the command line shows it."""


def is_folder(path: Path) -> bool:
    """Is it a folder? False is a regular file; raises BadInput for anything else."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise BadInput("cannot be opened", str(path), getattr(error, "strerror", None) or str(error)) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInput("neither a regular file nor a folder", str(path))
    return stat.S_ISDIR(mode)


def blocks(
    path: Path, size: int = _BLOCK, *, nuls: Callable[[int], None] | None = None, told: Told | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines each ended by a line feed) in blocks of about `size` bytes.

    Lines count from 1. A byte-order mark and carriage returns before line feeds are dropped, UTF-16 becomes UTF-8.
    Raises BadInput for what cannot be read: missing, truncated or corrupt, binary data, a line above 1 MiB. Compressed
    is gzip, bzip2, xz or zstd.

    With `nuls` a run of NUL bytes in a text ends a line, and `nuls` is told its length: logrotate's `copytruncate` and
    a crash leave such runs. Without it they are binary data.
    """
    line = 1
    rest = b""
    told = told or watched.get()
    try:
        with path.open("rb") as raw:
            total = os.fstat(raw.fileno()).st_size
            stream = _unpacked(raw)
            while data := stream.read(size):
                if told is not None:
                    told(raw.tell(), total)
                text = rest + data
                if b"\0" in data:
                    if nuls is None or not is_text(data):
                        raise BadInput("binary data, not text", _at(path, line, text.split(b"\0")[0]))
                    nuls(data.count(b"\0"))
                if line == 1 and text.startswith(BOM):
                    text = text[len(BOM) :]
                *before, text = _NULS.split(text) if b"\0" in data else [text]
                for piece in filter(None, before):
                    yield line, _unix(piece if piece.endswith(b"\n") else piece + b"\n")
                    line += piece.count(b"\n")
                end = text.rfind(b"\n") + 1
                block, rest = text[:end], text[end:]
                if len(rest) > _LONGEST_LINE:
                    raise BadInput("a line longer than 1 MiB", _at(path, line, block))
                if block:
                    yield line, _unix(block)
                    line += block.count(b"\n")
    except EOFError as error:
        raise BadInput("the compressed file is truncated", str(path)) from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise BadInput("the compressed file is corrupt", str(path), str(error)) from error
    except OSError as error:
        raise BadInput("cannot be read", str(path), error.strerror or str(error)) from error
    if rest:
        yield line, _unix(rest + b"\n")


def is_text(data: bytes) -> bool:
    """Do the bytes look like text, NUL bytes aside? Nothing but NUL bytes does."""
    text = data.replace(b"\0", b"")
    return len(text) - len(text.translate(None, _CONTROLS)) <= _MOST_CONTROLS * len(text)


def is_packed(head: bytes) -> bool:
    """Do these first bytes begin a compressed file?"""
    return head.startswith((_GZIP, _BZIP2, _XZ, _ZSTD))


def _unpacked(raw: io.BufferedReader) -> IO[bytes]:
    magic = raw.peek(6)
    if magic.startswith(_GZIP):
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if magic.startswith(_BZIP2):
        return bz2.open(raw)
    if magic.startswith(_XZ):
        return lzma.open(raw)
    if magic.startswith(_ZSTD):
        return cast(IO[bytes], io.BufferedReader(_Zstd(raw)))
    if magic.startswith(_UTF16):
        return cast(IO[bytes], _Utf16(raw))
    return raw


class _Utf16:
    """Text in UTF-16, as PowerShell writes it, in UTF-8."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw, self._decoder = raw, codecs.getincrementaldecoder("utf-16")("replace")

    def read(self, size: int) -> bytes:
        data = self._raw.read(size)
        return self._decoder.decode(data, final=not data).encode("utf-8", "replace")


class _Zstd(io.RawIOBase):
    """What frames of zstd hold. The library's own reader takes a truncated file for a short one."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._packed, self._text = b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            if self._frame.eof:
                self._packed = self._frame.unused_data or self._raw.read(_PACKED)
                if not self._packed:
                    return 0
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            elif not (packed := self._raw.read(_PACKED)):
                raise EOFError
            else:
                self._packed = packed
            self._text = self._frame.decompress(self._packed)
        size = min(len(buffer), len(self._text))
        buffer[:size], self._text = self._text[:size], self._text[size:]
        return size


def shown(line: bytes) -> str:
    """A line of a file as an error message may show it: printable whatever it holds."""
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:200].decode("utf-8", "replace"))


def _at(path: Path, line: int, before: bytes) -> str:
    lines = before.count(b"\n")
    return f"{path} line {line + lines}"


def _unix(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block
