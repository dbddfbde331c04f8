"""mark compare: several policies on one trace, side by side, of a service or of a pipeline."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import replace

from mark.cli.arguments import Listed
from mark.cli.executors import add_executor, executor_from
from mark.cli.options import (
    add_no_bound,
    add_pipeline_options,
    add_run_options,
    policy_list,
    refuse_pipeline_options,
    refuse_service_options,
    request_from,
)
from mark.cli.output import deliver, progress
from mark.cli.report_file import report, slo_code
from mark.config.pipeline_file import names_pipeline
from mark.domain.errors import BadInput
from mark.planning.graphs.pipeline_policies import PIPELINE_POLICIES
from mark.planning.policies.names import AS_IS
from mark.planning.policies.target_tracking import tracked_type
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.attribution import compare_attributed
from mark.studies.compare import without_instances
from mark.studies.next_day import next_days
from mark.studies.promise_outlook import outlook_of_run
from mark.studies.report.compare_report import compare_report
from mark.studies.report.next_day_report import with_next_day
from mark.studies.report.takeaway import listed, savings_json
from mark.studies.spot_request import no_spot_request, spot_request

_MANAGED = ("target-tracking-best", "target-tracking")
_DEFAULT = f"mark,mark-paper,reactive,static-peak,best-fixed,{','.join(_MANAGED)},oracle"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Simulate several policies on the same arrivals and print them side by side."
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    parser.add_argument(
        "--policies",
        action=Listed,
        parse=policy_list,
        metavar="A,B,C",
        help=f"policies, each name[:predictor]; --policy adds one in front (default: {_DEFAULT}, "
        f"{AS_IS} with [policy]; of a pipeline {','.join(PIPELINE_POLICIES)})",
    )
    parser.add_argument(
        "--attribute",
        action=Listed,
        parse=_names,
        metavar="A,B|none",
        help="whose dollars above the bound to split (default: all that forecast but the paper's; 1 or 2 runs more)",
    )
    add_pipeline_options(parser)
    add_run_options(parser)
    add_no_bound(parser)
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if names_pipeline(args.service):
        return _pipeline(args)
    refuse_pipeline_options(args)
    executor = executor_from(args)
    with progress("comparing") as bar:
        names = _with_policy(args, args.policies or _default(request_from(args)))
        if not open_service(request_from(args)).offers:
            names = _without_instances(request_from(args), names)
        # One more run shows the effect of spot: with it if no policy is named, without it if `mark` buys it.
        with_spot = None if args.policies or args.policy else spot_request(request_from(args))
        compared = "mark" in names and len(names) > 1
        asked = with_spot or (no_spot_request(request_from(args)) if compared else None)
        request = replace(request_from(args, bar), explain=bool(args.report))
        results, attribution, other = compare_attributed(
            request, names, args.attribute, beside=asked, executor=executor
        )
        spot, no_spot = (other, None) if with_spot else (None, other)
    with progress("judging the promise") as bar:
        outlook = outlook_of_run(request_from(args), results, bar)
    coming = next_days(request_from(args), results)
    data = {
        "schema": 1,
        "policies": {name: with_next_day(result.as_json(), coming[name]) for name, result in results.items()},
        "savings": savings_json(results),
        "with_spot": None if spot is None else spot.as_json(),
        "without_spot": None if no_spot is None else no_spot.as_json(),
        "attribution": {name: one.as_json() for name, one in attribution.items()},
        "promise": None if outlook is None else outlook.as_json(),
    }
    shown = compare_report(results, attribution, outlook, coming, spot=spot, no_spot=no_spot, data=data)
    deliver(shown, args.json)
    if args.report:
        report(args, shown, results, executor=executor)
    return slo_code(args, results)


def _pipeline(args: argparse.Namespace) -> int:
    # here: a service needs none of it
    from mark.studies.pipeline_run import simulate_pipeline, usual_policies
    from mark.studies.report.pipeline_run import pipeline_compare_report

    refuse_service_options(args)
    names = _with_policy(args, args.policies or usual_policies(request_from(args)))
    executor = executor_from(args)
    # The output of a driver and its models must not mix with the result.
    with progress("comparing") as bar, redirect_stdout(sys.stderr):
        runs = simulate_pipeline(
            request_from(args, bar),
            names,
            lineage=args.lineage,
            queries=args.queries,
            answers=args.answers,
            executor=executor,
        )
    deliver(pipeline_compare_report(runs), args.json)
    return 4 if args.fail_below_slo and not all(run.kept for run in runs.values()) else 0


def _with_policy(args: argparse.Namespace, named: tuple[str, ...]) -> tuple[str, ...]:
    return named if args.policy in (None, *named) else (args.policy, *named)


def _default(request: RunRequest) -> tuple[str, ...]:
    """Return the usual policies and the user's own, without SageMaker's if it sells no type for this service."""
    names = policy_list(_DEFAULT)
    service = open_service(request)
    for managed in _MANAGED:
        try:
            tracked_type(managed, service)
        except BadInput as error:
            print(f"mark: {managed} is left out: {error.what}", file=sys.stderr)
            names = tuple(name for name in names if name != managed)
    return names if service.service.as_is is None else (*names, AS_IS)


def _without_instances(request: RunRequest, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the policies that work with functions alone if there is no instance to buy; print the others."""
    unable = without_instances(request, names)
    able = tuple(name for name in names if name not in unable)
    if not unable or not able:
        return names
    verb = "is" if len(unable) == 1 else "are"
    print(
        f"mark: {listed(unable)} {verb} left out: there is no instance to buy, functions alone serve", file=sys.stderr
    )
    return able


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else policy_list(text)
