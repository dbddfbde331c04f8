"""Facts and snapshots in an object store, for processes that start when no other one runs.

    learned/NAME/WRITER/FIRST-LAST          facts of one writer, one a line
    learned/NAME/snapshots/TIME-WRITER      a snapshot; TIME in milliseconds
    learned/NAME/aside/TIME/WRITER          data beside the facts that helps a process to start

Objects are never overwritten or deleted: a rule of the bucket may delete objects older than 30 days.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mark.models.registry import ObjectStore
from mark.serving.learned.facts import Fact, Vector, facts_in, line_of
from mark.serving.learned.shared import LearnedSnapshot, snapshot_in

_ASIDE_EVERY_S = 3600.0
_DIGITS = 12  # fixed width, so that keys sort like numbers


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The facts in a store: key, writer, first and last number of each object."""

    places: list[tuple[str, str, int, int]]

    def lacked_by(self, vector: Vector) -> list[str]:
        """Return the keys of objects with facts that this vector lacks."""
        found = []
        for key, writer, first, last in self.places:
            applied = vector.writers.get(writer)
            if applied is None or not all(map(applied.has, range(max(first, applied.through), last + 1))):
                found.append(key)
        return found

    def lacks(self, facts: Iterable[Fact]) -> list[list[Fact]]:
        """Return the facts that are not in the store, in runs of successive facts of one writer."""
        by_writer: dict[str, list[Fact]] = {}
        for fact in sorted(facts, key=lambda one: one.number):
            by_writer.setdefault(fact.writer, []).append(fact)
        for _, writer, first, last in self.places:
            if left := by_writer.get(writer):
                del left[bisect_left(left, first, key=_number) : bisect_right(left, last, key=_number)]
        runs: list[list[Fact]] = []
        for left in by_writer.values():
            for before, fact in zip([None, *left], left, strict=False):
                if before is None or before.number + 1 < fact.number:
                    runs.append([])
                runs[-1].append(fact)
        return runs


def _number(fact: Fact) -> int:
    return fact.number


class LearnedStore:
    """The objects of one model. All methods block, and raise BadInput or MarkError of the store."""

    def __init__(self, objects: ObjectStore, name: str) -> None:
        self._objects, self._prefix = objects, f"learned/{name}/"

    def put(self, facts: Sequence[Fact]) -> None:
        """Store successive facts of one writer. May be repeated, even with more facts."""
        first, last = facts[0], facts[-1]
        key = f"{self._prefix}{first.writer}/{first.number:0{_DIGITS}}-{last.number:0{_DIGITS}}"
        self._objects.create(key, b"".join(map(line_of, facts)))

    def put_snapshot(self, snapshot: bytes, writer: str, now_s: float) -> str:
        """Store a snapshot that `writer` made. Returns its key."""
        now_ms = round(now_s * 1e3)
        while not self._objects.create(key := f"{self._prefix}snapshots/{now_ms:015}-{writer}", snapshot):
            now_ms += 1  # the clock was set back
        return key

    def snapshots(self) -> list[str]:
        """Return the keys of the snapshots, newest first."""
        return self._objects.keys(f"{self._prefix}snapshots/")[::-1]

    def snapshot(self, key: str) -> LearnedSnapshot:
        """Return the snapshot of a key. Raises ValueError if it cannot be read, or was deleted."""
        return snapshot_in(self._objects.read(key) or b"")

    def put_aside(self, data: bytes, writer: str, now_s: float, instead: bool = False) -> None:
        """Store data for processes that start later, unless another object of the last hour has such data.

        With `instead` that object may have data of a deleted key, and is replaced.
        """
        last = max(self._aside(), default="")
        last_ms = int(last.split("/")[0]) if last else -math.inf
        if instead:
            now_s = max(now_s, (last_ms + 1.0) / 1e3)  # the clock of the other process may be ahead
        if instead or now_s - last_ms / 1e3 >= _ASIDE_EVERY_S:
            self._objects.create(f"{self._prefix}aside/{round(now_s * 1e3):015}/{writer}", data)

    def aside(self) -> bytes | None:
        """Return the latest data that a process put aside."""
        last = max(self._aside(), default="")
        return self._objects.read(f"{self._prefix}aside/{last}") if last else None

    def _aside(self) -> list[str]:
        prefix = f"{self._prefix}aside/"
        return [key.removeprefix(prefix) for key in self._objects.keys(prefix)]

    def there(self) -> StoredFacts:
        """Return the places of all facts."""
        found = StoredFacts([])
        for key in self._objects.keys(self._prefix):
            writer, _, numbers = key.removeprefix(self._prefix).partition("/")
            first, _, last = numbers.partition("-")
            if writer != "snapshots" and first.isdigit() and last.isdigit():
                found.places.append((key, writer, int(first), int(last)))
        return found

    def facts(self, key: str) -> list[Fact]:
        """Return the facts of an object; none if it was deleted. Raises ValueError if it cannot be read."""
        return facts_in(self._objects.read(key) or b"")
