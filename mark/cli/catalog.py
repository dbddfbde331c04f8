"""mark catalog list, show, refresh: the offers and their prices."""

from __future__ import annotations

import argparse
import sys

from mark.cli.arguments import add_json
from mark.cli.output import deliver, write_file
from mark.config.plugins import adapter
from mark.domain.catalog.tables import CATALOG_NAMES, load_catalog
from mark.domain.errors import BadInput
from mark.studies.report.catalog_report import catalog_report, catalogs_report


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = actions.add_parser("show", help="offers, prices and boot delays of a catalogue", allow_abbrev=False)
    show.add_argument(
        "catalog",
        nargs="?",
        default="aws-2026",
        metavar="NAME|FILE",
        help="aws-2026 (default), aws-2019 or a file",
    )
    add_json(show)
    show.set_defaults(run=run)
    listed = actions.add_parser("list", help="the catalogues that ship with mark", allow_abbrev=False)
    add_json(listed)
    listed.set_defaults(run=run_list)
    refresh = actions.add_parser(
        "refresh",
        help="the same catalogue with today's prices",
        description="Ask AWS for the on-demand and spot prices of a catalogue's offers, and write it with them. "
        "A price that cannot be had, or cannot be true, stays as it is, which is said.",
        allow_abbrev=False,
    )
    refresh.add_argument(
        "catalog",
        nargs="?",
        default="aws-2026",
        metavar="NAME|FILE",
        help="aws-2026 (default), aws-2019 or a file",
    )
    refresh.add_argument(
        "--out", required=True, metavar="FILE", help="where it is written; may be the one that is read"
    )
    refresh.add_argument("--region", default="us-east-1", metavar="R", help="whose prices (default: us-east-1)")
    refresh.add_argument("--profile", metavar="NAME", help="profile of AWS's configuration (default: $AWS_PROFILE)")
    refresh.set_defaults(run=run_refresh)


def run_list(args: argparse.Namespace) -> int:
    deliver(catalogs_report([load_catalog(name) for name in CATALOG_NAMES]), args.json)
    return 0


def run_refresh(args: argparse.Namespace) -> int:
    repriced, notes = adapter("refresh-prices", "mark catalog refresh")(args.catalog, args.region, args.profile)
    for note in notes:
        print(f"mark: {note}", file=sys.stderr)
    if repriced is None:
        raise BadInput("AWS told no price of it that can be used, nothing is written", "catalog", args.catalog)
    write_file(args.out, repriced, "--out")
    return 0


def run(args: argparse.Namespace) -> int:
    deliver(catalog_report(load_catalog(args.catalog)), args.json)
    return 0
