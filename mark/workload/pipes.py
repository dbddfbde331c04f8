"""What comes through a pipe, kept in a temporary file: a trace is looked at before it is read, and read more than once."""

from __future__ import annotations

import os
import select
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from mark.domain.errors import BadInput
from mark.workload.blocks import is_packed, is_text, watched

STDIN = ("-", "/dev/stdin")
MOST_BYTES = 8 << 30
_PIECE = 1 << 20
_MOST_NULS = 64 << 20  # before the first other byte

_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def from_pipe(spec: str, patience_s: float = 60.0, most_bytes: int = MOST_BYTES) -> Path | None:
    """A file with all that comes through the pipe of this name, `-` being standard input; None where it is no pipe.

    Raises BadInput for a pipe through which nothing comes for `patience_s`, for binary data, and for more than
    `most_bytes` or half of what the disk has left.
    """
    if spec in STDIN:
        return _standard_input(patience_s, most_bytes)
    try:
        mode = Path(spec).stat().st_mode
    except (OSError, ValueError):
        return None  # whoever opens it says why
    if not stat.S_ISFIFO(mode):
        return None
    # A pipe that nobody writes to would block while it is opened.
    source = os.open(spec, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return _spooled(source, spec, Path(spec).name, patience_s, most_bytes)
    finally:
        os.close(source)


@cache  # it can be read once only
def _standard_input(patience_s: float, most_bytes: int) -> Path:
    try:
        mode = os.fstat(0).st_mode
    except OSError as error:
        raise BadInput("standard input is closed", "-", error.strerror) from error
    if os.isatty(0) or not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        raise BadInput("standard input is no pipe and no file: zcat LOG | mark trace info -", "-")
    return _spooled(0, "-", "standard input", patience_s, most_bytes)


def _spooled(source: int, spec: str, name: str, patience_s: float, most_bytes: int) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="mark-")
    _folders.append(folder)
    path = Path(folder.name) / name
    most = min(most_bytes, shutil.disk_usage(folder.name).free // 2)
    told = watched.get()
    size, head = 0, b""
    try:
        with path.open("wb") as file:
            while data := _next(source, spec, patience_s):
                if not head.strip(b"\0"):
                    head = data if not head or data.strip(b"\0") else head
                    if not (is_packed(head) or head.startswith(b"PAR1")) and not is_text(head):
                        raise BadInput("binary data, not text", spec)
                    if size > _MOST_NULS:
                        raise BadInput("nothing but NUL bytes", spec, f"{size >> 20} MiB of them")
                size += len(data)
                if size > most:
                    what = "more comes through this pipe than a temporary file may hold; name the files instead"
                    raise BadInput(what, spec, f"more than {most / 1e9:.3g} GB")
                file.write(data)
                if told is not None:
                    told(size, 0)
    except OSError as error:
        raise BadInput("what comes through this pipe cannot be kept", str(path), error.strerror) from error
    except BaseException:
        with suppress(OSError):
            folder.cleanup()
        raise
    return path


def _next(source: int, spec: str, patience_s: float) -> bytes:
    """The next bytes, none at the end."""
    ready, _, _ = select.select([source], [], [], patience_s)
    if not ready:
        raise BadInput(f"nothing came through this pipe for {patience_s:g} s", spec)
    return os.read(source, _PIECE)
