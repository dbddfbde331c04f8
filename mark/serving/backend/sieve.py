"""SIEVE decides which entries a cache keeps (Zhang et al., NSDI 2024), here by bytes and age. No I/O, no clock.

Entries are in a queue in the order of their insertion. A hit only marks its entry. To make room, a hand goes from the
oldest entry to the newest and then starts again at the oldest. It removes marks, evicts the first entry without a mark,
and continues from there the next time. An entry that is used once leaves early, and an entry used again stays.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

# Memory of an answer beside its body: measured (tests/serving/backend/test_cache.py), and rounded up.
ENTRY_BYTES = 400
V = TypeVar("V")


class Owner:
    """One of the users of a sieve: the bytes of its entries, and the number of evicted ones."""

    __slots__ = ("bytes", "evictions")

    def __init__(self) -> None:
        self.bytes = self.evictions = 0


class _Entry(Generic[V]):
    """A value in the queue. It is valid before `until_s`."""

    __slots__ = ("key", "marked", "newer", "owner", "size", "until_s", "value")

    def __init__(self, key: bytes, value: V, owner: Owner, size: int, until_s: float) -> None:
        self.key = key
        self.value = value
        self.owner = owner
        self.size = size
        self.until_s = until_s
        self.marked = False
        self.newer: _Entry[V] | None = None


class Sieve(Generic[V]):
    """Values by key, with a total size of at most `budget`. Owners share the budget, each with its own keys."""

    __slots__ = ("_before", "_entries", "_newest", "_oldest", "budget", "size")

    def __init__(self, budget: int) -> None:
        self.budget, self.size = budget, 0
        self._entries: dict[bytes, _Entry[V]] = {}
        self._newest: _Entry[V] | None = None
        self._oldest: _Entry[V] | None = None
        self._before: _Entry[V] | None = None  # the entry that the hand passed last; None: it starts with the oldest

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """Return all values."""
        return [entry.value for entry in self._entries.values()]

    def get(self, key: bytes, now_s: float) -> V | None:
        """Return the value and mark it; None for a missing or old one."""
        entry = self._entries.get(key)
        if entry is None or now_s >= entry.until_s:
            return None
        entry.marked = True
        return entry.value

    def put(self, key: bytes, value: V, owner: Owner, size: int, now_s: float, ttl_s: float = math.inf) -> None:
        """Insert a value, valid for `ttl_s`, and evict others to make room.

        An existing key gets the new value in its place in the queue and is marked, because it is used again. Raises
        ValueError for a size beyond the budget.
        """
        if not 0 <= size <= self.budget:
            raise ValueError(f"{size} bytes do not fit into {self.budget}")
        old = self._entries.get(key)
        if old is not None:
            self.size += size - old.size
            owner.bytes += size - old.size
            old.value, old.size, old.until_s, old.marked = value, size, now_s + ttl_s, True
            self._make_room(now_s, old)
            return
        self.size += size
        owner.bytes += size
        if self.size > self.budget:
            self._make_room(now_s, None)
        entry = self._entries[key] = _Entry(key, value, owner, size, now_s + ttl_s)
        newest = self._newest
        if newest is None:
            self._oldest = entry
        else:
            newest.newer = entry
        self._newest = entry

    def _make_room(self, now_s: float, kept: _Entry[V] | None) -> None:
        """Evict entries until the sizes are within the budget, but never `kept`."""
        while self.size > self.budget:
            before = self._before
            entry = self._oldest if before is None else before.newer
            while entry is None or entry is kept or (entry.marked and now_s < entry.until_s):
                if entry is None:  # beyond the newest
                    before, entry = None, self._oldest
                else:
                    entry.marked = entry is kept
                    before, entry = entry, entry.newer
            self._before = before
            if before is None:
                self._oldest = entry.newer
            else:
                before.newer = entry.newer
            if entry is self._newest:  # the hand starts with the oldest again
                self._newest, self._before = before, None
            entry.newer = None
            del self._entries[entry.key]
            self.size -= entry.size
            entry.owner.bytes -= entry.size
            entry.owner.evictions += 1
