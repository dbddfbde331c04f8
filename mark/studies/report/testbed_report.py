"""The testbed on a terminal: its parts and their cost, and the results of a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, text, what_was_read
from mark.studies.report.takeaway import MARKETS, market_name
from mark.studies.report.words import milliseconds, number, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType

# A client that sends later than this share of RT_max causes misses itself.
_LATE_SHARE = 0.05


def status_page(said: Mapping[str, Any]) -> RenderableType:
    """Return all addresses, the fleet, and the bill so far."""
    doors = columns("", "")
    doors.add_row("AWS endpoint", said["endpoint"])
    doors.add_row("Site file", said["site"])
    stages: Mapping[str, Sequence[str]] = said.get("stages", {})
    inner = {service for services in stages.values() for service in services}
    for name, url in said["services"].items():
        if name not in inner:
            doors.add_row(f"{name}: send requests to", url)
    for name, url in said.get("pipelines", {}).items():
        doors.add_row(f"{name}: send queries to", url or "nothing yet: its stages start")
        for service in stages.get(name, ()):
            doors.add_row(f"  its stage {service}", said["services"][service])
    for controller in said["controllers"]:
        doors.add_row("Live page", controller["url"] or "its controller starts")
    if said["time_scale"] != 1.0:
        doors.add_row("Controller's clock", f"{said['time_scale']:g} times as fast as yours, as prices and boots are")
    fleet = columns("instance", "offer", "service", "state", "address")
    # Stages stand below each other, in the order of their pipeline.
    order = [*(name for name in said["services"] if name not in inner), *(s for row in stages.values() for s in row)]
    place = {name: n for n, name in enumerate(order)}
    for one in sorted(said["fleet"], key=lambda one: place.get(one["service"], len(place))):
        state = one["state"] + (", told to go" if one["doomed"] else "")
        fleet.add_row(one["id"], one["offer"], one["service"], state, one["address"])
    return page(
        doors,
        fleet if said["fleet"] else text("no instance yet"),
        *([text(f"{number(said['crashed'], 0)} crashed so far")] if said.get("crashed") else []),
        _bill(said["bill_usd"]),
        *(text(f"must not be: {problem}", "red") for problem in said["problems"]),
    )


def result_page(data: Mapping[str, Any]) -> RenderableType:
    """Return the results of a load's requests."""
    requests, slo, latency = data["requests"], data["slo"], data["latency_ms"]
    table = columns("", "")
    table.add_row("Sent", _sent(data["trace"]))
    table.add_row("Requests", number(requests["total"], 0))
    for answered_by in ("instances", "functions", "rejected"):
        share = f" ({percent(requests[answered_by] / requests['total'])})" if requests["total"] else ""
        table.add_row(f"  {answered_by}", f"{number(requests[answered_by], 0)}{share}")
        if answered_by == "instances" and (parity := data.get("parity")) is not None:
            share = f" ({percent(parity['degraded_share'], 2)})"
            table.add_row("    of these reconstructed", f"{number(parity['reconstructed'], 0)}{share}")
    table.add_row(
        "SLO",
        f"{percent(slo['attainment'], 2)} within {number(slo['rt_max_ms'], 0)} ms ({percent(slo['target'])} asked)",
    )
    for name in ("p50", "p95", "p99", "max"):
        table.add_row(f"Latency {name}", milliseconds(latency[name]))
    notes = [
        "Latency is the client's, from when a request was due. The live page counts at gateway and instances, "
        "from a request's arrival there, of all loads since the start.",
        *_why(data),
    ]
    stages = [_stages(data["stages"])] if "stages" in data else []
    read = what_was_read(data["trace"]["read"])
    return page(*read, table, *stages, _bill(data["bill_usd"]), *map(text, notes))


def _stages(stages: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return where the calls of each stage were answered; the last column counts calls not answered in time."""
    table = columns("stage", "queries", "on instances", "by function", "$", "without answer")
    for one in stages:
        missed = one["queries"] - one["instances"] - one["functions"]
        counts = (one["queries"], one["instances"], one["functions"])
        table.add_row(one["stage"], *(number(n, 0) for n in counts), usd(one["function_usd"]), number(missed, 0))
    return table


def _sent(trace: Mapping[str, Any]) -> str:
    """Return how much of the trace was sent in how long: one time scale is the trace's, the other the reader's."""
    said, scale = f"{number(trace['duration_s'], 0)} s of the trace", trace["time_scale"]
    if scale == 1.0:
        return said
    return f"{said}, in {trace['duration_s'] / scale:,.3g} s (--compress {scale:g}): one request in {scale:g}"


def _why(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons for a missed promise."""
    slo, missed, launched = data["slo"], data["missed"], data["fleet"]["launched"]
    if slo["attainment"] is None or slo["attainment"] >= slo["target"]:
        return
    yield (
        f"Missed: {number(missed['instances'], 0)} answered late by instances, {number(missed['functions'], 0)} late "
        f"by functions (cold ones take longer), {number(missed['rejected'], 0)} not answered."
    )
    if launched:
        yield (
            f"{number(launched, 0)} launched meanwhile: the load was not expected. Until the new instances have "
            "booted, functions answer the rest; `up --history TRACE` announces the load beforehand."
        )
    lag_ms = data["client_lag_ms"]["p99"]
    if lag_ms is not None and lag_ms > _LATE_SHARE * slo["rt_max_ms"]:
        yield f"This computer was too busy: one request in a hundred was sent {milliseconds(lag_ms)} ms late or more."


def _bill(bill: Mapping[str, float]) -> RenderableType:
    table = columns("bill", "$")
    for market in MARKETS:
        if bill.get(market):
            table.add_row(market_name(market), usd(bill[market]))
    table.add_row("total", usd(bill["total"]))
    return table
