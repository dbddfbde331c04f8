"""The report: one self-contained HTML file that needs no network and no server.

Every text from outside is escaped (`_html`) or packed as JSON, which the page's script inserts as text; plotly's
pseudo-HTML is defused in `_plain_names`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mark.domain.function_offer import FunctionCalls
from mark.planning.policies.alternatives import KEPT, NONE
from mark.studies.report import plots
from mark.studies.report.attribution import TITLE, attribution_rows
from mark.studies.report.explain import believed_words, saved_words
from mark.studies.report.htmlpage import asset, packed, packed_plotly, page_script, read_first
from mark.studies.report.next_day_report import next_day_row
from mark.studies.report.promise_help_report import help_words, judged_by, outlook_words
from mark.studies.report.takeaway import (
    MARKETS,
    at_a_glance,
    best,
    footnotes,
    forecasters,
    market_name,
    next_steps,
    notes,
    overflow_share,
    reference,
    row_name,
    saves,
    takeaway,
    verdict,
)
from mark.studies.report.words import count, dollars, duration, milliseconds, number, per_month, percent, rate, usd

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


def render_report(
    results: Mapping[str, SimulationResult],
    sensitivity: Sequence[Variation] = (),
    attribution: Mapping[str, Attribution] | None = None,
    outlook: RunOutlook | None = None,
    next_days: Mapping[str, NextDay | None] = MappingProxyType({}),
) -> str:
    """Return the whole page.

    `results` are by policy name, one or more; `attribution` covers some of them; `outlook` is the promise's, and
    `next_days` has each policy's next day.
    """
    first = next(iter(results.values()))
    trace = first.trace
    counted, unit = trace.requests * first.unit.size, first.unit
    mean = f" ({rate(counted / trace.duration_s)} a second)" if trace.duration_s > 0.0 else ""
    data = {
        "shared": {"bills": plots.bills_figure(results), "latency": plots.latency_figure(results)},
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
    sentences = takeaway(results)
    half = -(-len(results) // 2)
    in_a_row = len(results) if len(results) <= _MOST_IN_A_ROW else half
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>mark: {_html(first.service)} on {_html(trace.name)}</title>",
            f"<style>{asset('page.css')}</style>",
            "</head><body><main>",
            "<header>",
            f"<p class=kicker>mark · {_html(first.service)}</p>",
            f"<h1>{_html(sentences[0])}</h1>",
            *(f"<p>{_html(sentence)}</p>" for sentence in sentences[1:]),
            f"<p class=facts>{read_first(trace.read)}",
            f"{_html(trace.name)}: {count(counted)} {unit.name} in {duration(trace.duration_s)}",
            f"{mean} · promise: {percent(first.slo.attainment)} within {number(first.slo.rt_max_s * 1e3, 0)} ms",
            f"{f' · prices of {_html(first.priced)}' if first.priced else ''} · seed {first.seed}</p>",
            "</header>",
            _at_a_glance(results, next_days),
            _promise(outlook),
            f"<section class=cards style='--half:{half};--all:{in_a_row}'>",
            *(_card(name, results) for name in results),
            "</section>",
            _section("Policies side by side", _outcomes(results)),
            _attribution(attribution or {}),
            _section(
                "Bill over time",
                "<div class=plot data-shared=bills></div>",
                "Dollars spent since the start, by policy.",
            )
            if len(results) > 1
            else "",
            _section(
                "Latency",
                "<div class=plot data-shared=latency></div>",
                "Share of answers slower than a time; left of the dashed line is in time. Both axes are logarithmic.",
            ),
            _policy_part(results),
            _sensitivity(sensitivity),
            _section("Notes", _list(notes(results))) if notes(results) else "",
            "<footer>Simulated by mark. A self-contained file: nothing is loaded from elsewhere.</footer>",
            "</main>",
            packed_plotly(),
            packed("data", _json(data)),
            page_script(asset("page.js")),
            "</body></html>\n",
        ]
    )


def _at_a_glance(results: Mapping[str, SimulationResult], next_days: Mapping[str, NextDay | None]) -> str:
    """Return the answers for a budget: today's bill, tomorrow's, the range, the prices' age, and the next steps."""
    rows = [*at_a_glance(results), *next_day_row(results, next_days)]
    if not rows:
        return ""
    facts = "".join(f"<div><dt>{_html(head)}</dt><dd>{_html(words)}</dd></div>" for head, words in rows)
    steps = "".join(f"<li>{_words(step)}</li>" for step in next_steps(results))
    return f"<section class=glance><dl>{facts}</dl><h2>Next steps</h2><ol>{steps}</ol></section>"


