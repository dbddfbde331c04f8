"""State in an SQLite file, for one machine; safe with several threads and processes on it.

The write-ahead log is flushed only at checkpoints. Committed data survive the end of any process, even by SIGKILL. A
power cut may lose the last commits but nothing else; the controller then reads the cloud's tags, as after every start.

If the file is deleted or replaced while it is open, for example by restoring a backup, other processes no longer see
it. From then on reading fails, and a lease holder has lost its lease.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from threading import Lock

from mark.control.lease import Term, claimed, resigned
from mark.control.ports import Recorded
from mark.domain.errors import BadInput, LostLease, MarkError, StoreError
from mark_infra.store.dynamo_table import JOURNAL_LINES, LOAD_MINUTES, Fence, JournalLine, Table, recorded

WAIT_S = 2.0  # for another process that writes
_VERSION = 2
# Version 1 of the journal had no result.
_FROM_1 = "ALTER TABLE journal ADD COLUMN result TEXT; ALTER TABLE journal ADD COLUMN started INTEGER DEFAULT 0;"
_SCHEMA = """
CREATE TABLE state (service TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (service, key)) WITHOUT ROWID;
CREATE TABLE journal (
    service TEXT, id INTEGER, at_s REAL, verb TEXT, text TEXT, outcome TEXT, usd_per_hour REAL,
    result TEXT, started INTEGER, PRIMARY KEY (service, id)
) WITHOUT ROWID;
CREATE TABLE load (
    service TEXT, minute INTEGER, mean_rps REAL, peak_rps REAL, PRIMARY KEY (service, minute)
) WITHOUT ROWID;
CREATE TABLE numbers (
    service TEXT, id TEXT, number INTEGER NOT NULL, since_unix_s REAL NOT NULL, PRIMARY KEY (service, id)
) WITHOUT ROWID;
CREATE TABLE services (
    service TEXT PRIMARY KEY, origin_unix_s REAL, last_number INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT, fence INTEGER, until_s REAL) WITHOUT ROWID;
