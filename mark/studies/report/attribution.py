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
    "extras": ("extras", "the controller, and disks beyond those in the bound"),
    "beyond_promise": (
        "beyond promise",
        "requests in time beyond the promise, which the bound leaves out",
    ),
    "other": ("the rest", "order of decisions, fleets held for whole minutes, interruptions"),
}


def attribution_rows(found: Mapping[str, Attribution]) -> list[list[str]]:
    """Return bound, parts and bill, one row each: its name, the dollars of every policy, its meaning."""
    small = min((one.bill_usd for one in found.values()), default=1.0) < 1.0

    def amount(dollars: float) -> str:
        if not small:
            return number(dollars + 0.0 if abs(dollars) >= 0.005 else 0.0)
        return usd(dollars if abs(dollars) >= 5e-6 else 0.0).replace("$", "")

    used = [part for part in MEANINGS if part != "extras" or any(one.parts[part] for one in found.values())]
    rows = [["bound", *(amount(one.bound_usd) for one in found.values()), "the least that any policy can pay"]]
    for part in used:
        name, meaning = MEANINGS[part]
        rows.append([name, *(amount(one.parts[part]) for one in found.values()), meaning])
    rows.append(["bill", *(amount(one.bill_usd) for one in found.values()), "the sum of all above"])
    return rows


def attribution_parts(found: Mapping[str, Attribution]) -> list[Marked | DataTable]:
    """Return the table, with shares of the gap if there is only one policy; empty without an attribution."""
    if not found:
        return []
    only = next(iter(found.values())) if len(found) == 1 else None
    gap = only.bill_usd - only.bound_usd if only else 0.0
    shares = {MEANINGS[part][0]: usd / gap for part, usd in only.parts.items()} if only and gap > 0.0 else {}
    names: list[Head] = [(name.replace(":", ":\n"), str) for name in found]
    rows = [
        [name, *amounts, *([percent_0(shares[name]) if name in shares else ""] if shares else []), meaning]
        for name, *amounts, meaning in attribution_rows(found)
    ]
    heads = ["", *names, *([("of the gap", str)] if shares else []), ""]
    caption = "; ".join(f"{name}: {meaning}" for name, *_, meaning in rows if name not in ("bound", "bill"))
    return [
        Marked(f"{TITLE} ($)", "strong"),
        DataTable(heads, rows, TITLE, _LEAD, printed=len(heads) - 1),
        Marked(f"{caption}. See docs/attribution.md.\n", "faint"),
    ]


_LEAD = (
    "From the proven bound to the bill, in dollars. Each part is a run in a better world, or a plan that knows every "
    "arrival; the sum is exact."
)
