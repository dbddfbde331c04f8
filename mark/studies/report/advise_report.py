"""`mark advise` as a table and as a page: the own scaler as measured, beside policies simulated on the same days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mark.studies.advise import Observed, ScalerAdvice
from mark.studies.report.comparison_page import render_report
from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.takeaway import footnotes, verdict
from mark.studies.report.words import HOURS_PER_MONTH, dollars, duration, latency, number, per_month, percent, rate

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.simulation.result import SimulationResult

_HEADS = ("policy", "$ a month", "in time %", "", "p99 ms", "replicas\nmean", "most", "regret")


def advise_table(advice: ScalerAdvice) -> RenderableType:
    table = columns(*_HEADS)
    for row in _rows(advice):
        table.add_row(*map(text, row))
    return page(
        *what_was_read(advice.history.trace.read),
        text(_headline(advice), "bold"),
        table,
        *sentences([one.text for one in advice.advice]),
        *small_print([*footnotes(advice.results), *_notes(advice)]),
    )


def render_advice(advice: ScalerAdvice) -> str:
    """Return the page: the measured rows and the advice above the page of `mark compare`."""
    from mark.studies.report.htmlpage import bullets, grid, section

    heads = [head.replace("\n", " ") or "promise" for head in _HEADS]
    own = section(_headline(advice), grid(heads, _rows(advice)) + bullets([one.text for one in advice.advice]))
    more = section("How this was read", bullets(_notes(advice)))
    whole = render_report(dict(advice.results))
    return whole.replace("</header>", f"</header>{own}{more}", 1)


def _headline(advice: ScalerAdvice) -> str:
    slo, workload = advice.slo, advice.history.workload
    place = f"{workload.namespace}/{workload.name}" if workload.namespace else workload.name
    return (
        f"{place}: promise {percent(slo.attainment)} within {number(slo.rt_max_s * 1e3, 0)} ms; a replica is "
        f"{'' if advice.replica.per_instance == 1 else f'1/{advice.replica.per_instance} '}"
        f"{advice.replica.offer.instance} and does {rate(advice.rps_per_replica)} {workload.unit.name}/s"
    )


def _rows(advice: ScalerAdvice) -> list[list[str]]:
    read_s, part_s = advice.now.hours * 3600.0, advice.part.hours * 3600.0
    rows = [_measured(f"yours, {duration(read_s)}, measured", advice.now, advice)]
    if part_s < read_s:
        rows.append(_measured(f"yours, last {duration(part_s)}, measured", advice.part, advice))
    rows += [_simulated(name, one, advice) for name, one in advice.results.items()]
    if advice.bound_usd is not None:
        least = dollars(per_month(advice.bound_usd, part_s))
        rows.append(["none for less than", least, "", "", "", "", "", ""])
    return rows


def _measured(name: str, own: Observed, advice: ScalerAdvice) -> list[str]:
    late = own.late_share
    kept = "" if late is None else "ok" if late <= 1.0 - advice.slo.attainment else "MISSED"
    in_time = "-" if late is None else _in_time(1.0 - late)
    return [
        name,
        dollars(own.month_usd),
        in_time,
        kept,
        "-",
        number(own.mean_replicas, 1),
        f"{own.most_replicas:g}",
        "-",
    ]


def _simulated(name: str, one: SimulationResult, advice: ScalerAdvice) -> list[str]:
    hours = one.trace.duration_s / 3600.0
    mean = sum(one.fleet.instance_hours.values()) / hours * advice.replica.per_instance
    shown = {"as-is": "yours, simulated"}.get(name, name)
    return [
        shown,
        dollars(one.month_usd),
        "-" if one.slo_result.attainment is None else _in_time(one.slo_result.attainment),
        verdict(one),
        latency(one.latency_ms.p99),
        number(mean, 1),
        f"{one.fleet.peak_instances * advice.replica.per_instance:g}",
        number(one.regret),
    ]


def _in_time(share: float) -> str:
    return percent(share, 2).removesuffix(" %")


def _notes(advice: ScalerAdvice) -> list[str]:
    """Return the basis of the numbers: the source of each, interpolated parts and omitted parts."""
    now, part = advice.now, advice.part
    notes = [
        f"replicas are counted by {advice.history.workload.ready_by}",
        f"capacity of a replica: {advice.capacity_said}",
        f"price of a replica: {advice.replica.said}; on demand, {next(iter(advice.results.values())).priced}; "
        f"a month has {HOURS_PER_MONTH:g} h",
    ]
    if now.late_share is not None and now.late_least is not None and now.late_most is not None:
        between = f"{percent(now.late_least, 2)} to {percent(now.late_most, 2)}"
        known = now.late_least == now.late_most
        how = "RT_max is a bucket's bound" if known else f"interpolated within RT_max's bucket, which proves {between}"
        notes.append(f"late in {duration(now.hours * 3600.0)}: {percent(now.late_share, 2)}; {how}")
    notes.append(
        f"simulated: the last {duration(part.hours * 3600.0)}; what came before is the forecasts' history. "
        "Only instances are billed"
    )
    refusing = [name for name in advice.results if name.partition(":")[0] in ("mark", "oracle")]
    if refusing:
        notes.append(f"requests that cannot be in time are refused by {' and '.join(refusing)}, and count as late")
    simulated = advice.results.get("as-is")
    if simulated is not None and simulated.month_usd is not None:
        off = simulated.month_usd / part.month_usd - 1.0
        notes.append(
            f"your scaler's settings cost {abs(off):.0%} {'more' if off >= 0.0 else 'less'} in the simulation than was "
            "measured on the same days: the other rows may be off by as much"
        )
    return [*notes, *advice.notes, *dict.fromkeys(note for one in advice.results.values() for note in one.notes)]
