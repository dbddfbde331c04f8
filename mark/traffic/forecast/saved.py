"""A predictor's learned state in one file: a numpy archive (.npz) whose header names the predictor.

A checkpoint of an unfinished training is the same file with another kind. The content of either is never executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import zipfile
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.traffic.forecast.predictor import State

FORMAT = 1  # of the file, not of the state in it
_HEADER = "header"
_STATE = "state/"


@dataclass(frozen=True, slots=True)
class Saved:
    """The `state` of the predictor named `predictor`, whose layout is `version`, learned from steps of `step_s`.

    `kind` is `predictor` or `checkpoint`; `learned_from` distinguishes histories and seeds (see `fingerprint`).
    """

    predictor: str
    version: int
    step_s: float
    learned_from: str
    kind: str = "predictor"
    state: State = field(default_factory=dict)


def fingerprint(history: Load, seed: int) -> str:
    """Return a text that is equal for equal histories and seeds, and practically never otherwise."""
    digest = hashlib.sha256(f"{seed} {history.start_s!r} {history.step_s!r} {history.fine}".encode())
    for rates in (history.mean_rps, history.peak_rps):
        digest.update(np.ascontiguousarray(rates, dtype="<f8").tobytes())
    return digest.hexdigest()


def save(path: str, saved: Saved) -> None:
    """Write `saved` to `path` atomically: a reader finds the old file or the new one, never half of it.

    Raises BadInput if the file cannot be written.
    """
    header = {key: value for key, value in asdict(saved).items() if key != "state"}
    arrays = {_STATE + name: array for name, array in saved.state.items()}
    arrays[_HEADER] = np.array(json.dumps({"format": FORMAT, **header}))
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            try:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", "predictor file", path) from None


def load(path: str, kind: str = "predictor") -> Saved:
    """Return the content that `save` wrote. Raises BadInput for a file that is damaged, of another kind or format."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop(_HEADER)))
        found = header.pop("format")
        if found != FORMAT:
            raise BadInput(f"has format {found}, this mark reads format {FORMAT}", "predictor file", path)
        saved = Saved(**header, state={name.removeprefix(_STATE): array for name, array in arrays.items()})
        numbers = isinstance(saved.version, int) and isinstance(saved.step_s, float) and saved.step_s > 0.0
        texts = (saved.predictor, saved.learned_from, saved.kind)
        if not numbers or not math.isfinite(saved.step_s) or not all(isinstance(text, str) for text in texts):
            raise ValueError
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror or error})", "predictor file", path) from None
    # Errors of numpy and zipfile for foreign files, and errors of an unexpected header.
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput("is damaged, or not a predictor saved by `mark forecast fit`", "predictor file", path) from error
    if saved.kind != kind:
        raise BadInput(f"is a {saved.kind}, not a {kind}", "predictor file", path)
    return saved


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it; temporary files ignore it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
