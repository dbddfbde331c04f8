"""The local cloud from options: start its daemon, send it a trace's requests, stop it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from mark.cloud.ec2.spot_series import load_spot_series, steps_by_zone
from mark.config.faults_section import load_faults
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.site_services import site_pipelines, site_services
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, MarkError
from mark.domain.offer import Market
from mark.domain.service import ServiceConfig
from mark.models.call import Call
from mark.models.loading import load
from mark.models.registry_place import pinned
from mark.models.sample import call_from_file, sample_call
from mark.planning.graphs.queries import read_queries
from mark.planning.graphs.sited_group import sited_group
from mark.planning.graphs.trace_file import open_driver
from mark.planning.graphs.whole_fleet import whole_fleet
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.reader import open_trace
from mark_infra.launch.launch_controller import history_from
from mark_infra.testbed.account import account_of
from mark_infra.testbed.control_server import Remote
from mark_infra.testbed.load_generator import replay
from mark_infra.testbed.result import ReplayedTrace, result, thinned
from mark_infra.testbed.testbed_folder import DAEMON, SETTINGS, TestbedSettings

MOST_REQUESTS = 10_000_000  # of a load, because the time of every request is kept in memory
_UP_S, _DOWN_S, _KILLED_S = 120.0, 120.0, 10.0
_CONTROLLER_S = 120.0
_FLEET_S = 600.0
_AGAIN_S = 0.2
_SPOT_S = 7 * 86400.0  # control seconds for which a recorded market is followed


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedOptions:
    """The options of `mark testbed up`. `compress` is control seconds per second of latency."""

    services: Sequence[str]
    state: Path
    seed: int = 0
    compress: float = 1.0
    controllers: int = 1
    controller_port: int = 0
    policy: str = "mark"
    predictor: str = "auto"
    history: str | None = None
    spot_trace: Sequence[str] = ()
    log_requests: bool = False
    faults: str | None = None
    account: str = "generous"
    scp: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options of `mark testbed load`. `begin_at` is a Unix time; None: now."""

    trace: str
    state: Path
    service: str | None = None
    scale: float = 1.0
    start_s: float = 0.0
    duration_s: float | None = None
    gaps: str = "bridge"
    seed: int = 0
    body: Path | None = None
    cold_start: bool = False
    begin_at: float | None = None
    requests_log: Path | None = None


def start_testbed(options: TestbedOptions) -> Remote:
    """Start the daemon and return when everything runs, including the controllers' pages.

    Raises BadInput for unusable options and if a testbed already runs, Infeasible for stages that fit together on no
    instance, MarkError if the testbed does not start.
    """
    folder = options.state.resolve()
    services = site_services(options.services)
    # Refuse bad input here, and not only in the logs of the daemon, controllers and servers.
    pipelines = {one: load_pipeline(one) for one in options.services if names_pipeline(one)}
    for pipeline in pipelines.values():
        pipeline.check_visits()
        for service in pipeline.bought_services():
            if service.whole:
                whole_fleet(pipeline, service, load_catalog(service.catalog))
            elif service.together:
                sited_group(pipeline, service, load_catalog(service.catalog))
        if pipeline.driver is not None:
            open_driver(pipeline)
    account_of(options.account, options.scp)
    if options.faults is not None:
        load_faults(options.faults)
    make_predictor(options.predictor, 0, 60.0)
    controller = ["--policy", options.policy, "--predictor", options.predictor]
    if options.history is not None:
        history_from(options.history)
        path = Path(options.history)
        controller += ["--history", str(path.resolve()) if path.exists() else options.history]
    spot = _spot_market(options.spot_trace, services[0])
    if (folder / DAEMON).exists():
        if _alive(folder / DAEMON):
            raise BadInput("a testbed runs here already: mark testbed down", "state", str(folder))
        (folder / DAEMON).unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", "state", str(folder)) from None
    if spot["price"]:
        controller.append("--live-prices")
    settings = TestbedSettings(
        services=list(dict.fromkeys(str(Path(service.source).resolve()) for service in services)),
        seed=options.seed,
        time_scale=options.compress,
        controllers=options.controllers,
        controller_port=options.controller_port,
        options=controller,
        bouncer_options=["--log-requests"] if options.log_requests else [],
        faults=None if options.faults is None else str(Path(options.faults).resolve()),
        spot_shares=spot["availability"],
        spot_prices=spot["price"],
        account=options.account,
        scps=list(options.scp),
    )
    (folder / SETTINGS).write_text(json.dumps(asdict(settings)))
    with (folder / "daemon.log").open("ab") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "mark_infra.testbed.daemon", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that closing the terminal does not end the cloud
            env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},  # unused, and loading them takes a second
        )
    end_s = time.monotonic() + _UP_S
    while not (folder / DAEMON).exists():
        if daemon.poll() is not None or time.monotonic() > end_s:
            daemon.terminate()
            said = (folder / "daemon.log").read_text(errors="replace").strip().splitlines()
            raise MarkError(f"the testbed did not start: {said[-1] if said else 'it said nothing'}")
        time.sleep(0.05)
    daemon.returncode = 0  # the daemon continues without this process; otherwise Popen would warn
    remote = testbed(options.state)
    end_s = time.monotonic() + _CONTROLLER_S
    while not all(one["url"] for one in remote.ask("/status")["controllers"]):
        if time.monotonic() > end_s:
            why = f"{folder}/logs has its output, mark testbed down ends the rest"
            raise MarkError(f"a controller did not start in {_CONTROLLER_S:.0f} s: {why}")
        time.sleep(0.1)
    return remote


