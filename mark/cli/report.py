"""What simulate and compare do with --report and --fail-below-slo."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mark.cli.options import request_from
from mark.cli.output import progress, show, write_file

if TYPE_CHECKING:
    from mark.simulation.request import RunRequest
    from mark.simulation.result import SimulationResult


def report(args: argparse.Namespace, results: Mapping[str, SimulationResult]) -> None:
    """Run the sensitivity table, print it (unless stdout belongs to the JSON) and write the page."""
    from mark.reporting.report import render_report
    from mark.reporting.sensitivity import VARIATIONS, sensitivity
    from mark.reporting.table import sensitivity_table
    from mark.simulation.run import simulate, split_policy

    requests = {}
    for name in results:
        policy, predictor = split_policy(name, args.predictor)
        requests[name] = replace(request_from(args), policy=policy, predictor=predictor)
    runs, done = len(VARIATIONS) * len(requests), 0
    with progress("what if") as bar:

        def run(request: RunRequest) -> SimulationResult:
            nonlocal done
            before = done
            share = None if bar is None else lambda part: bar((before + part) / runs)
            result = simulate(replace(request, progress=share))
            done += 1
            return result

        rows = sensitivity(requests, results, run)
    if args.json != "-":
        show(sensitivity_table(rows))
    write_file(args.report, render_report(results, rows), "--report")


def slo_code(args: argparse.Namespace, results: Mapping[str, SimulationResult]) -> int:
    """4 when somebody asked and an SLO was missed, else 0."""
    from mark.reporting.takeaway import kept

    return 4 if args.fail_below_slo and any(kept(result) is False for result in results.values()) else 0
