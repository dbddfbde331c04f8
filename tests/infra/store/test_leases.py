"""Terms over memory, SQLite and DynamoDB: one of several racing holders leads, and another follows when it dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest
from mark_infra.store.dynamo_table import Fence
from mark_infra.store.sqlite import SqliteTable
from mark_infra.store.store import ServiceStore

from mark.control.lease import FencedLease, LeaseStore, MemoryTerms, Term
from mark.domain.errors import LostLease
from tests.infra.store.stores import opener

SOON_S = 20.0


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LeaseStore]]:
    if request.param == "memory":
        memory = MemoryTerms()
        yield lambda: memory
        return
    yield from opener(request.param, tmp_path, request)


def test_a_term_is_its_holders_until_seen_to_stand(again: Callable[[], LeaseStore]) -> None:
    """A prolonged term lasts longer. The number changes with the holder, and only then."""
    one, other = again(), again()
    held = one.claim("site", "a", 110.0)
    assert held == Term("a", 1, 110.0)
    assert other.claim("site", "b", 119.9) == held
    longer = one.claim("site", "a", 115.0)
    assert longer == Term("a", 1, 115.0)
    assert other.claim("site", "b", 125.0, held) == longer, "it was renewed since"
    assert other.claim("site", "b", 140.0, longer) == Term("b", 2, 140.0)
    assert one.claim("site", "a", 141.0, longer) == Term("b", 2, 140.0)
    assert one.claim("other site", "a", 141.0) == Term("a", 1, 141.0)


def test_a_renewal_shows_whatever_the_holders_clock(again: Callable[[], LeaseStore]) -> None:
    """The clock may stand still or be set back: the last digit, which every store keeps, still changes."""
    one, other = again(), again()
    terms = [one.claim("site", "a", until_s) for until_s in (1.7e9 + 0.1, 1.7e9 + 0.1, 1.6e9)]
    assert len(set(terms)) == 3
    for over in terms[:-1]:
        assert other.claim("site", "b", 1.0, over) == terms[-1]
    assert other.claim("site", "b", 1.0, terms[-1]) == Term("b", 2, 1.0)


def test_only_the_holder_resigns(again: Callable[[], LeaseStore]) -> None:
    """Then any holder may lead, with another number."""
    terms = again()
    terms.resign("site", "a")
    terms.claim("site", "a", 110.0)
    terms.resign("site", "b")
    assert terms.claim("site", "b", 111.0).holder == "a"
    terms.resign("site", "a")
    terms.resign("site", "a")
    assert terms.claim("site", "a", 111.0) == Term("a", 2, 111.0)


def test_of_threads_that_race_one_leads(again: Callable[[], LeaseStore]) -> None:
    """In each of 20 terms all threads hear the same, and the numbers are 1, 2, 3, ..."""
    contenders, rounds = 4, 20
    start = Barrier(contenders)
    opened = [again() for _ in range(contenders)]

    def contend(k: int) -> list[Term]:
        seen: list[Term] = []
        for n in range(rounds):
            start.wait(SOON_S)
            # Each name is used once, so that no holder prolongs its term.
            over = seen[-1] if seen else None
            seen.append(opened[k].claim("site", f"{k}/{n}", 10.0 * n + 10.0, over))
        return seen

    with ThreadPoolExecutor(contenders) as pool:
        told = list(pool.map(contend, range(contenders)))
    for n, terms in enumerate(zip(*told, strict=True)):
        assert len(set(terms)) == 1
        assert terms[0].fence == n + 1
        assert terms[0].holder.endswith(f"/{n}")


# -- processes ---------------------------------------------------------------------------------------------------------


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.infra.store.holder", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=SOON_S)


def heard(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def test_of_processes_that_race_one_leads(tmp_path: Path) -> None:
    """Three processes, 30 terms: they open a missing file at the same time, and hear the same each time."""
    path, names = tmp_path / "state.db", ("a", "b", "c")
    with (
        process("contend", str(path), "a") as a,
        process("contend", str(path), "b") as b,
        process("contend", str(path), "c") as c,
    ):
        contenders = (a, b, c)
        assert [heard(one) for one in contenders] == ["ready"] * 3
        fences = []
        for n in range(30):
            for one in contenders:
                assert one.stdin is not None
                one.stdin.write(f"{2.0 * n}\n")
            told = {heard(one) for one in contenders}
            assert len(told) == 1
            holder, fence = told.pop().split()
            assert holder in names
            fences.append(int(fence))
    assert fences == sorted(fences)
    assert fences[0] == 1


def test_after_sigkill_another_one_leads_after_a_term(tmp_path: Path) -> None:
    """The other one must first see the term stand still for its length."""
    path, ttl_s = tmp_path / "state.db", 1.0
    table = SqliteTable(path)
    lease = FencedLease(table, "site", ttl_s=ttl_s)
    with process("hold", str(path), str(ttl_s)) as holder:
        assert [heard(holder) for _ in range(5)] == ["1"] * 5
        assert lease.hold(time.time()) is None
        holder.kill()
        killed_s = time.monotonic()
        while (fence := lease.hold(time.time())) is None:
            assert time.monotonic() < killed_s + SOON_S
            time.sleep(0.01)
        took_s = time.monotonic() - killed_s
    assert fence == 2
    # The other process may have seen the term stand still for a moment before the holder died.
    assert 0.5 * ttl_s < took_s < ttl_s + 5.0
    table.close()


def test_a_holder_that_was_stopped_for_long_can_write_nothing(tmp_path: Path) -> None:
    """After SIGSTOP or a machine's sleep it believes to lead until it writes."""
    now_s = 100.0
    sleeping, awake = SqliteTable(tmp_path / "state.db"), SqliteTable(tmp_path / "state.db")
    passed_s = [0.0]
    old, new = FencedLease(sleeping, "site"), FencedLease(awake, "site", monotonic_s=lambda: passed_s[0])
    assert old.hold(now_s) == 1
    store = ServiceStore(sleeping, "inception", Fence("site", 1))
    assert new.hold(now_s + 40.0) is None
    passed_s[0] = 20.0
    assert new.hold(now_s + 60.0) == 2
    assert old.hold(now_s + 1.0) == 1  # it has not looked at its clock since
    with pytest.raises(LostLease):
        store.put("plan", "old")
    assert old.hold(now_s + 61.0) is None
    sleeping.close()
    awake.close()
