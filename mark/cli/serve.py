"""mark serve: a bouncer with its workers on this machine."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from mark.cli.doors import add_address, add_door, door_from
from mark.cli.functions import add_functions, functions_from
from mark.cli.numbers import above_zero, count, port, seconds
from mark.cli.options import Commands
from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from mark.domain.profile import Candidate, Profile
    from mark.domain.service import ServiceConfig
    from mark.serving.server_process import Serving


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="a bouncer with its workers on this machine",
        description="Serve a model on this machine within its latency promise: admit what can be answered in time, "
        "batch it, send the rest to functions. Speaks the Open Inference Protocol v2 and SageMaker's /invocations. "
        "Ends on SIGTERM, when all that was accepted is answered.",
        allow_abbrev=False,
    )
    parser.add_argument("service", metavar="SERVICE", help="service file, or a shipped name")
    add_address(parser)
    parser.add_argument("--grpc-port", type=port, metavar="P", help="the protocol by gRPC as well")
    what = parser.add_argument_group("the model")
    what.add_argument("--workers", type=count, metavar="N", help="processes (default: the profile's, else 1)")
    what.add_argument("--threads", type=count, metavar="N", help="threads of numerical libraries in each")
    what.add_argument(
        "--max-batch", type=count, default=64, metavar="N", help="without a profile, which says it (default: 64)"
    )
    what.add_argument(
        "--hang-s",
        type=above_zero,
        default=60.0,
        metavar="S",
        help="a worker whose batch takes longer is replaced (default: 60)",
    )
    what.add_argument(
        "--worker-memory-mib",
        type=above_zero,
        default=math.inf,
        metavar="MIB",
        help="a worker that has more is replaced, without a pause (default: never)",
    )
    what.add_argument("--profile", metavar="FILE", help="latency by batch size, a .csv file")
    what.add_argument("--instance", metavar="TYPE", help="whose profile holds here (default: the only one there is)")
    what.add_argument(
        "--pace", action="store_true", help="answer as slowly as --instance: this machine stands in for one"
    )
    over = parser.add_argument_group("overflow")
    add_functions(over)
    over.add_argument("--function-ms", type=above_zero, metavar="MS", help="what it takes when warm")
    add_door(parser)
    end = parser.add_argument_group("stopping, and what is told")
    end.add_argument("--drain-s", type=above_zero, default=30.0, metavar="S", help="to finish the queue (default: 30)")
    end.add_argument(
        "--linger-s",
        type=seconds,
        default=0.0,
        metavar="S",
        help="before that: not ready, still serving (default: 0)",
    )
    end.add_argument("--watch-interruptions", action="store_true", help="ask EC2's metadata service for notices")
    end.add_argument("--log-requests", action="store_true", help="one line of JSON for each answer, on stderr")
    end.add_argument("--trace-requests", action="store_true", help="OpenTelemetry spans, exported as OTEL_* says")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mark.config.service_file import load_service
    from mark.serving import interruption_watch as notice
    from mark.serving.observe import logs
    from mark.serving.server_process import ListenerConfig, run, serve

    service = load_service(args.service)
    tls, auth = door_from(args)
    logs.to_stderr()
    serving = _serving(args, service)
    listener = ListenerConfig(
        host=args.host,
        port=args.port,
        grpc_port=args.grpc_port,
        tls=tls,
        auth=auth,
        watch=notice.here() if args.watch_interruptions else None,
        log_requests=args.log_requests,
        trace_requests=args.trace_requests,
    )
    scheme = "http" if tls is None else "https"

    def started(port: int) -> None:
        logs.say(f"{service.name} is ready on {scheme}://{args.host}:{port}")

    run(lambda: serve(serving, listener, started))
    return 0


def _serving(args: argparse.Namespace, service: ServiceConfig) -> Serving:
    from mark.models.versions import Versions
    from mark.profiling.table import load_profiles
    from mark.rules.admission import NEVER_S
    from mark.serving.server_process import Serving

    file = args.profile or service.profile_file
    of_model = load_profiles(file).get(service.model, {})
    candidate, instance = _candidate(service, of_model, args.instance)
    search = Path(service.source).resolve().parent
    if args.pace and candidate is None:
        raise BadInput("needs a profile of the model on an instance (--instance)", "--pace")

    def code(reference: str) -> str:
        return _paced(reference, service.model, instance, file, search) if args.pace else reference

    if service.versions:
        versions = Versions({v.name: (code(v.model), v.weight) for v in service.versions})
    elif ":" in service.model:
        versions = Versions({"1": (code(service.model), 1.0)})
    elif candidate is not None:
        # Nothing to load: what a profile says of a model can still be tried out.
        where = f"&profile={Path(file).resolve()}" if file else ""
        versions = Versions(
            {"1": (f"mark.profiling.replay:Replay?model={service.model}&instance={instance}{where}", 1.0)}
        )
        print(f"mark: {service.name} has no code: it answers as slowly as on {instance}", file=sys.stderr)
    else:
        raise BadInput("neither module:Class nor a profile's model on an instance (--instance)", "model", service.model)
    functions = functions_from(args)
    function_s = NEVER_S
    if functions is not None:
        function_s = _function_s(args, service, {n: p.latency_s(1) for n, p in of_model.items()})
    return Serving(
        name=service.name,
        versions=versions,
        search=search,
        rt_max_s=service.slo.rt_max_s,
        candidate=candidate,
        workers=args.workers or (candidate.workers if candidate is not None else 1),
        threads=args.threads,
        most_batch=args.max_batch,
        functions=functions,
        function_s=function_s,
        hang_s=args.hang_s,
        worker_memory_bytes=args.worker_memory_mib * 2.0**20,
        drain_s=args.drain_s,
        linger_s=args.linger_s,
        loader=f"mark.serving.worker.loaders:{'load_paced' if args.pace else 'load'}",
    )


def _paced(reference: str, model: str, instance: str, profile: str | None, search: Path) -> str:
    """The reference to the same model at the pace that the profile has for the service's model on the instance."""
    options = {"model": reference, "profiled": model, "instance": instance, "search": str(search)}
    if profile is not None:
        options["profile"] = str(Path(profile).resolve())
    return f"mark.profiling.replay:Paced?{urlencode(options)}"


def _candidate(
    service: ServiceConfig, of_model: Mapping[str, Profile], asked: str | None
) -> tuple[Candidate | None, str]:
    """What the profile says of this machine; None: there is no profile, service times will be learned."""
    from mark.profiling.policy import candidate

    found = {name: profile for name, profile in of_model.items() if not name.startswith("lambda:")}
    if asked is not None and asked not in found:
        raise BadInput(
            f"no profile of {service.model} on it, only on {', '.join(found) or 'none'}", "--instance", asked
        )
    if asked is None and len(found) != 1:
        if found and ":" not in service.model:
            raise BadInput(f"must be named, one of {', '.join(found)}", "--instance")
        return None, ""
    instance = asked if asked is not None else next(iter(found))
    made = candidate(found[instance], service.slo, service.batching)
    if isinstance(made, str):
        raise BadInput(made, f"{service.model} on {instance}")
    return made, instance


def _function_s(args: argparse.Namespace, service: ServiceConfig, measured_s: dict[str, float]) -> float:
    if args.function_ms is not None:
        return float(args.function_ms) / 1e3
    if service.function is not None and service.function in measured_s:
        return measured_s[service.function]
    raise BadInput("must be said: there is no profile of the model on a function", "--function-ms")
