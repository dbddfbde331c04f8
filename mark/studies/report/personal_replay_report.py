"""`mark personal replay`: errors with and without learning, and policies, as a table and as JSON."""

from __future__ import annotations

import math
from typing import Any

from mark.personal.judge import ErrorTally
from mark.personal.rewards_replay import CANDIDATES, PersonalReplay
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import grouped, number_3, number_4, percent

_NOTES = (
    "error: root mean squared, on held-out rewards (first table) and of predictions made before each reward was "
    "learned (second table)",
    f"reward and reach: in each visit a policy chooses among {CANDIDATES} items at most that the key gave a reward to; "
    "reach is the part of these items that it ever showed",
)


def learning_report(ratings: str, found: PersonalReplay) -> Report:
    error = ("error", number_4)
    policies = [(name, one.reward, one.reach, one.visits) for name, one in found.policies.items()]
    heads = ("policy", ("reward", number_3), ("reach", percent), ("visits", grouped))
    return Report(
        _json(found),
        f"{ratings}: {found.observations:,} rewards of {found.keys:,} keys for {found.items:,} items",
        [
            DataTable(
                ("heads", error),
                [
                    ("static: no learning after the first part", found.static_rmse),
                    ("online: learned each reward of the second part", found.online_rmse),
                    ("retrained: vectors and heads from both parts", found.retrained_rmse),
                ],
            ),
            DataTable(
                ("rewards of the key before", error, ("predictions", grouped)),
                [(segment, _rmse(tally), tally.count) for segment, tally in found.by_experience.items()],
            ),
            *([DataTable(heads, policies)] if policies else []),
        ],
        sentences=[_verdict(found)],
        notes=_NOTES if policies else _NOTES[:1],
    )


def _verdict(found: PersonalReplay) -> str:
    learned, trained = found.static_rmse - found.online_rmse, found.static_rmse - found.retrained_rmse
    if learned <= 0.0:
        return f"Learning online does not help on this log: the error rises by {-learned:.4f}."
    said = f"Learning online lowers the error by {learned:.4f}"
    if trained <= 0.0:
        return f"{said}; retraining does not lower it."
    return f"{said}, {100.0 * learned / trained:.0f} % of what retraining gains."


def _rmse(tally: ErrorTally) -> float | None:
    return math.sqrt(tally.mean) if tally.count else None


def _json(found: PersonalReplay) -> dict[str, Any]:
    return {
        "schema": 1,
        "observations": found.observations,
        "keys": found.keys,
        "items": found.items,
        "held_out": found.held_out,
        "static_rmse": found.static_rmse,
        "online_rmse": found.online_rmse,
        "retrained_rmse": found.retrained_rmse,
        "by_experience": {
            segment: {"predictions": tally.count, "rmse": _rmse(tally)}
            for segment, tally in found.by_experience.items()
        },
        "policies": {
            name: {
                "reward": one.reward if one.visits else None,
                "reach": one.reach if one.visits else None,
                "visits": one.visits,
            }
            for name, one in found.policies.items()
        },
    }
