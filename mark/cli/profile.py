"""mark profile: measure a model's latency by batch size."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.cli.arguments import Listed, add_json, out_file, plotted_file
from mark.cli.numbers import above_zero, count, seed
from mark.cli.output import deliver, progress, write_file
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.plugins import adapter
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.catalog.tables import CATALOG_NAMES, load_catalog
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.slo import Slo
from mark.models.registry_place import located
from mark.models.sample import call_from_file
from mark.planning.graphs.stage_profiles import stage_profilings
from mark.profiling.machine import check_named, room_of, this_machine
from mark.profiling.measure import Measured, check_sizes, profile_csv
from mark.profiling.measure_server import Profiling, of_service, profile
from mark.profiling.policy import candidate
from mark.profiling.table import load_profiles
from mark.studies.report.profile_report import profile_report, profiled_on_report, profiled_pipeline_report


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure how long a model takes by batch size, in a worker process as it serves, or on a server "
        "that already runs: mean with its interval, p99, throughput, the knee, and the bouncer's overhead."
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="module:Class, onnx:FILE, torch:FILE, sklearn:FILE, the address of a server that already runs, or the "
        "file of a service or pipeline",
    )
    what = parser.add_argument_group("the measurement")
    what.add_argument(
        "--batch",
        action=Listed,
        parse=_sizes,
        metavar="1,2,4,...",
        help="batch sizes (default: 1,2,4,8,16,32)",
        dest="batches",
    )
    what.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="a request body of one item: JSON, npy, CSV, text or bytes "
        "(default: the model's `warmup`, or zeros of its `inputs`)",
    )
    what.add_argument(
        "--queries",
        metavar="FILE",
        help="JSON Lines: queries of a pipeline, whose stages are measured on their own inputs",
    )
    what.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="processes, all busy at a time (default: as many as keep its processors busy; with a GPU 1)",
    )
    what.add_argument("--threads", type=count, metavar="N", help="threads of numerical libraries in each")
    what.add_argument("--background", type=count, metavar="N", help="number of busy processes beside it (default: 0)")
    well = parser.add_argument_group("how well")
    well.add_argument(
        "--precision", type=_precision, metavar="X", help="half the 95 %% interval of the mean over it (default: 0.02)"
    )
    well.add_argument("--seconds", type=above_zero, metavar="S", help="at most, for each size (default: 10)")
    well.add_argument("--seed", type=seed, metavar="N", help="of the order of sizes (default: 0)")
    result = parser.add_argument_group("output")
    result.add_argument(
        "--out", type=out_file, metavar="FILE.csv", help="profile file; rows of other models and instances in it stay"
    )
    result.add_argument("--instance", metavar="TYPE", help="the name of this machine in the file (default: local)")
    result.add_argument(
        "--slo-ms",
        type=above_zero,
        metavar="MS",
        help="show the batch and capacity for this RT_max (default: the service file's)",
    )
    add_json(result)
    result.add_argument("--report", type=plotted_file, metavar="FILE.html", help="page with plots")
    rented = parser.add_argument_group("on machines that are rented for it")
    rented.add_argument(
        "--on",
        action=Listed,
        parse=_types,
        metavar="TYPE,...",
        help="rent these types and find the cheapest per million requests",
    )
    rented.add_argument("--budget-usd", type=above_zero, metavar="USD", help="spend no more than this (with --on)")
    rented.add_argument("--site", type=Path, metavar="FILE", help="where to rent (default: $MARK_SITE)")
    rented.add_argument(
        "--markets", action=Listed, parse=_markets, metavar="A,B", help="on-demand, spot (default: the service's)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.on is not None:
        return _run_on(args)
    for option in ("budget_usd", "site", "markets"):
        if getattr(args, option) is not None:
            raise BadInput("goes with --on only", f"--{option.replace('_', '-')}", getattr(args, option))
    if names_pipeline(args.model):
        return _run_pipeline(args)
    if args.queries is not None:
        raise BadInput(f"{args.model} is no pipeline", "--queries", args.queries)
    slo, batching = None, "work-conserving"
    if args.model.endswith(".toml") or args.model in SERVICE_NAMES:
        service = load_service(args.model)
        _check_instance(args.instance, service.catalog)
        what, slo, batching = of_service(service), service.slo, service.batching
    else:
        _check_instance(args.instance)
        what = Profiling(located(args.model), named=args.model)
    if args.slo_ms is not None:
        slo = Slo(args.slo_ms / 1e3, 0.98 if slo is None else slo.attainment)
    _check_out(args)
    said = _said(args)
    if args.input is not None:
        said["calls"] = (call_from_file(args.input),)
    with progress("measuring") as bar:
        measured = profile(replace(what, **said), bar)
    if "://" not in args.model:
        measured = _of_this_machine(measured)
    promise = None if slo is None else (slo, candidate(measured.profile(), slo, batching))
    deliver(profile_report(measured, promise), args.json, args.report)
    if args.out is not None:
        write_file(args.out, profile_csv([measured], Path(args.out)), "--out")
    return 0


def _run_pipeline(args: argparse.Namespace) -> int:
    for option in ("input", "slo_ms", "report"):
        if getattr(args, option) is not None:
            raise BadInput("is for one model, and a pipeline has several", f"--{option.replace('_', '-')}")
    _check_out(args)
    config = load_pipeline(args.model)
    _check_instance(args.instance, config.fleet.catalog)
    # The output of a driver and its models must not mix with the result.
    with progress("tracing") as bar, redirect_stdout(sys.stderr):
        asked = stage_profilings(config, args.queries, bar)
    found = []
    for number, one in enumerate(asked, 1):
        with progress(f"measuring {', '.join(one.stages)} ({number} of {len(asked)})") as bar:
            found.append((one.stages, _of_this_machine(profile(replace(one.what, **_said(args)), bar))))
    deliver(profiled_pipeline_report(config.name, found), args.json)
    if args.out is not None:
        write_file(args.out, profile_csv([measured for _, measured in found], Path(args.out)), "--out")
    return 0


def _check_out(args: argparse.Namespace) -> None:
    """Read an existing --out before the measurement, because only a profile may be overwritten."""
    if args.out is not None and Path(args.out).exists():
        load_profiles(args.out)


def _check_instance(named: str | None, catalog: str = CATALOG_NAMES[-1]) -> None:
    if named is not None:
        check_named(named, [load_catalog(one) for one in dict.fromkeys((*CATALOG_NAMES, catalog))], "--instance")


def _said(args: argparse.Namespace) -> dict[str, Any]:
    asked = ("batches", "instance", "workers", "threads", "background", "precision", "seconds", "seed")
    said = {name: value for name in asked if (value := getattr(args, name)) is not None}
    return {**said, "room": room_of(args.instance, load_catalog(CATALOG_NAMES[-1]))}


def _of_this_machine(measured: Measured) -> Measured:
    """Return the measurement, with a note if this machine differs from `--instance`."""
    wrong = this_machine().mismatch(measured.instance, load_catalog(CATALOG_NAMES[-1]))
    return replace(measured, notes=(*measured.notes, wrong)) if wrong else measured


def _run_on(args: argparse.Namespace) -> int:
    for option in ("instance", "workers", "threads", "background", "report", "queries"):
        if getattr(args, option) is not None:
            raise BadInput("does not go with --on", f"--{option}", getattr(args, option))
    if not args.model.endswith(".toml") and args.model not in SERVICE_NAMES:
        raise BadInput("must be a service file: the rented instance runs the service's bouncer", "--on", args.model)
    if args.budget_usd is None:
        raise BadInput("say how much may be spent: --budget-usd USD", "--on")
    if args.out is not None and Path(args.out).exists():
        load_profiles(args.out)
    said = {name: value for name in ("batches", "precision", "seconds", "seed") if (value := getattr(args, name))}
    options = dict(
        service=args.model,
        types=args.on,
        budget_usd=args.budget_usd,
        site=args.site,
        markets=args.markets,
        slo_ms=args.slo_ms,
        call=None if args.input is None else call_from_file(args.input),
        out=None if args.out is None else Path(args.out),
        **said,
    )
    # SIGTERM, and SIGHUP of a closed terminal, end the run as an interrupt does, so that the rented instance is
    # terminated first. An ignored SIGHUP (nohup) stays ignored.
    ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in ends}
    try:
        found = adapter("profile-on", "--on")(
            lambda line: print(f"mark: {line}", file=sys.stderr, flush=True), **options
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    deliver(profiled_on_report(found.as_json()), args.json)
    if args.out is not None:
        write_file(args.out, profile_csv(list(found.measured.values()), Path(args.out)), "--out")
    return 0 if found.best is not None else 3


def _types(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _markets(text: str) -> tuple[Market, ...]:
    try:
        found = tuple(Market(name) for name in text.split(","))
    except ValueError:
        found = ()
    if not found or not {Market.ON_DEMAND, Market.SPOT}.issuperset(found):
        raise argparse.ArgumentTypeError(f"must be of on-demand and spot, not {text!r}")
    return found


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"must be whole numbers with commas between, not {text!r}")
    try:
        return check_sizes([int(part[:9]) for part in parts], "--batch")
    except BadInput as error:
        raise argparse.ArgumentTypeError(error.what) from None


def _precision(text: str) -> float:
    value = above_zero(text)
    if value >= 1.0:
        raise argparse.ArgumentTypeError(f"must be below 1, not {text!r}")
    return value
