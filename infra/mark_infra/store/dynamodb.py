"""State in one DynamoDB table, for controllers on several machines.

| pk | sk | attributes |
|---|---|---|
| `service#NAME` | `value#KEY` | body: the value, compressed |
| `service#NAME` | `journal#ID` | body: JSON of the line; expires_unix_s |
| `service#NAME` | `load#MINUTE` | body: JSON of mean and highest rate; expires_unix_s |
| `service#NAME` | `number#INSTANCE` | number, since_unix_s |
| `service#NAME` | `numbers` | last_number: the highest number given |
| `service#NAME` | `origin` | unix_s |
| `lease#NAME` | `lease` | holder, fence, until_s |

Each write under a lease is a transaction that also checks the lease's number. So a holder that lost the lease cannot
write, even if it was suspended for long. DynamoDB deletes expired items itself, within days.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from mark.control.lease import Term, claimed, resigned
from mark.control.ports import Recorded
from mark.domain.errors import BadInput, CloudError, LostLease, NotFoundError, StoreError
from mark.domain.time import DAY_S
from mark_infra.store.dynamo_table import JOURNAL_DAYS, LOAD_DAYS, Fence, JournalLine, Table, recorded

if TYPE_CHECKING:
    from mark_infra.aws.gate import Gate

EXPIRES = "expires_unix_s"  # the table's TTL attribute
MOST_BYTES = 399_000  # of a value, because an item may have 400,000 bytes including keys and names
MOST_WRITES = 99  # per transaction, beside the lease check
TRIES = 7  # while other writers change the same items
_MISSING = "attribute_not_exists(pk)"
_UNMET = "ConditionalCheckFailed"

Item = dict[str, dict[str, Any]]


class DynamoTable:
    """The table must exist (see `create_table`), otherwise raises BadInput."""

    def __init__(self, gate: Gate, name: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._gate, self._name, self._sleep = gate, name, sleep
        self._client = gate.client("dynamodb")
        self._last_ids: dict[str, int] = {}  # the last known journal id, by service
        try:
            self._get("lease#", "lease")
        except NotFoundError:
            raise BadInput("there is no such table", "store", f"dynamodb:{name}") from None

    def get(self, service: str, key: str) -> str | None:
        item = self._get(_pk(service), f"value#{key}")
        return None if item is None else zlib.decompress(item["body"]["B"]).decode("ascii")

    def put(self, service: str, key: str, value: str, fence: Fence | None) -> None:
        self._write([self._put(_pk(service), f"value#{key}", "", {"body": _packed(key, value)})], fence)

    def record(self, service: str, line: JournalLine, fence: Fence | None, now_unix_s: float) -> None:
        attributes = {"body": {"S": json.dumps(astuple(line))}, EXPIRES: _number(now_unix_s + JOURNAL_DAYS * DAY_S)}
        for _ in self._tries():
            id = self._last_id(service) + 1
            try:
                self._write([self._put(_pk(service), f"journal#{id:012}", _MISSING, attributes)], fence)
            except _Refused:
                self._last_ids.pop(service, None)  # another writer has added a line since
                continue
            self._last_ids[service] = id
            return
        raise self._busy(service)

    def append_load(
        self, service: str, load: Mapping[int, tuple[float, float]], fence: Fence | None, now_unix_s: float
    ) -> None:
        """Store the rates of each minute. More than 99 minutes need several transactions."""
        expires = _number(now_unix_s + LOAD_DAYS * DAY_S)
        puts = [
            self._put(_pk(service), f"load#{minute:012}", "", {"body": {"S": json.dumps(rates)}, EXPIRES: expires})
            for minute, rates in load.items()
        ]
        for start in range(0, len(puts), MOST_WRITES):
            self._write(puts[start : start + MOST_WRITES], fence)

    def recorded(self, service: str, before_id: int | None, count: int) -> list[Recorded]:
        last = "journal#~" if before_id is None else f"journal#{max(0, before_id - 1):012}"
        return self._recorded(service, last, count)

    def load(self, service: str, since_minute: int) -> list[tuple[int, float, float]]:
        items = self._query(service, f"load#{max(0, since_minute):012}", "load#~")
        return [(int(_name(item)), *json.loads(item["body"]["S"])) for item in items]

    def numbers(self, service: str, ids: Sequence[str], now_unix_s: float) -> dict[str, int]:
        for _ in self._tries():
            known = {_name(item): int(item["number"]["N"]) for item in self._query(service, "number#", "number#~")}
            new = [id for id in dict.fromkeys(ids) if id not in known]
            try:
                for start in range(0, len(new), MOST_WRITES):
                    known.update(self._number(service, new[start : start + MOST_WRITES], now_unix_s))
            except _Refused:
                continue  # another writer gave numbers at the same time
            return {id: known[id] for id in ids}
        raise self._busy(service)

    def forget_numbers(self, service: str, there: Collection[str], before_unix_s: float) -> None:
        for item in list(self._query(service, "number#", "number#~")):
            if _name(item) not in there and float(item["since_unix_s"]["N"]) < before_unix_s:
                self._call("delete_item", Key={"pk": item["pk"], "sk": item["sk"]})

    def origin_unix_s(self, service: str, now_unix_s: float) -> float:
        answer = self._call(
            "update_item",
            Key=_key(_pk(service), "origin"),
            UpdateExpression="SET unix_s = if_not_exists(unix_s, :now)",
            ExpressionAttributeValues={":now": _number(now_unix_s)},
            ReturnValues="ALL_NEW",
        )
        return float(answer["Attributes"]["unix_s"]["N"])

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        for _ in self._tries():
            before = self._term(name)
            term = claimed(before, holder, until_s, over)
            if term == before or self._replace(name, before, term):
                return term
        raise self._busy(name)

    def resign(self, name: str, holder: str) -> None:
        for _ in self._tries():
            term = self._term(name)
            if term is None or term.holder != holder or self._replace(name, term, resigned(term)):
                return
        raise self._busy(name)

    def close(self) -> None:
        """Nothing to close: the client belongs to the gate."""

    # -- the lease -----------------------------------------------------------------------------------------------------

    def _term(self, name: str) -> Term | None:
        item = self._get(f"lease#{name}", "lease")
        if item is None:
            return None
        return Term(item["holder"]["S"], int(item["fence"]["N"]), float(item["until_s"]["N"]))

    def _replace(self, name: str, before: Term | None, term: Term) -> bool:
        """Replace a lease's term. Return False if the stored term has changed from `before`."""
        put = self._put(f"lease#{name}", "lease", "", _described(term))["Put"]
        put["ConditionExpression"] = _MISSING
        if before is not None:
            put["ConditionExpression"] = "holder = :holder AND fence = :fence AND until_s = :until_s"
            put["ExpressionAttributeValues"] = {f":{key}": value for key, value in _described(before).items()}
        try:
            self._call("put_item", **put)
        except _Refused:
            return False
        return True

    # -- transactions --------------------------------------------------------------------------------------------------

    def _write(self, puts: list[dict[str, Any]], fence: Fence | None) -> None:
        """Write in one transaction. Raises LostLease, and _Refused if the condition of a put does not hold."""
        checks = []
        if fence is not None:
            check = {
                "TableName": self._name,
                "Key": _key(f"lease#{fence.lease}", "lease"),
                "ConditionExpression": "fence = :fence",
                "ExpressionAttributeValues": {":fence": _number(fence.number)},
            }
            checks = [{"ConditionCheck": check}]
        for _ in self._tries():
            try:
                self._call("transact_write_items", TransactItems=[*checks, *puts])
            except _Refused as refused:
                if fence is not None and refused.reasons[0] == _UNMET:
                    raise LostLease(f"another controller holds the lease {fence.lease}") from None
                if _UNMET in refused.reasons:
                    raise
                continue  # another transaction is changing one of the items
            return
        raise self._busy("the same items")

    def _number(self, service: str, ids: list[str], now_unix_s: float) -> dict[str, int]:
        """Give the next numbers. Raises _Refused."""
        counter = self._get(_pk(service), "numbers")
        last = 0 if counter is None else int(counter["last_number"]["N"])
        count = self._put(_pk(service), "numbers", _MISSING, {"last_number": _number(last + len(ids))})
        if counter is not None:
            count["Put"]["ConditionExpression"] = "last_number = :last"
            count["Put"]["ExpressionAttributeValues"] = {":last": _number(last)}
        given = {id: last + n for n, id in enumerate(ids, 1)}
        since = _number(now_unix_s)
        puts = [
            self._put(_pk(service), f"number#{id}", _MISSING, {"number": _number(number), "since_unix_s": since})
            for id, number in given.items()
        ]
        self._call("transact_write_items", TransactItems=[count, *puts])
        return given

    def _last_id(self, service: str) -> int:
        if service not in self._last_ids:
            newest = self._recorded(service, "journal#~", 1)
            self._last_ids[service] = newest[0].id if newest else 0
        return self._last_ids[service]

    def _recorded(self, service: str, last: str, count: int) -> list[Recorded]:
        items = self._query(service, "journal#", last, newest_first=count)
        return [recorded(int(_name(item)), *json.loads(item["body"]["S"])) for item in items]

    def _tries(self) -> Iterator[None]:
        """Yield `TRIES` times, with a growing pause of 10 ms to 0.6 s after each."""
        for n in range(TRIES):
            yield
            self._sleep(0.01 * 2.0**n)

    def _busy(self, what: str) -> StoreError:
        return StoreError(f"{self._name}: others change {what} all the time")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _get(self, pk: str, sk: str) -> Item | None:
        item: Item | None = self._call("get_item", Key=_key(pk, sk), ConsistentRead=True).get("Item")
        return item

    def _query(self, service: str, first: str, last: str, *, newest_first: int = 0) -> Iterator[Item]:
        """Return the items between two sort keys in order, or only the newest `newest_first`."""
        left, start = newest_first, dict[str, Any]()
        while True:
            answer = self._call(
                "query",
                KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
                ExpressionAttributeValues={":pk": {"S": _pk(service)}, ":first": {"S": first}, ":last": {"S": last}},
                ConsistentRead=True,
                ScanIndexForward=not newest_first,
                **({"Limit": left} if newest_first else {}),
                **start,
            )
            yield from answer["Items"]
            left -= len(answer["Items"])
            if "LastEvaluatedKey" not in answer or (newest_first and left <= 0):
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _put(self, pk: str, sk: str, condition: str, attributes: Item) -> dict[str, Any]:
        put: dict[str, Any] = {"TableName": self._name, "Item": {**_key(pk, sk), **attributes}}
        if condition:
            put["ConditionExpression"] = condition
        return {"Put": put}

    def _call(self, method: str, **arguments: Any) -> Any:
        """Call DynamoDB. Raises _Refused if a condition fails or another writer interferes.

        Other errors are the gate's.
        """
        if method != "transact_write_items":
            arguments["TableName"] = self._name
        try:
            return self._gate.call(getattr(self._client, method), **arguments)
        except CloudError as error:
            response = getattr(error.__cause__, "response", None) or {}  # None if no answer came
            code = response.get("Error", {}).get("Code", "")
            if code == "TransactionCanceledException":
                raise _Refused([reason.get("Code", "") for reason in response["CancellationReasons"]]) from error
            if code in ("ConditionalCheckFailedException", "TransactionConflictException"):
                raise _Refused([code]) from error
            raise


class _Refused(Exception):
    """DynamoDB refused a write. A transaction has one of the `reasons` for each of its items, in order."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


def create_table(client: Any, name: str) -> None:
    """Create the table as Terraform does: paid per request, encrypted, with its TTL. `client` is boto3's."""
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=name)
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES})


def _pk(service: str) -> str:
    return f"service#{service}"


def _key(pk: str, sk: str) -> Item:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def _name(item: Item) -> str:
    return str(item["sk"]["S"]).partition("#")[2]


def _number(value: float) -> dict[str, Any]:
    return {"N": json.dumps(value)}  # also converts numpy's floats


def _described(term: Term) -> Item:
    return {"holder": {"S": term.holder}, "fence": _number(term.fence), "until_s": _number(term.until_s)}


def _packed(key: str, value: str) -> dict[str, Any]:
    body = zlib.compress(value.encode("ascii"))
    if len(body) > MOST_BYTES:
        raise StoreError(f"{key}: {len(body):,} bytes compressed, DynamoDB takes {MOST_BYTES:,}")
    return {"B": body}


_: type[Table] = DynamoTable
