"""Table 2 of the MArk paper beside ours: dollars per million on a c5.large, in a container, on a 3 GB function."""

from __future__ import annotations

from collections.abc import Sequence

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import number, number_0, number_1
from mark_papers.paper.table2 import CONTAINER, FUNCTION, INSTANCE, Table2Row

# model -> resource -> ($ per million requests, mean ms), as printed.
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "inception-v3": {INSTANCE: (5.0, 210.0), CONTAINER: (9.17, 217.0), FUNCTION: (19.0, 380.0)},
    "inception-resnet-v2": {INSTANCE: (9.3, 398.0), CONTAINER: (16.4, 411.0), FUNCTION: (39.3, 785.0)},
    "opennmt-ende": {INSTANCE: (51.5, 2180.0), CONTAINER: (96.3, 2280.0), FUNCTION: (155.0, 3100.0)},
}


_HEADS = (
    *("model", "on", ("$ per million", number), ("paper", number_1), ("off by", "{:+.1%}".format)),
    *(("ms", number_0), ("paper's ms", number_0)),
)


def table2_report(rows: Sequence[Table2Row]) -> Report:
    data = {
        "schema": 1,
        "table": "table2",
        "rows": [
            {
                **row._asdict(),
                "paper_usd_per_million": _paper(row)[0],
                "paper_latency_ms": _paper(row)[1],
            }
            for row in rows
        ],
    }
    cells = []
    for row in rows:
        paper_usd, paper_ms = _paper(row)
        off = row.usd_per_million / paper_usd - 1.0
        cells.append((row.model, row.resource, row.usd_per_million, paper_usd, off, row.latency_ms, paper_ms))
    said = (
        "Instances fully used, functions warm; the paper counts 3 GB x time, without billing steps and the fee per "
        "request."
    )
    return Report(data, "Table 2 of the paper: the price of a million requests", [DataTable(_HEADS, cells)], [said])


def _paper(row: Table2Row) -> tuple[float, float]:
    return PAPER[row.model][row.resource if row.resource in (INSTANCE, CONTAINER) else FUNCTION]
