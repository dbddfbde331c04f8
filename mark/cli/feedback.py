"""mark feedback join: observations of several bouncers' logs, each id once."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from mark.cli.arguments import out_file
from mark.cli.numbers import span
from mark.domain.service import FeedbackSettings
from mark.serving.feedback.log_join import LogJoin, join_logs


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    horizon_s = FeedbackSettings("").horizon_s
    join = actions.add_parser(
        "join",
        help="observations of the logs of several bouncers, each id once",
        description="Feedback may reach another bouncer than the one that answered, or the same after a restart. This "
        "joins their logs, as JSON Lines: an answer and the feedback on it a line.",
        allow_abbrev=False,
    )
    join.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="the files that [feedback] log names, one of each bouncer"
    )
    join.add_argument(
        "--horizon-s",
        type=span,
        default=horizon_s,
        metavar="S",
        help=f"feedback counts for so long after its answer (default: {horizon_s:g})",
    )
    join.add_argument("--out", type=out_file, metavar="FILE.jsonl", help="instead of stdout")
    join.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = LogJoin()
    with ExitStack() as stack:
        out = sys.stdout if args.out is None else stack.enter_context(open(args.out, "w", encoding="utf-8"))
        for line in join_logs(args.folders, args.horizon_s, found):
            out.write(json.dumps(line) + "\n")
    print(
        f"mark: {found.observed + found.joined} observations, {found.joined} of them joined here; of the other "
        f"feedback {found.repeated} repeated, {found.unanswered} without an answer; {found.unreadable} lines cut off",
        file=sys.stderr,
    )
    return 0
