"""mark simulate: one policy on one trace."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mark.cli.options import add_run_options, request_from
from mark.cli.output import cores, deliver, progress
from mark.cli.report import report, slo_code
from mark.planning.policies.names import split_policy
from mark.reporting.table import simulate_table
from mark.simulation.run import simulate
from mark.studies.executor import executor_for


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Simulate one policy on a trace, request by request: bill, SLO, latency, regret."
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_run_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    args.policy, args.predictor = split_policy(args.policy or "mark", args.predictor)
    with progress("simulating") as bar:
        result = simulate(replace(request_from(args, bar), explain=bool(args.report)))
    deliver(result.as_json(), args.json, lambda: simulate_table(result))
    results = {result.policy: result}
    if args.report:
        report(args, results, executor=executor_for(cores()))
    return slo_code(args, results)
