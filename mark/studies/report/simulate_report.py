"""One simulated policy, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.next_day_report import promise_sentences, with_next_day
from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.takeaway import (
    bill_parts,
    footnotes,
    forecasters,
    headline,
    notes,
    takeaway,
    verdict_marked,
)
from mark.studies.report.words import count, dollars, exact_percent, milliseconds, number, per_month, percent, usd

if TYPE_CHECKING:
    from mark.planning.next_day import NextDay
    from mark.simulation.result import SimulationResult


def simulate_report(
    result: SimulationResult, next_day: NextDay | None = None, more: Mapping[str, Any] | None = None
) -> Report:
    """Return one policy, line by line; `more` are further keys of the JSON."""
    results = {result.policy: result}
    title = f"policy {result.policy}" + (f", forecasts by {forecasters(result)}" if result.predictor else "")
    return Report(
        with_next_day({**result.as_json(), **(more or {})}, next_day),
        headline(result),
        [Marked(title), DataTable(("", "", ""), [(name, *said) for name, said in _facts(result).items()])],
        [*takeaway(results), *promise_sentences(results, {result.policy: next_day})],
        [*footnotes(results), *notes(results)],
        read=result.trace.read,
    )


def _facts(result: SimulationResult) -> dict[str, tuple[str | Marked, str]]:
    requests, fleet, speed = result.requests, result.fleet, result.speed
    times, slo, called = result.latency_ms, result.slo_result, result.functions
    month = per_month(result.bill.total, result.trace.duration_s)
    facts: dict[str, tuple[str | Marked, str]] = {}
    facts["Bill"] = (
        usd(result.bill.total),
        f"{usd(result.usd_per_million)} per million {result.unit.name}; {dollars(month)} a month at this pace",
    )
    for part, (amount,) in bill_parts(result).items():
        facts[f"  {part}"] = (usd(amount), percent(amount / result.bill.total) + " of the bill")
    facts["SLO"] = (
        verdict_marked(result),
        f"{percent(slo.attainment, 2)} within {number(result.slo.rt_max_s * 1e3, 0)} ms "
        f"({exact_percent(result.slo.attainment)} asked); worst minute {percent(slo.worst_minute_attainment)}, "
        f"{slo.minutes_below_target:,} min below",
    )
    facts["Latency"] = (
        f"{milliseconds(times.p50)} ms",
        f"median; p98 {milliseconds(times.p98)}, p99 {milliseconds(times.p99)}, "
        f"p99.9 {milliseconds(times.p999)}, slowest {milliseconds(times.max)} ms",
    )
    total = requests.total or 1
    facts["Answered by"] = (
        count(requests.total) + ("" if result.unit.is_requests else " requests"),
        f"instances {percent(requests.instances / total)}, functions {percent(requests.functions / total)}, "
        f"none {percent(requests.rejected / total)}"
        if requests.total
        else "no requests",
    )
    if called.calls or called.pings:
        cold = f", {percent(called.cold_share, 2)} of them with a cold start" if called.calls else ""
        facts["Functions"] = (
            count(called.calls),
            f"calls{cold}; {count(called.pings)} pings, "
            f"{count(called.throttled)} throttled, {count(called.billed_gb_s)} GB-s billed",
        )
    hours = ", ".join(f"{offer} {h:,.1f} h" for offer, h in sorted(fleet.instance_hours.items()) if h > 0.0)
    ended = f"{fleet.launched:,} launched, {fleet.terminated:,} ended, {fleet.interrupted:,} interrupted"
    facts["Fleet"] = (f"peak {fleet.peak_instances}", f"{ended}; {hours}" if hours else ended)
    if result.bound_usd is not None:
        regret = f"none: {result.regret_reason}" if result.regret is None else f"{number(result.regret)} x the bound"
        facts["Bound"] = (usd(result.bound_usd), f"no policy keeps the promise for less; regret {regret}")
    facts["Speed"] = (
        f"{speed.wall_s:.2f} s",
        f"{count(speed.requests_per_wall_s)} requests/s simulated; of which kernel {speed.kernel_s:.2f}, planner "
        f"{speed.planner_s:.2f}, predictor {speed.predictor_s:.2f} s; {speed.peak_rss_mb:,.0f} MB",
    )
    return facts
