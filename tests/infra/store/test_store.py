"""The store of a service: one suite over memory, SQLite and DynamoDB."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from mark_infra.store.dynamo_table import Fence, Table
from mark_infra.store.store import FORGET_S, ServiceStore, open_store, open_table

from mark.control.lease import FencedLease
from mark.control.memory_store import MemoryStore
from mark.control.ports import Result, Store
from mark.domain.command import Launch, Terminate
from mark.domain.errors import BadInput, LostLease
from mark.domain.load import Load
from mark.domain.plan import Plan, Target
from tests.infra.store.stores import Open, opener

COMMAND = Launch("forecast p50 40 requests/s", 0.17, "c5.large/on-demand", 2)


class Now:
    """Unix time that the test sets."""

    def __init__(self) -> None:
        self.unix_s = 1.8e9

    def __call__(self) -> float:
        return self.unix_s


@pytest.fixture(params=["sqlite", "dynamodb"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    yield from opener(request.param, tmp_path, request)


@pytest.fixture
def table(again: Open) -> Table:
    return again()


@pytest.fixture
def store(table: Table) -> ServiceStore:
    return ServiceStore(table, "inception", unix_s=Now())


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    for made in opener(request.param, tmp_path, request):
        yield ServiceStore(made(), "inception")


def test_what_was_put_last_is_got(any_store: Store) -> None:
    """Earlier values do not matter; without a value the answer is None."""
    plan = Plan(60.0, (Target("c5.large/on-demand", 3, "because"),), notes=("a note",))
    assert any_store.get("plan") is None
    any_store.put("plan", 1)
    any_store.put("plan", plan)
    any_store.put("memory", None)
    assert any_store.get("plan") == plan
    assert any_store.get("memory") is None


def test_the_journal_is_read_from_its_newest_line(any_store: Store) -> None:
    """Each page goes on where the last one ended, up to the oldest line; ids ascend."""
    for n in range(7):
        command = COMMAND if n % 2 else Terminate("its queue is empty", 0.0, "spot", n)
        any_store.record(60.0 * n, command, f"outcome {n}", Result.PART if n % 2 else Result.FAILED, n % 2)
    first = any_store.recorded(None, 3)
    assert [line.outcome for line in first] == ["outcome 6", "outcome 5", "outcome 4"]
    line = first[1]
    assert (line.at_s, line.verb, line.usd_per_hour, line.text) == (300.0, "launch", 0.17, str(COMMAND))
    assert (line.result, line.started) == (Result.PART, 1)
    assert isinstance(line.result, Result)
    rest = any_store.recorded(first[-1].id, 100)
    assert [line.outcome for line in rest] == [f"outcome {n}" for n in (3, 2, 1, 0)]
    ids = [line.id for line in (*first, *rest)]
    assert ids == sorted(ids, reverse=True)
    assert any_store.recorded(rest[-1].id, 5) == []


def test_whatever_is_asked_of_the_journal_is_answered(any_store: Store) -> None:
    """Numbers that no journal has give an empty page or the whole journal."""
    any_store.record(np.float64(1.5), COMMAND, "done", Result.DONE, 0)
    any_store.record(2.0, COMMAND, "done", Result.DONE, 0)
    assert [any_store.recorded(before, 5) for before in (0, 1, -7, -(10**30))] == [[]] * 4
    assert [any_store.recorded(None, count) for count in (0, -1)] == [[]] * 2
    assert [line.id for line in any_store.recorded(10**30, 10**30)] == [2, 1]


def test_services_do_not_see_each_other(table: Table) -> None:
    """They share neither values, journals, numbers nor load."""
    one, other = ServiceStore(table, "one"), ServiceStore(table, "two")
    one.put("plan", 1)
    one.record(0.0, COMMAND, "done", Result.DONE, 0)
    one.append_load(Load(0.0, 60.0, np.ones(1), np.ones(1)))
    one.numbers(["i-1", "i-2"])
    assert (other.get("plan"), other.recorded(None, 9), len(other.load_since(0.0))) == (None, [], 0)
    assert other.numbers(["i-2"]) == {"i-2": 1}


def test_what_another_version_wrote_is_not_read(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The controller starts afresh, and says so."""
    table.put("inception", "plan", '{"shapes":{"Plan":"0/00000000"},"value":null}', None)
    with caplog.at_level(logging.WARNING):
        assert ServiceStore(table, "inception").get("plan") is None
    assert "plan is not read" in caplog.text


