"""Any number of stamps in order: sorted runs in a temporary file, merged when they are read.

8 bytes a stamp are written. The memory used is one run, and a block of each run while merging.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from mark.domain.errors import BadInput
from mark.traffic.traces.stamps import Micros

RUN = 4_000_000  # stamps sorted at a time
BLOCK = 1 << 16
_BYTES = 8


@dataclass(slots=True)
class Ordered:
    """Stamps that are added in any order and read in ascending order, repeatedly."""

    run: int = RUN
    count: int = 0
    _held: list[Micros] = field(default_factory=list)
    _in_memory: int = 0
    _runs: list[tuple[int, int]] = field(default_factory=list)  # (first stamp, stamps) of each, in the file
    _file: IO[bytes] | None = None

    def add(self, stamps: Micros) -> None:
        """Add stamps. Raises BadInput if the disk is full."""
        self._held.append(stamps)
        self._in_memory += len(stamps)
        self.count += len(stamps)
        if self._in_memory >= self.run:
            self._write()

    def blocks(self) -> Iterator[Micros]:
        """Yield all stamps, ascending. Blocks are not empty."""
        rest = np.sort(np.concatenate(self._held)) if self._held else np.empty(0, dtype=np.int64)
        self._held = [rest] if len(rest) else []
        runs = [_Run(self, first, count) for first, count in self._runs]
        if not runs:
            yield from (rest[i : i + BLOCK] for i in range(0, len(rest), BLOCK))
            return
        pieces = [*(run.head for run in runs), rest]
        while any(map(len, pieces)):
            # Every run is known up to here, because its further stamps are later than the last one of its block.
            ends = [int(run.head[-1]) for run in runs if run.left]
            until = min(ends, default=None)
            cuts = [len(p) if until is None else int(np.searchsorted(p, until, "right")) for p in pieces]
            taken = np.sort(np.concatenate([p[:cut] for p, cut in zip(pieces, cuts, strict=True)]), kind="stable")
            for run, cut in zip(runs, cuts[:-1], strict=True):
                run.take(cut)
            rest = rest[cuts[-1] :]
            pieces = [*(run.head for run in runs), rest]
            if len(taken):
                yield taken

    def read(self, first: int, count: int) -> Micros:
        assert self._file is not None
        self._file.seek(first * _BYTES)
        return np.frombuffer(self._file.read(count * _BYTES), dtype=np.int64)

    def _write(self) -> None:
        stamps = np.sort(np.concatenate(self._held))
        first = sum(count for _, count in self._runs)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="mark-")  # noqa: SIM115 - read as long as the trace is
            self._file.seek(first * _BYTES)
            self._file.write(stamps.tobytes())
            self._file.flush()
        except OSError as error:
            raise BadInput("the log's times cannot be sorted there", tempfile.gettempdir(), error.strerror) from error
        self._runs.append((first, len(stamps)))
        self._held, self._in_memory = [], 0

    def __del__(self) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.close()


class _Run:
    """A sorted run: the current block, and the number of stamps after it."""

    def __init__(self, source: Ordered, first: int, count: int) -> None:
        self._source, self._next, self.left = source, first, count
        self.head = np.empty(0, dtype=np.int64)
        self.take(0)

    def take(self, count: int) -> None:
        self.head = self.head[count:]
        if not len(self.head) and self.left:
            size = min(BLOCK, self.left)
            self.head = self._source.read(self._next, size)
            self._next += size
            self.left -= size
