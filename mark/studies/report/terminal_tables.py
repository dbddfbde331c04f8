"""Tables for the terminal. Everything fits 80 columns; rich adds colour on a terminal.

Text from outside (names, notes) goes through `Text`, never through rich's markup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mark.studies.report.attribution import attribution_table
from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.next_day_report import next_day_sentences
from mark.studies.report.promise_help_report import judged_by, outlook_parts, stated_words
from mark.studies.report.takeaway import (
    MARKETS,
    best,
    footnotes,
    forecasters,
    market_name,
    notes,
    overflow_share,
    reference,
    row_name,
    saves,
    spot_words,
    takeaway,
    verdict,
)
from mark.studies.report.words import (
    count,
    dollars,
    duration,
    latency,
    milliseconds,
    number,
    per_month,
    percent,
    rate,
    usd,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from mark.domain.offer import Catalog
    from mark.planning.next_day import NextDay
    from mark.simulation.result import SimulationResult
    from mark.studies.attribution import Attribution
    from mark.studies.promise_outlook import RunOutlook
    from mark.studies.report.sensitivity import Variation


def compare_table(
    results: Mapping[str, SimulationResult],
    attribution: Mapping[str, Attribution] | None = None,
    spot: SimulationResult | None = None,
    outlook: RunOutlook | None = None,
    next_days: Mapping[str, NextDay | None] = MappingProxyType({}),
) -> RenderableType:
    """Return policies side by side, then the bill by market, the dollars above the bound, and the words.

    `spot` is the run of `mark` with spot, which the policies may not buy; `outlook` has changes that would have helped
    to keep the promise; `next_days` has the cost of each policy's next day.
    """
    first = next(iter(results.values()))
    return page(
        *what_was_read(first.trace.read),
        _headline(first),
        _outcomes(results),
        *small_print(footnotes(results)),
        text("The bill by market ($)", "bold"),
        _markets(results),
        *attribution_table(attribution or {}),
        *sentences(stated_words(results)),
        *([] if outlook is None else outlook_parts(outlook.outlook, judged_by(outlook.from_s))),
        *sentences(
            [
                *takeaway(results),
                *next_day_sentences(results, next_days),
                *([] if spot is None else [spot_words(spot, results)]),
            ]
        ),
        *small_print(notes(results)),
    )


def simulate_table(result: SimulationResult, next_day: NextDay | None = None) -> RenderableType:
    """Return one policy, line by line."""
    results = {result.policy: result}
    requests, fleet, speed = result.requests, result.fleet, result.speed
    times = result.latency_ms
    table = columns("", "", "")
    month = per_month(result.bill.total, result.trace.duration_s)
    table.add_row(
        "Bill",
        usd(result.bill.total),
        f"{usd(result.usd_per_million)} per million {result.unit.name}; {dollars(month)} a month at this pace",
    )
    for market in MARKETS:
        if amount := getattr(result.bill, market):
            table.add_row(f"  {market_name(market)}", usd(amount), percent(amount / result.bill.total) + " of the bill")
    slo = result.slo_result
    table.add_row(
        "SLO",
        _verdict(result),
        f"{percent(slo.attainment, 2)} within {number(result.slo.rt_max_s * 1e3, 0)} ms "
        f"({percent(result.slo.attainment)} asked); worst minute {percent(slo.worst_minute_attainment)}, "
        f"{slo.minutes_below_target:,} min below",
    )
    table.add_row(
        "Latency",
        f"{milliseconds(times.p50)} ms",
        f"median; p98 {milliseconds(times.p98)}, p99 {milliseconds(times.p99)}, "
        f"p99.9 {milliseconds(times.p999)}, slowest {milliseconds(times.max)} ms",
    )
    total = requests.total or 1
    table.add_row(
        "Answered by",
        count(requests.total) + ("" if result.unit.is_requests else " requests"),
        f"instances {percent(requests.instances / total)}, functions {percent(requests.functions / total)}, "
        f"none {percent(requests.rejected / total)}"
        if requests.total
        else "no requests",
    )
    called = result.functions
    if called.calls or called.pings:
        table.add_row(
            "Functions",
            count(called.calls),
            f"calls, {percent(called.cold_share, 2)} of them with a cold start; {count(called.pings)} pings, "
            f"{count(called.throttled)} throttled, {count(called.billed_gb_s)} GB-s billed",
        )
    hours = ", ".join(f"{offer} {h:,.1f} h" for offer, h in sorted(fleet.instance_hours.items()) if h > 0.0)
    table.add_row(
        "Fleet",
        f"peak {fleet.peak_instances}",
        f"{fleet.launched} launched, {fleet.terminated} ended, {fleet.interrupted} interrupted"
        + (f"; {hours}" if hours else ""),
    )
    if result.bound_usd is not None:
        regret = (
            f"{number(result.regret)} x the bound" if result.regret is not None else f"none: {result.regret_reason}"
        )
        table.add_row("Bound", usd(result.bound_usd), f"no policy keeps the promise for less; regret {regret}")
    table.add_row(
        "Speed",
        f"{speed.wall_s:.2f} s",
        f"{count(speed.requests_per_wall_s)} requests/s simulated; kernel {speed.kernel_s:.2f}, planner "
        f"{speed.planner_s:.2f}, predictor {speed.predictor_s:.2f} s; {speed.peak_rss_mb:,.0f} MB",
    )
    title = f"policy {result.policy}" + (f", forecasts by {forecasters(result)}" if result.predictor else "")
    return page(
        *what_was_read(result.trace.read),
        _headline(result),
        text(title),
        table,
        *sentences(
            [*stated_words(results), *takeaway(results), *next_day_sentences(results, {result.policy: next_day})]
        ),
        *small_print([*footnotes(results), *notes(results)]),
    )


def sensitivity_table(rows: Sequence[Variation]) -> RenderableType:
    """Return every variation of every policy: bill, its change, SLO; and whether the order of the policies holds."""
    table = columns("scenario", "policy", "bill", "change", "SLO", "order holds")
    for row in rows:
        for place, outcome in enumerate(row.outcomes):
            table.add_row(
                row.label if place == 0 else "",
                text(outcome.policy),
                usd(outcome.bill_usd),
                f"{outcome.change:+.1%}" if outcome.change is not None else "-",
                _slo(outcome.attainment, {True: "ok", False: "MISSED", None: ""}[outcome.kept]),
                ("yes" if row.order_holds else "no") if place == 0 and len(row.outcomes) > 1 else "",
            )
    return page(text("If these assumptions are wrong: each line is a run of its own", "bold"), table)


def trace_table(info: Mapping[str, Any]) -> RenderableType:
    """Return the facts of `mark.traffic.traces` about a trace, one a line."""
    table = columns("", "")
    for key, value in info.items():
        if key != "read":
            table.add_row(text(key), text(_fact(value)))
    return page(*what_was_read(info["read"]), table)


def catalogs_table(catalogs: Sequence[Catalog]) -> RenderableType:
    table = columns("catalogue", "region", "prices of", "offers")
    for catalog in catalogs:
        table.add_row(text(catalog.name), text(catalog.region), text(catalog.priced_on), str(len(catalog.offers)))
    return page(table)


def catalog_table(catalog: Catalog) -> RenderableType:
    """Return the offers, by price within an instance's market."""
    table = columns("offer", "$/h", "vCPU", "GiB", "GPUs", "boot s", "interr./month", "")
    for offer in sorted(catalog.offers, key=lambda o: (str(o.market), o.usd_per_hour, o.name)):
        table.add_row(
            text(offer.name),
            f"{offer.usd_per_hour:.4f}",
            f"{offer.vcpu:g}",
            f"{offer.memory_gib:g}",
            str(offer.gpus) if offer.gpus else "",
            f"{offer.boot.mean_s:.0f}/{offer.boot.p95_s:.0f}",
            percent(_lost_per_month(offer.interruptions_per_hour)) if offer.interruptions_per_hour else "",
            "retired" if offer.retired else "",
        )
    functions = columns("function", "$ per GB-second", "$ per million calls", "billing step ms", "environments")
    of_any_size = [one for one in (catalog.any_function, catalog.any_arm64_function) if one is not None]
    sold = [*catalog.functions, *of_any_size]
    for function in sold:
        kind = function.name.partition(":")[0]
        functions.add_row(
            f"{kind}, up to {function.memory_mb} MB" if function in of_any_size else function.name,
            f"{function.usd_per_gb_second:.10f}".rstrip("0"),
            f"{function.usd_per_million_requests:.2f}",
            f"{function.billing_step_ms:g}",
            f"{function.concurrency:,}",
        )
    priced = "".join(f", {said}" for said in (catalog.region, catalog.priced_on) if said)
    extras = "bills" if catalog.bills_extras else "leaves out"
    return page(
        text(f"{catalog.name}: {len(catalog.offers)} offers, prices in US dollars{priced}", "bold"),
        table,
        *([functions] if sold else []),
        *small_print(
            [f"{extras} balancer, disks, public addresses and moved data", "boot: mean/p95 from request to ready"]
        ),
    )


