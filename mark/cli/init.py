"""mark init: a commented service file to begin with."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from mark.cli.arguments import writable
from mark.cli.numbers import above_zero
from mark.cli.output import write_file
from mark.cli.reading import add_reading, as_options, reading
from mark.config.new_service import new_service, new_service_of
from mark.domain.errors import BadInput, MarkError
from mark.models.registry_place import PREFIX, registered_profile
from mark.profiling.table import load_profiles
from mark.studies.report.check import check_file
from mark.traffic.traces.reader import open_trace


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a commented service file to edit: of a shipped service, or of your own model that was measured with "
        "`mark profile`. Nothing is ever overwritten."
    )
    parser.add_argument("name", nargs="?", default="my-service", metavar="NAME", help="default: my-service")
    trace = parser.add_mutually_exclusive_group()
    trace.add_argument(
        "trace",
        nargs="?",
        metavar="TRACE",
        help="your traffic: init checks that it can be read and prints the next command",
    )
    trace.add_argument("--trace", dest="trace_option", metavar="TRACE", help="the same, as an option")
    own = parser.add_argument_group("your own model")
    own.add_argument("--profile", metavar="FILE.csv", help="the file that `mark profile --out` wrote")
    own.add_argument(
        "--model",
        metavar="MODEL",
        help="which of the profile's models: module:Class, onnx:FILE, a name; or "
        "registry:NAME@ALIAS, with the profile that it was registered with",
    )
    own.add_argument("--slo-ms", type=above_zero, metavar="MS", help="your promise: an answer within this time")
    add_reading(parser.add_argument_group("how the traffic is read"))
    parser.add_argument("--out", metavar="FILE", help="default: NAME.toml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    args.trace = args.trace or args.trace_option
    path = writable(args.out or f"{args.name}.toml", "--out")
    if Path(path).exists():
        raise BadInput("exists already and is left alone", "--out", path)
    text = _text(args, Path(path).parent)
    traffic = None if args.trace is None else open_trace(args.trace, **reading(args))
    if traffic is not None:
        print(traffic.read or traffic.summary)
        for note in traffic.more_notes:
            print(f"  {note}")
    write_file(path, text, "--out")
    try:
        print(f"{path}: {check_file(path)}")
    except MarkError:
        Path(path).unlink()  # otherwise the corrected command would find it and refuse
        raise
    again = shlex.join([args.trace, *as_options(args)]) if traffic is not None else "TRACE"
    print(f"next: read {path}, then: mark compare {again} --service {shlex.quote(path)} --report report.html")
    return 0


def _text(args: argparse.Namespace, folder: Path) -> str:
    if args.model is not None and args.model.startswith(PREFIX):
        if args.profile is not None:
            raise BadInput("a model of a registry has its own profile", "--profile", args.profile)
        file, model = registered_profile(args.model, folder)
        return new_service_of(args.name, load_profiles(str(file)), str(file), _promise(args), model, args.model)
    if args.profile is None:
        if args.model is not None:
            how = f"mark profile {args.model} --instance TYPE --out profile.csv"
            how = f"--model {PREFIX}{args.model}" if "@" in args.model else how
            raise BadInput(
                f"needs a profile, measured on the instances that you would rent: {how}", "--model", args.model
            )
        return new_service(args.name, args.slo_ms)
    profiles = load_profiles(args.profile)
    return new_service_of(args.name, profiles, os.path.relpath(args.profile, folder), _promise(args), args.model)


def _promise(args: argparse.Namespace) -> float:
    if args.slo_ms is None:
        raise BadInput("is needed for a model of your own: the time within which you promise an answer", "slo_ms")
    return float(args.slo_ms)
