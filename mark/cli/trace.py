"""mark trace info: summarise a trace."""

from __future__ import annotations

import argparse

from mark.cli.arguments import add_json
from mark.cli.output import deliver
from mark.cli.reading import add_reading, reading
from mark.studies.report.catalog_report import trace_report
from mark.traffic.traces.info import trace_info
from mark.traffic.traces.reader import open_trace


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    info = actions.add_parser("info", help="length, rates, gaps and burstiness of a trace", allow_abbrev=False)
    info.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_reading(info, sized=True)
    add_json(info)
    info.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    info = trace_info(open_trace(args.trace, **reading(args)))
    deliver(trace_report(info), args.json)
    return 0
