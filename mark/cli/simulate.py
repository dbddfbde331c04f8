"""mark simulate: one policy on one trace, of a service or of a pipeline."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import Any

from mark.cli.options import (
    add_no_bound,
    add_pipeline_options,
    add_run_options,
    refuse_pipeline_options,
    refuse_service_options,
    request_from,
)
from mark.cli.output import cores, deliver, progress
from mark.cli.report_file import report, slo_code
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.planning.graphs.pipeline_policies import PIPELINE_POLICIES
from mark.planning.policies.names import split_policy
from mark.simulation.cached_keys import CachedKeys, cached_keys, popularity_of
from mark.simulation.request import RunRequest
from mark.studies.compare import open_named, run_one
from mark.studies.executor import executor_for
from mark.studies.next_day import next_day_of_run
from mark.studies.report.compare_report import compare_report
from mark.studies.report.report import Report
from mark.studies.report.simulate_report import simulate_report
from mark.studies.report.words import percent


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate one policy on a trace, request by request: bill, SLO, latency, regret. "
        f"Of a pipeline, by stage: {', '.join(PIPELINE_POLICIES)}."
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_pipeline_options(parser)
    add_run_options(parser)
    add_no_bound(parser)
    parser.add_argument(
        "--keys",
        metavar="zipf:S,N[,BYTES]",
        help="ask for N keys by Zipf's law with exponent S: [cache] answers repeated requests (BYTES: of an answer)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if names_pipeline(args.service):
        return _pipeline(args)
    refuse_pipeline_options(args)
    args.policy, args.predictor = split_policy(args.policy or "mark", args.predictor)
    with progress("simulating") as bar:
        request, cached = _behind_cache(args, replace(request_from(args), explain=bool(args.report)))
        result = run_one(request, bar)
    next_day = next_day_of_run(open_named(request), result)
    deliver(_with_cache(simulate_report(result, next_day, _cache_json(cached)), cached), args.json)
    results = {result.policy: result}
    if args.report:
        compared = compare_report(results, next_days={result.policy: next_day})
        report(args, compared, results, executor=executor_for(cores()))
    return slo_code(args, results)


def _pipeline(args: argparse.Namespace) -> int:
    # here: a service needs none of it
    from mark.studies.pipeline_run import simulate_pipeline
    from mark.studies.report.pipeline_run import pipeline_run_report

    refuse_service_options(args)
    # The output of a driver and its models must not mix with the result.
    with progress("simulating") as bar, redirect_stdout(sys.stderr):
        request, cached = _behind_cache(args, request_from(args, bar))
        (found,) = simulate_pipeline(
            request, (request.policy,), lineage=args.lineage, queries=args.queries, answers=args.answers
        ).values()
    deliver(_with_cache(pipeline_run_report(found, _cache_json(cached)), cached), args.json)
    return 4 if args.fail_below_slo and not found.kept else 0


def _behind_cache(args: argparse.Namespace, request: RunRequest) -> tuple[RunRequest, CachedKeys | None]:
    """Return the request with the arrivals that its cache does not answer. Raises BadInput."""
    if args.keys is None:
        return request, None
    popularity = popularity_of(args.keys)
    config = load_pipeline(args.service) if names_pipeline(args.service) else load_service(args.service)
    if config.cache is None:
        raise BadInput("needs a section [cache], which says how much memory there is for answers", "--keys", args.keys)
    cached = cached_keys(popularity, config.cache, args.seed)
    return replace(request, scale=request.scale * (1.0 - cached.hit_share)), cached


def _cache_json(cached: CachedKeys | None) -> dict[str, Any]:
    return {} if cached is None else {"cache": asdict(cached)}


def _with_cache(report: Report, cached: CachedKeys | None) -> Report:
    if cached is None:
        return report
    said = f"{percent(cached.hit_share)} of all requests; every figure is of the other ones, which reach instances"
    note = f"a cache of {cached.answers_kept:,} answers in each process gives {said}"
    return replace(report, notes=[*report.notes, note])
