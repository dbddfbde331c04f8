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
_PACKED = frozenset((".gz", ".bz2", ".xz", ".zst"))

LeftOut = tuple[str, str]
"""The name of a file, and why it is not read."""


def is_pattern(spec: str) -> bool:
    """Is it a pattern of names? A file of exactly this name is none."""
    return bool(_WILD & set(spec)) and not Path(spec).exists()


def matching(pattern: str) -> tuple[list[Path], list[LeftOut]]:
    """The files that a pattern names, those of folders included. Raises BadInput where there are none."""
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
    """The files below a folder, and those that are hidden or empty. Raises BadInput where it cannot be read."""
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
    """Without a second name of a file, and without a copy of one: `access.log.1` and `access.log.1.gz`, or `access.log`
    and `access.log.bak`, where one holds the same as the other, or as its beginning.
    """
    found = list(dict.fromkeys(found))
    # A link comes after the file that it leads to, and a copy after its original.
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
    """The name without what packing and copying add."""
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return _COPIED.sub("", name)


def _begins(copy: Path, original: Path) -> bool:
    """Does the original begin with all that the copy holds, once they are unpacked?"""
    try:
        pieces = zip_longest(_pieces(copy), _pieces(original), fillvalue=b"")
        ended = False
        for first, second in pieces:
            if (ended and first) or not second.startswith(first):
                return False
            ended = ended or len(first) < len(second)
    except BadInput:
        return False  # reading them says why
    return True


def _pieces(path: Path) -> Iterator[bytes]:
    return (block for _, block in blocks(path, nuls=lambda _: None, cut=lambda _: None))
