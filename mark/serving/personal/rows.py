"""Rows of keys in a SQLite file, for keys that do not fit into memory.

The file belongs to one process and holds no durable data: facts and snapshots do. So it starts empty, and is written
without waiting for the disk. Deleted data is overwritten with zeros.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from mark.domain.errors import BadInput
from mark.personal.key_book import RowStore

_KEYS_AT_ONCE = 1000
_CACHE_KIB = 16_384


class SqliteRows:
    """The rows in one file. Raises BadInput if the file cannot be written."""

    def __init__(self, path: Path) -> None:
        try:
            for left in path.parent.glob(f"{path.name}*"):  # also the journal of a killed process
                left.unlink()
            path.touch(mode=0o600)
            # `check_same_thread`: the loop's thread uses it, and another one may close it.
            self._rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for setting in (
                "secure_delete = ON",
                "journal_mode = MEMORY",
                "synchronous = OFF",
                "locking_mode = EXCLUSIVE",
                f"cache_size = -{_CACHE_KIB}",
            ):
                self._rows.execute(f"PRAGMA {setting}")
            self._rows.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, newest_s REAL, rows BLOB)")
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"cannot be written ({error})", "[feedback] log", str(path)) from error

    def get(self, key: str) -> bytes | None:
        """Return the rows of a key; None for an unknown key."""
        found = self._rows.execute("SELECT rows FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    def put(self, key: str, newest_s: float, rows: bytes) -> None:
        """Replace the rows of a key."""
        self._rows.execute("REPLACE INTO rows VALUES (?, ?, ?)", (key, newest_s, rows))

    def delete(self, key: str) -> None:
        """Delete the rows of a key, if there are any."""
        self._rows.execute("DELETE FROM rows WHERE key = ?", (key,))

    def keys(self, before_s: float = math.inf) -> Iterator[str]:
        """Yield the keys whose newest row is from before this time. Keys may be deleted during the iteration."""
        asked = "SELECT key FROM rows WHERE newest_s < ? AND key > ? ORDER BY key LIMIT ?"
        last = ""
        while found := self._rows.execute(asked, (before_s, last, _KEYS_AT_ONCE)).fetchall():
            yield from (key for (key,) in found)
            last = found[-1][0]

    def close(self) -> None:
        """Close the file; call nothing afterwards."""
        self._rows.close()


_: type[RowStore] = SqliteRows
