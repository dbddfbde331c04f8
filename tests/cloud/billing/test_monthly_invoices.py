"""Monthly invoices: use, its credit and its tax are three line items, and totals do not count twice."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest

from mark.cloud.billing.invoice import Invoice, read_invoice
from mark.cloud.billing.invoice_lines import CREDIT, REFUND, SUPPORT, TAX, InvoiceLine
from mark.domain.errors import BadInput
from tests.traffic.traces.cur import HOUR, MAY, Item, legacy

MONTH = 31 * 24 * HOUR
C5 = InvoiceLine("on_demand", "c5.large", "h")
COLUMNS = (
    "InvoiceID PayerAccountId LinkedAccountId RecordType RecordID BillingPeriodStartDate BillingPeriodEndDate "
    "InvoiceDate ProductCode ProductName UsageType Operation ItemDescription UsageStartDate UsageEndDate UsageQuantity "
    "CurrencyCode CostBeforeTax Credits TaxAmount TaxType TotalCost"
)
USED = {
    "RecordType": "LinkedLineItem",
    "PayerAccountId": "111",
    "LinkedAccountId": "222",
    "BillingPeriodStartDate": "2026/05/01 00:00:00",
    "BillingPeriodEndDate": "2026/05/31 23:59:59",
    "ProductCode": "AmazonEC2",
    "UsageType": "BoxUsage:c5.large",
    "Operation": "RunInstances",
    "ItemDescription": "$0.085 per On Demand Linux c5.large Instance Hour",
    "UsageStartDate": "2026/05/01 00:00:00",
    "UsageEndDate": "2026/06/01 00:00:00",
    "UsageQuantity": "1488",
    "CurrencyCode": "USD",
    "CostBeforeTax": "126.48",
    "Credits": "-26.48",
    "TaxAmount": "19.00",
    "TotalCost": "119.00",
}
TOTAL = {"RecordType": "StatementTotal", "ItemDescription": "Total statement amount", "TotalCost": "119.00"}


def monthly(path: Path, *rows: dict[str, str]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS.split())
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())
    return str(path)


def read(path: str, *more: str) -> Invoice:
    return read_invoice([path, *more], MAY, MAY + MONTH)


def test_a_row_is_use_and_credit_and_tax(tmp_path: Path) -> None:
    invoice = read(monthly(tmp_path / "111-aws-billing-csv-2026-05.csv", USED, TOTAL, {**TOTAL, "RecordType": "x"}))
    assert {line: charge.usd for line, charge in invoice.charges.items()} == {C5: 126.48, CREDIT: -26.48, TAX: 19.0}
    assert invoice.charges[C5].amount == 1488.0
    assert invoice.total_usd == pytest.approx(119.0)
    assert invoice.runs[C5] == ((MAY, MAY + MONTH, 1488.0),)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"UsageType": "", "ItemDescription": "Refund for May"}, REFUND),
        ({"ProductCode": "AWSSupportBusiness", "UsageType": "Dollar"}, SUPPORT),
        ({"UsageType": "", "ProductCode": "", "ItemDescription": "Tax for product code AmazonEC2"}, TAX),
        ({"UsageType": "", "ItemDescription": "AWS Activate credit", "CostBeforeTax": "-5"}, CREDIT),
    ],
)
def test_what_is_no_use_is_known_by_its_words(tmp_path: Path, changes: dict[str, str], line: InvoiceLine) -> None:
    row = {**USED, "Credits": "", "TaxAmount": "", "TotalCost": "", "UsageQuantity": "", **changes}
    blank = {"UsageStartDate": "", "UsageEndDate": ""}  # the billing period counts then
    invoice = read(monthly(tmp_path / "m.csv", {**row, **blank}))
    assert list(invoice.charges) == [line]


def test_a_report_of_the_same_month_says_more_and_counts(tmp_path: Path) -> None:
    row = {**USED, "Credits": "", "TaxAmount": "", "TotalCost": "126.48"}
    report = legacy(tmp_path / "cur.csv", [Item(start_s=MAY + k * HOUR, amount=2.0, cost=0.17) for k in range(744)])
    invoice = read(monthly(tmp_path / "m.csv", row), report)
    assert invoice.usd == pytest.approx(126.48)
    assert len(invoice.runs[C5]) == 744
    assert invoice.notes[-1].endswith("and count once")
    with pytest.raises(BadInput, match=r"both of 2026-05 and differ \(\$126.48, \$119.00\): name one of them"):
        read(monthly(tmp_path / "m.csv", USED), report)


def test_an_invoice_has_no_tags(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no line item of the period fits `tags`"):
        read_invoice([monthly(tmp_path / "m.csv", USED)], MAY, MAY + MONTH, tags=[("a", "b")])
