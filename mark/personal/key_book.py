"""The rows and heads of all keys, within a memory budget.

Heads are a cache: a missing head is built from rows when its key is used. If heads take more than half of the budget,
the least recently used heads are dropped. Beyond the whole budget, rows of keys move to a `RowStore`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from mark.personal.head import Head
from mark.personal.key_rows import SAVED, USED, FrozenRows, KeyRows, RowArrays

_HEADS_SHARE = 0.5
_EVICTED, _LEFT_SHARE = 64, 0.99  # the most keys evicted at once; eviction ends at this part of the budget
_TOMBSTONE_BYTES = 200


class RowStore(Protocol):
    """Rows of keys outside of memory, such as in a file. Each method may be repeated."""

    def get(self, key: str) -> bytes | None:
        """Return the rows of a key; None if there are none."""
        ...

    def put(self, key: str, newest_s: float, rows: bytes) -> None:
        """Replace the rows of a key, the newest of which is from this time."""
        ...

    def delete(self, key: str) -> None:
        """Delete the rows of a key, if there are any, so that no part of them can be read from the file."""
        ...

    def keys(self, before_s: float = math.inf) -> Iterator[str]:
        """Yield the keys whose newest row is from before this time. Keys may be deleted meanwhile."""
        ...


class KeyBook:
    """Rows, heads and tombstones by key. `slot` and `name` translate between the names and the slots of items."""

    def __init__(
        self,
        dimension: int,
        most_bytes: int,
        slot: Callable[[str | None], int],
        name: Callable[[int], str | None],
        store: RowStore | None = None,
    ) -> None:
        self._dimension, self._most_bytes, self._store = dimension, most_bytes, store
        self._slot, self._name = slot, name
        # In the order of eviction; a key that was used has a second chance (CLOCK). An OrderedDict, or a dict whose
        # keys move at each use, would take 85 bytes more for a key.
        self._rows: dict[str, KeyRows] = {}
        self._last = ""  # the key used last
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self.tombstones: dict[str, float] = {}
        self._rows_bytes, self._heads_bytes = 0, 0

    @property
    def used_bytes(self) -> int:
        """The memory of rows, heads and tombstones, roughly."""
        return self._rows_bytes + self._heads_bytes + _TOMBSTONE_BYTES * len(self.tombstones)

    @property
    def in_memory(self) -> int:
        """The count of keys whose rows are in memory."""
        return len(self._rows)

    @property
    def heads(self) -> int:
        """The count of heads in memory."""
        return len(self._heads)

    def recent(self, count: int) -> list[str]:
        """Return the keys at the end of the order of eviction, the last first."""
        return list(islice(reversed(self._rows), count))

    def rows(self, key: str) -> KeyRows | None:
        """Return the rows of a key, from the store if needed, and mark the key as used; None if it has none."""
        self._last = key
        found = self._rows.get(key)
        if found is not None:
            found.state |= USED
            return found
        data = self._store.get(key) if self._store is not None else None
        if data is None:
            return None
        found = self._rows[key] = KeyRows.of_bytes(data, self._dimension, self._slot)
        found.state |= SAVED
        self._rows_bytes += found.memory_bytes
        return found

    def new_rows(self, key: str) -> KeyRows:
        """Return the rows of a key; empty rows for a new key."""
        found = self.rows(key)
        if found is None:
            found = self._rows[key] = KeyRows(self._dimension)
            self._rows_bytes += found.memory_bytes
        return found

    def take(self, key: str, rows: KeyRows) -> None:
        """Set the rows of a key that has none."""
        self._rows[key] = rows
        self.changed(rows, rows.memory_bytes)

    def changed(self, rows: KeyRows, by_bytes: int) -> None:
        """Count a change of the rows of a key. Call it after each change."""
        self._rows_bytes += by_bytes
        rows.state &= ~SAVED

    def head(self, key: str) -> Head | None:
        """Return the head of a key; None if it is not in memory."""
        found = self._heads.get(key)
        if found is not None:
            self._heads.move_to_end(key)
        return found

    def keep_head(self, key: str, head: Head) -> None:
        """Keep the head of a key instead of its old one."""
        self.drop_head(key)
        self._heads[key] = head
        self._heads_bytes += head.memory_bytes

    def drop_head(self, key: str) -> None:
        """Drop the head of a key; its next use builds it from the rows."""
        old = self._heads.pop(key, None)
        if old is not None:
            self._heads_bytes -= old.memory_bytes

    def is_buried(self, key: str, at_s: float) -> bool:
        """Return whether the key was deleted at this time or later."""
        return at_s <= self.tombstones.get(key, -math.inf)

    def bury(self, key: str, at_s: float) -> RowArrays | None:
        """Delete and return the rows of a key until this time; a tombstone refuses such rows from now on."""
        self.tombstones[key] = max(at_s, self.tombstones.get(key, -math.inf))
        return self.remove(key, at_s)

    def remove(self, key: str, until_s: float = math.inf) -> RowArrays | None:
        """Delete and return the rows of a key until this time; None if it has no rows."""
        self.drop_head(key)
        rows = self.rows(key)
        if rows is None:
            return None
        before = rows.memory_bytes
        gone = rows.drop(until_s)
        if self._store is not None:
            # Now, because a deleted row must not stay in a file until the key is next evicted.
            self._store.delete(key)
        if rows.count:
            self.changed(rows, rows.memory_bytes - before)
        else:
            del self._rows[key]
            self._rows_bytes -= before
        return gone

    def shrink(self) -> None:
        """Bring memory within the budget; without a store, rows stay. The key used last stays too."""
        while len(self._heads) > 1 and self._heads_bytes > _HEADS_SHARE * self._most_bytes:
            self.drop_head(next(iter(self._heads)))
        while self._store is not None and len(self._rows) > 1 and self.used_bytes > self._most_bytes:
            # Evict several at once, because finding a dict's first key skips the entries of all removed keys.
            for key in list(islice(self._rows, _EVICTED)):
                if self._rows[key].state & USED or key == self._last:
                    self._rows[key] = rows = self._rows.pop(key)
                    rows.state &= ~USED
                    continue
                self._save(key)
                self.drop_head(key)
                self._rows_bytes -= self._rows.pop(key).memory_bytes
                if self.used_bytes <= _LEFT_SHARE * self._most_bytes:
                    break

    def flush(self) -> None:
        """Write all rows that changed to the store."""
        for key in sorted(self._rows):
            self._save(key)

    def known(self, before_s: float = math.inf) -> list[str]:
        """Return the keys whose newest row is from before this time, in the order of their names."""
        stored = self._store.keys(before_s) if self._store is not None else ()
        found = {key for key in stored if key not in self._rows}
        return sorted(found | {key for key, rows in self._rows.items() if rows.is_before(before_s)})

    def dump(self, key: str) -> bytes | None:
        """Return the rows of a key as bytes, without loading stored rows into memory."""
        rows = self._rows.get(key)
        if rows is not None:
            return rows.to_bytes(self._name)
        return self._store.get(key) if self._store is not None else None

    def freeze(self) -> dict[str, FrozenRows | bytes]:
        """Return the present rows of each key. Stored rows are read now, because they may be replaced later."""
        found: dict[str, FrozenRows | bytes] = {key: rows.freeze() for key, rows in self._rows.items()}
        stored = self._store.keys() if self._store is not None else ()
        for key in stored:
            if key not in found and (data := self.dump(key)) is not None:
                found[key] = data
        return found

    def clear(self) -> None:
        """Delete everything, in memory and in the store."""
        if self._store is not None:
            for key in list(self._store.keys()):
                self._store.delete(key)
        self._rows.clear()
        self._heads.clear()
        self.tombstones.clear()
        self._rows_bytes = self._heads_bytes = 0

    def _save(self, key: str) -> None:
        rows = self._rows[key]
        if self._store is not None and not rows.state & SAVED:
            self._store.put(key, rows.newest_s, rows.to_bytes(self._name))
            rows.state |= SAVED
