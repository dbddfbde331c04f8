"""mark controller: the service that decides, with its API and live page."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mark.cli.doors import add_address, add_door, door_from
from mark.cli.options import Commands
from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from mark_infra.aws.control import ServiceSpec
    from mark_infra.aws.live_prices import PriceKeeper
    from mark_infra.aws.site import Site

    from mark.domain.load import Load
    from mark.domain.service import ServiceConfig

# What can plan without knowing what will come.
POLICIES = ("mark", "greedy", "ilp", "mark-paper")


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "controller",
        help="the service that decides, with its API and live page",
        description="Keep the latency promise of services at the lowest bill: watch their load, buy and end instances "
        "as the site file says where. One controller of a site acts, others stand by. Ends on SIGTERM; what runs, "
        "runs on.",
        allow_abbrev=False,
    )
    parser.add_argument("services", nargs="+", metavar="SERVICE", help="service file, or a shipped name")
    add_address(parser)
    parser.add_argument("--site", type=Path, metavar="FILE", help="where to run them (default: $MARK_SITE)")
    parser.add_argument("--dry-run", action="store_true", help="decide and explain, buy and end nothing")
    how = parser.add_argument_group("deciding")
    how.add_argument("--policy", choices=POLICIES, default="mark", help="who plans (default: mark)")
    how.add_argument("--predictor", default="auto", metavar="NAME", help="who forecasts (default: auto)")
    how.add_argument("--history", metavar="TRACE", help="load to learn from at first, as if it ended when this began")
    how.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2019, aws-2026 or a .csv file")
    how.add_argument(
        "--live-prices",
        action="store_true",
        help="ask AWS for prices, spot every 5 minutes, on-demand daily; without it the catalogue's are used",
    )
    add_door(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mark_infra.aws.site import load_site
    from mark_infra.controlling import serve

    from mark.config.service_file import load_service

    tls, auth = door_from(args)
    path = args.site or os.environ.get("MARK_SITE")
    if path is None:
        raise BadInput("say where to run: --site FILE, or MARK_SITE", "--site")
    site = load_site(Path(path))
    services = [load_service(name) for name in args.services]
    names = [service.name for service in services]
    if len(set(names)) < len(names):
        raise BadInput("names a service twice", "SERVICE", ", ".join(names))
    for name in names:
        site.service(name)
    history = _history(args.history)
    # Where the site has no function, nobody may count on one.
    services = [s if site.service(s.name).function is not None else replace(s, function=None) for s in services]
    keepers: dict[str, PriceKeeper] = {}
    charges = [_charge(service, args, history, site, keepers) for service in services]

    def started(port: int) -> None:
        scheme = "http" if tls is None else "https"
        print(f"mark: the controller is ready on {scheme}://{args.host}:{port}", file=sys.stderr, flush=True)

    return serve(site, charges, (args.host, args.port), tls=tls, auth=auth, dry_run=args.dry_run, started=started)


def _charge(
    service: ServiceConfig, args: argparse.Namespace, history: Load, site: Site, keepers: dict[str, PriceKeeper]
) -> ServiceSpec:
    """`keepers` of prices by catalogue are shared by all services."""
    from mark_infra.aws.control import ServiceSpec
    from mark_infra.aws.live_prices import PriceKeeper
    from mark_infra.aws.prices import Prices

    from mark.catalog.tables import load_catalog
    from mark.domain.service import ResolvedService
    from mark.forecasting.registry import make_predictor
    from mark.planning.policies.registry import make_policy
    from mark.planning.port import Policy
    from mark.planning.resolve import resolve
    from mark.profiling.table import load_profiles

    if args.catalog is not None:
        service = replace(service, catalog=args.catalog)
    catalog = load_catalog(service.catalog)
    prices = None
    if args.live_prices:
        if service.catalog not in keepers:
            keeper = keepers[service.catalog] = PriceKeeper(Prices(catalog, site.region), scale=site.time_scale)
            for note in keeper.step():
                print(f"mark: {service.name}: {note}", file=sys.stderr)
        prices = keepers[service.catalog]
        catalog = prices.latest.catalog
    resolved = resolve(service, catalog, load_profiles(service.profile_file))
    make_predictor(args.predictor, 0, history.step_s)  # an unknown one is said now

    def policy(within: ResolvedService) -> Policy:
        return make_policy(args.policy, within, history)

    return ServiceSpec(resolved, policy, lambda: make_predictor(args.predictor, 0, history.step_s), history, prices)


def _history(name: str | None) -> Load:
    """By the minute, up to second 0; empty without a trace."""
    import numpy as np

    from mark.domain.load import Load
    from mark.simulation.inputs import history_of
    from mark.workload.reader import open_trace

    if name is None:
        return Load(0.0, 60.0, np.empty(0), np.empty(0))
    trace = open_trace(name)
    if trace.step_s != 60.0:
        raise BadInput("has bins above a minute, of which no minute can be learned", "--history", name)
    return history_of(trace, 0.0, trace.duration_s, 1.0)