def _promise(found: RunOutlook | None) -> str:
    """Return whether the promise can be kept at its confidence, and otherwise the changes that would help."""
    if found is None:
        return ""
    outlook = found.outlook
    rows = [
        f"<tr><th scope=row>{_html(help_words(one))}</th><td>{percent(one.confidence, 0)}</td>"
        f"<td>{usd(one.usd_per_hour)}</td></tr>"
        for one in ([] if outlook.can_be_had else outlook.helps)
    ]
    table = _grid(["change that would help", "kept with", "$/h"], rows) if rows else ""
    return _section("How likely is the promise?", table, _html(outlook_words(outlook, judged_by(found.from_s))))


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


def _outcomes(results: Mapping[str, SimulationResult]) -> str:
    """Return the table; columns that would be all zero (a market, rejected, interrupted) are left out."""
    against, winner = reference(results), best(results)
    used = [market for market in MARKETS if any(getattr(result.bill, market) for result in results.values())]
    rejected = any(result.requests.rejected for result in results.values())
    interrupted = any(result.fleet.interrupted for result in results.values())
    called = any(result.functions.calls for result in results.values())
    heads = ["policy", "bill", *(["saves"] if against else []), *(market_name(market) for market in used)]
    per_million = f"$ per million {next(iter(results.values())).unit.named}".rstrip()
    heads += [per_million, "in time", "worst minute", "p50 ms", "p98 ms", "p99 ms", "by functions"]
    heads += [*(["cold starts"] if called else []), *(["rejected"] if rejected else []), "peak fleet"]
    heads += [*(["inter-rupted"] if interrupted else []), "regret"]
    rows = []
    for name, result in results.items():
        latency = result.latency_ms
        cells = [
            f"<strong>{usd(result.bill.total)}</strong>",
            *(["reference" if name == against else saves(result, results[against])] if against else []),
            *(usd(getattr(result.bill, market)) for market in used),
            usd(result.usd_per_million),
            f"{percent(result.slo_result.attainment, 2)} {_badge(result)}",
            percent(result.slo_result.worst_minute_attainment),
            milliseconds(latency.p50),
            milliseconds(latency.p98),
            milliseconds(latency.p99),
            percent(overflow_share(result)),
            *([_cold_starts(result.functions)] if called else []),
            *([f"{result.requests.rejected:,}"] if rejected else []),
            str(result.fleet.peak_instances),
            *([str(result.fleet.interrupted)] if interrupted else []),
            f'<span title="{_html(result.regret_reason)}">{number(result.regret)}</span>',
        ]
        row = f"<th scope=row>{_html(row_name(name, result))}</th>" + "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr{' class=best' if name == winner else ''}>{row}</tr>")
    return _grid(heads, rows) + (_list(below) if (below := footnotes(results)) else "")


def _cold_starts(called: FunctionCalls) -> str:
    title = f"{called.pings:,} pings, {called.throttled:,} throttled, {called.billed_gb_s:,.0f} GB-s billed"
    return f'<span title="{title}">{percent(called.cold_share, 2)}</span>'


