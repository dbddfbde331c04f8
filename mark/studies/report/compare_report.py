"""Policies side by side: on the terminal, and as a page with figures and decisions.

Every text from outside is escaped (`_html`) or packed as JSON, which the page's script inserts as text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mark.planning.policies.alternatives import KEPT, NONE
from mark.studies.report import plots
from mark.studies.report.attribution import attribution_parts
from mark.studies.report.explain import believed_words, choices_table, saved_words
from mark.studies.report.htmlpage import asset, html_of, packed
from mark.studies.report.next_day_report import next_day_row, promise_sentences
from mark.studies.report.promise_help_report import judged_by, outlook_parts
from mark.studies.report.report import DataTable, Head, Marked, Markup, Part, Plot, Report
from mark.studies.report.takeaway import (
    at_a_glance,
    best,
    bill_parts,
    footnotes,
    forecasters,
    headline,
    listed,
    next_steps,
    notes,
    overflow_share,
    reference,
    reference_note,
    row_name,
    saves,
    share_marked,
    spot_words,
    takeaway,
    verdict,
)
from mark.studies.report.words import (
    dollars,
    duration,
    exact_percent,
    grouped,
    latency,
    milliseconds,
    number,
    per_month,
    percent,
    percent_2,
    usd,
)

if TYPE_CHECKING:
    from mark.domain.load_unit import LoadUnit
    from mark.planning.next_day import NextDay
    from mark.planning.policies.alternatives import Weighed
    from mark.simulation.result import SimulationResult
    from mark.studies.attribution import Attribution
    from mark.studies.promise_outlook import RunOutlook
    from mark.studies.report.sensitivity import Variation

MOST_DECISIONS = 1000
MOST_CHOICES = 6  # alternatives shown beside a decision

_MOST_IN_A_ROW = 7  # cards; more are split into two rows
_LATENCY_LEAD = "Share of answers slower than a time; left of the dashed line is in time. Both axes are logarithmic."


def compare_report(
    results: Mapping[str, SimulationResult],
    attribution: Mapping[str, Attribution] | None = None,
    outlook: RunOutlook | None = None,
    next_days: Mapping[str, NextDay | None] = MappingProxyType({}),
    *,
    spot: SimulationResult | None = None,
    no_spot: SimulationResult | None = None,
    data: Mapping[str, Any] = MappingProxyType({}),
) -> Report:
    """Return the report: policies side by side, the bill by market, the dollars above the bound, and sentences.

    `attribution` covers some of the policies; `outlook` says how likely the promise is, and `next_days` has each
    policy's forecast of the next day. `spot` is a run of `mark` that may buy spot, unlike those in `results`. `data` is
    the JSON.
    """
    first = next(iter(results.values()))
    half = -(-len(results) // 2)
    in_a_row = len(results) if len(results) <= _MOST_IN_A_ROW else half
    cards = "".join(_card(name, results) for name in results)
    bills = Plot("Bill over time", partial(plots.bills_figure, results), "Dollars spent since the start, by policy.")
    more = [] if spot is None else [spot_words(spot, results)]
    return Report(
        data,
        headline(first),
        [
            Markup(_at_a_glance(results, next_days, spot, no_spot)),
            Markup(f"<section class=cards style='--half:{half};--all:{in_a_row}'>{cards}</section>"),
            _outcomes(results),
            Marked("The bill by market ($)", "strong"),
            _markets(results),
            *attribution_parts(attribution or {}),
            *([] if outlook is None else outlook_parts(outlook.outlook, judged_by(outlook))),
            *([bills] if len(results) > 1 else []),
            Plot("Latency", partial(plots.latency_figure, results), _LATENCY_LEAD),
        ],
        [
            *takeaway(results, spot=spot, no_spot=no_spot),
            *promise_sentences(results, next_days, outlook=outlook is not None),
            *more,
        ],
        notes(results),
        read=first.trace.read,
        subject=first.service,
    )


def compare_page(report: Report, results: Mapping[str, SimulationResult], rows: Sequence[Variation] = ()) -> Report:
    """Add the parts of the page: each policy's figures and decisions, and the runs under worse assumptions."""
    of_policies = {
        "policies": [
            {
                "name": name,
                "load": plots.load_figure(result),
                "fleet": plots.fleet_figure(result),
                "bill": plots.bill_figure(result),
                "decisions": [[d.at_s, d.text, d.outcome, d.weighed] for d in result.decisions[:MOST_DECISIONS]],
                "decided": len(result.decisions),
                "weighed": [_weighed(weighed, result.unit) for weighed in result.weighed],
            }
            for name, result in results.items()
        ],
    }
    first = next(iter(results.values()))
    promise = f"{exact_percent(first.slo.attainment)} within {number(first.slo.rt_max_s * 1e3, 0)} ms"
    facts = f"{report.headline}; promise: {promise}"
    shown = packed("data", json.dumps(of_policies, separators=(",", ":"), allow_nan=False))
    parts: list[Part] = [*report.parts, Markup(_policy_part(results) + shown)]
    if rows:
        parts.append(sensitivity_table(rows))
    return replace(report, headline=f"{facts}; seed {first.seed}", parts=parts, script=asset("compare.js"))


