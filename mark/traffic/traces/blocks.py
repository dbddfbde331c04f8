"""Text files as blocks of whole lines: plain or compressed, by content; only this module translates foreign errors."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Protocol, cast

import zstandard

from mark.domain.errors import BadInput

_BLOCK = 8 << 20
_PACKED = 1 << 16
LONGEST_LINE = 1 << 20
_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_XZ = b"\xfd7zXZ\0"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"
BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
CUT_OFF = "the compressed file is truncated"
_NULS = re.compile(rb"\0+")
_CONTROLS = bytes([*range(1, 9), *range(14, 27), *range(28, 32), 127])
_MOST_CONTROLS = 0.01  # of the bytes of a text

Told = Callable[[int, int], None]
"""Takes how many bytes of a file were read so far, and how many it has."""

watched: ContextVar[Told | None] = ContextVar("watched", default=None)
"""Takes how far the reading of files is, wherever it happens: the command line shows it."""


def is_folder(path: Path) -> bool:
    """Return whether it is a folder; False is a regular file. Raises BadInput for other kinds."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise BadInput("cannot be opened", str(path), getattr(error, "strerror", None) or str(error)) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInput("neither a regular file nor a folder", str(path))
    return stat.S_ISDIR(mode)


def beginning(path: Path, size: int) -> bytes:
    """Return the first lines of a file, about `size` bytes of them, independent of the rest. Raises BadInput."""
    head = b""
    cut: list[Path] = []
    try:
        for _, block in blocks(path, size, nuls=_ignored, cut=cut.append, part=True):
            head += block if block.strip() else b""
            if len(head) >= size:
                break
    except BadInput:
        if not head:
            raise
    if cut and not head:
        raise BadInput(CUT_OFF, str(path))
    return head[: head.rfind(b"\n", 0, size) + 1] or head


def blocks(
    path: Path,
    size: int = _BLOCK,
    *,
    nuls: Callable[[int], None] | None = None,
    cut: Callable[[Path], None] | None = None,
    told: Told | None = None,
    longest: int = LONGEST_LINE,
    part: bool = False,
) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines each ended by a line feed) in blocks of about `size` bytes.

    Lines count from 1. A byte-order mark and carriage returns before line feeds are dropped, UTF-16 becomes UTF-8.
    Raises BadInput for unreadable files: missing, truncated or corrupt, binary data, a line above `longest` bytes.
    Compressed means gzip, bzip2, xz, zstd, or a zip archive of one file. With `part` a line above `size` is yielded in
    part, and nothing after it.

    With `nuls` a run of NUL bytes in a text ends a line, and `nuls` gets its length: logrotate's `copytruncate` and a
    crash leave such runs. Without it they are binary data. With `cut` a compressed file may end anywhere, as a file
    does that is still written or was copied in part: `cut` gets its path, and the line within which it ends is left
    out.
    """
    line = 1
    rest = b""
    told = told or watched.get()
    try:
        with path.open("rb") as raw:
            total = os.fstat(raw.fileno()).st_size
            stream = _unpacked(raw, path)
            text_of = _Text(stream)
            bare = False  # whether a carriage return ends each line
            while data := text_of.read(size):
                if line == 1 and not rest:
                    bare = b"\n" not in data and b"\r" in data[:-1]
                if bare:
                    data = data.replace(b"\r", b"\n")
                if told is not None:
                    told(raw.tell(), total)
                text = rest + data
                if b"\0" in data:
                    if nuls is None or not is_text(data):
                        raise BadInput(
                            "binary data, not text: unpack an archive, or export text",
                            _at(path, line, text.split(b"\0")[0]),
                        )
                    nuls(data.count(b"\0"))
                if line == 1 and text.startswith(BOM):
                    text = text[len(BOM) :]
                *before, text = _NULS.split(text) if b"\0" in data else [text]
                for piece in filter(None, before):
                    yield line, _unix(piece if piece.endswith(b"\n") else piece + b"\n")
                    line += piece.count(b"\n")
                end = text.rfind(b"\n") + 1
                block, rest = text[:end], text[end:]
                if len(rest) > longest and not part:
                    raise BadInput(f"a line longer than {longest >> 20} MiB", _at(path, line, block))
                if block:
                    yield line, _unix(block)
                    line += block.count(b"\n")
                if part and len(rest) > size:
                    yield line, rest
                    return
            if isinstance(stream, _Packed) and stream.cut:
                if cut is None:
                    raise BadInput(CUT_OFF, str(path))
                cut(path)
                rest = b""
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError, zipfile.BadZipFile) as error:
        raise BadInput("the compressed file is corrupt", str(path), str(error)) from error
    except OSError as error:
        raise BadInput("cannot be read", str(path), error.strerror or str(error)) from error
    if rest:
        yield line, _unix(rest + b"\n")


def ends_within_line(path: Path) -> bool:
    """Return whether a text ends without a line feed. False for a compressed one, because its own end shows a cut."""
    try:
        with path.open("rb") as file:
            if is_packed(file.read(6)):
                return False
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2))
            return not file.read().rstrip(b"\0").endswith((b"\n", b"\r"))
    except OSError as error:
        raise BadInput("cannot be read", str(path), error.strerror or str(error)) from error


def _ignored(_: int) -> None:
    """Ignore NUL bytes, because the reader of the whole file reports them."""


def is_text(data: bytes) -> bool:
    """Return whether the bytes look like text, apart from NUL bytes; nothing but NUL bytes does too."""
    text = data.replace(b"\0", b"")
    return len(text) - len(text.translate(None, _CONTROLS)) <= _MOST_CONTROLS * len(text)


def is_packed(head: bytes) -> bool:
    """Return whether these first bytes begin a compressed file."""
    return head.startswith((_GZIP, _BZIP2, _XZ, _ZSTD, _ZIP))


def _unpacked(raw: io.BufferedReader, path: Path) -> _Stream:
    magic = raw.peek(6)
    for begins, unpacker in _UNPACKERS.items():
        if magic.startswith(begins):
            return _Packed(raw, unpacker)
    if magic.startswith(_ZIP):
        return _zipped(raw, path)
    return raw


def _zipped(raw: io.BufferedReader, path: Path) -> _Stream:
    """Return the only file of a zip archive. macOS adds a file of its own to each."""
    try:
        archive = zipfile.ZipFile(raw)
    except zipfile.BadZipFile:
        raise BadInput("the zip archive is truncated or corrupt", str(path)) from None
    names = [one for one in archive.namelist() if not one.endswith("/") and not one.startswith("__MACOSX/")]
    if len(names) != 1:
        raise BadInput("a zip archive of several files, or an Excel workbook: unpack it, or save CSV", str(path))
    try:
        return archive.open(names[0])
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in another way
        raise BadInput("the zip archive cannot be unpacked", str(path), str(error)) from None


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Text:
    """Text in UTF-8 or, as PowerShell writes it, in UTF-16, as UTF-8."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if not self._begun and data.startswith(_UTF16):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._begun = True
        return data if self._decoder is None else self._decoder.decode(data, final=not data).encode("utf-8", "replace")


