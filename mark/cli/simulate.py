"""mark simulate: one policy on one trace, of a service or of a pipeline."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

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
from mark.studies.report.layout import page, small_print
from mark.studies.report.next_day_report import with_next_day
from mark.studies.report.terminal_tables import simulate_table
from mark.studies.report.words import percent

if TYPE_CHECKING:
    from rich.console import RenderableType


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
    body = with_next_day(result.as_json() | _cache_json(cached), next_day)
    deliver(body, args.json, lambda: _with_cache(simulate_table(result, next_day), cached))
    results = {result.policy: result}
    if args.report:
        report(args, results, next_days={result.policy: next_day}, executor=executor_for(cores()))
    return slo_code(args, results)


def _pipeline(args: argparse.Namespace) -> int:
    # here: a service needs none of it
    from mark.studies.pipeline_run import simulate_pipeline
    from mark.studies.report.pipeline_run import pipeline_run_json, pipeline_run_table

    refuse_service_options(args)
    # The output of a driver and its models must not mix with the result.
    with progress("simulating") as bar, redirect_stdout(sys.stderr):
        request, cached = _behind_cache(args, request_from(args, bar))
        (found,) = simulate_pipeline(
            request, (request.policy,), lineage=args.lineage, queries=args.queries, answers=args.answers
        ).values()
    table = partial(pipeline_run_table, found)
    deliver(pipeline_run_json(found) | _cache_json(cached), args.json, lambda: _with_cache(table(), cached))
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


def _with_cache(table: RenderableType, cached: CachedKeys | None) -> RenderableType:
    if cached is None:
        return table
    said = f"{percent(cached.hit_share)} of all requests; every figure is of the other ones, which reach instances"
    return page(table, *small_print([f"a cache of {cached.answers_kept:,} answers in each process gives {said}"]))
