"""The testbed's daemon, `python -m mark_infra.testbed.daemon FOLDER`: the parent of all other processes.

It starts the local Lambda and the cloud with its machines and gateways, creates a site, and keeps a controller running
like a service manager. `mark_infra.testbed.testbed_folder` describes the folder. All processes end with it, however it
ends.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import boto3  # type: ignore[import-untyped]
from botocore.config import Config as ClientConfig  # type: ignore[import-untyped]

from mark.config.faults_section import load_faults
from mark.config.pipeline_config import PipelineConfig
from mark.config.site_services import site_pipelines, site_services
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market
from mark.domain.rules.capacity_classes import MOST_CLASSES
from mark.domain.service import ServiceConfig
from mark.models.registry_place import pinned
from mark.serving.gateway.gateway import ALB
from mark.serving.observe import logs
from mark_infra.aws.site import TO_MEASURE, Site, SitePipeline, dump_site
from mark_infra.telemetry.counters import read_gateway
from mark_infra.testbed.account import account_of
from mark_infra.testbed.control_server import ControlServer
from mark_infra.testbed.credits import busy_s
from mark_infra.testbed.emulated_cloud import AccountRules, EmulatedMarket, EmulatedServices, LocalCloud
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.gateways import ProcessGateways
from mark_infra.testbed.kept import KeptProcess
from mark_infra.testbed.launch import command
from mark_infra.testbed.local_functions import Config as FunctionsConfig
from mark_infra.testbed.local_functions import FunctionConfig, has_function, overflow_function
from mark_infra.testbed.machines import Processes, ServedProgram
from mark_infra.testbed.provision import Wish, provision, target_group_name
from mark_infra.testbed.testbed_folder import DAEMON, LOGS, SETTINGS, SITE, TestbedSettings

BOUNCER_PORT = 8080
_REGION = "us-east-1"
_START_S = 60.0
_STOP_S = 60.0

T = TypeVar("T")

log = logging.getLogger("mark.testbed")


class Daemon:
    """All parts of the testbed, in the order of their start; `close` ends them in reverse order."""

    def __init__(self, folder: Path, settings: TestbedSettings) -> None:
        self._folder, self._settings = folder, settings
        self._services = [pinned(service) for service in site_services(settings.services)]
        if settings.faults is not None:
            faults = load_faults(settings.faults)
            self._services = [replace(service, faults=faults) for service in self._services]
        self._pipelines = site_pipelines(settings.services)
        self._catalog = _one_catalog(self._services)
        self._account = account_of(settings.account, settings.scps)
        self.ends = threading.Event()
        self.site: Site | None = None
        self._asked: dict[str, int] = {}  # requests by service
        # The function's name, by service.
        self._function_of = {s.name: f"mark-{s.name}-overflow" for s in self._services if has_function(s)}
        self._controllers: list[KeptProcess] = []
        self._conductors: dict[str, dict[str, KeptProcess]] = {}  # by pipeline; numbered if there are several
        self._entrances: dict[str, KeptProcess] = {}  # processes that take clients' queries, by pipeline
        with ExitStack() as started:
            self._start(started)
            self._running = started.pop_all()

    def _start(self, started: ExitStack) -> None:
        self._functions = started.enter_context(self._lambda())
        self.machines = started.enter_context(self._processes())
        self.cloud = self._local_cloud()
        started.callback(self.cloud.stop)
        endpoint = self.cloud.start()
        environment = of_aws(os.environ, _REGION)
        site = self.site = self._provisioned(endpoint, environment)
        (self._folder / SITE).write_text(dump_site(site))
        variables = environment | {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_LAMBDA": self._functions.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._start_controllers(started, variables)
        for pipeline in self._pipelines:
            self._start_conductors(pipeline, site, started, variables)
        server = started.enter_context(ControlServer(self, secrets.token_urlsafe(24)))
        said = {"pid": os.getpid(), "url": server.url, "token": server.token, "endpoint": endpoint}
        write_secret(self._folder / DAEMON, json.dumps(said))
        started.callback((self._folder / DAEMON).unlink, missing_ok=True)

    def _lambda(self) -> LambdaProcess:
        names = self._function_of
        config = FunctionsConfig(
            [self._function(s, names[s.name], len(names)) for s in self._services if s.name in names],
            logs=str(self._folder / LOGS),
            catalog=self._catalog.name,
            region=_REGION,
            seed=self._settings.seed,
        )
        return LambdaProcess(self._folder, config)

    def _processes(self) -> Processes:
        services = self._services
        serving = {
            s.name: ServedProgram(Path(s.source), _options(s, self._function_of, self._settings)) for s in services
        }
        measuring = {
            s.name + TO_MEASURE: ServedProgram(Path(s.source), ["--to-measure"])
            for s in services
            if not (s.stage or s.together or s.whole)
        }
        return Processes(
            serving | measuring,
            self._folder / LOGS,
            variables={"AWS_ENDPOINT_URL_LAMBDA": self._functions.url},
            region=_REGION,
        )

    def _local_cloud(self) -> LocalCloud:
        settings, services, functions = self._settings, self._services, self._function_of
        gateways = ProcessGateways(
            self._folder / LOGS,
            options=[option for option in settings.bouncer_options if option == "--log-requests"],
            of={target_group_name(s.name): [*_overflow(s, functions), *_routing(s)] for s in services},
            variables={"AWS_ENDPOINT_URL_LAMBDA": self._functions.url},
            region=_REGION,
        )
        return LocalCloud(
            self._catalog,
            self.machines,
            seed=settings.seed,
            time_scale=settings.time_scale,
            region=_REGION,
            market=EmulatedMarket(settings.capacity or {}, settings.spot_shares or {}, settings.spot_prices or {}),
            served=EmulatedServices(
                services,
                gateways,
                self._requests,
                self._functions.usd,
                lambda address: busy_s(address, BOUNCER_PORT),
            ),
            rules=AccountRules(self._account),
        )

    def _provisioned(self, endpoint: str, environment: Mapping[str, str]) -> Site:
        """Create the site's resources, wait for its gateways, and choose the ports of its conductors."""
        config = ClientConfig(retries={"total_max_attempts": 1})

        def client(service: str) -> Any:
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name=_REGION,
                aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                config=config,
            )

        site = provision(
            client,
            [
                Wish(s.name, self._function_of.get(s.name), MOST_CLASSES if s.routing == ALB else 1)
                for s in self._services
            ],
            region=_REGION,
            zones=_zones(self._catalog),
            store=f"sqlite:{self._folder / 'state.db'}",
            bouncer_port=BOUNCER_PORT,
            time_scale=self._settings.time_scale,
        )
        gateways = _until(lambda: self._gateways(site), "its gateways do not answer")
        named = {name: replace(service, gateway=gateways[name]) for name, service in site.services.items()}
        # Controllers read conductors' counts of whole queries, and conductors become ready only after the first
        # instances, so choose the ports now.
        asked = {
            one.name: SitePipeline(
                address=" ".join(f"http://127.0.0.1:{_free_port()}" for _ in range(_conductors_of(one)))
            )
            for one in self._pipelines
        }
        return replace(site, services=named, pipelines=asked)

    def _start_controllers(self, started: ExitStack, variables: Mapping[str, str]) -> None:
        folder, settings = self._folder, self._settings
        for number in range(settings.controllers):
            self._controllers.append(
                started.enter_context(
                    KeptProcess(
                        "controller",
                        folder / LOGS / f"controller-{number}.log",
                        [*settings.services, "--site", str(folder / SITE), *settings.options],
                        settings.controller_port if number == 0 else 0,
                        variables,
                    )
                )
            )

    def _start_conductors(
        self, pipeline: PipelineConfig, site: Site, started: ExitStack, variables: Mapping[str, str]
    ) -> None:
        """Start the pipeline's conductors, and a gateway before them if there are several."""
        logs_folder = self._folder / LOGS
        urls = site.pipelines[pipeline.name].address.split()
        names = [pipeline.name] if len(urls) == 1 else [f"{pipeline.name}-{n}" for n in range(len(urls))]
        stages = _addresses(pipeline, site)
        conductors = self._conductors[pipeline.name] = {}
        for name, url in zip(names, urls, strict=True):
            conductors[name] = started.enter_context(
                KeptProcess(
                    "serve",
                    logs_folder / f"conductor-{name}.log",
                    [pipeline.source, *stages, *self._settings.bouncer_options],
                    int(url.rpartition(":")[2]),
                    variables,
                )
            )
        self._entrances[pipeline.name] = conductors[names[0]]
        if len(urls) > 1:
            replicas = [part for url in urls for part in ("--replica", url)]
            log_file = logs_folder / f"gateway-conductors-{pipeline.name}.log"
            self._entrances[pipeline.name] = started.enter_context(
                KeptProcess("gateway", log_file, replicas, 0, variables)
            )

    def _function(self, service: ServiceConfig, name: str, count: int) -> FunctionConfig:
        made = overflow_function(service, name)
        most = self._account.function_concurrency
        if most is None or made.concurrency is None:
            return made
        # Functions share the account's concurrency; here each of the `count` functions gets an equal part.
        return replace(made, concurrency=min(made.concurrency, max(1, most // count)))

    def close(self) -> None:
        """End all parts."""
        self._running.close()

    # Called by the control server

    def status(self) -> dict[str, Any]:
        """Return the testbed's state, for people and for `--json`."""
        assert self.site is not None
        running = self.machines.running()
        late_s = [one.late_s for one in running.values() if one.late_s is not None]
        return self.cloud.status() | {
            "site": str(self._folder / SITE),
            "time_scale": self._settings.time_scale,
            "services": {name: service.gateway for name, service in self.site.services.items()},
            "pipelines": {name: self._entrance(name) for name in self._entrances},
            "stages": {pipeline.name: [s.name for s in pipeline.bought_services()] for pipeline in self._pipelines},
            "conductors": {name: one.status() for own in self._conductors.values() for name, one in own.items()},
            "controllers": [controller.status() for controller in self._controllers],
            "functions": self._functions.status(),
            "function_of": self._function_of,
            "machines_late_s": max(late_s, default=0.0),
            "bouncers_restarted": sum(one.crashes for one in running.values()),
        }

    def _entrance(self, pipeline: str) -> str | None:
        """Return the pipeline's address for queries, or None while no conductor is ready.

        A gateway in front of several conductors is always ready, so the conductors decide.
        """
        ready = any(conductor.url() for conductor in self._conductors[pipeline].values())
        return self._entrances[pipeline].url() if ready else None

    def interrupt(self, share: float, seed: int) -> list[str]:
        """Interrupt spot instances, and return the ids of those with a notice. Raises BadInput."""
        return list(self.cloud.interrupt(share, seed))

    def set_capacity(self, offer: str, count: int) -> None:
        """Set the offer's capacity. Raises BadInput."""
        self.cloud.set_capacity(offer, count)

    def _requests(self, service: str) -> int:
        """Return the gateway's requests so far, or the last known count if it does not answer."""
        url = None if self.site is None else self.site.service(service).gateway
        if url is not None:
            try:
                with urllib.request.urlopen(f"{url}/metrics", timeout=5.0) as answer:
                    self._asked[service] = round(read_gateway(answer.read()).requests)
            except (OSError, ValueError) as error:
                log.warning("the gateway of %s cannot be asked for its requests: %s", service, error)
        return self._asked.get(service, 0)

    def _gateways(self, site: Site) -> dict[str, str] | None:
        """Return the URLs of all services' gateways, or None until all exist."""
        assert self.cloud.balancer is not None
        found = {name: self.cloud.balancer.url(service.target_groups[0]) for name, service in site.services.items()}
        urls = {name: url for name, url in found.items() if url is not None}
        return urls if len(urls) == len(found) else None


class LambdaProcess:
    """The local Lambda as a process. A context."""

    def __init__(self, folder: Path, config: FunctionsConfig) -> None:
        self._folder, self._config = folder, config
        self.url = ""
        self._usd = 0.0

    def __enter__(self) -> LambdaProcess:
        (self._folder / LOGS).mkdir(parents=True, exist_ok=True)
        file = self._folder / "functions.json"
        file.write_text(json.dumps(asdict(self._config)))
        with (self._folder / LOGS / "functions.log").open("ab") as errors:
            self._process = subprocess.Popen(
                command(sys.executable, "-m", "mark_infra.testbed.local_functions", str(file)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self._process.wait()
            raise RuntimeError("the local Lambda did not start: see logs/functions.log")
        self.url = f"http://{self._config.host}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._usd = self.usd()
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """Return the state by function."""
        with urllib.request.urlopen(f"{self.url}/status", timeout=5.0) as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    def usd(self) -> float:
        """Return the cost of all functions so far, or the last known value if they do not answer."""
        try:
            self._usd = sum(float(one["usd"]) for one in self.status().values())
        except OSError as error:
            log.warning("functions cannot be asked for their bill: %s", error)
        return self._usd


def _options(service: ServiceConfig, functions: Mapping[str, str], settings: TestbedSettings) -> list[str]:
    function, stage = functions.get(service.name), service.stage
    faults = () if settings.faults is None else ("--faults", settings.faults)
    options = [*faults, *settings.bouncer_options]
    if service.together:
        return [*(part for one in service.together for part in ("--stage", one)), *options]
    if not stage:
        return [*(() if function is None else ("--function", function)), *options]
    of_stage = () if function is None else ("--stage-function", f"{stage}={function}")
    return ["--stage", stage, *of_stage, *options]


def _addresses(pipeline: PipelineConfig, site: Site) -> list[str]:
    """Return the conductor's options that name each stage's gateway."""
    at = pipeline.service_of_stages()
    return [part for stage, name in at.items() for part in ("--stage-at", f"{stage}={site.services[name].gateway}")]


def _conductors_of(pipeline: PipelineConfig) -> int:
    """Return the file's number of conductors if the selection learns; otherwise one, because they keep no state."""
    return pipeline.conductors if pipeline.learns else 1


def _overflow(service: ServiceConfig, functions: Mapping[str, str]) -> list[str]:
    """Return the gateway's options for requests that no instance can take."""
    if service.name not in functions:
        return []
    slo_ms = f"{service.slo.rt_max_s * 1e3:g}"
    model = ["--stage", service.stage] if service.stage else ["--model", service.name]
    return ["--function", functions[service.name], *model, "--slo-ms", slo_ms]


def _routing(service: ServiceConfig) -> list[str]:
    """Return the gateway's routing options: like an AWS load balancer, or by completion, perhaps with hedging."""
    if service.routing == ALB:
        return ["--routing", ALB]
    return ["--hedge-after-ms", f"{service.hedge_after_s * 1e3:g}"] if math.isfinite(service.hedge_after_s) else []


def _one_catalog(services: Sequence[ServiceConfig]) -> Catalog:
    names = {service.catalog for service in services}
    if len(names) > 1:
        raise BadInput("services of one testbed buy from one catalogue", "catalog", ", ".join(sorted(names)))
    return load_catalog(names.pop())


def _zones(catalog: Catalog) -> list[str]:
    """Return the zones in which spot is sold, or a default zone."""
    return sorted({o.zone for o in catalog.offers if o.market is Market.SPOT and o.zone}) or ["us-east-1a"]


def _free_port() -> int:
    """Return a free port of loopback; another process may take it before it is used."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def _until(found: Callable[[], T | None], why: str) -> T:
    end_s = time.monotonic() + _START_S
    while (there := found()) is None:
        if time.monotonic() > end_s:
            raise RuntimeError(f"the testbed did not start: {why}")
        time.sleep(0.05)
    return there


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read. It appears when all of it is written."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def main() -> int:
    folder = Path(sys.argv[1])
    logs.to_stderr()
    settings = TestbedSettings(**json.loads((folder / SETTINGS).read_text()))
    ends = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ends.set())
    daemon = Daemon(folder, settings)
    daemon.ends = ends
    try:
        ends.wait()
    finally:
        daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
