"""DynamoDB: its limits, its conflicts, and the calls to it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.store.dynamo_table import JOURNAL_DAYS, Fence, JournalLine
from mark_infra.store.dynamodb import EXPIRES, MOST_BYTES, TRIES, DynamoTable, create_table
from mark_infra.store.store import open_table

from mark.control.lease import FencedLease
from mark.control.ports import Result
from mark.domain.errors import BadInput, CloudError, LostLease, StoreError, ThrottledError
from tests.infra.conftest import REGION, MotoServer
from tests.infra.transactions import mend_transactions

LINE = JournalLine(0.0, "launch", "launch 2", "done", 0.17, Result.DONE, 1)


class FaultyClient:
    """A DynamoDB client before the real one that counts calls and fails as often as the test says."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.faults: list[Exception] = []
        self.after: dict[str, Any] = {}  # runs once, right after a call of that name was answered
        self.asked: list[str] = []

    def __getattr__(self, method: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.asked.append(method)
            if self.faults:
                raise self.faults.pop(0)
            answer = getattr(self._client, method)(**arguments)
            self.after.pop(method, lambda: None)()
            return answer

        return call


class FaultyGate(Gate):
    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(Site("test", REGION, "dynamodb:any"), options=options)
        self.faulty = FaultyClient(super().client("dynamodb"))

    def client(self, service: str, *, patient: bool = False) -> Any:
        return self.faulty


@pytest.fixture
def gate(moto: MotoServer) -> FaultyGate:
    mend_transactions()
    return FaultyGate(moto.options)


@pytest.fixture
def name(moto: MotoServer) -> str:
    name = f"mark-{uuid4()}"
    create_table(moto.client("dynamodb"), name)
    return name


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def table(gate: FaultyGate, name: str, pauses: list[float]) -> DynamoTable:
    table = DynamoTable(gate, name, sleep=pauses.append)
    gate.faulty.asked.clear()
    return table


def error(code: str, **more: Any) -> ClientError:
    said = {"Error": {"Code": code, "Message": "as asked for"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError({**said, **more}, "AnyCall")


def cancelled(*codes: str) -> ClientError:
    return error("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


def test_a_table_that_is_not_there_is_bad_input(gate: FaultyGate) -> None:
    """The error comes at the controller's start, not at its first decision."""
    with pytest.raises(BadInput, match="store: there is no such table: dynamodb:nothing"):
        open_table("dynamodb:nothing", gate)


def test_a_put_is_one_call(table: DynamoTable, gate: FaultyGate) -> None:
    """The call checks the lease, too; only before the first line of the journal the newest number is read."""
    fence = Fence("site", table.claim("site", "a", 10.0).fence)
    table.record("inception", LINE, fence, 0.0)
    gate.faulty.asked.clear()
    table.put("inception", "plan", "{}", fence)
    table.record("inception", LINE, fence, 0.0)
    assert gate.faulty.asked == ["transact_write_items"] * 2
    assert [line.id for line in table.recorded("inception", None, 9)] == [2, 1]


def test_more_than_a_transaction_holds_goes_into_several(table: DynamoTable, gate: FaultyGate) -> None:
    """Each of them checks the lease."""
    load = {n: (float(n), 2.0 * n) for n in range(250)}
    fence = Fence("site", table.claim("site", "a", 10.0).fence)
    gate.faulty.asked.clear()
    table.append_load("inception", load, fence, 0.0)
    assert gate.faulty.asked == ["transact_write_items"] * 3
    assert table.load("inception", 100) == [(n, *load[n]) for n in range(100, 250)]
    with pytest.raises(LostLease):
        table.append_load("inception", load, Fence("site", 2), 0.0)


def test_two_that_record_at_once_keep_all(table: DynamoTable, name: str, moto: MotoServer) -> None:
    """The second writer takes the next number."""
    other = DynamoTable(FaultyGate(moto.options), name)
    for n in range(3):
        table.record("inception", replace(LINE, outcome=f"{n}"), None, 0.0)
        other.record("inception", replace(LINE, outcome=f"other {n}"), None, 0.0)
    lines = [(line.id, line.outcome) for line in table.recorded("inception", None, 9)]
    assert lines == [(6, "other 2"), (5, "2"), (4, "other 1"), (3, "1"), (2, "other 0"), (1, "0")]


def test_a_value_is_compressed_and_one_too_large_is_refused(table: DynamoTable) -> None:
    """A plan of 2 MB is kept. Half a megabyte of noise does not fit, and the error says so."""
    large = json.dumps(["c5.large/on-demand"] * 100_000)
    table.put("inception", "plan", large, None)
    assert table.get("inception", "plan") == large
    noise = "".join(random.Random(0).choices("0123456789abcdef", k=3 * MOST_BYTES))
    with pytest.raises(StoreError, match=r"plan: .* bytes compressed, DynamoDB takes 399,000"):
        table.put("inception", "plan", noise, None)
    just = noise[:600_000]  # 340,000 bytes compressed
    table.put("inception", "plan", just, None)
    assert table.get("inception", "plan") == just


def test_the_journal_expires(table: DynamoTable, name: str, moto: MotoServer) -> None:
    """The journal's lines have the attribute of the table's TTL; values, numbers and leases do not."""
    table.put("inception", "plan", "{}", None)
    table.record("inception", LINE, None, 1e9)
    table.append_load("inception", {0: (1.0, 2.0)}, None, 1e9)
    table.numbers("inception", ["i-1"], 1e9)
    table.claim("site", "a", 2e9)
    items = moto.client("dynamodb").scan(TableName=name)["Items"]
    expiring = {item["sk"]["S"]: float(item[EXPIRES]["N"]) for item in items if EXPIRES in item}
    assert expiring.keys() == {"journal#000000000001", "load#000000000000"}
    assert expiring["journal#000000000001"] == 1e9 + JOURNAL_DAYS * 86_400.0
    ttl = moto.client("dynamodb").describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": EXPIRES}


def test_a_long_answer_is_read_to_its_end(table: DynamoTable) -> None:
    """DynamoDB answers a megabyte at a time."""
    line = JournalLine(0.0, "launch", "x" * 30_000, "done", 0.0, Result.DONE, 1)
    for _ in range(50):
        table.record("inception", line, None, 0.0)
    assert [one.id for one in table.recorded("inception", None, 99)] == list(range(50, 0, -1))
    assert [one.id for one in table.recorded("inception", 50, 45)] == list(range(49, 4, -1))


# -- conflicts and faults ----------------------------------------------------------------------------------------------


def test_another_transaction_at_the_same_item_is_waited_for(
    table: DynamoTable, gate: FaultyGate, pauses: list[float]
) -> None:
    """A conflict is not a lost lease. Each pause is longer, and the last failure is a StoreError."""
    fence = Fence("site", table.claim("site", "a", 10.0).fence)
    gate.faulty.faults = [cancelled("TransactionConflict", "None"), cancelled("None", "TransactionConflict")]
    table.put("inception", "plan", "1", fence)
    assert table.get("inception", "plan") == "1"
    assert pauses == [0.01, 0.02]
    gate.faulty.faults = [cancelled("TransactionConflict", "None")] * TRIES
    with pytest.raises(StoreError, match="others change the same items all the time"):
        table.put("inception", "plan", "2", fence)


def test_a_claim_that_meets_a_transaction_is_made_again(table: DynamoTable, gate: FaultyGate) -> None:
    """The lease's item is checked in every transaction."""
    table.claim("site", "a", 10.0)
    gate.faulty.after["get_item"] = lambda: gate.faulty.faults.append(error("TransactionConflictException"))
    assert table.claim("site", "a", 15.0).until_s == 15.0


def test_an_overtaken_claim_returns_the_current_leader(
    table: DynamoTable, gate: FaultyGate, name: str, moto: MotoServer
) -> None:
    """Another holder took the next term between this one's read and its write."""
    other = DynamoTable(FaultyGate(moto.options), name)
    over = table.claim("site", "a", 10.0)
    gate.faulty.after["get_item"] = lambda: other.claim("site", "b", 20.0, over)
    term = table.claim("site", "c", 20.0, over)
    assert (term.holder, term.fence) == ("b", 2)


def test_a_lost_answer_does_no_harm(table: DynamoTable, gate: FaultyGate) -> None:
    """The claim was carried out without an answer; the next one finds its own term."""
    lost = EndpointConnectionError(endpoint_url="http://lost")

    def lose() -> None:
        raise lost

    gate.faulty.after["put_item"] = lose
    lease = FencedLease(table, "site", ttl_s=10.0)
    assert lease.hold(100.0) is None
    assert lease.hold(101.0) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (error("ProvisionedThroughputExceededException"), ThrottledError),
        (error("InternalServerError"), CloudError),
        (EndpointConnectionError(endpoint_url="http://lost"), CloudError),
        (ReadTimeoutError(endpoint_url="http://lost"), CloudError),
    ],
)
def test_other_errors_are_the_gates(
    table: DynamoTable, gate: FaultyGate, fault: Exception, kind: type[CloudError]
) -> None:
    """Each call has its errors translated by the reaction that they need."""
    calls = (
        lambda: table.get("inception", "plan"),
        lambda: table.put("inception", "plan", "1", None),
        lambda: table.recorded("inception", None, 1),
        lambda: table.load("inception", 0),
        lambda: table.numbers("inception", ["i-1"], 0.0),
        lambda: table.forget_numbers("inception", [], 0.0),
        lambda: table.origin_unix_s("inception", 0.0),
        lambda: table.claim("site", "a", 10.0),
        lambda: table.resign("site", "a"),
    )
    for call in calls:
        gate.faulty.faults = [fault]
        with pytest.raises(kind):
            call()