def testbed(state: Path) -> Remote:
    """Return the testbed that runs in the folder. Raises BadInput without one."""
    return Remote(state / DAEMON)


def stop_testbed(state: Path, *, keep_logs: bool) -> float:
    """Stop the testbed and everything it started; return the bill in USD."""
    remote = testbed(state)
    usd = float(remote.ask("/status")["bill_usd"]["total"])
    pidfd = _pidfd(remote.pid)
    remote.ask("/down", {})
    if pidfd is not None:
        if not select.select([pidfd], [], [], _DOWN_S)[0]:
            os.kill(remote.pid, signal.SIGKILL)
            select.select([pidfd], [], [], _KILLED_S)
        os.close(pidfd)
    if not keep_logs:
        shutil.rmtree(state, ignore_errors=True)
    return usd


class TraceLoad:
    """A trace's requests for one service of a testbed: first read, then sent."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self._remote = testbed(options.state)
        settings = json.loads((options.state / SETTINGS).read_text())
        services, pipelines = site_services(settings["services"]), site_pipelines(settings["services"])
        alone = {service.name: service for service in services if not (service.stage or service.together)}
        whole = {pipeline.name: pipeline for pipeline in pipelines}
        there = [*alone, *whole]
        if options.service is None and len(there) > 1:
            raise BadInput(f"must be named, one of {', '.join(there)}", "service")
        self._name = options.service or there[0]
        if self._name not in there:
            raise BadInput(f"the testbed has {', '.join(there)}", "service", options.service)
        pipeline = whole.get(self._name)
        self._slo = alone[self._name].slo if pipeline is None else pipeline.slo
        # The services that buy instances: this service, or the pipeline's stages.
        bought_for = [alone[self._name]] if pipeline is None else pipeline.bought_services()
        self._stages = None if pipeline is None else pipeline.service_of_stages()
        self._least = {service.name: min(1, service.min_instances) for service in bought_for}
        self._trace = open_trace(
            options.trace,
            gaps=options.gaps,
            start_s=options.start_s,
            duration_s=options.duration_s,
            seed=options.seed,
        )
        self._part = self._trace.part(options.start_s, options.duration_s, options.scale)
        time_scale: float = settings["time_scale"]
        if self._part.requests > MOST_REQUESTS * time_scale:
            what = f"more than {MOST_REQUESTS:,} requests to send: choose a part with `start_s` and `duration_s`"
            raise BadInput(what, self._trace.name, f"{self._part.requests / time_scale:.4g}")
        chunks = self._trace.chunks(self._part.start_s, self._part.end_s, options.scale, options.seed)
        self._time_scale = time_scale
        self._due_s = thinned(np.concatenate([times for times, _ in chunks]), self._time_scale)
        by_itself = alone.get(self._name)
        model = None if by_itself is None or by_itself.whole else by_itself
        self._calls = calls_of(options.body, model, len(self._due_s), options.seed)
        self._before = self._remote.ask("/status")
        self._among = "services" if pipeline is None else "pipelines"

    def wait_for_fleet(self) -> None:
        """Wait until all instances bought so far are ready: at least one, unless functions alone may serve.

        Where only functions would serve, the gateway is enough.
        """
        end_s = time.monotonic() + _FLEET_S
        while True:
            ready = {name: _ready(self._before["services"][name]) for name in self._least}
            self._before = self._remote.ask("/status")
            needed = {name: max(n, self._bought(name, self._before["fleet"])) for name, n in self._least.items()}
            if self._url is not None and all(ready[name] >= needed[name] for name in needed):
                return
            if time.monotonic() > end_s:
                raise MarkError(f"{self._name}: its instances were not ready within {_FLEET_S / 60.0:.0f} minutes")
            time.sleep(_AGAIN_S)

    @property
    def _url(self) -> str | None:
        """Return the address for requests.

        None while a pipeline's conductor waits for its stages' first instances.
        """
        url: str | None = self._before[self._among][self._name]
        return url

    def _bought(self, service: str, fleet: Sequence[Mapping[str, Any]]) -> int:
        own = [one for one in fleet if one["service"] == service and not one["doomed"]]
        return sum(one["state"] in ("pending", "running") for one in own)

    def send(self, progress: Callable[[float], None] | None) -> dict[str, Any]:
        """Send each request when it is due; return the result as `mark testbed load --json` prints it."""
        options = self._options
        prefix = f"load-{os.getpid()}-"
        url = awaited(lambda: self._url or self._remote.ask("/status")[self._among][self._name], options.begin_at)
        if url is None:
            raise MarkError(f"{self._name}: nothing answers yet, since a stage has no instance")
        sent = uvloop.run(
            replay(
                url,
                self._name,
                self._calls,
                self._due_s,
                prefix=prefix,
                begin_unix_s=options.begin_at,
                progress=progress,
            )
        )
        wall_s = time.time() - sent.began_unix_s
        if options.requests_log is not None:
            sent.write(options.requests_log, prefix)
        return result(
            self._name,
            self._slo,
            ReplayedTrace(self._trace.name, self._part.end_s - self._part.start_s, self._time_scale, self._trace.read),
            options.seed,
            sent,
            self._before,
            self._remote.ask("/status"),
            wall_s=wall_s,
            stages=self._stages,
        )


def awaited(
    url: Callable[[], str | None],
    until_unix_s: float | None,
    *,
    unix_s: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> str | None:
    """Return the first value of `url` that is not None, or None after `until_unix_s`; without it, ask only once."""
    while (found := url()) is None and until_unix_s is not None and unix_s() <= until_unix_s:
        pause(_AGAIN_S)
    return found


def _spot_market(files: Sequence[str], service: ServiceConfig) -> Mapping[Any, dict[str, list[tuple[float, float]]]]:
    """Return the steps that the files recorded, by kind and zone."""
    catalog = load_catalog(service.catalog)
    prices = {o.instance: o.usd_per_hour for o in catalog.offers if o.market is Market.ON_DEMAND}
    return steps_by_zone([load_spot_series(file, prices) for file in files], catalog.spot_zones, _SPOT_S)


def _ready(gateway: str) -> int:
    """Return how many instances behind the gateway are ready."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{gateway}/admin/replicas", timeout=2.0) as answer:
            return sum(bool(replica["ready"]) for replica in json.load(answer)["replicas"].values())
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
    return 0


