"""mark torture: the whole control plane in a simulated world, under faults drawn from seeds."""

from __future__ import annotations

import argparse

from mark.cli.executors import add_executor, executor_from
from mark.cli.numbers import number, whole
from mark.cli.numbers import seed as seed_number
from mark.cli.output import deliver, progress
from mark.planning.policies.policy_registry import policy_names
from mark_torture.drawn_faults import LEAST_H, STAND_IN, drawn
from mark_torture.torture_report import torture_report
from mark_torture.trial import Tortured, shrunk, trial_of

_MOST_HOURS = 720.0


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the control plane in a simulated world in which everything may go wrong, and look whether named "
        "invariants hold. Everything is drawn from the seed: one that fails fails again. Exit code 1 where one is "
        "broken, with the story of the first, shrunk to the faults that it takes."
    )
    parser.add_argument("--seeds", type=whole(1, 1_000_000), default=10, metavar="N", help="how many (default: 10)")
    parser.add_argument("--hours", type=_hours, default=6.0, metavar="H", help="of each (default: 6)")
    parser.add_argument("--seed", type=seed_number, default=0, metavar="S", help="the first (default: 0)")
    parser.add_argument(
        "--policy", choices=(STAND_IN, *policy_names(live=True)), default=STAND_IN, metavar="NAME",
        help="the planner: steady, a stand-in that takes microseconds (default), or a policy of mark's",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- for stdout)")
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    schedules = [drawn(seed, args.hours, policy=args.policy) for seed in range(args.seed, args.seed + args.seeds)]
    with progress("torturing") as bar:
        found = Tortured(executor_from(args).map(trial_of, schedules, bar))
    shortest = shrunk(found.failed[0]) if found.failed else None
    deliver(torture_report(found, shortest), args.json)
    return 1 if found.failed else 0


def _hours(text: str) -> float:
    hours = number(text)
    if not LEAST_H <= hours <= _MOST_HOURS:
        raise argparse.ArgumentTypeError(f"must lie between {LEAST_H:g} and {_MOST_HOURS:g}, not {text!r}")
    return hours
