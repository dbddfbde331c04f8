"""mark pipeline trace: the models that a driver calls, their order and frequency."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from mark.cli.arguments import add_json, out_file
from mark.cli.output import deliver, progress, write_file
from mark.config.pipeline_file import load_pipeline
from mark.planning.graphs.lineage_file import lineage_csv
from mark.planning.graphs.trace_file import trace_file
from mark.studies.report.graph_report import trace_report


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    trace = actions.add_parser(
        "trace",
        help="the graph of a driver, its visits and fan-out",
        description="Run a pipeline's driver with its models on sample queries: which stages it calls, which wait for "
        "which, which are visited together, how often. Nothing depends on how long a model takes.",
        allow_abbrev=False,
    )
    trace.add_argument("service", metavar="SERVICE", help="pipeline file: [service] pipeline names its driver")
    trace.add_argument("--queries", required=True, metavar="FILE", help="JSON Lines, a query a line")
    trace.add_argument(
        "--out", type=out_file, metavar="FILE.csv", help="the lineage: a row a pattern of calls, a column a stage"
    )
    add_json(trace)
    trace.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config = load_pipeline(args.service)
    config.check_uninsured("a trace of a pipeline")
    # The output of the driver and its models must not mix with the result.
    with progress("tracing") as bar, redirect_stdout(sys.stderr):
        found = trace_file(config, args.queries, bar)
    deliver(trace_report(config, found), args.json)
    if args.out is not None:
        write_file(args.out, lineage_csv(found.lineage), "--out")
    return 0
