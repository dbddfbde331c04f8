"""FOCUS exports: billed costs count; commitments, credits, refunds and taxes stand apart as in other reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mark.cloud.billing.invoice import Invoice, read_invoice
from mark.cloud.billing.invoice_lines import COMMITMENTS, CREDIT, GB_SECONDS, REFUND, TAX, InvoiceLine
from mark.domain.errors import BadInput
from tests.traffic.traces.cur import HOUR, MAY, Item, cur2, focus

C5 = InvoiceLine("on_demand", "c5.large", "h")


def read(folder: Path, items: Sequence[Item]) -> Invoice:
    return read_invoice([focus(folder / "focus.csv", items)], MAY, MAY + HOUR)


def test_billed_cost_counts_and_payments_without_use_stand_apart(tmp_path: Path) -> None:
    payments = {"Credit": -0.02, "Refund": -0.01, "Tax": 0.3}
    found = read(tmp_path, [Item(), *(Item(cost=usd, item_type=one) for one, usd in payments.items())])
    assert {line: cost.usd for line, cost in found.charges.items()} == {
        C5: 0.085,
        CREDIT: -0.02,
        REFUND: -0.01,
        TAX: 0.3,
    }
    assert found.charges[C5].amount == 1.0
    assert found.total_usd == pytest.approx(0.085 - 0.02 - 0.01 + 0.3)


@pytest.mark.parametrize(
    ("used", "fee"),
    [
        ("DiscountedUsage", Item("HeavyUsage:c5.large", 1.0, 0.05, "RIFee")),
        ("SavingsPlanCoveredUsage", Item("ComputeSP:1yr", 1.0, 0.05, "SavingsPlanRecurringFee", "ComputeSavingsPlans")),
    ],
)
def test_covered_use_counts_at_list_price_and_lowers_the_commitments(tmp_path: Path, used: str, fee: Item) -> None:
    covered = Item(amount=2.0, cost=0.0, item_type=used, list_cost=0.17)
    found = read(tmp_path, [covered, fee, Item(amount=3.0, cost=0.0, item_type="Unused")])
    assert (found.charges[C5].amount, found.charges[C5].usd) == (2.0, 0.17)
    assert found.charges[COMMITMENTS].usd == pytest.approx(0.05 - 0.17)
    assert found.total_usd == pytest.approx(0.05)


def test_upfront_fee_is_no_monthly_commitment(tmp_path: Path) -> None:
    found = read(tmp_path, [Item(), Item("HeavyUsage:c5.large", 1.0, 400.0, "Fee")])
    assert COMMITMENTS not in found.charges
    assert found.total_usd == pytest.approx(400.085)


def test_services_have_their_lines(tmp_path: Path) -> None:
    found = read(tmp_path, [Item("Lambda-GB-Second", 500.0, 0.008, product="AWSLambda")])
    assert found.charges[GB_SECONDS].amount == 500.0


def test_same_month_as_cost_and_usage_report_counts_once(tmp_path: Path) -> None:
    both = [
        write(tmp_path / f"{write.__name__}.csv", [Item(start_s=MAY + k * HOUR) for k in range(5)])
        for write in (cur2, focus)
    ]
    found = read_invoice(both, MAY, MAY + 5 * HOUR)
    assert found.usd == pytest.approx(5 * 0.085)
    assert any("count once" in note for note in found.notes)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Item(item_type="Interest"), "ChargeCategory.*Usage, Purchase, Tax.*Interest"),
        (Item(cost=""), "BilledCost.*blank beside use"),
        (Item(amount=""), "ConsumedQuantity.*blank beside use"),
        (Item(cost=0.0, amount="", item_type="DiscountedUsage", list_cost=0.17), "ConsumedQuantity.*blank beside use"),
        (Item(cost=0.0, item_type="DiscountedUsage", list_cost=0.17, currency="EUR"), "US dollars.*EUR"),
        (Item(cost=-1.0), "BilledCost.*negative beside use"),
        (Item(currency="EUR"), "US dollars.*EUR|EUR"),
    ],
)
def test_unusable_item_is_named(tmp_path: Path, item: Item, text: str) -> None:
    with pytest.raises(BadInput, match=rf"focus.csv:2.*({text})|({text})"):
        read(tmp_path, [item])


def test_bill_of_another_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"not a bill of AWS.*Microsoft"):
        read_invoice([focus(tmp_path / "focus.csv", [Item()], "Microsoft")], MAY, MAY + HOUR)


def test_export_without_usage_types_is_refused(tmp_path: Path) -> None:
    path = Path(focus(tmp_path / "focus.csv", [Item()]))
    path.write_text(path.read_text().replace("x_UsageType", "x_Other"))
    with pytest.raises(BadInput, match="FOCUS export: it lacks the column x_UsageType"):
        read_invoice([str(path)], MAY, MAY + HOUR)
