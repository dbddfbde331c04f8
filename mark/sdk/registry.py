"""Models into a registry, from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.domain.profile import ProfileRow
from mark.models.files import model_files
from mark.models.model import Model
from mark.models.registry import ModelVersion
from mark.models.registry_place import open_registry, place_of
from mark.profiling.table import load_profiles
from mark.sdk.reference import reference_of

_COLUMNS = tuple(ProfileRow.__dataclass_fields__)


def register(
    model: str | type | Model | Callable[..., Any],
    name: str,
    *,
    metrics: Mapping[str, float] | None = None,
    profile: str | Path | None = None,
    parent: str | None = None,
    alias: str | None = None,
    files: Sequence[str] = (),
    registry: str | None = None,
) -> ModelVersion:
    """Keep a model as a version of `name`, and say which: `mark models register`.

    `model` is what `mark.Service` takes. Kept are the files of its folder, or those that match the patterns `files`;
    what could hold a secret is left out, and said. `metrics` are numbers of your own, `profile` a profile file with
    rows of the model, `parent` the version that this one was made from, `alias` what shall name it from now on,
    `registry` a folder or `s3://BUCKET/PREFIX`. The same again is the same version. Raises BadInput.
    """
    reference, folder = reference_of(model)
    within, found, kept_back = model_files(reference, folder, files, without=Path(place_of(registry)))
    if kept_back:
        print(f"mark: not kept, because they may hold a secret: {', '.join(kept_back[:10])}", file=sys.stderr)
    rows = None if profile is None else _rows_of(Path(profile), (within, reference, name))
    opened = open_registry(registry)
    return opened.register(name, within, found, profile=rows, metrics=metrics, parent=parent, alias=alias)


def _rows_of(file: Path, names: Sequence[str]) -> tuple[str, bytes]:
    """The rows of the model, alone and in one form, so that rows of other models make no other version."""
    profiles = load_profiles(str(file))
    model = next((name for name in names if name in profiles), None)
    if model is None and len(profiles) == 1:
        model = next(iter(profiles))
    if model is None:
        raise BadInput(f"has no rows of {names[0]}, only of {', '.join(sorted(profiles))}", str(file))
    lines = [",".join(("model", "instance", *_COLUMNS))]
    for instance, one in sorted(profiles[model].items()):
        for row in one.rows:
            cells = ("" if value is None else str(value) for value in asdict(row).values())
            lines.append(",".join((_quoted(model), _quoted(instance), *cells)))
    return model, ("\n".join(lines) + "\n").encode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
