"""A repair of moto's DynamoDB for state with several writers: transactions in one step, without copies.

moto 5.2.5 carries a transaction out write by write, without a lock, and undoes a refused one by putting back a copy of
the whole table from before: writes of other clients since are lost, and every transaction costs as much as the table is
large. Here conditions are checked first, and no other write comes between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any

from moto.dynamodb.comparisons import get_filter_expression
from moto.dynamodb.exceptions import (
    MultipleTransactionsException,
    TooManyTransactionsException,
    TransactionCanceledException,
)
from moto.dynamodb.models import DynamoDBBackend

_lock = RLock()


def mend_transactions() -> None:
    """Repair moto in this process. May be called again."""
    if getattr(DynamoDBBackend.transact_write_items, "mended", False):
        return
    for name in ("put_item", "update_item", "delete_item"):
        setattr(DynamoDBBackend, name, _one_at_a_time(getattr(DynamoDBBackend, name)))
    transact = _one_at_a_time(_transact)
    transact.mended = True  # type: ignore[attr-defined]
    DynamoDBBackend.transact_write_items = transact  # type: ignore[method-assign]


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            return method(*args, **kwargs)

    return locked


def _transact(backend: Any, transact_items: list[dict[str, Any]]) -> None:
    if len(transact_items) > 100:
        raise TooManyTransactionsException()
    errors: list[tuple[str | None, str | None, Any]] = []
    keys = []
    for item in transact_items:
        ((verb, asked),) = item.items()
        table = backend.get_table(asked["TableName"])
        names = [name for name in (table.hash_key_attr, table.range_key_attr) if name is not None]
        key = {name: asked["Item" if verb == "Put" else "Key"][name] for name in names}
        keys.append((asked["TableName"], key))
        condition = asked.get("ConditionExpression")
        values = asked.get("ExpressionAttributeValues")
        holds = get_filter_expression(condition, asked.get("ExpressionAttributeNames"), values)
        if condition is None or holds.expr(backend.get_item(asked["TableName"], key)):
            errors.append((None, None, None))
        else:
            errors.append(("ConditionalCheckFailed", "The conditional request failed", None))
    if any(keys.count(key) > 1 for key in keys):
        raise MultipleTransactionsException()
    if any(code is not None for code, _, _ in errors):
        raise TransactionCanceledException(errors)
    for item, (name, key) in zip(transact_items, keys, strict=True):
        ((verb, asked),) = item.items()
        expression = {
            "expression_attribute_names": asked.get("ExpressionAttributeNames"),
            "expression_attribute_values": asked.get("ExpressionAttributeValues"),
        }
        if verb == "Put":
            backend.put_item(name, asked["Item"])
        elif verb == "Delete":
            backend.delete_item(name, key)
        elif verb == "Update":
            backend.update_item(name, key, update_expression=asked["UpdateExpression"], **expression)
