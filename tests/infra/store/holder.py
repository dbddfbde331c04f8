"""A process that contends for the lease `site` of an SQLite file, or puts without end; started by the tests.

python -m tests.infra.store.holder contend PATH HOLDER TERMS   claims that many terms, each at a number read from stdin
python -m tests.infra.store.holder hold PATH TTL_S             holds the lease and prints its number whenever it holds
python -m tests.infra.store.holder put PATH                    puts 1, 2, 3, ... and prints each once it is kept
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mark_infra.store.sqlite import SqliteTable

from mark.control.lease import FencedLease, Term
from mark.control.ports import Result


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def contend(path: Path, holder: str) -> None:
    """Claim a term at each time on stdin, when the last term is over, and print the leader by this claim."""
    table = SqliteTable(path)
    over: Term | None = None
    say("ready")
    for line in sys.stdin:
        over = table.claim("site", holder, float(line) + 1.0, over)
        say(f"{over.holder} {over.fence}")


def hold(path: Path, ttl_s: float) -> None:
    lease = FencedLease(SqliteTable(path), "site", ttl_s=ttl_s)
    while True:
        say(lease.hold(time.time()))
        time.sleep(ttl_s / 10.0)


def put(path: Path) -> None:
    # These modules take longer to import than all the rest.
    from mark_infra.store.store import ServiceStore

    from mark.domain.command import Terminate

    store = ServiceStore(SqliteTable(path), "inception")
    n = store.get("n") or 0
    while True:
        n += 1
        store.record(float(n), Terminate("its queue is empty", 0.0, "spot", n), "done", Result.DONE, 0)
        store.put("n", n)
        say(n)


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    {"contend": contend, "hold": lambda path, ttl_s: hold(path, float(ttl_s)), "put": put}[verb](Path(place), *rest)
