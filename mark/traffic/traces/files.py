"""The files that one name stands for: a file, a folder with its subfolders, or a pattern such as `logs/*.gz`."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import blocks

_WILD = frozenset("*?[")
_COPIED = re.compile(r"[ ._-]*(?:\b(?:copy|kopie|bak|old|orig|backup|save)\b|\(\d+\)|~)", re.IGNORECASE)
_PACKED = frozenset((".gz", ".bz2", ".xz", ".zst", ".zip"))

LeftOut = tuple[str, str]
"""The name of a file, and why it is not read."""


def said_of_files(read: int, others: int) -> str:
    """Return how many of several files were read, for the line that says what was read; "" for a single one."""
    parts = [f"{read} files"] if read > 1 else []
    return ", ".join(parts + [f"{others} other file{'s' if others > 1 else ''} not read"] * (others > 0))


def is_pattern(spec: str) -> bool:
    """Return whether it is a pattern of names. A file of exactly this name takes precedence."""
    return bool(_WILD & set(spec)) and not Path(spec).exists()


def matching(pattern: str) -> tuple[list[Path], list[LeftOut]]:
    """Return the files that a pattern names, including files in folders. Raises BadInput without any."""
    found: list[Path] = []
    left_out: list[LeftOut] = []
    for name in sorted(glob.glob(pattern, recursive=True)):
        path = Path(name)
        if path.is_dir():
            inner, others = below(path)
            found += inner
            left_out += others
        elif path.is_file():
            found.append(path)
    return _once(found, left_out, "no file matches this pattern", pattern)


def below(folder: Path) -> tuple[list[Path], list[LeftOut]]:
    """Return the files below a folder, and its hidden or empty files. Raises BadInput if it cannot be read."""
    found: list[Path] = []
    left_out: list[LeftOut] = []
    try:
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                left_out.append((path.name, "hidden"))
            elif not path.stat().st_size:
                left_out.append((path.name, "empty"))
            else:
                found.append(path)
    except OSError as error:
        raise BadInput("cannot be read", str(folder), error.strerror or str(error)) from error
    return _once(found, left_out, "no log files in this folder", str(folder))


def _once(found: list[Path], left_out: list[LeftOut], none: str, where: str) -> tuple[list[Path], list[LeftOut]]:
    """Remove second names and copies of files.

    A copy holds the same content as another file, or its beginning: `access.log.1.gz` of `access.log.1`, or
    `access.log.bak` of `access.log`.
    """
    found = list(dict.fromkeys(found))
    # A link comes after its target, and a copy after its original.
    found.sort(key=lambda path: (path.is_symlink(), path.suffix in _PACKED, len(path.name), path))
    originals: dict[Path, list[Path]] = {}
    seen: dict[tuple[int, int], Path] = {}
    kept = []
    for path in found:
        alike = originals.setdefault(path.with_name(_original(path.name)), [])
        status = path.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            left_out.append((path.name, f"another name of {first.name}"))
        elif (original := next((one for one in alike if _begins(path, one)), None)) is not None:
            left_out.append((path.name, f"the same as {original.name}"))
        else:
            kept.append(path)
            alike.append(path)
    if not kept:
        raise BadInput(none, where)
    return sorted(kept, key=lambda path: (path.is_symlink(), path)), left_out


def _original(name: str) -> str:
    """Return the name without the additions of packing and copying."""
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return _COPIED.sub("", name) or name


def _begins(copy: Path, original: Path) -> bool:
    """Return whether the original begins with the copy's whole content, both unpacked."""
    try:
        pieces = zip_longest(_pieces(copy), _pieces(original), fillvalue=b"")
        ended = False
        for first, second in pieces:
            if (ended and first) or not second.startswith(first):
                return False
            ended = ended or len(first) < len(second)
    except BadInput:
        return False  # reading them reports the reason
    return True


def _pieces(path: Path) -> Iterator[bytes]:
    return (block for _, block in blocks(path, nuls=lambda _: None, cut=lambda _: None))
