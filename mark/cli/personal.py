"""mark personal: learning per key, replayed on logged rewards, shown, retrained, and searched for a key."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.arguments import Listed, add_json
from mark.cli.numbers import seed, share
from mark.cli.output import deliver, progress
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.personal.settings import EXPLORING
from mark.studies.personal_replay import SPLIT, LearningRequest, replay_ratings
from mark.studies.rating_file import TIME, RatingColumns
from mark.studies.report.personal_reports import heads_report, key_report, learning_report, retrain_report, scan_report


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
    _add_show(actions.add_parser("show", help="what a running server has learned, or of one key", allow_abbrev=False))
    _add_retrain(
        actions.add_parser(
            "retrain",
            help="make a new table of item vectors, and promote it if it is better",
            description="Train item vectors on what servers have learned, by the command of [personal.retrain] or by "
            "matrix factorisation. Newer rewards judge the new table beside the present one. It becomes a version of "
            "the registry, and the alias moves to it if its error is proved lower.",
            allow_abbrev=False,
        )
    )
    _add_scan(
        actions.add_parser(
            "scan",
            help="look for a key in all that a service keeps: the proof of its deletion",
            description="Look for a key in feedback logs, snapshots, rows, object stores and running servers. Exits 1 "
            "where something of it is found.",
            allow_abbrev=False,
        )
    )


def _add_show(show: argparse.ArgumentParser) -> None:
    show.add_argument("key", metavar="KEY", nargs="?", help="a user or other key (default: errors of all)")
    show.add_argument(
        "--address", metavar="URL", required=True, help="http://HOST:PORT of the server, or the URL of its model"
    )
    show.add_argument("--key-file", type=Path, metavar="FILE", help="a file with an API key of the server")
    add_json(show)
    show.set_defaults(run=_show)


def _add_retrain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="FILE", help="service file with [personal]")
    parser.add_argument("--log", type=Path, metavar="FOLDER", help="what servers learned (default: [feedback] log)")
    parser.add_argument(
        "--held-out",
        type=share,
        default=0.2,
        metavar="S",
        help="share of the rewards, the newest, that judge (default: 0.2)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="of the table in the registry (default: the service's, and -table)"
    )
    parser.add_argument(
        "--registry", metavar="DIR|s3://BUCKET/PREFIX", help="default: MARK_REGISTRY, else .mark-registry beside FILE"
    )
    add_json(parser)
    parser.set_defaults(run=_retrain)


def _add_scan(scan: argparse.ArgumentParser) -> None:
    scan.add_argument("key", metavar="KEY", help="the user or other key")
    scan.add_argument("--service", metavar="FILE", help="pipeline file with [personal]: its log and its store")
    scan.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FOLDER", help="a folder of [feedback] log; repeatable"
    )
    scan.add_argument(
        "--address", action="append", default=[], metavar="URL", help="a running server, or the URL of its model"
    )
    scan.add_argument(
        "--key-file", type=Path, metavar="FILE", help="a file with an API key of these servers, scope admin"
    )
    add_json(scan)
    scan.set_defaults(run=_scan)


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
    deliver(learning_report(args.ratings, found), args.json)
    return 0


def _show(args: argparse.Namespace) -> int:
    from mark.launch.running_server import running_heads, running_key  # needs httpx, which replays do not

    if args.key is None:
        said = running_heads(args.address, args.key_file)
        deliver(heads_report(said), args.json)
        return 0
    known = running_key(args.address, args.key, args.key_file)
    if known is None:
        raise BadInput("knows nothing of this key", args.address, args.key)
    deliver(key_report(known), args.json)
    return 0


def _retrain(args: argparse.Namespace) -> int:
    from mark.launch.personal_retrain import RetrainRequest, retrain  # needs the data plane, which replays do not

    with progress("retraining") as bar:
        found = retrain(RetrainRequest(args.service, args.log, args.held_out, args.registry, args.name), bar)
    deliver(retrain_report(args.service, found), args.json)
    return 0


def _scan(args: argparse.Namespace) -> int:
    from mark.launch.personal_scan import scan_key  # needs httpx, which replays do not

    logs, stores = list(args.log), []
    if args.service is not None:
        config = load_pipeline(args.service, heads_alone=True)
        if config.personal is None or config.feedback is None:
            raise BadInput("has no section [personal]", args.service)
        logs.append(Path(config.feedback.log))
        if config.feedback.store:
            stores.append((config.feedback.store, config.name))
    if not logs and not stores and not args.address:
        raise BadInput("names no place to look at: give --service, --log or --address", "mark personal scan", args.key)
    found = scan_key(args.key, logs, stores, args.address, args.key_file)
    deliver(scan_report(found), args.json)
    return 1 if found.found else 0
