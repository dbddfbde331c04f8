"""The files that one name stands for: a file, a folder with its subfolders, or a pattern such as `logs/*.gz`."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from mark.domain.errors import BadInput
from mark.workload.blocks import blocks

_WILD = frozenset("*?[")
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
    """Without a second name of a file, and without the packed copy of one: `access.log.1` and `access.log.1.gz`."""
    found = list(dict.fromkeys(found))
    names = set(found)
    # A link comes after the file that it leads to.
    found.sort(key=lambda path: (path.is_symlink(), path))
    seen: dict[tuple[int, int], Path] = {}
    kept = []
    for path in found:
        plain = path.with_suffix("")
        status = path.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            left_out.append((path.name, f"another name of {first.name}"))
        elif path.suffix in _PACKED and plain in names and _same(path, plain):
            left_out.append((path.name, f"the same as {plain.name}"))
        else:
            kept.append(path)
    if not kept:
        raise BadInput(none, where)
    return kept, left_out


def _same(one: Path, other: Path) -> bool:
    """Do both hold the same bytes, once unpacked?"""
    try:
        pairs = zip_longest(_pieces(one), _pieces(other))
        return all(first == second for first, second in pairs)
    except BadInput:
        return False  # reading them says why


def _pieces(path: Path) -> Iterator[bytes]:
    return (block for _, block in blocks(path, nuls=lambda _: None))
