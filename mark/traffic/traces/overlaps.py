"""The same requests twice: the first requests of one file in another file too, or a part of a file in it again.

A log that was copied before its rotation has such lines, and so does the sum of several logs beside them, and a log to
which a copy was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import beginning, blocks
from mark.traffic.traces.stamps import Micros

_LINES = 8  # successive lines; fewer are equal by chance if nodes answer the same health checks
_LEAST = 3
_HEAD = 1 << 15  # bytes
_BACK_S = 10.0  # a step back, after which a copy may begin: requests take less, and are single lines
_MOST_STEPS = 8  # steps back of a file that are examined


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


@dataclass(slots=True)
class Repeats:
    """Steps back in the times of one file, each with the lines behind it, which a copy has had before."""

    _latest: int = -1
    _steps: list[tuple[int, bytes]] = field(default_factory=list)  # the number of the first line, and the lines

    def see(self, line: int, block: bytes, micros: Micros) -> None:
        """Collect the steps back of a block whose first line has this number."""
        good = np.flatnonzero(micros >= 0)
        if not len(good) or len(self._steps) == _MOST_STEPS:
            return
        latest = np.maximum.accumulate(np.concatenate(([self._latest], micros[good])))
        self._latest = int(latest[-1])
        begins = _steps_back(micros[good] / 1e6, latest[:-1] / 1e6)
        lines = block.split(b"\n") if len(begins) else []
        for i in good[begins].tolist():
            behind = lines[i : i + _LINES]
            if len(behind) == _LINES and len(self._steps) < _MOST_STEPS:
                self._steps.append((line + i, b"\n".join(behind) + b"\n"))

    def check(self, path: Path, how: str) -> None:
        """Raise BadInput if lines behind a step back stand in the file before it. `how` counts both."""
        steps, before = list(self._steps), b""
        for line, block in blocks(path, nuls=lambda _: None, cut=lambda _: None) if steps else ():
            steps = [(number, lines) for number, lines in steps if number > line]
            for number, lines in steps:
                at = (before + block).find(lines)
                first = line - before.count(b"\n") + (before + block).count(b"\n", 0, max(at, 0))
                if at >= 0 and first < number:
                    what = f"repeats its lines from line {first} on, as a copy that was appended: cut it there"
                    raise BadInput(f"{what}, or say {how} for both", f"{path} line {number}")
            before = block[-_HEAD:]
            before = before[before.find(b"\n") + 1 :]


def repeated_row(columns: Sequence[Sequence[object]], seconds: FloatArray) -> int | None:
    """Return the first row behind a step back that repeats earlier rows, with the rows after it."""
    latest = np.maximum.accumulate(np.concatenate(([-np.inf], seconds)))[:-1]
    if not (steps := _steps_back(seconds, latest)):
        return None
    rows = list(zip(*columns, strict=True))
    first = {row: i for i, row in reversed(list(enumerate(rows)))}
    for i in steps:
        before, behind = first[rows[i]], rows[i : i + _LINES]
        if before < i and len(behind) == _LINES and behind == rows[before : before + _LINES]:
            return i
    return None


def _steps_back(seconds: FloatArray, latest: FloatArray) -> list[int]:
    """Return where times go back behind the latest one before, and the next ones too."""
    back = seconds < latest - _BACK_S
    begins = back & ~np.concatenate(([False], back[:-1]))
    for ahead in range(1, _LEAST):
        begins &= np.concatenate((back[ahead:], np.zeros(min(ahead, len(back)), dtype=np.bool_)))
    found: list[int] = np.flatnonzero(begins).tolist()
    return found