def render_report(
    results: Mapping[str, SimulationResult],
    sensitivity: Sequence[Variation] = (),
    attribution: Mapping[str, Attribution] | None = None,
    outlook: RunOutlook | None = None,
    next_days: Mapping[str, NextDay | None] = MappingProxyType({}),
) -> str:
    """Return the whole page."""
    return html_of(compare_page(compare_report(results, attribution, outlook, next_days), results, sensitivity))


def sensitivity_table(rows: Sequence[Variation]) -> DataTable:
    """Return every variation of every policy: bill, its change, SLO; and the policies that change their order."""
    return DataTable(
        ("scenario", "policy", ("bill", usd), ("change", str), ("SLO", str), "order"),
        [
            (
                *(row.label if place == 0 else "", one.policy, one.bill_usd),
                "-" if one.change is None else f"{100.0 * one.change:+z.1f} %",
                share_marked(one.attainment, one.verdict),
                (_order_words(row.overtakes) or "as before") if place == 0 and len(row.outcomes) > 1 else "",
            )
            for row in rows
            for place, one in enumerate(row.outcomes)
        ],
        "If these assumptions are wrong",
        "Each line is the whole run again with one belief made worse: bill, its change, and the share in time. Order: "
        "policies that keep the promise first, the cheapest first.",
    )


def _order_words(overtakes: Sequence[tuple[Sequence[str], str]]) -> str:
    return ", ".join(f"{listed(ahead)} now ahead of {behind}" for ahead, behind in overtakes)


def _at_a_glance(
    results: Mapping[str, SimulationResult],
    next_days: Mapping[str, NextDay | None],
    spot: SimulationResult | None,
    no_spot: SimulationResult | None,
) -> str:
    """Return a budget's numbers: the bill as is, the best, the saving, the prices' date, the next day; next steps."""
    rows = [*at_a_glance(results, no_spot), *next_day_row(results, next_days)]
    if not rows:
        return ""
    facts = "".join(f"<div><dt>{_html(head)}</dt><dd>{_html(words)}</dd></div>" for head, words in rows)
    steps = "".join(f"<li>{_words(step)}</li>" for step in next_steps(results, spot))
    return f"<section class=glance><dl>{facts}</dl><h2>Next steps</h2><ol>{steps}</ol></section>"


