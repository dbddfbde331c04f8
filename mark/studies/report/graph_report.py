"""A trace of a pipeline: the graph, the stages that its queries visit, and how often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mark.studies.report.graph import drawn
from mark.studies.report.layout import columns, page, small_print, text
from mark.studies.report.words import count, number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.config.pipeline_file import PipelineConfig
    from mark.domain.pipeline import Lineage
    from mark.planning.graphs.driver_trace import PipelineTrace


def trace_table(config: PipelineConfig, trace: PipelineTrace) -> RenderableType:
    """Return the graph, the stages line by line, the visited sets, and notes."""
    pipeline, lineage = trace.pipeline, trace.lineage
    total = int(lineage.queries.sum())
    stages = columns("stage", "comes after", "queries", "calls\na query", "fan-out\nmean", "max")
    for s, stage in enumerate(pipeline.stages):
        mean, most = _fan_out(lineage, s)
        stages.add_row(
            text(stage.name),
            text(", ".join(stage.after) or "-"),
            percent(lineage.shares[s]),
            number(lineage.calls_per_query[s]),
            number(mean),
            "-" if most is None else f"{most:,}",
        )
    sets = columns("visited set", "queries", "share")
    for visited, queries in visited_sets(lineage):
        sets.add_row(text(", ".join(visited) or "none"), f"{queries:,}", percent(queries / total))
    graph = [text(f"{left} {name}") for left, name in zip(drawn(pipeline), pipeline.names, strict=True)]
    of = "1 query" if total == 1 else f"{count(total)} queries"
    return page(
        text(f"{config.name}: the graph of {config.driver}, traced on {of}", "bold"),
        text(""),
        *graph,
        stages,
        sets,
        *small_print(trace_notes(trace))[1:],  # the table above ends in an empty line already
    )


def trace_json(config: PipelineConfig, trace: PipelineTrace) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    lineage = trace.lineage
    total = int(lineage.queries.sum())
    stages = []
    for s, stage in enumerate(trace.pipeline.stages):
        mean, most = _fan_out(lineage, s)
        stages.append(
            {
                "stage": stage.name,
                "model": stage.model,
                "after": list(stage.after),
                "share": lineage.shares[s],
                "calls_per_query": lineage.calls_per_query[s],
                "fan_out": {"mean": mean, "max": most},
                "repeated": stage.name in trace.repeated,
            }
        )
    return {
        "schema": 1,
        "pipeline": config.name,
        "driver": config.driver,
        "queries": total,
        "stages": stages,
        "visited_sets": [
            {"stages": list(visited), "queries": queries, "share": queries / total}
            for visited, queries in visited_sets(lineage)
        ],
        "patterns": [
            {"queries": queries, "calls": dict(zip(lineage.stages, calls, strict=True))}
            for queries, calls in zip(lineage.queries.tolist(), lineage.calls.tolist(), strict=True)
        ],
        "notes": trace_notes(trace),
    }


def visited_sets(lineage: Lineage) -> list[tuple[tuple[str, ...], int]]:
    """Return the sets of stages visited together with their numbers of queries, the most frequent first."""
    found: Counter[tuple[str, ...]] = Counter()
    for queries, calls in zip(lineage.queries.tolist(), lineage.calls.tolist(), strict=True):
        found[tuple(name for name, called in zip(lineage.stages, calls, strict=True) if called)] += queries
    return found.most_common()


def trace_notes(trace: PipelineTrace) -> list[str]:
    """Return the notes that a reader of the graph needs."""
    notes = [
        f"{stage} is called again for its own answer (line {line}): these calls count as fan-out, and follow each other"
        for stage, line in trace.repeated.items()
    ]
    if trace.unvisited:
        notes.append(f"no query calls {', '.join(trace.unvisited)}")
    return notes


def _fan_out(lineage: Lineage, stage: int) -> tuple[float | None, int | None]:
    """Return the mean and largest number of calls of a query that visits the stage; None without such a query."""
    calls = lineage.calls[:, stage]
    visits = lineage.queries[calls > 0].sum()
    if not visits:
        return None, None
    return float(lineage.queries @ calls / visits), int(calls.max())
