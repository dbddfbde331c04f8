"""SQLite: how a bad file affects a controller, and how a kill affects the file."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import pytest
from mark_infra.store import sqlite as module
from mark_infra.store.dynamo_table import JOURNAL_LINES, LOAD_MINUTES, Fence, JournalLine
from mark_infra.store.sqlite import SqliteTable
from mark_infra.store.store import ServiceStore

from mark.control.lease import FencedLease
from mark.control.ports import Result
from mark.domain.errors import BadInput, LostLease, StoreError
from tests.infra.store.test_leases import heard, process

LINE = JournalLine(0.0, "launch", "launch 2", "done", 0.17, Result.DONE, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    opened = SqliteTable(path)
    yield opened
    opened.close()


# -- kill --------------------------------------------------------------------------------------------------------------


def test_sigkill_loses_nothing_that_was_kept(path: Path) -> None:
    """A writer is killed three times; all values that it reported as kept are there, in order."""
    last = 0
    for kill in range(3):
        with process("put", str(path)) as putting:
            for _ in range(20 + 7 * kill):
                last = int(heard(putting))
            putting.kill()
        table = SqliteTable(path)
        store = ServiceStore(table, "inception")
        kept, lines = store.get("n"), store.recorded(None, 9999)
        assert last <= kept <= lines[0].id <= kept + 1 + kill
        assert [line.id for line in lines] == list(range(lines[0].id, 0, -1))
        table.close()
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()


# -- bad files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be one" * 99, b"SQLite format 3\0" * 99]
)
def test_a_file_that_is_none_of_ours_is_bad_input(path: Path, content: bytes) -> None:
    """One line names the file, which stays as it was."""
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"state\.db.*(no state of mark, or damaged)") as caught:
        SqliteTable(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_is_bad_input(tmp_path: Path) -> None:
    """The path is a folder, or a file in a missing folder."""
    for path in (tmp_path, tmp_path / "no" / "state.db"):
        with pytest.raises(BadInput, match="cannot be opened"):
            SqliteTable(path)


def test_a_database_of_something_else_is_bad_input(path: Path) -> None:
    """The database stays as it was."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE state (a)")
    db.close()
    with pytest.raises(BadInput, match="a database of something else"):
        SqliteTable(path)


def test_the_journal_of_the_first_version_is_read_without_results(table: SqliteTable, path: Path) -> None:
    table.record("inception", LINE, None, 0.0)
    table.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE journal DROP COLUMN result")
        db.execute("ALTER TABLE journal DROP COLUMN started")
        db.execute("PRAGMA user_version=1")
        db.commit()
    again = SqliteTable(path)
    again.record("inception", LINE, None, 0.0)
    assert [(one.result, one.started) for one in again.recorded("inception", None, 2)] == [(Result.DONE, 1), (None, 0)]
    again.close()


def test_a_file_of_another_version_is_bad_input(table: SqliteTable, path: Path) -> None:
    """Its contents stay as they were."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(BadInput, match="written by another version of mark"):
        SqliteTable(path)


def test_a_file_damaged_while_open_is_a_store_error(path: Path) -> None:
    """There is no other error, and no wrong value is read."""
    table = SqliteTable(path)
    for n in range(400):
        table.put("inception", f"key {n}", "x" * 500, None)
    table.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    table = SqliteTable(path)

    def read_all() -> None:
        for n in range(400):
            assert table.get("inception", f"key {n}") == "x" * 500

    with pytest.raises(StoreError, match=r"state\.db"):
        read_all()
    table.close()


@pytest.mark.parametrize("then", ["deleted", "replaced"])
def test_a_file_that_others_cannot_see_ends_the_lead(path: Path, then: str) -> None:
    """It was deleted, or a backup restored over it: another controller may lead on the new file."""
    table = SqliteTable(path)
    lease = FencedLease(table, "site")
    assert lease.hold(100.0) == 1
    store = ServiceStore(table, "inception", Fence("site", 1))
    store.put("plan", "old")
    for each in path.parent.glob("state.db*"):
        each.unlink()
    if then == "replaced":
        other = SqliteTable(path)
        assert FencedLease(other, "site").hold(101.0) == 1
        other.close()
    with pytest.raises(LostLease, match="replaced or deleted"):
        store.put("plan", "new")
    with pytest.raises(StoreError, match="replaced or deleted"):
        table.get("inception", "plan")
    assert lease.hold(105.1) is None
    assert not lease.lasts()
    table.close()


# -- full and locked ---------------------------------------------------------------------------------------------------


FILL = """
import resource, sys
from pathlib import Path
from mark.domain.errors import StoreError
from mark_infra.store.sqlite import SqliteTable

