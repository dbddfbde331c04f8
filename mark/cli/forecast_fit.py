"""mark forecast fit: train a predictor once and save its state."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from mark.cli.arguments import Commands, out_file
from mark.cli.numbers import seconds, seed
from mark.cli.output import progress
from mark.cli.reading import add_reading, reading
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.traffic.forecast.predictor import Savable, State, Trainable
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.saved import Saved, fingerprint, load, save
from mark.traffic.traces.reader import open_trace

_FIT = """\
Train a predictor on a trace and write it to a file, which --predictor takes like a name. It learns
from [start - train, start): the same history as with these options of `mark simulate`. Without --start that is the
first --train seconds, and without either the whole trace. Predictors that learn in epochs write FILE.checkpoint after
each; the same command, given again after an interruption, goes on from there and ends as if nothing had happened.
"""


def add_fit(actions: Commands[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "fit", help="train a predictor and save it to a file", description=_FIT, allow_abbrev=False
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    parser.add_argument("--predictor", required=True, metavar="NAME", help="the predictor: lstm, lstm-quantile, ...")
    parser.add_argument("--out", required=True, type=out_file, metavar="FILE", help="where it is saved")
    parser.add_argument("--start", type=seconds, metavar="S", help="seconds from the first row, where the history ends")
    parser.add_argument("--train", type=seconds, metavar="S", help="seconds of history (default: all)")
    add_reading(parser)
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of everything drawn (default: 0)")
    parser.set_defaults(run=fit)


def fit(args: argparse.Namespace) -> int:
    predictor = make_predictor(args.predictor, args.seed)
    trainable = predictor if isinstance(predictor, Trainable) else None
    if not isinstance(predictor, Savable):
        raise BadInput("learns nothing that could be saved", "--predictor", args.predictor)
    history, read = _history(args)
    learned_from = fingerprint(history, args.seed)

    def saved(state: State, kind: str = "predictor") -> Saved:
        return Saved(predictor.name, predictor.version, history.step_s, learned_from, kind, state)

    how = ""
    checkpoint_path = f"{args.out}.checkpoint"
    with progress(f"training {predictor.name}") as bar:
        if trainable is not None:
            checkpoint = _checkpoint(checkpoint_path, saved({}, "checkpoint"))
            try:
                for epoch in trainable.training(history, checkpoint):
                    save(checkpoint_path, saved(trainable.checkpoint(), "checkpoint"))
                    how = f": {epoch.number} epochs, validation loss {epoch.validation_loss:.4g} after the last"
                    if bar is not None:
                        bar(epoch.number / epoch.of)
            except KeyboardInterrupt:
                if Path(checkpoint_path).exists():
                    print(f"checkpoint: {checkpoint_path} (the same command goes on from it)", file=sys.stderr)
                raise
        else:
            predictor.fit(history)
    try:
        state = predictor.state()
    except ValueError as error:
        raise BadInput(f"learned nothing ({error})", f"predictor {predictor.name}", args.trace) from error
    save(args.out, saved(state))
    Path(checkpoint_path).unlink(missing_ok=True)
    if read:
        print(read)
    print(f"{predictor.name} learned from {len(history)} steps of {history.step_s:g} s{how}")
    print(f"out: {args.out}", file=sys.stderr)
    return 0


def _history(args: argparse.Namespace) -> tuple[Load, str]:
    """Return the load of [start - train, start), and a description of the trace that was read.

    Its steps are whole and end at `start`, as in a simulation that begins there.
    """
    end_s: float | None = args.train if args.start is None else args.start
    trace = open_trace(args.trace, duration_s=end_s, seed=args.seed, **reading(args))
    if end_s is None:
        end_s = trace.duration_s
    if end_s > trace.duration_s:
        option = "--train" if args.start is None else "--start"
        raise BadInput(f"beyond the end of {trace.name} at {trace.duration_s:g} s", option, end_s)
    steps = int(min(end_s, end_s if args.train is None else args.train) / trace.step_s + 1e-9)
    if steps == 0:
        raise BadInput(f"less than one step of {trace.step_s:g} s to learn from", trace.name, f"{end_s:g} s")
    return trace.load(end_s - steps * trace.step_s, end_s), trace.read


def _checkpoint(path: str, wanted: Saved) -> State | None:
    """Return the state of an interrupted training if it belongs to `wanted`; print the outcome."""
    if not Path(path).exists():
        return None
    try:
        found = load(path, "checkpoint")
    except BadInput as error:
        print(f"{error}; starting anew", file=sys.stderr)
        return None
    if replace(found, state={}) != wanted:
        print(f"checkpoint: {path} is of another training; starting anew", file=sys.stderr)
        return None
    print(f"checkpoint: going on from {path}", file=sys.stderr)
    return found.state
