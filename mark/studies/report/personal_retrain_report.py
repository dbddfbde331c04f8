"""`mark personal retrain`: the errors of both tables on newer rewards and the decision, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.personal.judge import ErrorTally
from mark.personal.retrain import Retrained
from mark.selection.guard import FALSE_ALARM
from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import number

if TYPE_CHECKING:
    from rich.console import RenderableType

_ERRORS = {"rmse": "squared error", "mae": "absolute error", "log_loss": "log loss"}


def retrain_table(service: str, found: Retrained) -> RenderableType:
    """Return the terminal's page."""
    trial = found.trial
    errors = columns("table", trial.metric)
    errors.add_row(f"present: {found.present}", number(trial.error(trial.present), 4))
    errors.add_row(f"new: {found.new}", number(trial.error(trial.new), 4))
    gains = columns("rewards of the key before", "gain", "from", "to", "predictions")
    for _, segment, tally in trial.gains.rows():
        low, high = tally.interval()
        gains.add_row(segment, number(tally.mean, 4), number(low, 4), number(high, 4), f"{tally.count:,}")
    said = [_verdict(found)]
    if not found.is_served:
        said.append(f'To serve what the alias names, write table = "{found.reference}" in {service}.')
    elif found.why_not is None:
        said.append("Servers have it once they start again, and every key keeps its observations.")
    notes = (
        f"gain: how much lower the mean {_ERRORS[trial.metric]} of a prediction is with the new table; from and to "
        f"contain the true gain with a probability of {1.0 - FALSE_ALARM:.0%}",
    )
    return page(
        text(f"{trial.trained:,} rewards trained, {trial.judged:,} newer ones of {found.keys:,} keys judged"),
        errors,
        gains,
        *sentences(said),
        *small_print(notes),
    )


def _verdict(found: Retrained) -> str:
    if found.why_not is None:
        return f"Promoted: {found.alias} names the new table."
    return f"Not promoted: {found.why_not}."


def retrain_json(found: Retrained) -> dict[str, Any]:
    """Return the result of `mark personal retrain --json`."""
    trial = found.trial
    return {
        "schema": 1,
        "promoted": found.why_not is None,
        "why_not": found.why_not,
        "alias": found.alias,
        "keys": found.keys,
        "trained": trial.trained,
        "judged": trial.judged,
        "metric": trial.metric,
        "present": {"version": found.present, "error": trial.error(trial.present)},
        "new": {"version": found.new, "error": trial.error(trial.new), "lacking_items": trial.lacking},
        "gain": {segment: _gain(tally) for _, segment, tally in trial.gains.rows()},
    }


def _gain(tally: ErrorTally) -> dict[str, Any]:
    low, high = tally.interval()
    return {"predictions": tally.count, "mean": tally.mean, "low": low, "high": high}
