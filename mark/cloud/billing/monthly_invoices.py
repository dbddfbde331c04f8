"""The monthly invoice as CSV, from the console's page "Bills" or as `...-aws-billing-csv-2026-05.csv`.

A row has the use, its credit and its tax: three line items here. Rows of totals repeat other rows and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from mark.cloud.billing.line_items import ZERO, BillColumns, BillRow, LineItem, letters
from mark.cloud.billing.services import product_of

KIND = "monthly invoice"
_REQUIRED = {
    "record": ("RecordType",),
    "product": ("ProductCode", "ProductName"),
    "usage_type": ("UsageType",),
    "start": ("UsageStartDate",),
    "end": ("UsageEndDate",),
    "amount": ("UsageQuantity",),
    "cost": ("CostBeforeTax", "UnBlendedCost", "Cost"),
}
_KEPT = ("lineitem", "rounding")  # without the totals of an invoice, an account or a statement


def is_one(names: set[str]) -> bool:
    return {"recordtype", "usagequantity"} <= names


def items(
    rows: Iterator[tuple[str, Sequence[str]]], header: Sequence[str], where: str, tags: Sequence[tuple[str, str]]
) -> Iterator[LineItem]:
    """Yield the line items, named as in a cost and usage report. An invoice lacks tags: a tag selects nothing."""
    columns = BillColumns(
        header,
        where,
        _REQUIRED,
        KIND,
        operation="operation",
        currency="currencycode",
        account="linkedaccountid",
        payer="payeraccountid",
        credit="credits",
        tax="taxamount",
        total="totalcost",
        described="itemdescription",
        period_start="billingperiodstartdate",
        period_end="billingperiodenddate",
    )
    for place, cells in rows:
        row = BillRow(columns, cells, place)
        if not letters(row.text("record")).endswith(_KEPT):
            continue
        # Taxes and fees of a month lack times of use.
        for column in ("start", "end"):
            if not row.text(column) and f"period_{column}" in columns.at:
                row.cells = [*row.cells]
                row.cells[columns.at[column]] = row.text(f"period_{column}")
        one, tax = row.item(), row.dollars("tax")
        credit = row.dollars("total") - one.cost - tax if row.text("total") else row.dollars("credit")
        product, account = product_of(one.product), one.account or row.text("payer")
        first = _type_of(product, one.usage_type, row.text("described"), one.cost)
        one = replace(one, product=product, item_type=first, account=account, is_selected=not tags)
        yield one
        for item_type, usd in (("Credit", credit), ("Tax", tax)):
            if usd or item_type == first:
                yield replace(one, item_type=item_type, amount=one.amount if item_type == first else ZERO, cost=usd)


def _type_of(product: str, usage_type: str, described: str, cost: Decimal) -> str:
    """Return the line item type, which the invoice lacks as a column."""
    words = described.lower()
    if "refund" in words:
        return "Refund"
    if "credit" in words and cost < 0:
        return "Credit"
    if product == "Tax" or words.startswith(("tax", "vat ")):
        return "Tax"
    if "HeavyUsage" in usage_type:
        return "RIFee"
    if product.endswith("SavingsPlans"):
        return "SavingsPlanRecurringFee"
    return "Usage" if usage_type else "Fee"