class _Unpacker(Protocol):
    """The common interface of the libraries of gzip, bzip2, xz and zstd."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


_UNPACKERS: Mapping[bytes, Callable[[], _Unpacker]] = {
    _GZIP: lambda: cast(_Unpacker, zlib.decompressobj(16 + zlib.MAX_WBITS)),
    _BZIP2: bz2.BZ2Decompressor,
    _XZ: lzma.LZMADecompressor,
    _ZSTD: lambda: cast(_Unpacker, zstandard.ZstdDecompressor().decompressobj()),
}


class _Packed:
    """The content of the parts of a compressed file, in order. `cut`: the file ends within a part.

    The libraries' own files lose the content before the cut.
    """

    def __init__(self, raw: IO[bytes], unpacker: Callable[[], _Unpacker]) -> None:
        self._raw, self._unpacker = raw, unpacker
        self._part = unpacker()
        self._rest = b""
        self.cut = False

    def read(self, size: int) -> bytes:
        pieces, length = [self._rest], len(self._rest)
        while length < size and (packed := self._next()):
            if self._part.eof:
                self._part = self._unpacker()
            text = self._part.decompress(packed)
            pieces.append(text)
            length += len(text)
        text = b"".join(pieces)
        text, self._rest = text[:size], text[size:]
        return text

    def _next(self) -> bytes:
        if self._part.eof:  # gzip may be padded after a part
            return self._part.unused_data.lstrip(b"\0") or self._raw.read(_PACKED).lstrip(b"\0")
        packed = self._raw.read(_PACKED)
        self.cut = not packed
        return packed


def shown(line: bytes) -> str:
    """Return a line of a file for an error message, with only printable characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:200].decode("utf-8", "replace"))


def _at(path: Path, line: int, before: bytes) -> str:
    lines = before.count(b"\n")
    return f"{path} line {line + lines}"


def _unix(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block
