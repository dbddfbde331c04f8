"""mark insure: which protection against slow instances pays."""

from __future__ import annotations

import argparse

from mark.cli.arguments import add_json, plotted_file
from mark.cli.executors import add_executor, executor_from
from mark.cli.numbers import above_zero, seconds, seed, span
from mark.cli.output import deliver, progress, show_counting, write_file
from mark.cli.reading import add_reading, reading
from mark.domain.errors import BadInput
from mark.simulation.request import RunRequest
from mark.studies.insure import insure
from mark.studies.report.insure_report import insure_json, insure_table, render_insure


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate fixed fleets whose instances are slow now and then, and print the smallest one that keeps the "
        "promise with each protection: more instances, second copies of late requests (hedging), parity models that "
        "reconstruct late answers, and a second copy of every request."
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    what = parser.add_argument_group("the service")
    what.add_argument("--service", metavar="NAME|FILE", help="shipped service or .toml file")
    what.add_argument("--instance", metavar="TYPE", help="instance type (default: the one with the cheapest fleet)")
    what.add_argument(
        "--faults", metavar="FILE", help="how instances slow down and hang: its [faults] instead of the service's"
    )
    what.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2019, aws-2026 or a .csv file")
    what.add_argument("--profile", metavar="FILE", help="latency by batch size, a .csv file")
    what.add_argument(
        "--tail",
        type=above_zero,
        metavar="X",
        help="p99 over mean for profile rows without p99_ms (default: as the service says)",
    )
    part = parser.add_argument_group("which traffic")
    part.add_argument("--scale", type=above_zero, default=1.0, metavar="X", help="multiply the arrivals (default: 1)")
    part.add_argument(
        "--start", type=seconds, default=0.0, metavar="S", help="from the first row: 90 (seconds), 2h, 7d"
    )
    part.add_argument("--duration", type=span, metavar="S", help="how much to simulate (default: to the end)")
    add_reading(part)
    part.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    result = parser.add_argument_group("output")
    add_json(result)
    result.add_argument("--report", type=plotted_file, metavar="FILE.html", help="a page with the table and a plot")
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.service is None:
        raise BadInput("names the service whose instances are to be protected", "--service", "nothing")
    show_counting()
    executor = executor_from(args)
    with progress("simulating") as bar:
        request = RunRequest(
            trace=args.trace,
            service=args.service,
            catalog=args.catalog,
            profile=args.profile,
            tail=args.tail,
            faults=args.faults,
            scale=args.scale,
            start_s=args.start,
            duration_s=args.duration,
            seed=args.seed,
            with_bound=False,
            **reading(args),
            progress=bar,
        )
        found = insure(request, args.instance, executor=executor)
    deliver(insure_json(found), args.json, lambda: insure_table(found))
    if args.report:
        write_file(args.report, render_insure(found), "--report")
    return 0
