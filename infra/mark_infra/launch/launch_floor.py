"""A floor's process from options: Prometheus, services, state file, address."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mark.api.app import app
from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.offer import Catalog, Delay, Market
from mark.domain.service import ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.domain.time import DAY_S, STEP_S
from mark.launch.listening import ListenOptions
from mark.planning.policies.policy_registry import make_policy
from mark.planning.resolve import resolve
from mark.profiling.fitted_replica import ServiceTime, replica_profile
from mark.profiling.version_profiles import service_profiles
from mark.serving.observe import logs
from mark.studies.own_scaler.scaler_record import priced_replica
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.prometheus.answers import Unanswered
from mark.traffic.prometheus.workload import Asked, check_select, find_workload, instance_types
from mark_infra.controller.floor_control import FloorControl, FloorSpec, Minimum
from mark_infra.controller.hosting import host
from mark_infra.store.sqlite import SqliteTable
from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess
from mark_infra.telemetry.prometheus_workload import PrometheusWorkload
from mark_infra.telemetry.watched_workload import WorkloadNow

_THREADS = 4
_FAR = 2.0  # times the known capacity: a replica in overload answers hardly more than it can
_TIMEOUT_S = 20.0  # of an answer: the process waits for it when it ends
_MODEL = "workload"
_MOST_INSTANCES, _MOST_USD_PER_HOUR = 1000, 1e6  # of a workload without a service file
_NO_LOAD = Load(0.0, STEP_S, np.empty(0), np.empty(0))


@dataclass(frozen=True, kw_only=True)
class FloorOptions(ListenOptions):
    """What `mark advise --serve` takes; docs/advise.md says what it means.

    Without `services` the workload that is found is one, with the promise `slo` and `rps_per_replica`. Of several
    services each is the workload of its name. `credentials` are the fields of `PrometheusAccess` beside the `url`.
    `profile` is one of AWS's configuration.
    """

    url: str
    asked: Asked
    credentials: Mapping[str, Any] = field(default_factory=dict)
    services: Sequence[str] = ()
    slo: Slo | None = None
    catalog: str | None = None
    instance: str | None = None
    per_instance: int | None = None
    rps_per_replica: float | None = None
    boot_s: float | None = None
    days: float = 28.0
    state: Path = Path(".mark-advise.db")
    act: str | None = None
    profile: str | None = None


def run_floor(options: FloorOptions) -> int:
    """Publish floors until SIGTERM or SIGINT; the exit code. Raises BadInput, Infeasible."""
    tls, auth = options.access()
    services = [load_service(name) for name in options.services]
    names = [service.name for service in services]
    if len(set(names)) < len(names):
        raise BadInput("names a service twice", "--service", ", ".join(names))
    if len(services) > 1 and (options.asked.workload or options.asked.rate or options.act):
        raise BadInput("are for one service: start a process for each", "--workload, --query-rate and --act")
    minimum = _minimum(options)
    reader = Prometheus(PrometheusAccess(options.url, timeout_s=_TIMEOUT_S, **options.credentials))
    table = SqliteTable(options.state)

    def started(port: int) -> None:
        logs.say(f"the floor is ready on {options.ready(port)}")

    def opened(wait: Callable[[float], bool]) -> FloorControl | None:
        specs = _asked_again(lambda: [_spec(one, options, reader, minimum) for one in services or (None,)], wait)
        if specs is None:
            return None
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


def _asked_again(specs: Callable[[], list[FloorSpec]], wait: Callable[[float], bool]) -> list[FloorSpec] | None:
    """The specs, as soon as Prometheus answers; None where `wait` says to give up."""
    pause_s = 1.0
    while True:
        try:
            return specs()
        except Unanswered as error:
            logs.say(f"{error}; it is asked again in {pause_s:.0f} s")
        if wait(pause_s):
            return None
        pause_s = min(30.0, 2.0 * pause_s)


def _spec(
    service: ServiceConfig | None, options: FloorOptions, reader: Prometheus, minimum: Minimum | None
) -> FloorSpec:
    """A service and the workload that Prometheus knows of it. Raises Unanswered, BadInput, Infeasible."""
    slo = options.slo if service is None else service.slo
    assert slo is not None  # the command line asks for one of the two
    asked = options.asked
    if service is not None and not asked.workload and len(options.services) > 1:
        asked = replace(asked, workload=service.name)
    workload = PrometheusWorkload(reader, partial(find_workload, reader, asked), slo.rt_max_s)
    found, window_s = workload.found()
    types = instance_types(reader, found, check_select(asked.select), reader.now_s())
    named = () if service is None else service.instances
    instance = options.instance or (named[0] if len(named) == 1 and "*" not in named[0] else None)
    per_instance = options.per_instance or 1
    if service is None or instance is not None or types[0]:
        catalog = load_catalog(options.catalog or ("aws-2026" if service is None else service.catalog))
        priced = priced_replica(catalog, instance, options.per_instance, types)
        instance, per_instance = priced.offer.instance, priced.per_instance
    if service is None:
        assert instance is not None  # or it has been asked for
        # Some names, of language models above all, have slashes.
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", found.name).strip("-") or _MODEL
        resolved = of_rate(name, slo, instance, per_instance, options)
    else:
        resolved = of_service(service, instance, options)
    (offer,) = resolved.offers
    usd_per_hour, rps = (one / per_instance for one in (offer.usd_per_hour, resolved.candidates[0].capacity_rps))
    name = resolved.service.name
    for said in (
        f"requests by {found.counted_by} over {window_s:.0f} s, ready replicas by {found.ready_by}",
        f"a replica is {'a' if per_instance == 1 else f'one {per_instance}th of a'} {offer.instance}, "
        f"{usd_per_hour:.4g} $/h, {rps:.3g} requests/s, ready after {offer.boot.mean_s:.0f} s",
        *too_busy(workload.now(), rps),
        *found.notes,
    ):
        logs.say(f"{name}: {said}")
    return FloorSpec(
        resolved,
        lambda within: make_policy("mark", within, _NO_LOAD),
        lambda: make_predictor("auto", 0, STEP_S),
        workload,
        round(options.days * DAY_S / STEP_S),
        minimum,
        per_instance,
    )


def too_busy(now: WorkloadNow, rps: float) -> tuple[str, ...]:
    """Say that replicas do much more than the `rps` that one is said to do, if they do."""
    if not (now.rps and now.replicas) or now.rps <= _FAR * rps * now.replicas:
        return ()
    each_rps = now.rps / now.replicas
    return (f"a replica does {each_rps:.3g} requests/s now, much more than {rps:.3g}: check --rps-per-replica",)


def of_service(service: ServiceConfig, instance: str | None, options: FloorOptions) -> ResolvedService:
    """The service on one type on demand, because replicas of a Deployment are alike. Raises BadInput, Infeasible."""
    named = service.instances if instance is None else (instance,)
    alone = replace(
        service,
        catalog=options.catalog or service.catalog,
        markets=(Market.ON_DEMAND,),
        instances=named,
        functions=(),
        warm_pool=0,
        committed=(),
    )
    resolved = resolve(alone, _catalog(alone.catalog, options), service_profiles(alone))
    if len(resolved.offers) > 1:
        types = ", ".join(offer.instance for offer in resolved.offers)
        raise BadInput("name the type that its replicas run on, because a floor is for one", "--instance", types)
    return resolved


def of_rate(name: str, slo: Slo, instance: str, per_instance: int, options: FloorOptions) -> ResolvedService:
    """A service of which only a replica's requests/s are known. Raises BadInput, Infeasible."""
    if options.rps_per_replica is None:
        what = "is needed with --serve, or --service: the report without --serve fits it to your latencies"
        raise BadInput(what, "--rps-per-replica")
    catalog = options.catalog or "aws-2026"
    config = ServiceConfig(
        name,
        _MODEL,
        slo,
        catalog,
        (Market.ON_DEMAND,),
        (instance,),
        _MOST_INSTANCES,
        _MOST_USD_PER_HOUR,
        (),
        late="refuse",
        min_instances=0,  # a floor of one would keep the other autoscaler from scaling to zero
    )
    rps, time = options.rps_per_replica, ServiceTime(slo.rt_max_s / 4.0)
    for _ in range(2):  # a second time with the service time with which the count comes out right
        profile = replica_profile(_MODEL, instance, per_instance, rps, time, slo)
        resolved = resolve(config, _catalog(catalog, options), {_MODEL: {instance: profile}})
        time = ServiceTime(time.mean_s * resolved.candidates[0].capacity_rps / per_instance / rps)
    return resolved


def _catalog(name: str, options: FloorOptions) -> Catalog:
    """With the boot that the user says, if one is said."""
    catalog = load_catalog(name)
    if options.boot_s is None:
        return catalog
    boot = Delay(options.boot_s, options.boot_s)
    return replace(catalog, offers=tuple(replace(offer, boot=boot) for offer in catalog.offers))


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
