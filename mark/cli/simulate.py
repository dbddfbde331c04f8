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
from mark.studies.compare import open_named, run_one
from mark.studies.executor import executor_for
from mark.studies.next_day import next_day_of_run
from mark.studies.pipeline_run import simulate_pipeline
from mark.studies.report.next_day_report import with_next_day
from mark.studies.report.pipeline_run import pipeline_run_json, pipeline_run_table
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
        request = replace(request_from(args), explain=bool(args.report))
        result = run_one(request, bar)
    next_day = next_day_of_run(open_named(request), result)
    deliver(with_next_day(result.as_json(), next_day), args.json, lambda: simulate_table(result, next_day))
    results = {result.policy: result}
    if args.report:
        report(args, results, next_days={result.policy: next_day}, executor=executor_for(cores()))
    return slo_code(args, results)


def _pipeline(args: argparse.Namespace) -> int:
    refuse_service_options(args)
    # What a driver and its models print is none of the result.
    with progress("simulating") as bar, redirect_stdout(sys.stderr):
        request = request_from(args, bar)
        (found,) = simulate_pipeline(
            request, (request.policy,), lineage=args.lineage, queries=args.queries, answers=args.answers
        ).values()
    deliver(pipeline_run_json(found), args.json, lambda: pipeline_run_table(found))
    return 4 if args.fail_below_slo and not found.kept else 0
