"""Run a model server from options: service file, profile, versions of the model, overflow, address."""

from __future__ import annotations

import math
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from mark.config.faults_section import load_faults
from mark.config.layers import opened
from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.profile import Candidate, Profile
from mark.domain.rules.admission import LATE, NEVER_S, late_share, least_probability
from mark.domain.service import FeedbackSettings, FunctionUse, ServiceConfig
from mark.launch.listening import ListenOptions, OverflowOptions, key_from, trusting
from mark.models.registry_place import pinned
from mark.models.versions import Versions
from mark.planning.resolve import choose_function, function_size
from mark.profiling.measure_server import RT_MAX_S
from mark.profiling.played_faults import FAULT_STREAM, FaultStream, faults_of_text, faults_text, stream_of_text
from mark.profiling.policy import candidate
from mark.profiling.version_profiles import profile_source, service_profiles, version_profiles
from mark.serving import interruption_watch, server_process
from mark.serving.backend.replica import AnswersLater
from mark.serving.learned.peers import REACH, PeerAccess
from mark.serving.observe import logs
from mark.serving.overflow.capped import CappedFunctions
from mark.serving.overflow.functions import FunctionClient
from mark.serving.overflow.http_client import Address
from mark.serving.process_settings import ListenerConfig, Serving

# A call of a function times out after _PATIENCE times RT_max or a warm call, whichever is longer, and not before
# _COLD_STARTS cold starts. Without a profile of the Lambda function a cold start takes _COLD_S, because AWS allows ten
# seconds for the initialisation.
_PATIENCE, _COLD_STARTS = 4.0, 2.0
_COLD_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ServerOptions(ListenOptions, OverflowOptions):
    """The options of `mark serve`; docs/cli.md explains them.

    `workers` None: the profile's number, else 1. `instance` None: the only type with a profile of the model. With
    `pace` answers take as long as on `instance`, with the faults of the service file or of the file `faults`. With
    `to_measure` the server needs no profile, plays no faults, never refuses a request as late, and never calls a
    function. `function_timeout_s` None: computed from RT_max and the time of a call.

    In a pipeline, `stages_here` are the stages served here, each as its own model, and `stages_at` pairs stages with
    the addresses where they are served; with neither the whole pipeline is served here. `stage_functions` pairs stages
    with functions, like `function` for a single model. `peers` are the addresses of other servers of the same model,
    which learn together; they are reached like stages. With `stages_in_clear` and without `stage_ca`, peers may show
    any certificate. `feedback_store` replaces `[feedback] store`.
    """

    service: str
    grpc_port: int | None = None
    workers: int | None = None
    threads: int | None = None
    max_batch: int = 64
    hang_s: float = 60.0
    worker_memory_mib: float = math.inf
    worker_socket: Path | None = None
    profile: str | None = None
    instance: str | None = None
    pace: bool = False
    faults: str | None = None
    to_measure: bool = False
    function_ms: float | None = None
    function_timeout_s: float | None = None
    drain_s: float = 30.0
    linger_s: float = 0.0
    watch_interruptions: bool = False
    log_requests: bool = False
    trace_requests: bool = False
    stages_here: Sequence[str] = ()
    stages_at: Sequence[tuple[str, str]] = ()
    stage_functions: Sequence[tuple[str, str]] = ()
    peers: Sequence[str] = ()
    stage_key: Path | None = None
    stage_ca: Path | None = None
    stages_in_clear: bool = False
    feedback_store: str | None = None


