"""`mark personal show`: errors and memory of a running server's heads, or one key, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count

_HEADS = ("vectors", ("keys with", str), ("observations", count), ("mean error", "{:.4g}".format), ("interval", str))


def heads_report(said: Mapping[str, Any]) -> Report:
    """Return errors of predictions before their reward was known, by version and by the keys' number of rewards."""
    rows = []
    for one in said["errors"]:
        low, high = one["interval"]
        interval = "-" if low is None else f"{low:.4g} to {high:.4g}"
        rows.append((str(one["version"]), one["keys"], one["observations"], one["mean"], interval))
    line = (
        f"{count(said['observations'])} observations, {said['observations_per_s']:.4g} a second; "
        f"{count(said['heads'])} heads, {said['used_bytes'] / 1e6:.1f} MB; lag {count(said['lag_facts'])}"
    )
    return Report(said, line, [DataTable(_HEADS, rows)])


def key_report(said: Mapping[str, Any]) -> Report:
    """Return the state of one key."""
    error = said.get("error")
    words = "" if error is None else f", root mean squared error {error:.4g}"
    named = [f"dimension {number}" for number in range(len(said["weights"]) - len(said["biases"]))]
    weights = zip((f"{weight:.4g}" for weight in said["weights"]), [*said["biases"], *named], strict=True)
    line = f"{said['key']}: {count(said['observations'])} observations{words}"
    return Report(said, line, [DataTable(("weight", ""), list(weights))])
