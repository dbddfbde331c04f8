"""mark selection: replay policies on logged answers, and show the state of a running server."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.arguments import Listed, add_json, out_file
from mark.cli.numbers import above_zero, number, seed, whole
from mark.cli.output import deliver, progress, write_file
from mark.domain.errors import BadInput
from mark.planning.graphs.lineage_file import lineage_csv
from mark.selection.settings import POLICIES
from mark.studies.report.selection_replay_report import replay_report
from mark.studies.report.selection_report import state_report
from mark.studies.selection_replay import ReplayRequest, lineage_of, replay_log

_MOST_WINDOW = 1_000_000_000


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_replay(
        actions.add_parser(
            "replay",
            help="policies on logged answers: error, asks and dollars",
            description="Give the queries of a log to selection policies, in their order, and tell each policy the "
            "right label after its answer. Prints the error that each would have had, how many candidates it asks, "
            "what that costs, and its regret.",
            allow_abbrev=False,
        )
    )
    show = actions.add_parser(
        "show", help="what a running server has learned: shares and errors of its candidates", allow_abbrev=False
    )
    show.add_argument("address", metavar="ADDRESS", help="http://HOST:PORT, or the URL of its model")
    show.add_argument("--key-file", type=Path, metavar="FILE", help="a file with an API key of the server")
    add_json(show)
    show.set_defaults(run=_show)


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "log",
        metavar="LOG",
        help="CSV or JSON Lines with label, NAME.answer, optional NAME.score, NAME.usd and key; or the folder of "
        "[feedback] log",
    )
    replay.add_argument(
        "--service", metavar="FILE", help="pipeline file with [selection]: candidates, prices and settings"
    )
    replay.add_argument(
        "--policy",
        action=Listed,
        default=(),
        dest="chosen",
        metavar="A,B",
        help=f"some of {', '.join(POLICIES)}, module:Class (default: that of the file)",
    )
    replay.add_argument("--correct-usd", type=above_zero, metavar="USD", help="cascade: the value of a correct answer")
    replay.add_argument(
        "--threshold", type=number, metavar="X", help="cascade: the score from which nobody else is asked"
    )
    replay.add_argument("--half-life", type=above_zero, metavar="N", help="feedbacks after which one counts half")
    replay.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    replay.add_argument(
        "--window", type=whole(1, _MOST_WINDOW), default=1000, metavar="N", help="queries of a window (default: 1000)"
    )
    add_json(replay)
    replay.add_argument(
        "--out", type=out_file, metavar="LINEAGE.csv", help="which candidates queries ask, for simulate and plan"
    )
    replay.set_defaults(run=_replay)


def _replay(args: argparse.Namespace) -> int:
    if len(set(args.chosen)) < len(args.chosen):
        raise BadInput("names a policy twice", "--policy", ",".join(args.chosen))
    if args.out is not None and len(args.chosen) > 1:
        raise BadInput("is the lineage of one policy: give one", "--out", ",".join(args.chosen))
    request = ReplayRequest(
        log=args.log,
        service=args.service,
        policies=tuple(args.chosen),
        correct_usd=args.correct_usd,
        threshold=args.threshold,
        half_life=args.half_life,
        seed=args.seed,
        window=args.window,
    )
    with progress("replaying") as bar:
        found = replay_log(request, bar)
    if args.out is not None:
        write_file(args.out, lineage_csv(lineage_of(found)), "--out")
    deliver(replay_report(found), args.json)
    return 0


def _show(args: argparse.Namespace) -> int:
    from mark.launch.running_server import running_selection  # needs httpx, which replays do not

    said = running_selection(args.address, args.key_file)
    deliver(state_report(said), args.json)
    return 0
