"""`mark advise` as a table and as a page: the own scaler as measured, beside policies simulated on the same days."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mark.cloud.billing.extras import CONTROLLER_USD_PER_HOUR
from mark.planning.policies.names import AS_IS
from mark.studies.own_scaler.scaler_advice import ScalerAdvice
from mark.studies.own_scaler.scaler_record import Observed
from mark.studies.report.compare_report import compare_page, compare_report
from mark.studies.report.report import DataTable, Head, Prose, Report
from mark.studies.report.takeaway import footnotes, noted_once, verdict
from mark.studies.report.words import (
    HOURS_PER_MONTH,
    count,
    dollars,
    duration,
    exact_percent,
    latency,
    number,
    number_1,
    per_month,
    percent,
    rate,
)

if TYPE_CHECKING:
    from mark.simulation.result import SimulationResult

_HEADS: tuple[Head, ...] = (
    *("policy", ("$ a month", dollars), ("in time %", str), "", ("p99 ms", latency)),
    *(("replicas\nmean", number_1), ("most", "{:g}".format), ("regret", number)),
)


def advise_report(advice: ScalerAdvice) -> Report:
    """Return the measured rows and the simulated ones. The page has more of the simulated policies."""
    told = [one.text for one in advice.advice]
    notes = [*footnotes(advice.results), *_notes(advice)]
    return Report(
        advice.as_json() | {"notes": notes},
        _headline(advice),
        [DataTable(_HEADS, _rows(advice), _headline(advice))],
        told,
        notes,
        read=advice.history.trace.read,
    )


def advise_page(report: Report, advice: ScalerAdvice) -> Report:
    """Return the page: the measured rows and the advice above the page of `mark compare`."""
    results = dict(advice.results)
    whole = compare_page(compare_report(results), results)
    own = [*report.parts, Prose(report.sentences, "Advice"), Prose(report.notes, "How this was read")]
    return replace(whole, parts=[*own, *whole.parts])


def _headline(advice: ScalerAdvice) -> str:
    slo, workload = advice.slo, advice.history.workload
    place = f"{workload.namespace}/{workload.name}" if workload.namespace else workload.name
    return (
        f"{place}: promise {exact_percent(slo.attainment)} within {number(slo.rt_max_s * 1e3, 0)} ms; a replica is "
        f"{'' if advice.replica.per_instance == 1 else f'1/{advice.replica.per_instance} '}"
        f"{advice.replica.offer.instance} and does {rate(advice.rps_per_replica)} {workload.unit.name}/s"
    )


def _rows(advice: ScalerAdvice) -> list[list[Any]]:
    read_s, part_s = advice.now.hours * 3600.0, advice.part.hours * 3600.0
    rows = [_measured(f"yours, {duration(read_s)}, measured", advice.now, advice)]
    if part_s < read_s:
        rows.append(_measured(f"yours, last {duration(part_s)}, measured", advice.part, advice))
    rows += [_simulated(name, one, advice) for name, one in advice.results.items()]
    if advice.bound_usd is not None:
        rows.append(["none for less than", per_month(advice.bound_usd, part_s), *[""] * 6])
    return rows


def _measured(name: str, own: Observed, advice: ScalerAdvice) -> list[Any]:
    late = own.late_share
    kept = "" if late is None else "ok" if late <= 1.0 - advice.slo.attainment else "MISSED"
    in_time = None if late is None else 1.0 - late
    return [name, own.month_usd, _in_time(in_time), kept, "-", own.mean_replicas, own.most_replicas, "-"]


def _simulated(name: str, one: SimulationResult, advice: ScalerAdvice) -> list[Any]:
    hours, each = one.trace.duration_s / 3600.0, advice.replica.per_instance
    in_time = _in_time(one.slo_result.attainment)
    cells = [_row_name(name, advice), one.month_usd, in_time, verdict(one), one.latency_ms.p99]
    mean = sum(one.fleet.instance_hours.values()) / hours * each
    return [*cells, mean, one.fleet.peak_instances * each, one.regret]


def _row_name(policy: str, advice: ScalerAdvice) -> str:
    if policy != AS_IS:
        return policy
    return "yours, simulated" if advice.what_if is None else "what-if, simulated"


def _in_time(share: float | None) -> str:
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
    notes += [
        f"simulated: the last {duration(part.hours * 3600.0)}; the days before are the forecasts' history",
        "only the replicas' instances are billed. mark's own process is left out: on a t4g.small of its own it costs "
        f"{dollars(CONTROLLER_USD_PER_HOUR * HOURS_PER_MONTH)} a month",
    ]
    below = {_row_name(name, advice): one.slo_result.minutes_below_target for name, one in advice.results.items()}
    if below:
        listed = "; ".join(f"{name} {count(minutes)}" for name, minutes in below.items())
        notes.append(f"minutes below the promise, of {count(round(part.hours * 60.0))}: {listed}")
    refusing = [name for name in advice.results if name.partition(":")[0] in ("mark", "oracle")]
    if refusing:
        notes.append(f"requests that cannot be in time are refused by {' and '.join(refusing)}, and count as late")
    simulated = advice.results.get(AS_IS)
    if advice.what_if is not None:
        notes.append(
            f"your scaler's settings are a what-if, not today's: {advice.what_if}. So the simulation was not checked "
            "against the measurement"
        )
    elif simulated is not None and simulated.month_usd is not None and part.month_usd > 0.0:
        off = simulated.month_usd / part.month_usd - 1.0
        notes.append(
            f"your scaler's settings cost {percent(abs(off), 0)} {'more' if off >= 0.0 else 'less'} in the simulation "
            "than was measured on the same days: the other rows may be off by as much"
        )
    of_rows = noted_once({_row_name(name, advice): one.notes for name, one in advice.results.items()})
    return [*notes, *advice.notes, *of_rows]
