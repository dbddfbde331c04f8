"""The clairvoyant bound of a pipeline, shown in total and by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.bound_report import per_million, proven_json
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count, milliseconds, percent, usd

if TYPE_CHECKING:
    from mark.planning.bounds.pipeline_bound import PipelineBound
    from mark.studies.pipeline_bound_study import BoundedPipeline

_HEADS = (
    *("late queries allowed", ("at least", usd), ("instances", usd), ("functions", usd), ("$ per million", usd)),
    ("by functions", percent),
)
_STAGE_HEADS = (
    *("stage", ("calls", count), ("within ms", milliseconds), ("at least", usd), ("of the dollars", percent)),
    ("by functions", percent),
)


def pipeline_bound_report(service: str, bounded: BoundedPipeline) -> Report:
    both, within = (bounded.at_zero, bounded.within_slo), bounded.within_slo
    alone = "" if bounded.shared else "of instances that each host one stage "
    words = (
        f"No fleet {alone}costs less, however well it is planned."
        if within.usd is not None
        else "There is no way to answer enough of it in time."
    )
    stages = [
        (one.stage, one.calls, one.window_s * 1e3, one.usd, _share(one.usd, within.usd), one.function_share)
        for one in within.stages
    ]
    data = {
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
    return Report(
        data,
        f"The least possible bill of {bounded.config.name} for {count(bounded.queries)} queries, with perfect "
        "foresight",
        [
            DataTable(_HEADS, [_cells(bound, bounded.queries) for bound in both]),
            *([DataTable(_STAGE_HEADS, stages)] if within.usd is not None else []),
        ],
        [words],
        list(dict.fromkeys([*(bound.note for bound in both if bound.note), *bounded.notes])),
        read=bounded.read,
    )


def _share(amount_usd: float, of_usd: float | None) -> float | None:
    return amount_usd / of_usd if of_usd else None


def _cells(bound: PipelineBound, queries: float) -> list[Any]:
    parts = (None, None) if bound.usd is None else (bound.instance_usd, bound.function_usd)
    share = None if bound.usd is None else bound.function_share
    return [count(bound.late_allowed), bound.usd, *parts, per_million(bound.usd, queries), share]
