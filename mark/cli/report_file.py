"""The options --report and --fail-below-slo of simulate and compare."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mark.cli.options import request_from
from mark.cli.output import progress, show, write_file
from mark.planning.policies.names import split_policy
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import run_all
from mark.studies.executor import StudyExecutor
from mark.studies.report.compare_report import compare_page, sensitivity_table
from mark.studies.report.htmlpage import html_of
from mark.studies.report.report import Report
from mark.studies.report.sensitivity import sensitivity


def report(
    args: argparse.Namespace, compared: Report, results: Mapping[str, SimulationResult], *, executor: StudyExecutor
) -> None:
    """Run the sensitivity table, print it (unless stdout belongs to the JSON) and write the page of `compared`."""
    requests = {}
    for name in results:
        policy, predictor = split_policy(name, args.predictor)
        requests[name] = replace(request_from(args), policy=policy, predictor=predictor)
    with progress("repeating with other assumptions") as bar:

        def run(changed: Sequence[RunRequest]) -> list[SimulationResult]:
            return run_all(changed, executor=executor, progress=bar)

        rows = sensitivity(requests, results, run)
    if rows and args.json != "-":
        title = "If these assumptions are wrong: each line is a run of its own"
        show(Report({}, title, [sensitivity_table(rows)]))
    write_file(args.report, html_of(compare_page(compared, results, rows)), "--report")


def slo_code(args: argparse.Namespace, results: Mapping[str, SimulationResult]) -> int:
    """Return 4 with --fail-below-slo if an SLO was missed, otherwise 0."""
    return 4 if args.fail_below_slo and any(result.kept is False for result in results.values()) else 0
