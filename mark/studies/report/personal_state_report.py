"""`mark personal show`: errors and memory of a running server's heads, or one key, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, text
from mark.studies.report.words import count

if TYPE_CHECKING:
    from rich.console import RenderableType


def heads_table(said: Mapping[str, Any]) -> RenderableType:
    """Return errors of predictions before their reward was known, by version and by the keys' number of rewards."""
    table = columns("vectors", "keys with", "observations", "mean error", "interval")
    for one in said["errors"]:
        low, high = one["interval"]
        interval = "-" if low is None else f"{low:.4g} to {high:.4g}"
        cells = (str(one["version"]), str(one["keys"]), count(one["observations"]), f"{one['mean']:.4g}", interval)
        table.add_row(*cells)
    line = (
        f"{count(said['observations'])} observations, {said['observations_per_s']:.4g} a second; "
        f"{count(said['heads'])} heads, {said['used_bytes'] / 1e6:.1f} MB; lag {count(said['lag_facts'])}"
    )
    return page(text(line, "bold"), table)


def key_table(said: Mapping[str, Any]) -> RenderableType:
    """Return the state of one key."""
    error = said.get("error")
    words = "" if error is None else f", root mean squared error {error:.4g}"
    table = columns("weight", "")
    named = [f"dimension {number}" for number in range(len(said["weights"]) - len(said["biases"]))]
    for name, weight in zip([*said["biases"], *named], said["weights"], strict=True):
        table.add_row(f"{weight:.4g}", name)
    return page(text(f"{said['key']}: {count(said['observations'])} observations{words}", "bold"), table)
