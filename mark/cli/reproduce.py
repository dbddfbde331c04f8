"""mark reproduce: the paper's tables and figures beside ours."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from mark.catalog.tables import load_catalog
from mark.cli.arguments import add_json, html_file
from mark.cli.output import deliver, progress, write_file
from mark.domain.errors import BadInput
from mark.profiling.table import load_profiles
from mark.reporting.paper.fig7_page import fig7_json, fig7_table, render_fig7
from mark.reporting.paper.fig8_page import fig8_json, fig8_table, render_fig8
from mark.reporting.paper.fig9_page import fig9_json, fig9_table, render_fig9
from mark.reporting.paper.table2_page import table2_json, table2_table
from mark.reporting.paper.table5_page import as_json, render
from mark.studies.paper.fig7 import run_fig7
from mark.studies.paper.fig8 import run_fig8
from mark.studies.paper.fig9 import run_fig9
from mark.studies.paper.table2 import table2_rows
from mark.studies.paper.table5 import run_table5

# A figure as JSON, as a table and as a page.
Shown = tuple[dict[str, Any], Callable[[], RenderableType], Callable[[], str]]


_WHAT = """\
table2: the price of a million requests on instances and functions. table5: the bill of the four models against a
SageMaker endpoint with target tracking. fig7: their latencies on the same traffic. fig8: which keep the promise on it,
and on bursts beyond prediction. fig9: surges of 50, 75 and 100 %, and 20, 40 and 80 % of the spot instances taken
away at once, by windows of 5 s.
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = _WHAT
    parser.add_argument("what", choices=("table2", "table5", *_FIGURES))
    parser.add_argument(
        "--trace",
        metavar="TRACE",
        help="table5, fig7, fig8: the traffic to replay (default: the Twitter stream of MARK_DATA or ../shared/data "
        "where it is there, else generated)",
    )
    parser.add_argument("--spot-trace", metavar="FILE", help="table5, fig7: a preemption series, as one more run")
    add_json(parser)
    parser.add_argument("--report", type=html_file, metavar="FILE.html", help="fig7, fig8, fig9: the figure as a page")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.what in _FIGURES:
        return _figure(args)
    if args.report:
        raise BadInput("only a figure has a page", "--report", args.what)
    return _table2(args) if args.what == "table2" else _table5(args)


def _stream() -> str | None:
    """The stream that the targets were set on, where a checkout has the data beside it."""
    path = Path(os.environ.get("MARK_DATA", "../shared/data")) / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz"
    return str(path) if path.is_file() else None


def _table2(args: argparse.Namespace) -> int:
    rows = table2_rows(load_catalog("aws-2019"), load_profiles(None))
    deliver(table2_json(rows), args.json, lambda: table2_table(rows))
    return 0


def _table5(args: argparse.Namespace) -> int:
    trace = args.trace or _stream()
    with progress("reproducing") as bar:
        result = run_table5(trace, spot_trace=args.spot_trace, progress=bar)
    deliver(as_json(result), args.json, lambda: render(result))
    return 0


def _figure(args: argparse.Namespace) -> int:
    data, table, page = _FIGURES[args.what](args)
    deliver(data, args.json, table)
    if args.report:
        write_file(args.report, page(), "--report")
    return 0


def _fig7(args: argparse.Namespace) -> Shown:
    with progress("reproducing") as bar:
        found = run_fig7(args.trace or _stream(), spot_trace=args.spot_trace, progress=bar)
    return fig7_json(found), lambda: fig7_table(found), lambda: render_fig7(found)


def _fig8(args: argparse.Namespace) -> Shown:
    with progress("reproducing") as bar:
        found = run_fig8(args.trace or _stream(), progress=bar)
    return fig8_json(found), lambda: fig8_table(found), lambda: render_fig8(found)


def _fig9(args: argparse.Namespace) -> Shown:
    with progress("reproducing") as bar:
        found = run_fig9(progress=bar)
    return fig9_json(found), lambda: fig9_table(found), lambda: render_fig9(found)


_FIGURES: dict[str, Callable[[argparse.Namespace], Shown]] = {"fig7": _fig7, "fig8": _fig8, "fig9": _fig9}
