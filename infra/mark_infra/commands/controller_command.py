"""mark controller: the service that decides, with its API and live page."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.arguments import from_args
from mark.cli.listener import add_access, add_address
from mark.planning.policies.policy_registry import policy_names
from mark_infra.launch.launch_controller import ControllerOptions, run_controller


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Keep the latency promise of services at the lowest bill: watch their load, buy and end instances "
        "as the site file says where. One controller of a site acts, others stand by. Ends on SIGTERM; instances keep "
        "running."
    )
    parser.add_argument("services", nargs="+", metavar="SERVICE", help="service file, or a shipped name")
    add_address(parser)
    parser.add_argument("--site", type=Path, metavar="FILE", help="where to run them (default: $MARK_SITE)")
    parser.add_argument("--profile", metavar="NAME", help="profile of AWS's configuration (default: $AWS_PROFILE)")
    parser.add_argument("--dry-run", action="store_true", help="decide and explain, buy and end nothing")
    how = parser.add_argument_group("deciding")
    how.add_argument(
        "--policy", choices=policy_names(live=True), default="mark", help="the policy that plans (default: mark)"
    )
    how.add_argument("--predictor", default="auto", metavar="NAME", help="the predictor (default: auto)")
    how.add_argument("--history", metavar="TRACE", help="load to learn from at first, as if it ended when this began")
    how.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2019, aws-2026 or a .csv file")
    how.add_argument(
        "--live-prices",
        action="store_true",
        help="ask AWS for prices, spot every 5 minutes, on-demand daily; without it the catalogue's are used",
    )
    add_access(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return run_controller(from_args(ControllerOptions, args))
