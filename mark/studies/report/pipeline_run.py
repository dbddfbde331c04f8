"""Simulated pipelines for the terminal and as JSON: bill, promise and latency, by policy and by stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Head, Marked, Prose, Report
from mark.studies.report.selection_report import HEADS, selection_cells, selection_json, selection_sentences
from mark.studies.report.takeaway import noted_once, share_marked, share_shown
from mark.studies.report.words import (
    count,
    dollars,
    duration,
    exact_percent,
    grouped,
    milliseconds,
    number,
    number_1,
    per_month,
    percent,
    percent_0,
    percent_2,
    rate,
    usd,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mark.studies.pipeline_result import ParityRun, PipelineRun, StageRun

# A fleet that never changes and knows the load beforehand; savings are measured against it.
REFERENCE = "fixed"


def pipeline_run_report(run: PipelineRun, more: Mapping[str, Any] | None = None) -> Report:
    """Return one policy, line by line, and its stages; `more` are further keys of the JSON."""
    facts = DataTable(("", "", ""), [(name, *said) for name, said in _facts(run).items()])
    chosen = [] if run.selection is None else selection_sentences(run.selection, run.usd)
    return Report(
        {**run_json(run), **(more or {})},
        _headline(run),
        [
            Marked(f"policy {run.policy}, planned on {_planned_on(run)}"),
            *(facts, _stages(run)),
            *([_functions(run)] if run.by_function.calls else []),
            Prose(chosen),
        ],
        _takeaway({run.policy: run}),
        run.notes,
        read=run.read,
    )


def _facts(run: PipelineRun) -> dict[str, tuple[str | Marked, str]]:
    times = run.latency_ms
    facts: dict[str, tuple[str | Marked, str]] = {}
    facts["Bill"] = (
        usd(run.usd),
        f"{usd(run.usd_per_million)} per million queries; {dollars(_monthly(run))} a month at this pace",
    )
    if run.names_functions:
        facts["Functions"] = (
            usd(run.function_usd),
            f"of it, for {count(run.by_function.calls)} calls, {percent(run.function_share, 2)} of all",
        )
    facts["SLO"] = (
        Marked("ok", "ok") if run.kept else Marked("MISSED", "missed"),
        f"{percent(run.attainment, 2)} within {number(run.slo.rt_max_s * 1e3, 0)} ms "
        f"({exact_percent(run.slo.attainment)} asked), {run.misses:,} late; worst minute "
        f"{percent(run.worst_minute_attainment)}, {run.minutes_below_target:,} min below",
    )
    facts["Latency"] = (
        f"{milliseconds(times.p50)} ms",
        f"median; p95 {milliseconds(times.p95)}, p99 {milliseconds(times.p99)}, p99.9 {milliseconds(times.p999)}, "
        f"slowest {milliseconds(times.max)} ms",
    )
    if run.parity is not None:
        facts["Insurance"] = (percent(run.parity.degraded_share, 2), _parity(run.parity))
    facts["Instances"] = (number(run.instances, 1), f"in the mean, {run.most_instances:,} at most")
    if run.bound_usd is not None:
        why = "the bound is zero" if run.kept else "the promise was missed"
        regret = f"none: {why}" if run.regret is None else f"{number(run.regret)} x the bound"
        facts["Bound"] = (usd(run.bound_usd), f"no fleet keeps the promise for less; regret {regret}")
    return facts


def pipeline_compare_report(runs: Mapping[str, PipelineRun]) -> Report:
    """Return policies side by side, then the words."""
    first = next(iter(runs.values()))
    return Report(
        {
            "schema": 1,
            "policies": {name: run_json(run) for name, run in runs.items()},
            "cheapest": cheapest_kept(runs),
        },
        _headline(first),
        [
            _outcomes(runs),
            *([] if first.selection is None else [_selections(runs)]),
            *([] if first.parity is None else [_parities(runs)]),
        ],
        _takeaway(runs),
        noted_once({name: [*run.notes, f"planned on {_planned_on(run)}"] for name, run in runs.items()}),
        read=first.read,
    )


def run_json(run: PipelineRun) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    return {
        "schema": 1,
        "service": run.service,
        "policy": run.policy,
        "seed": run.seed,
        "prices": run.prices,
        "trace": run.trace,
        "read": run.read,
        "start_s": run.start_s,
        "duration_s": run.duration_s,
        "planned_on": {"start_s": run.planned_on.start_s, "duration_s": run.planned_on.duration_s},
        "queries": run.queries,
        "slo": {"rt_max_ms": run.slo.rt_max_s * 1e3, "target": run.slo.attainment},
        "attainment": run.attainment,
        "misses": run.misses,
        "worst_minute_attainment": run.worst_minute_attainment,
        "minutes_below_target": run.minutes_below_target,
        "latency_ms": asdict(run.latency_ms),
        "usd": run.usd,
        "usd_per_million": run.usd_per_million,
        "bound_usd": run.bound_usd,
        "regret": run.regret,
        "instances": {"mean": run.instances, "max": run.most_instances},
        **({} if run.selection is None else {"selection": selection_json(run.selection, run.usd, run.queries)}),
        **({} if run.parity is None else {"parity": asdict(run.parity)}),
        **_functions_json(run, run),
        "stages": [
            {
                "stage": stage.stage,
                "hardware": stage.hardware,
                "batch": stage.batch,
                "calls": stage.calls,
                "usd": stage.usd,
                "instances": {"mean": stage.instances, "max": stage.most_instances},
                "busy": stage.busy,
                "wait_ms": stage.wait_s * 1e3,
                "slo_ms": None if stage.part_s is None else stage.part_s * 1e3,
                **({} if run.selection is None else {"call_usd": stage.call_usd}),
                **({"function": stage.function.name if stage.function else None} if run.names_functions else {}),
                **_functions_json(run, stage),
            }
            for stage in run.stages
        ],
        "notes": list(run.notes),
    }


def _functions_json(run: PipelineRun, of: PipelineRun | StageRun) -> dict[str, Any]:
    """Return the functions of a run or a stage; empty if the file names no function."""
    if not run.names_functions:
        return {}
    return {
        "instance_usd": of.usd - of.function_usd - of.call_usd,
        "function_usd": of.function_usd,
        "function_share": of.function_share,
        "functions": {**asdict(of.by_function), "cold_share": of.by_function.cold_share},
    }


def cheapest_kept(runs: Mapping[str, PipelineRun]) -> str | None:
    """Return the cheapest policy that kept the promise, the first of equal ones."""
    return min((name for name, run in runs.items() if run.kept), key=lambda name: runs[name].usd, default=None)


def _parity(parity: ParityRun) -> str:
    return (
        f"answered by reconstruction ({count(parity.reconstructed)}), {count(parity.saved)} of them saved from being "
        f"late; {count(parity.parity_calls)} parity calls for {count(parity.groups)} groups"
    )


def _headline(run: PipelineRun) -> str:
    return (
        f"{run.service} on {run.trace}: {count(run.queries)} queries in {duration(run.duration_s)}, "
        f"{rate(run.queries / run.duration_s)} a second; prices of {run.prices}"
    )


def _planned_on(run: PipelineRun) -> str:
    window = run.planned_on
    return f"{duration(window.duration_s)} from {number(window.start_s, 0)} s on"


_STAGE_HEADS = (
    *("stage", "on", ("batch\nup to", grouped), ("instances\nmean", number_1), ("max", grouped), ("busy", percent_0)),
    *(("wait\nms", milliseconds), ("$", usd), ("of the\ndollars", percent_0)),
)
_FUNCTION_HEADS = (
    *("stage", "function", ("calls", count), ("of its\ncalls", percent_2), ("cold", percent_2)),
    *(("throttled", count), ("$", usd)),
)


def _stages(run: PipelineRun) -> DataTable:
    rows = [
        (
            *(one.stage, one.hardware, one.batch, one.instances, one.most_instances, one.busy, one.wait_s * 1e3),
            *(one.usd, one.usd / run.usd if run.usd else None),
        )
        for one in run.stages
    ]
    return DataTable(_STAGE_HEADS, rows)


def _functions(run: PipelineRun) -> DataTable:
    """Return a table of the stages whose functions were called."""
    rows = []
    for stage in run.stages:
        called = stage.by_function
        if stage.function is not None and called.calls:
            shares = (stage.function_share, called.cold_share)
            rows.append((stage.stage, stage.function.name, called.calls, *shares, called.throttled, stage.function_usd))
    return DataTable(_FUNCTION_HEADS, rows)


def _outcomes(runs: Mapping[str, PipelineRun]) -> DataTable:
    against, winner = _reference(runs), cheapest_kept(runs)
    named = any(run.names_functions for run in runs.values())
    # Function dollars replace the largest number of instances, to fit 80 columns.
    money: list[Head] = [("bill", usd), *([("of it\nfunct.", usd)] if named else [])]
    instances: list[Head] = [("inst.\nmean", number_1)] if named else [("instances\nmean", number_1), ("max", grouped)]
    times: list[Head] = [("p50", milliseconds), ("p95", milliseconds), ("p99 ms", milliseconds)]
    rows = []
    for name, run in runs.items():
        rows.append(
            (
                Marked(name, "best" if name == winner else "strong" if name == "mark" else ""),
                *(run.usd, *([run.function_usd or None] if named else [])),
                "-"
                if against is None
                else "ref."
                if name == against
                else share_shown(1.0 - run.usd / runs[against].usd),
                share_marked(run.attainment, "ok" if run.kept else "MISSED"),
                *(run.latency_ms.p50, run.latency_ms.p95, run.latency_ms.p99, run.instances),
                *([] if named else [run.most_instances]),
                run.regret,
            )
        )
    heads = ("policy", *money, ("saves", str), ("SLO %", str), *times, *instances, ("regret", number))
    return DataTable(heads, rows)


def _selections(runs: Mapping[str, PipelineRun]) -> DataTable:
    cells = {
        name: selection_cells(run.selection, run.usd, run.queries)
        for name, run in runs.items()
        if run.selection is not None
    }
    return DataTable(("policy", *((head, str) for head in HEADS)), [(name, *row) for name, row in cells.items()])


def _parities(runs: Mapping[str, PipelineRun]) -> DataTable:
    heads = (
        *("policy", ("recon-\nstructed", count), ("of all", percent_2), ("saved", count), ("groups", count)),
        ("parity\ncalls", count),
    )
    parities = {name: run.parity for name, run in runs.items() if run.parity is not None}
    rows = [
        (name, one.reconstructed, one.degraded_share, one.saved, one.groups, one.parity_calls)
        for name, one in parities.items()
    ]
    return DataTable(heads, rows)


def _reference(runs: Mapping[str, PipelineRun]) -> str | None:
    """Return the policy that savings are measured against; it keeps the promise.

    It is the fleet that never changes, otherwise the dearest policy.
    """
    able = [name for name, run in runs.items() if run.kept]
    if REFERENCE in able and len(runs) > 1:
        return REFERENCE
    return max(able, key=lambda name: runs[name].usd) if len(able) > 1 else None


def _takeaway(runs: Mapping[str, PipelineRun]) -> list[str]:
    """Return sentences in dollars, the most important first."""
    first, winner = next(iter(runs.values())), cheapest_kept(runs)
    within = f"within {number(first.slo.rt_max_s * 1e3, 0)} ms"
    if winner is None:
        closest = max(runs, key=lambda name: runs[name].attainment)
        return [
            f"No policy here keeps the promise of {exact_percent(first.slo.attainment)} {within}; closest is {closest} "
            f"with {percent(runs[closest].attainment, 2)} for {usd(runs[closest].usd)}."
        ]
    run, against = runs[winner], _reference(runs)
    keeps = "keeps the promise" if len(runs) == 1 else "is the cheapest that keeps the promise"
    lines = [
        f"{winner} {keeps}: {percent(run.attainment, 2)} of the queries {within} "
        f"({exact_percent(run.slo.attainment, 0)} asked) for {usd(run.usd)}, which is {usd(run.usd_per_million)} per "
        "million queries."
    ]
    pace = f"At this pace (extrapolated from {duration(run.duration_s)}) that is {dollars(_monthly(run))} a month"
    if against is not None and against != winner:
        pace += f"; {against} costs {dollars(_monthly(runs[against]))}"
    lines.append(f"{pace}.")
    if missed := [name for name, other in runs.items() if not other.kept]:
        lines.append(f"Missed the promise: {', '.join(missed)}.")
    if run.regret is not None:
        lines.append(
            f"No fleet can keep this promise for less than {usd(run.bound_usd)} (a proven bound): {winner} is at "
            f"{number(run.regret)} times that."
        )
    return lines


def _monthly(run: PipelineRun) -> float | None:
    return per_month(run.usd, run.duration_s)
