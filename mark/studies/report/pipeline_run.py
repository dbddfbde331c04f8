"""Simulated pipelines for the terminal and as JSON: bill, promise and latency, by policy and by stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.selection_report import HEADS, selection_cells, selection_json, selection_sentences
from mark.studies.report.takeaway import share_shown
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
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from mark.studies.pipeline_result import ParityRun, PipelineRun, StageRun

# A fleet that never changes and knows the load beforehand; savings are measured against it.
REFERENCE = "fixed"


def pipeline_run_table(run: PipelineRun) -> RenderableType:
    """Return one policy, line by line, and its stages."""
    times = run.latency_ms
    table = columns("", "", "")
    table.add_row(
        "Bill",
        usd(run.usd),
        f"{usd(run.usd_per_million)} per million queries; {dollars(_monthly(run))} a month at this pace",
    )
    if run.names_functions:
        table.add_row(
            "Functions",
            usd(run.function_usd),
            f"of it, for {count(run.by_function.calls)} calls, {percent(run.function_share, 2)} of all",
        )
    table.add_row(
        "SLO",
        text("ok", "green") if run.kept else text("MISSED", "bold red"),
        f"{percent(run.attainment, 2)} within {number(run.slo.rt_max_s * 1e3, 0)} ms "
        f"({percent(run.slo.attainment)} asked), {run.misses:,} late; worst minute "
        f"{percent(run.worst_minute_attainment)}, {run.minutes_below_target:,} min below",
    )
    table.add_row(
        "Latency",
        f"{milliseconds(times.p50)} ms",
        f"median; p95 {milliseconds(times.p95)}, p99 {milliseconds(times.p99)}, p99.9 {milliseconds(times.p999)}, "
        f"slowest {milliseconds(times.max)} ms",
    )
    if run.parity is not None:
        table.add_row("Insurance", percent(run.parity.degraded_share, 2), _parity(run.parity))
    table.add_row("Instances", number(run.instances, 1), f"in the mean, {run.most_instances:,} at most")
    if run.bound_usd is not None:
        why = "the bound is zero" if run.kept else "the promise was missed"
        regret = f"none: {why}" if run.regret is None else f"{number(run.regret)} x the bound"
        table.add_row("Bound", usd(run.bound_usd), f"no fleet keeps the promise for less; regret {regret}")
    return page(
        *what_was_read(run.read),
        _headline(run),
        text(f"policy {run.policy}, planned on {_planned_on(run)}"),
        table,
        _stages(run),
        *([_functions(run)] if run.by_function.calls else []),
        *([] if run.selection is None else sentences(selection_sentences(run.selection, run.usd))),
        *sentences(_takeaway({run.policy: run})),
        *small_print(run.notes),
    )


def pipeline_compare_table(runs: Mapping[str, PipelineRun]) -> RenderableType:
    """Return policies side by side, then the words."""
    first = next(iter(runs.values()))
    return page(
        *what_was_read(first.read),
        _headline(first),
        _outcomes(runs),
        *([] if first.selection is None else [_selections(runs)]),
        *([] if first.parity is None else [_parities(runs)]),
        *sentences(_takeaway(runs)),
        *small_print(_notes(runs)),
    )


def pipeline_run_json(run: PipelineRun) -> dict[str, Any]:
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


def pipeline_compare_json(runs: Mapping[str, PipelineRun]) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    return {
        "schema": 1,
        "policies": {name: pipeline_run_json(run) for name, run in runs.items()},
        "cheapest": cheapest_kept(runs),
    }


def cheapest_kept(runs: Mapping[str, PipelineRun]) -> str | None:
    """Return the cheapest policy that kept the promise, the first of equal ones."""
    return min((name for name, run in runs.items() if run.kept), key=lambda name: runs[name].usd, default=None)


def _parity(parity: ParityRun) -> str:
    return (
        f"answered by reconstruction ({count(parity.reconstructed)}), {count(parity.saved)} of them saved from being "
        f"late; {count(parity.parity_calls)} parity calls for {count(parity.groups)} groups"
    )


def _headline(run: PipelineRun) -> Text:
    return text(
        f"{run.service} on {run.trace}: {count(run.queries)} queries in {duration(run.duration_s)}, "
        f"{rate(run.queries / run.duration_s)} a second; prices of {run.prices}",
        "bold",
    )


def _planned_on(run: PipelineRun) -> str:
    window = run.planned_on
    return f"{duration(window.duration_s)} from {number(window.start_s, 0)} s on"


def _stages(run: PipelineRun) -> Table:
    table = columns("stage", "on", "batch\nup to", "instances\nmean", "max", "busy", "wait\nms", "$", "of the\ndollars")
    for stage in run.stages:
        table.add_row(
            text(stage.stage),
            text(stage.hardware),
            f"{stage.batch:,}",
            number(stage.instances, 1),
            f"{stage.most_instances:,}",
            percent(stage.busy, 0),
            milliseconds(stage.wait_s * 1e3),
            usd(stage.usd),
            percent(stage.usd / run.usd, 0) if run.usd else "-",
        )
    return table


def _functions(run: PipelineRun) -> Table:
    """Return a table of the stages whose functions were called."""
    table = columns("stage", "function", "calls", "of its\ncalls", "cold", "throttled", "$")
    for stage in run.stages:
        if stage.function is not None and stage.by_function.calls:
            table.add_row(
                text(stage.stage),
                text(stage.function.name),
                count(stage.by_function.calls),
                percent(stage.function_share, 2),
                percent(stage.by_function.cold_share, 2),
                count(stage.by_function.throttled),
                usd(stage.function_usd),
            )
    return table


def _outcomes(runs: Mapping[str, PipelineRun]) -> Table:
    against, winner = _reference(runs), cheapest_kept(runs)
    named = any(run.names_functions for run in runs.values())
    # Function dollars replace the largest number of instances, to fit 80 columns.
    bill, instances = (["bill", "of it\nfunct."], ["inst.\nmean"]) if named else (["bill"], ["instances\nmean", "max"])
    table = columns("policy", *bill, "saves", "SLO %", "p50", "p95", "p99 ms", *instances, "regret")
    for name, run in runs.items():
        shown = percent(run.attainment, 2).removesuffix(" %")
        table.add_row(
            text(name, "bold green" if name == winner else "bold" if name == "mark" else ""),
            usd(run.usd),
            *([usd(run.function_usd or None)] if named else []),
            "-" if against is None else "ref." if name == against else share_shown(1.0 - run.usd / runs[against].usd),
            text(f"{shown} ok", "green") if run.kept else text(f"{shown} MISSED", "bold red"),
            latency(run.latency_ms.p50),
            latency(run.latency_ms.p95),
            latency(run.latency_ms.p99),
            number(run.instances, 1),
            *([] if named else [f"{run.most_instances:,}"]),
            number(run.regret),
        )
    return table


def _selections(runs: Mapping[str, PipelineRun]) -> Table:
    table = columns("policy", *HEADS)
    for name, run in runs.items():
        if run.selection is not None:
            table.add_row(text(name), *selection_cells(run.selection, run.usd, run.queries))
    return table


def _parities(runs: Mapping[str, PipelineRun]) -> Table:
    table = columns("policy", "recon-\nstructed", "of all", "saved", "groups", "parity\ncalls")
    for name, run in runs.items():
        if (parity := run.parity) is not None:
            counts = (parity.saved, parity.groups, parity.parity_calls)
            share = percent(parity.degraded_share, 2)
            table.add_row(text(name), count(parity.reconstructed), share, *map(count, counts))
    return table


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
            f"No policy here keeps the promise of {percent(first.slo.attainment)} {within}; closest is {closest} with "
            f"{percent(runs[closest].attainment, 2)} for {usd(runs[closest].usd)}."
        ]
    run, against = runs[winner], _reference(runs)
    keeps = "keeps the promise" if len(runs) == 1 else "is the cheapest that keeps the promise"
    lines = [
        f"{winner} {keeps}: {percent(run.attainment, 2)} of the queries {within} "
        f"({percent(run.slo.attainment, 0)} asked) for {usd(run.usd)}, which is {usd(run.usd_per_million)} per million "
        "queries."
    ]
    pace = f"At this pace (extrapolated from {duration(run.duration_s)}) that is {dollars(_monthly(run))} a month"
    if against is not None and against != winner:
        pace += f"; {against} costs {dollars(_monthly(runs[against]))}"
    lines.append(f"{pace}.")
    if missed := [name for name, other in runs.items() if not other.kept]:
        lines.append(f"Missed the promise, so their bills buy less: {', '.join(missed)}.")
    if run.regret is not None:
        lines.append(
            f"No fleet can keep this promise for less than {usd(run.bound_usd)} (a proven bound): {winner} is at "
            f"{number(run.regret)} times that."
        )
    return lines


def _notes(runs: Mapping[str, PipelineRun]) -> Sequence[str]:
    """Return every note once: shared ones plainly, the others with their policies."""
    owners: dict[str, list[str]] = {}
    for name, run in runs.items():
        for note in dict.fromkeys([*run.notes, f"planned on {_planned_on(run)}"]):
            owners.setdefault(note, []).append(name)
    return [note if len(names) == len(runs) else f"{', '.join(names)}: {note}" for note, names in owners.items()]


def _monthly(run: PipelineRun) -> float | None:
    return per_month(run.usd, run.duration_s)
