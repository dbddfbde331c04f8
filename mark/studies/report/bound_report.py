"""The clairvoyant lower bound, for no late request and for all that the SLO allows; of a pipeline by stage, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count, milliseconds, percent, usd

if TYPE_CHECKING:
    from mark.planning.bounds.lower_bound import Bound
    from mark.planning.bounds.pipeline_bound import PipelineBound
    from mark.simulation.bounding import BoundedPart
    from mark.studies.pipeline_bound_study import BoundedPipeline

_HEADS = (
    *("late\nallowed", ("at\nleast", usd), ("fluid", usd), ("whole", usd), ("a\nplan", usd), ("functions", usd)),
    *(("$ per\nmillion", usd), ("by func-\ntions", percent)),
)


def bound_report(service: str, trace: str, found: BoundedPart, certificate: Mapping[str, Any] | None = None) -> Report:
    """Return the bound. `certificate`: the file, the dollars that it proves and its digest, if one was written."""
    both, requests = (found.at_zero, found.within_slo), found.requests
    words = (
        "There is no way to answer all of it in time."
        if found.at_zero.usd is None
        else "No policy that answers every request pays less, however well it forecasts."
    )
    told = [words, *_gap_words(found.within_slo)]
    data = {
        "schema": 1,
        "service": service,
        "trace": {"name": trace, "requests": requests, "read": found.read},
        "bound_usd": found.at_zero.usd,
        "bounds": [
            proven_json(one)
            | {"fluid_usd": one.fluid_usd, "whole_usd": one.whole_usd, "feasible_usd": one.feasible_usd}
            for one in both
        ],
    }
    if certificate is not None:
        data["certificate"] = certificate
        proven = f"{certificate['file']} proves {usd(certificate['usd'])} by blocks of whole instances"
        told.append(f"Certificate: {proven}; balancer, moved data and commitments come on top.")
    return Report(
        data,
        f"The least possible bill for {count(requests)} requests, with perfect foresight",
        [DataTable(_HEADS, [_cells(bound, requests) for bound in both])],
        told,
        list(dict.fromkeys(bound.note for bound in both if bound.note)),
        read=found.read,
    )


def _cells(bound: Bound, requests: int) -> list[Any]:
    by_function, share = (None, None) if bound.usd is None else (bound.function_usd, bound.function_share)
    amounts = (bound.usd, bound.fluid_usd, bound.whole_usd, bound.feasible_usd, by_function)
    return [count(bound.late_allowed), *amounts, per_million(bound.usd, requests), share]


def per_million(amount_usd: float | None, requests: float) -> float | None:
    return None if amount_usd is None or not requests else amount_usd / requests * 1e6


def _gap_words(bound: Bound) -> list[str]:
    """Return how much a better proof by the same rules could add, if a plan is known."""
    if bound.usd is None or bound.feasible_usd is None or not bound.usd > 0.0:
        return []
    return [
        f"A plan of whole instances that knows every arrival costs {usd(bound.feasible_usd)}, "
        f"{percent(bound.feasible_usd / bound.usd - 1.0)} more. The least "
        "possible bill lies between the bound and this plan."
    ]


def proven_json(bound: Bound | PipelineBound) -> dict[str, Any]:
    """Return a bound as JSON: a service's, or a pipeline's without its stages."""
    return {
        "late_allowed": bound.late_allowed,
        "usd": bound.usd,
        "instance_usd": bound.instance_usd,
        "function_usd": bound.function_usd,
        "function_share": bound.function_share,
        "bin_s": bound.bin_s,
        "note": bound.note,
    }


_PIPELINE_HEADS = (
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
            DataTable(_PIPELINE_HEADS, [_pipeline_cells(bound, bounded.queries) for bound in both]),
            *([DataTable(_STAGE_HEADS, stages)] if within.usd is not None else []),
        ],
        [words],
        list(dict.fromkeys([*(bound.note for bound in both if bound.note), *bounded.notes])),
        read=bounded.read,
    )


def _share(amount_usd: float, of_usd: float | None) -> float | None:
    return amount_usd / of_usd if of_usd else None


def _pipeline_cells(bound: PipelineBound, queries: float) -> list[Any]:
    parts = (None, None) if bound.usd is None else (bound.instance_usd, bound.function_usd)
    share = None if bound.usd is None else bound.function_share
    return [count(bound.late_allowed), bound.usd, *parts, per_million(bound.usd, queries), share]
