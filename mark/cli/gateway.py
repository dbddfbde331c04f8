"""mark gateway: one address before several bouncers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mark.cli.doors import add_address, add_door, door_from, key_from
from mark.cli.functions import add_functions, functions_from
from mark.cli.numbers import above_zero, seconds, whole
from mark.cli.options import Commands
from mark.domain.errors import BadInput

if TYPE_CHECKING:
    import ssl

    from mark.serving.gateway.overflow import ByFunctions


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "gateway",
        help="one address before several bouncers, where there is no load balancer",
        description="Pass requests on to the replica that is expected to answer first. Replicas that fail are left out "
        "until they are ready again; what they had goes to another one. Replicas and weights may be changed while it "
        "runs: PUT /admin/replicas. Ends on SIGTERM, when all that was accepted is answered.",
        allow_abbrev=False,
    )
    add_address(parser)
    to = parser.add_argument_group("replicas")
    to.add_argument(
        "--replica",
        type=_replica,
        action="append",
        default=[],
        metavar="URL[=WEIGHT]",
        help="http://host:port, weight 1 unless said; may be repeated",
    )
    to.add_argument("--replica-key", type=Path, metavar="FILE", help="holds the key that the replicas ask for")
    to.add_argument("--replica-ca", type=Path, metavar="FILE", help="who signed their certificates, PEM")
    to.add_argument("--replicas-in-clear", action="store_true", help="http to other machines: the network is private")
    how = parser.add_argument_group("passing on")
    how.add_argument(
        "--timeout-s", type=above_zero, default=30.0, metavar="S", help="a replica has to answer (default: 30)"
    )
    how.add_argument(
        "--hedge-after-ms", type=above_zero, metavar="MS", help="then a second copy to another one (default: never)"
    )
    how.add_argument(
        "--most-in-flight",
        type=whole(1, 1_000_000),
        default=10_000,
        metavar="N",
        help="requests; more get 503 (default: 10000)",
    )
    how.add_argument(
        "--eject-after",
        type=whole(1, 1_000_000),
        default=3,
        metavar="N",
        help="failures in a row of a replica (default: 3)",
    )
    how.add_argument(
        "--backoff-s", type=above_zero, default=1.0, metavar="S", help="out for so long, at first (default: 1)"
    )
    how.add_argument(
        "--probe-s", type=above_zero, default=1.0, metavar="S", help="between questions for readiness (default: 1)"
    )
    over = parser.add_argument_group("overflow, for what no replica can take")
    add_functions(over)
    over.add_argument("--model", metavar="NAME", help="the model that the function has, as clients name it")
    over.add_argument(
        "--slo-ms", type=above_zero, metavar="MS", help="what clients are promised: later answers are counted as late"
    )
    add_door(parser)
    end = parser.add_argument_group("stopping, and what is told")
    end.add_argument("--drain-s", type=above_zero, default=30.0, metavar="S", help="for what is owed (default: 30)")
    end.add_argument(
        "--linger-s",
        type=seconds,
        default=0.0,
        metavar="S",
        help="before that: not ready, still forwarding (default: 0)",
    )
    end.add_argument("--log-requests", action="store_true", help="one line of JSON for each answer, on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mark.rules.admission import NEVER_S
    from mark.serving.gateway.forwarding import Forwarding
    from mark.serving.gateway.gateway import GatewayPolicy
    from mark.serving.gateway.listener import GatewayListener, serve_gateway
    from mark.serving.observe import logs
    from mark.serving.overflow.http_client import Reach
    from mark.serving.server_process import run

    tls, auth = door_from(args)
    weights: dict[str, float] = {}
    for url, weight in args.replica:
        if url in weights:
            raise BadInput("a replica twice", "--replica", url)
        weights[url] = weight
    forwarding = Forwarding(
        policy=GatewayPolicy(
            most_in_flight=args.most_in_flight,
            eject_after=args.eject_after,
            backoff_s=args.backoff_s,
            longest_backoff_s=max(30.0, args.backoff_s),
            probe_s=args.probe_s,
            hedge_after_s=args.hedge_after_ms / 1e3 if args.hedge_after_ms is not None else NEVER_S,
        ),
        reach=Reach(tls=_trusting(args.replica_ca) if args.replica_ca is not None else None),
        replica_key=key_from(args.replica_key) if args.replica_key is not None else None,
        in_clear=args.replicas_in_clear,
        keep_credentials=auth is None,
        timeout_s=args.timeout_s,
        drain_s=args.drain_s,
        linger_s=args.linger_s,
        log_requests=args.log_requests,
        by_functions=_by_functions(args),
    )
    logs.to_stderr()
    scheme = "http" if tls is None else "https"

    def started(port: int) -> None:
        logs.say(f"the gateway is ready on {scheme}://{args.host}:{port}")

    door = GatewayListener(host=args.host, port=args.port, tls=tls, auth=auth)
    run(lambda: serve_gateway(forwarding, door, weights, started))
    return 0


def _by_functions(args: argparse.Namespace) -> ByFunctions | None:
    from mark.serving.gateway.overflow import ByFunctions

    functions = functions_from(args)
    of = {"--model": args.model, "--slo-ms": args.slo_ms}
    for option, value in of.items():
        if functions is not None and value is None:
            raise BadInput("must be said with --function", option)
        if functions is None and value is not None:
            raise BadInput("is for a --function", option, value)
    return None if functions is None else ByFunctions(functions, args.model, args.slo_ms / 1e3)


def _replica(text: str) -> tuple[str, float]:
    url, equals, weight = text.partition("=")
    try:
        return url, float(weight) if equals else 1.0
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be URL or URL=WEIGHT, not {text!r}") from None


def _trusting(path: Path) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or "not PEM"
        raise BadInput(f"no certificates of an authority ({why})", str(path)) from None
