"""mark reproduce: the paper's tables beside ours."""

from __future__ import annotations

import argparse

from mark.cli.options import Commands, add_json
from mark.cli.output import deliver, progress


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="the paper's experiments beside ours",
        description="table2: the price of a million requests on instances and functions. table5: the bill of the four "
        "models against a SageMaker endpoint with target tracking.",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("table2", "table5"))
    parser.add_argument(
        "--trace",
        metavar="TRACE",
        help="table5: the traffic to replay (default: the Twitter stream of MARK_DATA or ../shared/data where it is "
        "there, else generated)",
    )
    parser.add_argument("--spot-trace", metavar="FILE", help="table5: a preemption series, as one more column")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return _table2(args) if args.what == "table2" else _table5(args)


def _stream() -> str | None:
    """The stream that the targets were set on, where a checkout has the data beside it."""
    import os
    from pathlib import Path

    path = Path(os.environ.get("MARK_DATA", "../shared/data")) / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz"
    return str(path) if path.is_file() else None


def _table2(args: argparse.Namespace) -> int:
    from mark.catalog.tables import load_catalog
    from mark.planning.table2 import table2_rows
    from mark.profiling.table import load_profiles
    from mark.reporting.table2 import table2_json, table2_table

    rows = table2_rows(load_catalog("aws-2019"), load_profiles(None))
    deliver(table2_json(rows), args.json, lambda: table2_table(rows))
    return 0


def _table5(args: argparse.Namespace) -> int:
    from mark.reporting.table5 import as_json, render
    from mark.simulation.table5 import run_table5

    trace = args.trace or _stream()
    with progress("reproducing") as bar:
        result = run_table5(trace, spot_trace=args.spot_trace, progress=bar)
    deliver(as_json(result), args.json, lambda: render(result))
    return 0
