"""Start a controller from options: site, services, policy, predictor, prices, address."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.config.site_services import site_pipelines, site_services
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.domain.load import Load
from mark.domain.offer import Catalog
from mark.domain.service import ResolvedService, ServiceConfig
from mark.launch.listening import ListenOptions
from mark.models.registry_place import pinned
from mark.planning.graphs.lineage_file import calls_per_query
from mark.planning.graphs.sited_group import GroupCalls, sited_group
from mark.planning.graphs.whole_fleet import whole_fleet
from mark.planning.planner import Policy
from mark.planning.policies.policy_registry import make_policy, policy_entry
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from mark.serving.observe import logs
from mark.simulation.inputs import history_of
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.reader import open_trace
from mark_infra.aws.live_prices import PriceKeeper
from mark_infra.aws.price_list_api import Prices, rezoned
from mark_infra.aws.session import open_session
from mark_infra.aws.site import Site, load_site
from mark_infra.controller import process
from mark_infra.controller.site_control import ServiceSpec


@dataclass(frozen=True, kw_only=True)
class ControllerOptions(ListenOptions):
    """The options of `mark controller`, explained in docs/cli.md. `site` None: the file that MARK_SITE names.

    `profile` is one of AWS's configuration.
    """

    services: Sequence[str]
    site: Path | None = None
    dry_run: bool = False
    policy: str = "mark"
    predictor: str = "auto"
    history: str | None = None
    catalog: str | None = None
    live_prices: bool = False
    profile: str | None = None


def run_controller(options: ControllerOptions) -> int:
    """Control until SIGTERM or SIGINT; return the exit code. Raises BadInput for unusable options and files."""
    tls, auth = options.access()
    path = options.site or os.environ.get("MARK_SITE")
    if path is None:
        raise BadInput("say where to run: `site` FILE, or MARK_SITE", "site")
    if not policy_entry(options.policy).live:
        raise BadInput("plans with facts that no controller knows", "policy", options.policy)
    site = load_site(Path(path))
    session = open_session(options.profile, site.region)
    services = [pinned(service, files=False) for service in site_services(options.services)]
    for service in services:
        site.service(service.name)
    history = history_from(options.history)
    # A plan may use functions only if the site has one.
    services = [s if site.service(s.name).function is not None else replace(s, functions=()) for s in services]
    keepers: dict[str, PriceKeeper] = {}
    pipelines = site_pipelines(options.services)
    known = stage_histories(pipelines, history)
    of = {pipeline.source: pipeline for pipeline in pipelines}
    specs = [
        _spec(service, of.get(service.source), options, known.get(service.name, history), site, session, keepers)
        for service in services
    ]

    def started(port: int) -> None:
        logs.say(f"the controller is ready on {options.ready(port)}")

    address = options.host, options.port
    keys = options.key_poll(auth)
    if keys is not None:
        keys.start()
        signal.signal(signal.SIGHUP, lambda *_: keys.wake())
    try:
        return process.serve(
            site,
            specs,
            address,
            tls=tls,
            auth=auth,
            dry_run=options.dry_run,
            started=started,
            session=session,
            pipelines=pipelines,
        )
    finally:
        if keys is not None:
            keys.close()


def _spec(
    service: ServiceConfig,
    pipeline: PipelineConfig | None,
    options: ControllerOptions,
    history: Load,
    site: Site,
    session: Any,
    keepers: dict[str, PriceKeeper],
) -> ServiceSpec:
    """Return a service's spec. `pipeline` has the service's stages.

    Services of equal catalogue and zones share `keepers` of prices.
    """
    if options.catalog is not None:
        service = replace(service, catalog=options.catalog)
    zones = tuple(site.service(service.name).subnets)
    named = load_catalog(service.catalog)
    if text := rezoned(named, zones):
        logs.say(f"{service.name}: {text}")
    catalog = named.in_zones(zones)
    prices = None
    if options.live_prices:
        kept = " ".join((service.catalog, *zones))
        if kept not in keepers:
            prices_there = Prices(catalog, site.region, session=session)
            keeper = keepers[kept] = PriceKeeper(prices_there, scale=site.time_scale)
            for note in keeper.step():
                logs.say(f"{service.name}: {note}")
        prices = keepers[kept]
        catalog = prices.latest.catalog
    per_request = 1.0
    if service.together and pipeline is not None:
        per_request = sum(GroupCalls.of(pipeline, service).per_lead)
    try:
        resolved = _resolved(service, pipeline, catalog if prices is None else prices.latest.sold)
    except Infeasible:  # no offer that EC2 sells now keeps the SLO, so include the unsold spot offers
        resolved = _resolved(service, pipeline, catalog)
    make_predictor(options.predictor, 0, history.step_s)  # refuse an unknown predictor now

    def policy(within: ResolvedService) -> Policy:
        return make_policy(options.policy, within, history)

    return ServiceSpec(
        resolved, policy, lambda: make_predictor(options.predictor, 0, history.step_s), history, prices, per_request
    )


def _resolved(service: ServiceConfig, pipeline: PipelineConfig | None, catalog: Catalog) -> ResolvedService:
    """Resolve a service in the catalogue. Raises Infeasible."""
    if service.whole:
        return whole_fleet(load_pipeline(service.source), service, catalog).resolved
    if service.together and pipeline is not None:
        return sited_group(pipeline, service, catalog).resolved
    return resolve(service, catalog, service_profiles(service))


def stage_histories(pipelines: Sequence[PipelineConfig], history: Load) -> dict[str, Load]:
    """Return each stage's history: the history of queries times the stage's known calls per query.

    Stages that are bought together get the history of their lead. Raises BadInput for a lineage that cannot be used.
    """
    found = {}
    for pipeline in pipelines:
        for service in pipeline.bought_services():
            of_query = calls_per_query(pipeline)
            if service.together:
                known = GroupCalls.of(pipeline, service)
                calls = known.calls[known.lead]
            elif of_query is not None:
                calls = of_query[pipeline.names.index(service.stage)]
            else:
                continue
            found[service.name] = replace(history, mean_rps=calls * history.mean_rps, peak_rps=calls * history.peak_rps)
    return found


def history_from(name: str | None) -> Load:
    """Return the history by the minute, up to second 0; empty without a trace. Prints how the trace was read."""
    if name is None:
        return Load(0.0, 60.0, np.empty(0), np.empty(0))
    trace = open_trace(name)
    if trace.step_s != 60.0:
        raise BadInput("has bins above a minute, of which no minute can be learned", "history", name)
    if trace.read:
        logs.say(f"history: {trace.read}")
    return history_of(trace, 0.0, trace.duration_s, 1.0)
