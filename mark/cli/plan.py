"""mark plan: one decision, explained in dollars; or the commitment that the trace would have justified.

For a pipeline: the cheapest fleet for its busiest minutes, and each stage's share of dollars and milliseconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from mark.cli.arguments import Listed
from mark.cli.numbers import seconds
from mark.cli.options import add_pipeline_options, add_run_options, refuse_pipeline_options, request_from
from mark.cli.output import deliver, progress
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.domain.catalog.commitment import DISCOUNTS, SOURCE
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.planning.market.commitment import advise
from mark.planning.policies.names import split_policy
from mark.simulation.inputs import open_service, trace_named_in
from mark.simulation.run import simulate
from mark.studies.decision import plan_service_once, slo_prices
from mark.studies.insured_plan import plan_insured_once
from mark.studies.next_day import next_day_of_plan
from mark.studies.pipeline_plan import plan_pipeline_once
from mark.studies.promise_outlook import outlook_of
from mark.studies.report.commitment_report import commitment_report
from mark.studies.report.explain import explain, insured_plan_report, plan_report
from mark.studies.report.pipeline_plan import pipeline_plan_report

_DISCOUNTS = ",".join(f"{term}={share:g}" for term, share in DISCOUNTS.items())


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Plan once: the load that the policy believes, the fleet it would buy, and the cost of the alternatives. "
        "With --advise-commitment: simulate the part and say how many instances of each type are worth a commitment. "
        "Of a pipeline: the cheapest fleet for the busiest 2 minutes of the part, or of the hour from --at on."
    )
    trace = parser.add_mutually_exclusive_group(required=True)
    trace.add_argument("trace", nargs="?", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    trace.add_argument("--trace", dest="trace_option", metavar="TRACE", help="the same, as an option")
    parser.add_argument("--at", type=seconds, metavar="S", help="seconds from the first row (default: the last minute)")
    parser.add_argument(
        "--running", metavar="A=N,B=N", help="the fleet that runs, INSTANCE=COUNT (default: none, a first fleet)"
    )
    parser.add_argument(
        "--advise-commitment",
        action="store_true",
        help="how many reserved instances the part (--start, --duration) would have justified",
    )
    parser.add_argument(
        "--commitment-discount",
        action=Listed,
        parse=_discounts,
        default=dict(DISCOUNTS),
        metavar="TERM=SHARE",
        help=f"a commitment's discount on the on-demand price, several by commas (default: {_DISCOUNTS}, of m6a in "
        "October 2026)",
    )
    add_pipeline_options(parser)
    add_run_options(parser, report="a page with the graph and its figures, of a pipeline", plotted=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    args.trace = args.trace or args.trace_option
    if names_pipeline(args.service):
        return _pipeline(args)
    refuse_pipeline_options(args)
    if args.report:
        raise BadInput("only the plan of a pipeline is shown as a page; mark compare has one of a service", "--report")
    args.policy, args.predictor = split_policy(args.policy or "mark", args.predictor)
    if args.advise_commitment:
        return _advise(args)
    request = request_from(args)
    at_s = args.at
    if at_s is None:
        at_s = max(0.0, trace_named_in(request, sized=True).duration_s - 60.0)
    planned = plan_service_once(request, at_s, args.running)
    with progress("judging the promise") as bar:
        outlook = outlook_of(planned, bar)
    explained = explain(
        planned.plan,
        planned.context,
        at_s,
        slo_prices(planned),
        planned.inputs.trace.read,
        outlook,
        next_day_of_plan(planned),
    )
    deliver(plan_report(explained), args.json)
    return 0


def _pipeline(args: argparse.Namespace) -> int:
    if load_pipeline(args.service).insured is not None:
        return _insured(args)
    _refuse(
        args, ("policy", "predictor", "running", "advise_commitment", "tail"), "a pipeline is planned for a fixed load"
    )
    # The output of a driver and its models must not mix with the result.
    with progress("planning") as bar, redirect_stdout(sys.stderr):
        planned = plan_pipeline_once(
            request_from(args),
            args.at,
            lineage=args.lineage,
            queries=args.queries,
            answers=args.answers,
            progress=bar,
        )
    deliver(pipeline_plan_report(planned), args.json, args.report)
    return 0


def _insured(args: argparse.Namespace) -> int:
    refused = ("policy", "running", "advise_commitment", "report")
    _refuse(args, refused, "the stages of a service with parity models are planned by policy mark")
    found = plan_insured_once(
        request_from(args), args.at, lineage=args.lineage, queries=args.queries, answers=args.answers
    )
    deliver(insured_plan_report(found), args.json)
    return 0


def _refuse(args: argparse.Namespace, options: Sequence[str], why: str) -> None:
    for option in options:
        if getattr(args, option):
            raise BadInput(f"{why}, without this option", f"--{option.replace('_', '-')}")


def _advise(args: argparse.Namespace) -> int:
    with progress("simulating") as bar:
        request = replace(request_from(args, bar), with_bound=False)
        resolved = open_service(request)
        result = simulate(request)
    prices = {o.name: o.usd_per_hour for o in resolved.offers if o.market is Market.ON_DEMAND}
    advice = advise(result.timeline.instances, prices, args.commitment_discount)
    committed = dict(resolved.committed)
    source = SOURCE if args.commitment_discount == DISCOUNTS else "--commitment-discount"
    deliver(commitment_report(result, advice, committed, source), args.json)
    return 0


def _discounts(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        term, equals, share = (piece.strip() for piece in part.partition("="))
        try:
            discount = float(share)
        except ValueError:
            discount = -1.0
        if not (term and equals and 0.0 < discount < 1.0):
            raise argparse.ArgumentTypeError(f"must be TERM=SHARE with a share between 0 and 1, not {part!r}")
        if term in found:
            raise argparse.ArgumentTypeError(f"names a term twice: {term!r}")
        found[term] = discount
    return found
