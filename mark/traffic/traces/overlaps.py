"""Files of a folder that hold the same requests: the first requests of one file stand in another file too.

A log that was copied before its rotation has such lines, and so does the sum of several logs beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import beginning

_LINES = 8  # successive lines; fewer are equal by chance if nodes answer the same health checks
_LEAST = 3
_HEAD = 1 << 15  # bytes


@dataclass(slots=True)
class Overlaps:
    """The first requests of each file, by the first of them."""

    _heads: dict[bytes, list[tuple[Path, tuple[bytes, ...]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[tuple[Path, Callable[[bytes], list[bool]]]]) -> Overlaps:
        """Collect the first requests of files, each with a function that marks request lines. Raises BadInput."""
        found = cls()
        for path, are_requests in files:
            head = beginning(path, _HEAD)
            lines = [line for line, fits in zip(head.split(b"\n"), are_requests(head), strict=False) if fits][:_LINES]
            if len(lines) >= _LEAST:
                found._heads.setdefault(lines[0], []).append((path, tuple(lines)))
        return found

    def check(self, path: Path, block: bytes) -> None:
        """Raise BadInput if a block of a file holds the first requests of another file."""
        if not self._heads:
            return
        lines = block.split(b"\n")
        for first in self._heads.keys() & set(lines):
            at = lines.index(first)
            for other, head in self._heads[first]:
                there = lines[at : at + len(head)]
                there = there[:-1] if at + len(head) >= len(lines) else there  # a block ends with a line feed
                if other != path and len(there) >= _LEAST and list(head[: len(there)]) == there:
                    what = f"its first requests stand in {path.name}, too: the same requests twice?"
                    raise BadInput(f"{what} Name those to read by a pattern", str(other))
