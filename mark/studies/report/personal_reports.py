"""`mark personal`: a replay, a running server's heads, a retrained version, and the places of a key's data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mark.personal.judge import ErrorTally
from mark.personal.retrain import Retrained
from mark.personal.rewards_replay import CANDIDATES, PersonalReplay
from mark.personal.settings import SQUARED
from mark.selection.guard import FALSE_ALARM
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count, grouped, number_3, number_4, percent

_REPLAY_NOTES = (
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
        _replay_json(found),
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
        notes=_REPLAY_NOTES if policies else _REPLAY_NOTES[:1],
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


def _replay_json(found: PersonalReplay) -> dict[str, Any]:
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


def heads_report(said: Mapping[str, Any]) -> Report:
    """Return errors of predictions before their reward was known, by version and by the keys' number of rewards."""
    loss = "squared error" if said["loss"] == SQUARED else "log loss"
    heads = ("vectors", "keys with", ("observations", count), (f"mean {loss}", "{:.4g}".format), "interval")
    rows = []
    for one in said["errors"]:
        low, high = one["interval"]
        interval = "-" if low is None else f"{low:.4g} to {high:.4g}"
        rows.append((str(one["version"]), one["keys"], one["observations"], one["mean"], interval))
    line = (
        f"{count(said['observations'])} observations, {said['observations_per_s']:.4g} a second; "
        f"{count(said['heads'])} heads, {said['used_bytes'] / 1e6:.1f} MB; lag {count(said['lag_facts'])}"
    )
    return Report(said, line, [DataTable(heads, rows)])


def key_report(said: Mapping[str, Any]) -> Report:
    """Return the state of one key."""
    error = said.get("error")
    words = "" if error is None else f", root mean squared error {error:.4g}"
    named = [f"dimension {number}" for number in range(len(said["weights"]) - len(said["biases"]))]
    weights = zip((f"{weight:.4g}" for weight in said["weights"]), [*said["biases"], *named], strict=True)
    line = f"{said['key']}: {count(said['observations'])} observations{words}"
    return Report(said, line, [DataTable(("weight", ""), list(weights))])


_GAIN_HEADS = (
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
    said = [_promoted(found)]
    if found.unlogged:
        said.append(f"The log lacks the inputs of {found.unlogged:,} rewards, which were left out.")
    if not found.is_served:
        said.append(f'To serve what the alias names, write table = "{found.reference}" in {service}.')
    elif found.why_not is None:
        said.append("Servers have it once they start again, and every key keeps its observations.")
    return Report(
        data,
        f"{trial.trained:,} rewards trained, {trial.judged:,} newer ones of {found.keys:,} keys judged",
        [DataTable(("version", (trial.metric, number_4)), errors), DataTable(_GAIN_HEADS, gains)],
        said,
        [
            f"gain: how much lower the mean {_ERRORS[trial.metric]} of a prediction is with the new version; from and "
            f"to contain the true gain with a probability of {percent(1.0 - FALSE_ALARM, 0)}"
        ],
    )


def _promoted(found: Retrained) -> str:
    if found.why_not is None:
        return f"Promoted: {found.alias} names the new version."
    return f"Not promoted: {found.why_not}."


def _gain(tally: ErrorTally) -> dict[str, Any]:
    low, high = tally.interval()
    return {"predictions": tally.count, "mean": tally.mean, "low": low, "high": high}


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A place that holds data of a key, with the number of its entries."""

    where: str
    what: str
    count: int


@dataclass(slots=True)
class KeyScan:
    """The result of a scan: the number of places read, and the places that hold data of the key.

    Deletions of the key do not count.
    """

    key: str
    files: int = 0
    objects: int = 0
    servers: int = 0
    found: list[KeyPlace] = field(default_factory=list)

    def note(self, where: str, what: str, count: int) -> None:
        if count:
            self.found.append(KeyPlace(where, what, count))


def scan_report(scan: KeyScan) -> Report:
    looked = f"{count(scan.files)} files, {count(scan.objects)} objects and {count(scan.servers)} servers"
    data = {
        "schema": 1,
        "key": scan.key,
        "looked_at": {"files": scan.files, "objects": scan.objects, "servers": scan.servers},
        "found": [{"where": one.where, "what": one.what, "count": one.count} for one in scan.found],
    }
    if not scan.found:
        return Report(data, f"{scan.key}: nothing in {looked}")
    found = DataTable(
        ("count", ("what", str), ("where", str)), [(count(one.count), one.what, one.where) for one in scan.found]
    )
    return Report(data, f"{scan.key}: found in {count(len(scan.found))} of {looked}", [found])