def test_a_reopened_store_has_everything(again: Open) -> None:
    """Another process opens it after the first one ended."""
    first = ServiceStore(again(), "inception")
    first.put("plan", (1, 2))
    first.record(0.0, COMMAND, "done", Result.DONE, 0)
    first.numbers(["i-1"])
    origin_s = first.origin_unix_s()
    second = ServiceStore(again(), "inception")
    second.record(1.0, COMMAND, "done", Result.DONE, 0)
    first.record(2.0, COMMAND, "done", Result.DONE, 0)
    assert second.get("plan") == (1, 2)
    assert [line.id for line in second.recorded(None, 9)] == [3, 2, 1]
    assert second.numbers(["i-2", "i-1"]) == {"i-1": 1, "i-2": 2}
    assert second.origin_unix_s() == origin_s


def test_the_origin_is_the_first_one(table: Table) -> None:
    """It stays the same when it is read again, or when numbers were given before."""
    now = Now()
    store = ServiceStore(table, "inception", unix_s=now)
    store.numbers(["i-1"])
    assert store.origin_unix_s() == 1.8e9
    now.unix_s += 5.5
    assert ServiceStore(table, "inception", unix_s=now).origin_unix_s() == 1.8e9


# -- load --------------------------------------------------------------------------------------------------------------


def test_load_is_kept_by_the_minute(store: ServiceStore) -> None:
    """Gaps stay gaps, a repeated minute replaces the old one, and only the requested range is read."""
    store.append_load(Load(120.0, 60.0, np.array([1.0, np.nan, 3.0]), np.array([1.5, np.nan, 3.5])))
    store.append_load(Load(360.0, 60.0, np.array([0.1 + 0.2]), np.array([7.0])))
    store.append_load(Load(360.0, 60.0, np.array([0.3]), np.array([8.0])))
    store.append_load(Load(420.0, 60.0, np.array([]), np.array([])))
    load = store.load_since(0.0)
    assert (load.start_s, load.step_s) == (120.0, 60.0)
    assert load.mean_rps.tolist() == pytest.approx([1.0, math.nan, 3.0, math.nan, 0.3], nan_ok=True, rel=0.0)
    assert load.peak_rps.tolist() == pytest.approx([1.5, math.nan, 3.5, math.nan, 8.0], nan_ok=True, rel=0.0)
    assert store.load_since(240.0).mean_rps[0] == 3.0
    assert (len(store.load_since(421.0)), store.load_since(421.0).start_s) == (0, 480.0)


def test_load_that_is_yet_to_come_is_not_read(store: ServiceStore) -> None:
    """A leader whose clock was ahead for a minute stored it. The real minute then replaces it."""
    store.append_load(Load(0.0, 60.0, np.ones(3), np.ones(3)))
    years = Load(1e9 * 60.0, 60.0, np.full(1, 7.0), np.full(1, 7.0))
    store.append_load(years)
    store.append_load(Load(240.0, 60.0, np.full(1, 7.0), np.full(1, 7.0)))
    assert store.load_since(0.0, 180.0).end_s == store.load_since(0.0, 299.0).end_s == 180.0
    assert store.load_since(0.0, 119.0).end_s == 60.0
    assert len(store.load_since(0.0, 0.0)) == 0
    store.append_load(Load(240.0, 60.0, np.full(1, 2.0), np.full(1, 2.0)))
    assert store.load_since(240.0, 300.0).mean_rps.tolist() == [2.0]


def test_load_of_other_steps_or_before_the_origin_is_refused(store: ServiceStore) -> None:
    """The store would keep it at the wrong minute."""
    with pytest.raises(ValueError, match="by the minute"):
        store.append_load(Load(0.0, 300.0, np.ones(1), np.ones(1)))
    with pytest.raises(ValueError, match="before the origin"):
        store.append_load(Load(-60.0, 60.0, np.ones(1), np.ones(1)))


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_numbers_ascend_and_stay(store: ServiceStore, table: Table) -> None:
    """They follow the order of the ids; 250 of them need more than one transaction."""
    assert store.numbers([]) == {}
    assert store.numbers(["i-b", "i-a", "i-b"]) == {"i-b": 1, "i-a": 2}
    many = [f"i-{n:04}" for n in range(250)]
    assert store.numbers(["i-a", *many]) == {"i-a": 2, **{id: n for n, id in enumerate(many, 3)}}
    assert ServiceStore(table, "inception").numbers(["i-0249", "i-z"]) == {"i-0249": 252, "i-z": 253}


