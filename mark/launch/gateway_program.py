"""Run a gateway from options: replicas, policy, overflow, address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput
from mark.domain.rules.admission import NEVER_S
from mark.launch.listening import ListenOptions, OverflowOptions, key_from, trusting
from mark.serving import server_process
from mark.serving.gateway.forwarding import Forwarding
from mark.serving.gateway.gateway import ALB, LEAST_COMPLETION, GatewayPolicy
from mark.serving.gateway.listener import GatewayListener, serve_gateway
from mark.serving.gateway.overflow import ByFunctions
from mark.serving.observe import logs
from mark.serving.overflow.http_client import Reach

_LONGEST_BACKOFF_S = 30.0  # unless `backoff_s` is longer


@dataclass(frozen=True, kw_only=True)
class GatewayOptions(ListenOptions, OverflowOptions):
    """The options of `mark gateway`; docs/cli.md explains them. `replicas` holds URLs with their weights.

    `function_model` is the function's model, as clients name it; for a stage of a pipeline, give `function_stage`
    instead, as the conductor names it. Answers after `slo_ms` count as late. `profile` is a profile of AWS's
    configuration.
    """

    replicas: Sequence[tuple[str, float]] = ()
    replica_key: Path | None = None
    replica_ca: Path | None = None
    replicas_in_clear: bool = False
    timeout_s: float = 30.0
    hedge_after_ms: float | None = None
    routing: str = LEAST_COMPLETION
    most_in_flight: int = 10_000
    eject_after: int = 3
    backoff_s: float = 1.0
    probe_s: float = 1.0
    function_model: str | None = None
    function_stage: str | None = None
    profile: str | None = None
    slo_ms: float | None = None
    drain_s: float = 30.0
    linger_s: float = 0.0
    log_requests: bool = False


def run_gateway(options: GatewayOptions) -> None:
    """Forward until SIGTERM or SIGINT, then drain. Raises BadInput for options that cannot be used."""
    tls, auth = options.access()
    if options.routing == ALB and options.hedge_after_ms is not None:
        raise BadInput("a balancer of this kind sends no second copies", "hedge_after_ms", options.hedge_after_ms)
    weights: dict[str, float] = {}
    for url, weight in options.replicas:
        if url in weights:
            raise BadInput("a replica twice", "replicas", url)
        weights[url] = weight
    forwarding = Forwarding(
        policy=GatewayPolicy(
            most_in_flight=options.most_in_flight,
            eject_after=options.eject_after,
            backoff_s=options.backoff_s,
            longest_backoff_s=max(_LONGEST_BACKOFF_S, options.backoff_s),
            probe_s=options.probe_s,
            hedge_after_s=options.hedge_after_ms / 1e3 if options.hedge_after_ms is not None else NEVER_S,
            routing=options.routing,
        ),
        reach=Reach(tls=trusting(options.replica_ca) if options.replica_ca is not None else None),
        replica_key=key_from(options.replica_key) if options.replica_key is not None else None,
        in_clear=options.replicas_in_clear,
        keep_credentials=auth is None,
        timeout_s=options.timeout_s,
        drain_s=options.drain_s,
        linger_s=options.linger_s,
        log_requests=options.log_requests,
        by_functions=_by_functions(options),
    )
    logs.to_stderr()

    def started(port: int) -> None:
        logs.say(f"the gateway is ready on {options.ready(port)}")

    listener = GatewayListener(host=options.host, port=options.port, tls=tls, auth=auth, keys=options.key_poll(auth))
    server_process.run(lambda: serve_gateway(forwarding, listener, weights, started))


def _by_functions(options: GatewayOptions) -> ByFunctions | None:
    functions = options.client(options.profile)
    if functions is None:
        for field in ("function_model", "function_stage", "slo_ms"):
            if (value := getattr(options, field)) is not None:
                raise BadInput("is for a `function`", field, value)
        return None
    model, stage = options.function_model, options.function_stage
    if model is not None and stage is not None:
        raise BadInput("is said instead of `function_model`", "function_stage", stage)
    name = model or stage
    if name is None:
        raise BadInput("must be said with `function`", "function_model")
    if options.slo_ms is None:
        raise BadInput("must be said with `function`", "slo_ms")
    return ByFunctions(functions, name, options.slo_ms / 1e3, stage=stage is not None)
