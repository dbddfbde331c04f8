"""mark testbed: the local cloud."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mark.cli.numbers import above_zero, port, seconds, seed, share, whole
from mark.cli.options import GAPS, Commands, add_json
from mark.cli.output import deliver, progress, show
from mark.domain.errors import BadInput, MarkError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.domain.service import ServiceConfig
    from mark.models.call import Call

_UP_S, _DOWN_S = 120.0, 120.0
_SPOT_S = 7 * 86400.0  # control seconds that a recorded market is followed for


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "testbed",
        help="the local cloud: real processes, no account",
        description="The whole system on this machine: AWS's APIs, instances as real bouncers, Lambda, load balancers "
        "and the controller, all on loopback. Nothing is billed.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    up = actions.add_parser("up", help="start it, for these services", allow_abbrev=False)
    up.add_argument("services", nargs="+", metavar="SERVICE", help="service file, or a shipped name")
    up.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    up.add_argument(
        "--compress",
        type=above_zero,
        default=1.0,
        metavar="K",
        help="seconds of prices, boots and ticks in one second of latency (default: 1)",
    )
    up.add_argument(
        "--controllers", type=whole(1, 9), default=1, metavar="N", help="one leads, others stand by (default: 1)"
    )
    up.add_argument("--controller-port", type=port, default=0, metavar="P", help="of the live page (default: any)")
    up.add_argument("--policy", default="mark", metavar="NAME", help="who plans (default: mark)")
    up.add_argument("--predictor", default="auto", metavar="NAME", help="who forecasts (default: auto)")
    up.add_argument("--history", metavar="TRACE", help="load for the predictor to learn from at first")
    up.add_argument(
        "--spot-trace", action="append", default=[], metavar="FILE", help="availability or prices, one file a zone"
    )
    up.add_argument("--log-requests", action="store_true", help="bouncers log a line for each answer")
    load = actions.add_parser("load", help="send a trace's requests", allow_abbrev=False)
    load.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    load.add_argument("--service", metavar="NAME", help="which one (default: the only one there is)")
    load.add_argument("--scale", type=above_zero, default=1.0, metavar="X", help="multiply the arrivals (default: 1)")
    load.add_argument("--start", type=seconds, default=0.0, metavar="S", help="seconds from the first row")
    load.add_argument("--duration", type=above_zero, metavar="S", help="seconds to send (default: to the end)")
    load.add_argument("--gaps", choices=GAPS, default="bridge", help="what a missing bin means (default: bridge)")
    load.add_argument("--seed", type=seed, default=0, metavar="N", help="of the arrivals (default: 0)")
    load.add_argument("--body", type=Path, metavar="FILE", help="the request (default: what the model says it takes)")
    load.add_argument("--cold-start", action="store_true", help="begin at once (default: when an instance is ready)")
    load.add_argument("--begin-at", type=seconds, metavar="T", help="Unix time at which it begins (default: now)")
    load.add_argument("--log", type=Path, metavar="FILE.csv", help="a line for each request")
    add_json(load)
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


def _up(args: argparse.Namespace) -> int:
    _needed()
    from mark_infra.testbed.control_server import Remote
    from mark_infra.testbed.state import DAEMON, SETTINGS, TestbedSettings

    from mark.config.service_file import load_service

    folder = args.state.resolve()
    services = [load_service(name) for name in args.services]
    names = [service.name for service in services]
    if len(set(names)) < len(names):
        raise BadInput("names a service twice", "SERVICE", ", ".join(names))
    if (folder / DAEMON).exists():
        if _alive(folder / DAEMON):
            raise BadInput("a testbed runs here already: mark testbed down", "--state", str(folder))
        (folder / DAEMON).unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", "--state", str(folder)) from None
    options = ["--policy", args.policy, "--predictor", args.predictor]
    if args.history is not None:
        options += ["--history", _path_or_name(args.history)]
    spot = _spot_market(args.spot_trace, services[0])
    if spot["price"]:
        options.append("--live-prices")
    settings = TestbedSettings(
        services=[str(Path(service.source).resolve()) for service in services],
        seed=args.seed,
        time_scale=args.compress,
        controllers=args.controllers,
        controller_port=args.controller_port,
        options=options,
        bouncer_options=["--log-requests"] if args.log_requests else [],
        spot_shares=spot["availability"],
        spot_prices=spot["price"],
    )
    (folder / SETTINGS).write_text(json.dumps(asdict(settings)))
    with (folder / "daemon.log").open("ab") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "mark_infra.testbed.daemon", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # what ends the terminal does not end the cloud
            env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},  # no machine boots one; they take a second
        )
    end_s = time.monotonic() + _UP_S
    while not (folder / DAEMON).exists():
        if daemon.poll() is not None or time.monotonic() > end_s:
            daemon.terminate()
            said = (folder / "daemon.log").read_text(errors="replace").strip().splitlines()
            raise MarkError(f"the testbed did not start: {said[-1] if said else 'it said nothing'}")
        time.sleep(0.05)
    show(_page(Remote(folder / DAEMON).ask("/status")))
    daemon.returncode = 0  # it goes on without us
    return 0


def _spot_market(files: list[str], service: ServiceConfig) -> dict[Any, dict[str, list[tuple[float, float]]]]:
    """Steps by zone of what the files recorded, by kind."""
    from mark.catalog.tables import load_catalog
    from mark.domain.offer import Market
    from mark.ec2.spot_series import load_spot_series, steps_by_zone

    catalog = load_catalog(service.catalog)
    prices = {o.instance: o.usd_per_hour for o in catalog.offers if o.market is Market.ON_DEMAND}
    return steps_by_zone([load_spot_series(file, prices) for file in files], catalog.spot_zones, _SPOT_S)


def _load(args: argparse.Namespace) -> int:
    import numpy as np
    import uvloop
    from mark_infra.testbed.load import replay
    from mark_infra.testbed.result import result, thinned
    from mark_infra.testbed.state import SETTINGS

    from mark.config.service_file import load_service
    from mark.workload.reader import open_trace

    remote = _remote(args)
    settings = json.loads((args.state / SETTINGS).read_text())
    there = {service.name: service for service in map(load_service, settings["services"])}
    if args.service is None and len(there) > 1:
        raise BadInput(f"must be named, one of {', '.join(there)}", "--service")
    service = there.get(args.service or next(iter(there)))
    if service is None:
        raise BadInput(f"the testbed has {', '.join(there)}", "--service", args.service)
    trace = open_trace(args.trace, gaps=args.gaps, start_s=args.start, duration_s=args.duration, seed=args.seed)
    part = trace.part(args.start, args.duration, args.scale)
    chunks = [times for times, _ in trace.chunks(part.start_s, part.end_s, args.scale, args.seed)]
    due_s = thinned(np.concatenate(chunks), settings["time_scale"])
    call = _call(args, service)
    before = remote.ask("/status")
    url = before["services"][service.name]
    if not args.cold_start:
        with progress("waiting for the first instance"):
            _until_ready(url)
        before = remote.ask("/status")
    prefix = f"load-{os.getpid()}-"
    with progress("sending") as bar:
        sent = uvloop.run(
            replay(url, service.name, call, due_s, prefix=prefix, begin_unix_s=args.begin_at, progress=bar)
        )
    wall_s = time.time() - sent.began_unix_s
    if args.log is not None:
        sent.write(args.log, prefix)
    duration_s = part.end_s - part.start_s
    data = result(service, trace.name, duration_s, args.seed, sent, before, remote.ask("/status"), wall_s=wall_s)
    deliver(data, args.json, lambda: _result_page(data))
    return 0


def _status(args: argparse.Namespace) -> int:
    said = _remote(args).ask("/status")
    deliver(said, args.json, lambda: _page(said))
    return 0


def _interrupt(args: argparse.Namespace) -> int:
    ids = _remote(args).ask("/interrupt", {"share": args.share, "seed": args.seed})
    print(f"{len(ids)} spot instances are told to go: {', '.join(ids)}" if ids else "no spot instance runs")
    return 0


def _down(args: argparse.Namespace) -> int:
    remote = _remote(args)
    said = remote.ask("/status")
    pidfd = _pidfd(remote.pid)
    remote.ask("/down", {})
    if pidfd is not None:
        import select

        if not select.select([pidfd], [], [], _DOWN_S)[0]:
            os.kill(remote.pid, signal.SIGKILL)
            select.select([pidfd], [], [], 10.0)
        os.close(pidfd)
    if not args.keep_logs:
        shutil.rmtree(args.state, ignore_errors=True)
    print(f"ended; it would have cost ${said['bill_usd']['total']:.4f}")
    return 0


# What they share


def _needed() -> None:
    missing = [name for name in ("moto", "waitress", "awslambdaric", "aioboto3") if find_spec(name) is None]
    if missing:
        raise BadInput(f"needs {', '.join(missing)}: pip install 'mark-serving[testbed]'", "mark testbed")


def _remote(args: argparse.Namespace) -> Any:
    _needed()
    from mark_infra.testbed.control_server import Remote
    from mark_infra.testbed.state import DAEMON

    return Remote(args.state / DAEMON)


def _path_or_name(trace: str) -> str:
    return str(Path(trace).resolve()) if Path(trace).exists() else trace


def _call(args: argparse.Namespace, service: ServiceConfig) -> Call:
    """A request of one item for the service."""
    from mark.models.call import Call
    from mark.models.load import load
    from mark.models.sample import call_from_file, sample_call

    if args.body is not None:
        return call_from_file(args.body)
    if ":" not in service.model:
        one = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.0]}
        return Call("oip", "application/json", json.dumps({"inputs": [one]}).encode())
    found = sample_call(load(service.model, Path(service.source).resolve().parent))
    if found is None:
        raise BadInput("says neither inputs nor warmup: say what to send, --body FILE", "model", service.model)
    return found


def _until_ready(url: str) -> None:
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end_s = time.monotonic() + 600.0
    while True:
        try:  # not whether it is ready itself: it also is where only functions would answer
            with opener.open(f"{url}/admin/replicas", timeout=2.0) as answer:
                if any(replica["ready"] for replica in json.load(answer)["replicas"].values()):
                    return
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        if time.monotonic() > end_s:
            raise MarkError(f"{url}: no instance was ready within 10 minutes")
        time.sleep(0.1)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _alive(file: Path) -> bool:
    from mark_infra.testbed.control_server import Remote

    pid = Remote(file).pid
    pidfd = _pidfd(pid)
    if pidfd is None:
        return False
    os.close(pidfd)
    # Ids are used again: is it a testbed's?
    return b"mark_infra.testbed.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _page(said: dict[str, Any]) -> RenderableType:
    from mark.reporting.testbed import status_page

    return status_page(said)


def _result_page(data: dict[str, Any]) -> RenderableType:
    from mark.reporting.testbed import result_page

    return result_page(data)
