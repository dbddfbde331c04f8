"""FOCUS exports, versions 1.0 to 1.2, with AWS's own columns `x_UsageType`, `x_Operation` and `x_ServiceCode`.

A cost is the billed one. Use that a commitment covers is billed at $0, and the commitment itself is a purchase: their
line items are those of a reservation in a cost and usage report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from mark.cloud.billing.cost_reports import checked_use, has_tag
from mark.cloud.billing.invoice_lines import USED
from mark.cloud.billing.line_items import ZERO, BillColumns, BillRow, LineItem
from mark.cloud.billing.services import product_of
from mark.domain.errors import BadInput

KIND = "FOCUS export"
_REQUIRED = {
    "start": ("ChargePeriodStart",),
    "end": ("ChargePeriodEnd",),
    "product": ("x_ServiceCode", "ServiceName"),
    "usage_type": ("x_UsageType",),
    "category": ("ChargeCategory",),
    "amount": ("ConsumedQuantity",),
    "cost": ("BilledCost",),
    "list_cost": ("ListCost",),
}
_AWS = ("", "AWS", "Amazon Web Services")


def is_one(names: set[str]) -> bool:
    return {"billedcost", "chargecategory"} <= names


def items(
    rows: Iterator[tuple[str, Sequence[str]]], header: Sequence[str], where: str, tags: Sequence[tuple[str, str]]
) -> Iterator[LineItem]:
    """Yield the line items, named as in a cost and usage report. Raises BadInput, naming the cell."""
    columns = BillColumns(
        header,
        where,
        _REQUIRED,
        KIND,
        operation="xoperation",
        currency="billingcurrency",
        region="regionid",
        account="subaccountid",
        charge_class="chargeclass",
        frequency="chargefrequency",
        commitment="commitmentdiscountid",
        commitment_type="commitmentdiscounttype",
        status="commitmentdiscountstatus",
        provider="providername serviceprovidername",
        resource="resourceid",
        tags="tags",
    )
    for place, cells in rows:
        row = BillRow(columns, cells, place)
        if row.text("provider") not in _AWS:
            raise BadInput("not a bill of AWS, whose prices mark knows", row.where("provider"), row.text("provider"))
        one = row.item()
        item_type = _type_of(row, one)
        if item_type in USED and not row.text("amount"):
            raise BadInput("is blank beside use", row.where("amount"))
        one = replace(
            one,
            product=product_of(one.product),
            item_type=item_type,
            list_cost=row.dollars("list_cost") if item_type == "DiscountedUsage" else ZERO,
            identity=_identity(row) if one.cost else "",
            is_selected=all(has_tag(row, (), key, value) for key, value in tags),
        )
        yield checked_use(one, row)


def _identity(row: BillRow) -> str:
    """Return a text that equal rows of one resource share; empty without a resource, whose rows may be equal."""
    resource = row.text("resource")
    return resource and f"{resource} {blake2b(repr(row.cells).encode(), digest_size=12).hexdigest()}"


def _type_of(row: BillRow, one: LineItem) -> str:
    """Return the line item type of a cost and usage report. Raises BadInput for an unknown category of charge."""
    category, commitment = row.text("category"), row.text("commitment")
    if row.text("charge_class") == "Correction":
        return "Refund" if one.cost < ZERO else "Correction"
    if category in ("Tax", "Credit", "Adjustment"):
        return category
    if category not in ("Usage", "Purchase"):
        raise BadInput("must be Usage, Purchase, Tax, Credit or Adjustment", row.where("category"), category)
    if category == "Usage" and not commitment:
        return "Usage"
    if category == "Usage" and row.text("status") != "Unused":
        return "DiscountedUsage" if not one.cost else "SavingsPlanCoveredUsage"
    if row.text("frequency") == "One-Time":
        return "Fee"
    is_plan = "savings" in row.text("commitment_type").lower() or product_of(one.product).endswith("SavingsPlans")
    return "SavingsPlanRecurringFee" if is_plan else "RIFee" if commitment else "Fee"