table = SqliteTable(Path(sys.argv[1]))
table.put("inception", "plan", "kept", None)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    for n in range(1000):
        table.put("inception", f"{n}", "x" * 9000, None)
except StoreError as error:
    print(f"refused: {error}")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
table.put("inception", "plan", "after", None)
print(table.get("inception", "plan"))
"""


def test_a_full_disk_is_a_store_error_and_passes(path: Path) -> None:
    """No write is left half done; with room again it goes on."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, timeout=60.0)
    refused, after = done.stdout.splitlines()
    assert refused.startswith(f"refused: {path}: ")
    assert after == "after"


LEAD = """
import resource, sys
from pathlib import Path
from mark.control.lease import FencedLease
from mark_infra.store.sqlite import SqliteTable

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

table = SqliteTable(Path(sys.argv[1]))
lease = FencedLease(table, "site")
held = [lease.hold(100.0)]
room(0)
held += [lease.hold(106.0), lease.hold(114.5)]
room(resource.RLIM_INFINITY)
held.append(lease.hold(120.0))
print(held, lease.lasts())
"""


def test_a_full_disk_ends_the_lead_with_its_term(path: Path) -> None:
    """It ends no earlier. With room again the controller leads again, because the lease is a row like any other."""
    done = subprocess.run([sys.executable, "-c", LEAD, str(path)], capture_output=True, text=True, timeout=60.0)
    assert done.stdout == "[1, 1, None, 1] True\n", done.stderr
    assert "not renewed" in done.stderr


def test_a_lock_that_is_never_released_is_a_store_error(
    table: SqliteTable, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes after WAIT_S. Reads go on until then, and writes afterwards."""
    monkeypatch.setattr(module, "WAIT_S", 0.1)
    short = SqliteTable(path)
    short.put("inception", "plan", "1", None)
    blocking = sqlite3.connect(path, isolation_level=None)
    blocking.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"state\.db: database is locked"):
        short.put("inception", "plan", "2", None)
    assert short.get("inception", "plan") == "1"
    blocking.execute("ROLLBACK")
    blocking.close()
    short.put("inception", "plan", "3", None)
    assert table.get("inception", "plan") == "3"
    short.close()


def test_what_is_closed_is_a_store_error(path: Path) -> None:
    """Late calls happen while the controller ends."""
    table = SqliteTable(path)
    table.close()
    with pytest.raises(StoreError):
        table.get("inception", "plan")


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_the_journal_is_bounded(table: SqliteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is per service: the oldest lines go, and ids go on."""
    assert JOURNAL_LINES == 100_000
    monkeypatch.setattr(module, "JOURNAL_LINES", 10)
    table.record("other", LINE, None, 0.0)
    for _ in range(25):
        table.record("inception", LINE, None, 0.0)
    ids = [line.id for line in table.recorded("inception", None, 99)]
    assert ids == list(range(25, 15, -1))
    assert len(table.recorded("other", None, 9)) == 1


def test_ten_thousand_lines_are_read_a_page_at_a_time(table: SqliteTable) -> None:
    """Each page is found by its key from the end of the page before; the older lines are not read."""
    rows = [("inception", n, *astuple(LINE)) for n in range(1, 10_001)]
    table._db.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    for before, newest in ((None, 10_000), (9_951, 9_950), (51, 50)):
        page = table.recorded("inception", before, 50)
        assert [line.id for line in page] == list(range(newest, newest - 50, -1))
    plan = "EXPLAIN QUERY PLAN SELECT id FROM journal WHERE service = 'x' AND id < 9 ORDER BY id DESC LIMIT 50"
    (step,) = table._db.execute(plan).fetchall()
    assert "USING PRIMARY KEY (service=? AND id<?)" in step[-1]


def test_as_much_load_is_kept_as_five_weeks_have(table: SqliteTable) -> None:
    """The newest are kept for each service. One minute of a clock that was ahead deletes no more than one."""
    table.append_load("other", {0: (1.0, 1.0)}, None, 0.0)
    table.append_load("inception", dict.fromkeys(range(LOAD_MINUTES), (1.0, 2.0)), None, 0.0)
    ahead = 100 * LOAD_MINUTES
    table.append_load("inception", {ahead: (1.0, 2.0)}, None, 0.0)
    kept = [minute for minute, _, _ in table.load("inception", 0)]
    assert kept == [*range(1, LOAD_MINUTES), ahead]
    table.append_load("inception", dict.fromkeys(range(LOAD_MINUTES, LOAD_MINUTES + 3), (1.0, 2.0)), None, 0.0)
    assert [minute for minute, _, _ in table.load("inception", 0)] == [*range(4, LOAD_MINUTES + 3), ahead]
    assert len(table.load("other", 0)) == 1
