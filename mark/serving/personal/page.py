"""The HTML of `GET /v2/models/M/personal`: errors by version and segment of keys, rates, memory, lag and reach."""

from __future__ import annotations

from html import escape
from typing import Any

from mark.domain.percent import percent
from mark.personal.settings import SQUARED
from mark.serving.frontend import pages


def personal_page(name: str, said: dict[str, Any]) -> str:
    """Return the HTML page. It is complete in itself, without scripts, and the browser reloads it every two seconds."""
    loss = "squared error" if said["loss"] == SQUARED else "log loss"
    head = ("version of the vectors", "keys with observations before", "observations", f"mean {loss}", "interval")
    rows = [f"<tr>{''.join(f'<th>{one}' for one in head)}"]
    for one in said["errors"]:
        low, high = one["interval"]
        interval = "unknown" if low is None else f"{low:.4g} to {high:.4g}"
        cells = (
            escape(one["version"] or "table"),
            escape(one["keys"]),
            f"{one['observations']:,}",
            one["mean"],
            interval,
        )
        rows.append("<tr>" + "".join(f"<td>{cell:.4g}" if isinstance(cell, float) else f"<td>{cell}" for cell in cells))
    answers = said["answers"]
    totals = [
        ("observations learned, by all servers", f"{said['observations']:,}"),
        ("observations a second, over a minute", f"{said['observations_per_s']:.4g}"),
        ("observations that other servers have and this one lacks", f"{said['lag_facts']:,}"),
        ("keys in memory", f"{said['keys_in_memory']:,}"),
        ("heads in memory", f"{said['heads']:,}"),
        ("memory", f"{said['used_bytes'] / 1e6:,.1f} MB of {said['memory_bytes'] / 1e6:,.0f} MB"),
        ("reach: items of the table that were shown", "unknown" if said["reach"] is None else percent(said["reach"])),
        ("answers by the head of a key", f"{answers['head']:,}"),
        ("answers by the prior for a new key", f"{answers['prior']:,}"),
        ("answers by the prior for want of a key", f"{answers['without_key']:,}"),
        ("deleted keys", f"{said['deleted']:,}"),
    ]
    parts = ["<table>", *(f"<tr><td>{title}<td>{value}" for title, value in totals), "</table>"]
    lead = "<p>Each error is that of a prediction before its reward was known."
    return pages.page(f"{name}: personal heads", [lead, "<table>", *rows, "</table>", "<h2>In all</h2>", *parts])
