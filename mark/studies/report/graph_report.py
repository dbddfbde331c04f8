"""A trace of a pipeline: the graph, the stages that its queries visit, and how often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mark.studies.report.graph import drawn
from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.words import count, grouped, number, percent

if TYPE_CHECKING:
    from mark.config.pipeline_config import PipelineConfig
    from mark.domain.pipeline import Lineage
    from mark.planning.graphs.driver_trace import PipelineTrace


_HEADS = (
    *("stage", "comes after", ("queries", percent), ("calls\na query", number), ("fan-out\nmean", number)),
    ("max", lambda most: "-" if most is None else grouped(most)),
)


def trace_report(config: PipelineConfig, trace: PipelineTrace) -> Report:
    """Return the graph, the stages line by line, the visited sets, and notes."""
    pipeline, lineage = trace.pipeline, trace.lineage
    total = int(lineage.queries.sum())
    stages = [
        (
            stage.name,
            ", ".join(stage.after) or "-",
            lineage.shares[s],
            lineage.calls_per_query[s],
            *_fan_out(lineage, s),
        )
        for s, stage in enumerate(pipeline.stages)
    ]
    sets = [(", ".join(visited) or "none", queries, queries / total) for visited, queries in visited_sets(lineage)]
    of = "1 query" if total == 1 else f"{count(total)} queries"
    return Report(
        _json(config, trace),
        f"{config.name}: the graph of {config.driver}, traced on {of}",
        [
            Marked(""),
            *(Marked(f"{left} {name}") for left, name in zip(drawn(pipeline), pipeline.names, strict=True)),
            DataTable(_HEADS, stages),
            DataTable(("visited set", ("queries", grouped), ("share", percent)), sets),
        ],
        notes=trace_notes(trace),
    )


def _json(config: PipelineConfig, trace: PipelineTrace) -> dict[str, Any]:
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
