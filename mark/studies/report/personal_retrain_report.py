"""`mark personal retrain`: the errors of both versions on newer rewards and the decision, as a table and as JSON."""

from __future__ import annotations

from typing import Any

from mark.personal.judge import ErrorTally
from mark.personal.retrain import Retrained
from mark.selection.guard import FALSE_ALARM
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import grouped, number_4

_HEADS = (
    *("rewards of the key before", ("gain", number_4), ("from", number_4), ("to", number_4)),
    ("predictions", grouped),
)
_ERRORS = {"rmse": "squared error", "mae": "absolute error", "log_loss": "log loss"}


def retrain_report(service: str, found: Retrained) -> Report:
    trial = found.trial
    data = {
        "schema": 1,
        "promoted": found.why_not is None,
        "why_not": found.why_not,
        "alias": found.alias,
        "keys": found.keys,
        "trained": trial.trained,
        "judged": trial.judged,
        "unlogged": found.unlogged,
        "metric": trial.metric,
        "present": {"version": found.present, "error": trial.error(trial.present)},
        "new": {"version": found.new, "error": trial.error(trial.new), "lacking_items": trial.lacking},
        "gain": {segment: _gain(tally) for _, segment, tally in trial.gains.rows()},
    }
    errors = [
        (f"present: {found.present}", trial.error(trial.present)),
        (f"new: {found.new}", trial.error(trial.new)),
    ]
    gains = [(segment, tally.mean, *tally.interval(), tally.count) for _, segment, tally in trial.gains.rows()]
    said = [_verdict(found)]
    if found.unlogged:
        said.append(f"The log lacks the inputs of {found.unlogged:,} rewards, which were left out.")
    if not found.is_served:
        said.append(f'To serve what the alias names, write table = "{found.reference}" in {service}.')
    elif found.why_not is None:
        said.append("Servers have it once they start again, and every key keeps its observations.")
    return Report(
        data,
        f"{trial.trained:,} rewards trained, {trial.judged:,} newer ones of {found.keys:,} keys judged",
        [DataTable(("version", (trial.metric, number_4)), errors), DataTable(_HEADS, gains)],
        said,
        [
            f"gain: how much lower the mean {_ERRORS[trial.metric]} of a prediction is with the new version; from and "
            f"to contain the true gain with a probability of {1.0 - FALSE_ALARM:.0%}"
        ],
    )


def _verdict(found: Retrained) -> str:
    if found.why_not is None:
        return f"Promoted: {found.alias} names the new version."
    return f"Not promoted: {found.why_not}."


def _gain(tally: ErrorTally) -> dict[str, Any]:
    low, high = tally.interval()
    return {"predictions": tally.count, "mean": tally.mean, "low": low, "high": high}