def run_server(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Raises BadInput for options, files and models that cannot be used, MarkError if workers keep failing.
    """
    config = load_service(options.service)
    for option in ("stages_here", "stages_at", "stage_functions"):
        if getattr(options, option):
            raise BadInput("is of a pipeline, and this is a model by itself", option, options.service)
    service = pinned(config)
    listen(options, lambda: serving_of(options, service))


def listen(options: ServerOptions, serving_of_file: Callable[[], Serving]) -> None:
    """Serve at the options' address until SIGTERM or SIGINT, then drain. Raises as `run_server` does.

    The address is checked first, before the file.
    """
    tls, auth = options.access()
    logs.to_stderr()
    serving = serving_of_file()
    listener = ListenerConfig(
        host=options.host,
        port=options.port,
        grpc_port=options.grpc_port,
        tls=tls,
        auth=auth,
        keys=options.key_poll(auth),
        watch=interruption_watch.here() if options.watch_interruptions else None,
        log_requests=options.log_requests,
        trace_requests=options.trace_requests,
    )

    def started(port: int) -> None:
        logs.say(f"{serving.name} is ready on {options.ready(port)}")

    server_process.run(lambda: server_process.serve(serving, listener, started))


def serving_of(options: ServerOptions, service: ServiceConfig, *, learn: bool = False) -> Serving:
    """Return the data plane that the options and the service file describe. Raises BadInput.

    With `learn` service times are learned instead of taken from a profile.
    """
    file = options.profile or service.profile_file
    profiled = replace(service, profile_file=file)
    profiles = service_profiles(profiled)
    of_model = profiles.get(service.model, {})
    if options.to_measure or learn:
        found, instance = None, options.instance or ""
    else:
        found, instance = _candidate(service, of_model, options.instance)
    search = Path(service.source).resolve().parent
    if options.pace and instance not in of_model:
        raise BadInput("needs a profile of the model on an instance (`instance`)", "pace")
    faults = _faults(options, service)

    def code(reference: str) -> str:
        if not options.pace:
            return reference
        own_file, model = profile_source(reference, profiled, profiles)
        query = {"model": reference, "profiled": model, "instance": instance, "search": str(search)}
        return _replayed("Paced", query, own_file, faults)

    if service.versions:
        versions = Versions({v.name: (code(v.model), v.weight) for v in service.versions})
    elif ":" in service.model:
        versions = Versions({"1": (code(service.model), 1.0)})
    elif instance in of_model:
        # Without code to load, the model's profile can still be tried out.
        versions = Versions(
            {"1": (_replayed("Replay", {"model": service.model, "instance": instance}, file, faults), 1.0)}
        )
        logs.say(f"{service.name} has no code: it answers as slowly as on {instance}")
    else:
        raise BadInput("neither module:Class nor a profile's model on an instance (`instance`)", "model", service.model)
    functions = None if options.to_measure else options.client()
    function_s = NEVER_S
    function_timeout_s = options.function_timeout_s or 0.0
    if functions is not None:
        function_s, cold_s = _function_times(options, service, of_model)
        if options.function_timeout_s is None:
            function_timeout_s = max(_PATIENCE * max(service.slo.rt_max_s, function_s), _COLD_STARTS * cold_s)
        if math.isfinite(service.max_function_usd_per_hour) and not options.at_url:
            functions = _capped(functions, service, of_model, function_s)
    return Serving(
        name=service.name,
        versions=versions,
        search=search,
        rt_max_s=RT_MAX_S if options.to_measure else service.slo.rt_max_s,
        candidate=found,
        candidates={} if options.to_measure else _candidates(profiled, profiles, instance),
        workers=options.workers or (found.workers if found is not None else 1),
        threads=options.threads,
        most_batch=options.max_batch,
        functions=functions,
        function_s=function_s,
        function_timeout_s=function_timeout_s,
        late=LATE[service.late],
        least_in_time=least_probability(service.slo.attainment),
        late_share=late_share(service.slo.attainment),
        hang_s=options.hang_s,
        worker_memory_bytes=options.worker_memory_mib * 2.0**20,
        drain_s=options.drain_s,
        linger_s=options.linger_s,
        worker_socket=options.worker_socket,
        layers=() if options.to_measure else opened(service.layers),
        feedback=None if options.to_measure else feedback_of(options, service.feedback),
        cache=None if options.to_measure else service.cache,
        peers=peers_of(options),
        loader=f"mark.serving.worker.loaders:{'load_paced' if options.pace else 'load'}",
        answers_later_s=None if faults is None else _answers_later_s(faults),
    )


def peers_of(options: ServerOptions) -> PeerAccess:
    """Return the other servers of the same model and how to reach them. Raises BadInput."""
    try:
        addresses = tuple(map(Address.of, options.peers))
    except BadInput as error:
        raise BadInput("must be http://host:port or https://host:port", "peers", error.value) from None
    key = None if options.stage_key is None else key_from(options.stage_key)
    tls = None
    if options.stage_ca is not None:
        tls = trusting(options.stage_ca)
    elif options.stages_in_clear:  # plain http would be accepted too, so an unsigned certificate is not worse
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return PeerAccess(addresses, key, replace(REACH, tls=tls), options.stages_in_clear)


def feedback_of(options: ServerOptions, feedback: FeedbackSettings | None) -> FeedbackSettings | None:
    """Return the section [feedback] with the store of the options. Raises BadInput for a store without the section."""
    if options.feedback_store is None:
        return feedback
    if feedback is None:
        raise BadInput("there is no section [feedback]", "feedback_store", options.feedback_store)
    return replace(feedback, store=options.feedback_store)


def _faults(options: ServerOptions, service: ServiceConfig) -> str | None:
    """Return the faults of the instance that this machine stands in for, as text; None without faults.

    The environment variable FAULT_STREAM of the testbed selects the instance's stream of faults. Raises BadInput.
    """
    if options.faults is not None and not options.pace:
        raise BadInput("are played where this machine stands in for another: `pace`", "faults", options.faults)
    faults = service.faults if options.faults is None else load_faults(options.faults)
    if not options.pace or options.to_measure or not faults.any:
        return None
    said = os.environ.get(FAULT_STREAM)
    return faults_text(faults, FaultStream(time.time()) if said is None else stream_of_text(said))


def _answers_later_s(faults: str) -> AnswersLater | None:
    """Return the function that gives the delay of an answer; None if the faults do not delay answers."""
    played = faults_of_text(faults)
    return (lambda began_s: played.answers_later_s(began_s - played.began_unix_s)) if played.delays_answers else None


def _replayed(kind: str, query: dict[str, str], profile: str | None, faults: str | None) -> str:
    """Return the reference to a model of `mark.profiling.replay`."""
    if profile is not None:
        query["profile"] = str(Path(profile).resolve())
    if faults is not None:
        query["faults"] = faults
    return f"mark.profiling.replay:{kind}?{urlencode(query)}"


def on_instances(of_model: Mapping[str, Profile]) -> dict[str, Profile]:
    """Return a model's profiles by instance type, without profiles of functions."""
    return {name: profile for name, profile in of_model.items() if not is_function(name)}


def own_profile(by_instance: Mapping[str, Profile], asked: str | None) -> tuple[str, Profile] | None:
    """Return this machine's type and profile: of the type `asked`, or of the only type; None without a profile."""
    instance = asked if asked is not None or len(by_instance) != 1 else next(iter(by_instance))
    return (instance, by_instance[instance]) if instance is not None and instance in by_instance else None


def _candidate(
    service: ServiceConfig, of_model: Mapping[str, Profile], asked: str | None
) -> tuple[Candidate | None, str]:
    """Return the candidate by the profile of this machine's type, and the type.

    Without a profile the result is (None, ""), and service times will be learned. Raises BadInput.
    """
    found = on_instances(of_model)
    own = own_profile(found, asked)
    if own is None:
        if asked is not None:
            what = f"no profile of {service.model} on it, only on {', '.join(found) or 'none'}"
            raise BadInput(what, "instance", asked)
        if found and ":" not in service.model:
            raise BadInput(f"must be named, one of {', '.join(found)}", "instance")
        return None, ""
    instance, profile = own
    made = candidate(profile, service.slo, service.batching)
    if isinstance(made, str):
        raise BadInput(made, f"{service.model} on {instance}")
    return made, instance


def _candidates(
    service: ServiceConfig, profiles: Mapping[str, Mapping[str, Profile]], instance: str
) -> dict[str, Candidate]:
    """Return the candidates of versions with their own profile, because each bouncer uses its version's times."""
    own = {v.name: version_profiles(v.model, service, profiles, {}).get(instance) for v in service.versions}
    made = {name: candidate(each, service.slo, service.batching) for name, each in own.items() if each is not None}
    return {name: each for name, each in made.items() if isinstance(each, Candidate)}


def _function_times(
    options: ServerOptions, service: ServiceConfig, of_model: Mapping[str, Profile]
) -> tuple[float, float]:
    """Return the seconds of a warm call of the function, and the seconds that a cold start adds. Raises BadInput."""
    unknown_s = 0.0 if options.at_url else _COLD_S
    if options.function_ms is not None:
        return options.function_ms / 1e3, unknown_s
    chosen, _ = choose_function(service, load_catalog(service.catalog), of_model)
    if chosen is not None:
        return chosen.warm_s, chosen.cold_s or unknown_s
    raise BadInput("must be said: there is no profile of the model on a function", "function_ms")


def _capped(
    functions: FunctionClient, service: ServiceConfig, of_model: Mapping[str, Profile], function_s: float
) -> CappedFunctions:
    """Return the functions within their budget, at the catalogue's prices of their size. Raises BadInput."""
    catalog = load_catalog(service.catalog)
    size = function_size(service, catalog, of_model)
    if size is None:
        what = "has no price without a size: say function = lambda:MEMORY_MB"
        raise BadInput(what, f"{service.source} [overflow] max_usd_per_hour", service.max_function_usd_per_hour)
    use = FunctionUse(catalog.function(size), function_s, 0.0, "measured")
    return CappedFunctions(functions, use, service.max_function_usd_per_hour)
