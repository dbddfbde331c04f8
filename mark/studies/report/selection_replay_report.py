"""`mark selection replay`: policies beside each candidate alone, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mark.studies.report.report import DataTable, Head, Report
from mark.studies.report.words import number, percent_2, usd
from mark.studies.selection_replay import SelectionReplay


def _interval(ends: tuple[float, float]) -> str:
    return f"{100.0 * ends[0]:.2f} to {100.0 * ends[1]:.2f} %"


def _points(share: float) -> str:
    return "-" if not math.isfinite(share) else f"{100.0 * share:+z.2f} %"


_HEADS: tuple[Head, ...] = (
    *(("error", percent_2), ("95 % interval", str), ("asks", number), ("$ a million", usd), ("regret", _points)),
)
_NOTES = (
    "error: the mean loss of the answers; asks: candidates asked for a query; regret: error above that of the best "
    "candidate in hindsight (below zero: better than it)",
)


def replay_report(found: SelectionReplay) -> Report:
    names = list(found.candidates)
    data = {
        "schema": 1,
        "queries": found.queries,
        "candidates": {
            name: {
                "answers": one.answers,
                "error": one.error,
                "error_interval_95": list(one.error_interval()),
                "usd_per_million": one.usd_per_million,
            }
            for name, one in found.candidates.items()
        },
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
    policies: list[Sequence[Any]] = []
    for name, one in found.policies.items():
        if one.queries:
            per_query = (one.asks / one.queries, 1e6 * one.usd / one.queries)
            policies.append((name, one.error, _interval(one.error_interval()), *per_query, found.regret(name)))
        else:
            policies.append((name, *"-----"))
    least = found.candidates[found.best].error
    alone = [
        (name, one.error, _interval(one.error_interval()), 1.0, one.usd_per_million, one.error - least)
        for name, one in found.candidates.items()
    ]
    return Report(
        data,
        f"{found.log}: {found.queries:,} queries with labels, {len(found.candidates)} candidates",
        [DataTable(("policy", *_HEADS), policies), DataTable(("candidate alone", *_HEADS), alone)],
        _verdict(found),
        [*_NOTES, *found.notes],
    )


def _verdict(found: SelectionReplay) -> list[str]:
    names = [name for name, one in found.policies.items() if one.queries]
    if not names:
        return ["No policy has a query left: the log lacks the answers that they ask for."]
    best = min(names, key=lambda name: (found.policies[name].error, found.policies[name].usd))
    one = found.policies[best]
    best_alone = found.candidates[found.best]
    words = "the smallest error of these policies," if len(found.policies) > 1 else "an error of"
    said = f"{best} has {words} {percent_2(one.error)}"
    low, high = one.error_interval()
    if low <= best_alone.error <= high:
        return [f"{said}: no more than chance away from {found.best} alone, {percent_2(best_alone.error)}."]
    return [f"{said}; {found.best} alone has {percent_2(best_alone.error)}."]
