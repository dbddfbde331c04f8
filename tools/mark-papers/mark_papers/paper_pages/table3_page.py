"""Table 3 of the MArk paper beside ours: dollars per million requests on bursting t2 instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, text
from mark.studies.report.words import number
from mark_papers.paper.table3 import INSTANCES, Table3Row

if TYPE_CHECKING:
    from rich.console import RenderableType

# model -> $ per million requests by type, as printed.
PAPER: dict[str, tuple[float, ...]] = {
    "inception-v3": (0.87, 1.71, 1.81, 3.75),
    "inception-resnet-v2": (1.94, 3.79, 4.01, 7.96),
    "opennmt-ende": (13.85, 24.83, 28.36, 56.71),
}


def table3_table(rows: Sequence[Table3Row]) -> RenderableType:
    table = columns("model", "on", "ms", "$ per million", "paper", "off by", "lasts", "then $")
    for row in rows:
        table.add_row(
            row.model,
            row.instance,
            number(row.latency_ms, 0),
            number(row.usd_per_million),
            number(_paper_usd(row)),
            f"{row.usd_per_million / _paper_usd(row) - 1.0:+.1%}",
            f"{row.burst_min:.0f} min",
            number(row.usd_per_million_after),
        )
    return page(
        text("Table 3 of the paper: the price of a million requests on burstables", "bold"),
        table,
        *sentences(
            [
                "Bursting, which the credits of a launch allow for the minutes shown, and at the baseline after that: "
                "for a bridge they are the cheapest, for a day they cost more than c5.large."
            ]
        ),
    )


def table3_json(rows: Sequence[Table3Row]) -> dict[str, Any]:
    return {
        "schema": 1,
        "table": "table3",
        "rows": [{**row._asdict(), "paper_usd_per_million": _paper_usd(row)} for row in rows],
    }


def _paper_usd(row: Table3Row) -> float:
    return PAPER[row.model][INSTANCES.index(row.instance)]
