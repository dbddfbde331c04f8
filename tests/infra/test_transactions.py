"""moto's DynamoDB, repaired: a transaction is one step for every client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.store.dynamodb import create_table

from tests.infra.conftest import MotoServer
from tests.infra.transactions import mend_transactions

NAME = "mended"


@pytest.fixture
def client(moto: MotoServer) -> Iterator[Any]:
    mend_transactions()
    mend_transactions()
    client = moto.client("dynamodb")
    create_table(client, NAME)
    yield client
    client.delete_table(TableName=NAME)


def key(sk: str) -> dict[str, Any]:
    return {"pk": {"S": "a"}, "sk": {"S": sk}}


def put(sk: str, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": NAME, "Item": {**key(sk), "n": {"N": str(n)}}, **more}}


def n_of(client: Any, sk: str) -> int | None:
    item = client.get_item(TableName=NAME, Key=key(sk)).get("Item")
    return None if item is None else int(item["n"]["N"])


def counted(before: int) -> dict[str, Any]:
    """Add one to the counter if no other client has."""
    return {
        "Update": {
            "TableName": NAME,
            "Key": key("count"),
            "UpdateExpression": "SET n = n + :one",
            "ConditionExpression": "n = :before",
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":before": {"N": str(before)}},
        }
    }


def test_every_kind_of_write_is_carried_out(client: Any) -> None:
    """Put, update, delete, and a check that holds."""
    client.transact_write_items(TransactItems=[put("count", 4), put("gone")])
    check = {"TableName": NAME, "Key": key("none"), "ConditionExpression": "attribute_not_exists(pk)"}
    delete = {"TableName": NAME, "Key": key("gone")}
    client.transact_write_items(
        TransactItems=[{"ConditionCheck": check}, counted(4), {"Delete": delete}, put("new", 7)]
    )
    assert [n_of(client, sk) for sk in ("count", "gone", "new")] == [5, None, 7]


def test_refused_it_changes_nothing_and_says_why(client: Any) -> None:
    """It names the conditions that did not hold, in order."""
    client.transact_write_items(TransactItems=[put("count", 4)])
    with pytest.raises(ClientError) as caught:
        client.transact_write_items(TransactItems=[put("new"), counted(3)])
    reasons = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert reasons == ["None", "ConditionalCheckFailed"]
    assert [n_of(client, sk) for sk in ("count", "new")] == [4, None]
    with pytest.raises(ClientError, match="multiple operations on one item"):
        client.transact_write_items(TransactItems=[put("new"), put("new")])


def test_refused_it_undoes_nothing_of_others(client: Any) -> None:
    """Four clients write their own items while four others count or are always refused."""
    client.transact_write_items(TransactItems=[put("count", 0)])

    def writes(k: int) -> None:
        for n in range(10):
            client.transact_write_items(TransactItems=[put(f"{k}/{n}", n)])

    def counts(_: int) -> int:
        done = 0
        for _ in range(10):
            with suppress(ClientError):
                client.transact_write_items(TransactItems=[counted(n_of(client, "count") or 0)])
                done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        written, counting = pool.map(writes, range(4)), list(pool.map(counts, range(4)))
        list(written)
    assert all(n_of(client, f"{k}/{n}") == n for k in range(4) for n in range(10))
    assert n_of(client, "count") == sum(counting)
