"""Lineage files: CSV with a row for each pattern of calls, and the columns `queries` and one for each stage."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import QUERIES
from mark.domain.cells import Row, read_rows, read_text
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage
from mark.selection.settings import SPLIT

# Limits of a stage's calls by one query, as in a trace, and of queries: far beyond any sample, and exact in any type.
MOST_CALLS = 10_000
_MOST = 10**15


def lineage_csv(lineage: Lineage) -> str:
    """Return the text of the file that `load_lineage` reads."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([QUERIES, *lineage.stages])
    for queries, calls in zip(lineage.queries.tolist(), lineage.calls.tolist(), strict=True):
        rows.writerow([queries, *calls])
    return text.getvalue()


def load_lineage(file: str, names: Sequence[str] | None = None) -> Lineage:
    """Read the joint law of calls; stages in the order of the file's columns, or of `names`, which are all of them.

    Raises BadInput for no stage, no row, a cell that is not a count, a repeated pattern, or other stages.
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
    found = Lineage(stages, np.array(list(seen), dtype=np.int64), np.array(queries, dtype=np.int64))
    if names is None:
        return found
    try:
        return found.of_stages(names)
    except BadInput as error:
        raise BadInput(error.what, file, error.value) from None


def calls_per_query(pipeline: PipelineConfig) -> list[float] | None:
    """Return the mean calls of each stage by the file's lineage, else by shares; None if a driver decides.

    Without a lineage each candidate of a selection counts as called by every query, except for a fixed split. Raises
    BadInput for a lineage that cannot be used.
    """
    if pipeline.lineage_file is None:
        return None if pipeline.driver else _shares(pipeline)
    names = [stage.name for stage in pipeline.stages]
    calls: list[float] = load_lineage(pipeline.lineage_file, names).calls_per_query.tolist()
    return calls


def called_by_all(pipeline: PipelineConfig) -> list[bool]:
    """Return for each stage whether the file says that all queries call it equally often; False if a driver decides.

    Raises BadInput for a lineage that cannot be used.
    """
    if pipeline.lineage_file is None:
        return [pipeline.driver is None and share == 1.0 for share in _shares(pipeline)]
    found: list[bool] = load_lineage(pipeline.lineage_file, pipeline.names).by_all.tolist()
    return found


def _shares(pipeline: PipelineConfig) -> list[float]:
    """Return the largest share of the queries that may call each stage."""
    selection = pipeline.selection
    # A champion's guard may switch candidates off, and the others get their queries.
    if selection is None or selection.policy != SPLIT or selection.champion is not None:
        return [stage.share for stage in pipeline.stages]
    even = 1.0 / len(pipeline.stages)
    weights = selection.weights or (even,) * len(pipeline.stages)
    return [(1.0 - selection.explores) * weight + selection.explores * even for weight in weights]


def _count(row: Row, column: str, least: int = 0, most: int = _MOST) -> int:
    count = row.whole(column, least=least)
    if count > most:
        raise BadInput(f"must be {most:,} at most", f"{row.where} {column}", row.cells[column])
    return count
