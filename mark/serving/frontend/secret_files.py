"""Permissions of files with keys or secrets: their owner may use them, and a group may read them.

A user who can write a key file could grant themselves access, and one who can read it could use its keys. So such a
file is refused, as `ssh` refuses it. Two things excuse a mode: a parent folder that is closed to others, and a
read-only mount, as for secrets in containers, where the mode cannot be changed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mark.domain.errors import BadInput

_WRITES = stat.S_IWGRP | stat.S_IWOTH
_READS = stat.S_IROTH
_ENTERS = stat.S_IXGRP | stat.S_IXOTH


def check_private(path: Path, *, secret: bool = True) -> None:
    """Raise BadInput if others than its owner may change the file or, if it is `secret`, all may read it.

    Raises OSError if the file does not exist.
    """
    mode = path.stat().st_mode
    may = others_may(mode, secret=secret, read_only=bool(os.statvfs(path).f_flag & os.ST_RDONLY))
    # Others reach no file in a folder that they cannot enter.
    if may and all(folder.stat().st_mode & _ENTERS for folder in path.resolve().parents):
        way_out = f"chmod 600 {path}; in a container mount it read-only"
        raise BadInput(f"others than its owner may {may} it (mode {stat.S_IMODE(mode):04o}): {way_out}", str(path))


def others_may(mode: int, *, secret: bool, read_only: bool) -> str:
    """Return the forbidden action that others may do, or ""; `read_only` is the mount of the file."""
    if read_only:
        return ""
    if mode & _WRITES:
        return "change"
    return "read" if secret and mode & _READS else ""
