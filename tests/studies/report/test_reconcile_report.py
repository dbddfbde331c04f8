"""A reconciliation's text: the share explained, the lines left out, and mark's own bill for the same traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.cli.output import json_text
from mark.cloud.billing.invoice import Invoice, InvoicedCost
from mark.cloud.billing.invoice_lines import BALANCER, CPU_CREDITS, CREDIT, REFUND, SUPPORT, TAX, InvoiceLine
from mark.studies.reconcile import Compared, Rate, Reconciliation
from mark.studies.report.reconcile_report import reconcile_report, summary
from tests.studies.report.results import result
from tests.studies.report.test_simulate_report import plain

C5 = InvoiceLine("on_demand", "c5.large", "h")
NAT = InvoiceLine("", "AmazonEC2 NatGateway-Hours")


def found(lines: tuple[Compared, ...], mark_usd: float = 60.0, **changes: object) -> Reconciliation:
    invoice = Invoice(
        charges={C5: InvoicedCost(1.0, 1.0, 1.0, 1.0)},
        usd=sum(one.invoiced_usd for one in lines),
        outside_period_usd=7.0,
        outside_selection_usd=0.0,
        files=1,
        rows=1234,
        first_s=0.0,
        last_s=3600.0,
        runs={},
        regions=("us-east-1",),
        notes=(),
    )
    simulated_usd = sum(one.simulated_usd for one in lines)
    made = Reconciliation(
        invoice=invoice,
        begin_s=0.0,
        end_s=3600.0,
        policy="as-is",
        prices="catalog",
        lines=lines,
        rates=(),
        results={"as-is": result("as-is", simulated_usd), "mark": result("mark", mark_usd)},
        usd={"as-is": simulated_usd, "mark": mark_usd},
        notes=("a note",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def instances(invoiced_usd: float = 100.0, simulated_usd: float = 100.0) -> Compared:
    return Compared(C5, 1000.0, invoiced_usd, 990.0, simulated_usd, True)


def left_out(usd: float = 12.3, name: str = NAT.name) -> Compared:
    return Compared(InvoiceLine("", name), 0.0, usd, 0.0, 0.0, False)


def paid(line: InvoiceLine, usd: float) -> Compared:
    return Compared(line, 0.0, usd, 0.0, 0.0, False)


def test_the_summary_separates_explained_from_not_simulated() -> None:
    lines = summary(found((instances(387.7, 380.0), left_out())))
    assert lines == [
        "The simulator explains 95.0 % of the $400.00 that were used, line by line; its bill for that is $380.00, "
        "$20.00 less (-5.0 %).",
        "Not simulated: AmazonEC2 NatGateway-Hours $12.30.",
        "mark would have paid $60.00 where as-is pays $380.00 (-84 %), with 99.00 % in time (98 % asked, kept; as-is "
        "has 99.00 %): an invoice of $80.00.",
    ]


def test_rounding_is_no_difference() -> None:
    agreed = found((instances(0.1 + 0.2, 0.3),))
    assert (
        "explains 100.0 % of the $0.30 that were used, line by line; its bill for that is $0.30, the same."
        in summary(agreed)[0]
    )


def test_errors_do_not_cancel_each_other() -> None:
    """If one line is too high and another too low by the same amount, the bill agrees and the simulation does not."""
    both = (instances(100.0, 60.0), Compared(BALANCER, 1.0, 10.0, 1.0, 50.0, True))
    assert found(both).explained == pytest.approx(1.0 - 80.0 / 110.0)
    assert "That is little" in " ".join(summary(found(both)))
    assert found((instances(1.0, 5.0),)).explained == 0.0


@pytest.mark.parametrize(
    ("beside", "named", "total"),
    [
        ((paid(CREDIT, -100.0),), "credit -$100.00", "$0.00"),
        ((paid(CREDIT, -130.0), paid(TAX, 19.0)), "credit -$130.00, tax $19.00", "-$11.00"),
        ((paid(REFUND, -40.0), paid(SUPPORT, 29.0)), "refund -$40.00, support $29.00", "$89.00"),
        ((paid(TAX, 7.0),), "tax $7.00", "$107.00"),
    ],
)
def test_what_was_paid_is_apart_from_what_was_used(beside: tuple[Compared, ...], named: str, total: str) -> None:
    """A credit pays for use and does not undo it, so the simulator explains as much of the use with it as without."""
    apart = found((instances(), *beside))
    assert apart.explained == 1.0
    lines = summary(apart)
    assert lines[0].startswith("The simulator explains 100.0 % of the $100.00 that were used")
    assert lines[1] == f"The invoice comes to {total}: beside use it has {named}."
    rows = plain(reconcile_report(apart)).splitlines()
    first = next(row for row in rows if row.startswith(("used", "credit", "refund", "tax", "total")))
    assert first.split() == ["used", "100.00", "100.00", "0.00"]
    # $40 below the simulation: before credits, refunds and taxes, but with the paid support.
    support = sum(one.invoiced_usd for one in beside if one.line is SUPPORT)
    assert lines[-1].endswith(f"an invoice of ${60.0 + support:.2f} before credits, refunds and taxes.")


def test_an_invoice_is_never_said_to_be_below_nothing() -> None:
    far = found((instances(1.0, 500.0),), mark_usd=60.0)
    assert summary(far)[-1].endswith("because the simulated bill is too far from the real one.")
    assert reconcile_report(far).data["policies"]["mark"]["invoice_would_be_usd"] is None


def test_an_invoice_of_nothing_is_no_division_by_zero() -> None:
    nothing = found((instances(0.0, 0.0),), mark_usd=0.0)
    assert nothing.explained is None
    assert summary(nothing)[:2] == [
        "The invoice has no dollars of use in the period; the simulated bill is $0.00.",
        "Without use there is nothing to check the simulator against: the following is simulated only.",
    ]
    assert "pays $0.00, with" in summary(nothing)[-1]


def test_the_table_has_both_sides_and_their_sums() -> None:
    credits = Compared(CPU_CREDITS, 5.0, 0.25, 0.0, 0.0, True)
    shown = plain(reconcile_report(found((instances(100.0, 99.0), credits, left_out(12.3)))))
    assert max(len(line) for line in shown.splitlines()) <= 80
    rows = {line.split("  ")[0]: line.split()[-3:] for line in shown.splitlines() if "  " in line}
    assert rows["c5.large on-demand"] == ["100.00", "99.00", "-1.00"]
    assert rows["total"] == ["112.55", "99.00", "-13.55"]
    assert "1,000.0 h" in shown
    assert "5.0 vCPU-h" in shown
    assert "1 file, 1,234 line items, $119.55; $7.00 outside the period" in shown
    assert "note: a note" in shown


def test_many_lines_that_are_not_simulated_end_in_one() -> None:
    others = tuple(left_out(20.0 - k, f"AmazonX thing-{k:02}") for k in range(12))
    shown = plain(reconcile_report(found((instances(), *others))))
    assert "thing-07" in shown
    assert "thing-08" not in shown
    assert "4 further lines" in shown
    assert "42.00" in shown  # 12 + 11 + 10 + 9
    assert len(reconcile_report(found((instances(), *others))).data["lines"]) == 13


def test_prices_that_differ_are_said() -> None:
    rates = (
        Rate(C5, 0.0765, 0.085),
        Rate(InvoiceLine("on_demand", "c5.xlarge", "h"), 0.17, 0.17),
        Rate(InvoiceLine("on_demand", "x9.large", "h"), 1.0, None),
    )
    words = " ".join(plain(reconcile_report(found((instances(),), rates=rates))).split())
    assert "c5.large on-demand was invoiced at $0.0765/h, the catalogue has $0.0850 (-10.0 %)" in words
    assert "x9.large on-demand was invoiced at $1.0000/h, and the catalogue does not sell it" in words
    assert "c5.xlarge on-demand was" not in words
    assert "--prices invoice simulates with the invoice's prices" in words
    paid = " ".join(plain(reconcile_report(found((instances(),), rates=rates, prices="invoice"))).split())
    assert "at the invoice's prices" in paid
    assert "--prices invoice simulates" not in paid


def test_names_from_the_file_are_text() -> None:
    evil = left_out(1.0, "[red]AmazonEC2[/red] :smile:")
    shown = plain(reconcile_report(found((instances(), evil))))
    assert "[red]AmazonEC2[/red] :smile:" in shown


def test_the_object_is_json_with_all_sums() -> None:
    data = reconcile_report(found((instances(), left_out()))).data
    assert json_text(data)
    assert data["schema"] == 1
    assert sum(line["invoiced_usd"] for line in data["lines"]) == pytest.approx(data["invoice"]["usd"])
    assert data["policies"]["mark"]["invoice_would_be_usd"] == pytest.approx(112.3 - 40.0)
    assert data["policies"]["mark"]["result"]["policy"] == "mark"
    assert data["period"] == {"began": "1970-01-01T00:00Z", "ended": "1970-01-01T01:00Z"}
