"""mark personal: learning per key, replayed on logged rewards."""

from __future__ import annotations

import argparse

from mark.cli.arguments import Listed, add_json
from mark.cli.numbers import seed, share
from mark.cli.output import deliver, progress
from mark.personal.settings import EXPLORING
from mark.studies.personal_replay import SPLIT, LearningRequest, replay_ratings
from mark.studies.rating_file import TIME, RatingColumns
from mark.studies.report.personal_replay_report import learning_json, learning_table


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    replay = actions.add_parser(
        "replay",
        help="learning per key on logged rewards: error, reward and reach",
        description="Fit item vectors to a part of the log, let the head of each key learn from the next part, and "
        "print the error on the rest, beside that of heads that do not learn and that of retraining. Each policy then "
        "chooses which logged items are shown.",
        allow_abbrev=False,
    )
    columns = RatingColumns()
    replay.add_argument(
        "ratings", metavar="RATINGS", help=f"CSV with a row for each reward, and optionally its time in {TIME!r}"
    )
    replay.add_argument(
        "--policy",
        action=Listed,
        default=("greedy", "item"),
        dest="chosen",
        metavar="A,B",
        help=f"some of {', '.join(EXPLORING)} (default: greedy,item)",
    )
    for option, name, of in (
        ("--key", columns.key, "the user or other key"),
        ("--item", columns.item, "the item"),
        ("--reward", columns.reward, "the reward, a number"),
    ):
        replay.add_argument(option, default=name, metavar="COLUMN", help=f"{of} (default: {name})")
    replay.add_argument(
        "--split",
        action=Listed,
        each=share,
        default=SPLIT,
        metavar="A,B,C",
        help=f"shares for item vectors, for learning, and held out (default: {','.join(map(str, SPLIT))})",
    )
    replay.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    add_json(replay)
    replay.set_defaults(run=_replay)


def _replay(args: argparse.Namespace) -> int:
    request = LearningRequest(
        ratings=args.ratings,
        policies=tuple(args.chosen),
        columns=RatingColumns(args.key, args.item, args.reward),
        split=tuple(args.split),
        seed=args.seed,
    )
    with progress("replaying") as bar:
        found = replay_ratings(request, bar)
    deliver(learning_json(found), args.json, lambda: learning_table(args.ratings, found))
    return 0
