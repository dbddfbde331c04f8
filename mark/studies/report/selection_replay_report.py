"""`mark selection replay`: policies beside each candidate alone, as a table and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mark.studies.answer_scan import CandidateRecord
from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import number, percent, usd
from mark.studies.selection_replay import SelectionReplay

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADS = ("policy", "error", "95 % interval", "asks", "$ a million", "regret")
_NOTES = (
    "error: the mean loss of the answers; asks: candidates asked for a query; regret: error above that of the best "
    "candidate in hindsight (below zero: better than it)",
)


def replay_table(found: SelectionReplay) -> RenderableType:
    policies, alone = columns(*_HEADS), columns("candidate alone", *_HEADS[1:])
    for name, one in found.policies.items():
        if one.queries:
            per_query = usd(1e6 * one.usd / one.queries)
            cells = (_error(one.error), _interval(one.error_interval()), number(one.asks / one.queries), per_query)
            policies.add_row(name, *cells, _points(found.regret(name)))
        else:
            policies.add_row(name, *"-----")
    least = found.candidates[found.best].error
    for name, record in found.candidates.items():
        cells = (_error(record.error), _interval(record.error_interval()), "1.00", usd(record.usd_per_million))
        alone.add_row(name, *cells, _points(record.error - least))
    return page(
        text(f"{found.log}: {found.queries:,} queries with labels, {len(found.candidates)} candidates"),
        policies,
        alone,
        *sentences(_verdict(found)),
        *small_print([*_NOTES, *found.notes]),
    )


def _verdict(found: SelectionReplay) -> list[str]:
    names = [name for name, one in found.policies.items() if one.queries]
    if not names:
        return ["No policy has a query left: the log lacks the answers that they ask for."]
    best = min(names, key=lambda name: (found.policies[name].error, found.policies[name].usd))
    one = found.policies[best]
    best_alone = found.candidates[found.best]
    words = "the smallest error of these policies," if len(found.policies) > 1 else "an error of"
    said = f"{best} has {words} {_error(one.error)}"
    low, high = one.error_interval()
    if low <= best_alone.error <= high:
        return [f"{said}: no more than chance away from {found.best} alone, {_error(best_alone.error)}."]
    return [f"{said}; {found.best} alone has {_error(best_alone.error)}."]


def _error(share: float) -> str:
    return percent(share, 2)


def _interval(ends: tuple[float, float]) -> str:
    return f"{100.0 * ends[0]:.2f} to {100.0 * ends[1]:.2f} %"


def _points(share: float) -> str:
    return "-" if not math.isfinite(share) else f"{100.0 * share:+.2f} %"


def replay_json(found: SelectionReplay) -> dict[str, Any]:
    """Return the result of `mark selection replay --json`."""
    names = list(found.candidates)
    return {
        "schema": 1,
        "queries": found.queries,
        "candidates": {name: _candidate_json(one) for name, one in found.candidates.items()},
        "best_candidate": found.best,
        "policies": {
            policy: {
                "queries": one.queries,
                "skipped": one.skipped,
                "error": one.error if one.queries else None,
                "error_interval_95": list(one.error_interval()),
                "asks_per_query": one.asks / one.queries if one.queries else None,
                "usd_per_million": 1e6 * one.usd / one.queries if one.queries else None,
                "regret_per_query": found.regret(policy) if one.queries else None,
                "unanswered": one.unanswered,
                "defaults": one.by_default,
                "by_window": [
                    {
                        "first": window.first,
                        "queries": window.queries,
                        "error": window.loss / window.queries,
                        "shares": {name: window.chosen[at] / window.queries for at, name in enumerate(names)},
                    }
                    for window in one.windows
                ],
            }
            for policy, one in found.policies.items()
        },
        "notes": found.notes,
    }


def _candidate_json(one: CandidateRecord) -> dict[str, Any]:
    return {
        "answers": one.answers,
        "error": one.error,
        "error_interval_95": list(one.error_interval()),
        "usd_per_million": one.usd_per_million,
    }