def test_no_number_is_given_twice(table: Table) -> None:
    """Instances that are long gone are forgotten, the newest included; running ones, or ones too young to be seen, are
    not."""
    now = Now()
    store = ServiceStore(table, "inception", unix_s=now)
    store.numbers(["i-there", "i-gone"])
    now.unix_s += FORGET_S + 1.0
    store.numbers(["i-young"])
    store.forget_numbers({"i-there"})
    assert store.numbers(["i-gone", "i-young", "i-there"]) == {"i-gone": 4, "i-young": 3, "i-there": 1}


def test_numbers_given_at_the_same_time_differ(again: Open) -> None:
    """Each id has one number for every caller; together they are 1, 2, 3, ..."""
    stores = [ServiceStore(again(), "inception") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        ids = [[f"i-{k}-{n}" for n in range(5)] + [f"i-all-{n}" for n in range(5)] for k in range(4)]
        given = list(pool.map(lambda store, those: store.numbers(those), stores, ids))
    assert all(given[0][f"i-all-{n}"] == one[f"i-all-{n}"] for one in given for n in range(5))
    assert sorted({number for one in given for number in one.values()}) == list(range(1, 26))


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_holder_that_lost_the_lease_can_write_nothing(again: Open) -> None:
    """The old holder wakes up late and has not noticed: no write of it is kept, whether or not the key existed."""
    tables = [again(), again()]
    clock = Now()
    leases = [FencedLease(table, "site", ttl_s=10.0, monotonic_s=clock) for table in tables]
    assert [lease.hold(np.float64(clock())) for lease in leases] == [1, None]
    old = ServiceStore(tables[0], "inception", Fence("site", 1))
    old.put("plan", 1)
    clock.unix_s += 10.0
    assert leases[1].hold(clock()) == 2
    new = ServiceStore(tables[1], "inception", Fence("site", 2))
    for write in (
        lambda: old.put("plan", 2),
        lambda: old.put("never put before", 2),
        lambda: old.record(0.0, COMMAND, "done", Result.DONE, 0),
        lambda: old.append_load(Load(0.0, 60.0, np.ones(1), np.ones(1))),
    ):
        with pytest.raises(LostLease, match="another controller holds the lease site"):
            write()
    assert (new.get("plan"), new.get("never put before")) == (1, None)
    assert (new.recorded(None, 9), len(new.load_since(0.0))) == ([], 0)
    new.put("plan", 3)
    assert old.get("plan") == 3


def test_a_process_that_never_led_can_write_nothing(table: Table) -> None:
    """This holds before the first term, and while another process leads."""
    lease, other = FencedLease(table, "site"), FencedLease(table, "site")
    store = ServiceStore(table, "inception", Fence(lease.name, 0))
    for _ in range(2):
        with pytest.raises(LostLease):
            store.put("plan", 0)
        assert other.hold(100.0) == 1
        assert lease.hold(100.0) is None
    assert store.get("plan") is None


def test_what_was_begun_in_an_old_term_ends_with_it(table: Table) -> None:
    """The same holder may lead again, but another one has decided since."""
    clock = Now()
    one, other = (FencedLease(table, "site", ttl_s=10.0, monotonic_s=clock) for _ in range(2))
    assert (one.hold(clock()), other.hold(clock())) == (1, None)
    before = ServiceStore(table, "inception", Fence("site", 1))
    clock.unix_s += 10.0
    assert (other.hold(clock()), one.hold(clock())) == (2, None)
    clock.unix_s += 10.0
    assert one.hold(clock()) == 3
    with pytest.raises(LostLease):
        before.put("plan", 1)
    after = ServiceStore(table, "inception", Fence("site", 3))
    after.put("plan", 2)
    assert after.get("plan") == 2


# -- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["", "sqlite:", "postgres:x", "dynamodb:table", "/a/path"])
def test_a_store_that_cannot_be_is_bad_input(spec: str) -> None:
    """Without a gate a DynamoDB store is an error, too."""
    with pytest.raises(BadInput, match="must be sqlite:PATH or dynamodb:TABLE"):
        open_table(spec)


def test_a_service_may_be_alone(tmp_path: Path) -> None:
    """One line opens the store of one service."""
    store = open_store(f"sqlite:{tmp_path / 'state.db'}", "inception")
    store.put("plan", 1)
    assert store.get("plan") == 1
    store.close()
