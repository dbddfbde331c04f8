"""`mark reconcile`: simulated against invoiced, line by line, and the bill that `mark` would have had."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mark.cloud.billing.line_items import utc
from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.takeaway import notes
from mark.studies.report.words import count, exact_percent, number, percent, usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mark.studies.reconcile import Compared, Reconciliation

_MOST_NOT_SIMULATED = 8  # lines of the table; the remaining ones are summed in one line, and the JSON has all
_MOST_NAMED = 3
_DOUBT = 0.8  # if less is explained, the saving is not yet worth reading
_SAME_PRICE = 0.005
_HALF_A_CENT = 0.005


_HEADS = (
    *("line", ("invoiced", str), ("simulated", str), ("$ invoiced", str), ("$ simulated", str), ("$ apart", str)),
)


def reconcile_report(found: Reconciliation) -> Report:
    """Return both sides of every line, their sums, and the words."""
    first = found.results[found.policy]
    simulated = [one for one in found.used if one.simulates]
    others = found.not_simulated
    rows = [_row(one) for one in [*simulated, *others[:_MOST_NOT_SIMULATED]]]
    if rest := others[_MOST_NOT_SIMULATED:]:
        rest_usd = sum(one.invoiced_usd for one in rest)
        rows.append((f"{len(rest)} further lines", "", "", _money(rest_usd), "-", _money(-rest_usd)))
    beside = [one for one in found.lines if not one.line.is_use and (one.invoiced_usd or one.simulated_usd)]
    if beside:
        rows.append(_sum("used", found.used_usd, sum(one.simulated_usd for one in found.used)))
        rows += map(_row, beside)
    rows.append(_sum("total", found.invoice.usd, found.simulated_usd))
    period = f"{utc(found.begin_s)} to {utc(found.end_s)}"
    prices = "invoice" if found.prices == "invoice" else "catalogue"
    return Report(
        _json(found),
        f"{first.service} on {first.trace.name}, {count(first.trace.requests)} requests, {period}",
        [Marked(f"simulated: {found.policy} at the {prices}'s prices"), DataTable(_HEADS, rows)],
        summary(found),
        [*_small(found), *notes(found.results)],
        read=first.trace.read,
    )


def _sum(name: str, invoiced_usd: float, simulated_usd: float) -> tuple[str, ...]:
    return name, "", "", _money(invoiced_usd), _money(simulated_usd), _money(simulated_usd - invoiced_usd)


def summary(found: Reconciliation) -> list[str]:
    """Return the comparison, the lines that it leaves out, and the other policies' bills."""
    lines = [_explained(found)]
    if others := found.not_simulated:
        lines.append(f"Not simulated: {_named(others)}.")
    if beside := found.not_used:
        lines.append(f"The invoice comes to {_money(found.invoice.usd, sign='$')}: beside use it has {_named(beside)}.")
    if found.explained is None:
        lines.append("Without use there is nothing to check the simulator against: the following is simulated only.")
    elif found.explained < _DOUBT:
        lines.append("That is little: see which lines differ before you believe the rest.")
    lines += [_would_have_paid(found, name) for name in found.results if name != found.policy]
    return lines


def _explained(found: Reconciliation) -> str:
    simulated = sum(one.simulated_usd for one in found.used)
    if found.explained is None:
        return f"The invoice has no dollars of use in the period; the simulated bill is {usd(simulated)}."
    used = found.used_usd
    apart = simulated - used
    share = f" ({100.0 * apart / used:+z.1f} %)" if used > 0.0 else ""
    off = f"{usd(abs(apart))} {'more' if apart > 0.0 else 'less'}{share}" if abs(apart) >= _HALF_A_CENT else "the same"
    return (
        f"The simulator explains {percent(found.explained)} of the {_money(used, sign='$')} that were used, line by "
        f"line; its bill for that is {usd(simulated)}, {off}."
    )


def _named(lines: Sequence[Compared]) -> str:
    named = [f"{one.line.name} {_money(one.invoiced_usd, sign='$')}" for one in lines[:_MOST_NAMED]]
    if rest := lines[_MOST_NAMED:]:
        named.append(f"{len(rest)} more {_money(sum(one.invoiced_usd for one in rest), sign='$')}")
    return ", ".join(named)


