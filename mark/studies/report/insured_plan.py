"""The fleets of a service with parity models for the terminal and as JSON: the plan of each stage, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.explain import Explanation, explain, plan_table
from mark.studies.report.layout import page, small_print, text
from mark.studies.report.words import usd

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.studies.insured_plan import InsuredPlan


def insured_plan_json(found: InsuredPlan) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    return {
        "schema": 1,
        "service": found.config.name,
        "at_s": found.at_s,
        "usd_per_hour": found.usd_per_hour,
        "stages": {name: one.as_json() for name, one in _explained(found).items()},
        "notes": list(found.notes),
    }


def insured_plan_table(found: InsuredPlan) -> RenderableType:
    """Return the plans stage by stage."""
    return page(
        text(f"{found.config.name}: {usd(found.usd_per_hour)} an hour for all stages", "bold"),
        *(plan_table(one) for one in _explained(found).values()),
        *small_print(found.notes),
    )


def _explained(found: InsuredPlan) -> dict[str, Explanation]:
    return {
        name: explain(planned.plan, planned.context, found.at_s, read=found.read)
        for name, planned in found.stages.items()
    }
