"""Text files as blocks of whole lines: plain or compressed, by content; foreign errors are translated here only."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Iterator
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
_BOM = b"\xef\xbb\xbf"


def is_folder(path: Path) -> bool:
    """Is it a folder? False is a regular file; raises BadInput for anything else: a pipe could not be read twice."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise BadInput("cannot be opened", str(path), getattr(error, "strerror", None) or str(error)) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInput("not a regular file (a trace is read twice, so a pipe will not do)", str(path))
    return stat.S_ISDIR(mode)


def blocks(path: Path, size: int = _BLOCK) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines each ended by a line feed) in blocks of about `size` bytes.

    Lines count from 1. A byte-order mark and carriage returns before line feeds are dropped. Raises BadInput for
    what cannot be read: missing, truncated or corrupt, binary data, a line above 1 MiB. Compressed is gzip, bzip2, xz
    or zstd.
    """
    line = 1
    rest = b""
    try:
        with path.open("rb") as raw:
            stream = _unpacked(raw)
            while data := stream.read(size):
                if b"\0" in data:
                    raise BadInput("binary data, not text", _at(path, line, (rest + data).split(b"\0")[0]))
                text = rest + data
                if line == 1 and text.startswith(_BOM):
                    text = text[len(_BOM) :]
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
    return raw


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
