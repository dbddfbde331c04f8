"""mark reproduce: the papers' tables and figures beside ours."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from mark.cli.arguments import Listed, add_json, plotted_file
from mark.cli.output import deliver, progress
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, did_you_mean
from mark.profiling.table import load_profiles
from mark.studies.report.report import Report
from mark_papers.clipper.dialects import run_clipper_fig3_10
from mark_papers.clipper.ensembles import run_clipper_fig3_7
from mark_papers.clipper.failure import run_clipper_fig3_8
from mark_papers.clipper.stragglers import run_clipper_fig3_9
from mark_papers.inferline.planners import PlannerComparison, run_inferline_fig5, run_inferline_fig9
from mark_papers.inferline.tuners import (
    TunerComparison,
    run_inferline_activation,
    run_inferline_fig6,
    run_inferline_fig7,
    run_inferline_fig10,
    run_inferline_fig11,
    run_inferline_fig12,
)
from mark_papers.inferline_pages.planners_page import planners_report
from mark_papers.inferline_pages.tuners_page import tuners_report
from mark_papers.panels import PanelFigure
from mark_papers.panels_page import panels_report
from mark_papers.paper.fig6 import run_fig6
from mark_papers.paper.fig7 import run_fig7
from mark_papers.paper.fig8 import run_fig8
from mark_papers.paper.fig9 import run_fig9
from mark_papers.paper.optimal import run_optimal
from mark_papers.paper.replay import MODELS
from mark_papers.paper.table2 import table2_rows
from mark_papers.paper.table3 import table3_rows
from mark_papers.paper.table5 import run_table5
from mark_papers.paper_pages.fig6_page import fig6_report
from mark_papers.paper_pages.fig7_page import fig7_report
from mark_papers.paper_pages.fig8_page import fig8_report
from mark_papers.paper_pages.fig9_page import fig9_report
from mark_papers.paper_pages.optimal_page import optimal_report
from mark_papers.paper_pages.table2_page import table2_report
from mark_papers.paper_pages.table3_page import table3_report
from mark_papers.paper_pages.table5_page import table5_report
from mark_papers.parm.accuracy import run_parm_accuracy
from mark_papers.parm.latency import (
    run_parm_batches,
    run_parm_delays,
    run_parm_fig10,
    run_parm_fig11,
    run_parm_fig12,
    run_parm_fig13,
    run_parm_fig14,
)
from mark_papers.velox.speed import run_velox_fig2_3, run_velox_fig2_4

# A figure as JSON, as a table and as a page.


_WHAT = """\
table2: the price of a million requests on instances, in containers and on functions. table3: the same on burstable
instances. table5: the bill of the four models against a SageMaker endpoint with target tracking. fig6: forecasts of the
same traffic, and of bursts beyond prediction. fig7: latencies on the same traffic. fig8: which keep the promise on it,
and on such bursts. fig9: surges of 50, 75 and 100 %, and 20, 40 and 80 % of the spot instances taken away at once, by
windows of 5 s. optimal: the program that the paper states, solved, against its greedy, on the load of table5.
Of InferLine: inferline-fig5, -fig9: what planners of pipelines pay, and what new traffic misses. inferline-fig6: its
tuner on loads like AutoScale's. inferline-fig7: it beside coarse-grained tuning while the rate grows. inferline-fig10,
-fig11: 150 to 250 queries/s, and CV 1 to 4. inferline-fig12: what of it is the planner's. inferline-activation: its
tuner and ours where a replica takes 5 to 180 s to become active.
Of Clipper: clipper-fig3-7: errors of an ensemble, and where its models agree. clipper-fig3-8: policies while the best
model is broken. clipper-fig3-9: late replies in larger ensembles, simulated. clipper-fig3-10: a selection for each
user.
Of ParM: accuracy of reconstructions by code and k (parm-accuracy, needs torch). Simulated: latencies with parity
models and with as many more instances, by the rate (parm-fig10), by k and beside hedging (parm-fig11), by the network's
load (parm-fig12), beside other tasks (parm-fig13), beside smaller models (parm-fig14), in batches (parm-batches), and
by how often answers are delayed (parm-delays).
Of Velox: what an update of a user's model takes (velox-fig2-3), and the best items of a set (velox-fig2-4).
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = _WHAT
    parser.add_argument(
        "what", metavar="EXPERIMENT", choices=(*_TABLES, *_FIGURES), help=", ".join((*_TABLES, *_FIGURES))
    )
    parser.add_argument(
        "--trace",
        metavar="TRACE",
        help="table5, optimal, fig6, fig7, fig8: the traffic to replay (default: the Twitter stream of MARK_DATA or "
        "../shared/data where it is there, else generated)",
    )
    parser.add_argument("--spot-trace", metavar="FILE", help="table5, fig7: a preemption series, as one more run")
    parser.add_argument(
        "--model",
        action=Listed,
        each=_model,
        metavar="NAME",
        help="optimal: this model only; may be repeated (default: all four)",
    )
    add_json(parser)
    parser.add_argument("--report", type=plotted_file, metavar="FILE.html", help="figures: as a page")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.model and args.what != "optimal":
        raise BadInput("only `optimal` can be of some models", "--model", args.what)
    for option, given, readers in (("--trace", args.trace, _REPLAY), ("--spot-trace", args.spot_trace, _REPLAY_SPOT)):
        if given and args.what not in readers:
            raise BadInput(f"{args.what} does not read it: only {', '.join(readers)} do", option, given)
    if args.what in _FIGURES:
        deliver(_FIGURES[args.what](args), args.json, args.report)
        return 0
    if args.report:
        raise BadInput("only a figure has a page", "--report", args.what)
    deliver(_TABLES[args.what](args), args.json)
    return 0


