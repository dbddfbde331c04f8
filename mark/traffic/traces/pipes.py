"""Keeps the bytes of a pipe in a temporary file, because a trace is inspected first and may be read more than once."""

from __future__ import annotations

import os
import select
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import is_packed, is_text, watched

STDIN = ("-", "/dev/stdin")
HEAD = 1 << 16
_PIECE = 1 << 20
_MOST_NULS = 64 << 20  # before the first other byte

_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


@dataclass(frozen=True, slots=True)
class PipeLimits:
    """The longest silence of a pipe, and the most bytes that may come through it.

    A streamed trace may be longer than one that is held in memory; `is_streamed` decides by the first bytes.
    """

    is_streamed: Callable[[bytes], bool] = lambda _: False
    most_bytes: int = 8 << 30
    most_held_bytes: int = 2 << 30
    patience_s: float = 60.0


def from_pipe(spec: str, limits: PipeLimits) -> Path | None:
    """Return a file with the bytes of the pipe of this name, `-` being standard input; None for other names.

    Raises BadInput for a silent pipe, for binary data, and for more than the limits or half of the disk's free space.
    """
    if spec in STDIN:
        return _standard_input(limits)
    try:
        mode = Path(spec).stat().st_mode
    except (OSError, ValueError):
        return None  # opening it reports the reason
    if not stat.S_ISFIFO(mode):
        return None
    # Without O_NONBLOCK, opening would wait for a writer.
    source = os.open(spec, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return _spooled(source, spec, Path(spec).name, limits)
    finally:
        os.close(source)


_standard: list[Path] = []  # it can be read only once


def _standard_input(limits: PipeLimits) -> Path:
    if _standard:
        return _standard[0]
    try:
        mode = os.fstat(0).st_mode
    except OSError as error:
        raise BadInput("standard input is closed", "-", error.strerror) from error
    if os.isatty(0) or not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        raise BadInput("standard input is no pipe and no file: zcat LOG | mark trace info -", "-")
    _standard.append(_spooled(0, "-", "standard input", limits))
    return _standard[0]


def _spooled(source: int, spec: str, name: str, limits: PipeLimits) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="mark-")
    _folders.append(folder)
    path = Path(folder.name) / name
    try:
        with path.open("wb") as file:
            _copy(source, spec, file, limits, shutil.disk_usage(folder.name).free // 2)
    except OSError as error:
        raise BadInput("the bytes of this pipe cannot be kept", str(path), error.strerror) from error
    except BaseException:
        with suppress(OSError):
            folder.cleanup()
        raise
    return path


def _copy(source: int, spec: str, file: IO[bytes], limits: PipeLimits, free: int) -> None:
    """Copy a pipe to a file. Text is compressed, because logs shrink to a tenth; `blocks` unpacks it."""
    told = watched.get()
    size, head, target = 0, b"", None
    while data := _next(source, spec, limits.patience_s):
        size += len(data)
        if not head and not data.strip(b"\0"):
            if size > _MOST_NULS:
                raise BadInput("nothing but NUL bytes", spec, f"{size >> 20} MiB of them")
            continue
        head = head if len(head) >= HEAD else head + data[:HEAD]
        if target is None:
            packed = is_packed(head) or head.startswith(_OTHERS)
            if not packed and not is_text(head):
                raise BadInput("binary data, not text", spec)
            target = file if packed else zstandard.ZstdCompressor(level=1).stream_writer(file, closefd=False)
        if size > limits.most_bytes or file.tell() > free:
            what = "more comes through this pipe than a temporary file may hold; name the files instead"
            raise BadInput(what, spec, f"more than {size / 1e9:.2g} GB")
        if size > limits.most_held_bytes and not is_packed(head) and not limits.is_streamed(head):
            what = "no access log, and more comes through this pipe than may be held in memory"
            raise BadInput(what, spec, f"more than {size / 1e9:.2g} GB")
        target.write(data)
        if told is not None:
            told(size, 0)
    if target is not None and target is not file:
        target.close()


def _next(source: int, spec: str, patience_s: float) -> bytes:
    """Return the next bytes, empty at the end."""
    ready, _, _ = select.select([source], [], [], patience_s)
    if not ready:
        raise BadInput(f"nothing came through this pipe for {patience_s:g} s", spec)
    return os.read(source, _PIECE)


_OTHERS = (b"PAR1", b"\xff\xfe", b"\xfe\xff")  # Parquet and UTF-16, which are recognised by their first bytes
