"""Table 3 of the MArk paper beside ours: dollars per million requests on bursting t2 instances."""

from __future__ import annotations

from collections.abc import Sequence

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import number, number_0
from mark_papers.paper.table3 import INSTANCES, Table3Row

# model -> $ per million requests by type, as printed.
PAPER: dict[str, tuple[float, ...]] = {
    "inception-v3": (0.87, 1.71, 1.81, 3.75),
    "inception-resnet-v2": (1.94, 3.79, 4.01, 7.96),
    "opennmt-ende": (13.85, 24.83, 28.36, 56.71),
}


_HEADS = (
    *("model", "on", ("ms", number_0), ("$ per million", number), ("paper", number), ("off by", "{:+.1%}".format)),
    *(("lasts", "{:.0f} min".format), ("then $", number)),
)


def table3_report(rows: Sequence[Table3Row]) -> Report:
    data = {
        "schema": 1,
        "table": "table3",
        "rows": [{**row._asdict(), "paper_usd_per_million": _paper_usd(row)} for row in rows],
    }
    cells = []
    for row in rows:
        paper_usd = _paper_usd(row)
        dollars = (row.usd_per_million, paper_usd, row.usd_per_million / paper_usd - 1.0)
        cells.append((row.model, row.instance, row.latency_ms, *dollars, row.burst_min, row.usd_per_million_after))
    said = (
        "Bursting, which the credits of a launch allow for the minutes shown, and at the baseline after that: "
        "for a bridge they are the cheapest, for a day they cost more than c5.large."
    )
    title = "Table 3 of the paper: the price of a million requests on burstables"
    return Report(data, title, [DataTable(_HEADS, cells)], [said])


def _paper_usd(row: Table3Row) -> float:
    return PAPER[row.model][INSTANCES.index(row.instance)]
