"""Changes of lines in written files, without a trace of the old lines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

Change = Callable[[bytes], bytes]  # of a whole line; b"" removes it


def rewrite_lines(path: Path, change: Change) -> int:
    """Change the lines of a file that no process appends to, and return its size.

    The new file is on the disk when this returns. After a crash the file is the old or the new one. The size of a file
    that somebody removed is 0. Raises OSError.
    """
    try:
        old = path.open("rb")
    except FileNotFoundError:
        return 0
    beside = path.with_suffix(".new")
    changed = False
    with old, open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as new:
        for line in old:
            now = change(line) if line.endswith(b"\n") else b""  # a truncated line may hold the data too
            changed = changed or now != line
            new.write(now)
        new.flush()
        size = new.tell()
        if changed:
            os.fsync(new.fileno())
    if not changed:
        beside.unlink()
        return size
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def drop_unfinished(folder: Path, kind: str) -> None:
    """Delete new files that a killed process did not put in place, because they hold old lines."""
    for path in folder.glob(f"{kind}*.new"):
        path.unlink(missing_ok=True)


def left_folders(log: Path) -> Iterator[Path]:
    """Yield the folders of a feedback log whose processes have ended, each locked against other processes."""
    for lock in sorted(log.glob("*/lock")):
        with suppress(OSError), lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.parent
