"""`mark plan --advise-commitment`: the saving that a commitment would have brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.words import HOURS_PER_MONTH, dollars, duration, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.planning.market.commitment import Advice
    from mark.simulation.result import SimulationResult

_SHORT_S = 7 * 86400.0


def commitment_table(
    result: SimulationResult, advice: Sequence[Advice], committed: Mapping[str, int], source: str
) -> RenderableType:
    """Return one line for each offer and term. `committed`: instances committed today, by offer; they count."""
    table = columns(
        "offer", "term", "on demand\n$/h", "committed\n$/h", "pays if\nused", "commit\nto", "saves\na month"
    )
    for one in advice:
        table.add_row(
            text(one.offer),
            text(one.term),
            f"{one.usd_per_hour:.4f}",
            f"{one.committed_usd_per_hour:.4f}",
            percent(one.pays_above, 0),
            str(one.count),
            dollars(one.saved_usd_per_hour * HOURS_PER_MONTH),
        )
    length_s = result.trace.duration_s
    short = f"{duration(length_s)} is a short look at a year; simulate weeks before you commit"
    today = ", ".join(f"{count} {name}" for name, count in committed.items())
    return page(
        *what_was_read(result.trace.read),
        text(f"{result.service}: commitment that {duration(length_s)} of {result.trace.name} justifies", "bold"),
        *([table] if advice else []),
        *sentences(_sentences(result, advice)),
        *small_print(
            [
                "an instance is used while the simulated fleet has one more; committed instances cost nothing "
                "more, so that plans made with it may save more than this",
                f"discounts: {source}",
                *([f"counts include today's commitments: {today}"] if today else []),
                *([short] if length_s < _SHORT_S else []),
            ]
        ),
    )


def commitment_json(
    result: SimulationResult, advice: Sequence[Advice], committed: Mapping[str, int], source: str
) -> dict[str, Any]:
    return {
        "schema": 1,
        "service": result.service,
        "policy": result.policy,
        "trace": {"name": result.trace.name, "duration_s": result.trace.duration_s, "read": result.trace.read},
        "bill_usd": result.bill.as_json(),
        "committed": dict(committed),
        "discounts_from": source,
        "advice": [
            {
                "offer": one.offer,
                "term": one.term,
                "usd_per_hour": one.usd_per_hour,
                "committed_usd_per_hour": one.committed_usd_per_hour,
                "pays_above": one.pays_above,
                "count": one.count,
                "saved_usd_per_hour": one.saved_usd_per_hour,
                "used": list(one.used),
            }
            for one in advice
        ],
    }


def _sentences(result: SimulationResult, advice: Sequence[Advice]) -> list[str]:
    terms = {one.term: 0.0 for one in advice}
    for one in advice:
        terms[one.term] += one.saved_usd_per_hour
    if not any(terms.values()):
        return ["No instance is used for long enough to be worth a commitment."]
    spent = result.bill.total / (result.trace.duration_s / 3600.0)
    return [
        f"{term}: {dollars(saved * HOURS_PER_MONTH)} a month less than {dollars(spent * HOURS_PER_MONTH)} on demand "
        f"({percent(saved / spent)}), for {usd(_promised(advice, term))}/h promised."
        for term, saved in terms.items()
    ]


def _promised(advice: Sequence[Advice], term: str) -> float:
    return sum(one.count * one.committed_usd_per_hour for one in advice if one.term == term)
