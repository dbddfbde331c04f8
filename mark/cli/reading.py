"""Options for reading a trace's file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mark.cli.arguments import GAPS, field_value
from mark.cli.output import ReadingShown
from mark.domain.errors import BadInput
from mark.traffic.traces import reader
from mark.traffic.traces.bad_lines import DEFAULT, BadLines
from mark.traffic.traces.blocks import watched
from mark.traffic.traces.meanings import UNITS
from mark.traffic.traces.table_files import DECIMALS, TableColumns
from mark.traffic.traces.times import TimeForm


def add_reading(parser: argparse._ActionsContainer, *, sized: bool = False) -> None:
    """Add the options. With `sized` requests may have sizes, in the unit of a service."""
    parser.add_argument("--gaps", choices=GAPS, default="bridge", help="how to fill a missing bin (default: bridge)")
    parser.add_argument("--log-filter", type=field_value, metavar="FIELD=VALUE", help="only these access-log rows")
    parser.add_argument("--time-column", metavar="NAME", help="of a table (default: recognised)")
    parser.add_argument("--count-column", metavar="NAME|none", help="of a table; none: each row is a request")
    parser.add_argument("--count-unit", choices=UNITS, help="the unit of that column (default: recognised)")
    if sized:
        what = "of a table with a row a request: its size, in the service's unit"
        parser.add_argument("--size-column", metavar="NAME|A+B", help=what)
    parser.add_argument("--series", metavar="NAME|sum", help="of a table with several series; sum: all of them")
    parser.add_argument(
        "--time-format", metavar="FORM", help="%%d.%%m.%%Y %%H:%%M and so on, day-first, month-first, excel, s or ms"
    )
    parser.add_argument("--time-zone", metavar="ZONE", help="of clocks without a zone, as Europe/Berlin (default: UTC)")
    parser.add_argument("--decimal", choices=DECIMALS, help="the decimal sign of a table (default: recognised)")
    parser.add_argument(
        "--skip-bad-lines",
        type=_bad_lines,
        default=DEFAULT,
        metavar="N|P%",
        help="how many lines that cannot be read may be left out (default: 1%%)",
    )


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `open_trace`, and show the progress of reading from now on."""
    times = TimeForm(args.time_format, args.time_zone)
    size = getattr(args, "size_column", None)
    columns = TableColumns(args.time_column, args.count_column, args.count_unit, args.series, times, args.decimal, size)
    watched.set(ReadingShown())
    return {"gaps": args.gaps, "log_filter": args.log_filter, "columns": columns, "skip_bad_lines": args.skip_bad_lines}


@contextmanager
def kept_pipe(args: argparse.Namespace) -> Iterator[None]:
    """Replace a trace that is a pipe with a file of its content, because the simulating processes open it as well.

    Errors name the pipe.
    """
    spec = getattr(args, "trace", None)
    if not hasattr(args, "skip_bad_lines") or not isinstance(spec, str):
        yield
        return
    options = reading(args)
    path = reader.kept_pipe(spec, options["log_filter"], options["columns"])
    args.trace = spec if path is None else str(path)
    try:
        yield
    except BadInput as error:
        if path is None:
            raise
        raise BadInput(error.what, error.where.replace(str(path), spec), error.value) from error.__cause__


def as_options(args: argparse.Namespace) -> list[str]:
    """Return the command line options that equal the arguments, without defaults."""
    found = [] if args.gaps == "bridge" else ["--gaps", args.gaps]
    if args.log_filter is not None:
        found += ["--log-filter", "=".join(args.log_filter)]
    if args.skip_bad_lines != DEFAULT:
        found += ["--skip-bad-lines", str(args.skip_bad_lines)]
    for name in (
        "time_column", "count_column", "count_unit", "size_column", "series", "time_format", "time_zone", "decimal"
    ):  # fmt: skip
        if (value := getattr(args, name, None)) is not None:
            found += [f"--{name.replace('_', '-')}", value]
    return found


def _bad_lines(text: str) -> BadLines:
    try:
        return BadLines.parse(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(f"{error.what}, not {text!r}") from None