"""


class SqliteTable:
    """One connection, used by one thread at a time. Raises BadInput for a file that is not a mark database.

    If the path no longer names the opened file, reads raise StoreError, and writes raise LostLease because another
    controller may lead there.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        try:
            self._db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise BadInput(f"cannot be opened: {error}", str(path)) from None
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            self._db.close()
            raise StoreError(f"{path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise BadInput(f"is no state of mark, or damaged: {error}", str(path)) from None
        except BadInput:
            self._db.close()
            raise
        self._place = path.absolute()
        self._file = _file_at(self._place)

    def _prepare(self) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                break
            # Switching the mode does not wait for another process that switches it at the same time.
            except sqlite3.OperationalError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
        self._db.execute("PRAGMA synchronous=NORMAL")
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, 1, _VERSION):
                raise BadInput(f"was written by another version of mark ({version})", str(self._path))
            if version == 0 and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise BadInput("is a database of something else", str(self._path))
            for statement in {0: _SCHEMA, 1: _FROM_1}.get(version, "").split(";")[:-1]:
                self._db.execute(statement)
            if version != _VERSION:
                self._db.execute(f"PRAGMA user_version={_VERSION}")

    def get(self, service: str, key: str) -> str | None:
        with self._asking() as db:
            row = db.execute("SELECT value FROM state WHERE service = ? AND key = ?", (service, key)).fetchone()
        return None if row is None else str(row[0])

    def put(self, service: str, key: str, value: str, fence: Fence | None) -> None:
        with self._asking(LostLease) as db, self._transaction(fence):
            db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (service, key, value))

    def record(self, service: str, line: JournalLine, fence: Fence | None, now_unix_s: float) -> None:
        with self._asking(LostLease) as db, self._transaction(fence):
            (last,) = db.execute("SELECT max(id) FROM journal WHERE service = ?", (service,)).fetchone()
            id = (last or 0) + 1
            db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (service, id, *astuple(line)))
            db.execute("DELETE FROM journal WHERE service = ? AND id <= ?", (service, id - JOURNAL_LINES))

    def append_load(
        self, service: str, load: Mapping[int, tuple[float, float]], fence: Fence | None, now_unix_s: float
    ) -> None:
        with self._asking(LostLease) as db, self._transaction(fence):
            rows = [(service, minute, mean_rps, peak_rps) for minute, (mean_rps, peak_rps) in load.items()]
            db.executemany("INSERT OR REPLACE INTO load VALUES (?, ?, ?, ?)", rows)
            # Delete by count, not by age: one minute from a clock that was ahead would delete all others.
            db.execute(
                "DELETE FROM load WHERE service = ? AND minute <= ("
                "SELECT minute FROM load WHERE service = ? ORDER BY minute DESC LIMIT 1 OFFSET ?)",
                (service, service, LOAD_MINUTES),
            )

    def recorded(self, service: str, before_id: int | None, count: int) -> list[Recorded]:
        with self._asking() as db:
            rows = db.execute(
                "SELECT id, at_s, verb, text, outcome, usd_per_hour, result, started FROM journal"
                " WHERE service = ? AND id < ? ORDER BY id DESC LIMIT ?",
                (service, 2**62 if before_id is None else before_id, count),
            ).fetchall()
        return [recorded(*row) for row in rows]

    def load(self, service: str, since_minute: int) -> list[tuple[int, float, float]]:
        with self._asking() as db:
            return db.execute(
                "SELECT minute, mean_rps, peak_rps FROM load WHERE service = ? AND minute >= ? ORDER BY minute",
                (service, since_minute),
            ).fetchall()

    def numbers(self, service: str, ids: Sequence[str], now_unix_s: float) -> dict[str, int]:
        with self._asking() as db, self._transaction():
            numbers: dict[str, int] = {}
            for id in ids:
                row = db.execute("SELECT number FROM numbers WHERE service = ? AND id = ?", (service, id)).fetchone()
                if row is None:
                    row = db.execute(
                        "INSERT INTO services (service, last_number) VALUES (?, 1)"
                        " ON CONFLICT DO UPDATE SET last_number = last_number + 1 RETURNING last_number",
                        (service,),
                    ).fetchone()
                    db.execute("INSERT INTO numbers VALUES (?, ?, ?, ?)", (service, id, row[0], now_unix_s))
                numbers[id] = row[0]
            return numbers

    def forget_numbers(self, service: str, there: Collection[str], before_unix_s: float) -> None:
        with self._asking() as db, self._transaction():
            old = db.execute("SELECT id FROM numbers WHERE service = ? AND since_unix_s < ?", (service, before_unix_s))
            gone = [(service, id) for (id,) in old.fetchall() if id not in there]
            db.executemany("DELETE FROM numbers WHERE service = ? AND id = ?", gone)

    def origin_unix_s(self, service: str, now_unix_s: float) -> float:
        with self._asking() as db, self._transaction():
            (origin_s,) = db.execute(
                "INSERT INTO services (service, origin_unix_s) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET origin_unix_s = coalesce(origin_unix_s, excluded.origin_unix_s)"
                " RETURNING origin_unix_s",
                (service, now_unix_s),
            ).fetchone()
            return float(origin_s)

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        with self._asking(LostLease) as db, self._transaction():
            before = self._term(db, name)
            term = claimed(before, holder, until_s, over)
            if term != before:
                self._keep(db, name, term)
            return term

    def resign(self, name: str, holder: str) -> None:
        with self._asking() as db, self._transaction():
            term = self._term(db, name)
            if term is not None and term.holder == holder:
                self._keep(db, name, resigned(term))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @staticmethod
    def _term(db: sqlite3.Connection, name: str) -> Term | None:
        row = db.execute("SELECT holder, fence, until_s FROM lease WHERE name = ?", (name,)).fetchone()
        return None if row is None else Term(*row)

    @staticmethod
    def _keep(db: sqlite3.Connection, name: str, term: Term) -> None:
        row = (name, term.holder, term.fence, term.until_s)
        db.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", row)

    @contextmanager
    def _asking(self, replaced: type[MarkError] = StoreError) -> Iterator[sqlite3.Connection]:
        """Lend the connection to one thread. This is the only place where SQLite's errors become ours.

        Raises `replaced` if the path no longer names the opened file.
        """
        with self._lock:
            if _file_at(self._place) != self._file:
                raise replaced(f"{self._path}: was replaced or deleted while it was open")
            try:
                yield self._db
            except sqlite3.Error as error:
                raise StoreError(f"{self._path}: {error}") from error

    @contextmanager
    def _transaction(self, fence: Fence | None = None) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if fence is not None:
                term = self._term(self._db, fence.lease)
                if term is None or term.fence != fence.number:
                    raise LostLease(f"another controller holds the lease {fence.lease}")
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # SQLite has already rolled back after some errors, for example a full disk.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at the path, or None without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_: type[Table] = SqliteTable
