"""The options --report and --fail-below-slo of simulate and compare."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mark.cli.options import request_from
from mark.cli.output import progress, show, write_file
from mark.planning.next_day import NextDay
from mark.planning.policies.names import split_policy
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.attribution import Attribution
from mark.studies.compare import run_all
from mark.studies.executor import StudyExecutor
from mark.studies.promise_outlook import RunOutlook
from mark.studies.report.comparison_page import render_report
from mark.studies.report.sensitivity import sensitivity
from mark.studies.report.takeaway import kept
from mark.studies.report.terminal_tables import sensitivity_table


def report(
    args: argparse.Namespace,
    results: Mapping[str, SimulationResult],
    attribution: Mapping[str, Attribution] | None = None,
    outlook: RunOutlook | None = None,
    next_days: Mapping[str, NextDay | None] = MappingProxyType({}),
    *,
    executor: StudyExecutor,
) -> None:
    """Run the sensitivity table, print it (unless stdout belongs to the JSON) and write the page."""
    requests = {}
    for name in results:
        policy, predictor = split_policy(name, args.predictor)
        requests[name] = replace(request_from(args), policy=policy, predictor=predictor)
    with progress("scenario") as bar:

        def run(changed: Sequence[RunRequest]) -> list[SimulationResult]:
            return run_all(changed, executor=executor, progress=bar)

        rows = sensitivity(requests, results, run)
    if rows and args.json != "-":
        show(sensitivity_table(rows))
    write_file(args.report, render_report(results, rows, attribution, outlook, next_days), "--report")


def slo_code(args: argparse.Namespace, results: Mapping[str, SimulationResult]) -> int:
    """Return 4 with --fail-below-slo if an SLO was missed, otherwise 0."""
    return 4 if args.fail_below_slo and any(kept(result) is False for result in results.values()) else 0
