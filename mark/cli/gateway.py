"""mark gateway: one address before several bouncers."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.arguments import Listed, from_args
from mark.cli.function_options import add_functions
from mark.cli.listener import add_access, add_address, add_stopping
from mark.cli.numbers import above_zero, whole
from mark.launch.gateway_program import GatewayOptions, run_gateway
from mark.serving.gateway.gateway import LEAST_COMPLETION, ROUTINGS


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Pass requests on to the replica that is expected to answer first. Replicas that fail are left out "
        "until they are ready again; their requests go to another one. Replicas and weights may be changed while it "
        "runs: PUT /admin/replicas. Ends on SIGTERM, when all that was accepted is answered."
    )
    add_address(parser)
    to = parser.add_argument_group("replicas")
    to.add_argument(
        "--replica",
        dest="replicas",
        action=Listed,
        each=_replica,
        default=(),
        metavar="URL[=WEIGHT]",
        help="http://host:port, weight 1 unless said; may be repeated",
    )
    to.add_argument("--replica-key", type=Path, metavar="FILE", help="holds the key that the replicas ask for")
    to.add_argument("--replica-ca", type=Path, metavar="FILE", help="the authority that signed their certificates, PEM")
    to.add_argument("--replicas-in-clear", action="store_true", help="http to other machines: the network is private")
    how = parser.add_argument_group("passing on")
    how.add_argument(
        "--timeout-s", type=above_zero, default=30.0, metavar="S", help="a replica has to answer (default: 30)"
    )
    how.add_argument(
        "--hedge-after-ms", type=above_zero, metavar="MS", help="then a second copy to another one (default: never)"
    )
    how.add_argument(
        "--routing",
        choices=ROUTINGS,
        default=LEAST_COMPLETION,
        help="alb: by counts of requests alone, as an AWS Application Load Balancer (default: least-completion)",
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
    over = parser.add_argument_group("overflow, for requests that no replica can take")
    add_functions(over)
    over.add_argument("--profile", metavar="NAME", help="of AWS's configuration, for Lambda (default: $AWS_PROFILE)")
    over.add_argument(
        "--model", dest="function_model", metavar="NAME", help="the model that the function has, as clients name it"
    )
    over.add_argument(
        "--stage",
        dest="function_stage",
        metavar="NAME",
        help="instead of --model: the stage of a pipeline that the function has, as its conductor names it",
    )
    over.add_argument(
        "--slo-ms", type=above_zero, metavar="MS", help="the promise to clients: later answers count as late"
    )
    add_access(parser)
    add_stopping(parser, "for requests under way", "forwarding")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    run_gateway(from_args(GatewayOptions, args))
    return 0


def _replica(text: str) -> tuple[str, float]:
    url, equals, weight = text.partition("=")
    try:
        return url, float(weight) if equals else 1.0
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be URL or URL=WEIGHT, not {text!r}") from None
