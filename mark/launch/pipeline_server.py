"""A server of a pipeline from options and its file: of all of it, of some stages, or of what calls stages elsewhere.

Each stage that is served here is a model with workers of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mark.config.layers import opened
from mark.config.pipeline_file import PipelineConfig, load_pipeline
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.domain.profile import Profile
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.launch.listening import key_from, trusting
from mark.launch.server import ServerOptions, listen, on_instances, own_profile, peers_of, serving_of
from mark.models.driver import PipelineDriver
from mark.models.policy_loading import load_policy
from mark.models.registry_place import pinned
from mark.models.versions import Versions
from mark.planning.graphs.lineage_file import calls_per_query
from mark.planning.graphs.packing import placement_of
from mark.planning.graphs.shared_workers import workers_together
from mark.planning.graphs.trace_file import open_driver
from mark.profiling.version_profiles import service_profiles
from mark.selection.outcome import candidate_key
from mark.selection.policy import SelectionPolicy
from mark.selection.settings import POLICIES
from mark.serving.conductor.graph import StageGraph, parts
from mark.serving.conductor.remote_stage import StageAddress
from mark.serving.frontend.auth import is_loopback
from mark.serving.overflow.http_client import Address, Reach
from mark.serving.server_process import PipelineServing, SelectionServing, Serving


def run_pipeline_server(options: ServerOptions) -> None:
    """Serve a pipeline file until SIGTERM or SIGINT, then drain. Raises as `mark.launch.server.run_server` does."""
    config = load_pipeline(options.service)
    listen(options, lambda: pipeline_serving_of(options, config))


def pipeline_serving_of(options: ServerOptions, config: PipelineConfig) -> Serving:
    """What the options and the pipeline file say of the data plane.

    RT_max is parted among stages that follow each other, by what one item takes where profiles say it for all of them,
    else equally: a batch of a stage is to leave time for the others. Where no instance type is named and profiles are
    of several, this machine is none of them for certain, and stages that have code learn what they take. Raises
    BadInput, and Infeasible where a query on a graph takes longer than RT_max by the profile.
    """
    if options.to_measure:
        raise BadInput("is of a model by itself: a pipeline's stages do not take it", "to_measure", options.to_measure)
    addresses = _addresses(options, config)
    if options.faults is not None and len(addresses) == len(config.stages):
        raise BadInput("are played by the servers of the stages, and none is served here", "faults", options.faults)
    apart = _apart(options, config)
    functions = _functions(options, config)
    driver = None if apart else _driver(config)
    services = [
        pinned(replace(config.service(stage), profile_file=options.profile or config.profile_file))
        for stage in config.stages
    ]
    found = [on_instances(service_profiles(service).get(service.model, {})) for service in services]
    mixed = options.instance is None and len({instance for of_model in found for instance in of_model}) > 1
    learn = [mixed and ":" in service.model for service in services]
    single_s = [None if learns else _single_s(options, of_model) for learns, of_model in zip(learn, found, strict=True)]
    known = [one for one in single_s if one is not None]
    profiled = len(known) == len(single_s)
    graph = None if config.pipeline is None else StageGraph(config.pipeline)
    rt_max_s = config.slo.rt_max_s
    stages: dict[str, Serving | StageAddress] = {}
    all_here = not apart and not addresses  # else stages run on other machines, of whatever type
    if all_here and graph is not None and profiled and (query_s := graph.query_s(tuple(known))) > rt_max_s:
        what = f"a query takes {query_s * 1e3:.1f} ms at least, RT_max is {rt_max_s * 1e3:g} ms"
        raise Infeasible(f"{config.source}: {what}")
    shares = parts(known if profiled else [1.0] * len(single_s), graph)
    for stage, service, learns, one_s, part in zip(config.stages, services, learn, single_s, shares, strict=True):
        part_s = part * rt_max_s if stage.rt_max_s is None else stage.rt_max_s
        slo = Slo(max(part_s, one_s or 0.0), config.slo.attainment)
        if stage.name in addresses:
            bought_as = config.service_of_stages()[stage.name]
            stages[stage.name] = replace(addresses[stage.name], rt_max_s=slo.rt_max_s, service=bought_as)
        elif not apart or stage.name in options.stages_here:
            own = replace(options, workers=options.workers or stage.workers, function=functions.get(stage.name))
            if not own.at_url:
                own = replace(own, function_key=None)
            of_stage = replace(
                service, slo=slo, late="refuse", max_function_usd_per_hour=config.stage_function_usd_per_hour
            )
            stages[stage.name] = serving_of(own, of_stage, learn=learns)
    if shared := _workers_together(options, config, stages):
        stages |= {name: replace(one, workers=shared[name]) for name, one in stages.items() if isinstance(one, Serving)}
    keeps_parts = all(stage.rt_max_s is not None for stage in config.stages)
    return Serving(
        name=config.name,
        versions=Versions({"1": (config.driver or config.source, 1.0)}),
        search=Path(config.source).resolve().parent,
        rt_max_s=rt_max_s,
        drain_s=options.drain_s,
        linger_s=options.linger_s,
        pipeline=PipelineServing(
            stages,
            None if apart or config.selection is not None else config.pipeline,
            driver,
            None if apart else _selection(config, services, stages),
            keeps_parts=keeps_parts,
        ),
        layers=() if apart else opened(config.layers),
        feedback=None if apart else config.feedback,
        cache=None if apart else config.cache,
        peers=peers_of(options),
    )


def _selection(
    config: PipelineConfig, services: Sequence[ServiceConfig], stages: Mapping[str, Serving | StageAddress]
) -> SelectionServing | None:
    """How candidates are selected; None: the file has no such section."""
    if config.selection is None:
        return None
    return SelectionServing(
        settings=config.selection,
        keys=tuple(
            candidate_key(one.name, service.model) for one, service in zip(config.stages, services, strict=True)
        ),
        planned_usd=tuple(_planned_usd(config, one) for one in stages.values()),
        usd_per_call=tuple(stage.usd_per_call for stage in config.stages),
        own_policy=_own_policy(config),
    )


def _own_policy(config: PipelineConfig) -> SelectionPolicy | None:
    """The policy that `module:Class` names; None: it is one of mark's. Raises BadInput."""
    found = config.selection
    if found is None or found.policy in POLICIES:
        return None
    where = f"{config.source} [selection] policy"
    try:
        return load_policy(found.policy, Path(config.source).resolve().parent, config.names, found)
    except BadInput as error:
        raise BadInput(f"{error.where}: {error.what}", where, error.value) from error.__cause__


