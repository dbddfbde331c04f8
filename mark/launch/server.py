"""A model server from options: service file, profile, versions of the model, overflow, address."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.profile import Candidate, Profile
from mark.domain.service import ServiceConfig
from mark.launch.listener import ListenOptions, OverflowOptions
from mark.models.versions import Versions
from mark.profiling.policy import candidate
from mark.profiling.table import load_profiles
from mark.rules.admission import NEVER_S
from mark.serving import interruption_watch, server_process
from mark.serving.observe import logs


@dataclass(frozen=True, kw_only=True)
class ServerOptions(ListenOptions, OverflowOptions):
    """What `mark serve` takes; docs/cli.md says what it means.

    `workers` None: the profile's number, else 1. `instance` None: the only type with a profile of the model. With
    `pace` answers take as long as on `instance`.
    """

    service: str
    grpc_port: int | None = None
    workers: int | None = None
    threads: int | None = None
    max_batch: int = 64
    hang_s: float = 60.0
    worker_memory_mib: float = math.inf
    profile: str | None = None
    instance: str | None = None
    pace: bool = False
    function_ms: float | None = None
    drain_s: float = 30.0
    linger_s: float = 0.0
    watch_interruptions: bool = False
    log_requests: bool = False
    trace_requests: bool = False


def run_server(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Raises BadInput for options, files and models that cannot be used, RuntimeError when no worker could be kept.
    """
    service = load_service(options.service)
    tls, auth = options.access()
    logs.to_stderr()
    serving = _serving(options, service)
    listener = server_process.ListenerConfig(
        host=options.host,
        port=options.port,
        grpc_port=options.grpc_port,
        tls=tls,
        auth=auth,
        watch=interruption_watch.here() if options.watch_interruptions else None,
        log_requests=options.log_requests,
        trace_requests=options.trace_requests,
    )

    def started(port: int) -> None:
        logs.say(f"{service.name} is ready on {options.ready(port)}")

    server_process.run(lambda: server_process.serve(serving, listener, started))


def _serving(options: ServerOptions, service: ServiceConfig) -> server_process.Serving:
    file = options.profile or service.profile_file
    of_model = load_profiles(file).get(service.model, {})
    found, instance = _candidate(service, of_model, options.instance)
    search = Path(service.source).resolve().parent
    if options.pace and found is None:
        raise BadInput("needs a profile of the model on an instance (`instance`)", "pace")

    def code(reference: str) -> str:
        return _paced(reference, service.model, instance, file, search) if options.pace else reference

    if service.versions:
        versions = Versions({v.name: (code(v.model), v.weight) for v in service.versions})
    elif ":" in service.model:
        versions = Versions({"1": (code(service.model), 1.0)})
    elif found is not None:
        # Nothing to load: what a profile says of a model can still be tried out.
        where = f"&profile={Path(file).resolve()}" if file else ""
        versions = Versions(
            {"1": (f"mark.profiling.replay:Replay?model={service.model}&instance={instance}{where}", 1.0)}
        )
        print(f"mark: {service.name} has no code: it answers as slowly as on {instance}", file=sys.stderr)
    else:
        raise BadInput("neither module:Class nor a profile's model on an instance (`instance`)", "model", service.model)
    functions = options.client()
    function_s = NEVER_S
    if functions is not None:
        function_s = _function_s(options, service, {n: p.latency_s(1) for n, p in of_model.items()})
    return server_process.Serving(
        name=service.name,
        versions=versions,
        search=search,
        rt_max_s=service.slo.rt_max_s,
        candidate=found,
        workers=options.workers or (found.workers if found is not None else 1),
        threads=options.threads,
        most_batch=options.max_batch,
        functions=functions,
        function_s=function_s,
        hang_s=options.hang_s,
        worker_memory_bytes=options.worker_memory_mib * 2.0**20,
        drain_s=options.drain_s,
        linger_s=options.linger_s,
        loader=f"mark.serving.worker.loaders:{'load_paced' if options.pace else 'load'}",
    )


def _paced(reference: str, model: str, instance: str, profile: str | None, search: Path) -> str:
    """The reference to the same model at the pace that the profile has for the service's model on the instance."""
    query = {"model": reference, "profiled": model, "instance": instance, "search": str(search)}
    if profile is not None:
        query["profile"] = str(Path(profile).resolve())
    return f"mark.profiling.replay:Paced?{urlencode(query)}"


def _candidate(
    service: ServiceConfig, of_model: Mapping[str, Profile], asked: str | None
) -> tuple[Candidate | None, str]:
    """What the profile says of this machine and the type it is; None: no profile, service times will be learned."""
    found = {name: profile for name, profile in of_model.items() if not name.startswith("lambda:")}
    if asked is not None and asked not in found:
        raise BadInput(f"no profile of {service.model} on it, only on {', '.join(found) or 'none'}", "instance", asked)
    if asked is None and len(found) != 1:
        if found and ":" not in service.model:
            raise BadInput(f"must be named, one of {', '.join(found)}", "instance")
        return None, ""
    instance = asked if asked is not None else next(iter(found))
    made = candidate(found[instance], service.slo, service.batching)
    if isinstance(made, str):
        raise BadInput(made, f"{service.model} on {instance}")
    return made, instance


def _function_s(options: ServerOptions, service: ServiceConfig, measured_s: Mapping[str, float]) -> float:
    if options.function_ms is not None:
        return options.function_ms / 1e3
    if service.function is not None and service.function in measured_s:
        return measured_s[service.function]
    raise BadInput("must be said: there is no profile of the model on a function", "function_ms")
