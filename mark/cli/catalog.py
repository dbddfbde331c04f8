"""mark catalog show: what can be bought."""

from __future__ import annotations

import argparse

from mark.cli.options import Commands, add_json
from mark.cli.output import deliver


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("catalog", help="what can be bought", allow_abbrev=False)
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


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from mark.catalog.tables import load_catalog
    from mark.reporting.table import catalog_table

    catalog = load_catalog(args.catalog)
    deliver({"schema": 1, **asdict(catalog)}, args.json, lambda: catalog_table(catalog))
    return 0