def _policy_part(results: Mapping[str, SimulationResult]) -> str:
    """Return the figures of one policy at a time, chosen by buttons; the script fills them in."""
    # The recommended policy is shown first; the script starts with its place.
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
    """Return the alternatives of a decision for the page's script: words, saving, and rows of a table."""
    chosen = weighed.chosen
    rows = [
        [
            f"chosen: {one.fleet}" if one is chosen else one.label,
            rate(one.capacity_rps * unit.size),
            usd(one.instances_usd_per_hour),
            usd(one.launches_usd_per_hour),
            usd(one.overflow_usd_per_hour),
            usd(one.usd_per_hour),
            "" if one is chosen else f"{one.usd_per_hour - chosen.usd_per_hour:+.2f}",
        ]
        for place, one in enumerate((chosen, *weighed.alternatives))
        if place <= MOST_CHOICES or one.label in (KEPT, NONE)
    ]
    overflow = "overflow $/h" if weighed.overflow == "function calls" else "misses, as priced $/h"
    holds = f"holds {unit.named}/s"
    heads = ["fleet", holds, "instances $/h", "launches $/h", overflow, "total $/h", "against chosen"]
    words = f"{believed_words(weighed.belief, unit)} {saved_words(weighed)}"
    words += f" Averaged over the next {duration(weighed.over_s)}; overflow means {weighed.overflow}."
    kept = weighed.saved_against_kept_usd_per_hour
    return [words, "" if kept is None else f"{usd(kept)}/h", heads, rows]


def _attribution(found: Mapping[str, Attribution]) -> str:
    if not found:
        return ""
    rows = []
    for name, *amounts, meaning in attribution_rows(found):
        cells = "".join(f"<td>{amount}</td>" for amount in amounts)
        rows.append(f"<tr><th scope=row>{name}</th>{cells}<td class=words>{meaning}</td></tr>")
    lead = "From the proven bound to the bill, in dollars. Each part is a run in a better world, or a plan that knows "
    lead += "every arrival; the sum is exact."
    return _section(TITLE, _grid(["", *(_html(name) for name in found), ""], rows), lead)


def _sensitivity(rows: Sequence[Variation]) -> str:
    if not rows:
        return ""
    several = len(rows[0].outcomes) > 1
    heads = [
        "scenario",
        *(outcome.policy for outcome in rows[0].outcomes),
        *(["order of the policies"] if several else []),
    ]
    lines = []
    for row in rows:
        cells = [f"<th scope=row>{_html(row.label)}</th>"]
        for outcome in row.outcomes:
            change = f" <small>{outcome.change:+.1%}</small>" if outcome.change is not None else ""
            word = "" if outcome.kept is None else "ok" if outcome.kept else "MISSED"
            cells.append(
                f'<td>{usd(outcome.bill_usd)}{change}<br><span class="{word.lower()}">'
                f"{percent(outcome.attainment, 2)} {word}</span></td>"
            )
        if several:
            cells.append(f"<td>{'holds' if row.order_holds else '<strong>changes</strong>'}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return _section(
        "If these assumptions are wrong",
        _grid([_html(head) for head in heads], lines),
        "Each line is the whole run again with one belief made worse: bill, its change, and the share in time.",
    )


def _section(title: str, body: str, lead: str = "") -> str:
    return f"<section><h2>{title}</h2>{f'<p class=lead>{lead}</p>' if lead else ''}{body}</section>"


def _grid(heads: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table. `heads` are HTML already."""
    head = "".join(f"<th scope=col>{text}</th>" for text in heads)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_html(line)}</li>' for line in lines)}</ul>"


def _badge(result: SimulationResult) -> str:
    said = verdict(result)
    return f"<span class={said.lower()}>{said}</span>" if said else ""


def _html(text: str) -> str:
    return html.escape(text, quote=True)


def _json(data: Any) -> str:
    return json.dumps(_plain_names(data), separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain_names(data: dict[str, Any]) -> dict[str, Any]:
    """Replace angle brackets in names by look-alikes, because plotly reads <b>, <a href> and the like in them."""
    figures = [*data["shared"].values(), *(policy[k] for policy in data["policies"] for k in ("load", "fleet", "bill"))]
    for figure in figures:
        for line in figure["data"]:
            line["name"] = line["name"].replace("<", "\u2039").replace(">", "\u203a")
        for label in figure.get("labels", ()):
            label["text"] = label["text"].replace("<", "\u2039").replace(">", "\u203a")
    return data
