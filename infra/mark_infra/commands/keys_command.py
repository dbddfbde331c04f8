"""mark keys list, add, rotate, revoke: the keys that a site's services and its controller accept."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mark.cli.arguments import Commands, add_json
from mark.cli.numbers import whole
from mark.cli.output import deliver
from mark.serving.frontend.auth import CONTROLLER
from mark.studies.report.report import DataTable, Report
from mark_infra.deploy.deploy import site_keys
from mark_infra.deploy.keys import SiteKey, added, new_key, revoked, rotated
from mark_infra.deploy.target import DeployTarget


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Keys of a site that mark deploy has made. AWS Systems Manager holds them; bouncers and the controller look "
        "every 30 s, so a change takes effect within a minute, and nothing is rebuilt or restarted."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listed = _action(actions, "list", run_list, "names, scopes and ends; no keys")
    add_json(listed)
    made = _action(actions, "add", run_add, "one more, printed once")
    made.add_argument("key", metavar="NAME", help="stands in logs, and here")
    made.add_argument(
        "--scopes", default="infer", metavar="A,B", help="infer, metrics, read (the controller's API), admin (all)"
    )
    turned = _action(actions, "rotate", run_rotate, "a new one in its place, printed once")
    turned.add_argument("key", metavar="NAME")
    turned.add_argument(
        "--overlap-h", type=whole(0, 8784), default=24, metavar="H", help="hours the old one still holds (default: 24)"
    )
    gone = _action(actions, "revoke", run_revoke, "refuse it, within a minute")
    gone.add_argument("key", metavar="NAME")


def run_list(args: argparse.Namespace) -> int:
    keys = site_keys(_target(args)).read()
    deliver(_report(keys), args.json)
    return 0


def run_add(args: argparse.Namespace) -> int:
    made = new_key()
    _change(args, lambda keys: added(keys, args.key, args.scopes.split(","), made))
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    ends = round(time.time()) + 3600 * args.overlap_h if args.overlap_h else None
    made = new_key()
    _change(args, lambda keys: rotated(keys, args.key, ends, made))
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    site_keys(_target(args)).change(lambda keys: revoked(keys, args.key), time.time())
    print(f"mark: {args.key} is refused within a minute", file=sys.stderr)
    return 0


def _change(args: argparse.Namespace, edit: Callable[[list[SiteKey]], list[SiteKey]]) -> None:
    keys = site_keys(_target(args)).change(edit, time.time())
    if args.key == CONTROLLER:  # only the controller needs it
        print("mark: the controller has a new key", file=sys.stderr)
        return
    print([key for key in keys if key.name == args.key][-1].key)
    print(f"mark: {args.key} is let in within a minute", file=sys.stderr)


def _target(args: argparse.Namespace) -> DeployTarget:
    return DeployTarget(name=args.name, profile=args.profile, region=args.region, state=args.state)


def _report(keys: list[SiteKey]) -> Report:
    rows, data = [], []
    for key in keys:
        data.append(
            {"name": key.name, "scopes": list(key.scopes), "until_unix_s": key.until_unix_s, "digest": key.digest}
        )
        end = "" if key.until_unix_s is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(key.until_unix_s))
        rows.append((key.name, ", ".join(key.scopes), end, key.digest[:15]))
    heads = ("key", ("scopes", str), ("until", str), ("digest", str))
    return Report({"schema": 1, "keys": data}, parts=[DataTable(heads, rows)])


def _action(
    actions: Commands[argparse.ArgumentParser], name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=what, allow_abbrev=False)
    parser.add_argument("--name", default="mark", metavar="SITE", help="the site's name (default: mark)")
    parser.add_argument("--profile", metavar="NAME", help="profile of AWS's configuration (default: $AWS_PROFILE)")
    parser.add_argument("--region", default="", metavar="R", help="region of AWS (default: $AWS_REGION, the profile's)")
    parser.add_argument("--state", type=Path, metavar="DIR", help="has a copy of the keys (default: .mark-deploy/SITE)")
    parser.set_defaults(run=run)
    return parser
