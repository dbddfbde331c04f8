"""mark compare: several policies on one trace, side by side."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from mark.cli.executors import add_executor, executor_from
from mark.cli.options import add_run_options, policy_list, request_from
from mark.cli.output import deliver, progress
from mark.cli.report import report, slo_code
from mark.domain.errors import BadInput
from mark.planning.policies.target_tracking import tracked_type
from mark.reporting.table import compare_table
from mark.reporting.takeaway import savings_json
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.attribution import compare_attributed

_MANAGED = "target-tracking"
_DEFAULT = f"mark,mark-paper,reactive,static-peak,best-fixed,{_MANAGED},oracle"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Simulate several policies on the same arrivals and print them side by side."
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    parser.add_argument(
        "--policies",
        type=policy_list,
        metavar="A,B,C",
        help=f"policies, each name[:predictor]; --policy adds one in front (default: {_DEFAULT})",
    )
    parser.add_argument(
        "--attribute",
        type=_names,
        metavar="A,B|none",
        help="whose dollars above the bound to split (default: all that forecast but the paper's; 1 or 2 runs more)",
    )
    add_run_options(parser)
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    named = args.policies or _default(request_from(args))
    names = named if args.policy in (None, *named) else (args.policy, *named)
    executor = executor_from(args)
    with progress("comparing") as bar:
        request = replace(request_from(args, bar), explain=bool(args.report))
        results, attribution = compare_attributed(request, names, args.attribute, executor=executor)
    data = {
        "schema": 1,
        "policies": {name: result.as_json() for name, result in results.items()},
        "savings": savings_json(results),
        "attribution": {name: one.as_json() for name, one in attribution.items()},
    }
    deliver(data, args.json, lambda: compare_table(results, attribution))
    if args.report:
        report(args, results, attribution, executor=executor)
    return slo_code(args, results)


def _default(request: RunRequest) -> tuple[str, ...]:
    """The usual policies, without SageMaker's where it has no type for this service."""
    names = policy_list(_DEFAULT)
    service = open_service(request)
    try:
        tracked_type(_MANAGED, service)
    except BadInput as error:
        print(f"mark: {_MANAGED} is left out: {error.what}", file=sys.stderr)
        return tuple(name for name in names if name != _MANAGED)
    return names


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else policy_list(text)