def _stream() -> str | None:
    """Return the stream on which the targets were set, if a checkout has the data beside it."""
    path = Path(os.environ.get("MARK_DATA", "../shared/data")) / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz"
    return str(path) if path.is_file() else None


def _table2(args: argparse.Namespace) -> Report:
    rows = table2_rows(load_catalog("aws-2019"), load_profiles(None))
    return table2_report(rows)


def _table3(args: argparse.Namespace) -> Report:
    rows = table3_rows(load_catalog("aws-2019"), load_profiles(None))
    return table3_report(rows)


def _table5(args: argparse.Namespace) -> Report:
    trace = args.trace or _stream()
    with progress("reproducing") as bar:
        result = run_table5(trace, spot_trace=args.spot_trace, progress=bar)
    return table5_report(result)


def _optimal(args: argparse.Namespace) -> Report:
    models = tuple(model for model in MODELS if not args.model or model in args.model)
    with progress("solving") as bar:
        found = run_optimal(args.trace or _stream(), models=models, progress=bar)
    return optimal_report(found)


def _fig6(args: argparse.Namespace) -> Report:
    with progress("forecasting") as bar:
        found = run_fig6(args.trace or _stream(), progress=bar)
    return fig6_report(found)


def _fig7(args: argparse.Namespace) -> Report:
    with progress("reproducing") as bar:
        found = run_fig7(args.trace or _stream(), spot_trace=args.spot_trace, progress=bar)
    return fig7_report(found)


def _fig8(args: argparse.Namespace) -> Report:
    with progress("reproducing") as bar:
        found = run_fig8(args.trace or _stream(), progress=bar)
    return fig8_report(found)


def _fig9(args: argparse.Namespace) -> Report:
    with progress("reproducing") as bar:
        found = run_fig9(progress=bar)
    return fig9_report(found)


def _planners(run_it: Callable[..., PlannerComparison]) -> Report:
    with progress("planning") as bar:
        found = run_it(progress=bar)
    return planners_report(found)


def _tuners(run_it: Callable[..., TunerComparison]) -> Report:
    with progress("following") as bar:
        found = run_it(progress=bar)
    return tuners_report(found)


def _panels(doing: str, run_it: Callable[..., PanelFigure]) -> Report:
    with progress(doing) as bar:
        found = run_it(progress=bar)
    return panels_report(found)


_REPLAY = ("table5", "optimal", "fig6", "fig7", "fig8")  # these replay the traffic of --trace
_REPLAY_SPOT = ("table5", "fig7")

_TABLES: dict[str, Callable[[argparse.Namespace], Report]] = {
    "table2": _table2,
    "table3": _table3,
    "table5": _table5,
    "optimal": _optimal,
}
_FIGURES: dict[str, Callable[[argparse.Namespace], Report]] = {
    "fig6": _fig6,
    "fig7": _fig7,
    "fig8": _fig8,
    "fig9": _fig9,
    "inferline-fig5": lambda args: _planners(run_inferline_fig5),
    "inferline-fig6": lambda args: _tuners(run_inferline_fig6),
    "inferline-fig7": lambda args: _tuners(run_inferline_fig7),
    "inferline-fig9": lambda args: _planners(run_inferline_fig9),
    "inferline-fig10": lambda args: _tuners(run_inferline_fig10),
    "inferline-fig11": lambda args: _tuners(run_inferline_fig11),
    "inferline-fig12": lambda args: _tuners(run_inferline_fig12),
    "inferline-activation": lambda args: _tuners(run_inferline_activation),
    "clipper-fig3-7": lambda args: _panels("asking", run_clipper_fig3_7),
    "clipper-fig3-8": lambda args: _panels("asking", run_clipper_fig3_8),
    "clipper-fig3-9": lambda args: _panels("asking", run_clipper_fig3_9),
    "clipper-fig3-10": lambda args: _panels("asking", run_clipper_fig3_10),
    "velox-fig2-3": lambda args: _panels("updating", run_velox_fig2_3),
    "velox-fig2-4": lambda args: _panels("asking", run_velox_fig2_4),
    "parm-accuracy": lambda args: _panels("training", run_parm_accuracy),
    "parm-fig10": lambda args: _panels("simulating", run_parm_fig10),
    "parm-fig11": lambda args: _panels("simulating", run_parm_fig11),
    "parm-fig12": lambda args: _panels("simulating", run_parm_fig12),
    "parm-fig13": lambda args: _panels("simulating", run_parm_fig13),
    "parm-fig14": lambda args: _panels("simulating", run_parm_fig14),
    "parm-batches": lambda args: _panels("simulating", run_parm_batches),
    "parm-delays": lambda args: _panels("simulating", run_parm_delays),
}


def _model(text: str) -> str:
    if text not in MODELS:
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(MODELS)}, not {text!r}{did_you_mean(text, MODELS)}"
        )
    return text
