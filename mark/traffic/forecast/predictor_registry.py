"""Predictors by name: ours, and the ones that packages register in the entry point group `mark.predictors`.

An entry point is a callable `factory(seed=...)` that returns a `Predictor`. A file that `mark forecast fit` wrote can
replace a name: it makes the predictor that is saved there.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from mark.config import plugins
from mark.domain.errors import BadInput
from mark.domain.extras import missing
from mark.traffic.forecast.artefact import Artefact
from mark.traffic.forecast.predictor import Predictor, Savable
from mark.traffic.forecast.saved import load

GROUP = "mark.predictors"


def predictor_names() -> tuple[str, ...]:
    """Return every name that `make_predictor` takes, sorted."""
    return tuple(sorted({Artefact.name, *plugins.names(GROUP)}))


def make_predictor(name: str, seed: int, step_s: float | None = None) -> Predictor:
    """Return a fresh predictor, or the trained one in the file `name`, which must fit steps of a given `step_s`.

    Raises BadInput for an unknown name (naming the known), for a predictor that does not load, and for a file that is
    damaged, of another version or trained on another step.
    """
    if name not in predictor_names() and (os.sep in name or PurePath(name).suffix or os.path.isfile(name)):
        return _from_file(name, seed, step_s)
    return _registered(name, seed)


def _registered(name: str, seed: int) -> Predictor:
    if name == Artefact.name:
        return Artefact(seed)
    if name not in plugins.names(GROUP):
        what = f"unknown (known: {', '.join(predictor_names())}, or a file that `mark forecast fit` wrote)"
        raise BadInput(what, "predictor", name, known=predictor_names())
    try:
        predictor: Predictor = plugins.load(GROUP, name, "predictor")(seed=seed)
    except (BadInput, ModuleNotFoundError) as error:
        absent = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        refusal = missing(absent, f"predictor {name}") if isinstance(absent, ModuleNotFoundError) else None
        if refusal is None:
            raise
        raise refusal from absent
    except TypeError as error:
        raise BadInput(f"does not load ({error})", f"predictor {name}") from error
    return predictor


def _from_file(path: str, seed: int, step_s: float | None) -> Predictor:
    saved = load(path)
    predictor = _registered(saved.predictor, seed)
    if not isinstance(predictor, Savable) or predictor.version != saved.version:
        now = f"version {predictor.version}" if isinstance(predictor, Savable) else "a version that cannot be saved"
        what = f"was saved by version {saved.version} of {saved.predictor}, here is {now}: train it again"
        raise BadInput(what, "predictor file", path)
    if step_s is not None and step_s != saved.step_s:
        raise BadInput(
            f"was trained on steps of {saved.step_s:g} s, the trace has {step_s:g} s", "predictor file", path
        )
    try:
        predictor.restore(saved.state)
    except ValueError as error:
        raise BadInput(f"holds no {saved.predictor} ({error})", "predictor file", path) from error
    return predictor