def _planned_usd(config: PipelineConfig, stage: Serving | StageAddress) -> float:
    """What a call costs on a machine of this type whose capacity is used; 0 where type or profile are unknown.

    Of a stage that is served elsewhere the controller tells it.
    """
    if isinstance(stage, StageAddress) or stage.candidate is None:
        return 0.0
    instance, capacity_rps = stage.candidate.profile.instance, stage.candidate.capacity_rps
    offers = [
        offer.usd_per_s
        for offer in load_catalog(config.fleet.catalog).offers
        if offer.instance == instance and offer.market in config.fleet.markets
    ]
    return min(offers) / capacity_rps if offers and capacity_rps > 0.0 else 0.0


def _workers_together(
    options: ServerOptions, config: PipelineConfig, stages: Mapping[str, Serving | StageAddress]
) -> dict[str, int]:
    """By stage, where those that are served here share this machine: as many as a plan or the controller reckons with.

    None where the file or the options say how many, or this machine is of no type that is known. Raises BadInput where
    an instance that is bought for these stages has no room for all of them; where a whole pipeline is tried out, each
    stage then has the workers of its profile. Where a driver decides the calls, all stages count as called alike.
    """
    together = next((one for one in config.together if set(one) == set(options.stages_here)), ())
    all_here = not options.stages_here and not options.stages_at
    group = together or (config.names if all_here else ())
    calls = calls_per_query(config) if group else None
    if calls is None and not together:
        calls = [1.0] * len(config.names)
    said = any(stage.workers is not None for stage in config.stages if stage.name in group)
    if calls is None or said or options.workers is not None:
        return {}
    here = [(at, stage, stages[stage.name]) for at, stage in enumerate(config.stages) if stage.name in group]
    alone = [one.candidate for _, _, one in here if isinstance(one, Serving) and one.candidate is not None]
    types = {on.profile.instance for on in alone}
    offers = [offer for offer in load_catalog(config.fleet.catalog).offers if {offer.instance} == types]
    if len(alone) < len(group) or not offers or not offers[0].vcpu:
        return {}
    placements = [
        placement_of(offers[0], on.profile, stage.without_gpu) for (_, stage, _), on in zip(here, alone, strict=True)
    ]
    workers = workers_together(placements, alone, [calls[at] for at, _, _ in here])
    if workers is None and together:
        raise BadInput(f"has no room for a worker of each of {', '.join(group)}", "instance", options.instance)
    if workers is None:
        return {}
    return {stage.name: count for (_, stage, _), count in zip(here, workers, strict=True)}


