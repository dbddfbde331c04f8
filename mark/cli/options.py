"""The options that simulate, compare, bound and plan share, and the request made from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Literal

from mark.cli.arguments import Listed, add_json, html_file, plotted_file
from mark.cli.numbers import above_zero, seconds, seed, span
from mark.cli.output import show_counting
from mark.cli.reading import add_reading, reading
from mark.domain.errors import BadInput
from mark.planning.policies.names import FIXED
from mark.planning.policies.policy_registry import policy_names
from mark.simulation.request import RunRequest

MARKETS = ("on-demand", "spot", "burstable")


def add_run_options(
    parser: argparse.ArgumentParser,
    *,
    service: Literal["required", "optional", "elsewhere"] = "required",
    report: str = "interactive report, with a sensitivity table",
    several_predictors: bool = False,
    plotted: bool = False,
) -> None:
    """Add all options but the trace. With `service` elsewhere, leave out `--service` and its report.

    `report` describes the command's page in the help; `plotted` says that the library plotly draws it.
    """
    what = parser.add_argument_group("the service")
    if service != "elsewhere":
        required = service == "required"
        what.add_argument(
            "--service",
            required=required,
            metavar="NAME|FILE",
            help="shipped service or .toml file, which states the promise (slo_ms)",
        )
    what.add_argument("--policy", metavar="NAME", help=f"one of {', '.join(policy_names())} (default: mark)")
    several: dict[str, Any] = {"action": Listed, "parse": str} if several_predictors else {}
    what.add_argument(
        "--predictor", metavar="NAME", help="the predictor (default: the policy's own, mostly auto)", **several
    )
    what.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2019, aws-2026 or a .csv file")
    what.add_argument("--profile", metavar="FILE", help="latency by batch size, a .csv file")
    what.add_argument(
        "--tail",
        type=above_zero,
        metavar="X",
        help="p99 over mean for profile rows without p99_ms (default: as the service says)",
    )
    what.add_argument(
        "--markets", action=Listed, parse=_markets, metavar="A,B", help=f"instance markets, of {', '.join(MARKETS)}"
    )
    part = parser.add_argument_group("which traffic")
    part.add_argument("--scale", type=above_zero, default=1.0, metavar="X", help="multiply the arrivals (default: 1)")
    part.add_argument(
        "--start", type=seconds, default=0.0, metavar="S", help="from the first row: 90 (seconds), 2h, 7d"
    )
    part.add_argument("--duration", type=span, metavar="S", help="how much to evaluate (default: to the end)")
    part.add_argument("--train", type=seconds, metavar="S", help="how much history before it (default: all)")
    add_reading(part, sized=service != "optional")
    part.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    cloud = parser.add_argument_group("which cloud")
    cloud.add_argument(
        "--spot-trace", action=Listed, default=(), metavar="FILE", help="availability or prices, one file a zone"
    )
    cloud.add_argument(
        "--spot-first-hour-free",
        action="store_true",
        help="AWS's rule for spot instances that it takes back in their first hour",
    )
    cloud.add_argument("--cold-start", action="store_true", help="begin with no instance")
    cloud.add_argument(
        "--faults",
        metavar="FILE",
        help="instances slow down, hang and crash as its [faults] says, instead of the service's",
    )
    cloud.add_argument(
        "--hedge-after-ms",
        type=above_zero,
        metavar="MS",
        help="then a second copy of a request to another instance (default: as the service says)",
    )
    result = parser.add_argument_group("output")
    add_json(result)
    if service != "elsewhere":
        result.add_argument("--report", type=plotted_file if plotted else html_file, metavar="FILE.html", help=report)
    result.add_argument("--fail-below-slo", action="store_true", help="exit 4 when an SLO was missed")


def add_pipeline_options(parser: argparse.ArgumentParser, *, answers: bool = True) -> None:
    """Add the options for the calls of a pipeline's queries, beside the settings in its file."""
    pipeline = parser.add_argument_group("of a pipeline")
    pipeline.add_argument("--queries", metavar="FILE", help="JSON Lines, a query a line: its driver is traced on them")
    pipeline.add_argument(
        "--lineage", metavar="FILE.csv", help="which stages are visited together, where the file states the graph"
    )
    if answers:
        pipeline.add_argument(
            "--answers",
            metavar="FILE.csv",
            help="of [selection]: a query a row, NAME.correct (0 to 1) and NAME.score of each candidate",
        )


def add_no_bound(parser: argparse.ArgumentParser) -> None:
    """Add the option to leave out the bound, which may take as long as the run."""
    parser.add_argument("--no-bound", action="store_true", help="leave out the clairvoyant bound, and with it regret")


def refuse_service_options(args: argparse.Namespace) -> None:
    """Raise BadInput if an option that only services have is given for a pipeline."""
    for option in ("tail", "hedge_after_ms", "attribute", "report"):
        if getattr(args, option, None):
            raise BadInput("a pipeline is simulated without this option", f"--{option.replace('_', '-')}")


def refuse_pipeline_options(args: argparse.Namespace) -> None:
    """Raise BadInput if an option that only pipelines have is given for a service."""
    for option in ("queries", "lineage", "answers"):
        if getattr(args, option, None) is not None:
            raise BadInput(f"{args.service} is no pipeline", option, getattr(args, option))


def request_from(args: argparse.Namespace, progress: Callable[[float], None] | None = None) -> RunRequest:
    """Return the request for the named policy, or for `mark`, and show from now on how late shares are counted."""
    show_counting()
    return RunRequest(
        trace=args.trace,
        service=args.service,
        policy=args.policy or "mark",
        predictor=args.predictor,
        catalog=args.catalog,
        profile=args.profile,
        tail=args.tail,
        markets=args.markets,
        scale=args.scale,
        start_s=args.start,
        duration_s=args.duration,
        train_s=args.train,
        seed=args.seed,
        spot_traces=tuple(args.spot_trace),
        cold_start=args.cold_start,
        faults=args.faults,
        hedge_after_ms=args.hedge_after_ms,
        spot_first_hour_free=args.spot_first_hour_free,
        **reading(args),
        with_bound=not getattr(args, "no_bound", False),
        progress=progress,
    )


def policy_list(text: str) -> tuple[str, ...]:
    """Split `a,b:predictor,fixed:x=1,y=2` into names; `y=2` belongs to the fixed fleet before it."""
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if "=" in part and not part.startswith(FIXED) and names and names[-1].startswith(FIXED):
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not all(names):
        raise argparse.ArgumentTypeError(f"names nothing between two commas: {text!r}")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"names a policy twice: {text!r}")
    return tuple(names)


def _markets(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in MARKETS:
            raise argparse.ArgumentTypeError(f"unknown market {name!r}; known: {', '.join(MARKETS)}")
    return tuple(dict.fromkeys(names))
