"""mark insure: which protection against slow instances pays; `mark insure train` trains parity models."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from mark.cli.arguments import Listed, add_json, plotted_file
from mark.cli.executors import add_executor, executor_from
from mark.cli.numbers import above_zero, seconds, seed, span, whole
from mark.cli.output import deliver, progress, show_counting
from mark.cli.reading import add_reading, reading
from mark.domain.errors import BadInput
from mark.insurance.insurance_settings import CODES, LEAST_K, MOST_K, MOST_R
from mark.models.parity_training import EPOCHS, codes_for, read_data, train_parity, write_parity
from mark.simulation.request import RunRequest
from mark.studies.insure import insure
from mark.studies.report.insure_report import insure_report, training_report

# The options of only one of the two uses, with their defaults.
_OF_TRAIN = {"data": None, "k": None, "r": 1, "codes": None, "epochs": EPOCHS, "out": None}
_OF_RUN = {
    **dict.fromkeys(("service", "instance", "faults", "catalog", "profile", "tail", "duration", "report")),
    "scale": 1.0,
    "start": 0.0,
}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate fixed fleets whose instances are slow now and then, and print the smallest one that keeps the "
        "promise with each protection: more instances, second copies of late requests (hedging), parity models that "
        "reconstruct late answers, and a second copy of every request. `mark insure train MODEL` trains the parity "
        "models of a network and writes them into a folder for [insurance] parity."
    )
    parser.add_argument(
        "trace", metavar="TRACE|train", help="file, folder or synthetic:NAME?key=value; or the word train"
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="train: torch:FILE or FILE, an exported program")
    what = parser.add_argument_group("the service")
    what.add_argument("--service", metavar="NAME|FILE", help="shipped service or .toml file")
    what.add_argument("--instance", metavar="TYPE", help="instance type (default: the one with the cheapest fleet)")
    what.add_argument(
        "--faults",
        metavar="FILE",
        help="how instances slow down and hang: [faults] instead of the service's, or saved /metrics of its instances",
    )
    what.add_argument("--catalog", metavar="NAME|FILE", help="prices: aws-2019, aws-2026 or a .csv file")
    what.add_argument("--profile", metavar="FILE", help="latency by batch size, a .csv file")
    what.add_argument(
        "--tail",
        type=above_zero,
        metavar="X",
        help="p99 over mean for profile rows without p99_ms (default: as the service says)",
    )
    part = parser.add_argument_group("which traffic")
    part.add_argument("--scale", type=above_zero, default=1.0, metavar="X", help="multiply the arrivals (default: 1)")
    part.add_argument(
        "--start", type=seconds, default=0.0, metavar="S", help="from the first row: 90 (seconds), 2h, 7d"
    )
    part.add_argument("--duration", type=span, metavar="S", help="how much to simulate (default: to the end)")
    add_reading(part)
    part.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    train = parser.add_argument_group("of train")
    train.add_argument("--data", metavar="FILE.npz", help="arrays x, an item a row, and y, their classes if known")
    train.add_argument(
        "--k", action=Listed, each=whole(LEAST_K, MOST_K), metavar="A,B", help="queries of a group (default: 2)"
    )
    train.add_argument(
        "--r", type=whole(1, MOST_R), default=1, metavar="N", help="parity models of a code (default: 1)"
    )
    train.add_argument(
        "--codes", action=Listed, metavar="A,B", help=f"of {', '.join(CODES)} (default: both for images, else sum)"
    )
    train.add_argument(
        "--epochs", type=whole(1, 10_000), default=EPOCHS, metavar="N", help=f"of the training (default: {EPOCHS})"
    )
    train.add_argument("--out", type=Path, metavar="DIR", help="folder for the parity models and parity.json")
    result = parser.add_argument_group("output")
    add_json(result)
    result.add_argument("--report", type=plotted_file, metavar="FILE.html", help="a page with the table and a plot")
    add_executor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.trace == "train":
        return _train(args)
    if args.model is not None:
        raise BadInput("is one word too many: mark insure TRACE, or mark insure train MODEL", "mark insure", args.model)
    _refuse(args, _OF_TRAIN, "is an option of mark insure train")
    if args.service is None:
        raise BadInput("names the service whose instances are to be protected", "--service", "nothing")
    show_counting()
    executor = executor_from(args)
    with progress("simulating") as bar:
        request = RunRequest(
            trace=args.trace,
            service=args.service,
            catalog=args.catalog,
            profile=args.profile,
            tail=args.tail,
            faults=args.faults,
            scale=args.scale,
            start_s=args.start,
            duration_s=args.duration,
            seed=args.seed,
            with_bound=False,
            **reading(args),
            progress=bar,
        )
        found = insure(request, args.instance, executor=executor)
    deliver(insure_report(found), args.json, args.report)
    return 0


def _train(args: argparse.Namespace) -> int:
    """Train parity models, write the best and print all."""
    _refuse(args, _OF_RUN, "is no option of mark insure train")
    for option in ("model", "data", "out"):
        if getattr(args, option) is None:
            raise BadInput("is missing: mark insure train MODEL --data FILE.npz --out DIR", option.upper(), "nothing")
    model = Path(args.model.removeprefix("torch:"))
    if not model.is_file():
        raise BadInput("no such file: give the network as torch.export.save writes it", "MODEL", args.model)
    data = read_data(args.data)
    codes = codes_for(args.codes, tuple(dict.fromkeys(args.k or (LEAST_K,))), args.r, data.items.shape[1:])
    with progress("training") as bar:
        found = train_parity(model, data, codes, seed=args.seed, epochs=args.epochs, progress=bar)
    written = write_parity(found, model, data, args.out)
    deliver(training_report(found, written, str(args.out)), args.json)
    return 0


def _refuse(args: argparse.Namespace, options: Mapping[str, object], why: str) -> None:
    """Raise BadInput if one of the options was given another value than its default."""
    for option, default in options.items():
        value = getattr(args, option)
        if value != default:
            said = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            raise BadInput(why, f"--{option}", said)
