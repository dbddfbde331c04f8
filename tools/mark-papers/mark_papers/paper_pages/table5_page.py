"""Table 5 of the MArk paper beside ours."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mark.simulation.result import SimulationResult
from mark.studies.report.report import DataTable, Head, Marked, Prose, Report, formatted
from mark.studies.report.words import dollars, number, percent
from mark_papers.paper.table5 import PAPER_ON_DEMAND, PAPER_SPOT, Decomposition, Table5, Table5Row


def table5_report(result: Table5) -> Report:
    data = {
        "schema": 1,
        "table": "table5",
        "trace": result.trace,
        "start_s": result.start_s,
        "rows": [_row(row) for row in result.rows],
        "notes": list(result.notes),
    }
    calm = [row for row in result.rows if row.capped]
    raw = [row for row in result.rows if not row.capped]
    days = result.start_s / 86400.0
    return Report(
        data,
        "Table 5 of the paper: the cost of a SageMaker endpoint in our dollars",
        [
            Marked(f"{result.trace}, 490 minutes from day {days:g}: the raw stream, bulk deletions and all"),
            *_bills(raw),
            Marked("The same with minutes capped at 1.15 x their running median"),
            *_bills(calm),
            Marked("SageMaker's bill on capped minutes, from the clairvoyant bound upwards ($)"),
            _parts(calm),
            Marked("every SageMaker type under the same tracker, on capped minutes: $ (share in time)"),
            _types(calm),
        ],
        notes=result.notes,
    )


_BILL_HEADS = ("$, in time", *formatted("SageMaker", "ours"), ("regret", number), *formatted("mark-paper", "artefact"))
_RATIO_HEADS = (
    *("model", ("on-demand", number), ("paper's", number), ("in time", percent), ("spot", number)),
    *(("paper's", number), ("spot, series", number), ("in time", percent)),
)
_PART_NAMES = ("bound", "+ type", "+ price", "+ twice", "+ lag", "= SageMaker", "our regret")
_PART_HEADS: tuple[Head, ...] = ("model", *((name, number) for name in _PART_NAMES))


def _bills(rows: list[Table5Row]) -> list[DataTable | Marked | Prose]:
    """Return the bills, their ratios, and the verdict on them."""
    bills, ratios = [], []
    for row in rows:
        sagemaker, ours, paper, artefact = (
            f"{number(run.bill.total)} {percent(run.slo_result.attainment)}"
            for run in (row.sagemaker, row.ours, row.paper, row.artefact)
        )
        bills.append((row.model, sagemaker, ours, row.ours.regret, paper, artefact))
        series = row.spot_series
        by_spot: tuple[float | None, float | None] = (None, None)
        if series is not None:
            by_spot = (row.sagemaker.bill.total / series.bill.total, series.slo_result.attainment)
        on_demand = (row.ratio, PAPER_ON_DEMAND[row.model], row.ours.slo_result.attainment)
        ratios.append((row.model, *on_demand, row.spot_ratio, PAPER_SPOT[row.model], *by_spot))
    said = Marked("SageMaker / ours, and the paper's ratio")
    return [DataTable(_BILL_HEADS, bills), said, DataTable(_RATIO_HEADS, ratios), Prose(_verdict(rows))]


def _parts(rows: list[Table5Row]) -> DataTable:
    cells = [
        (
            *(row.model, p.bound_usd, p.instance_type_usd, p.price_factor_usd, p.over_provision_usd, p.lag_usd),
            *(p.total_usd, p.our_regret_usd),
        )
        for row in rows
        if (p := row.parts) is not None
    ]
    return DataTable(_PART_HEADS, cells)


def _types(rows: list[Table5Row]) -> DataTable:
    cells = [
        (row.model, ", ".join(f"{name} {dollars(usd)} ({percent(share)})" for name, usd, share in row.types))
        for row in rows
    ]
    return DataTable(("model", ""), cells)


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
