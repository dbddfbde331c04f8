"""mark diff: the cost of a change, in dollars a month."""

from __future__ import annotations

import argparse
import sys

from mark.cli.arguments import file_or_stdout
from mark.cli.options import add_run_options, request_from
from mark.cli.output import cores, deliver, json_text, progress, write_file
from mark.cli.report_file import slo_code
from mark.domain.errors import BadInput
from mark.studies.executor import executor_for
from mark.studies.report.service_diff import service_diff_markdown, service_diff_report
from mark.studies.service_diff import service_diff


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate a service before and after a change on the same requests, and print the difference a month: a change "
        "of its SLO, catalogue, markets, instances, model, or any other line of its file."
    )
    parser.add_argument("service", metavar="OLD", help="shipped service or .toml file, as it is")
    parser.add_argument("after", metavar="NEW", help="the same, as it is to be")
    parser.add_argument("--trace", required=True, metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_run_options(parser, service="elsewhere")
    parser.add_argument(
        "--markdown", type=file_or_stdout("--markdown"), metavar="FILE", help="for a pull request; - is stdout"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.markdown == "-" == args.json:
        raise BadInput("stdout is one page: name a file for this or for --json", "--markdown", "-")
    with progress("simulating") as bar:
        found = service_diff(request_from(args, bar), args.after, executor=executor_for(cores()))
    if args.markdown == "-":
        sys.stdout.write(service_diff_markdown(found))
        if args.json:
            write_file(args.json, json_text(service_diff_report(found).data), "--json")
    else:
        deliver(service_diff_report(found), args.json)
        if args.markdown:
            write_file(args.markdown, service_diff_markdown(found), "--markdown")
    return slo_code(args, {"after": found.after})
