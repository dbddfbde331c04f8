"""Run a server of a pipeline from options and its file.

It serves the whole pipeline, some of its stages, or the conductor that calls stages elsewhere. Each stage that is
served here is a model with its own workers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mark.config.layers import opened
from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.domain.profile import Profile
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.launch.listening import key_from, trusting
from mark.launch.personal_serving import personal_serving, with_head
from mark.launch.server import ServerOptions, feedback_of, listen, on_instances, own_profile, peers_of, serving_of
from mark.models.driver import PipelineDriver
from mark.models.policy_loading import load_policy
from mark.models.registry_place import model_hashes, pinned
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
from mark.serving.process_settings import InsuredServing, PipelineServing, SelectionServing, Serving


def run_pipeline_server(options: ServerOptions) -> None:
    """Serve a pipeline file until SIGTERM or SIGINT, then drain. Raises as `mark.launch.server.run_server` does."""
    config = load_pipeline(options.service, heads_alone=True)
    listen(options, lambda: pipeline_serving_of(options, config))


def pipeline_serving_of(options: ServerOptions, config: PipelineConfig) -> Serving:
    """Return the data plane that the options and the pipeline file describe.

    RT_max is divided among stages that follow each other, so that a batch of one stage leaves time for the others: by
    the time of one item if profiles give it for all stages, otherwise equally. If no instance type is named and the
    profiles have several, this machine's type is uncertain, and stages with code learn their service times. Raises
    BadInput, and Infeasible if a query on a graph takes longer than RT_max by the profile.
    """
    if options.to_measure:
        raise BadInput("is of a model by itself: a pipeline's stages do not take it", "to_measure", options.to_measure)
    addresses = _addresses(options, config)
    if options.faults is not None and len(addresses) == len(config.stages):
        raise BadInput("are played by the servers of the stages, and none is served here", "faults", options.faults)
    apart = _apart(options, config)
    functions = _functions(options, config)
    if config.insured is not None:
        config.check_visits()
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
    insured = config.insured is not None
    graph = None if config.pipeline is None or insured else StageGraph(config.pipeline)
    rt_max_s = config.slo.rt_max_s
    stages: dict[str, Serving | StageAddress] = {}
    all_here = not apart and not addresses  # otherwise stages run on other machines, whose types are unknown
    if all_here and graph is not None and profiled and (query_s := graph.query_s(tuple(known))) > rt_max_s:
        what = f"a query takes {query_s * 1e3:.1f} ms at least, RT_max is {rt_max_s * 1e3:g} ms"
        raise Infeasible(f"{config.source}: {what}")
    # Each stage of an insured service has the whole RT_max.
    shares = [1.0] * len(single_s) if insured else parts(known if profiled else [1.0] * len(single_s), graph)
    for number, (stage, service, learns, one_s, part) in enumerate(
        zip(config.stages, services, learn, single_s, shares, strict=True)
    ):
        part_s = part * rt_max_s if stage.rt_max_s is None else stage.rt_max_s
        slo = Slo(max(part_s, one_s or 0.0), config.slo.attainment)
        if stage.name in addresses:
            bought_as = config.service_of_stages()[stage.name]
            hedge_after_s = math.inf if config.insurance is None else config.insurance.hedge_after_s
            at = replace(addresses[stage.name], rt_max_s=slo.rt_max_s, service=bought_as, hedge_after_s=hedge_after_s)
            # Do not retry a parity call, because its members may have got their exact answers.
            stages[stage.name] = replace(at, retry_share=0.0, retry_burst=0.0) if insured and number > 0 else at
        elif not apart or stage.name in options.stages_here:
            own = replace(
                options,
                workers=options.workers or stage.workers,
                function=functions.get(stage.name),
                feedback_store=None,  # the pipeline learns, not its stages
            )
            if not own.at_url:
                own = replace(own, function_key=None)
            of_stage = replace(
                service, slo=slo, late="refuse", max_function_usd_per_hour=config.stage_function_usd_per_hour
            )
            stages[stage.name] = serving_of(own, of_stage, learn=learns)
    if shared := _workers_together(options, config, stages):
        stages |= {name: replace(one, workers=shared[name]) for name, one in stages.items() if isinstance(one, Serving)}
    models = {
        name: service.versions[0].model if service.versions else service.model
        for name, service in zip(config.names, services, strict=True)
    }
    keeps_parts = bool(config.stages) and all(stage.rt_max_s is not None for stage in config.stages)
    return Serving(
        name=config.name,
        versions=Versions({"1": (config.driver or config.source, 1.0)}),
        search=Path(config.source).resolve().parent,
        rt_max_s=rt_max_s,
        drain_s=options.drain_s,
        linger_s=options.linger_s,
        pipeline=PipelineServing(
            stages,
            None if apart or insured or config.selection is not None else with_head(config),
            driver,
            None if apart else _selection(config, services, stages),
            None if apart else _insurance(config, services, stages),
            None if apart else personal_serving(config, models),
            keeps_parts=keeps_parts,
        ),
        layers=() if apart else opened(config.layers),
        feedback=None if apart else feedback_of(options, config.feedback),
        cache=None if apart else config.cache,
        peers=peers_of(options),
    )


def _insurance(
    config: PipelineConfig, services: Sequence[ServiceConfig], stages: Mapping[str, Serving | StageAddress]
) -> InsuredServing | None:
    """Return how parity models insure the service; None without parity models."""
    if config.insured is None or config.insurance is None or (parity := config.insurance.parity) is None:
        return None
    parities = list(stages.values())[1:]
    known = [one.candidate.capacity_rps for one in parities if isinstance(one, Serving) and one.candidate is not None]
    elsewhere = any(isinstance(one, StageAddress) for one in parities)
    model = services[0].versions[0].model if services[0].versions else services[0].model
    served = model_hashes(model, Path(config.source).resolve().parent)
    off = ""
    if parity.model_sha256 and served and parity.model_sha256 not in served:
        said, own = parity.model_sha256[:12], min(served)[:12]
        off = f"its parity models belong to another version of the model ({said}, not {own})"
    return InsuredServing(
        config.insurance,
        capacity_rps=min(known) if known else None,
        share=1.0 / config.conductors if elsewhere else 1.0,
        off=off,
    )


def _selection(
    config: PipelineConfig, services: Sequence[ServiceConfig], stages: Mapping[str, Serving | StageAddress]
) -> SelectionServing | None:
    """Return how candidates are selected; None without a section [selection]."""
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
    """Return the policy that `module:Class` names; None for one of mark's own policies. Raises BadInput."""
    found = config.selection
    if found is None or found.policy in POLICIES:
        return None
    where = f"{config.source} [selection] policy"
    try:
        return load_policy(found.policy, Path(config.source).resolve().parent, config.names, found)
    except BadInput as error:
        raise BadInput(f"{error.where}: {error.what}", where, error.value) from error.__cause__


