"""mark reconcile: a past period beside its invoice, and the bills of mark and other policies for it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mark.cli.arguments import Listed, field_value
from mark.cli.executors import add_executor, executor_from
from mark.cli.options import add_run_options, policy_list, request_from
from mark.cli.output import deliver, progress
from mark.cli.report_file import report, slo_code
from mark.cloud.billing.line_items import parse_time
from mark.studies.reconcile import InvoiceQuery, reconcile
from mark.studies.report.compare_report import compare_report
from mark.studies.report.reconcile_report import reconcile_report

_OTHERS = ("mark",)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Replay a past period with today's autoscaler, compare it with the AWS invoice line by line, and print "
        "mark's own bill for the same traffic."
    )
    parser.add_argument("trace", metavar="TRACE", help="the traffic of the period: a file or a folder of logs")
    bill = parser.add_argument_group("which invoice")
    bill.add_argument(
        "--bill",
        action=Listed,
        required=True,
        metavar="FILE",
        help="cost and usage report (.csv, .csv.gz), Cost Explorer export, invoice, or a folder; may be repeated",
    )
    bill.add_argument("--began", type=_time, metavar="TIME", help="when the trace's first row was (access logs know)")
    bill.add_argument(
        "--tag", action=Listed, each=field_value, default=(), metavar="KEY=VALUE", help="only line items with it"
    )
    bill.add_argument(
        "--instances", action=Listed, parse=_patterns, default=(), metavar="A,B", help="only these types, such as c5.*"
    )
    bill.add_argument(
        "--prices", choices=("catalog", "invoice"), default="catalog", help="of simulated hours (default: catalog)"
    )
    parser.add_argument(
        "--policies",
        action=Listed,
        parse=policy_list,
        default=_OTHERS,
        metavar="A,B,C",
        help="the policies to compare with (default: mark); --policy names the one that ran (default: [policy], as-is)",
    )
    add_run_options(parser)
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    query = InvoiceQuery(tuple(args.bill), args.began, tuple(args.tag), args.instances, args.prices)
    executor = executor_from(args)
    with progress("reconciling") as bar:
        request = replace(request_from(args), explain=bool(args.report))
        found = reconcile(request, query, args.policies, own=args.policy, executor=executor, progress=bar)
    deliver(reconcile_report(found), args.json)
    if args.report:
        report(args, compare_report(found.results), found.results, executor=executor)
    return slo_code(args, found.results)


def _time(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time like 2026-05-01T00:00Z, not {text!r}") from None


def _patterns(text: str) -> tuple[str, ...]:
    patterns = tuple(part.strip() for part in text.split(","))
    if not all(patterns):
        raise argparse.ArgumentTypeError(f"names no type: {text!r}")
    return patterns