def _would_have_paid(found: Reconciliation, name: str) -> str:
    result, own = found.results[name], found.results[found.policy]
    paid, before = found.usd[name], found.simulated_usd
    change = f" ({100.0 * (paid / before - 1.0):+z.0f} %)" if before > 0.0 else ""
    verdict = {True: "kept", False: "MISSED", None: "-"}[result.kept]
    invoice = found.paid_usd(name)
    if invoice is None:
        would_be = "no invoice can be estimated, because the simulated bill is too far from the real one"
    else:
        before_credits = " before credits, refunds and taxes" if found.is_before_credits else ""
        would_be = f"an invoice of {_money(invoice, sign='$')}{before_credits}"
    return (
        f"{name} would have paid {usd(paid)} where {found.policy} pays {usd(before)}{change}, with "
        f"{percent(result.slo_result.attainment, 2)} in time ({exact_percent(result.slo.attainment, 0)} asked, "
        f"{verdict}; {found.policy} has {percent(own.slo_result.attainment, 2)}): {would_be}."
    )


def _json(found: Reconciliation) -> dict[str, Any]:
    """Return the stable object of docs/reconcile.md."""
    invoice = found.invoice
    return {
        "schema": 1,
        "service": found.results[found.policy].service,
        "trace": asdict(found.results[found.policy].trace),
        "period": {"began": utc(found.begin_s), "ended": utc(found.end_s)},
        "policy": found.policy,
        "prices": found.prices,
        "invoice": {
            "files": invoice.files,
            "rows": invoice.rows,
            "total_usd": invoice.total_usd,
            "outside_period_usd": invoice.outside_period_usd,
            "outside_selection_usd": invoice.outside_selection_usd,
            "usd": invoice.usd,
            "used_usd": found.used_usd,
        },
        "simulated_usd": found.simulated_usd,
        "explained": found.explained,
        "lines": [
            {
                "line": one.line.label,
                "market": one.line.market or None,
                "unit": one.line.unit or None,
                "invoiced": one.invoiced,
                "simulated": one.simulated,
                "invoiced_usd": one.invoiced_usd,
                "simulated_usd": one.simulated_usd,
                "difference_usd": one.difference_usd,
                "simulates": one.simulates,
                "is_use": one.line.is_use,
            }
            for one in found.lines
        ],
        "rates": [
            {
                "line": one.line.label,
                "invoice_usd_per_hour": one.invoice_usd_per_hour,
                "catalog_usd_per_hour": one.catalog_usd_per_hour,
            }
            for one in found.rates
        ],
        "policies": {
            name: {"usd": found.usd[name], "invoice_would_be_usd": found.paid_usd(name), "result": result.as_json()}
            for name, result in found.results.items()
        },
        "notes": list(found.notes),
    }


def _row(one: Compared) -> tuple[str, ...]:
    return (
        one.line.label,
        _amount(one.invoiced, one.line.unit),
        _amount(one.simulated, one.line.unit) if one.simulates else "-",
        _money(one.invoiced_usd),
        _money(one.simulated_usd) if one.simulates else "-",
        _money(one.difference_usd),
    )


def _amount(amount: float, unit: str) -> str:
    if not unit or not amount:
        return "-"
    return f"{count(amount) if amount >= 1e5 else number(amount, 1)} {unit}"


def _money(amount: float, sign: str = "") -> str:
    """Return dollars to the cent, without a dollar sign under heads that have it; small amounts with two digits."""
    shown = usd(0.0 if abs(amount) < 5e-7 else amount)
    return shown.replace("$-", "-$").replace("$", sign)


def _small(found: Reconciliation) -> list[str]:
    invoice = found.invoice
    lines = [
        f"{rate.line.label} was invoiced at ${rate.invoice_usd_per_hour:.4f}/h, "
        + (
            "and the catalogue does not sell it"
            if rate.catalog_usd_per_hour is None or rate.factor is None
            else f"the catalogue has ${rate.catalog_usd_per_hour:.4f} ({100.0 * (rate.factor - 1.0):+z.1f} %)"
        )
        for rate in found.rates
        if rate.factor is None or abs(rate.factor - 1.0) > _SAME_PRICE
    ]
    if lines and found.prices == "catalog":
        lines.append("--prices invoice simulates with the invoice's prices")
    outside = [
        f"{usd(amount)} {where}"
        for amount, where in (
            (invoice.outside_period_usd, "outside the period"),
            (invoice.outside_selection_usd, "not selected by --tag, --instances"),
        )
        if abs(amount) >= _HALF_A_CENT
    ]
    files = f"{invoice.files} file" + ("s" if invoice.files > 1 else "")
    lines.append(f"{files}, {invoice.rows:,} line items, {usd(invoice.total_usd)}" + "".join(f"; {o}" for o in outside))
    return [*lines, *found.notes]
