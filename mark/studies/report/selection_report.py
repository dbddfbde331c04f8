"""The results of a selection for the terminal, pages and JSON: its error, its asks, and the cost of correct answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.words import number, percent, usd

if TYPE_CHECKING:
    from mark.simulation.selected_calls import SelectionRun

HEADS = ["error", "asks\na query", "$ per million\nqueries", "$ per million\ncorrect"]


def selection_json(run: SelectionRun, usd_of_all: float, queries: float) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes. `usd_of_all` is the bill of `queries` queries."""
    return {
        "error": run.error,
        "asks_per_query": run.asks_per_query,
        "usd_per_million": 1e6 * usd_of_all / queries,
        "usd_per_million_correct": _per_million_correct(run, usd_of_all),
        "call_usd": run.call_usd,
        "candidates": {
            name: {"asked": run.asked[at], "answered": None if run.answered is None else run.answered[at]}
            for at, name in enumerate(run.candidates)
        },
    }


def selection_cells(run: SelectionRun, usd_of_all: float, queries: float) -> list[str]:
    """Return the cells under `HEADS`."""
    return [
        percent(run.error, 2),
        number(run.asks_per_query),
        usd(1e6 * usd_of_all / queries),
        usd(_per_million_correct(run, usd_of_all)),
    ]


def selection_sentences(run: SelectionRun, usd_of_all: float) -> list[str]:
    """Return the selection in words."""
    asked = ", ".join(f"{name} {percent(share)}" for name, share in zip(run.candidates, run.asked, strict=True))
    lines = [f"Queries ask {number(run.asks_per_query)} candidates in the mean: {asked} of them."]
    if run.answered is not None:
        given = ", ".join(f"{name} {percent(share)}" for name, share in zip(run.candidates, run.answered, strict=True))
        correct = _per_million_correct(run, usd_of_all)
        lines.append(
            f"Of the answers {given}; {percent(run.error, 2)} are wrong. A million correct answers cost {usd(correct)}."
        )
    if run.call_usd:
        lines.append(f"{usd(run.call_usd)} of the bill is for calls that are paid by the call (usd_per_call).")
    return lines


def _per_million_correct(run: SelectionRun, usd_of_all: float) -> float | None:
    return 1e6 * usd_of_all / run.correct if run.correct else None
