"""mark check: are these files usable?"""

from __future__ import annotations

import argparse

from mark.cli.output import show_counting
from mark.studies.report.check import check_file


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read each file by its kind (a service with its catalogue and profiles) and "
        "summarise it. Stops at the first that cannot be used: exit 2, or 3 when no offer meets a service's SLO."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="service, pipeline, catalogue, profile or trace")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    show_counting()
    for name in args.files:
        print(f"{name}: {check_file(name)}", flush=True)
    return 0