def _planned_usd(config: PipelineConfig, stage: Serving | StageAddress) -> float:
    """Return the cost of a call on a fully used machine of this type; 0 if the type or the profile is unknown.

    It is 0 too for a stage that is served elsewhere, whose cost comes from the controller.
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
    """Return the number of workers of each stage that shares this machine, as a plan would count them.

    The result is empty if the file or the options give the number, or if the type of this machine is unknown. If the
    machine has no room for a worker of each stage, it raises BadInput for stages that are bought together; otherwise
    the result is empty, and each stage has the workers of its profile. If a driver makes the calls per query unknown,
    each stage of a whole pipeline counts as called once, and for stages bought together the result is empty.
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
    """Return whether only some stages are served here, each as its own model. Raises BadInput."""
    for number, name in enumerate(options.stages_here):
        _check_name(config, name, "stages_here", options.stages_here[:number])
    if len(options.stages_here) > 1 and options.grpc_port is not None:
        raise BadInput("speaks of one model: with it goes one stage", "grpc_port", options.grpc_port)
    return bool(options.stages_here)


def _addresses(options: ServerOptions, config: PipelineConfig) -> dict[str, StageAddress]:
    """Return the addresses of the stages served elsewhere, each with the pipeline's RT_max. Raises BadInput."""
    if not options.stages_at:
        learns = config.feedback is not None and not options.stages_here  # peers use the same key and certificates
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
    """Return the functions for the overflow of stages that are served here. Raises BadInput."""
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
    """Return the pipeline's driver; None if the file has a graph, in which every query visits every stage."""
    config.check_visits()
    if config.driver is None:
        return None
    return open_driver(config)


def _single_s(options: ServerOptions, of_model: Mapping[str, Profile]) -> float | None:
    """Return the seconds of one item on this machine, by the model's profiles; None without a profile of its type."""
    own = own_profile(of_model, options.instance)
    return None if own is None else own[1].latency_s(1) + own[1].overhead_s
