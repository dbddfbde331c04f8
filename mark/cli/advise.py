"""mark advise: the last weeks of your own autoscaler, read from a Prometheus, beside other policies."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mark.cli.arguments import Listed, add_json, from_args, html_file
from mark.cli.executors import add_executor, executor_from
from mark.cli.listener import add_access
from mark.cli.numbers import above_zero, port, seed, share, span, whole
from mark.cli.options import policy_list
from mark.cli.output import deliver, progress, show_counting, write_file
from mark.config.plugins import adapter
from mark.config.service_file import load_service
from mark.domain.cells import read_text
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.domain.time import DAY_S
from mark.studies.own_scaler.advise import POLICIES, AdviseOptions, advise, check_options
from mark.studies.report.advise_report import advise_page, advise_report
from mark.studies.report.htmlpage import html_of
from mark.traffic.prometheus.history import read_history
from mark.traffic.prometheus.known import REQUESTS
from mark.traffic.prometheus.workload import Asked, check_select, find_workload, instance_types

if TYPE_CHECKING:
    from mark.traffic.prometheus.workload import TimedReader

_LEAST_DAYS, _MOST_DAYS = 1.0 / 24.0, 366.0
_LEAST_SIMULATED_S = 600.0
_SERVED_DAYS = 14.0  # two of each day of the week; twenty services take 294 MB with it
_SETTLED_S = 60.0  # a scrape takes a while to be answered: the last minute may not be whole


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read the last weeks of a workload from a Prometheus (nothing is written there): its requests, ready replicas "
        "and latencies. Print what your own autoscaler cost and how often it was late, and what mark, a fixed fleet "
        "and a perfect forecast would have done, with the proven bound beside them."
    )
    add_prometheus(parser)
    promise = parser.add_argument_group("the promise and the replicas (where no --service says them)")
    promise.add_argument("--service", metavar="NAME|FILE", help="shipped service or .toml file; optional")
    promise.add_argument("--slo-ms", type=above_zero, metavar="MS", help="RT_max: an answer within it is in time")
    promise.add_argument(
        "--slo-attainment", type=share, metavar="X", help="SL_min: the share to be in time (default: 0.98)"
    )
    promise.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2026 (default), aws-2019 or a .csv file")
    promise.add_argument("--instance", metavar="TYPE", help="type of the nodes (default: by the labels of the nodes)")
    promise.add_argument(
        "--replicas-per-instance", type=whole(1, 1000), metavar="N", help="on a node (default: as the nodes have it)"
    )
    promise.add_argument(
        "--rps-per-replica", type=above_zero, metavar="X", help="what one can do (default: fitted to the latencies)"
    )
    promise.add_argument(
        "--units-per-replica", type=above_zero, metavar="X", help="the same in another unit, as tokens/s"
    )
    promise.add_argument("--boot", type=span, metavar="S", help="from launch to ready (default: the catalogue's)")
    part = parser.add_argument_group("what is simulated")
    part.add_argument(
        "--days", type=above_zero, metavar="N", help="how many to read (default: 30; 14 with --serve, to learn from)"
    )
    part.add_argument("--simulate", type=span, metavar="S", help="the last of them (default: 7d)")
    part.add_argument(
        "--scaler", metavar="KIND:K=V,...", help="your own one's settings, as hpa:target=0.7,min=2,max=50 ([policy])"
    )
    part.add_argument(
        "--policies", action=Listed, parse=policy_list, metavar="A,B", help=f"beside it (default: {','.join(POLICIES)})"
    )
    part.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    result = parser.add_argument_group("output")
    add_json(result)
    result.add_argument("--report", type=html_file, metavar="FILE.html", help="a page with tables and plots")
    add_executor(parser)
    _add_serving(parser)
    parser.set_defaults(run=run)


def _add_serving(parser: argparse.ArgumentParser) -> None:
    """Add the options to publish a floor for the user's own autoscaler."""
    floor = parser.add_argument_group("as a floor")
    floor.add_argument(
        "--serve",
        action="store_true",
        help="keep running, and publish the fewest replicas that are needed; of --service several may stand here, "
        "between commas",
    )
    floor.add_argument("--listen", type=_host_and_port, metavar="HOST:PORT", help="(default: 127.0.0.1:9464)")
    floor.add_argument("--state", type=Path, metavar="FILE", help="memory (default: .mark-advise.db)")
    floor.add_argument("--ready-file", type=Path, metavar="FILE", help="when ready, write its URL as JSON there")
    floor.add_argument(
        "--act",
        metavar="sagemaker:ENDPOINT/VARIANT",
        help="also raise MinCapacity of this variant to the floor; without it nothing is written anywhere",
    )
    floor.add_argument("--profile", metavar="NAME", help="of AWS's configuration, for --act (default: $AWS_PROFILE)")
    add_access(parser)


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not (host and colon):
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, not {text!r}")
    return host.strip("[]"), port(number)


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add the options for the Prometheus: its address, its credentials and the workload."""
    where = parser.add_argument_group("the Prometheus (or Thanos, Mimir, VictoriaMetrics)")
    where.add_argument("--prometheus", required=True, metavar="URL", help="as http://localhost:9090; a path is kept")
    where.add_argument(
        "--prometheus-token-file", metavar="FILE", help="a file with a bearer token (default: $PROMETHEUS_TOKEN)"
    )
    where.add_argument("--prometheus-user", metavar="NAME", help="basic authentication, with $PROMETHEUS_PASSWORD")
    where.add_argument("--prometheus-ca", metavar="FILE.pem", help="authorities of its certificate")
    which = parser.add_argument_group("the workload (default: the only one with requests)")
    which.add_argument("--workload", metavar="NAME", help="NAME or NAMESPACE/NAME, as the metric's label has it")
    which.add_argument("--metric", metavar="NAME", help=f"one of {', '.join(one.name for one in REQUESTS)}")
    which.add_argument("--select", default="", metavar="MATCHERS", help='of every metric, as namespace="shop"')
    which.add_argument("--query-rate", metavar="PROMQL", help="requests/s, or --unit a second, not a known metric's")
    which.add_argument("--unit", metavar="NAME", help="what is counted, as tokens (default: requests, or by --metric)")
    which.add_argument("--unit-size", type=above_zero, metavar="X", help="how many a request has (default: counted)")
    which.add_argument("--query-replicas", metavar="PROMQL", help="ready replicas")
    which.add_argument("--query-latency", metavar="PROMQL", help="requests/s by le, in seconds")


def reader_from(args: argparse.Namespace) -> TimedReader:
    """Return a reader of the Prometheus that the arguments name. Raises BadInput."""
    found: TimedReader = adapter("prometheus", "--prometheus")(args.prometheus, **access_from(args))
    return found


def access_from(args: argparse.Namespace) -> dict[str, Any]:
    """Return the credentials: the fields of `PrometheusAccess` beside the address. Raises BadInput."""
    token = os.environ.get("PROMETHEUS_TOKEN") or None
    if args.prometheus_token_file is not None:
        token = read_text(Path(args.prometheus_token_file)).strip()
        if not token:
            raise BadInput("is empty", "--prometheus-token-file", args.prometheus_token_file)
    return {
        "token": token,
        "user": args.prometheus_user,
        "password": os.environ.get("PROMETHEUS_PASSWORD"),
        "ca_file": args.prometheus_ca,
    }


def asked_from(args: argparse.Namespace) -> Asked:
    return Asked(
        workload=args.workload,
        metric=args.metric,
        select=args.select,
        rate=args.query_rate,
        replicas=args.query_replicas,
        latency=args.query_latency,
        unit=args.unit,
        unit_size=args.unit_size,
    )


def run(args: argparse.Namespace) -> int:
    for name in _OF_REPORT if args.serve else _OF_FLOOR:
        if getattr(args, name):
            what = "is of the report, without --serve" if args.serve else "needs --serve"
            raise BadInput(what, f"--{name.replace('_', '-')}")
    args.simulate = args.simulate or 7 * DAY_S
    options = _options(args)
    _check_unit(args)
    args.days = args.days or (_SERVED_DAYS if args.serve else 30.0)
    if not _LEAST_DAYS <= args.days <= _MOST_DAYS:
        raise BadInput(f"must be an hour (0.042) to {_MOST_DAYS:g} days", "--days", args.days)
    if not _LEAST_SIMULATED_S <= args.simulate <= _MOST_DAYS * DAY_S:
        raise BadInput(f"must be ten minutes to {_MOST_DAYS:g} days", "--simulate", f"{args.simulate:g} s")
    if args.boot is not None and args.boot > DAY_S:
        raise BadInput("must be at most a day", "--boot", f"{args.boot:g} s")
    if args.serve:
        return _serve(args, options)
    check_options(options)
    show_counting()
    reader, asked = reader_from(args), asked_from(args)
    with progress("reading") as bar:
        end_s = reader.now_s() - _SETTLED_S  # samples have the times of the server's clock
        workload = find_workload(reader, asked, end_s)
        history = read_history(reader, workload, args.days, end_s, bar)
        types = instance_types(reader, workload, check_select(args.select), end_s)
    with tempfile.TemporaryDirectory(prefix="mark-advise-") as name, progress("simulating") as bar:
        try:
            found = advise(history, types, options, Path(name), executor=executor_from(args), progress=bar)
        except BadInput as error:
            raise _without_folder(error, name) from error.__cause__
    shown = advise_report(found)
    deliver(shown, args.json)
    if args.report:
        write_file(args.report, html_of(advise_page(shown, found)), "--report")
    return 0


def _check_unit(args: argparse.Namespace) -> None:
    """Take the unit of a service file, and refuse options of another unit. Raises BadInput."""
    if args.serve:
        for name in ("unit", "unit_size", "units_per_replica"):
            if getattr(args, name) is not None:
                raise BadInput(
                    "is of the report, without --serve: a floor counts requests", f"--{name.replace('_', '-')}"
                )
        if any(one.unit != "requests" for one in REQUESTS if one.name == args.metric):
            raise BadInput("is of the report, without --serve: a floor counts requests", "--metric", args.metric)
        return
    if args.service is not None:
        for name in ("unit", "unit_size"):
            if getattr(args, name) is not None:
                raise BadInput("stands in the service file", f"--{name.replace('_', '-')}", getattr(args, name))
        unit = load_service(args.service, any_unit=True).unit
        args.unit, args.unit_size = unit.name, None if unit.is_requests else unit.size
    named = next((one.unit for one in REQUESTS if one.name == args.metric), None)
    requests = (args.unit or named or "requests") == "requests"
    if requests and args.unit_size is not None:
        raise BadInput("needs a --unit, or a --metric of another unit than requests", "--unit-size", args.unit_size)
    wrong = "units_per_replica" if requests else "rps_per_replica"
    if getattr(args, wrong) is not None:
        what = "counts a unit, and the load is in requests: say --rps-per-replica"
        if not requests:
            what = f"counts requests, and the load is in {args.unit or named}: say --units-per-replica"
        raise BadInput(what, f"--{wrong.replace('_', '-')}", getattr(args, wrong))


def _serve(args: argparse.Namespace, options: AdviseOptions) -> int:
    host, number = args.listen or ("127.0.0.1", 9464)
    run_floor: Callable[..., int] = adapter("floor", "--serve")
    try:
        return run_floor(
            url=args.prometheus,
            credentials=access_from(args),
            asked=asked_from(args),
            services=() if args.service is None else tuple(part.strip() for part in args.service.split(",")),
            slo=options.slo,
            catalog=args.catalog,
            instance=args.instance,
            per_instance=args.replicas_per_instance,
            rps_per_replica=args.rps_per_replica,
            boot_s=args.boot,
            days=args.days,
            state=args.state or Path(".mark-advise.db"),
            act=args.act,
            profile=args.profile,
            host=host,
            port=number,
            **{name: getattr(args, name) for name in _ACCESS},
        )
    except BadInput as error:
        if error.where not in ("host", "host and port"):
            raise
        raise BadInput(error.what, "--listen", error.value) from error.__cause__


_ACCESS = ("keys", "keys_parameter", "token_secrets", "tls_cert", "tls_key", "tls_client_ca",
           "tls_terminated_by_balancer", "ready_file")  # fmt: skip
_OF_REPORT = ("json", "report", "scaler", "policies", "simulate")
_OF_FLOOR = ("act", "profile", "listen", "state", *_ACCESS)


def _options(args: argparse.Namespace) -> AdviseOptions:
    if args.service is None and args.slo_ms is None:
        what = "says within how many milliseconds an answer is in time; or --service names a file that says it"
        raise BadInput(what, "--slo-ms", "nothing")
    if args.service is not None:
        for option in ("slo_ms", "slo_attainment", "scaler"):
            if getattr(args, option) is not None:
                raise BadInput("stands in the service file", f"--{option.replace('_', '-')}", getattr(args, option))
    attainment = 0.98 if args.slo_attainment is None else args.slo_attainment
    return from_args(
        AdviseOptions,
        args,
        slo=None if args.slo_ms is None else Slo(args.slo_ms / 1e3, attainment),
        rps_per_replica=args.units_per_replica or args.rps_per_replica,
        boot_s=args.boot,
        policies=args.policies or POLICIES,
        simulated_s=args.simulate,
    )


def _without_folder(error: BadInput, folder: str) -> BadInput:
    """Return the error without the folder of the generated files that it names."""
    return BadInput(error.what.replace(f"{folder}/", ""), error.where.replace(f"{folder}/", ""), error.value)
