"""mark bound: the clairvoyant lower bound of the bill."""

from __future__ import annotations

import argparse

from mark.cli.options import add_run_options, request_from
from mark.cli.output import deliver, progress
from mark.reporting.bound import bound_json, bound_table
from mark.simulation.bounding import bound


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "A proven lower bound of the bill of every policy that answers all of the requests."
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_run_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with progress("bounding") as bar:
        at_zero, within_slo, requests = bound(request_from(args, bar))
    data = bound_json(args.service, args.trace, requests, at_zero, within_slo)
    deliver(data, args.json, lambda: bound_table(at_zero, within_slo, requests))
    return 0
