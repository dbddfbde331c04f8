"""mark serve: a bouncer with its workers on this machine."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

from mark.cli.arguments import Listed, from_args
from mark.cli.function_options import add_functions
from mark.cli.listener import add_access, add_address, add_stopping
from mark.cli.numbers import above_zero, count, port
from mark.config.pipeline_file import names_pipeline
from mark.launch.pipeline_server import run_pipeline_server
from mark.launch.server import ServerOptions, run_server


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve a model, or a pipeline, on this machine within its latency promise: admit what can be answered "
        "in time, batch it, send the rest to functions. Speaks the Open Inference Protocol v2 and SageMaker's "
        "/invocations. "
        "Ends on SIGTERM, when all that was accepted is answered."
    )
    parser.add_argument("service", metavar="SERVICE", help="service or pipeline file, or a shipped name")
    add_address(parser)
    parser.add_argument("--grpc-port", type=port, metavar="P", help="the protocol by gRPC as well")
    _add_model(parser.add_argument_group("the model"))
    _add_stages(parser.add_argument_group("stages of a pipeline, on several machines"))
    _add_overflow(parser.add_argument_group("overflow"))
    add_access(parser)
    end = add_stopping(parser, "to finish the queue", "serving")
    end.add_argument("--watch-interruptions", action="store_true", help="ask EC2's metadata service for notices")
    end.add_argument("--trace-requests", action="store_true", help="OpenTelemetry spans, exported as OTEL_* says")
    parser.set_defaults(run=run)


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers", type=count, metavar="N", help="processes for a model (default: the profile's, else 1)"
    )
    group.add_argument("--threads", type=count, metavar="N", help="threads of numerical libraries in each")
    group.add_argument(
        "--max-batch", type=count, default=64, metavar="N", help="without a profile, which says it (default: 64)"
    )
    group.add_argument(
        "--hang-s",
        type=above_zero,
        default=60.0,
        metavar="S",
        help="a worker whose batch takes longer is replaced (default: 60)",
    )
    group.add_argument(
        "--worker-memory-mib",
        type=above_zero,
        default=math.inf,
        metavar="MIB",
        help="a worker that has more is replaced, without a pause (default: never)",
    )
    group.add_argument(
        "--worker-socket",
        type=Path,
        metavar="FILE",
        help="have workers started by the process that listens there, as another user (default: by this process)",
    )
    group.add_argument("--profile", metavar="FILE", help="latency by batch size, a .csv file")
    group.add_argument("--instance", metavar="TYPE", help="whose profile holds here (default: the only one there is)")
    group.add_argument(
        "--pace", action="store_true", help="answer as slowly as --instance: this machine stands in for one"
    )
    group.add_argument(
        "--faults",
        metavar="FILE",
        help="with --pace: it is slow and hangs now and then as its [faults] says, instead of the service's",
    )
    group.add_argument(
        "--to-measure", action="store_true", help="for `mark profile --on`: needs no profile, refuses nothing as late"
    )


def _add_stages(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--stage",
        dest="stages_here",
        action=Listed,
        default=(),
        metavar="NAME",
        help="serve only this stage, as a model of its own; may be repeated (default: all, behind one endpoint)",
    )
    group.add_argument(
        "--stage-at",
        dest="stages_at",
        action=Listed,
        each=partial(_of_stage, form="NAME=URL"),
        default=(),
        metavar="NAME=URL",
        help="this stage is served at http://host:port, also of a gateway; may be repeated (default: here)",
    )
    group.add_argument(
        "--peer",
        dest="peers",
        action=Listed,
        default=(),
        metavar="URL",
        help="another server of the same model, which learns from the same feedback; may be repeated",
    )
    group.add_argument(
        "--stage-key", type=Path, metavar="FILE", help="holds the key that these stages and peers ask for"
    )
    group.add_argument(
        "--stage-ca", type=Path, metavar="FILE", help="the authority that signed their certificates, PEM"
    )
    group.add_argument("--stages-in-clear", action="store_true", help="http to other machines: the network is private")
    group.add_argument(
        "--feedback-store",
        metavar="PLACE",
        help="a folder or s3://BUCKET/PREFIX for learned facts, instead of [feedback] store",
    )


def _add_overflow(group: argparse._ArgumentGroup) -> None:
    add_functions(group)
    group.add_argument("--function-ms", type=above_zero, metavar="MS", help="its mean time when warm")
    group.add_argument(
        "--function-timeout-s",
        type=above_zero,
        metavar="S",
        help="a call that takes longer has failed (default: four times RT_max or a warm call, and two cold starts)",
    )
    group.add_argument(
        "--stage-function",
        dest="stage_functions",
        action=Listed,
        each=partial(_of_stage, form="NAME=NAME or NAME=URL"),
        default=(),
        metavar="NAME=NAME|URL",
        help="of a pipeline: this stage has that function; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    options = from_args(ServerOptions, args)
    if names_pipeline(options.service):
        run_pipeline_server(options)
    else:
        run_server(options)
    return 0


def _of_stage(text: str, form: str) -> tuple[str, str]:
    name, equals, said = text.partition("=")
    if not name or not equals or not said:
        raise argparse.ArgumentTypeError(f"must be {form}, not {text!r}")
    return name, said
