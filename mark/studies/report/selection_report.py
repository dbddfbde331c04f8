"""The results of a selection for the terminal, pages and JSON: error, asks, and the cost of correct answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count, number, percent, percent_2, usd

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


_TOTALS = (("answers", "answers"), ("feedback", "feedbacks"), ("contexts", "contexts"))


_STATE_HEADS = (
    *("candidate", ("share", percent), ("error", percent_2), ("labels", lambda n: "-" if n is None else count(n))),
    *(("$ a call", usd), ""),
)


def state_report(said: Mapping[str, Any]) -> Report:
    """Return the server's values; "-" for missing ones."""
    candidates: Mapping[str, Any] = said["candidates"]
    rows = [
        (
            *(str(name), _known(one, "share"), _known(one, "error"), _known(one, "feedback", "answers")),
            _known(one, "usd_per_call"),
            "switched off" if isinstance(one, Mapping) and one.get("off") is True else "",
        )
        for name, one in candidates.items()
    ]
    totals = [f"{count(found)} {words}" for key, words in _TOTALS if (found := _known(said, key)) is not None]
    return Report(said, ", ".join([f"policy {said.get('policy', '-')}", *totals]), [DataTable(_STATE_HEADS, rows)])


def _known(said: Any, *keys: str) -> float | None:
    """Return the number under the first of the keys that has one."""
    for key in keys:
        value = said.get(key) if isinstance(said, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
