"""mark forecast: score forecasts, and train predictors."""

from __future__ import annotations

import argparse
import sys

from mark.cli.arguments import Commands, out_file
from mark.cli.forecast_fit import add_fit
from mark.cli.numbers import seconds
from mark.cli.options import add_run_options, request_from
from mark.cli.output import cores, deliver, progress
from mark.cli.reading import reading
from mark.cli.report_file import slo_code
from mark.domain.errors import BadInput
from mark.studies.executor import executor_for
from mark.studies.forecast_dollars import check_request, forecast_dollars
from mark.studies.report.forecast import backtest_report
from mark.traffic.forecast.backtest import backtest, split
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.reader import open_trace

_BACKTEST = """\
Replay a trace in arrival order and score every predictor's forecasts: learn from [start - train, start), forecast every
300 s from then on, and learn each step once it is over. Without --start the history is the first --train seconds, and
without either the first half of the trace. With --service the part is also simulated with every predictor, and with
perfect forecasts: the value of better forecasts in dollars. --predictor takes several names, with commas between. All
options of `mark simulate` may be given; those about service and cloud matter with --service only.
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_backtest(actions)
    add_fit(actions)


def _add_backtest(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "backtest", help="score predictors on a trace, also in dollars", description=_BACKTEST, allow_abbrev=False
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    parser.add_argument("--horizon-s", type=seconds, default=3600.0, metavar="S", help="how far ahead (default: 3600)")
    parser.add_argument("--out", type=out_file, metavar="FILE.csv.gz", help="every forecast made, to score it again")
    add_run_options(parser, service="optional", several_predictors=True, plotted=True)
    parser.set_defaults(run=run_backtest, start=None, predictor="auto")


def run_backtest(args: argparse.Namespace) -> int:
    names = _names(args.predictor)
    # A generator runs until the end of the part; a file has its own length.
    until_start_s = next((s for s in (args.start, args.train, args.duration) if s is not None), 0.0)
    trace = open_trace(
        args.trace,
        start_s=until_start_s,
        duration_s=args.duration,
        seed=args.seed,
        **reading(args),
    )
    replayed = split(
        trace,
        start_s=args.start,
        duration_s=args.duration,
        train_s=args.train,
        horizon_s=args.horizon_s,
        scale=args.scale,
    )
    predictors = {name: make_predictor(name, args.seed, trace.step_s) for name in names}
    if args.service is not None:
        args.start = replayed.start_s
        check_request(request_from(args))
    with progress("replaying") as bar:
        found = backtest(replayed, predictors, out=args.out, progress=bar)
    if args.out:
        print(f"out: {args.out}", file=sys.stderr)
    dollars = None
    if args.service is not None:
        with progress("simulating") as bar:
            dollars = forecast_dollars(request_from(args, bar), names, executor=executor_for(cores()))
    deliver(backtest_report(found, dollars), args.json, args.report)
    return 0 if dollars is None else slo_code(args, dollars.results)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise BadInput("must name predictors, each once, with commas between", "--predictor", text)
    return names
