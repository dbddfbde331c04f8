"""The price of the MArk paper's greedy algorithm, and of its averages, as a table."""

from __future__ import annotations

from typing import Any

from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.words import number, number_3, percent
from mark_papers.paper.optimal import Optimal, OptimalRow
from mark_papers.paper_program import PaperPlan

_HEADS = (
    *("model", ("optimum", number), ("greedy", number), ("no delay", number), ("printed C", number), ("tail", number)),
    *(("greed", number_3), ("averages", number_3)),
)


def optimal_report(found: Optimal) -> Report:
    data = {
        "schema": 1,
        "table": "optimal",
        "trace": found.trace,
        "start_s": found.start_s,
        "minutes": found.minutes,
        "rows": [
            {
                "model": row.model,
                "capped": row.capped,
                "price_of_greed": row.price_of_greed,
                "price_of_averages": row.price_of_averages,
                "greedy_usd": row.greedy_usd,
                "greedy_without_cool_down_usd": row.prompt_usd,
                "greedy_printed_capacity_usd": row.printed_usd,
                "optimum": {**_plan(row.optimum), "seconds": row.seconds},
                "tail": {**_plan(row.tail), "seconds": row.tail_seconds},
            }
            for row in found.rows
        ],
        "notes": list(found.notes),
    }
    days = found.start_s / 86400.0
    return Report(
        data,
        "The paper's program (4.3) beside its greedy: dollars for the same known load",
        [
            Marked(f"{found.trace}, {found.minutes} minutes from day {days:g}: the raw stream"),
            _prices([row for row in found.rows if not row.capped]),
            Marked("The same with minutes capped at 1.15 x their running median"),
            _prices([row for row in found.rows if row.capped]),
        ],
        _verdict(found) if found.rows else [],
        [
            "printed C: Algorithm 1 with instances planned at their highest throughput, which no wait is part of",
            "no delay: Algorithm 1 without its cool-down",
            *found.notes,
        ],
    )


def _prices(rows: list[OptimalRow]) -> DataTable:
    cells = [
        (
            *(row.model, row.optimum.usd, row.greedy_usd, row.prompt_usd, row.printed_usd, row.tail.usd),
            *(row.price_of_greed, row.price_of_averages),
        )
        for row in rows
    ]
    return DataTable(_HEADS, cells)


def _verdict(found: Optimal) -> list[str]:
    greed, averages = ([getattr(row, of) for row in found.rows] for of in ("price_of_greed", "price_of_averages"))
    gap = max(plan.gap for row in found.rows for plan in (row.optimum, row.tail))
    seconds = max(row.seconds + row.tail_seconds for row in found.rows)
    return [
        f"The price of greed, greedy / optimum, is {min(greed):.3f} to {max(greed):.3f}.",
        f"The price of averages, tail / optimum, is {min(averages):.3f} to {max(averages):.3f}.",
        f"Optima are proven within {percent(gap, 2)}; the slowest model took {seconds:.1f} s for both.",
    ]


def _plan(plan: PaperPlan) -> dict[str, Any]:
    return {
        "usd": plan.usd,
        "bound_usd": plan.bound_usd,
        "gap": plan.gap,
        "solver": plan.solver,
        "limited": plan.limited,
    }
