"""The fleets of a service with parity models: the plan of each stage, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mark.studies.report.explain import explain, plan_report
from mark.studies.report.report import Marked, Report
from mark.studies.report.words import usd

if TYPE_CHECKING:
    from mark.studies.insured_plan import InsuredPlan


def insured_plan_report(found: InsuredPlan) -> Report:
    """Return the plans stage by stage."""
    stages = {
        name: plan_report(explain(planned.plan, planned.context, found.at_s, read=found.read))
        for name, planned in found.stages.items()
    }
    parts = []
    for one in stages.values():
        parts += [Marked(one.headline, "strong"), *one.parts]
        parts += [Marked(""), *(Marked(f"note: {note}", "faint") for note in one.notes)]
    return Report(
        {
            "schema": 1,
            "service": found.config.name,
            "at_s": found.at_s,
            "usd_per_hour": found.usd_per_hour,
            "stages": {name: one.data for name, one in stages.items()},
            "notes": list(found.notes),
        },
        f"{found.config.name}: {usd(found.usd_per_hour)} an hour for all stages",
        parts,
        notes=found.notes,
        read=found.read,
    )
