"""Cost Explorer: the answer of `aws ce get-cost-and-usage` (JSON), and the CSV that the console downloads.

Both must be grouped by usage type, because nothing else names the usage. If it is also grouped by record type, the JSON
separates credits, taxes and fees from use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from mark.cloud.billing.line_items import ZERO, LineItem, check_dollars, number, time
from mark.cloud.billing.services import product_of
from mark.domain.errors import BadInput

KIND = "Cost Explorer export"
_DAY = timedelta(days=1)
_WAY_OUT = "group it by usage type (--group-by Type=DIMENSION,Key=USAGE_TYPE Type=DIMENSION,Key=RECORD_TYPE)"
_METRICS = "ask for --metrics UnblendedCost UsageQuantity"
_ITEM_TYPES = {
    "Recurring": "RIFee",
    "Recurring reservation fee": "RIFee",
    "Upfront": "Fee",
    "Upfront reservation fee": "Fee",
    "Reservation applied usage": "DiscountedUsage",
    "Savings Plan Covered Usage": "SavingsPlanCoveredUsage",
    "Savings Plan Negation": "SavingsPlanNegation",
    "Savings Plan Recurring Fee": "SavingsPlanRecurringFee",
    "Savings Plan Upfront Fee": "SavingsPlanUpfrontFee",
    "Enterprise Discount Program Discount": "EdpDiscount",
    "Support": "Fee",
}
_COLUMN = re.compile(r"(?P<name>.*?)\s*\((?P<unit>[^()]+)\)")
_DIMENSIONS = {"Usage type", "UsageType", "Service", "Linked account", "Charge type", "Instance type", "Region", "Tag"}


def has_more(data: object) -> bool:
    return isinstance(data, Mapping) and bool(data.get("NextPageToken"))


def is_net(data: object) -> bool:
    """Return whether the answer mixes credits, refunds and taxes with use."""
    groups = data.get("GroupDefinitions") if isinstance(data, Mapping) else None
    return not any(isinstance(one, Mapping) and one.get("Key") == "RECORD_TYPE" for one in groups or [])


def json_items(data: object, path: Path, tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
    """Yield the groups of an answer as line items. Raises BadInput for other JSON, or if a needed field is missing."""
    if not isinstance(data, Mapping) or not isinstance(data.get("ResultsByTime"), list):
        raise BadInput(f"no {KIND}: it has no ResultsByTime", str(path))
    keys = [str(one.get("Key")) for one in data.get("GroupDefinitions", []) if isinstance(one, Mapping)]
    if "USAGE_TYPE" not in keys:
        raise BadInput(f"no usage types; {_WAY_OUT}", str(path), ", ".join(keys) or "not grouped")
    try:
        for n, result in enumerate(data["ResultsByTime"]):
            place = f"{path} ResultsByTime[{n}]"
            start_s = time(str(result["TimePeriod"]["Start"]), f"{place} TimePeriod.Start")
            end_s = time(str(result["TimePeriod"]["End"]), f"{place} TimePeriod.End")
            for group in result["Groups"]:
                named = dict(zip(keys, (str(key) for key in group["Keys"]), strict=True))
                yield _item(named, group["Metrics"], (start_s, end_s), place, tags)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"no {KIND}: it lacks a field ({error})", str(path)) from error


def _item(
    named: Mapping[str, str], metrics: Any, span_s: tuple[float, float], place: str, tags: Sequence[tuple[str, str]]
) -> LineItem:
    if "UnblendedCost" not in metrics:
        raise BadInput(f"no unblended costs; {_METRICS}", place, ", ".join(metrics) or None)
    cost = number(str(metrics["UnblendedCost"]["Amount"]), f"{place} UnblendedCost")
    if cost:
        check_dollars(str(metrics["UnblendedCost"].get("Unit", "")), f"{place} UnblendedCost.Unit")
    quantity = metrics.get("UsageQuantity", {}).get("Amount", "")
    return LineItem(
        where=place,
        start_s=span_s[0],
        end_s=span_s[1],
        product=product_of(named.get("SERVICE", ""), named["USAGE_TYPE"]),
        usage_type=named["USAGE_TYPE"],
        item_type=_item_type(named.get("RECORD_TYPE", ""), named.get("SERVICE", ""), named["USAGE_TYPE"]),
        amount=number(str(quantity), f"{place} UsageQuantity"),
        cost=cost,
        account=named.get("LINKED_ACCOUNT", ""),
        operation=named.get("OPERATION", ""),
        region=named.get("REGION", ""),
        is_selected=not tags,
    )


def _item_type(record: str, service: str, usage_type: str) -> str:
    if record:
        return _ITEM_TYPES.get(record, record)
    if service == "Tax":
        return "Tax"
    if "HeavyUsage" in usage_type:
        return "RIFee"
    return "Fee" if usage_type in ("", "NoUsageType") else "Usage"


def is_table(header: Sequence[str]) -> bool:
    return bool(header) and header[0].strip() in _DIMENSIONS and any(_COLUMN.fullmatch(c.strip()) for c in header[1:])


def table_items(
    rows: Iterator[tuple[str, Sequence[str]]], header: Sequence[str], where: str, tags: Sequence[tuple[str, str]]
) -> Iterator[LineItem]:
    """Yield the items of the console's CSV: a row for each day, hour or month, a column for each usage type.

    Columns are named like `BoxUsage:c5.large($)`.
    """
    if header[0].strip() not in ("Usage type", "UsageType"):
        raise BadInput("no usage types; group by `Usage type` before the download", where, header[0].strip())
    dated = [(place, cells) for place, cells in rows if not cells[0].strip().lower().endswith("total")]
    starts = [time(cells[0].strip(), f"{place} {header[0]}") for place, cells in dated]
    ends = _ends(starts, where)
    columns = [
        (at, found["name"], found["unit"])
        for at, name in enumerate(header)
        if (found := _COLUMN.fullmatch(name.strip()))
    ]
    amounts = {name: at for at, name, unit in columns if unit.lower() in ("hrs", "hours")}
    for (place, cells), start_s, end_s in zip(dated, starts, ends, strict=True):
        for at, name, unit in columns:
            if at in amounts.values() or name.lower() in ("total costs", "total cost"):
                continue
            cost = number(cells[at].strip().replace(",", ""), f"{place} {header[at]}")
            if not cost:
                continue
            check_dollars(unit, f"{place} {header[at]}")
            yield LineItem(
                where=place,
                start_s=start_s,
                end_s=end_s,
                product=product_of("", name),
                usage_type=name,
                item_type=_item_type("", "", "" if name.lower() in ("no usage type", "nousagetype") else name),
                amount=number(cells[amounts[name]].strip().replace(",", ""), place) if name in amounts else ZERO,
                cost=cost,
                is_selected=not tags,
            )


def _ends(starts: Sequence[float], where: str) -> list[float]:
    """Return the end of each row, one step after its start: a month, or the shortest step between two rows."""
    if len(starts) < 2:
        raise BadInput("one row may be a day or a month: download at least two of them, by day or hour", where)
    if any(b <= a for a, b in pairwise(starts)):
        raise BadInput("rows must go forward in time", where)
    whens = [datetime.fromtimestamp(at, UTC) for at in starts]
    if all(when.day == 1 and not when.hour for when in whens):
        return [((when.replace(day=28) + 4 * _DAY).replace(day=1)).timestamp() for when in whens]
    step = min(b - a for a, b in pairwise(starts))
    return [at + step for at in starts]


def loaded(text: bytes, path: Path) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"is no JSON ({error})", str(path)) from None
