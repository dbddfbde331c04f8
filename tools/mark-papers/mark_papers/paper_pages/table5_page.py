"""Table 5 of the MArk paper beside ours."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mark.simulation.result import SimulationResult
from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import dollars, number, percent
from mark_papers.paper.table5 import PAPER_ON_DEMAND, PAPER_SPOT, Decomposition, Table5, Table5Row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def render(result: Table5) -> RenderableType:
    calm = [row for row in result.rows if row.capped]
    raw = [row for row in result.rows if not row.capped]
    days = result.start_s / 86400.0
    return page(
        text("Table 5 of the paper: the cost of a SageMaker endpoint in our dollars", "bold"),
        text(f"{result.trace}, 490 minutes from day {days:g}: the raw stream, bulk deletions and all"),
        _bills(raw),
        text("SageMaker / ours, and the paper's ratio"),
        _ratios(raw),
        *sentences(_verdict(raw)),
        text("The same with minutes capped at 1.15 x their running median"),
        _bills(calm),
        text("SageMaker / ours, and the paper's ratio"),
        _ratios(calm),
        *sentences(_verdict(calm)),
        text("SageMaker's bill on capped minutes, from the clairvoyant bound upwards ($)"),
        _parts(calm),
        text("every SageMaker type under the same tracker, on capped minutes: $ (share in time)"),
        _types(calm),
        *small_print(result.notes),
    )


def _bills(rows: list[Table5Row]) -> Table:
    table = columns("$, in time", "SageMaker", "ours", "regret", "mark-paper", "artefact")
    for row in rows:
        sagemaker, ours, paper, artefact = (
            f"{number(run.bill.total)} {percent(run.slo_result.attainment)}"
            for run in (row.sagemaker, row.ours, row.paper, row.artefact)
        )
        table.add_row(row.model, sagemaker, ours, number(row.ours.regret), paper, artefact)
    return table


def _ratios(rows: list[Table5Row]) -> Table:
    table = columns("model", "on-demand", "paper's", "in time", "spot", "paper's", "spot, series", "in time")
    for row in rows:
        series = row.spot_series
        table.add_row(
            row.model,
            number(row.ratio),
            number(PAPER_ON_DEMAND[row.model]),
            percent(row.ours.slo_result.attainment),
            number(row.spot_ratio),
            number(PAPER_SPOT[row.model]),
            number(None if series is None else row.sagemaker.bill.total / series.bill.total),
            percent(None if series is None else series.slo_result.attainment),
        )
    return table


def _parts(rows: list[Table5Row]) -> Table:
    table = columns("model", "bound", "+ type", "+ price", "+ twice", "+ lag", "= SageMaker", "our regret")
    for row in rows:
        if row.parts is None:
            continue
        p = row.parts
        figures = (
            p.bound_usd,
            p.instance_type_usd,
            p.price_factor_usd,
            p.over_provision_usd,
            p.lag_usd,
            p.total_usd,
            p.our_regret_usd,
        )
        table.add_row(row.model, *(number(figure) for figure in figures))
    return table


def _types(rows: list[Table5Row]) -> Table:
    table = columns("model", "")
    for row in rows:
        listed = ", ".join(f"{name} {dollars(usd)} ({percent(share)})" for name, usd, share in row.types)
        table.add_row(row.model, listed)
    return table


def _verdict(rows: list[Table5Row]) -> list[str]:
    lines = []
    for row in rows:
        paper = PAPER_ON_DEMAND[row.model]
        kept = (row.ours.slo_result.attainment or 0.0) >= row.ours.slo.attainment
        if row.ratio >= paper and kept:
            continue
        parts = row.parts
        missing = row.ours.bill.total - row.sagemaker.bill.total / paper
        line = f"{row.model} falls short: {row.ratio:.2f} against {paper:.2f}, {dollars(missing)} too much"
        if not kept:
            line = f"{row.model} misses the SLO: {percent(row.ours.slo_result.attainment)} in time"
        if parts is not None:
            line += f"; our regret is {dollars(parts.our_regret_usd)} of {dollars(row.ours.bill.total)}"
        lines.append(line)
    return lines or ["All four models reach the paper's on-demand ratio with the SLO of 98 % kept."]


def as_json(result: Table5) -> dict[str, Any]:
    return {
        "schema": 1,
        "table": "table5",
        "trace": result.trace,
        "start_s": result.start_s,
        "rows": [_row(row) for row in result.rows],
        "notes": list(result.notes),
    }


def _row(row: Table5Row) -> dict[str, Any]:
    runs: dict[str, SimulationResult | None] = {
        "sagemaker": row.sagemaker,
        "mark": row.ours,
        "mark-paper": row.paper,
        "mark-paper:artefact": row.artefact,
        "mark-spot": row.spot,
        "mark-spot-series": row.spot_series,
    }
    parts: Decomposition | None = row.parts
    return {
        "model": row.model,
        "trace": row.trace,
        "capped": row.capped,
        "ratio": row.ratio,
        "paper_ratio": PAPER_ON_DEMAND[row.model],
        "spot_ratio": row.spot_ratio,
        "paper_spot_ratio": PAPER_SPOT[row.model],
        "runs": {name: run.as_json() for name, run in runs.items() if run is not None},
        "sagemaker_types": [{"instance": n, "usd": usd, "attainment": share} for n, usd, share in row.types],
        "parts_usd": None if parts is None else asdict(parts),
    }
