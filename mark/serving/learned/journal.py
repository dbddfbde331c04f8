"""The journal of one process: all facts that it has, in files of its folder in the feedback log, and a snapshot.

    FOLDER/1/learned-00000001.jsonl   facts, one a line
    FOLDER/1/learned.snapshot         the state and the vector of its facts
    FOLDER/1/learned.aside            data beside the facts that helps a process to start
    FOLDER/1/learned.erased           a mark of the deletions that are erased in the folder

A process begins new files, and at its start reads the files of all folders. Files from before the snapshot are kept up
to `tail_bytes` in total, for processes that lag behind.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from mark.serving.feedback.rewriting import Change, drop_unfinished, left_folders, rewrite_lines
from mark.serving.learned.facts import Fact, Vector, fact_in, line_of
from mark.serving.learned.shared import LearnedSnapshot, snapshot_in

_NAME = "learned"
_FILES, _SNAPSHOT, _ASIDE = f"{_NAME}-*.jsonl", f"{_NAME}.snapshot", f"{_NAME}.aside"
_ERASED = f"{_NAME}.erased"
_MADE = "made"


class Journal:
    """The journal in a folder that only this process uses. Any thread may call it. Every method raises OSError."""

    def __init__(self, folder: Path, tail_bytes: int) -> None:
        self._folder, self._tail_bytes = folder, tail_bytes
        self._lock = threading.Lock()
        self._old = {path: path.stat().st_size for path in sorted(folder.glob(_FILES))}
        last = max((int(path.stem.rpartition("-")[2]) for path in self._old), default=0)
        self._numbers = count(last + 1)
        self._covered: list[Path] = []  # files that the next snapshot covers
        self._path = folder
        self._open: int | None = None
        self._bytes = 0
        self.since_snapshot_bytes = sum(self._old.values())

    def append(self, facts: Iterable[Fact]) -> None:
        """Write facts, which are on the disk when this returns. If it raises, they must be appended again."""
        with self._lock:
            self._append(b"".join(map(line_of, facts)))

    def rotate(self) -> None:
        """Begin a new file. A snapshot taken afterwards holds all facts before it, except those under way."""
        with self._lock:
            self._end()
            self._covered = sorted(self._old)
            self.since_snapshot_bytes = 0

    def keep(self, snapshot: bytes, under_way: Iterable[Fact]) -> None:
        """Replace the snapshot, which was taken after `rotate`, and delete old files.

        `under_way` are own facts that the snapshot may lack.
        """
        with self._lock:
            _replace(self._folder / _SNAPSHOT, snapshot)
            self._append(b"".join(map(line_of, under_way)))
            for path in self._covered:
                if sum(self._old.values()) <= self._tail_bytes:
                    break
                del self._old[path]
                path.unlink(missing_ok=True)
            self._covered = []

    def put_aside(self, data: bytes) -> None:
        """Replace the data beside the facts."""
        with self._lock:
            _replace(self._folder / _ASIDE, data)

    def rewrite(self, change: Change) -> None:
        """Change the lines of all files, and delete the data beside the facts."""
        with self._lock:
            (self._folder / _ASIDE).unlink(missing_ok=True)
            self._end()
            drop_unfinished(self._folder, _NAME)
            for path in list(self._old):
                self._old[path] = rewrite_lines(path, change)

    def put_erased(self, mark: bytes) -> None:
        """Replace the mark of the deletions that are erased."""
        with self._lock:
            _replace(self._folder / _ERASED, mark)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _append(self, lines: bytes) -> None:
        if not lines:
            return
        if self._open is None:
            self._path = self._folder / f"learned-{next(self._numbers):08d}.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._open, self._bytes = os.open(self._path, flags, 0o600), 0
            _force(self._folder)
        left = memoryview(lines)
        try:
            while left:
                written = os.write(self._open, left)
                self._bytes += written
                self.since_snapshot_bytes += written
                left = left[written:]
            os.fsync(self._open)
        except OSError:
            # A truncated line ends its file, and a second fsync would not report the data that the first lost.
            self._end()
            raise

    def _end(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None
            self._old[self._path] = self._bytes


class Journals:
    """The journals and snapshots of a machine's processes in the folders of a feedback log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.unreadable = 0  # lines truncated by a crash

    def snapshots(self) -> list[LearnedSnapshot]:
        """Return all readable snapshots, those with the most facts first."""
        found = []
        for path in sorted(self._folder.glob(f"*/{_SNAPSHOT}")):
            with suppress(OSError, ValueError):
                found.append(snapshot_in(path.read_bytes()))
        return sorted(found, key=lambda one: -sum(each.through for each in one.vector.writers.values()))

    def put_snapshot(self, snapshot: bytes) -> None:
        """Add a snapshot that no server made, for servers that start later. Raises OSError."""
        folder = self._folder / _MADE
        folder.mkdir(exist_ok=True)
        # A lock, as in a folder whose process has ended, so that deletions reach it, and held, so that none does now.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _replace(folder / _SNAPSHOT, snapshot)

    def aside(self) -> bytes | None:
        """Return the latest data that a process put beside its facts."""
        found: list[tuple[float, bytes]] = []
        for path in self._folder.glob(f"*/{_ASIDE}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path.read_bytes()))
        return max(found, default=(0.0, None))[1]

    def rewrite(self, vector: Vector, change: Change) -> list[Path]:
        """Change the lines in the folders of processes that have ended, and return these. Raises OSError.

        Their data beside the facts are deleted, and their snapshots if the vector has all of their facts.
        """
        done = []
        for folder in left_folders(self._folder):
            (folder / _ASIDE).unlink(missing_ok=True)
            drop_unfinished(folder, _NAME)
            for path in sorted(folder.glob(_FILES)):
                rewrite_lines(path, change)
            path = folder / _SNAPSHOT
            with suppress(FileNotFoundError, ValueError):
                if not vector.lacks(snapshot_in(path.read_bytes()).vector):
                    path.unlink()
            done.append(folder)
        return done

    def is_erased(self, mark: bytes) -> bool:
        """Return whether all folders with lines have this mark. Raises OSError."""
        folders = {path.parent for path in self._folder.glob("*/*.jsonl")}
        return all((path := folder / _ERASED).exists() and path.read_bytes() == mark for folder in folders)

    def put_erased(self, mark: bytes, folders: Collection[Path]) -> None:
        """Replace the mark in those of the folders that no process has. Raises OSError."""
        for folder in left_folders(self._folder):
            if folder in folders:
                _replace(folder / _ERASED, mark)

    def facts(self) -> Iterator[Fact]:
        """Yield the facts in all files, each as often as it was written. Files that vanish are skipped."""
        for path in sorted(self._folder.glob(f"*/{_FILES}")):
            with suppress(OSError), path.open("rb") as lines:
                for line in lines:
                    try:
                        if not line.endswith(b"\n"):
                            raise ValueError("cut off")
                        fact = fact_in(line)
                    except ValueError:
                        self.unreadable += 1
                    else:
                        yield fact


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)
    _force(path.parent)


def _force(folder: Path) -> None:
    """Put the folder's entries on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
