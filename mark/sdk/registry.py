"""Registration of models from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.domain.load_unit import REQUESTS
from mark.domain.profile import ProfileRow
from mark.models.files import listed, model_files
from mark.models.model import Model
from mark.models.registry import ModelVersion, check_said
from mark.models.registry_place import open_registry, place_of
from mark.models.trial import opened_files, try_model
from mark.profiling.table import load_profiles
from mark.sdk.reference import reference_of

# `tail_derived` is left out, because a tail that a service states belongs to no version; `unit` is requests.
_COLUMNS = tuple(name for name in ProfileRow.__dataclass_fields__ if name not in ("tail_derived", "unit"))


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
    load: bool = True,
) -> ModelVersion:
    """Register a model as a version of `name` and return the version, as `mark models register` does.

    `model` is anything that `mark.Service` takes. It is loaded once to see which files of its folder it opens. Those
    files are kept, or the files that match the patterns `files`; logs and possible secrets among them are left out,
    with a message. Then it is loaded from these files alone, as a worker will load it. Without `load` it is not
    loaded, and `files` must be given. `metrics` are your own numbers, `profile` a profile file with rows of the model,
    `parent` the version that this one was made from, `alias` a name that moves to this version, `registry` a folder or
    `s3://BUCKET/PREFIX`. The same content is the same version. Raises BadInput.
    """
    reference, folder = reference_of(model)
    check_said(name, reference, "", metrics, alias)
    if not load and not files:
        raise BadInput("must say which files the model needs, because it is not loaded", "files")
    found = model_files(reference, folder, files, without=Path(place_of(registry)))
    rows = None if profile is None else _rows_of(Path(profile), (found.reference, reference, name))
    if not files:
        back = [found.folder / name for name in found.kept_back]
        found = found.only(opened_files(found.reference, found.folder, [*found.files.values(), *back]))
    found.checked()
    if found.kept_back:
        print(f"mark: left out, as logs or possible secrets: {', '.join(found.kept_back[:10])}", file=sys.stderr)
    print(f"mark: of {found.folder.resolve()} keeps {listed(found.files)}", file=sys.stderr)

    def tried(folder: Path) -> None:
        if load:
            try:
                try_model(found.reference, folder)
            except BadInput as error:
                raise BadInput(f"with the files that would be kept alone it {error.what}", error.where) from None

    opened = open_registry(registry)
    return opened.register(
        name, found.reference, found.files, profile=rows, metrics=metrics, parent=parent, alias=alias, tried=tried
    )


def _rows_of(file: Path, names: Sequence[str]) -> tuple[str, bytes]:
    """Return the model's rows in one form, so that rows of other models in the file do not make another version."""
    profiles = load_profiles(str(file))
    model = next((name for name in names if name in profiles), None)
    if model is None and len(profiles) == 1:
        model = next(iter(profiles))
    if model is None:
        raise BadInput(f"has no rows of {names[0]}, only of {', '.join(sorted(profiles))}", str(file))
    lines = [",".join(("model", "instance", *_COLUMNS))]
    for instance, one in sorted(profiles[model].items()):
        if one.unit != REQUESTS.name:
            raise BadInput("is in another unit than requests, which a version answers", str(file), one.unit)
        for row in one.rows:
            cells = ("" if value is None else str(value) for value in (getattr(row, name) for name in _COLUMNS))
            lines.append(",".join((_quoted(model), _quoted(instance), *cells)))
    return model, ("\n".join(lines) + "\n").encode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
