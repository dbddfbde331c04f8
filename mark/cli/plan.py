"""mark plan: one decision, explained in dollars."""

from __future__ import annotations

import argparse

from mark.cli.options import Commands, add_run_options, request_from, seconds
from mark.cli.output import deliver


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="one decision, explained in dollars",
        description="Plan once: what the policy believes, what it would buy, and what the alternatives would cost.",
        allow_abbrev=False,
    )
    parser.add_argument("--trace", required=True, metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    parser.add_argument("--at", type=seconds, metavar="S", help="seconds from the first row (default: the last minute)")
    add_run_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mark.reporting.explain import explain, plan_table
    from mark.simulation.decision import plan_once
    from mark.simulation.inputs import trace_named_in
    from mark.simulation.many import split_policy

    args.policy, args.predictor = split_policy(args.policy or "mark", args.predictor)
    request = request_from(args)
    at_s = args.at
    if at_s is None:
        at_s = max(0.0, trace_named_in(request).duration_s - 60.0)
    plan, forecast, deployment = plan_once(request, at_s)
    explained = explain(plan, forecast, deployment, {}, at_s)
    deliver(explained.as_json(), args.json, lambda: plan_table(explained))
    return 0