def _apart(options: ServerOptions, config: PipelineConfig) -> bool:
    """Are only some stages served here, each as a model of its own?"""
    for number, name in enumerate(options.stages_here):
        _check_name(config, name, "stages_here", options.stages_here[:number])
    if len(options.stages_here) > 1 and options.grpc_port is not None:
        raise BadInput("speaks of one model: with it goes one stage", "grpc_port", options.grpc_port)
    return bool(options.stages_here)


def _addresses(options: ServerOptions, config: PipelineConfig) -> dict[str, StageAddress]:
    """Of the stages that are served elsewhere, still with all of RT_max."""
    if not options.stages_at:
        learns = config.feedback is not None and not options.stages_here  # with peers, which are reached likewise
        for option, given in (("stage_key", options.stage_key), ("stage_ca", options.stage_ca)):
            if given is not None and not learns:
                raise BadInput("is for stages elsewhere, `stages_at`", option, str(given))
        return {}
    if options.stages_here:
        raise BadInput("belongs to the server of the whole pipeline: `stages_here` serves some stages", "stages_at")
    key = None if options.stage_key is None else key_from(options.stage_key)
    reach = Reach(tls=None if options.stage_ca is None else trusting(options.stage_ca))
    found: dict[str, StageAddress] = {}
    for name, url in options.stages_at:
        _check_name(config, name, "stages_at", found)
        try:
            address = Address.of(url)
        except BadInput:
            raise BadInput("must be NAME=http://host:port or NAME=https://host:port", "stages_at", url) from None
        if not (address.tls or options.stages_in_clear or is_loopback(address.host)):
            raise BadInput("would be reached in clear: https, or `stages_in_clear`", "stages_at", url)
        found[name] = StageAddress(address, config.slo.rt_max_s, key, reach)
    return found


def _functions(options: ServerOptions, config: PipelineConfig) -> dict[str, str]:
    """Of the stages that are served here and have one: what takes their overflow."""
    if options.function is not None:
        what = "is of a model by itself: `stage_functions` says it of a pipeline's stage"
        raise BadInput(what, "function", options.function)
    found: dict[str, str] = {}
    elsewhere = [name for name, _ in options.stages_at]
    for name, function in options.stage_functions:
        _check_name(config, name, "stage_functions", found)
        if name in elsewhere or (options.stages_here and name not in options.stages_here):
            raise BadInput("is not served here: the server of that stage calls its function", "stage_functions", name)
        found[name] = function
    if options.function_key is not None and not any(replace(options, function=one).at_url for one in found.values()):
        raise BadInput("is for functions at a URL", "function_key", str(options.function_key))
    return found


def _check_name(config: PipelineConfig, name: str, option: str, before: Collection[str]) -> None:
    if name not in config.names:
        raise BadInput(f"no stage of {config.source}", option, name, known=config.names)
    if name in before:
        raise BadInput("a stage twice", option, name)


def _driver(config: PipelineConfig) -> PipelineDriver | None:
    """None where the graph is said, by which every query visits every stage."""
    config.check_visits()
    if config.driver is None:
        return None
    return open_driver(config)


def _single_s(options: ServerOptions, of_model: Mapping[str, Profile]) -> float | None:
    """What one item takes on this machine, by the profiles of the model by instance type; None: there is none."""
    own = own_profile(of_model, options.instance)
    return None if own is None else own[1].latency_s(1) + own[1].overhead_s
