"""The clairvoyant lower bound, shown for no late request and for all late requests that the SLO allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, small_print, text, what_was_read
from mark.studies.report.words import count, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.planning.bounds.lower_bound import Bound
    from mark.planning.bounds.pipeline_bound import PipelineBound


def bound_table(
    at_zero: Bound, within_slo: Bound, requests: int, read: str = "", certificate: str = ""
) -> RenderableType:
    """Return the table. `certificate`: a sentence about the certificate that was written."""
    table = columns(
        "late\nallowed", "at\nleast", "fluid", "whole", "a\nplan", "functions", "$ per\nmillion", "by func-\ntions"
    )
    for bound in (at_zero, within_slo):
        known = bound.usd is not None
        table.add_row(
            count(bound.late_allowed),
            usd(bound.usd),
            usd(bound.fluid_usd),
            usd(bound.whole_usd),
            usd(bound.feasible_usd),
            usd(bound.function_usd if known else None),
            usd(bound.usd / requests * 1e6 if bound.usd is not None and requests else None),
            percent(bound.function_share if known else None),
        )
    words = (
        "There is no way to answer all of it in time."
        if at_zero.usd is None
        else "No policy that answers every request pays less, however well it forecasts."
    )
    return page(
        *what_was_read(read),
        text(f"The least possible bill for {count(requests)} requests, with perfect foresight", "bold"),
        table,
        *sentences([words, *_gap_words(within_slo), *([f"Certificate: {certificate}"] if certificate else [])]),
        *small_print(dict.fromkeys(bound.note for bound in (at_zero, within_slo) if bound.note)),
    )


def _gap_words(bound: Bound) -> list[str]:
    """Return how much a better proof by the same rules could add, if a plan is known."""
    if bound.usd is None or bound.feasible_usd is None or not bound.usd > 0.0:
        return []
    return [
        f"A plan of whole instances that knows every arrival costs {usd(bound.feasible_usd)}, "
        f"{percent(bound.feasible_usd / bound.usd - 1.0)} more: no proof by these rules exceeds it."
    ]


def bound_json(
    service: str,
    trace: str,
    requests: int,
    at_zero: Bound,
    within_slo: Bound,
    read: str = "",
    certificate: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON. `certificate`: the file, the dollars that it proves and its digest, if one was written."""
    return {
        "schema": 1,
        "service": service,
        "trace": {"name": trace, "requests": requests, "read": read},
        "bound_usd": at_zero.usd,
        "bounds": [proven_json(bound) | _whole_json(bound) for bound in (at_zero, within_slo)],
    } | ({"certificate": certificate} if certificate else {})


def _whole_json(bound: Bound) -> dict[str, Any]:
    return {"fluid_usd": bound.fluid_usd, "whole_usd": bound.whole_usd, "feasible_usd": bound.feasible_usd}


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