def _lost_per_month(per_hour: float) -> float:
    """Return the chance that one spot instance is taken back within 730 h."""
    return -math.expm1(-per_hour * 730.0)


def _headline(result: SimulationResult) -> Text:
    trace, unit = result.trace, result.unit
    counted = trace.requests * unit.size
    mean = f", {rate(counted / trace.duration_s)} a second" if trace.duration_s > 0.0 else ""
    of = "" if unit.is_requests else f" ({count(trace.requests)} requests of {unit.size:.4g} on average)"
    return text(
        f"{result.service} on {trace.name}: {count(counted)} {unit.name}{of} in {duration(trace.duration_s)}{mean}"
        f"{f'; prices of {result.priced}' if result.priced else ''}",
        "bold",
    )


def _outcomes(results: Mapping[str, SimulationResult]) -> Table:
    against, winner = reference(results), best(results)
    table = columns("policy", "bill", "saves", "SLO %", "p50", "p98", "p99 ms", "by\nLambda", "regret")
    for name, result in results.items():
        table.add_row(
            text(row_name(name, result), "bold green" if name == winner else "bold" if name == "mark" else ""),
            usd(result.bill.total),
            "-" if against is None else "ref." if name == against else saves(result, results[against]),
            _slo(result.slo_result.attainment, verdict(result)),
            latency(result.latency_ms.p50),
            latency(result.latency_ms.p98),
            latency(result.latency_ms.p99),
            percent(overflow_share(result)),
            number(result.regret),
        )
    return table


def _markets(results: Mapping[str, SimulationResult]) -> Table:
    """Return the markets in which money was spent, without the dollar sign so that eight columns fit."""
    small = min(result.bill.total for result in results.values()) < 1.0

    def amount(dollars: float) -> str:
        return usd(dollars).removeprefix("$") if small else number(dollars)

    used = [m for m in MARKETS if any(getattr(result.bill, m) for result in results.values())]
    table = columns("policy", *(market_name(m) for m in used), "total", "peak\nfleet")
    for name, result in results.items():
        amounts = (amount(getattr(result.bill, m)) for m in used)
        table.add_row(
            text(row_name(name, result)), *amounts, amount(result.bill.total), str(result.fleet.peak_instances)
        )
    return table


_STYLES = {"ok": "green", "dips": "yellow", "MISSED": "bold red", "": ""}


def _slo(attainment: float | None, said: str) -> Text:
    if attainment is None:
        return text("-")
    return text(f"{percent(attainment, 2).removesuffix(' %')} {said}", _STYLES[said])


def _verdict(result: SimulationResult) -> Text:
    said = verdict(result)
    return text(said or "-", _STYLES[said])


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