def _words(text: str) -> str:
    """Return text with `code` in backquotes as HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _html(text))


def _card(name: str, results: Mapping[str, SimulationResult]) -> str:
    result = results[name]
    month = per_month(result.bill.total, result.trace.duration_s)
    facts = [
        ("in time", percent(result.slo_result.attainment, 2)),
        ("p99", f"{milliseconds(result.latency_ms.p99)} ms"),
        ("by functions", percent(overflow_share(result))),
        ("regret", number(result.regret)),
    ]
    return (
        f'<article class="card{" best" if name == best(results) else ""}">'
        f"<h2>{_html(row_name(name, result))} {_badge(result)}</h2>"
        f"<p class=bill>{usd(result.bill.total)}</p><p class=month>{dollars(month)} a month at this pace</p>"
        f"{f'<p class=month>forecasts by {_html(forecasters(result))}</p>' if result.predictor else ''}"
        f"<dl>{''.join(f'<div><dt>{label}</dt><dd>{value}</dd></div>' for label, value in facts)}</dl></article>"
    )


_HEADS: tuple[Head, ...] = (
    *(
        "policy",
        ("bill", usd),
        ("saves", str),
        ("SLO %", str),
        ("p50", latency),
        ("p98", latency),
        ("p99 ms", latency),
    ),
    *(("by\nLambda", percent), ("regret", number)),
)


def _outcomes(results: Mapping[str, SimulationResult]) -> DataTable:
    """Return the table; a page also has the columns that do not fit a terminal, except those that are all zero."""
    against, winner = reference(results), best(results)
    bills = bill_parts(*results.values())
    rejected = any(result.requests.rejected for result in results.values())
    interrupted = any(result.fleet.interrupted for result in results.values())
    called = any(result.functions.calls for result in results.values())
    per_million = f"$ per million {next(iter(results.values())).unit.named}".rstrip()
    heads: list[Head] = [*_HEADS, *((part, usd) for part in bills), (per_million, usd)]
    heads += [("worst minute", percent), *([("cold starts", percent_2)] if called else []), ("peak fleet", str)]
    heads += [*([("rejected", grouped)] if rejected else []), *([("inter-rupted", str)] if interrupted else [])]
    rows = []
    for place, (name, result) in enumerate(results.items()):
        slo, times, calls = result.slo_result, result.latency_ms, result.functions
        hint = f"{calls.pings:,} pings, {calls.throttled:,} throttled, {calls.billed_gb_s:,.0f} GB-s billed"
        saved = "-" if against is None else "ref." if name == against else saves(result, results[against])
        rows.append(
            [
                Marked(row_name(name, result), "best" if name == winner else "strong" if name == "mark" else ""),
                *(result.bill.total, saved, share_marked(slo.attainment, verdict(result))),
                *(times.p50, times.p98, times.p99, overflow_share(result)),
                Marked(number(result.regret), hint=result.regret_reason),
                *(amounts[place] for amounts in bills.values()),
                *(result.usd_per_million, slo.worst_minute_attainment),
                *([Marked(percent(calls.cold_share, 2), hint=hint)] if called else []),
                result.fleet.peak_instances,
                *([result.requests.rejected] if rejected else []),
                *([result.fleet.interrupted] if interrupted else []),
            ]
        )
    lines = [*reference_note(results), *footnotes(results)]
    return DataTable(heads, rows, "Policies side by side", notes=lines, printed=len(_HEADS))


def _markets(results: Mapping[str, SimulationResult]) -> DataTable:
    """Return the bills by market in which money was spent, without dollar signs so that eight columns fit."""
    small = min(result.bill.total for result in results.values()) < 1.0

    def amount(dollars: float) -> str:
        return usd(dollars).removeprefix("$") if small else number(dollars)

    bills = bill_parts(*results.values())
    rows = [
        [row_name(name, one), *(amounts[place] for amounts in bills.values()), one.bill.total, one.fleet.peak_instances]
        for place, (name, one) in enumerate(results.items())
    ]
    heads = [(part.replace(", ", ",\n"), amount) for part in bills]
    return DataTable(("policy", *heads, ("total", amount), ("peak\nfleet", str)), rows)


def _policy_part(results: Mapping[str, SimulationResult]) -> str:
    """Return the figures of one policy at a time, chosen by buttons; the script fills them in."""
    # The recommended policy is shown first: the script starts with the selected button.
    start = list(results).index(best(results) or next(iter(results)))
    buttons = "".join(
        f"<button type=button role=tab data-policy={i} aria-selected={'true' if i == start else 'false'}>"
        f"{_html(name)}</button>"
        for i, name in enumerate(results)
    )
    tabs = (
        f"<nav class=tabs role=tablist>{buttons}</nav>"
        if len(results) > 1
        else f"<nav class=tabs hidden>{buttons}</nav>"
    )
    return (
        f"<section><h2>One policy in detail</h2>{tabs}"
        "<h3>Load against capacity</h3><div class=plot data-own=load></div>"
        "<h3>Fleet by offer</h3><div class=plot data-own=fleet></div>"
        "<h3>Bill by market</h3><div class=plot data-own=bill></div>"
        "<h3>Decisions and why</h3><p class=tools><input type=search id=filter "
        'placeholder="filter: launch, spot, forecast ..." aria-label="filter decisions"><span id=shown></span></p>'
        "<div class=scroll><table id=decisions><thead><tr><th>time</th><th>decision</th><th>saves</th><th>outcome</th>"
        "</tr></thead><tbody></tbody></table></div>"
        "<p class=cut id=cut></p>"
        "<p class=lead>Saves: expected dollars an hour, over the minutes that a plan looks ahead, against leaving the "
        "fleet as it is. Open a line to see what was believed and the cost of the alternatives.</p></section>"
    )


def _weighed(weighed: Weighed, unit: LoadUnit) -> list[Any]:
    """Return the alternatives of a decision for the page's script: words, saving, and a table's heads and rows."""
    others = weighed.alternatives
    near = [one for place, one in enumerate(others, 1) if place <= MOST_CHOICES or one.label in (KEPT, NONE)]
    table = choices_table(weighed, near, unit)
    heads = [(head if isinstance(head, str) else head[0]).replace("\n", " ") for head in table.heads]
    words = f"{believed_words(weighed.belief, unit)} {saved_words(weighed)}"
    words += f" Averaged over the next {duration(weighed.over_s)}; overflow means {weighed.overflow}."
    kept = weighed.saved_against_kept_usd_per_hour
    rows = [[cell.words for cell in row] for row in table.cells()]
    return [words, "" if kept is None else f"{usd(kept)}/h", heads, rows]


def _badge(result: SimulationResult) -> str:
    said = verdict(result)
    return f"<span class={said.lower()}>{said}</span>" if said else ""


def _html(text: str) -> str:
    return html.escape(text, quote=True)
