"""Cost and usage reports: legacy ones (`lineItem/UsageType`) and CUR 2.0 of Data Exports (`line_item_usage_type`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mark.cloud.billing.line_items import ZERO, BillColumns, BillRow, LineItem, letters
from mark.domain.errors import BadInput

KIND = "cost and usage report"
_REQUIRED = {
    "start": ("lineItem/UsageStartDate",),
    "end": ("lineItem/UsageEndDate",),
    "product": ("lineItem/ProductCode",),
    "usage_type": ("lineItem/UsageType",),
    "item_type": ("lineItem/LineItemType",),
    "amount": ("lineItem/UsageAmount",),
    "cost": ("lineItem/UnblendedCost",),
}
_TAG_PREFIXES = ("resourcetagsuser", "resourcetags", "user", "")


def items(
    rows: Iterator[tuple[str, Sequence[str]]], header: Sequence[str], where: str, tags: Sequence[tuple[str, str]]
) -> Iterator[LineItem]:
    """Yield the line items under a header; `rows` are (file and line, cells). Raises BadInput, naming the cell."""
    columns = BillColumns(
        header,
        where,
        _REQUIRED,
        KIND,
        operation="lineitemoperation",
        currency="lineitemcurrencycode",
        region="productregioncode productregion",
        list_cost="pricingpublicondemandcost",
        account="lineitemusageaccountid",
        identity="identitylineitemid",
        tags="resourcetags tags",
    )
    of_tag = {
        key: [
            columns.places[name]
            for name in (f"{prefix}{letters(key)}" for prefix in _TAG_PREFIXES[:2])
            if name in columns.places
        ]
        for key, _ in tags
    }
    for place, cells in rows:
        row = BillRow(columns, cells, place)
        one = row.item()
        if not (one.item_type or one.usage_type):
            raise BadInput("names no use and no type of line item: a row of totals? Delete it", row.where("item_type"))
        yield replace(
            checked_use(one, row),
            list_cost=row.number("list_cost") if one.item_type == "DiscountedUsage" else ZERO,
            is_selected=all(has_tag(row, of_tag[key], key, value) for key, value in tags),
        )


def checked_use(one: LineItem, row: BillRow) -> LineItem:
    """Return the line item. Raises BadInput for use whose cost is blank or negative."""
    if one.item_type == "Usage" and one.amount and not row.text("cost"):
        raise BadInput("is blank beside use; AWS writes 0 where use is free", row.where("cost"))
    if one.item_type == "Usage" and one.amount > ZERO > one.cost:
        raise BadInput("is negative beside use, as of a credit", row.where("cost"), row.text("cost"))
    return one


def has_tag(row: BillRow, places: Sequence[int], key: str, value: str) -> bool:
    if any(row.cells[place].strip() == value for place in places):
        return True
    if not (packed := row.text("tags")):
        return False
    try:
        tags = json.loads(packed)
    except ValueError:
        tags = None
    if not isinstance(tags, dict):
        raise BadInput("must be a map of tags, as JSON", row.where("resource_tags"), packed)
    names = {f"{prefix}{letters(key)}" for prefix in _TAG_PREFIXES}
    return any(letters(name) in names and held == value for name, held in tags.items())
