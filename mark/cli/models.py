"""mark models register, list, show, promote, rollback, diff: a registry of models."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from mark.cli.arguments import Commands, Listed, add_json
from mark.cli.output import deliver
from mark.domain.catalog.tables import load_catalog
from mark.domain.cells import is_file, read_text
from mark.domain.errors import BadInput
from mark.models.registry import ModelVersion, Registry
from mark.models.registry_place import open_registry, parse_reference, place_of
from mark.profiling.table import load_profiles
from mark.sdk.registry import register
from mark.studies.report.models_report import (
    Profiles,
    model_report,
    models_report,
    move_report,
    version_diff,
    version_diff_report,
    version_report,
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Versions of models that never change, named by their content, and aliases such as `production` that are "
        'moved from one to another. A service file names them: model = "registry:NAME@ALIAS".'
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    made = _action(actions, "register", run_register, "keep a model as a new version")
    made.add_argument("model", metavar="MODEL", help="module:Class, onnx:FILE, torch:FILE or sklearn:FILE")
    made.add_argument("--name", required=True, metavar="NAME", help="of the model in the registry")
    made.add_argument(
        "--metrics", action=Listed, default=(), metavar="FILE.json|KEY=NUMBER", help="how good it is; repeatable"
    )
    made.add_argument("--profile", metavar="FILE", help="its latency by batch size, a .csv file: it is planned with")
    made.add_argument("--parent", metavar="V", help="the version that it was made from: an alias or sha256:HEX")
    made.add_argument(
        "--files",
        action=Listed,
        default=(),
        metavar="PATTERN",
        help="the files to keep; repeatable, or with commas (default: those that the model opens)",
    )
    made.add_argument(
        "--no-load", dest="load", action="store_false", help="keep it untried; then --files names the files it needs"
    )
    made.add_argument("--alias", metavar="ALIAS", help="let this alias name it, too")
    _action(actions, "list", run_list, "the models of the registry, and where their aliases are")
    shown = _action(actions, "show", run_show, "a model's versions, or one version")
    shown.add_argument("which", metavar="NAME[@V]", help="V is an alias, or sha256: and some digits")
    promoted = _action(actions, "promote", run_promote, "let an alias name a version")
    promoted.add_argument("which", metavar="NAME@V")
    promoted.add_argument("alias", metavar="ALIAS")
    back = _action(actions, "rollback", run_rollback, "move an alias back to its previous version")
    back.add_argument("name", metavar="NAME")
    back.add_argument("alias", metavar="ALIAS")
    for each in (promoted, back):
        each.add_argument("--expect", metavar="V", help="only if the alias names this one now; none: not yet any")
    diff = _action(actions, "diff", run_diff, "two versions: files, metrics, latency, dollars")
    diff.add_argument("before", metavar="NAME@V")
    diff.add_argument("after", metavar="NAME@V")
    diff.add_argument("--catalog", default="aws-2026", metavar="NAME|FILE", help="prices (default: aws-2026)")


def run_register(args: argparse.Namespace) -> int:
    version = register(
        args.model,
        args.name,
        metrics=_metrics(args.metrics),
        profile=args.profile,
        parent=args.parent,
        alias=args.alias,
        files=[pattern for text in args.files for pattern in text.split(",") if pattern],
        load=args.load,
        registry=args.registry,
    )
    deliver(version_report(version), args.json)
    return 0


def run_list(args: argparse.Namespace) -> int:
    registry = open_registry(args.registry)
    if args.registry and "://" not in args.registry and not Path(args.registry).exists():
        raise BadInput("no such folder; `mark models register` makes it", "--registry", args.registry)
    models = {name: (registry.versions(name, _warn), registry.aliases(name)) for name in registry.names()}
    deliver(models_report(place_of(args.registry), models), args.json)
    return 0


def run_show(args: argparse.Namespace) -> int:
    registry = open_registry(args.registry)
    if "@" in args.which:
        version = _find(registry, args.which)
        deliver(version_report(version), args.json)
        return 0
    versions = registry.versions(args.which, _warn)
    histories = {alias: registry.history(args.which, alias) for alias in registry.aliases(args.which)}
    deliver(model_report(args.which, versions, histories), args.json)
    return 0


def run_promote(args: argparse.Namespace) -> int:
    name, which = parse_reference(args.which, "NAME@V")
    move = open_registry(args.registry).promote(name, which, args.alias, args.expect)
    deliver(move_report(name, move), args.json)
    return 0


def run_rollback(args: argparse.Namespace) -> int:
    move = open_registry(args.registry).rollback(args.name, args.alias, args.expect)
    deliver(move_report(args.name, move), args.json)
    return 0


def run_diff(args: argparse.Namespace) -> int:
    registry = open_registry(args.registry)
    before, after = _find(registry, args.before), _find(registry, args.after)
    profiles = _profiles(registry, before), _profiles(registry, after)
    diff = version_diff(before, after, profiles, load_catalog(args.catalog))
    deliver(version_diff_report(diff), args.json)
    return 0


def _action(actions: Commands[argparse.ArgumentParser], name: str, run: object, what: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=what, allow_abbrev=False)
    parser.add_argument(
        "--registry", metavar="DIR|s3://BUCKET/PREFIX", help="default: MARK_REGISTRY, else .mark-registry"
    )
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def _warn(error: BadInput) -> None:
    print(f"mark: left out: {error}", file=sys.stderr)


def _find(registry: Registry, text: str) -> ModelVersion:
    return registry.find(*parse_reference(text, "NAME@V"))


def _profiles(registry: Registry, version: ModelVersion) -> Profiles:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "profile.csv")
        return load_profiles(str(file))[version.content.profiled] if registry.fetch_profile(version, file) else {}


def _metrics(given: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in given:
        if is_file(Path(text)):
            try:
                said = json.loads(read_text(Path(text)))
            except ValueError as error:
                raise BadInput(f"is no JSON: {error}", text) from None
            if not isinstance(said, dict):
                raise BadInput("must be an object of numbers by name", text)
            found |= said
            continue
        metric, equals, value = text.partition("=")
        try:
            found[metric] = float(value)
        except ValueError:
            metric = ""
        if not metric or not equals:
            raise BadInput("must be a file, or NAME=NUMBER", "metrics", text)
    return found
