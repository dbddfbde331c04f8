"""The clairvoyant bound of a pipeline, shown in total and by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.bound_report import proven_json
from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.words import count, milliseconds, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from mark.planning.bounds.pipeline_bound import PipelineBound
    from mark.studies.pipeline_bound_study import BoundedPipeline


def pipeline_bound_table(bounded: BoundedPipeline) -> RenderableType:
    both = bounded.at_zero, bounded.within_slo
    table = columns("late queries allowed", "at least", "instances", "functions", "$ per million", "by functions")
    for bound in both:
        known = bound.usd is not None
        table.add_row(
            count(bound.late_allowed),
            usd(bound.usd),
            usd(bound.instance_usd if known else None),
            usd(bound.function_usd if known else None),
            usd(bound.usd / bounded.queries * 1e6 if bound.usd is not None and bounded.queries else None),
            percent(bound.function_share if known else None),
        )
    alone = "" if bounded.shared else "of instances that each host one stage "
    words = (
        f"No fleet {alone}costs less, however well it is planned."
        if bounded.within_slo.usd is not None
        else "There is no way to answer enough of it in time."
    )
    title = (
        f"The least possible bill of {bounded.config.name} for {count(bounded.queries)} queries, with perfect foresight"
    )
    return page(
        *what_was_read(bounded.read),
        text(title, "bold"),
        table,
        *([_stages(bounded.within_slo)] if bounded.within_slo.usd is not None else []),
        *sentences([words]),
        *small_print(dict.fromkeys([*(bound.note for bound in both if bound.note), *bounded.notes])),
    )


def pipeline_bound_json(service: str, bounded: BoundedPipeline) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    return {
        "schema": 1,
        "service": service,
        "trace": {"name": bounded.trace, "requests": bounded.queries, "read": bounded.read},
        "shared": bounded.shared,
        "bound_usd": bounded.at_zero.usd,
        "bounds": [
            {
                **proven_json(bound),
                "stages": [
                    {
                        "stage": stage.stage,
                        "calls": stage.calls,
                        "window_ms": stage.window_s * 1e3,
                        "bin_s": stage.bin_s,
                        "usd": stage.usd,
                        "instance_usd": stage.instance_usd,
                        "function_usd": stage.function_usd,
                        "function_share": stage.function_share,
                    }
                    for stage in bound.stages
                ],
            }
            for bound in (bounded.at_zero, bounded.within_slo)
        ],
        "notes": list(bounded.notes),
    }


def _stages(bound: PipelineBound) -> Table:
    table = columns("stage", "calls", "within ms", "at least", "of the dollars", "by functions")
    for stage in bound.stages:
        table.add_row(
            text(stage.stage),
            count(stage.calls),
            milliseconds(stage.window_s * 1e3),
            usd(stage.usd),
            percent(stage.usd / bound.usd if bound.usd else None),
            percent(stage.function_share),
        )
    return table
