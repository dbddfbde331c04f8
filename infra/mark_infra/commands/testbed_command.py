"""mark testbed: the local cloud."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from mark.cli.arguments import GAPS, Listed, add_json, from_args, writable
from mark.cli.numbers import above_zero, port, seconds, seed, share, span, whole
from mark.cli.output import deliver, progress, show
from mark.domain.errors import BadInput
from mark.planning.policies.policy_registry import policy_names
from mark.studies.report.testbed_report import load_report, status_report
from mark_infra.launch.launch_testbed import (
    LoadOptions,
    TestbedOptions,
    TraceLoad,
    start_testbed,
    stop_testbed,
    testbed,
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The whole system on this machine: AWS's APIs, instances as real bouncers, Lambda, load balancers "
        "and the controller, all on loopback. Nothing is billed."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    up = actions.add_parser("up", help="start it, for these services", allow_abbrev=False)
    _add_up(up)
    load = actions.add_parser("load", help="send a trace's requests", allow_abbrev=False)
    _add_load(load)
    status = actions.add_parser("status", help="fleet, bill and machines", allow_abbrev=False)
    add_json(status)
    interrupt = actions.add_parser("interrupt", help="the cloud takes spot instances away", allow_abbrev=False)
    interrupt.add_argument("--share", type=share, default=1.0, metavar="X", help="of the running ones (default: 1)")
    interrupt.add_argument("--seed", type=seed, default=0, metavar="N", help="of the draw (default: 0)")
    down = actions.add_parser("down", help="end it, and leave nothing behind", allow_abbrev=False)
    down.add_argument("--keep-logs", action="store_true", help="leave the state folder")
    for action, run in ((up, _up), (load, _load), (status, _status), (interrupt, _interrupt), (down, _down)):
        action.add_argument(
            "--state", type=Path, default=Path(".mark-testbed"), metavar="DIR", help="default: .mark-testbed"
        )
        action.set_defaults(run=run)


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("services", nargs="+", metavar="SERVICE", help="service file, or a shipped name")
    up.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    up.add_argument(
        "--compress",
        type=above_zero,
        default=1.0,
        metavar="K",
        help="the controller's clock, prices, boots and traces run K times as fast as yours; latencies and requests a "
        "second do not (default: 1)",
    )
    up.add_argument(
        "--controllers", type=whole(1, 9), default=1, metavar="N", help="one leads, others stand by (default: 1)"
    )
    up.add_argument("--controller-port", type=port, default=0, metavar="P", help="of the live page (default: any)")
    up.add_argument(
        "--policy", choices=policy_names(live=True), default="mark", help="the policy that plans (default: mark)"
    )
    up.add_argument("--predictor", default="auto", metavar="NAME", help="the predictor (default: auto)")
    up.add_argument("--history", metavar="TRACE", help="load for the predictor to learn from at first")
    up.add_argument(
        "--spot-trace", action=Listed, default=(), metavar="FILE", help="availability or prices, one file a zone"
    )
    up.add_argument(
        "--faults",
        metavar="FILE",
        help="instances slow down, hang and crash as its [faults] says, instead of the services'",
    )
    up.add_argument("--log-requests", action="store_true", help="bouncers log a line for each answer")
    up.add_argument(
        "--account",
        choices=("generous", "strict", "new"),
        default="generous",
        help="how strict the emulated AWS is: it lacks capacity only, refuses all that AWS "
        "refuses, or has a new account's quotas too "
        "(default: generous)",
    )
    up.add_argument(
        "--scp", action=Listed, each=_scp, default=(), metavar="no-spot", help="a policy of the organisation"
    )


def _add_load(load: argparse.ArgumentParser) -> None:
    load.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    load.add_argument("--service", metavar="NAME", help="which one (default: the only one there is)")
    load.add_argument("--scale", type=above_zero, default=1.0, metavar="X", help="multiply the arrivals (default: 1)")
    load.add_argument(
        "--start",
        dest="start_s",
        type=seconds,
        default=0.0,
        metavar="S",
        help="second of the trace to begin with",
    )
    load.add_argument(
        "--duration",
        dest="duration_s",
        type=span,
        metavar="S",
        help="seconds of the trace: at --compress K they are sent in S/K seconds, as one request in K (default: to the "
        "end)",
    )
    load.add_argument("--gaps", choices=GAPS, default="bridge", help="how to fill a missing bin (default: bridge)")
    load.add_argument("--seed", type=seed, default=0, metavar="N", help="of arrivals and queries (default: 0)")
    load.add_argument(
        "--body",
        type=Path,
        metavar="FILE",
        help="the request (default: a sample of the model's inputs); for a pipeline a query, or several in FILE.jsonl",
    )
    load.add_argument(
        "--cold-start", action="store_true", help="begin at once (default: once all that was bought is ready)"
    )
    load.add_argument("--begin-at", type=seconds, metavar="T", help="Unix time at which it begins (default: now)")
    load.add_argument(
        "--log",
        dest="requests_log",
        type=lambda text: Path(writable(text, "--log")),
        metavar="FILE.csv",
        help="a line for each request",
    )
    add_json(load)


def _up(args: argparse.Namespace) -> int:
    show(status_report(start_testbed(from_args(TestbedOptions, args)).ask("/status")))
    return 0


def _load(args: argparse.Namespace) -> int:
    if args.begin_at is not None and args.begin_at < time.time():
        raise BadInput("lies in the past, so that the first requests would be sent late", "--begin-at", args.begin_at)
    load = TraceLoad(from_args(LoadOptions, args))
    if not args.cold_start:
        with progress("waiting for the instances"):
            load.wait_for_fleet()
    with progress("sending") as bar:
        data = load.send(bar)
    deliver(load_report(data), args.json)
    return 0


def _status(args: argparse.Namespace) -> int:
    said = testbed(args.state).ask("/status")
    deliver(status_report(said), args.json)
    return 0


def _interrupt(args: argparse.Namespace) -> int:
    ids = testbed(args.state).ask("/interrupt", {"share": args.share, "seed": args.seed})
    print(f"{len(ids)} spot instances are told to go: {', '.join(ids)}" if ids else "no spot instance runs")
    return 0


def _down(args: argparse.Namespace) -> int:
    usd = stop_testbed(args.state, keep_logs=args.keep_logs)
    print(f"ended; it would have cost ${usd:.4f}")
    return 0


def _scp(text: str) -> str:
    if text != "no-spot":
        raise argparse.ArgumentTypeError(f"must be no-spot, not {text!r}")
    return text
