"""Which policies kept the promise in every case of a figure, in words."""

from __future__ import annotations

from collections.abc import Mapping

from mark.simulation.result import SimulationResult
from mark.studies.report.takeaway import listed
from mark.studies.report.words import percent


def promises(runs: Mapping[str, Mapping[str, SimulationResult]]) -> list[str]:
    """Return the policies that kept the promise in every case, and the cases that others missed, by name and case."""
    missed = {
        name: [f"{case} ({percent(run.slo_result.attainment)})" for case, run in cases.items() if run.kept is False]
        for name, cases in runs.items()
    }
    able = [name for name, cases in missed.items() if not cases]
    return [
        *([f"{listed(able)} kept the promise in every case."] if able else []),
        *(f"{name} missed the promise for {listed(cases)}." for name, cases in missed.items() if cases),
    ]
