"""The testbed on a terminal: what runs and what it costs, and what a load has shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.reporting.layout import columns, page, text
from mark.reporting.takeaway import MARKETS, market_name
from mark.reporting.words import milliseconds, number, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType


def status_page(said: Mapping[str, Any]) -> RenderableType:
    """Where everything is, the fleet, and the bill so far."""
    doors = columns("", "")
    doors.add_row("AWS endpoint", said["endpoint"])
    doors.add_row("Site file", said["site"])
    for name, url in said["services"].items():
        doors.add_row(f"{name}: send requests to", url)
    for controller in said["controllers"]:
        doors.add_row("Controller", controller["url"] or "starts")
    fleet = columns("instance", "offer", "service", "state", "address")
    for one in said["fleet"]:
        state = one["state"] + (", told to go" if one["doomed"] else "")
        fleet.add_row(one["id"], one["offer"], one["service"], state, one["address"])
    return page(
        doors,
        fleet if said["fleet"] else text("no instance yet"),
        _bill(said["bill_usd"]),
        *(text(f"must not be: {problem}", "red") for problem in said["problems"]),
    )


def result_page(data: Mapping[str, Any]) -> RenderableType:
    """What became of the requests of a load."""
    requests, slo, latency = data["requests"], data["slo"], data["latency_ms"]
    table = columns("", "")
    table.add_row("Requests", number(requests["total"], 0))
    for answered_by in ("instances", "functions", "rejected"):
        share = f" ({percent(requests[answered_by] / requests['total'])})" if requests["total"] else ""
        table.add_row(f"  {answered_by}", f"{number(requests[answered_by], 0)}{share}")
    table.add_row(
        "SLO",
        f"{percent(slo['attainment'], 2)} within {number(slo['rt_max_ms'], 0)} ms ({percent(slo['target'])} asked)",
    )
    for name in ("p50", "p95", "p99", "max"):
        table.add_row(f"Latency {name}", milliseconds(latency[name]))
    return page(table, _bill(data["bill_usd"]))


def _bill(bill: Mapping[str, float]) -> RenderableType:
    table = columns("bill", "$")
    for market in MARKETS:
        if bill.get(market):
            table.add_row(market_name(market), usd(bill[market]))
    table.add_row("total", usd(bill["total"]))
    return table
