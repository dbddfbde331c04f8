"""The dollars between a bill and its bound, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mark.studies.report.report import DataTable, Head, Marked
from mark.studies.report.words import number, percent_0, usd

if TYPE_CHECKING:
    from mark.studies.attribution import Attribution

TITLE = "Where the dollars above the bound go"
# Each part's name and meaning; docs/attribution.md has them in more detail.
MEANINGS = {
    "forecast_error": ("forecast error", "saving of the same policy with perfect forecasts"),
    "boot_delay": ("boot delay", "further saving when every boot takes its mean, and the policy knows"),
    "launch_overhead": ("launch overhead", "cost of booting beyond the launches of the bound"),
    "queueing": ("queueing", "clairvoyant plans, minute by minute, of whole instances: with queues less without"),
    "integrality": (
        "integrality",
        "clairvoyant plans, minute by minute: whole instances less fractions, beyond those of the bound",
    ),
    "controller": ("controller", "as in the bill; the bound has none"),
    "disks": ("disks", "beyond those in the bound"),
    "beyond_promise": (
        "beyond promise",
        "requests in time beyond the promise, which the bound leaves out",
    ),
    "other": (
        "the rest",
        "parts below 0.5 % of each bill, order of decisions, whole minutes, interruptions",
    ),
}


_SMALL = 0.005  # a part below this share of every bill has no row of its own


def _parts_of(found: Mapping[str, Attribution]) -> dict[str, list[float]]:
    """Return the dollars of every policy, by part. The rest has all parts that are small for each policy."""
    apart = [
        one.parts | {"controller": one.controller_usd, "disks": one.parts["extras"] - one.controller_usd}
        for one in found.values()
    ]
    large = [_SMALL * one.bill_usd for one in found.values()]
    parts = {
        part: [each[part] for each in apart]
        for part in MEANINGS
        if part != "other" and any(abs(each[part]) >= least for each, least in zip(apart, large, strict=True))
    }
    parts["other"] = [sum(each[part] for part in MEANINGS if part == "other" or part not in parts) for each in apart]
    return parts


def attribution_rows(found: Mapping[str, Attribution]) -> list[list[str]]:
    """Return bound, parts and bill, one row each: its name, the dollars of every policy, its meaning."""
    small = min((one.bill_usd for one in found.values()), default=1.0) < 1.0

    def amount(dollars: float) -> str:
        if not small:
            return number(dollars + 0.0 if abs(dollars) >= 0.005 else 0.0)
        return usd(dollars if abs(dollars) >= 5e-6 else 0.0).replace("$", "")

    def shown(dollars: float) -> float:
        return float(amount(dollars).replace(",", ""))

    rows = [["bound", *(amount(one.bound_usd) for one in found.values()), "the least that any policy can pay"]]
    parts = _parts_of(found)
    # Computed from the rounded amounts, so that the printed column adds up to the printed bill.
    parts["other"] = [
        shown(one.bill_usd) - shown(one.bound_usd) - sum(shown(of[at]) for name, of in parts.items() if name != "other")
        for at, one in enumerate(found.values())
    ]
    for part, dollars in parts.items():
        name, meaning = MEANINGS[part]
        rows.append([name, *map(amount, dollars), meaning])
    rows.append(["bill", *(amount(one.bill_usd) for one in found.values()), "the sum of all above"])
    return rows


def attribution_parts(found: Mapping[str, Attribution]) -> list[Marked | DataTable]:
    """Return the table, with shares of the gap if there is only one policy; empty without an attribution."""
    if not found:
        return []
    only = next(iter(found.values())) if len(found) == 1 else None
    gap = only.bill_usd - only.bound_usd if only else 0.0
    shares = {MEANINGS[part][0]: usd / gap for part, (usd,) in _parts_of(found).items()} if only and gap > 0.0 else {}
    names: list[Head] = [(name.replace(":", ":\n"), str) for name in found]
    rows = [
        [name, *amounts, *([percent_0(shares[name]) if name in shares else ""] if shares else []), meaning]
        for name, *amounts, meaning in attribution_rows(found)
    ]
    heads = ["", *names, *([("of the gap", str)] if shares else []), ""]
    below = any("-" in amount for row in rows for amount in row[1:-1])
    return [
        Marked(f"{TITLE} ($)", "strong"),
        DataTable(heads, rows, TITLE, _LEAD, printed=len(heads) - 1),
        Marked(f"{_CAPTION}{_BELOW_ZERO if below else ''}\n", "faint"),
    ]


_CAPTION = "docs/attribution.md explains the parts. The rest contains all parts below 0.5 % of a bill."
_BELOW_ZERO = " A part below zero: the run or plan that knows more is dearer. The parts add up to the bill."
_LEAD = (
    "From the proven bound to the bill, in dollars. Each part is a run in a better world, or a plan that knows every "
    "arrival; the sum is exact."
)
