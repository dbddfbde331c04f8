"""mark simulate: one policy on one trace, of a service or of a pipeline."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import replace

from mark.cli.options import (
    add_no_bound,
    add_pipeline_options,
    add_run_options,
    refuse_pipeline_options,
    refuse_service_options,
    request_from,
)
from mark.cli.output import cores, deliver, progress
from mark.cli.report_file import report, slo_code
from mark.config.pipeline_file import names_pipeline
from mark.planning.graphs.pipeline_policies import PIPELINE_POLICIES
from mark.planning.policies.names import split_policy
from mark.simulation.run import simulate
from mark.studies.executor import executor_for
from mark.studies.report.terminal_tables import simulate_table


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate one policy on a trace, request by request: bill, SLO, latency, regret. "
        f"Of a pipeline, by stage: {', '.join(PIPELINE_POLICIES)}."
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_pipeline_options(parser)
    add_run_options(parser)
    add_no_bound(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if names_pipeline(args.service):
        return _pipeline(args)
    refuse_pipeline_options(args)
    args.policy, args.predictor = split_policy(args.policy or "mark", args.predictor)
    with progress("simulating") as bar:
        result = simulate(replace(request_from(args, bar), explain=bool(args.report)))
    deliver(result.as_json(), args.json, lambda: simulate_table(result))
    results = {result.policy: result}
    if args.report:
        report(args, results, executor=executor_for(cores()))
    return slo_code(args, results)


def _pipeline(args: argparse.Namespace) -> int:
    # here: a service needs none of it
    from mark.studies.pipeline_run import simulate_pipeline
    from mark.studies.report.pipeline_run import pipeline_run_json, pipeline_run_table

    refuse_service_options(args)
    # What a driver and its models print is none of the result.
    with progress("simulating") as bar, redirect_stdout(sys.stderr):
        request = request_from(args, bar)
        (found,) = simulate_pipeline(
            request, (request.policy,), lineage=args.lineage, queries=args.queries, answers=args.answers
        ).values()
    deliver(pipeline_run_json(found), args.json, lambda: pipeline_run_table(found))
    return 4 if args.fail_below_slo and not found.kept else 0
