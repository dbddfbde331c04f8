"""Lineage files: CSV, a row for each pattern of calls, `queries` and one column for each stage."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import numpy as np

from mark.config.pipeline_file import QUERIES
from mark.domain.cells import Row, read_rows, read_text
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage

# Of calls of a stage by one query, as in a trace; and of queries: far beyond any sample, whole as any kind of number.
MOST_CALLS = 10_000
_MOST = 10**15


def lineage_csv(lineage: Lineage) -> str:
    """The text of the file that `load_lineage` reads."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([QUERIES, *lineage.stages])
    for queries, calls in zip(lineage.queries.tolist(), lineage.calls.tolist(), strict=True):
        rows.writerow([queries, *calls])
    return text.getvalue()


def load_lineage(file: str) -> Lineage:
    """The joint law of calls in a file; stages in the order of its columns.

    Raises BadInput for no stage, no row, a cell that is no count, or a pattern that stands there twice.
    """
    path = Path(file)
    header = [cell.strip() for cell in next(csv.reader([read_text(path).partition("\n")[0]]), [])]
    stages = tuple(name for name in header if name != QUERIES)
    if header == [QUERIES]:
        raise BadInput("has no column of a stage", f"{file}:1")
    queries: list[int] = []
    seen: dict[tuple[int, ...], str] = {}
    for row in read_rows(path, [QUERIES], stages):
        queries.append(_count(row, QUERIES, least=1))
        calls = tuple(_count(row, stage, most=MOST_CALLS) for stage in stages)
        if calls in seen:
            raise BadInput(f"the same calls as in {seen[calls]}", row.where)
        seen[calls] = row.where
    if not queries:
        raise BadInput("has no row", file)
    return Lineage(stages, np.array(list(seen), dtype=np.int64), np.array(queries, dtype=np.int64))


def _count(row: Row, column: str, least: int = 0, most: int = _MOST) -> int:
    count = row.whole(column, least=least)
    if count > most:
        raise BadInput(f"must be {most:,} at most", f"{row.where} {column}", row.cells[column])
    return count
