"""The testbed on a terminal: its parts and their cost, and the results of a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mark.studies.report.report import DataTable, Marked, Part, Report
from mark.studies.report.takeaway import MARKETS, market_name
from mark.studies.report.words import milliseconds, number, number_0, percent, usd

# A client that sends later than this share of RT_max causes misses itself.
_LATE_SHARE = 0.05


def status_report(said: Mapping[str, Any]) -> Report:
    """Return all addresses, the fleet, and the bill so far."""
    doors = [("AWS endpoint", said["endpoint"]), ("Site file", said["site"])]
    stages: Mapping[str, Sequence[str]] = said.get("stages", {})
    inner = {service for services in stages.values() for service in services}
    doors += [(f"{name}: send requests to", url) for name, url in said["services"].items() if name not in inner]
    for name, url in said.get("pipelines", {}).items():
        doors.append((f"{name}: send queries to", url or "nothing yet: its stages start"))
        doors += [(f"  its stage {service}", said["services"][service]) for service in stages.get(name, ())]
    doors += [("Live page", controller["url"] or "its controller starts") for controller in said["controllers"]]
    if said["time_scale"] != 1.0:
        scale = f"{said['time_scale']:g} times as fast as yours, as prices and boots are"
        doors.append(("Controller's clock", scale))
    # Stages stand below each other, in the order of their pipeline.
    order = [*(name for name in said["services"] if name not in inner), *(s for row in stages.values() for s in row)]
    place = {name: n for n, name in enumerate(order)}
    fleet = [
        (
            one["id"],
            one["offer"],
            one["service"],
            one["state"] + (", told to go" if one["doomed"] else ""),
            one["address"],
        )
        for one in sorted(said["fleet"], key=lambda one: place.get(one["service"], len(place)))
    ]
    heads = ("instance", "offer", ("service", str), ("state", str), ("address", str))
    return Report(
        said,
        parts=[
            DataTable(("", ""), doors),
            DataTable(heads, fleet) if fleet else Marked("no instance yet"),
            *([Marked(f"{number(said['crashed'], 0)} crashed so far")] if said.get("crashed") else []),
            _bill(said["bill_usd"]),
            *(Marked(f"must not be: {problem}", "missed") for problem in said["problems"]),
        ],
    )


def load_report(data: Mapping[str, Any]) -> Report:
    """Return the results of a load's requests."""
    requests, slo, times = data["requests"], data["slo"], data["latency_ms"]
    rows = [("Sent", _sent(data["trace"])), ("Requests", number(requests["total"], 0))]
    for answered_by in ("instances", "functions", "rejected"):
        share = f" ({percent(requests[answered_by] / requests['total'])})" if requests["total"] else ""
        rows.append((f"  {answered_by}", f"{number(requests[answered_by], 0)}{share}"))
        if answered_by == "instances" and (parity := data.get("parity")) is not None:
            share = f" ({percent(parity['degraded_share'], 2)})"
            rows.append(("    of these reconstructed", f"{number(parity['reconstructed'], 0)}{share}"))
    asked = f"{number(slo['rt_max_ms'], 0)} ms ({percent(slo['target'])} asked)"
    rows.append(("SLO", f"{percent(slo['attainment'], 2)} within {asked}"))
    rows += [(f"Latency {name}", milliseconds(times[name])) for name in ("p50", "p95", "p99", "max")]
    notes = [
        "Latency is the client's, from when a request was due. The live page counts at gateway and instances, "
        "from a request's arrival there, of all loads since the start.",
        *_why(data),
    ]
    stages = [_stages(data["stages"])] if "stages" in data else []
    parts: list[Part] = [DataTable(("", ""), rows), *stages, _bill(data["bill_usd"]), *map(Marked, notes)]
    return Report(data, parts=parts, read=data["trace"]["read"])


def _stages(stages: Sequence[Mapping[str, Any]]) -> DataTable:
    """Return where the calls of each stage were answered; the last column counts calls not answered in time."""
    heads = (
        *("stage", ("queries", number_0), ("on instances", number_0), ("by function", number_0), ("$", usd)),
        ("without answer", number_0),
    )
    rows = [
        (
            *(one["stage"], one["queries"], one["instances"], one["functions"], one["function_usd"]),
            one["queries"] - one["instances"] - one["functions"],
        )
        for one in stages
    ]
    return DataTable(heads, rows)


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


def _bill(bill: Mapping[str, float]) -> DataTable:
    rows = [(market_name(market), bill[market]) for market in MARKETS if bill.get(market)]
    return DataTable(("bill", ("$", usd)), [*rows, ("total", bill["total"])])
