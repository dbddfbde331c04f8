"""Facts about a trace, and the offers of a catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mark.domain.offer import Catalog
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import grouped, percent


def trace_report(info: Mapping[str, Any]) -> Report:
    """Return the facts of `mark.traffic.traces` about a trace, one a line."""
    facts = DataTable(("", ""), [(key, _fact(value)) for key, value in info.items() if key != "read"])
    return Report({"schema": 1, **info}, parts=[facts], read=info["read"])


def catalogs_report(catalogs: Sequence[Catalog]) -> Report:
    rows = [(one.name, one.region, one.priced_on, len(one.offers)) for one in catalogs]
    keys = ("name", "region", "priced_on", "offers")
    heads = ("catalogue", ("region", str), ("prices of", str), ("offers", str))
    return Report(
        {"schema": 1, "catalogs": [dict(zip(keys, row, strict=True)) for row in rows]}, parts=[DataTable(heads, rows)]
    )


_OFFER_HEADS = (
    *("offer", ("$/h", "{:.4f}".format), ("vCPU", "{:g}".format), ("GiB", "{:g}".format), ("GPUs", str)),
    *(("boot s", str), ("interr./month", str), ""),
)
_FUNCTION_HEADS = (
    *("function", ("$ per GB-second", str), ("$ per million calls", "{:.2f}".format)),
    *(("billing step ms", "{:g}".format), ("environments", grouped)),
)


def catalog_report(catalog: Catalog) -> Report:
    """Return the offers, by price within an instance's market."""
    offers = [
        (
            *(offer.name, offer.usd_per_hour, offer.vcpu, offer.memory_gib, offer.gpus or ""),
            f"{offer.boot.mean_s:.0f}/{offer.boot.p95_s:.0f}",
            percent(_lost_per_month(offer.interruptions_per_hour)) if offer.interruptions_per_hour else "",
            "retired" if offer.retired else "",
        )
        for offer in sorted(catalog.offers, key=lambda o: (str(o.market), o.usd_per_hour, o.name))
    ]
    of_any_size = [one for one in (catalog.any_function, catalog.any_arm64_function) if one is not None]
    functions = [
        (
            f"{one.name.partition(':')[0]}, up to {one.memory_mb} MB" if one in of_any_size else one.name,
            f"{one.usd_per_gb_second:.10f}".rstrip("0"),
            *(one.usd_per_million_requests, one.billing_step_ms, one.concurrency),
        )
        for one in (*catalog.functions, *of_any_size)
    ]
    priced = "".join(f", {said}" for said in (catalog.region, catalog.priced_on) if said)
    extras = "bills" if catalog.bills_extras else "leaves out"
    return Report(
        {"schema": 1, **asdict(catalog)},
        f"{catalog.name}: {len(catalog.offers)} offers, prices in US dollars{priced}",
        [DataTable(_OFFER_HEADS, offers), *([DataTable(_FUNCTION_HEADS, functions)] if functions else [])],
        notes=[
            f"{extras} balancer, disks, public addresses and moved data",
            "boot: mean/p95 from request to ready",
        ],
    )


def _lost_per_month(per_hour: float) -> float:
    """Return the chance that one spot instance is taken back within 730 h."""
    return -math.expm1(-per_hour * 730.0)


def _fact(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return "\n".join(_fact(v) for v in value) if value else "none"
    return str(value)