def calls_of(body: Path | None, service: ServiceConfig | None, count: int, seed: int) -> Sequence[Call]:
    """Return a call for each request.

    If `body` is a pipeline's file of queries (`service` None), each call is drawn from it independently.
    """
    if service is not None or body is None or body.suffix != ".jsonl":
        return [_call(body, service)] * count
    # One item of any kind, as a traced driver gets it.
    queries = [
        Call("sagemaker", "application/json", b'{"instances": [%b]}' % query.text.encode())
        for query in read_queries(str(body))
    ]
    return [queries[drawn] for drawn in np.random.default_rng(seed).integers(len(queries), size=count)]


def _call(body: Path | None, service: ServiceConfig | None) -> Call:
    """Return a request of one item for the service, or for a pipeline if None."""
    if body is not None:
        return call_from_file(body)
    if service is None:
        raise BadInput("must be said for a pipeline: a file with a query, or a .jsonl file with several", "body")
    if ":" not in service.model:
        one = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.0]}
        return Call("oip", "application/json", json.dumps({"inputs": [one]}).encode())
    versions = pinned(service).versions
    reference = max(versions, key=lambda version: version.weight).model if versions else service.model
    found = sample_call(load(reference, Path(service.source).resolve().parent))
    if found is None:
        raise BadInput("says neither inputs nor warmup: give a request to send, `body` FILE", "model", service.model)
    return found


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _alive(file: Path) -> bool:
    pid = Remote(file).pid
    pidfd = _pidfd(pid)
    if pidfd is None:
        return False
    os.close(pidfd)
    # The process id may have been reused, so check that it is a testbed's.
    return b"mark_infra.testbed.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
