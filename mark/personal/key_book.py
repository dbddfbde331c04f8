"""The rows and heads of all keys, within a memory budget.

Heads are a cache: they are built from rows when a key is next asked for. Beyond half of the budget the heads that were
not used for longest are dropped, and beyond all of it the rows of such keys move to a `RowStore`.
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
_EVICTED, _LEFT_SHARE = 64, 0.99  # keys that leave together at most; the part of the budget that they may leave used
_TOMBSTONE_BYTES = 200


class RowStore(Protocol):
    """Rows of keys outside of memory, such as in a file. Each method may be repeated."""

    def get(self, key: str) -> bytes | None:
        """The rows of a key; None where there are none."""
        ...

    def put(self, key: str, newest_s: float, rows: bytes) -> None:
        """Replace the rows of a key, the newest of which is from this time."""
        ...

    def delete(self, key: str) -> None:
        """Delete the rows of a key, if there are any, so that no part of them can be read from the file."""
        ...

    def keys(self, before_s: float = math.inf) -> Iterator[str]:
        """The keys whose newest row is from before this time. Keys may be deleted meanwhile."""
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
        # In the order of eviction, in which a key that was asked for has a second chance (CLOCK). An OrderedDict would
        # take 85 bytes more for a key, and so would a dict whose keys move with each question.
        self._rows: dict[str, KeyRows] = {}
        self._last = ""  # the key asked for last
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
        """The keys in memory that were asked for last."""
        return list(islice(reversed(self._rows), count))

    def rows(self, key: str) -> KeyRows | None:
        """The rows of a key, which is asked for; None where it has none."""
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
        """The rows of a key, none if it is new."""
        found = self.rows(key)
        if found is None:
            found = self._rows[key] = KeyRows(self._dimension)
            self._rows_bytes += found.memory_bytes
        return found

    def take(self, key: str, rows: KeyRows) -> None:
        """Take over the rows of a key that has none."""
        self._rows[key] = rows
        self.changed(rows, rows.memory_bytes)

    def changed(self, rows: KeyRows, by_bytes: int) -> None:
        """Count a change of the rows of a key. Call it after each change."""
        self._rows_bytes += by_bytes
        rows.state &= ~SAVED

    def head(self, key: str) -> Head | None:
        """The head of a key, if it is in memory."""
        found = self._heads.get(key)
        if found is not None:
            self._heads.move_to_end(key)
        return found

    def keep_head(self, key: str, head: Head) -> None:
        """Keep the head of a key in the place of its old one."""
        self.drop_head(key)
        self._heads[key] = head
        self._heads_bytes += head.memory_bytes

    def drop_head(self, key: str) -> None:
        """Drop the head of a key: the next question builds it from the rows."""
        old = self._heads.pop(key, None)
        if old is not None:
            self._heads_bytes -= old.memory_bytes

    def is_buried(self, key: str, at_s: float) -> bool:
        """Was the key deleted at this time or later?"""
        return at_s <= self.tombstones.get(key, -math.inf)

    def bury(self, key: str, at_s: float) -> RowArrays | None:
        """Delete the rows of a key until this time, and refuse such rows from now on. Returns the deleted rows."""
        self.tombstones[key] = max(at_s, self.tombstones.get(key, -math.inf))
        return self.remove(key, at_s)

    def remove(self, key: str, until_s: float = math.inf) -> RowArrays | None:
        """Delete the rows of a key until this time, and return them; None where it has no rows."""
        self.drop_head(key)
        rows = self.rows(key)
        if rows is None:
            return None
        before = rows.memory_bytes
        gone = rows.drop(until_s)
        if self._store is not None:
            # At once, because a deleted row must not stay in a file until the key is next evicted.
            self._store.delete(key)
        if rows.count:
            self.changed(rows, rows.memory_bytes - before)
        else:
            del self._rows[key]
            self._rows_bytes -= before
        return gone

    def shrink(self) -> None:
        """Bring memory within the budget, as far as there is a store for rows. The last key asked for stays."""
        while len(self._heads) > 1 and self._heads_bytes > _HEADS_SHARE * self._most_bytes:
            self.drop_head(next(iter(self._heads)))
        while self._store is not None and len(self._rows) > 1 and self.used_bytes > self._most_bytes:
            # Several leave together, because the first key of a dict is found behind all that have moved to the end.
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
        """The keys whose newest row is from before this time, in order of their names."""
        stored = self._store.keys(before_s) if self._store is not None else ()
        found = {key for key in stored if key not in self._rows}
        return sorted(found | {key for key, rows in self._rows.items() if rows.is_before(before_s)})

    def dump(self, key: str) -> bytes | None:
        """The rows of a key as bytes, without a place in memory for rows that lie in the store."""
        rows = self._rows.get(key)
        if rows is not None:
            return rows.to_bytes(self._name)
        return self._store.get(key) if self._store is not None else None

    def freeze(self) -> dict[str, FrozenRows | bytes]:
        """The rows of each key so far. Rows in the store are read at once, because they may be replaced later."""
        found: dict[str, FrozenRows | bytes] = {key: rows.freeze() for key, rows in self._rows.items()}
        stored = self._store.keys() if self._store is not None else ()
        for key in stored:
            if key not in found and (data := self.dump(key)) is not None:
                found[key] = data
        return found

    def clear(self) -> None:
        """Delete everything, in the store, too."""
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
