"""The price of the MArk paper's greedy algorithm, and of its averages, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import number, percent
from mark_papers.paper.optimal import Optimal, OptimalRow
from mark_papers.paper_program import PaperPlan

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def optimal_table(found: Optimal) -> RenderableType:
    raw = [row for row in found.rows if not row.capped]
    calm = [row for row in found.rows if row.capped]
    days = found.start_s / 86400.0
    return page(
        text("The paper's program (4.3) beside its greedy: dollars for the same known load", "bold"),
        text(f"{found.trace}, {found.minutes} minutes from day {days:g}: the raw stream"),
        _prices(raw),
        text("The same with minutes capped at 1.15 x their running median"),
        _prices(calm),
        *sentences(_verdict(found)),
        *small_print(
            [
                "printed C: Algorithm 1 with instances planned at their highest throughput, which no wait is part of",
                "no delay: Algorithm 1 without its cool-down",
                *found.notes,
            ]
        ),
    )


def _prices(rows: list[OptimalRow]) -> Table:
    table = columns("model", "optimum", "greedy", "no delay", "printed C", "tail", "greed", "averages")
    for row in rows:
        table.add_row(
            row.model,
            number(row.optimum.usd),
            number(row.greedy_usd),
            number(row.prompt_usd),
            number(row.printed_usd),
            number(row.tail.usd),
            number(row.price_of_greed, 3),
            number(row.price_of_averages, 3),
        )
    return table


def _verdict(found: Optimal) -> list[str]:
    greed, averages = ([getattr(row, of) for row in found.rows] for of in ("price_of_greed", "price_of_averages"))
    gap = max(plan.gap for row in found.rows for plan in (row.optimum, row.tail))
    seconds = max(row.seconds + row.tail_seconds for row in found.rows)
    return [
        f"The price of greed, greedy / optimum, is {min(greed):.3f} to {max(greed):.3f}.",
        f"The price of averages, tail / optimum, is {min(averages):.3f} to {max(averages):.3f}.",
        f"Optima are proven within {percent(gap, 2)}; the slowest model took {seconds:.1f} s for both.",
    ]


def optimal_json(found: Optimal) -> dict[str, Any]:
    return {
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


def _plan(plan: PaperPlan) -> dict[str, Any]:
    return {
        "usd": plan.usd,
        "bound_usd": plan.bound_usd,
        "gap": plan.gap,
        "solver": plan.solver,
        "limited": plan.limited,
    }
