"""The readings of tables whose only information is their header: those of `cases/headers.tsv`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mark.domain.errors import BadInput
from mark.traffic.traces.exports import Export
from mark.traffic.traces.table_files import RECOGNISED, TableColumns, trace_of_table

FILE = Path(__file__).parent / "cases" / "headers.tsv"
ROWS, STEP_S = 40, 60
COUNTS = [1000 + 37 * i % 101 for i in range(ROWS)]
SUM = sum(COUNTS)
SO_FAR = [900_000 + sum(COUNTS[:i]) for i in range(ROWS)]
RATES = {"/s": 60.0, "/10s": 6.0, "/min": 1.0, "/5min": 0.2, "/h": 1 / 60, "/day": 1 / 1440}
TIMES = {"row": 1.0, "k": 1e3, "M": 1e6, "k/s": 6e4, "M/s": 6e7} | RATES


class Header(NamedTuple):
    tool: str
    columns: tuple[str, ...]
    reading: str

    @property
    def requests(self) -> float | None:
        """The requests of the table; None if only a question is right."""
        if self.reading == "counter":
            return float(SO_FAR[-1] - SO_FAR[0])
        return None if self.reading == "ask" else TIMES[self.reading] * SUM


def headers() -> list[Header]:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    cells = [line.split("\t") for line in lines]
    return [Header(tool, tuple(columns.split(";")), reading) for tool, columns, reading in cells]


def read(header: Header, said: TableColumns = RECOGNISED) -> float | str:
    """Return the requests read from a table with this header, or the refusal."""
    first, *others = header.columns
    columns: dict[str, list[str]] = {"Time": [str(1_777_629_600 + STEP_S * i) for i in range(ROWS)]}
    columns[first] = [str(n) for n in (SO_FAR if header.reading == "counter" else COUNTS)]
    columns |= {name: [str(7 + i * 5 % 3) for i in range(ROWS)] for name in others}
    export = Export(columns, "text with commas", lines=range(2, ROWS + 2))
    try:
        trace = trace_of_table(export, "traffic", "traffic", said)
    except BadInput as refused:
        return str(refused)
    return trace.total_counts(0.0, trace.duration_s) if trace is not None else "no table"


def outcome(header: Header, said: TableColumns = RECOGNISED) -> str:
    """Return right, asked (where one reading is possible) or wrong."""
    found, wanted = read(header, said), header.requests
    if isinstance(found, str):
        return "right" if wanted is None else "asked"
    return "right" if wanted is not None and abs(found - wanted) <= 1e-4 * wanted else "wrong"
