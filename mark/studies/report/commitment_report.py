"""`mark plan --advise-commitment`: the saving that a commitment would have brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import HOURS_PER_MONTH, dollars, duration, percent, percent_0, usd

if TYPE_CHECKING:
    from mark.planning.market.commitment import Advice
    from mark.simulation.result import SimulationResult

_SHORT_S = 7 * 86400.0


_HEADS = (
    *("offer", ("term", str), ("on demand\n$/h", "{:.4f}".format), ("committed\n$/h", "{:.4f}".format)),
    *(("pays if\nused", percent_0), ("commit\nto", str), ("saves\na month", dollars)),
)


def commitment_report(
    result: SimulationResult, advice: Sequence[Advice], committed: Mapping[str, int], source: str
) -> Report:
    """Return one line for each offer and term. `committed`: instances committed today, by offer; they count."""
    rows = [
        (one.offer, one.term, one.usd_per_hour, one.committed_usd_per_hour, one.pays_above, one.count, saved)
        for one in advice
        for saved in [one.saved_usd_per_hour * HOURS_PER_MONTH]
    ]
    length_s = result.trace.duration_s
    notes = [
        "an instance is used while the simulated fleet has one more; committed instances cost nothing "
        "more, so that plans made with it may save more than this",
        f"discounts: {source}",
    ]
    if committed:
        today = ", ".join(f"{count} {name}" for name, count in committed.items())
        notes.append(
            f"counts include today's commitments: {today}; mark runs them all the time, so simulate without "
            "[fleet.committed] to see how many pay"
        )
    if length_s < _SHORT_S:
        notes.append(f"{duration(length_s)} is a short look at a year; simulate weeks before you commit")
    return Report(
        _json(result, advice, committed, source),
        f"{result.service}: commitment that {duration(length_s)} of {result.trace.name} justifies",
        [DataTable(_HEADS, rows)] if rows else [],
        _sentences(result, advice),
        notes,
        read=result.trace.read,
    )


def _json(
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
    promised = dict(terms)
    for one in advice:
        terms[one.term] += one.saved_usd_per_hour
        promised[one.term] += one.count * one.committed_usd_per_hour
    if not any(terms.values()):
        return ["No instance is used for long enough to be worth a commitment."]
    spent = result.bill.total / (result.trace.duration_s / 3600.0)
    return [
        f"{term}: {dollars(saved * HOURS_PER_MONTH)} a month less than {dollars(spent * HOURS_PER_MONTH)} on demand "
        f"({percent(saved / spent)}), for {usd(promised[term])}/h promised."
        for term, saved in terms.items()
    ]
