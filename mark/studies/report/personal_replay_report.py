"""`mark personal replay`: errors with and without learning, and policies, as a table and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mark.personal.judge import ErrorTally
from mark.personal.replay import CANDIDATES, PersonalReplay
from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

_NOTES = (
    "error: root mean squared, on held-out rewards (first table) and of predictions made before each reward was "
    "learned (second table)",
    f"reward and reach: in each visit a policy chooses among {CANDIDATES} items at most that the key gave a reward to; "
    "reach is the part of these items that it ever showed",
)


def learning_table(ratings: str, found: PersonalReplay) -> RenderableType:
    """Return the terminal's page."""
    errors = columns("heads", "error")
    errors.add_row("static: no learning after the first part", number(found.static_rmse, 4))
    errors.add_row("online: learned each reward of the second part", number(found.online_rmse, 4))
    errors.add_row("retrained: vectors and heads from both parts", number(found.retrained_rmse, 4))
    experience = columns("rewards of the key before", "error", "predictions")
    for segment, tally in found.by_experience.items():
        experience.add_row(segment, number(_rmse(tally), 4), f"{tally.count:,}")
    policies = columns("policy", "reward", "reach", "visits")
    for name, one in found.policies.items():
        policies.add_row(name, number(one.reward, 3), percent(one.reach), f"{one.visits:,}")
    return page(
        text(f"{ratings}: {found.observations:,} rewards of {found.keys:,} keys for {found.items:,} items"),
        errors,
        experience,
        *([policies] if found.policies else []),
        *sentences([_verdict(found)]),
        *small_print(_NOTES if found.policies else _NOTES[:1]),
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


def learning_json(found: PersonalReplay) -> dict[str, Any]:
    """Return the result of `mark personal replay --json`."""
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
