"""mark frontier: dollars against the promise."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mark.cli.arguments import Listed
from mark.cli.executors import add_executor, executor_from
from mark.cli.numbers import above_zero, number
from mark.cli.options import add_run_options, request_from
from mark.cli.output import deliver, progress
from mark.domain.errors import Infeasible
from mark.domain.slo import LONGEST_RT_MAX_S
from mark.studies.frontier import frontier
from mark.studies.report.frontier_report import frontier_report


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate one policy under several promises on the same arrivals, and print each one's cost, with the bound "
        "that no policy gets below. The service's own promise is always among them."
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    promise = parser.add_argument_group("which promises: every RT_max with every attainment and confidence")
    promise.add_argument(
        "--slo-ms",
        action=Listed,
        parse=_each(_rt_max_s),
        default=(),
        metavar="A,B,C",
        help="RT_max in ms (default: 0.5, 0.75, 1, 1.5 and 2 times the service's)",
    )
    promise.add_argument(
        "--attainment",
        action=Listed,
        parse=_each(_attainment),
        default=(),
        metavar="A,B,C",
        help="SL_min as shares, 0.99 for 99 %% (default: the service's, a nine less and a nine more: for 0.98 also "
        "0.8 and 0.998)",
    )
    promise.add_argument(
        "--confidences",
        action=Listed,
        parse=_each(_confidence),
        default=(),
        metavar="A,B,C",
        help="probabilities with which a window is to keep the promise, 0.8,0.95 (default: the service's)",
    )
    add_run_options(parser, report="a page with the points and two plots", plotted=True)
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    executor = executor_from(args)
    with progress("simulating") as bar:
        found = frontier(request_from(args, bar), args.slo_ms, args.attainment, args.confidences, executor=executor)
    deliver(frontier_report(found), args.json, args.report)
    if found.any_result is None:
        loosest = max(found.points, key=lambda point: (point.slo.rt_max_s, -point.slo.attainment))
        raise Infeasible(f"none of {len(found.points)} promises can be kept: {loosest.infeasible}")
    return 4 if args.fail_below_slo and found.own_point.kept is False else 0


def _each(one: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    """Return a parser of several values, separated by commas and all different."""

    def parsed(text: str) -> tuple[float, ...]:
        found = tuple(one(part.strip()) for part in text.split(","))
        if len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(f"names one twice: {text!r}")
        return found

    return parsed


def _rt_max_s(text: str) -> float:
    found_s = above_zero(text) / 1e3
    if found_s >= LONGEST_RT_MAX_S:
        raise argparse.ArgumentTypeError(f"must lie below {LONGEST_RT_MAX_S * 1e3:,.0f} ms, not {text!r}")
    return found_s


def _attainment(text: str) -> float:
    """Parse a share, with the limits of the service file."""
    share = number(text)
    if not 0.0 < share < 1.0:
        hint = f" (a share: {share:g} % is {share / 100.0:g})" if 1.0 < share < 100.0 else ""
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, both excluded, not {text!r}{hint}")
    return share


def _confidence(text: str) -> float:
    """Parse a probability, with the limits of the service file."""
    confidence = _attainment(text)
    if confidence < 0.5:
        raise argparse.ArgumentTypeError(f"must be at least 0.5, not {text!r}")
    return confidence
