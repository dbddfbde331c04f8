"""Options that choose where the runs of a study are executed."""

from __future__ import annotations

import argparse

from mark.cli.numbers import count
from mark.cli.output import cores
from mark.studies.executor import StudyExecutor, executor_for
from mark.studies.ray_executor import RayExecutor


def add_executor(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where the runs are carried out (the result does not depend on it)")
    where.add_argument(
        "--executor",
        choices=("processes", "ray"),
        default="processes",
        help="on this machine, or on the Ray cluster that RAY_ADDRESS names; where it names none, Ray is started here "
        "(default: processes)",
    )
    where.add_argument("--jobs", type=count, metavar="N", help="runs at a time (default: one per processor)")


def executor_from(args: argparse.Namespace) -> StudyExecutor:
    """Return the executor that the arguments name. Raises BadInput for Ray if it is not installed."""
    here = args.jobs or cores()
    return RayExecutor(here, args.jobs) if args.executor == "ray" else executor_for(here)
