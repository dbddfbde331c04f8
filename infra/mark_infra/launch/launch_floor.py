"""A floor's process from options: Prometheus, services, state file, address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mark.api.app import app
from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.offer import Market
from mark.domain.service import ResolvedService, ServiceConfig
from mark.domain.time import DAY_S, STEP_S
from mark.launch.listening import ListenOptions
from mark.planning.policies.policy_registry import make_policy
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from mark.serving.observe import logs
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.prometheus.answers import NoAnswer
from mark.traffic.prometheus.workload import Asked, find_workload, instance_types
from mark_infra.controller.floor_control import FloorControl, FloorSpec, Minimum
from mark_infra.controller.hosting import host
from mark_infra.store.sqlite import SqliteTable
from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess
from mark_infra.telemetry.prometheus_workload import PrometheusWorkload

_THREADS = 4
_NO_LOAD = Load(0.0, STEP_S, np.empty(0), np.empty(0))


@dataclass(frozen=True, kw_only=True)
class FloorOptions(ListenOptions):
    """What `mark advise --serve` takes; docs/cli.md says what it means.

    Of several services each is the workload of its name. `profile` is one of AWS's configuration.
    """

    services: Sequence[str | ServiceConfig]
    prometheus: PrometheusAccess
    asked: Asked
    instance: str | None = None
    state: Path = Path(".mark-advise.db")
    days: float = 28.0
    predictor: str = "auto"
    act: str | None = None
    profile: str | None = None


def run_floor(options: FloorOptions) -> int:
    """Publish floors until SIGTERM or SIGINT; the exit code. Raises BadInput, Infeasible."""
    tls, auth = options.access()
    services = [load_service(one) if isinstance(one, str) else one for one in options.services]
    names = [service.name for service in services]
    if len(set(names)) < len(names):
        raise BadInput("names a service twice", "--service", ", ".join(names))
    if len(services) > 1 and (options.asked.workload or options.asked.rate or options.act):
        raise BadInput("is for one service: start one process for each", "--workload, --query-rate and --act")
    minimum = _minimum(options)
    make_predictor(options.predictor, 0, STEP_S)  # an unknown one is refused now
    reader = Prometheus(options.prometheus)
    specs = [_spec(service, options, reader, minimum, alone=len(services) == 1) for service in services]
    table = SqliteTable(options.state)

    def started(port: int) -> None:
        logs.say(f"the floor is ready on {options.ready(port)}")

    def opened(_: Callable[[float], bool]) -> FloorControl:
        rounds, looks = ThreadPoolExecutor(_THREADS, "round"), ThreadPoolExecutor(_THREADS, "look")
        return FloorControl(specs, table, rounds, looks)

    keys = options.key_poll(auth)
    if keys is not None:
        keys.start()
    try:
        return host(
            opened,
            lambda control, alive: app(control.manager, auth, alive, floors=control.floors),
            (options.host, options.port),
            period_s=1.0,
            tls=tls,
            started=started,
        )
    finally:
        if keys is not None:
            keys.close()


def _spec(
    service: ServiceConfig, options: FloorOptions, reader: Prometheus, minimum: Minimum | None, *, alone: bool
) -> FloorSpec:
    """Prometheus need not answer yet; where it does, a workload that it does not know is refused."""
    asked = options.asked if alone and options.asked.workload else replace(options.asked, workload=service.name)
    workload = PrometheusWorkload(reader, partial(find_workload, reader, asked), service.slo.rt_max_s)
    instance = options.instance
    try:
        found, window_s = workload.found()
        logs.say(f"{service.name}: requests by {found.counted_by} over {window_s:.0f} s, replicas by {found.ready_by}")
        for note in found.notes:
            logs.say(f"{service.name}: {note}")
        if instance is None:
            by_type, _ = instance_types(reader, found, asked.select, reader.now_s())
            instance = next(iter(by_type)) if len(by_type) == 1 else None
    except NoAnswer as error:
        logs.say(f"{service.name}: {error}; it is asked again")
    resolved = one_type(service, instance)
    (offer,) = resolved.offers
    logs.say(f"{service.name}: a replica is one {offer.name} for {offer.usd_per_hour:.4g} $/h")
    return FloorSpec(
        resolved,
        lambda within: make_policy("mark", within, _NO_LOAD),
        lambda: make_predictor(options.predictor, 0, STEP_S),
        workload,
        round(options.days * DAY_S / STEP_S),
        minimum,
    )


def one_type(service: ServiceConfig, instance: str | None) -> ResolvedService:
    """The service on one type on demand, because replicas of one Deployment are alike. Raises BadInput, Infeasible."""
    if instance is not None:
        service = replace(service, instances=(instance,))
    alone = replace(service, markets=(Market.ON_DEMAND,), functions=(), warm_pool=0, committed=())
    resolved = resolve(alone, load_catalog(alone.catalog), service_profiles(alone))
    if len(resolved.offers) > 1:
        types = ", ".join(offer.instance for offer in resolved.offers)
        raise BadInput("name the one that its replicas run on", "--instance", types)
    return resolved


def _minimum(options: FloorOptions) -> Minimum | None:
    if options.act is None:
        return None
    from mark_infra.aws.gate import Gate
    from mark_infra.aws.scalable_minimum import ScalableMinimum, endpoint_and_variant
    from mark_infra.aws.session import open_session
    from mark_infra.aws.site import Site

    endpoint, variant = endpoint_and_variant(options.act)
    session = open_session(options.profile)
    if session.region_name is None:
        raise BadInput("say in which region of AWS the endpoint is", "AWS_DEFAULT_REGION")
    gate = Gate(Site("mark", session.region_name, "dynamodb:none"), session=session)
    return ScalableMinimum(gate, endpoint, variant)
