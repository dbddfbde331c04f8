"""Text files as blocks of whole lines: plain or gzip by content, foreign errors translated here and nowhere else."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from mark.domain.errors import BadInput

_BLOCK = 8 << 20
_LONGEST_LINE = 1 << 20
_GZIP = b"\x1f\x8b"
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
    what cannot be read: missing, truncated or corrupt gzip, binary data, a line above 1 MiB.
    """
    line = 1
    rest = b""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
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
        raise BadInput("the gzip file is truncated", str(path)) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput("the gzip file is corrupt", str(path), str(error)) from error
    except OSError as error:
        raise BadInput("cannot be read", str(path), error.strerror or str(error)) from error
    if rest:
        yield line, _unix(rest + b"\n")


def shown(line: bytes) -> str:
    """A line of a file as an error message may show it: printable whatever it holds."""
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:200].decode("utf-8", "replace"))


def _at(path: Path, line: int, before: bytes) -> str:
    lines = before.count(b"\n")
    return f"{path} line {line + lines}"


def _unix(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block
