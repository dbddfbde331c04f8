"""Predictors by name: ours, and any package's that registers an entry point in the group `mark.predictors`.

An entry point names something callable as `factory(seed=...)` that returns a `Predictor`.
"""

from __future__ import annotations

from mark.domain.errors import BadInput
from mark.forecasting.artefact import Artefact
from mark.forecasting.port import Predictor

GROUP = "mark.predictors"


def predictor_names() -> tuple[str, ...]:
    """Every name `make_predictor` takes, sorted."""
    from importlib.metadata import entry_points

    return tuple(sorted({Artefact.name, *entry_points(group=GROUP).names}))


def make_predictor(name: str, seed: int) -> Predictor:
    """A fresh predictor. Raises BadInput for an unknown name (naming the known) and for one that does not load."""
    if name == Artefact.name:
        return Artefact(seed)
    from importlib.metadata import entry_points  # not at the top: reading metadata costs start-up time

    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise BadInput(f"unknown (known: {', '.join(predictor_names())})", "predictor", name)
    try:
        predictor: Predictor = found[0].load()(seed=seed)
    except (ImportError, AttributeError, TypeError) as error:
        raise BadInput(f"does not load ({error})", f"predictor {name}", found[0].value) from error
    return predictor
